"""What the pages ask: one function, one file of SQL. Absent is NA in a frame and None in a value.

`speedup` is measured, `estimate` is modelled; a failing candidate has neither.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from mkevolve_core.codec import from_plain
from mkevolve_core.domain import Verdict
from mkevolve_core.errors import ConfigError
from store.artifacts import FileArtifacts
from store.warehouse import Warehouse

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Header:
    """A run at a glance. Times are seconds since the epoch."""

    run_id: str
    folder: str
    problem: str | None
    preset: str | None
    phase: str
    phase_detail: str | None
    doing: str | None
    iteration: int
    iterations: int
    best_iteration: int | None
    best_speedup: float | None
    best_estimate: float | None
    swapped_speedup: float | None  # of the best set after the final swap
    swapped_estimate: float | None
    end_to_end_ok: bool | None  # of the last evaluation; None before one
    parts_correct: int
    parts_failing: int
    parts_new: int
    calls: int  # kernel-writing
    calls_planned: int
    judged: int
    minutes: float  # in which the engine was at work
    started_at: float | None
    updated_at: float | None
    next_by: float | None
    device: str | None
    finished: str | None
    baseline_ms: float | None  # torch.compile of the whole problem
    fallback: str | None  # why the whole problem is the only subproblem
    agents: str | None  # "built-in", "llm", "mailbox"
    replay: str | None  # the recording that is played back
    llm_calls: int  # replies of language models
    other_calls: int  # of these, not kernel-writing calls of the budget
    failed_calls: int  # without a reply
    tokens: int
    tokens_in: int
    tokens_cached: int  # of tokens_in
    tokens_out: int
    tokens_unknown: int  # calls whose tokens nobody told
    cost: float | None  # dollars; None: unknown
    limit_usd: float | None
    limit_calls: int | None
    limit_output_tokens: int | None
    limit_minutes: float | None
    postfuse_tries: int
    postfused_speedup: float | None  # of the best try to fuse all into one file
    postfused_estimate: float | None
    seq: int
    unreadable: str | None  # why the journal cannot be read, or not to its end


def runs(warehouse: Warehouse) -> pd.DataFrame:
    """All runs, the newest first, one column for each field of `Header`."""
    return warehouse.frame("runs")


def header(warehouse: Warehouse, run_id: str) -> Header:
    """Raises ConfigError for a run that the index does not know."""
    found = warehouse.records("header", run_id=run_id)
    if not found:
        raise ConfigError(f"No run '{run_id}' in this runs folder.")
    return Header(**{field.name: found[0][field.name] for field in fields(Header)})  # type: ignore[arg-type]


def tree(warehouse: Warehouse, run_id: str) -> pd.DataFrame:
    """One row for each iteration and subproblem, as of the end of that iteration (the running one: now).

    `state`: correct, failing, new, working or swapped; `lane` 0 is the top; `used` of `budget` calls are
    of this iteration, `calls` of the run; `outcome` ... `author` describe the shown candidate.
    """
    return warehouse.frame("tree", run_id=run_id)


def tree_edges(warehouse: Warehouse, run_id: str) -> pd.DataFrame:
    """Changes from one iteration to the next: from_iteration, from_id, to_iteration, to_id, cause."""
    return warehouse.frame("tree_edges", run_id=run_id)


def end_to_end(warehouse: Warehouse, run_id: str) -> pd.DataFrame:
    """Evaluations of the whole, in order; `after`: "iteration", "swap" or a command's id.

    `missing` names the subproblems without a subkernel, where that is why nothing was judged.
    """
    return warehouse.frame("end_to_end", run_id=run_id)


def lines(warehouse: Warehouse, run_id: str) -> pd.DataFrame:
    """A point for each iteration of each subproblem; "e2e" is the whole, "e2e swapped" after the final swap.

    `calls`, `minutes`, `tokens`, `cost` are the run's from its start to the end of the iteration.
    """
    return warehouse.frame("lines", run_id=run_id)


def iterations(warehouse: Warehouse, run_id: str) -> pd.DataFrame:
    """What was spent up to the end of each iteration, and why its topology is what it is."""
    return warehouse.frame("iterations", run_id=run_id)


def candidates(warehouse: Warehouse, run_id: str, subproblem_id: str | None = None) -> pd.DataFrame:
    """The candidates of a subproblem, or of the run, best first; those that fail come last."""
    return warehouse.frame("candidates", run_id=run_id, subproblem_id=subproblem_id)


def missed(warehouse: Warehouse, run_id: str, subproblem_id: str | None = None) -> pd.DataFrame:
    """Kernel-writing calls that gave no candidate, in order; `outcome` is the writer's, not a verdict's."""
    return warehouse.frame("missed", run_id=run_id, subproblem_id=subproblem_id)


def llm_calls(warehouse: Warehouse, run_id: str, subproblem_id: str | None = None) -> pd.DataFrame:
    """Calls to language models, in order; "" for those of no subproblem, None for all.

    `candidate_id`: what the call writes or reviews; `tokens_in` holds the cached ones, `cached` is their
    share (0 to 1); unknown tokens and costs are NA; `failure` is set where no reply came.
    """
    return warehouse.frame("llm_calls", run_id=run_id, subproblem_id=subproblem_id)


def llm_roles(warehouse: Warehouse, run_id: str) -> pd.DataFrame:
    """What each role took, "repair" (asked again) apart; a sum with an unknown in it is NA.

    `cost_known` is what the calls with a known price come to, `cost_unknown` how many have none.
    """
    return warehouse.frame("llm_roles", run_id=run_id)


def llm_earlier(warehouse: Warehouse) -> pd.DataFrame:
    """What calls took in all runs of the folder, by role: role, calls, tokens_in, tokens_out."""
    return warehouse.frame("llm_earlier")


def postfused(warehouse: Warehouse, run_id: str) -> pd.DataFrame:
    """Tries to fuse the finished codebase into one file; NA `outcome`: no draft came, `note` says why."""
    return warehouse.frame("postfused", run_id=run_id)


def postfused_verdict(warehouse: Warehouse, run_id: str, seq: int) -> Verdict | None:
    """The verdict of one row of `postfused`."""
    return _verdict(warehouse.records("postfused_verdict", run_id=run_id, seq=seq))


def verdict(warehouse: Warehouse, run_id: str, candidate_id: str) -> Verdict | None:
    """The judge's last verdict on a candidate; None while it has none."""
    return _verdict(warehouse.records("verdict", run_id=run_id, candidate_id=candidate_id))


