"""Runs that ask language models: what the live page shows of prompts, replies, and what they took."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from mkevolve_core import events as ev
from mkevolve_core.config import build_config
from mkevolve_core.domain import Problem, RunPhase
from mkevolve_core.llm.mailbox.layout import Mailbox
from pages._words import amount, dollars, visible
from store.run_folder import RunFolder
from tests.pages.reading import mounted, texts
from tests.store.llm_run import HOSTILE, MODEL, SETTINGS, write_llm_run
from tests.store.sample_run import PROBLEM, write_sample_run

OpenPage = Callable[..., AppTest]


def tables(page: AppTest) -> list[list[dict[str, Any]]]:
    return [one.value.to_dict("records") for one in page.dataframe]


def codes(page: AppTest) -> list[str]:
    return [one.value for one in page.code]


def figure(page: AppTest, label: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in mounted(page, "head")["figures"] if one["label"] == label)
    return found


def test_the_calls_of_a_subproblem_are_a_table_with_what_they_took(
    runs_dir: Path, open_page: OpenPage
) -> None:
    write_llm_run(runs_dir)
    page = open_page("live", node="4a", it="3", tab="Prompts")
    calls = {row["call"]: row for row in tables(page)[0]}
    assert calls["4a#1"]["model"] == f"anthropic/{MODEL}"
    assert (calls["4a#1"]["in"], calls["4a#1"]["out"], calls["4a#1"]["cost"]) == (6120, 1500, 0.0391)
    assert round(calls["4a#1"]["cached"]) == 67
    assert (calls["4a#2"]["ended"], calls["4a#99"]["ended"]) == ("cut off", "failed: rate limit")
    assert calls["4a#3~1"]["role"] == "refine, asked again"
    assert "9 calls · 49.5 k tokens in, 66% cached · 42.5 k out · $0.31" in texts(page)
    assert not page.exception


def test_prompt_and_reply_of_the_shown_candidate_are_plain_text(runs_dir: Path, open_page: OpenPage) -> None:
    write_llm_run(runs_dir)
    page = open_page("live", node="4a", it="3", cand="4a#3", tab="Prompts")
    prompt, reply = page.code[:2]
    assert "The task of 4a#3: refine, <b>" in prompt.value
    assert reply.value.startswith(visible(HOSTILE))
    assert (prompt.language, reply.language) == ("plaintext", "plaintext")


def test_a_call_of_the_address_is_shown(runs_dir: Path, open_page: OpenPage) -> None:
    write_llm_run(runs_dir)
    page = open_page("live", node="4a", it="3", tab="Prompts", call="58")
    assert "No reply" in texts(page)
    assert "429: rate limited <b>again</b>" in codes(page)
    assert page.query_params["call"] == "58"


def test_what_a_mailbox_did_not_tell_is_unknown(runs_dir: Path, open_page: OpenPage) -> None:
    write_llm_run(runs_dir, mailbox=True)
    page = open_page("live", node="1", it="3", tab="Prompts")
    assert "unknown tokens in · unknown out · cost unknown" in texts(page)
    assert (figure(page, "Tokens")["value"], figure(page, "Cost")["value"]) == ("unknown", "unknown")
    assert "$0" not in json.dumps(mounted(page, "head"))


def test_a_built_in_run_has_no_prompts_and_no_cost(runs_dir: Path, open_page: OpenPage) -> None:
    write_sample_run(runs_dir)
    page = open_page("live", node="1", it="3", tab="Prompts")
    assert "No language model was asked for this subproblem." in texts(page)
    assert not {"Tokens", "Cost"} & {one["label"] for one in mounted(page, "head")["figures"]}
    assert page.button_group(key="x_axis").options == ["iteration", "calls", "minutes"]


def test_a_text_that_is_not_kept_is_said(runs_dir: Path, open_page: OpenPage) -> None:
    run = write_llm_run(runs_dir)
    for path in (run.path / "artifacts").iterdir():
        path.unlink()
    page = open_page("live", node="4a", it="3", tab="Prompts")
    assert "not among the run's artifacts" in texts(page)
    assert not page.exception


def test_the_head_says_calls_tokens_cost_and_post_fusion(runs_dir: Path, open_page: OpenPage) -> None:
    write_llm_run(runs_dir, measured=True)
    page = open_page("live")
    assert (figure(page, "Calls")["value"], figure(page, "Calls")["more"]) == (
        "32",
        "of 40 · 31 other · 2 failed",
    )
    assert (figure(page, "Tokens")["value"], figure(page, "Tokens")["more"]) == ("706 k", "65% cached")
    assert (figure(page, "Cost")["value"], figure(page, "Cost")["more"]) == ("$2.46", "of $12.00")
    assert (figure(page, "Best end to end")["value"], figure(page, "Post-fused")["value"]) == (
        "1.28×",
        "1.40×",
    )


def test_without_a_selection_the_runs_own_calls_are_there(runs_dir: Path, open_page: OpenPage) -> None:
    write_llm_run(runs_dir)
    page = open_page("live")
    roles, calls = tables(page)
    assert {row["role"]: row["calls"] for row in roles}["asked again"] == 7
    assert [row["call"] for row in calls][:3] == ["decompose 1.1", "split 1.1", "fuse 1.1"]


def test_a_missed_writing_is_in_the_list_and_says_why(runs_dir: Path, open_page: OpenPage) -> None:
    write_llm_run(runs_dir)
    page = open_page("live", node="4a", it="3", tab="Candidates")
    rows = tables(page)[0]
    assert [row["candidate_id"] for row in rows] == [f"4a#{n}" for n in range(1, 6)]
    assert (rows[1]["outcome"], rows[1]["iteration"]) == ("no candidate: cut off", 2)
    assert "cut off at its limit <b>4a#2</b>" in rows[1]["detail"]
    page = open_page("live", node="4a", it="3", cand="4a#2", tab="Code")
    assert "No candidate 4a#2 came of its call: cut off" in page.warning[0].value.replace("\\", "")
    page = open_page("live", node="4a", it="3", cand="4a#2", tab="Prompts")
    assert codes(page)[1] == "I will now wr"


def test_post_fusion_is_a_tab_of_the_whole(runs_dir: Path, open_page: OpenPage) -> None:
    write_llm_run(runs_dir, measured=True)
    page = open_page("live", node="e2e", it="5")
    page.button_group(key="whole_tab").set_value("Post-fusion").run()
    rows = tables(page)[0]
    assert [row["outcome"] for row in rows] == ["no draft", "flagged", "correct"]
    assert rows[0]["note"] == "the model refused <b>so</b>"
    assert page.selectbox(key="postfuse_try").value == 3
    assert "_whole_kernel" in codes(page)[0]


def test_the_lines_can_stand_over_tokens_and_cost(runs_dir: Path, open_page: OpenPage) -> None:
    write_llm_run(runs_dir)
    page = open_page("live")
    page.button_group(key="x_axis").set_value("cost").run()
    figure = mounted(page, "lines")["figure"]
    assert figure["layout"]["xaxis"]["title"]["text"] == "dollars"
    whole = next(trace for trace in figure["data"] if trace.get("customdata", [""])[-1] == "e2e@5")
    assert whole["x"] == sorted(whole["x"]) and 2 < whole["x"][-1] < 2.5


def test_where_the_cost_is_unknown_no_line_stands_over_it(runs_dir: Path, open_page: OpenPage) -> None:
    write_llm_run(runs_dir, mailbox=True)
    page = open_page("live")
    page.button_group(key="x_axis").set_value("cost").run()
    assert mounted(page, "lines")["empty"] == "The cost is unknown."


def test_a_run_out_of_budget_says_which_limit_and_asks_for_a_larger_one(
    runs_dir: Path, open_page: OpenPage
) -> None:
    run = write_llm_run(runs_dir, until=100)
    journal = run.journal()
    journal.append(ev.StateChanged(RunPhase.BUDGET_EXHAUSTED, "The limit of $12.00 is reached: raise usd."))
    journal.close()
    page = open_page("live")
    assert mounted(page, "head")["state"] == "out of budget"
    said = page.warning[0].value.replace("\\", "")
    assert "The limit of $12.00 is reached" in said
    assert f"mkevolve resume {run.run_id} --limit usd=24" in said
    assert page.number_input(key="run_limit_usd").value == 24.0
    assert page.number_input(key="run_limit_calls").value == 400.0
    assert not page.button(key="run_pause").disabled
    page.number_input(key="run_limit_usd").set_value(12.0).run()
    assert page.button(key="run_pause").disabled


def test_requests_that_wait_in_the_mailbox_are_counted_with_the_way_to_answer(
    runs_dir: Path, open_page: OpenPage
) -> None:
    run = write_llm_run(runs_dir, mailbox=True, until=100)
    box = Mailbox(run.path / "mailbox")
    box.prepare()
    for number in (1, 2):
        folder = box.open / f"{number:06d}-generate-{'a' * 12}-0"
        folder.mkdir()
        facts = {
            "protocol": 1,
            "role": "generate",
            "slot": f"1#{number}",
            "expects": "kernel",
            "created": 1.0,
        }
        (folder / "request.json").write_text(json.dumps(facts))
        (folder / "prompt.md").write_text("Write.")
    said = "\n".join(one.value for one in open_page("live").info).replace("\\", "")
    assert f"2 requests wait in the mailbox: mkevolve answer {run.run_id}" in said


def test_a_replay_is_called_one_everywhere_and_cannot_be_steered(runs_dir: Path, open_page: OpenPage) -> None:
    name = replayed(runs_dir)
    page = open_page("live", run=name)
    head = mounted(page, "head")
    assert head["note"] == "replay of convvit"
    assert "replay" in head["title"]
    page = open_page("runs")
    assert tables(page)[0][0]["state"].endswith("· replay")
    assert "replay of convvit" in texts(page).replace("\\", "")
    resume = next(one for one in page.button if one.label == "Resume")
    assert resume.disabled and "not gone on with" in resume.help


def replayed(runs_dir: Path) -> str:
    """A replay that was stopped."""
    config = build_config("paper", {"agents": "llm"})
    folder = RunFolder.create(runs_dir, Problem("convvit", PROBLEM), config, "261201-101010-replay_convvit")
    journal = folder.journal()
    problem = Problem("convolutional_vision_transformer", PROBLEM)
    journal.append(
        ev.RunStarted(folder.run_id, problem, config, "NVIDIA H200", llm=SETTINGS, replay="convvit")
    )
    journal.append(ev.StateChanged(RunPhase.PARKED, "interrupted"))
    journal.close()
    return folder.run_id


@pytest.mark.parametrize("character", ["\x00", "\x1b", "\r", "\u202e", "\u2066", "\ufeff", "\u200b", "\x85"])
def test_what_cannot_be_seen_is_shown_by_its_number(character: str) -> None:
    assert visible(f"a{character}b") == f"a<U+{ord(character):04X}>b"


def test_what_can_be_seen_is_left_as_it_is() -> None:
    assert visible("<b>$x$</b>\t**ü** 日本\r\nline") == "<b>$x$</b>\t**ü** 日本\nline"
    assert visible("\ud800") == "?"


@pytest.mark.parametrize(
    ("value", "told"),
    [(None, "unknown"), (0, "0"), (950, "950"), (8_120, "8.12 k"), (98_140, "98.1 k"), (1_236_000, "1.24 M")],
)
def test_large_numbers_are_told_in_three_digits(value: float | None, told: str) -> None:
    assert amount(value) == told


@pytest.mark.parametrize(
    ("value", "told"),
    [(None, "unknown"), (0.0, "$0.00"), (0.0391, "$0.0391"), (3.9, "$3.90"), (1234.5, "$1,234.50")],
)
def test_money_is_never_zero_where_it_is_not_known(value: float | None, told: str) -> None:
    assert dollars(value) == told
