"""A realistic journal, event by event: a ConvViT-like run in which the encoder fails, splits, and fuses again.

    python -m tests.store.sample_run RUNS_DIR [--name NAME] [--until SEQ] [--seconds S] [--measured]

writes a run folder; with --seconds it writes the entries over that time, as a live run would. The numbers are
made up, but every event, id and order is as the engine writes them.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from mkevolve_core import events as ev
from mkevolve_core.config import RunConfig, build_config
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
from mkevolve_core.protocols import Artifacts, Journal
from store.journal import FileJournal
from store.run_folder import RunFolder

AUTHOR = "built-in"
START = 1_795_000_000.0  # a fixed day: journals written twice are equal
CPU, GPU = "Triton interpreter", "NVIDIA H200"

PROBLEM = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, num_classes, dim=128, heads=4, layers=6, patch=4, channels=3, size=32):
        super().__init__()
        self.patch = nn.Conv2d(channels, dim, patch, stride=patch)
        self.project = nn.Linear(dim * (size // patch) ** 2, dim)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, heads, dim * 4, batch_first=True, dropout=0.0) for _ in range(layers)
        )
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.head = nn.Linear(dim, num_classes)

    def forward(self, x):
        x = self.project(self.patch(x).flatten(1)).unsqueeze(1)
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1)
        for layer in self.layers:
            x = layer(x)
        return self.head(x[:, 0])


def get_inputs():
    return [torch.randn(10, 3, 32, 32)]


def get_init_inputs():
    return [1000]
"""

PARTS = {
    "1": ("patch_embedding", "Patch embedding", 1),
    "2": ("linear_projection", "Linear projection", 1),
    "3": ("cls_token", "Class token", 1),
    "4": ("transformer_encoder", "Transformer encoder", 6),
    "5": ("classifier", "Classifier", 1),
    "4a": ("self_attention", "Self-attention", 6),
    "4b": ("feed_forward", "Feed-forward", 6),
    "4c": ("transformer_block", "Transformer block", 6),
}
PARENTS = {"4a": ("4",), "4b": ("4",), "4c": ("4a", "4b")}
MS = {"1": 0.031, "2": 0.046, "3": 0.012, "4": 1.2, "5": 0.028, "4a": 0.7, "4b": 0.5, "4c": 1.2}
# what the best candidate of each iteration reaches
RATIOS = {
    "1": (0.71, 0.92, 1.10, 1.16, 1.18),
    "2": (0.62, 0.80, 0.88, 0.95, 0.95),
    "3": (1.40, 1.90, 2.10, 2.10, 2.10),
    "5": (0.90, 1.05, 1.20, 1.24, 1.24),
    "4a": (0.0, 0.41, 0.55, 0.0, 0.0),
    "4b": (0.0, 0.63, 0.83, 0.0, 0.0),
    "4c": (0.0, 0.0, 0.0, 1.22, 1.31),
}
END = {2: 0.53, 3: 0.66, 4: 1.21, 5: 1.28}


def source_of(name: str, block: int) -> str:
    """A small subkernel in the problem's style, different for each block size."""
    return f"""import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _{name}_kernel(x_ptr, y_ptr, n, BLOCK_SIZE: tl.constexpr):
    at = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, x * 2.0, mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        _{name}_kernel[(triton.cdiv(x.numel(), {block}),)](x, y, x.numel(), BLOCK_SIZE={block})
        return y
"""


def reference_of(name: str) -> str:
    return (
        "import torch\nimport torch.nn as nn\n\n\n"
        f"class Model(nn.Module):  # {name}\n    def forward(self, x):\n        return x * 2.0\n\n\n"
        "def get_inputs():\n    return [torch.randn(10, 128)]\n\n\ndef get_init_inputs():\n    return []\n"
    )


def decomposition(number: int, cause: Cause, ids: tuple[str, ...]) -> Decomposition:
    parts = tuple(
        Subproblem(i, PARTS[i][0], PARTS[i][1], reference_of(PARTS[i][0]), PARTS[i][2], PARENTS.get(i, ()))
        for i in ids
    )
    imports = "".join(f"from subkernel_problems.{p.name} import Model as P{n}\n" for n, p in enumerate(parts))
    makes = "".join(f"        self.p{n} = P{n}()\n" for n in range(len(parts)))
    chain = "".join(f"        x = self.p{n}(x)\n" for n in range(len(parts)))
    top = (
        f"import torch.nn as nn\n{imports}\n\nclass ModelNew(nn.Module):\n    def __init__(self):\n"
        f"        super().__init__()\n{makes}\n    def forward(self, x):\n{chain}        return x\n"
    )
    return Decomposition(f"d{number}", cause, parts, top, flow=tuple(zip(ids, ids[1:], strict=False)))


