import pytest

from mkevolve_core.config import build_config, parse_changes, read_config, write_config
from mkevolve_core.errors import ConfigError


def test_the_paper_preset_is_the_papers_setting():
    paper = build_config("paper")
    assert (paper.iterations, paper.period, paper.calls, paper.width, paper.expansion) == (5, 2, 32, 4, 1)
    assert (paper.fuse, paper.swap, paper.swap_below) == (False, False, 0.9)
    assert (paper.atol, paper.rtol, paper.cases, paper.warmup, paper.repeats) == (1e-4, 1e-4, 5, 10, 100)
    assert paper.candidate_seconds == 300.0


def test_quick_is_three_iterations_of_eight_calls_with_fusion():
    quick = build_config("quick")
    assert (quick.iterations, quick.calls, quick.period, quick.fuse) == (3, 8, 1, True)


def test_changes_come_after_the_preset_and_are_typed_like_toml():
    changes = parse_changes(["iterations=2", "fuse=false", "device=cpu", "atol=1e-3", "candidate_seconds=5"])
    config = build_config("quick", changes)
    assert (config.iterations, config.fuse, config.device, config.atol) == (2, False, "cpu", 1e-3)
    assert config.candidate_seconds == 5.0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"iteratons": 3}, "Did you mean 'iterations'"),
        ({"iterations": 0}, "iterations is 0; it must lie between 1 and 1000"),
        ({"iterations": "many"}, "iterations is 'many'; it must be a int"),
        ({"fuse": 1}, "fuse is 1; it must be a bool"),
    ],
)
def test_a_bad_setting_is_one_sentence(changes, words):
    with pytest.raises(ConfigError, match=words):
        build_config("paper", changes)


def test_an_unknown_preset_lists_what_there_is():
    with pytest.raises(ConfigError, match="paper, quick"):
        build_config("slow")


def test_what_is_not_key_value_says_so():
    with pytest.raises(ConfigError, match="not KEY=VALUE"):
        parse_changes(["iterations"])


def test_a_config_survives_its_file(tmp_path):
    config = build_config("quick", {"seed": 7, "park_after": 2.5})
    write_config(config, tmp_path / "config.toml")
    assert read_config(tmp_path / "config.toml") == config
