import io

import pytest
from rich.console import Console

from mkevolve_core import events as ev
from mkevolve_core.config import RunConfig
from mkevolve_core.domain import By, Cause, Decomposition, Outcome, Problem, Review, Subproblem, Verdict
from mkevolve_core.folding import fold
from mkevolve_core.llm.settings import Limits, LLMSettings, RoleSettings
from mkevolve_core.llm.values import Role
from mkevolve_core.progress import Progress
from mkevolve_core.show import run_as_plain
from mkevolve_core.state import RunState

CALL = ev.LLMCalled("generate", "m", "1", 1000, 200, 0.04, 20.0, "p", "r", "1#1")
HOSTILE = "[red]red[/red] \x1b]0;title\x07 \x1b[31m\u202e\nline"


def line(event: ev.Event) -> str:
    """What is printed of an event on a terminal, without colours."""
    out = io.StringIO()
    Progress(Console(file=out, width=200)).show(ev.Entry(1, 0.0, event), RunState())
    return out.getvalue().strip()


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (CALL, "generate 1#1: m, 1,000 + 200 tokens, $0.0400, 20.0 s"),
        (ev.LLMCalled("review", "m", "1", 0, 0, None, 2.0, "", "", "review 1#1 1", tokens_known=False),
         "review 1#1 1: m, tokens unknown, cost unknown, 2.0 s"),
        (ev.LLMFailed("debug", "m", "1", "429", "1#2"), "no reply to debug 1#2: m, 429"),
        (ev.StepPlanned("1", 1, (("1#1", None), ("1#2", "1#1"))), "writing 1#1, 1#2"),
        (ev.WritingFailed("1", "1#3", "no_code", "no block"), "✗ 1#3 no candidate: no code, no block"),
        (ev.LimitsChanged(Limits(usd=40.0, minutes=90.0)), "limits: usd 40, minutes 90"),
        (ev.PostFuseJudged(1, None, None, "refused"), "✗ post-fuse 1 no draft: refused"),
        (ev.PostFuseJudged(2, "s", Verdict(Outcome.TIMEOUT, "5 minutes")), "✗ post-fuse 2 timeout: 5 minutes"),
        (ev.CandidateReviewed("1#1", Review(Outcome.CHEAT, "it caches")), "⚑ 1#1 cheat: it caches"),
        (ev.Progressed("7 requests wait in the mailbox"), "7 requests wait in the mailbox"),
        (ev.RunStarted("r", Problem("p", "x"), RunConfig(), replay="convvit"), "replays the recording convvit"),
    ],
)  # fmt: skip
def test_an_event_is_a_line(event: ev.Event, said: str) -> None:
    assert said in line(event)


@pytest.mark.parametrize(
    "event",
    [
        ev.WritingFailed("1", "1#3", "failed", HOSTILE),
        ev.LLMFailed("debug", HOSTILE, "1", HOSTILE),
        ev.PostFuseJudged(1, None, None, HOSTILE),
        ev.Progressed(HOSTILE),
        ev.VerdictReached("1#1", Verdict(Outcome.RUNTIME_ERROR, HOSTILE)),
    ],
    ids=lambda event: type(event).__name__,
)
def test_what_others_wrote_cannot_steer_the_terminal(event: ev.Event) -> None:
    said = line(event)
    assert said.isprintable()
    assert "[red]red[/red]" in said


def test_a_run_as_json_says_who_was_asked_and_what_it_took() -> None:
    roles = (RoleSettings(Role.GENERATE, "anthropic", "m"),)
    part = Subproblem("1", "first", "First", "class Model: ...")
    events = (
        ev.RunStarted(
            "r", Problem("p", "x"), RunConfig(agents="llm"), llm=LLMSettings((), roles, Limits(usd=5.0))
        ),
        ev.DecompositionProposed(Decomposition("d1", Cause.INITIAL, (part,), ""), "m"),
        ev.TopologyChanged("d1", Cause.INITIAL, By.ENGINE),
        CALL,
        ev.WritingFailed("1", "1#1", "truncated", "cut off"),
        ev.PostFuseJudged(1, "s", Verdict(Outcome.CORRECT), review=Review(Outcome.CORRECT)),
    )
    plain = run_as_plain(fold(ev.Entry(n, float(n), event) for n, event in enumerate(events, 1)))
    assert (plain["agents"], plain["roles"], plain["limits"]["usd"]) == (
        "llm",
        {"generate": "anthropic/m"},
        5.0,
    )
    assert (plain["spent"]["by_role"], plain["spent"]["cost"]) == ({"generate": 1}, 0.04)
    assert (plain["subproblems"][0]["calls"], plain["postfused"][0]["outcome"]) == (1, "correct")
    assert plain["replay"] is None
