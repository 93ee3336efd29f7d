"""What a run has come to, as frozen values; only `folding.fold` makes a `RunState`, from a journal."""

from __future__ import annotations

from dataclasses import dataclass, field

from mkevolve_core import events as ev
from mkevolve_core.config import RunConfig
from mkevolve_core.domain import (
    Baseline,
    Candidate,
    Command,
    Decomposition,
    Problem,
    ProblemFacts,
    Review,
    RunPhase,
    Share,
    Subproblem,
    Verdict,
)
from mkevolve_core.llm.settings import LLMSettings


@dataclass(frozen=True, slots=True)
class CandidateState:
    candidate: Candidate
    verdict: Verdict | None = None
    review: Review | None = None
    rounds: tuple[int, ...] = ()  # of reviews, as they came
    rejected: str | None = None  # why the engineer struck it out

    @property
    def counts(self) -> bool:
        """A subkernel: correct, not objected to, not struck out."""
        fine = self.review is None or self.review.outcome == "correct"
        return self.verdict is not None and self.verdict.is_correct and fine and not self.rejected

    @property
    def reward(self) -> float:
        return self.verdict.reward if self.counts and self.verdict else 0.0


@dataclass(frozen=True, slots=True)
class SubproblemState:
    subproblem: Subproblem
    since: int  # the iteration in which it appeared
    alive: bool = True
    beam: tuple[str, ...] = ()  # candidate ids, best first
    planned: tuple[tuple[str, str | None], ...] = ()  # (candidate id, parent id) of the step under way
    planned_at: int = 0  # the seq of that plan: steps are gone on with in the order in which they began
    told_hints: tuple[str, ...] = ()  # known then: what is asked again is asked in the same words
    told_baselines: tuple[Baseline, ...] = ()
    step: tuple[str, ...] = ()  # proposed since the beam last advanced
    missed: tuple[str, ...] = ()  # planned since then, and no candidate came of it
    candidates: tuple[str, ...] = ()  # all, in order
    chosen: str | None = None  # its subkernel: what is composed
    pinned: bool = False
    swapped: bool = False  # chosen by a swap: the beam does not displace it
    hints: tuple[str, ...] = ()
    declined: str | None = None  # why the writer has nothing (more) to propose
    last_ordinal: int = 0  # the highest number that a candidate, or one that never came, was given
    calls: int = 0  # kernel-writing calls so far
    boost: int = 0  # calls on top, not spent yet
    baselines: tuple[Baseline, ...] = ()


@dataclass(frozen=True, slots=True)
class Best:
    iteration: int
    decomposition_id: str
    chosen: dict[str, str]
    speedup: float | None
    estimate: float | None  # ratio, where nothing is measured
    codebase_sha: str | None = None

    @property
    def reward(self) -> float:
        return self.speedup if self.speedup is not None else (self.estimate or 0.0)


@dataclass(frozen=True, slots=True)
class CommandState:
    command: Command
    status: str  # "accepted", "applied", "refused", "withdrawn"
    detail: str = ""
    iteration: int | None = None


@dataclass(frozen=True, slots=True)
class Spent:
    calls: int = 0  # kernel-writing
    other_calls: int = 0  # calls to an LLM that write no kernel of the budget, re-asks among them
    by_role: dict[str, int] = field(default_factory=dict)  # calls to an LLM, re-asks under "repair"
    failed_calls: int = 0
    tokens_in: int = 0
    tokens_cached: int = 0  # of tokens_in
    tokens_out: int = 0
    tokens_unknown: int = 0  # calls whose provider gave no usage
    cost: float | None = 0.0  # dollars; None: some call's price is unknown
    judged: int = 0


@dataclass(frozen=True, slots=True)
class RunState:
    seq: int = 0
    at: float = 0.0
    started_at: float = 0.0
    next_by: float | None = None
    run_id: str = ""
    problem: Problem | None = None
    facts: ProblemFacts | None = None
    config: RunConfig = field(default_factory=RunConfig)
    device: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    hardware: dict[str, str] = field(default_factory=dict)
    llm: LLMSettings | None = None
    replay: str | None = None  # the recording that this run plays back
    phase: RunPhase = RunPhase.STARTING
    phase_detail: str = ""
    doing: str = ""
    iteration: int = 0
    topology_done: int = 0  # the iteration whose revision is over
    evaluated: int = 0  # the iteration whose end-to-end evaluation is over
    swap_done: bool = False
    decompositions: dict[str, Decomposition] = field(default_factory=dict)
    current: str | None = None  # decomposition id
    topologies: int = 0  # how many have been the current one
    refused: tuple[str, ...] = ()  # why revisions came to nothing, oldest first
    subproblems: dict[str, SubproblemState] = field(default_factory=dict)
    candidates: dict[str, CandidateState] = field(default_factory=dict)
    budget: dict[str, int] = field(default_factory=dict)  # of this iteration
    used: dict[str, int] = field(default_factory=dict)  # of this iteration
    budget_for: int = 0  # the iteration that the budget is of
    baselines: tuple[Baseline, ...] = ()  # the whole problem's
    shares: tuple[Share, ...] = ()  # from the last end-to-end evaluation
    evaluations: tuple[ev.EndToEndEvaluated, ...] = ()
    best: Best | None = None
    best_swapped: Best | None = None  # the same after Swap, reported apart
    commands: dict[str, CommandState] = field(default_factory=dict)
    spent: Spent = field(default_factory=Spent)
    replies: frozenset[tuple[str, str]] = frozenset()  # in the journal: (slot, sha of the prompt)
    postfused: tuple[ev.PostFuseJudged, ...] = ()
    finished: str | None = None  # the reason

    @property
    def decomposition(self) -> Decomposition | None:
        return self.decompositions.get(self.current) if self.current else None

    @property
    def live(self) -> tuple[SubproblemState, ...]:
        """The current decomposition's subproblems, in dataflow order."""
        current = self.decomposition
        return tuple(self.subproblems[i] for i in current.ids) if current else ()

    def subkernel(self, subproblem_id: str) -> CandidateState | None:
        chosen = self.subproblems[subproblem_id].chosen
        return self.candidates[chosen] if chosen else None
