"""Made journal_v1.jsonl: every kind of event of version 1, in a consistent order.

    python -m tests.store.assets.make_journal_v1 > tests/store/assets/journal_v1.jsonl

The asset is a promise to old runs: it is never made again, however the events change.
"""

from mkevolve_core import events as ev
from mkevolve_core.codec import dumps
from mkevolve_core.config import RunConfig
from mkevolve_core.domain import (
    Baseline,
    By,
    Candidate,
    Case,
    Cause,
    Command,
    CommandKind,
    Decomposition,
    Estimate,
    Outcome,
    Problem,
    ProblemFacts,
    Resources,
    Review,
    RunPhase,
    Share,
    Subproblem,
    TensorSpec,
    Timing,
    Verdict,
)

ONE = Subproblem("1", "first", "First half", "class Model: ...")
TWO = Subproblem("2", "second", "Second half", "class Model: ...", instances=3)
BOTH = Subproblem("1a", "both", "Both halves", "class Model: ...", parents=("1", "2"))
TIMING = Timing(2.0, 1.9, 2.2, 100)
BASE = Baseline("torch.compile", Timing(3.0, 2.9, 3.1, 100))
FASTER = Verdict(
    Outcome.CORRECT,
    "",
    "NVIDIA H200",
    "namespaces",
    1e-6,
    (Case("seed 1", True, 1e-6, 1e-4, 0.0, ""),),
    True,
    "by name",
    TIMING,
    (BASE,),
    Estimate("cuda:90 (H200)", 1.0, 2.0, 4096, 8192, 1),
    Resources("cuda:90 (H200)", 64, 0, 16384, 232448),
    (Share("first", 1.0, 1), Share("second", 1.0, 3)),
    ("autotuned",),
    (),
    4.5,
)
WRONG = Verdict(
    Outcome.WRONG_RESULT, "element [3, 17]: got 0.5, expected 0.7 \ud800", "NVIDIA H200", max_error=0.2
)
PIN = Command("c1", CommandKind.PIN, ("1",), "1#1")
LATE = Command("c2", CommandKind.HINT, ("2",), text="use \u00e9 \x00 and \x1b[31m")
GONE = Command("c3", CommandKind.BOOST, ("2",), text="4")

EVENTS = (
    ev.RunStarted("261118-101010-sample", Problem("sample", "class Model: ...\n"), RunConfig(), "NVIDIA H200", {"torch": "2.13.0"}),
    ev.RunForked("261117-090000-sample", 2),
    ev.ProblemInspected(ProblemFacts((TensorSpec((4, 8), "float32"),), (TensorSpec((4,), "float32"),), 128, 0.01)),
    ev.BaselineMeasured(None, (BASE,), "NVIDIA H200"),
    ev.Progressed("decomposing"),
    ev.LLMFailed("decomposer", "a-model", None, "429"),
    ev.ErrorRaised("sandbox", "the zygote ended", True),
    ev.DecompositionProposed(Decomposition("d1", Cause.INITIAL, (ONE, TWO), "class Model: ...", (("a.w", "w"),), (("1", "2"),)), "built-in"),
    ev.TopologyChanged("d1", Cause.INITIAL, By.ENGINE),
    ev.IterationStarted(1),
    ev.BaselineMeasured("1", (BASE,), "NVIDIA H200"),
    ev.BudgetAllocated(1, {"1": 2, "2": 2}, "even among 2 without a subkernel"),
    ev.LLMCalled("writer", "a-model", "1", 1000, 200, 0.01, 3.5, "a" * 64, "b" * 64),
    ev.CandidateProposed(Candidate("1#1", "1", "c" * 64, None, 1, "a-model", "one tile")),
    ev.VerdictReached("1#1", FASTER),
    ev.CandidateReviewed("1#1", Review(Outcome.CORRECT)),
    ev.BeamAdvanced("1", 1, ("1#1",)),
    ev.SubkernelAccepted("1", "1#1"),
    ev.CandidateProposed(Candidate("2#1", "2", "d" * 64, None, 1, "a-model")),
    ev.VerdictReached("2#1", WRONG),
    ev.VerdictOverruled("2#1", "correct", "close enough"),
    ev.CandidateRejected("2#1", "not this way"),
    ev.WriterDeclined("2", 1, 1, "nothing more to say", "built-in"),
    ev.CommandAccepted(PIN, "after the candidate in hand"),
    ev.SubkernelPinned("1", "1#1"),
    ev.CommandApplied("c1", 1, "1 is pinned"),
    ev.CommandAccepted(LATE, "with the next LLM call"),
    ev.HintAdded("2", "use \u00e9 \x00 and \x1b[31m"),
    ev.CommandApplied("c2", 1),
    ev.CommandAccepted(GONE, "at once"),
    ev.CommandWithdrawn("c3", "c4"),
    ev.CommandRefused("c5", "it holds no command"),
    ev.BudgetBoosted("2", 4),
    ev.EndToEndEvaluated(1, "d1", {"1": "1#1"}, None, ("2",)),
    ev.IterationStarted(2),
    ev.SubkernelUnpinned("1"),
    ev.DecompositionRejected(Cause.SPLIT, "a part is empty", ("2",)),
    ev.TopologyKept(2, "the split was rejected"),
    ev.StateChanged(RunPhase.PARKED, "time is up"),
    ev.StateChanged(RunPhase.RUNNING),
    ev.DecompositionProposed(Decomposition("d2", Cause.FUSE, (BOTH,), "class Model: ..."), "built-in"),
    ev.TopologyChanged("d2", Cause.FUSE, By.ENGINEER, (("1", "1a"), ("2", "1a")), "asked for", "c6"),
    ev.CandidateProposed(Candidate("1a#1", "1a", "e" * 64, None, 2, "PyTorch")),
    ev.VerdictReached("1a#1", FASTER),
    ev.SubkernelSwapped("1a", "1a#1", None, By.ENGINE, "below 0.9"),
    ev.EndToEndEvaluated(2, "d2", {"1a": "1a#1"}, FASTER, (), "f" * 64),
    ev.BestImproved(2, "d2", {"1a": "1a#1"}, 1.5, None),
    ev.Exported("sample.zip", FASTER),
    ev.RunFinished("iterations done"),
)  # fmt: skip


def main() -> None:
    for seq, event in enumerate(EVENTS, 1):
        at = 1_795_000_000.0 + 2 * seq
        print(dumps(ev.entry_to_plain(ev.Entry(seq, at, event, at + 60.0))))


if __name__ == "__main__":
    main()
