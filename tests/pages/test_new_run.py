import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from mkevolve_core.launch import kill_run
from mkevolve_core.problem import SAMPLES
from pages import _settings
from tests.pages.reading import running, texts
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
