import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from mkevolve_core import events as ev
from mkevolve_core.commands import DirectoryInbox
from mkevolve_core.domain import Command, CommandKind, RunPhase
from store.journal import FileJournal
from tests.pages.reading import crashed, mounted, running, texts, unreadable
from tests.store.sample_run import write_sample_run

OpenPage = Callable[..., AppTest]


def commands(runs_dir: Path, run_id: str) -> tuple[Command, ...]:
    return DirectoryInbox(runs_dir / run_id / "commands").pending()


def press(test: AppTest, label: str) -> AppTest:
    return next(button for button in test.button if button.label == label).click().run()


def button(test: AppTest, label: str) -> object:
    return next(one for one in test.button if one.label == label)


def test_without_a_run_it_shows_the_way_to_one(open_page: OpenPage) -> None:
    page = open_page("live")
    assert "No run yet" in texts(page)
    assert not page.exception


def test_an_unknown_run_is_named(open_page: OpenPage) -> None:
    assert "No run 'nobody'" in texts(open_page("live", run="nobody")).replace("\\", "")


def test_a_running_run_is_drawn_with_its_state_and_evidence(runs_dir: Path, open_page: OpenPage) -> None:
    running(runs_dir)
    page = open_page("live")
    head, tree = mounted(page, "head"), mounted(page, "tree")
    assert head["state"] == "running"
    assert "is alive" in head["evidence"]
    assert head["ticking"]
    assert [column["iteration"] for column in tree["columns"]] == [1, 2, 3, 4, 5]
    assert [column["planned"] for column in tree["columns"]] == [False, False, False, True, True]
    assert not page.exception


def test_a_split_is_an_edge_and_a_failing_box_says_so(runs_dir: Path, open_page: OpenPage) -> None:
    running(runs_dir)
    tree = mounted(open_page("live"), "tree")
    assert {"from": "4@1", "to": "4a@2", "kind": "split"} in tree["edges"]
    encoder = next(box for box in tree["boxes"] if box["id"] == "4@1")
    assert (encoder["glyph"], encoder["state"]) == ("✗", "fail")
    assert "fails, does not compile" in encoder["sentence"]


def test_a_fuse_is_an_edge_from_both(runs_dir: Path, open_page: OpenPage) -> None:
    write_sample_run(runs_dir)
    edges = mounted(open_page("live"), "tree")["edges"]
    assert [edge["from"] for edge in edges if edge["kind"] == "fuse"] == ["4a@3", "4b@3"]


def test_an_estimate_is_never_called_a_speedup(runs_dir: Path, open_page: OpenPage) -> None:
    write_sample_run(runs_dir)
    page = open_page("live", node="4c", it="5", tab="Verdict")
    said = texts(page) + json.dumps([mounted(page, name) for name in ("head", "tree", "lines")])
    assert "est. 1.31×" in said
    assert "Speedup against" not in said
    assert all(box["estimated"] for box in mounted(page, "tree")["boxes"] if box["glyph"] == "✓")


def test_measured_speedups_name_their_baseline(runs_dir: Path, open_page: OpenPage) -> None:
    write_sample_run(runs_dir, measured=True)
    page = open_page("live", node="4c", it="5", tab="Verdict")
    assert "Speedup against torch.compile" in texts(page)
    assert "vs torch.compile" in texts(page)
    assert "est." not in json.dumps(mounted(page, "tree"))


def test_a_selection_of_the_address_is_shown(runs_dir: Path, open_page: OpenPage) -> None:
    write_sample_run(runs_dir)
    page = open_page("live", node="4a", it="3")
    assert mounted(page, "tree")["selected"] == ["4a@3"]
    assert "4a Self\\-attention" in texts(page)
    assert "_self_attention_kernel" in page.code[0].value


def test_a_selection_that_is_not_there_is_none(runs_dir: Path, open_page: OpenPage) -> None:
    write_sample_run(runs_dir)
    page = open_page("live", node="99", it="3")
    assert mounted(page, "tree")["selected"] == []
    assert not page.exception


def test_a_crashed_run_says_why_and_can_be_resumed(runs_dir: Path, open_page: OpenPage) -> None:
    crashed(runs_dir)
    page = open_page("live")
    assert mounted(page, "head")["state"] == "crashed"
    assert "Crashed" in page.error[0].value
    assert "gone without a final event" in page.error[0].value
    assert not button(page, "Resume").disabled


def test_an_unreadable_run_says_what_is_wrong(runs_dir: Path, open_page: OpenPage) -> None:
    name = unreadable(runs_dir)
    page = open_page("live", run=name)
    assert "cannot read" in page.error[0].value
    assert not page.exception


def test_actions_of_a_finished_run_are_disabled_with_the_reason(runs_dir: Path, open_page: OpenPage) -> None:
    write_sample_run(runs_dir)
    page = open_page("live", node="4c", it="5")
    for label in ("Split", "Fuse…", "Pin", "Swap…"):
        assert button(page, label).disabled
        assert "finished: resume it" in button(page, label).help.replace("\\", "")


