"""What agents are told in these tests, and conversations carried on by hand."""

from __future__ import annotations

from pathlib import Path

from mkevolve_core.agents.prompts import Prompts
from mkevolve_core.domain import (
    Baseline,
    Candidate,
    Case,
    Estimate,
    Outcome,
    Resources,
    Review,
    Subproblem,
    Timing,
    Verdict,
)
from mkevolve_core.llm.values import Conversation, FailureKind, Reply, Request, Stop
from mkevolve_core.protocols import Judged, WriteTask

ROOT = Path(__file__).parents[2]
FFN = (ROOT / "mkevolve_core/problems/transformer_ffn.py").read_text()
SUBKERNEL = (Path(__file__).parent / "ffn_subkernel.py").read_text()
HARDWARE = {
    "GPU": "NVIDIA H200",
    "compute capability": "9.0",
    "multiprocessors": "132",
    "shared memory for one program": "227 KiB",
    "Triton": "3.6.0",
    "triton.language": "abs arange cdiv dot erf exp load max program_id sigmoid sqrt store sum tan trans zeros",
}
PROMPTS = Prompts()
PART = Subproblem("4a", "transformer_ffn", "Feed-forward block", FFN)

FAST = Timing(0.8, 0.79, 0.82, 100)
BASELINES = (
    Baseline("torch.compile", Timing(1.0, 0.99, 1.01, 100)),
    Baseline("eager", None, "the reference needs more memory than there is"),
)
CASES = (Case("as given", True, 2e-6, 1e-4, 0.0), Case("negated", True, 5e-6, 1e-4, 0.0))
CORRECT = Verdict(
    Outcome.CORRECT,
    device="NVIDIA H200",
    max_error=5e-6,
    cases=CASES,
    measured=FAST,
    baselines=BASELINES,
    resources=Resources("cuda:90 (NVIDIA H200)", 134, 0, 49152, 232448),
)
ESTIMATED = Verdict(
    Outcome.CORRECT,
    device="Triton interpreter",
    max_error=5e-6,
    cases=CASES,
    estimate=Estimate("cuda:90 (H200)", 0.02444, 0.05377, 1_379_840, 35_357_312, 3),
)
WRONG = Verdict(
    Outcome.WRONG_RESULT,
    "1 of 2 cases are wrong; 'negated': 25 % of its elements are wrong",
    cases=(
        Case("as given", True, 2e-6, 1e-4, 0.0),
        Case("negated", False, 1.25, 1e-4, 0.25, "[3, 17]: got 0.5, expected -0.7"),
    ),
)


def judged(
    verdict: Verdict,
    name: str = "4a#1",
    note: str = "",
    source: str = SUBKERNEL,
    review: Review | None = None,
) -> Judged:
    return Judged(Candidate(name, "4a", "sha", None, 1, "some-model", note), source, verdict, review)


def write_task(parent: Judged | None = None, **more) -> WriteTask:
    return WriteTask(PART, "4a#17", 17, parent, **more)


def reply(
    request: Request, text: str = "", stop: Stop = Stop.END, failure: FailureKind | None = None
) -> Reply:
    detail = "the server is gone" if failure else ""
    return Reply(
        request.slot, request.role, "some-provider", "some-model", text, stop, failure=failure, detail=detail
    )


def block(source: str, idea: str = "") -> str:
    return f"IDEA: {idea}\n\n```python\n{source}```\n" if idea else f"```python\n{source}```\n"


def first_request(work: Conversation) -> Request:
    return next(work)


def answer(work: Conversation, request: Request, text: str, stop: Stop = Stop.END):
    """What the conversation returns to this reply; a further request is an error."""
    try:
        asked = work.send(reply(request, text, stop))
    except StopIteration as end:
        return end.value
    raise AssertionError(f"it asks again: {asked.slot}")
