"""Cuts a traced forward pass into groups: module calls where there are some, else the paper's fusion rules.

Groups are consecutive in execution order, so they can never depend on each other in a circle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from mkevolve_core.builtin.graph import Graph, ModuleCall, Node
from mkevolve_core.builtin.kinds import ANCHORS, FREE, Kind, is_free, kind_of

_TRANSPARENT = frozenset(
    f"torch.nn.{name}" for name in ("Sequential", "TransformerEncoder", "TransformerDecoder", "Transformer")
)
_ATTENTION_MODULE = "torch.nn.MultiheadAttention"


def group(graph: Graph) -> tuple[tuple[Node, ...], ...]:
    """At least one group; one where nothing can be cut."""
    builder = _Builder(graph)
    blocks = {call.first: call for call in block_calls(graph)}
    index = 0
    while index < len(graph.nodes):
        call = blocks.get(index)
        if call is None:
            builder.add(graph.nodes[index])
            index += 1
        else:
            builder.add_block(graph.nodes[call.first : call.last])
            index = call.last
    groups = builder.finish()
    return _without_free(_with_whole_states(graph, groups))


def block_calls(graph: Graph) -> tuple[ModuleCall, ...]:
    """The module calls that become groups: the root's own, looking through mere containers."""
    return tuple(sorted(_blocks_under(graph, None), key=lambda call: call.first))


def _blocks_under(graph: Graph, parent: ModuleCall | None) -> list[ModuleCall]:
    found = []
    for call in _children(graph, parent):
        found += _blocks_under(graph, call) if _is_transparent(graph, call) else [call]
    return found


def _children(graph: Graph, parent: ModuleCall | None) -> list[ModuleCall]:
    inside = [call for call in graph.calls if call is not parent and _encloses(parent, call)]
    return [call for call in inside if not any(_encloses(o, call) for o in inside if o is not call)]


def _encloses(outer: ModuleCall | None, inner: ModuleCall) -> bool:
    if outer is None:
        return True
    same_range = outer.first <= inner.first and inner.last <= outer.last
    return same_range and inner.path.startswith(outer.path + ".")


def _is_transparent(graph: Graph, call: ModuleCall) -> bool:
    """Looked through: a container, what covers everything, and what repeats modules of one class."""
    if call.cls == _ATTENTION_MODULE:
        return False
    if call.cls in _TRANSPARENT or (call.first == 0 and call.last == len(graph.nodes)):
        return True
    classes = [c.cls for c in _children(graph, call) if c.cls != _ATTENTION_MODULE]
    return len(set(classes)) < len(classes)