def test_a_pinned_subproblem_can_only_be_unpinned(runs_dir: Path, open_page: OpenPage) -> None:
    name = running(runs_dir)
    page = open_page("live", node="3", it="3")
    assert "pinned" in button(page, "Split").help
    press(page, "Unpin")
    assert [(one.kind, one.subproblem_ids) for one in commands(runs_dir, name)] == [
        (CommandKind.UNPIN, ("3",))
    ]


def test_pin_pause_and_stop_write_one_command_each(runs_dir: Path, open_page: OpenPage) -> None:
    name = running(runs_dir)
    page = open_page("live", node="4a", it="3")
    for label in ("Pin", "Pause", "Stop"):
        press(page, label)
    assert [one.kind for one in commands(runs_dir, name)] == ["pin", "pause", "stop"]


def test_the_same_command_is_not_written_twice_while_it_waits(runs_dir: Path, open_page: OpenPage) -> None:
    name = running(runs_dir)
    page = open_page("live", node="4a", it="3")
    press(page, "Pin")
    _await(lambda: mounted(page.run(), "chips")["chips"][0]["what"] == "pin 4a")
    press(page, "Pin")
    assert len(commands(runs_dir, name)) == 1
    assert "asked for already" in page.toast[0].value


def test_a_paused_run_is_looked_at_often_while_a_command_waits(runs_dir: Path, open_page: OpenPage) -> None:
    name = running(runs_dir)
    journal = FileJournal(runs_dir / name / "journal.jsonl", time.time)
    journal.append(ev.StateChanged(RunPhase.PAUSED))
    page = open_page("live", node="4a", it="3")
    assert mounted(page, "head")["late_ms"] == 100_000  # ten times its pace
    press(page, "Pin")
    assert mounted(page, "chips")["chips"][0]["what"] == "pin 4a"
    assert mounted(page, "head")["late_ms"] == 10_000


@pytest.mark.parametrize(
    ("open_with", "queue_with", "kind", "ids"),
    [
        ("Split", "Queue split", CommandKind.SPLIT, ("4a",)),
        ("Fuse…", "Queue fuse", CommandKind.FUSE, ("4a", "4b")),
        ("Swap…", "Queue swap", CommandKind.SWAP, ("4a",)),
    ],
)
def test_a_dialog_queues_its_command(
    runs_dir: Path,
    open_page: OpenPage,
    open_with: str,
    queue_with: str,
    kind: CommandKind,
    ids: tuple[str, ...],
) -> None:
    name = running(runs_dir)
    page = press(open_page("live", node="4a", it="3"), open_with)
    press(page, queue_with)
    assert [(one.kind, one.subproblem_ids) for one in commands(runs_dir, name)] == [(kind, ids)]


def test_swap_offers_pytorch(runs_dir: Path, open_page: OpenPage) -> None:
    name = running(runs_dir)
    page = press(open_page("live", node="4a", it="3"), "Swap…")
    page.radio(key="swap to 4a").set_value("PyTorch")
    press(page, "Queue swap")
    assert commands(runs_dir, name)[0].candidate_id == "PyTorch"


def test_commands_are_chips_with_the_engines_answers(runs_dir: Path, open_page: OpenPage) -> None:
    write_sample_run(runs_dir)
    chips = {chip["what"]: chip for chip in mounted(open_page("live"), "chips")["chips"]}
    assert chips["pin 3"]["status"] == "applied"
    assert "no neighbours" in chips["fuse 1, 5"]["detail"]


def test_the_kill_button_waits_for_its_word(runs_dir: Path, open_page: OpenPage) -> None:
    running(runs_dir)
    page = open_page("live")
    assert button(page, "Kill now").disabled


def test_export_is_refused_without_a_correct_whole(runs_dir: Path, open_page: OpenPage) -> None:
    running(runs_dir, until=30)
    assert "nothing to export" in button(open_page("live"), "Export").help


def test_every_box_has_a_sentence(runs_dir: Path, open_page: OpenPage) -> None:
    write_sample_run(runs_dir)
    boxes = mounted(open_page("live"), "tree")["boxes"]
    assert all(
        box["sentence"].endswith(".") and f"iteration {box['iteration']}" in box["sentence"] for box in boxes
    )


def test_the_payload_of_a_tick_is_small(runs_dir: Path, open_page: OpenPage) -> None:
    write_sample_run(runs_dir)
    page = open_page("live")
    assert sum(len(one.proto.json) for one in page.get("bidi_component")) < 60_000


def _await(claim: Callable[[], bool]) -> None:
    assert any(claim() for _ in range(50))


def test_another_candidate_can_be_looked_at(runs_dir: Path, open_page: OpenPage) -> None:
    write_sample_run(runs_dir)
    page = open_page("live", node="4a", it="3")
    page.selectbox(key="candidate of 4a").set_value("4a#1").run()
    assert "4a#1 by built-in" in texts(page)
    assert page.query_params["cand"] == "4a#1"


def test_a_candidate_of_the_address_is_shown(runs_dir: Path, open_page: OpenPage) -> None:
    write_sample_run(runs_dir)
    assert "4a#2 by built-in" in texts(open_page("live", node="4a", it="3", cand="4a#2"))