def end_to_end_verdict(warehouse: Warehouse, run_id: str, seq: int) -> Verdict | None:
    """The verdict of one row of `end_to_end`; None where it was not judged."""
    return _verdict(warehouse.records("end_to_end_verdict", run_id=run_id, seq=seq))


def source(warehouse: Warehouse, run_id: str, sha: str) -> str:
    """The text of an artifact. Raises KeyError for one that is not there."""
    folder = warehouse.records("folder", run_id=run_id)
    if not folder:
        raise KeyError(sha)
    return FileArtifacts(Path(str(folder[0]["folder"])) / "artifacts").get(sha)


def commands(warehouse: Warehouse, run_id: str) -> pd.DataFrame:
    """The engineer's requests, oldest first; `status`: queued, accepted, applied, refused or withdrawn."""
    return warehouse.frame("commands", run_id=run_id)


def log(warehouse: Warehouse, run_id: str, limit: int = 200) -> pd.DataFrame:
    """The newest entries, a plain sentence each: seq, at, kind, sentence."""
    return warehouse.frame("log", run_id=run_id, count=limit)


def budgets(warehouse: Warehouse, run_id: str) -> pd.DataFrame:
    """Kernel-writing calls of each iteration and subproblem, with the reason; 0 is a row too."""
    return warehouse.frame("budgets", run_id=run_id)


def shares(warehouse: Warehouse, run_id: str) -> pd.DataFrame:
    """Each part's milliseconds and share (0 to 1) of the whole, for each evaluation that has them."""
    return warehouse.frame("shares", run_id=run_id)


def _verdict(found: list[dict[str, object]]) -> Verdict | None:
    text = found[0]["json"] if found else None
    return from_plain(Verdict, json.loads(str(text))) if text else None
