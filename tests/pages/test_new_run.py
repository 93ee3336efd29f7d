import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from mkevolve_core.launch import kill_run
from mkevolve_core.problem import SAMPLES
from pages import _settings, _writers
from pages._recorded import shipped
from store.run_folder import RunFolder
from tests.pages.browser import eventually
from tests.pages.reading import running, texts
from tests.store.llm_run import write_llm_run
from tests.store.sample_run import write_sample_run

OpenPage = Callable[..., AppTest]
GOOD = (SAMPLES / "mlp.py").read_text()


def start_button(page: AppTest) -> Any:
    return page.button(key="start")


def choose(page: AppTest, way: str) -> AppTest:
    return page.button_group(key="way").set_value(way).run()


def test_a_newcomer_finds_the_sample_chosen_and_start_enabled(open_page: OpenPage) -> None:
    page = open_page("new_run")
    assert page.selectbox(key="sample").value == "convolutional_vision_transformer"
    assert not start_button(page).disabled
    assert not page.exception


def test_it_says_what_will_happen(open_page: OpenPage, monkeypatch: pytest.MonkeyPatch) -> None:
    said = texts(open_page("new_run"))
    assert "24 kernel-writing calls" in said
    assert "no key" in said
    assert "estimates" in said or "measured on the GPU" in said


def test_another_preset_brings_its_own_values(open_page: OpenPage) -> None:
    page = open_page("new_run")
    page.button_group(key="preset").set_value("paper").run()
    assert "160 kernel-writing calls" in texts(page)


def test_a_changed_setting_changes_the_outlook(open_page: OpenPage) -> None:
    page = open_page("new_run")
    page.number_input(key="calls quick").set_value(2).run()
    assert "6 kernel-writing calls" in texts(page)


def test_a_setting_out_of_range_is_refused_with_the_range(open_page: OpenPage) -> None:
    page = open_page("new_run")
    page.number_input(key="iterations quick").set_value(0).run()
    assert "iterations is 0" in page.error[0].value
    assert not [button for button in page.button if button.key == "start"]


def test_a_path_that_is_not_there_is_said_beside_the_field(open_page: OpenPage) -> None:
    page = choose(open_page("new_run"), "Path")
    page.text_input(key="path").set_value("/nowhere/net.py").run()
    assert "does not exist" in page.error[0].value
    assert start_button(page).disabled


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("class Model: pass", "does not define get\\_inputs"),
        ("def f(:", "is not Python"),
    ],
)
def test_pasted_text_is_read_by_its_syntax_tree(open_page: OpenPage, text: str, complaint: str) -> None:
    page = choose(open_page("new_run"), "Paste")
    page.text_area(key="paste").set_value(text).run()
    assert complaint in page.error[0].value
    assert start_button(page).disabled


def test_pasted_text_that_is_a_problem_can_be_started(open_page: OpenPage) -> None:
    page = choose(open_page("new_run"), "Paste")
    page.text_area(key="paste").set_value(GOOD).run()
    assert "✓ Model" in texts(page)
    assert not start_button(page).disabled


def test_start_is_refused_while_a_run_is_at_work(runs_dir: Path, open_page: OpenPage) -> None:
    name = running(runs_dir)
    page = open_page("new_run")
    assert name in page.warning[0].value.replace("\\", "")
    assert start_button(page).disabled
    page.checkbox(key="beside").check().run()
    assert not start_button(page).disabled


def test_earlier_runs_say_how_long_it_takes(runs_dir: Path, open_page: OpenPage) -> None:
    write_sample_run(runs_dir)
    page = open_page("new_run")
    page.button_group(key="preset").set_value("paper").run()
    assert re.search(r"as 1 finished run of it took", texts(page))


def test_a_preset_is_told_in_one_sentence() -> None:
    assert _settings.told(_settings.build_config("quick")) == (
        "3 iterations of 8 calls; splits what fails each iteration, fuses what is correct, "
        "swaps nothing at the end."
    )


def test_pressing_start_in_two_tabs_starts_one_engine(runs_dir: Path, open_page: OpenPage) -> None:
    first, second = open_page("new_run"), open_page("new_run")
    for page in (first, second):
        page.selectbox(key="sample").set_value("mlp").run()
    start_button(first).click().run()
    start_button(second).click().run()
    found = [folder for folder in runs_dir.iterdir() if (folder / "engine.json").exists()]
    assert len(found) == 1
    kill_run(runs_dir, found[0].name)
    assert not first.exception
    assert not second.exception


def test_a_folder_that_cannot_be_written_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_page: OpenPage
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MKEVOLVE_RUNS_DIR", str(tmp_path / "file" / "runs"))
    page = open_page("new_run")
    assert "cannot be made" in page.info[0].value.replace("\\", "")
    assert not page.exception


# -------------------------------------------------------------------------------- who writes

CANARY = "sk-ant-canary-0123456789abcdef"


def by(page: AppTest, agents: str) -> AppTest:
    return page.button_group(key="agents").set_value(agents).run()