class Writer:
    """Makes the events of a run, with the artifacts that they name."""

    author = AUTHOR

    def __init__(self, journal: Journal, artifacts: Artifacts, measured: bool) -> None:
        self.journal, self.artifacts, self.measured = journal, artifacts, measured
        self.count: dict[str, int] = {}
        self.names: dict[str, list[str]] = {}  # subproblem → its candidates, the newest first
        self.best: dict[str, str] = {}
        self.seen: dict[str, str] = {}  # subproblem → its best candidate so far

    def verdict(self, ms: float, ratio: float, shares: tuple[Share, ...] = ()) -> Verdict:
        if not ratio:
            return Verdict(
                Outcome.COMPILE_ERROR,
                "the writer's four kernels do not cover 31 operations",
                CPU,
                "namespaces",
                seconds=0.4,
            )
        cases = tuple(Case(f"seed {n}", True, 3e-6 * (n + 1), 1e-4) for n in range(3))
        done = Verdict(
            Outcome.CORRECT,
            "",
            GPU if self.measured else CPU,
            "namespaces",
            9e-6,
            cases,
            True,
            "by name",
            resources=Resources("cuda:90 (H200)", 96, 0, 49152, 232448),
            shares=shares,
            seconds=2.1,
        )
        if not self.measured:
            model = Estimate("cuda:90 (H200)", ms / ratio, ms, 1_310_720, 2_600_000, 1)
            return replace(done, estimate=model)
        took = ms / ratio
        base = Baseline("torch.compile", Timing(ms, ms * 0.99, ms * 1.02, 100))
        eager = Baseline("eager", Timing(ms * 1.4, ms * 1.38, ms * 1.45, 100))
        return replace(done, measured=Timing(took, took * 0.99, took * 1.01, 100), baselines=(base, eager))

    def candidate(self, one: str, iteration: int, ratio: float, note: str) -> Iterator[ev.Event]:
        self.count[one] = number = self.count.get(one, 0) + 1
        name, sha = f"{one}#{number}", self.artifacts.put(source_of(PARTS[one][0], 64 << (number % 5)))
        yield ev.Progressed(f"judging {name}")
        self.names.setdefault(one, []).insert(0, name)
        yield ev.CandidateProposed(
            Candidate(name, one, sha, self.seen.get(one), iteration, self.author, note)
        )
        yield ev.VerdictReached(name, self.verdict(MS[one], ratio))
        if ratio:
            self.seen[one] = name

    def evolve(self, one: str, iteration: int, calls: int) -> Iterator[ev.Event]:
        top = RATIOS.get(one, (0.0,) * 5)[iteration - 1]
        for n in range(calls):
            part = top * (0.7 + 0.3 * (n + 1) / calls)
            yield from self.candidate(one, iteration, part, f"tile {64 << n}")
        kept = tuple(self.names.get(one, ()))[:4] if top else ()
        yield ev.BeamAdvanced(one, iteration, kept)
        if kept:
            yield ev.CandidateReviewed(kept[0], Review(Outcome.CORRECT))
            yield ev.SubkernelAccepted(one, kept[0])
            self.best[one] = kept[0]

    def iteration(self, number: int, current: str, ids: tuple[str, ...], why: str) -> Iterator[ev.Event]:
        lacking = [one for one in ids if one not in self.best]
        calls = {
            one: (8 // len(lacking) if one in lacking else 0) if lacking else 8 // len(ids) for one in ids
        }
        yield ev.BudgetAllocated(number, calls, why)
        for one, count in calls.items():
            if count:
                yield from self.evolve(one, number, count)
        missing = tuple(one for one in ids if one not in self.best)
        chosen = {one: self.best[one] for one in ids if one in self.best}
        if missing:
            yield ev.EndToEndEvaluated(number, current, chosen, None, missing)
            return
        shares = tuple(Share(PARTS[one][0], MS[one] * PARTS[one][2], PARTS[one][2]) for one in ids)
        whole = self.verdict(7.3, END[number], shares)
        yield ev.EndToEndEvaluated(
            number, current, chosen, whole, codebase_sha=self.artifacts.put(repr(chosen))
        )
        ratio = (END[number], None) if self.measured else (None, END[number])
        yield ev.BestImproved(number, current, chosen, *ratio)


def story(run_id: str, config: RunConfig, writer: Writer) -> Iterator[ev.Event]:
    """The whole run as events, from RunStarted to RunFinished."""
    device = GPU if writer.measured else CPU
    yield ev.RunStarted(
        run_id,
        Problem("convolutional_vision_transformer", PROBLEM),
        config,
        device,
        {"torch": "2.13.0", "triton": "3.7.1", "mkevolve": "0.1.0"},
    )
    facts = ProblemFacts(
        (TensorSpec((10, 3, 32, 32), "float32"),), (TensorSpec((10, 1000), "float32"),), 3_500_000, 0.04
    )
    yield ev.ProblemInspected(facts)
    timing = Timing(7.3, 7.2, 7.5, 100) if writer.measured else None
    yield ev.BaselineMeasured(None, (Baseline("torch.compile", timing, "" if timing else "no GPU"),), device)
    yield ev.Progressed("decomposing: reading the traced graph")
    first = decomposition(1, Cause.INITIAL, ("1", "2", "3", "4", "5"))
    yield ev.DecompositionProposed(first, AUTHOR)
    yield ev.TopologyChanged("d1", Cause.INITIAL, By.ENGINE)
    yield ev.IterationStarted(1)
    yield from writer.iteration(1, "d1", first.ids, "even among 5 without a subkernel")
    yield from second_iteration(writer)
    ids = ("1", "2", "3", "4a", "4b", "5")
    yield ev.IterationStarted(3)
    yield ev.TopologyKept(3, "every subproblem has a subkernel, and 3 is no multiple of 2")
    yield from pinned(writer)
    yield from writer.iteration(3, "d2", ids, "by share of time")
    yield from last_iterations(writer)
    yield ev.StateChanged(RunPhase.STOPPING, "iterations done")
    yield ev.RunFinished("iterations done")


def second_iteration(writer: Writer) -> Iterator[ev.Event]:
    yield ev.IterationStarted(2)
    split = decomposition(2, Cause.SPLIT, ("1", "2", "3", "4a", "4b", "5"))
    yield ev.DecompositionProposed(split, AUTHOR)
    edges = (("4", "4a"), ("4", "4b"))
    yield ev.TopologyChanged("d2", Cause.SPLIT, By.ENGINE, edges, "4 has no correct subkernel")
    yield ev.LLMFailed("splitter", "a-model", "4", "429: rate limited")
    yield ev.ErrorRaised("sandbox", "the zygote ended", retrying=True)
    yield from writer.iteration(2, "d2", split.ids, "even among 2 without a subkernel")


def pinned(writer: Writer) -> Iterator[ev.Event]:
    pin = Command("c1-pin", CommandKind.PIN, ("3",))
    fuse = Command("c2-fuse", CommandKind.FUSE, ("1", "5"), text="one kernel")
    yield ev.CommandAccepted(pin, "after the candidate in hand")
    yield ev.SubkernelPinned("3", writer.best["3"])
    yield ev.CommandApplied("c1-pin", 3, "3 is pinned")
    yield ev.CommandRefused("c2-fuse", "1 and 5 are no neighbours: nothing flows from one to the other", fuse)


def last_iterations(writer: Writer) -> Iterator[ev.Event]:
    yield ev.IterationStarted(4)
    fused = decomposition(3, Cause.FUSE, ("1", "2", "3", "4c", "5"))
    yield ev.DecompositionProposed(fused, AUTHOR)
    edges = (("4a", "4c"), ("4b", "4c"))
    yield ev.TopologyChanged("d3", Cause.FUSE, By.ENGINE, edges, "every subproblem is correct")
    yield from writer.iteration(4, "d3", fused.ids, "even among 1 without a subkernel")
    yield ev.IterationStarted(5)
    yield ev.TopologyKept(5, "5 is no multiple of 2")
    yield from writer.iteration(5, "d3", fused.ids, "by share of time")


class PacedClock:
    """Eight seconds between entries from a fixed start, or the real time where a run is played live."""

    def __init__(self, live: bool) -> None:
        self.now = START
        self.live = live

    def __call__(self) -> float:
        self.now = time.time() if self.live else self.now + 8.0
        return self.now


def write_sample_run(
    runs_dir: Path,
    name: str = "261118-101010-convvit",
    *,
    until: int | None = None,
    measured: bool = False,
    before_each: Callable[[], None] = lambda: None,
    live: bool = False,
) -> RunFolder:
    """A run folder with the story's first `until` entries (all by default)."""
    config = build_config("paper", {"calls": 8, "fuse": True, "target": "cuda:90"})
    folder = RunFolder.create(runs_dir, Problem("convolutional_vision_transformer", PROBLEM), config, name)
    clock = PacedClock(live)
    journal = FileJournal(folder.journal_path, clock)
    for event in story(name, config, Writer(journal, folder.artifacts(), measured)):
        before_each()
        entry = journal.append(event, next_by=clock.now + 60.0)
        if until is not None and entry.seq >= until:
            break
    journal.close()
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs_dir", type=Path)
    parser.add_argument("--name", default="261118-101010-convvit")
    parser.add_argument("--until", type=int)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--measured", action="store_true")
    given = parser.parse_args()
    pause = given.seconds / 180

    def wait() -> None:
        time.sleep(pause)

    folder = write_sample_run(
        given.runs_dir,
        given.name,
        until=given.until,
        measured=given.measured,
        before_each=wait,
        live=given.seconds > 0,
    )
    print(folder.path)


if __name__ == "__main__":
    main()