@dataclass(slots=True)
class _Open:
    """The group under construction."""

    kind: Kind | None  # its anchor's; None for a block
    nodes: list[Node]
    made: set[str]

    def extend(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            self.nodes.append(node)
            self.made.update(node.outputs)


@dataclass(slots=True)
class _Builder:
    """Collects nodes in execution order. Views and constants wait for the group that needs them."""

    graph: Graph
    groups: list[list[Node]] = field(default_factory=list)
    waiting: list[Node] = field(default_factory=list)
    current: _Open | None = None
    constants: set[str] = field(default_factory=set)

    def add(self, node: Node) -> None:
        kind = kind_of(node)
        if kind in FREE or self._is_constant(node, kind):
            self._add_free(node)
        elif self.current is not None and self._goes_before(node, kind):
            self.groups.append([*self._waiting_for([node]), node])
        elif self.current is not None and self._joins(node, kind):
            self.current.extend([*self._waiting_for([node]), node])
            self.current.kind = _joint_kind(self.current.kind, kind)
        else:
            self._open(kind, [node])

    def add_block(self, nodes: Sequence[Node]) -> None:
        self._open(None, nodes)

    def finish(self) -> list[list[Node]]:
        if self.waiting and self.current is not None:
            self.current.extend(self.waiting)
        self._close()
        return self.groups or [self.waiting]

    def _is_constant(self, node: Node, kind: Kind) -> bool:
        """Does an elementwise node depend on weights and constants alone?"""
        known = self.graph.states.keys() | self.constants
        if kind is not Kind.POINTWISE or not known.issuperset(node.inputs):
            return False
        self.constants.update(node.outputs)
        return True

    def _goes_before(self, node: Node, kind: Kind) -> bool:
        """A projection between softmax and its product, as in `softmax(scores) @ self.v(x)`."""
        assert self.current is not None
        near = self.current.made | {name for one in self.waiting for name in one.outputs}
        projects = kind is Kind.GEMM and any(name in self.graph.states for name in node.inputs)
        return projects and self.current.kind is Kind.ATTENTION and not near.intersection(node.inputs)

    def _open(self, kind: Kind | None, nodes: Sequence[Node]) -> None:
        self._close()
        self.current = _Open(kind, [], set())
        self.current.extend([*self._waiting_for(nodes), *nodes])

    def _close(self) -> None:
        if self.current is not None:
            self.groups.append(self.current.nodes)
        self.current = None

    def _waiting_for(self, nodes: Iterable[Node]) -> list[Node]:
        """Take the waiting nodes that these need, directly or through each other."""
        needed = {name for node in nodes for name in node.inputs}
        taken = []
        for node in reversed(self.waiting):
            if needed.intersection(node.outputs):
                needed.update(node.inputs)
                taken.append(node)
        self.waiting = [node for node in self.waiting if node not in taken]
        return taken[::-1]

    def _add_free(self, node: Node) -> None:
        """Views that end in fewer dimensions end the group that made their input; others begin the next."""
        self.waiting.append(node)
        if kind_of(node) is Kind.CREATE:
            self.constants.update(node.outputs)
        if self.current is not None and self.current.kind is not None and self._lowers_rank(node):
            self.current.extend(self._waiting_for([node]))
            self.current.extend([self.waiting.pop(self.waiting.index(node))])

    def _lowers_rank(self, node: Node) -> bool:
        assert self.current is not None
        if node.op not in ("flatten", "view", "reshape"):
            return False
        source = node.inputs[0]
        makers = {name: one for one in self.waiting for name in one.outputs}
        while source in makers and makers[source].inputs:
            source = makers[source].inputs[0]
        rank = len(self.graph.values[node.outputs[0]].shape)
        return source in self.current.made and rank < len(self.graph.values[source].shape)

    def _joins(self, node: Node, kind: Kind) -> bool:
        """Does the node belong to the open group rather than to one of its own?"""
        assert self.current is not None
        near = self.current.made | {name for one in self.waiting for name in one.outputs}
        if not near.intersection(node.inputs):
            return False
        if kind is Kind.POINTWISE:
            return True
        before = self.current.kind
        if before is Kind.POINTWISE:
            return kind in (Kind.GEMM, Kind.CONV, Kind.REDUCE)  # a prologue
        if before is Kind.GEMM and node.op == "softmax":
            return self._is_scores()
        return before is Kind.ATTENTION and kind is Kind.GEMM and node.op in ("matmul", "bmm")

    def _is_scores(self) -> bool:
        """Was the open group's product one of two activations, as in attention?"""
        assert self.current is not None
        products = [n for n in self.current.nodes if n.op in ("matmul", "bmm", "baddbmm")]
        return any(not self.graph.states.keys() & set(node.inputs) for node in products)


def _joint_kind(before: Kind | None, kind: Kind) -> Kind | None:
    if before is Kind.GEMM and kind is Kind.REDUCE:
        return Kind.ATTENTION
    if before is Kind.ATTENTION and kind is Kind.GEMM:
        return Kind.GEMM
    return kind if before is Kind.POINTWISE and kind in ANCHORS else before


def _with_whole_states(graph: Graph, groups: list[list[Node]]) -> list[list[Node]]:
    """Groups that read the same state become one, with all between them: a weight has one owner."""
    owners: dict[str, int] = {}
    merged: list[list[Node]] = []
    for nodes in groups:
        used = {owner_of(graph, name) for node in nodes for name in node.inputs if name in graph.states}
        first = min((owners[name] for name in used if name in owners), default=len(merged))
        tail = [node for one in merged[first:] for node in one]
        del merged[first:]
        merged.append([*tail, *nodes])
        owners = {name: min(at, first) for name, at in owners.items()}
        owners.update(dict.fromkeys(used - owners.keys(), first))
    return merged


def owner_of(graph: Graph, state: str) -> str:
    """The unit that a state belongs to, or the state itself."""
    path = state.rpartition(".")[0]
    while path:
        if path in graph.units:
            return path
        path = path.rpartition(".")[0]
    return state


def _without_free(groups: list[list[Node]]) -> tuple[tuple[Node, ...], ...]:
    """Groups of views alone go to their neighbour."""
    kept: list[list[Node]] = []
    for nodes in groups:
        if kept and (is_free(nodes) or is_free(kept[-1])):
            kept[-1] += nodes
        else:
            kept.append(list(nodes))
    return tuple(tuple(nodes) for nodes in kept)