@pytest.fixture
def own_toml(runs_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The example that the page gives, as somebody's own file; its variable holds a key."""
    path = tmp_path / "mkevolve.toml"
    path.write_text(_writers.EXAMPLE)
    monkeypatch.setenv("MKEVOLVE_CONFIG", str(path))
    monkeypatch.setenv("ANTHROPIC_API_KEY", CANARY)
    return path


def test_without_a_file_it_says_how_to_give_one(open_page: OpenPage) -> None:
    page = by(open_page("new_run"), "llm")
    assert "No mkevolve.toml" in page.error[0].value.replace("\\", "")
    assert page.code[-1].value == _writers.EXAMPLE.rstrip()
    assert start_button(page).disabled


def test_each_role_has_its_model_its_key_and_its_price(own_toml: Path, open_page: OpenPage) -> None:
    page = by(open_page("new_run"), "llm")
    first, second = page.dataframe[0].value.to_dict("records")
    assert first["roles"].split(", ")[:4] == ["decompose", "generate", "debug", "refine"]
    assert (first["provider"], first["model"]) == ("claude: anthropic", "claude-opus-5-5")
    assert first["key"] == "set (env ANTHROPIC_API_KEY)"
    assert first["price"].startswith("$4 in, $20 out, per million")
    assert second == {
        "roles": "review",
        "provider": "local: openai_chat",
        "model": "gpt-oss-120b",
        "key": "none needed",
        "price": "free",
    }
    assert not start_button(page).disabled
    assert not page.exception


def test_a_key_is_never_shown(own_toml: Path, open_page: OpenPage) -> None:
    page = by(open_page("new_run"), "llm")
    assert CANARY not in str(page) + texts(page) + str(page.dataframe[0].value.to_dict())


def test_a_missing_key_is_said_with_its_variable(
    own_toml: Path, open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    page = by(open_page("new_run"), "llm")
    assert page.dataframe[0].value.to_dict("records")[0]["key"] == "not set"
    assert "set the environment variable ANTHROPIC_API_KEY" in page.error[0].value.replace("\\", "")
    assert start_button(page).disabled


def test_the_forecast_changes_with_the_search(own_toml: Path, open_page: OpenPage) -> None:
    page = by(open_page("new_run"), "llm")
    said = texts(page).replace("\\", "")
    assert re.search(r"Forecast.*: \d+ to \d+ calls in all · \d+ k to \d+ k tokens in", said)
    assert re.search(r"cost \*\*\$\d+\.\d\d to \$\d+\.\d\d", said)
    assert "Limits: $12.00." in said
    page.number_input(key="calls quick").set_value(80).run()
    assert texts(page).replace("\\", "") != said


def test_a_dollar_limit_that_cannot_hold_is_refused(own_toml: Path, open_page: OpenPage) -> None:
    own_toml.write_text(_writers.EXAMPLE.replace("claude-opus-5-5", "some-new-model"))
    page = by(open_page("new_run"), "llm")
    assert "The limit of $12 cannot hold" in page.error[0].value.replace("\\", "")
    assert start_button(page).disabled
    page.number_input(key="limit calls llm").set_value(200).run()
    assert not page.error
    assert "The price of claude's some-new-model is not known" in texts(page).replace("\\", "")
    assert "cost **unknown" in texts(page)
    assert not start_button(page).disabled


def test_earlier_calls_make_the_forecast(own_toml: Path, runs_dir: Path, open_page: OpenPage) -> None:
    write_llm_run(runs_dir)
    assert re.search(r"From \d+ earlier calls", texts(by(open_page("new_run"), "llm")).replace("\\", ""))


def test_a_mailbox_needs_no_file_and_costs_what_nobody_knows(open_page: OpenPage) -> None:
    page = by(open_page("new_run"), "mailbox")
    said = texts(page).replace("\\", "")
    assert "mkevolve answer RUN" in said
    assert "cost **unknown**" in said
    assert not start_button(page).disabled
    assert page.number_input(key="patience quick").value == 10.0


@pytest.mark.slow
def test_a_mailbox_run_is_started_with_its_limits(runs_dir: Path, open_page: OpenPage) -> None:
    page = by(open_page("new_run"), "mailbox")
    page.selectbox(key="sample").set_value("mlp").run()
    page.number_input(key="limit calls mailbox").set_value(40).run()
    start_button(page).click().run()
    (folder,) = (path.parent for path in runs_dir.glob("*/engine.json"))
    try:
        eventually(lambda: bool(list(folder.glob("mailbox/open/*/prompt.md"))), seconds=120)
        state = RunFolder(folder).state()
        assert state.config.agents == "mailbox"
        assert state.llm is not None and state.llm.limits.calls == 40
    finally:
        kill_run(runs_dir, folder.name)


# -------------------------------------------------------------------------------- recordings


def test_a_newcomer_is_offered_a_recorded_run(open_page: OpenPage) -> None:
    offered = [one for one in open_page("new_run").button if one.label == "Watch a recorded run"]
    assert shipped()
    assert len(offered) == 1
    on_runs = [one for one in open_page("runs").button if one.label == "Watch a recorded run"]
    assert len(on_runs) == 1


def test_who_has_runs_is_offered_none(runs_dir: Path, open_page: OpenPage) -> None:
    write_sample_run(runs_dir)
    for name in ("new_run", "runs"):
        assert not [one for one in open_page(name).button if one.label == "Watch a recorded run"]
