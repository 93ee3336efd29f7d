"""The splitter without an LLM: cuts a subproblem's graph in two at the best place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mkevolve_core.builtin.build import Part, build_parts
from mkevolve_core.builtin.graph import Graph, Node, refs
from mkevolve_core.builtin.grouping import owner_of
from mkevolve_core.builtin.immediate import at_once
from mkevolve_core.builtin.kinds import ANCHORS, Kind, is_free, kind_of, work
from mkevolve_core.builtin.naming import half_name, operations_name
from mkevolve_core.builtin.pieces import Piece, cut
from mkevolve_core.builtin.revising import Change, apply, names_beside, read_graphs, read_top_level, revise
from mkevolve_core.builtin.toplevel import Call, TopLevel
from mkevolve_core.domain import Decomposition, Problem, Revision, Subproblem
from mkevolve_core.errors import AgentDeclined, DecompositionError
from mkevolve_core.protocols import Check, ReviseTask, Sandbox


class BuiltinSplitter:
    """Deterministic. A hint changes nothing: there is nobody to read it."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    @at_once
    def split(self, task: ReviseTask, check: Check) -> Revision:
        """Each target into exactly two, in all of its instances. Raises AgentDeclined.

        Whoever asks checks the revision: it would come out the same a second time.
        """
        problem, current, targets = task.problem, task.current, task.targets
        if not targets:
            raise AgentDeclined("No subproblem was named to split.")
        for target in targets:
            revision = self._split(problem, current, current.subproblem(target))
            current = apply(current, revision)
        return Revision(current.subproblems, current.top_level, current.weight_map)

    def _split(self, problem: Problem, current: Decomposition, target: Subproblem) -> Revision:
        graphs = read_graphs(self._sandbox, target)
        top = read_top_level(problem, current, graphs[0])
        at = best_cut(graphs[0])
        if at is None:
            raise AgentDeclined(f"{target.title} cannot be split: {_why_whole(graphs[0])}.")
        if any(_ops(graph) != _ops(graphs[0]) for graph in graphs):
            raise AgentDeclined(f"{target.title} computes different things in its instances.")
        halves = [cut(graph, (graph.nodes[:at], graph.nodes[at:])) for graph in graphs]
        parts = _parts(target, halves, names_beside(top, {target.name}))
        return revise(current, _change(top, target, graphs, parts))


def best_cut(graph: Graph) -> int | None:
    """How many nodes go to the first half; None where there is nothing to cut.

    Few and small tensors should cross, both halves work alike, and no module call be cut through.
    """
    places = [at for at in range(1, len(graph.nodes)) if _is_possible(graph, at)]
    costs = {at: _cost(graph, at) for at in places}
    largest = max((cost.elements for cost in costs.values()), default=0)
    return min(places, key=lambda at: costs[at].key(largest, at), default=None)


def _why_whole(graph: Graph) -> str:
    if sum(not is_free([node]) for node in graph.nodes) == 1:
        return "it is a single operation"
    return "its operations share weights"


@dataclass(frozen=True, slots=True)
class _Cost:
    cut_calls: int
    tensors: int
    parts_epilogue: bool  # the second half would begin with what belongs to the first half's product
    elements: int
    kernel_imbalance: float
    work_imbalance: float

    def key(self, largest: int, at: int) -> tuple[float, ...]:
        size = self.elements / largest if largest else 0.0
        balance = round(self.kernel_imbalance + 0.5 * size, 6)
        return (
            self.cut_calls,
            self.tensors,
            self.parts_epilogue,
            balance,
            round(self.work_imbalance, 6),
            -at,
        )


def _cost(graph: Graph, at: int) -> _Cost:
    first, second = cut(graph, (graph.nodes[:at], graph.nodes[at:]))
    begins = next(node for node in second.nodes if not is_free([node]))
    return _Cost(
        cut_calls=sum(call.first < at < call.last for call in graph.calls),
        tensors=len(first.outputs),
        parts_epilogue=kind_of(begins) is Kind.POINTWISE,
        elements=sum(graph.values[name].numel for name in first.outputs),
        kernel_imbalance=_imbalance(*(sum(kind_of(n) in ANCHORS for n in p.nodes) for p in (first, second))),
        work_imbalance=_imbalance(*(sum(work(graph, n) for n in p.nodes) for p in (first, second))),
    )


