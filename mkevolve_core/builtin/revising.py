"""What splitter and fuser share: from a changed chain of calls to a revision."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from mkevolve_core.builtin.build import Part
from mkevolve_core.builtin.decomposer import signature
from mkevolve_core.builtin.graph import Graph
from mkevolve_core.builtin.toplevel import TopLevel, parse, parse_lone, render
from mkevolve_core.builtin.tracing import trace
from mkevolve_core.domain import Decomposition, Problem, Revision, Subproblem
from mkevolve_core.errors import AgentDeclined, DecompositionError
from mkevolve_core.ids import fresh_ids
from mkevolve_core.protocols import Sandbox

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Change:
    """The changed chain of calls, the subproblems that are new in it, and where their weights came from."""

    top: TopLevel
    parts: tuple[Part, ...]
    origins: tuple[tuple[Mapping[str, str], ...], ...]  # for each part and instance: graph's name → old name
    parents: tuple[str, ...]  # subproblem ids


def read_graphs(sandbox: Sandbox, subproblem: Subproblem) -> tuple[Graph, ...]:
    """A graph for each instance. Raises AgentDeclined."""
    try:
        graphs = trace(sandbox, subproblem.reference)
    except DecompositionError as error:
        raise AgentDeclined(f"{subproblem.title} cannot be taken apart: {error}.") from None
    if len(graphs) != subproblem.instances:
        raise AgentDeclined(
            f"{subproblem.title} declares {len(graphs)} configs for {subproblem.instances} instances."
        )
    return graphs


def read_top_level(problem: Problem, current: Decomposition, graph: Graph) -> TopLevel:
    """The chain of calls; `graph` is of a subproblem that may be the only one. Raises AgentDeclined."""
    if len(current.subproblems) == 1 and current.subproblems[0].instances == 1:
        return parse_lone(current.top_level, signature(problem.source), graph)
    return parse(current.top_level)


def revise(current: Decomposition, change: Change) -> Revision:
    """All subproblems in dataflow order, the top-level module, and the weights carried along."""
    new = {part.name: part for part in _new_subproblems(current, change)}
    known = {part.name: part for part in current.subproblems} | new
    attributes = {instance.attribute for part in change.parts for instance in part.instances}
    present = {instance.attribute for instance in change.top.instances} - attributes
    kept = tuple(pair for pair in current.weight_map if pair[0].partition(".")[0] in present)
    parts = tuple(known[name] for name in change.top.parts)
    return Revision(parts, render(change.top), (*kept, *_new_weights(current, change)))


def apply(current: Decomposition, revision: Revision) -> Decomposition:
    """The decomposition as the revision would have it; nothing is checked."""
    return replace(
        current,
        subproblems=revision.subproblems,
        top_level=revision.top_level,
        weight_map=revision.weight_map,
        flow=(),
    )


def names_beside(top: TopLevel, leaving: Collection[str]) -> tuple[str, ...]:
    """Names of files and attributes that stay taken when the files `leaving` go."""
    staying = [instance for instance in top.instances if instance.part not in leaving]
    return (*(one.part for one in staying), *(one.attribute for one in staying))


def _new_subproblems(current: Decomposition, change: Change) -> Sequence[Subproblem]:
    used = {*current.ids, *(parent for part in current.subproblems for parent in part.parents)}
    ids = fresh_ids(change.parents, used, len(change.parts))
    return [
        Subproblem(new_id, part.name, part.title, part.source, len(part.instances), change.parents)
        for new_id, part in zip(ids, change.parts, strict=True)
    ]


def _new_weights(current: Decomposition, change: Change) -> Pairs:
    known = dict(current.weight_map)
    pairs = []
    for part, origins in zip(change.parts, change.origins, strict=True):
        for instance, states, origin in zip(part.instances, part.states, origins, strict=True):
            for local, name in states:
                if origin[name] in known:
                    pairs.append((f"{instance.attribute}.{local}", known[origin[name]]))
    return tuple(pairs)
