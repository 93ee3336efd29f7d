"""A whole run by agents that ask an LLM over HTTP: decomposed, written, reviewed, split, fused, swapped, replayed.

The LLM is a script that makes the mistakes that LLMs make; judge, checks, sandbox and client are the real ones.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from mkevolve_core import events as ev
from mkevolve_core.agents.prompts import SHIPPED
from mkevolve_core.domain import PYTORCH, Cause, Outcome
from mkevolve_core.errors import ReplayError
from mkevolve_core.llm.fake import Call, FakeLLM
from mkevolve_core.llm.ledger import read_replies
from mkevolve_core.llm.values import Reply
from mkevolve_core.state import RunState
from store.run_folder import RunFolder
from tests.whole import llm_replies as say
from tests.whole import llm_story as story
from tests.whole.llm_engine import KEY, KEY_ENV

# Dollars per million tokens, as the vendors' pages said: input, cache read, cache write, output.
RATES = {
    "claude-opus-5": (5.0, 0.5, 6.25, 25.0),
    "claude-haiku-4-5": (1.0, None, None, 5.0),
    "gpt-6.1-sol": (2.0, 0.1, 0.0, 10.0),
}


@dataclass(frozen=True)
class Told:
    """A run that is over, and what its server saw."""

    folder: RunFolder
    state: RunState
    entries: tuple[ev.Entry, ...]
    calls: tuple[Call, ...]

    def events(self, kind: type) -> list:
        return [entry.event for entry in self.entries if isinstance(entry.event, kind)]

    def at(self, fits) -> int:
        """The seq of the one event that fits."""
        (seq,) = [entry.seq for entry in self.entries if fits(entry.event)]
        return seq

    def asked(self, slot: str) -> list[Call]:
        return [call for call in self.calls if call.seen.slot == slot]

    def of_role(self, role: str) -> list[Call]:
        return [call for call in self.calls if call.seen.role == role]

    def replies(self) -> tuple[Reply, ...]:
        return read_replies(self.folder.path / "calls.jsonl")


@pytest.fixture(scope="module")
def told(workshop, tmp_path_factory) -> Told:
    prompts = tmp_path_factory.mktemp("prompts")  # empty: a template laid there later stands before ours
    settings = f"\n[llm]\nprompts_dir = {json.dumps(str(prompts))}\n"
    with FakeLLM(story.AUTHOR, pace=0.001) as server:
        folder = workshop.start("story", server.url, settings, **story.SETTINGS)
        state = workshop.go_on(folder)
        return Told(folder, state, tuple(folder.journal().read()), tuple(server.calls))


# ------------------------------------------------------------------------------- topology


def test_a_decomposer_corrects_itself_after_the_findings_and_the_slower_one_is_cancelled(told):
    (first,), (second,) = told.asked("decompose 1.1"), told.asked("decompose 1.2")
    assert "x.softmax" in second.seen.user
    assert "softmax" not in first.seen.user.partition("The checks found:")[2]
    assert "did not pass. The checks found:" in second.seen.user
    decomposition = told.events(ev.DecompositionProposed)[0].decomposition
    assert tuple(part.name for part in decomposition.subproblems) == say.FIRST
    (slow,) = told.asked("decompose 2.1")
    assert slow.gone
    (cancelled,) = [one for one in told.events(ev.LLMFailed) if one.kind == "cancelled"]
    assert cancelled.slot == "decompose 2.1"


def test_the_topology_is_split_where_nothing_is_correct_and_fused_once_all_is(told):
    changes = told.events(ev.TopologyChanged)
    assert [change.cause for change in changes] == [Cause.INITIAL, Cause.SPLIT, Cause.FUSE]
    assert changes[1].edges == (("2", "2a"), ("2", "2b"))
    assert changes[2].edges == (("1", "1a"), ("2a", "1a"))
    assert [one.missing for one in told.state.evaluations] == [("2", "3"), (), (), ()]
    (whole,) = told.events(ev.DecompositionRejected)
    assert whole.reason.startswith("3: a softmax over rows is one reduction")


def test_a_splitter_and_a_fuser_are_told_how_the_parts_stand(told):
    (split,), (cannot,), (fuse,) = (told.asked(slot) for slot in ("split 1 2.1", "split 1 3.1", "fuse 3.1"))
    assert "norm_linear has no correct subkernel after 3 kernel-writing calls" in split.seen.user
    assert "PyTorch computed beside its kernels" in split.seen.user
    assert "the reviewer objects" in cannot.seen.user
    assert "- 2a row_norm: has a correct subkernel" in fuse.seen.user


# ------------------------------------------------------------------------------- writing


def test_a_failure_is_debugged_and_a_success_refined(told):
    parents = {name: parent for step in told.events(ev.StepPlanned) for name, parent in step.expansions}
    for role, wanted in (("generate", None), ("debug", False), ("refine", True)):
        for call in told.of_role(role):
            parent = parents[call.seen.slot.partition("~")[0]]
            assert (None if parent is None else told.state.candidates[parent].counts) is wanted, (
                call.seen.slot
            )
    assert told.state.candidates["3#5"].counts  # debugged
    assert told.state.candidates["3#6"].candidate.parent_id == "3#5"  # refined
    assert told.state.candidates["1#1"].verdict.outcome is Outcome.COMPILE_ERROR
    assert told.state.candidates["2#1"].verdict.outcome is Outcome.CHEAT


def test_calls_that_came_to_nothing_are_counted_and_no_kernel_is_blamed_for_them(told):
    failed = {one.candidate_id: one.outcome for one in told.events(ev.WritingFailed)}
    assert failed == {
        "1#3": "no_change",
        "2#3": "nocode",
        "3#3": "refusal",
        "1a#3": "truncated",
        "1a#5": "context",
        "1a#8": "refusal",
    }
    assert not failed.keys() & told.state.candidates.keys()
    for call in told.calls:
        shown = call.seen.user.partition("# Your last reply could not be used")[0]
        for words in ("keep the rows in registers", "cannot help with that", "cut off", "prompt is too long"):
            assert words not in shown, (call.seen.slot, words)


def test_a_debug_prompt_holds_a_candidate_that_failed_and_why(told):
    sources = {
        told.folder.artifacts().get(c.candidate.source_sha).strip(): c for c in told.state.candidates.values()
    }
    whys = set()
    for call in told.of_role("debug"):
        shown = re.search(r"<<<CANDIDATE (\w+)\n(.*?)\n\1 CANDIDATE>>>", call.seen.user, re.DOTALL)
        parent = sources[shown[2].strip()]
        assert not parent.counts
        why = parent.review.quote if parent.verdict.is_correct else parent.verdict.detail
        assert why[:60] in call.seen.user
        whys.add(parent.review.outcome if parent.verdict.is_correct else parent.verdict.outcome)
    assert whys == {Outcome.COMPILE_ERROR, Outcome.WRONG_RESULT, Outcome.CHEAT}


def test_a_reply_that_cannot_be_used_is_asked_for_again_in_the_same_words_and_some_more(told):
    first, again = told.asked("1#2")[0], told.asked("1#2~1")[0]
    assert again.seen.prompt.startswith(first.seen.prompt)
    assert "It was cut off at its length limit." in again.seen.prompt
    assert told.state.candidates["1#2"].counts
    limits = [call.body["max_tokens"] for call in told.asked("1#2")]
    assert limits == [32_000, 64_000]  # before it is asked again it may be longer


# ------------------------------------------------------------------------------- reviewing


def test_cheats_that_the_reviewer_finds_are_worth_nothing(told):
    states = told.state.candidates
    verdicts = {name: states[name].review.outcome for name in ("3#2", "2a#1", "2b#1", "3#4")}
    assert verdicts == {
        "3#2": Outcome.CHEAT,  # quoted
        "2a#1": Outcome.REVIEW,  # charged without a quote that is there
        "2b#1": Outcome.REVIEW,  # no opinion, twice
        "3#4": Outcome.REVIEW,  # unsure
    }
    for name in verdicts:
        assert states[name].verdict.is_correct
        assert (states[name].reward, states[name].counts) == (0.0, False)
    assert say.WAY_OUT in states["3#2"].review.quote
    assert "no opinion" in states["2b#1"].review.quote


def test_the_reviewer_is_asked_after_the_pass_before_acceptance_and_at_the_end(told):
    passed = [name for name, one in told.state.candidates.items() if one.verdict.is_correct]
    counted = [name for name in passed if told.state.candidates[name].candidate.author != PYTORCH]
    for name in counted:
        if name != "2b#6":  # another model's, at the end: reviewed once before it is swapped in
            verdict = told.at(lambda e, n=name: isinstance(e, ev.VerdictReached) and e.candidate_id == n)
            assert told.at(lambda e, n=name: _is_review(e, n, 1)) > verdict
    for accepted in told.events(ev.SubkernelAccepted):
        seq = told.at(lambda e, a=accepted: e == a)
        assert told.at(lambda e, a=accepted: _is_review(e, a.candidate_id, 2)) < seq
    last = max(entry.seq for entry in told.entries if isinstance(entry.event, ev.PostFuseJudged))
    returned = {*told.state.best.chosen.values(), *told.state.best_swapped.chosen.values()}
    for name in returned:
        if told.state.candidates[name].candidate.author != PYTORCH:
            assert told.at(lambda e, n=name: _is_review(e, n, 3)) > last


def _is_review(event: ev.Event, name: str, number: int) -> bool:
    return isinstance(event, ev.LLMCalled) and event.slot == f"review {name} {number}"


# ------------------------------------------------------------------------------- the end


def test_slow_subkernels_are_swapped_for_another_models_and_for_pytorchs(told):
    swapped = {one.subproblem_id: one.candidate_id for one in told.events(ev.SubkernelSwapped)}
    authors = {name: told.state.candidates[one].candidate.author for name, one in swapped.items()}
    assert authors == {"2b": "gpt-6.1-sol", "3": PYTORCH}
    assert told.state.candidates["2b#6"].candidate.parent_id == "2b#5"
    assert told.state.best.chosen == {"1a": "1a#9", "2b": "2b#3", "3": "3#6"}
    assert told.state.best_swapped.chosen == {"1a": "1a#9", "2b": "2b#6", "3": "3#7"}
    assert told.state.spent.calls == 27  # without these
    assert {call.seen.dialect for call in told.of_role("alternative")} == {"chat"}


def test_post_fusing_fails_then_succeeds_and_changes_nothing_else(told):
    first, second = told.events(ev.PostFuseJudged)
    assert [first.verdict.outcome, second.verdict.outcome] == [Outcome.WRONG_RESULT, Outcome.CORRECT]
    assert (first.review, second.review.outcome) == (None, Outcome.CORRECT)
    (debugged,) = told.asked("postfuse 2")
    assert "# Your earlier file, which failed" in debugged.seen.user
    assert first.verdict.detail[:60] in debugged.seen.user
    assert told.state.finished == "iterations done"


# ------------------------------------------------------------------------------- counting


def test_calls_are_counted_apart_by_what_they_are_for(told):
    slots = {call.seen.slot: call.seen.role for call in told.calls if call.planned.fault is None}
    del slots["decompose 2.1"]  # cancelled
    repairs = {slot for slot in slots if "~" in slot}
    roles = Counter(role for slot, role in slots.items() if slot not in repairs)
    assert told.state.spent.by_role == {**roles, "repair": len(repairs)}
    assert roles["generate"] + roles["debug"] + roles["refine"] == 27 - 1  # one found no room for its prompt
    assert told.state.spent.calls == 27
    assert told.state.spent.failed_calls == 2
    assert told.state.spent.tokens_unknown == 0


def test_tokens_and_dollars_are_those_that_the_server_told(told):
    replies = told.replies()
    spent = told.state.spent
    assert spent.tokens_in == sum(reply.usage.prompt for reply in replies)
    assert spent.tokens_cached == sum(reply.usage.cache_read for reply in replies)
    assert spent.tokens_out == sum(reply.usage.output for reply in replies)
    assert spent.cost == pytest.approx(sum(reply.cost for reply in replies))
    for reply in replies:
        if reply.failure is None and RATES[reply.model][1] is not None:
            assert reply.cost == pytest.approx(_dollars(reply)), reply.slot


def _dollars(reply: Reply) -> float:
    """From what the server itself said of each attempt."""
    new, read, write, out = RATES[reply.model]
    total = 0.0
    for attempt in reply.attempts:
        raw = json.loads(attempt.usage.raw)
        if "input_tokens" in raw:
            total += raw["input_tokens"] * new + raw["cache_read_input_tokens"] * read
            total += raw["cache_creation_input_tokens"] * write + raw["output_tokens"] * out
        else:
            cached = raw["prompt_tokens_details"]["cached_tokens"]
            total += (raw["prompt_tokens"] - cached) * new + cached * read + raw["completion_tokens"] * out
    return total / 1e6


def test_most_of_what_a_role_is_asked_again_is_read_from_the_cache(told):
    """A reviewer's instructions alone are shorter than what a cache keeps, so the second one on a subproblem
    counts there."""
    groups: dict[tuple[str, str | None], list[Reply]] = {}
    for reply in told.replies():
        if reply.usage.known:
            groups.setdefault(
                (reply.role, reply.subproblem_id if reply.role == "review" else None), []
            ).append(reply)
    later: dict[str, list[Reply]] = {}
    for (role, _), replies in groups.items():
        later.setdefault(role, []).extend(replies[1:])
    shares = {
        role: sum(one.usage.cache_read for one in replies) / sum(one.usage.prompt for one in replies)
        for role, replies in later.items()
        if replies
    }
    asked_again = {"decompose", "generate", "debug", "refine", "split", "review", "postfuse", "alternative"}
    assert set(shares) == asked_again
    assert min(shares.values()) >= 0.6, shares


def test_no_key_is_written_anywhere(told):
    for path in told.folder.path.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes()


# ------------------------------------------------------------------------------- replaying


def test_a_replay_does_what_was_recorded(told):
    """Without a server and without a key."""
    runs, name = str(told.folder.path.parent), told.folder.run_id
    call = [sys.executable, "-m", "mkevolve_core", "replay", name, "--runs-dir", runs, "--json"]
    environment = {name: value for name, value in os.environ.items() if name != KEY_ENV}
    done = subprocess.run(call, capture_output=True, text=True, timeout=240, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "replay: the same as recorded, but for times" in done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["best"]["estimate"] == told.state.best.estimate


def test_an_edited_template_ends_a_strict_replay_with_the_difference_and_a_loose_one_goes_on(told, workshop):
    override = Path(told.state.llm.prompts_dir) / "split.j2"
    shutil.copy(SHIPPED / "split.j2", override)
    text = override.read_text()
    override.write_text(text.replace("How the subproblems stand:", "The subproblems now:"))
    try:
        with pytest.raises(ReplayError) as strict:
            workshop.replay(told.folder)
        loose, _ = workshop.replay(told.folder, loose=True)
    finally:
        override.unlink()
    assert "The prompt of split 1 2.1 is not the recorded one:" in str(strict.value)
    assert "-How the subproblems stand:" in str(strict.value)
    assert "+The subproblems now:" in str(strict.value)
    assert loose.finished == "iterations done"
    assert loose.best.chosen == told.state.best.chosen