def _imbalance(one: int, other: int) -> float:
    return abs(one - other) / (one + other) if one + other else 0.0


def _is_possible(graph: Graph, at: int) -> bool:
    first, second = graph.nodes[:at], graph.nodes[at:]
    if is_free(first) or is_free(second):
        return False
    return not _owners(graph, first) & _owners(graph, second)


def _owners(graph: Graph, nodes: Sequence[Node]) -> set[str]:
    return {owner_of(graph, name) for node in nodes for name in node.inputs if name in graph.states}


def _ops(graph: Graph) -> list[str]:
    return [node.call for node in graph.nodes]


def _parts(
    target: Subproblem, halves: Sequence[tuple[Piece, ...]], taken: Sequence[str]
) -> tuple[Part, Part]:
    first, second = ([pair[side] for pair in halves] for side in (0, 1))
    names = _half_names(target, first[0], second[0])
    try:
        one = build_parts(first, [names[0]] * len(first), taken, keep_names=True)
        taken = [*taken, *(name for part in one for i in part.instances for name in (part.name, i.attribute))]
        other = build_parts(second, [names[1]] * len(second), taken, keep_names=True)
    except DecompositionError as error:
        raise AgentDeclined(f"{target.title} cannot be split: {error}.") from None
    if len(one) != 1 or len(other) != 1:
        raise AgentDeclined(f"{target.title} computes different things in its instances.")
    return one[0], other[0]


def _half_names(target: Subproblem, first: Piece, second: Piece) -> tuple[str, str]:
    """Of a block: attention and feed-forward; of a chain of operations: the operations of each half."""
    roles = half_name(first), half_name(second)
    if None not in roles and roles[0] != roles[1]:
        return f"{target.name}_{roles[0]}", f"{target.name}_{roles[1]}"
    return operations_name(first), operations_name(second)


def _change(top: TopLevel, target: Subproblem, graphs: Sequence[Graph], parts: tuple[Part, Part]) -> Change:
    old = [instance for instance in top.instances if instance.part == target.name]
    number = {instance.attribute: at for at, instance in enumerate(old)}
    instances = []
    for instance in top.instances:
        at = number.get(instance.attribute)
        instances += [instance] if at is None else [part.instances[at] for part in parts]
    calls = []
    for call in top.calls:
        at = number.get(call.attribute)
        calls += [call] if at is None else _calls(call, graphs[at], parts, at)
    origin = tuple(
        {name: f"{one.attribute}.{name}" for name in g.states} for one, g in zip(old, graphs, strict=True)
    )
    changed = replace(top, instances=tuple(instances), calls=tuple(calls))
    return Change(changed, parts, (origin, origin), (target.subproblem_id,))


def _calls(call: Call, graph: Graph, parts: tuple[Part, Part], at: int) -> list[Call]:
    """One call as two; what crosses gets names of its own."""
    values = values_of_call(call, graph)
    found = []
    for part in parts:
        piece = part.pieces[at]
        ends = [
            tuple(values.get(name, f"{call.attribute}.{name}") for name in names)
            for names in (piece.inputs, piece.outputs)
        ]
        found.append(Call(part.instances[at].attribute, ends[0], ends[1]))
    return found


def values_of_call(call: Call, graph: Graph) -> dict[str, str]:
    """Which of the top-level module's values the graph's inputs and outputs are. Raises AgentDeclined."""
    outputs = [ref.name for ref in refs(graph.output)]
    fits = len(set(outputs)) == len(outputs) == len(call.outputs) and len(graph.inputs) == len(call.inputs)
    if not fits or set(outputs) & set(graph.inputs):
        raise AgentDeclined(
            f"The call of {call.attribute} does not match what its subproblem takes and gives."
        )
    given = dict(zip(graph.inputs, call.inputs, strict=True))
    return given | dict(zip(outputs, call.outputs, strict=True))
