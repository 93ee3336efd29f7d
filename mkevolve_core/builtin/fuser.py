"""The fuser without an LLM: two subproblems, of which one feeds the other, become one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from mkevolve_core.builtin.build import Part, build_parts
from mkevolve_core.builtin.graph import Graph, refs
from mkevolve_core.builtin.immediate import at_once
from mkevolve_core.builtin.kinds import ANCHORS, kind_of
from mkevolve_core.builtin.naming import operations_name
from mkevolve_core.builtin.pieces import Piece, cut
from mkevolve_core.builtin.revising import Change, apply, names_beside, read_graphs, revise
from mkevolve_core.builtin.splice import splice
from mkevolve_core.builtin.splitter import values_of_call
from mkevolve_core.builtin.toplevel import Call, Instance, TopLevel, parse
from mkevolve_core.domain import Decomposition, Revision, Subproblem
from mkevolve_core.errors import AgentDeclined, DecompositionError
from mkevolve_core.protocols import Check, ReviseTask, Sandbox

MOST_ANCHORS = 4  # as many kernels as the built-in writer puts into one subkernel


class BuiltinFuser:
    """Deterministic. A hint changes nothing: there is nobody to read it."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    @at_once
    def fuse(self, task: ReviseTask, check: Check) -> Revision:
        """The targets into one; with none given, the pair with the largest tensor between them that can be.

        All instances are fused in step. Raises AgentDeclined. Whoever asks checks the revision.
        """
        current, targets = task.current, task.targets
        if len(current.subproblems) < 2:
            raise AgentDeclined("There is only one subproblem, so there is nothing to fuse.")
        if not targets:
            return self._fuse_best(current)
        if len(set(targets)) < 2:
            raise AgentDeclined("Fusing needs at least two different subproblems.")
        return self._fuse_all(current, targets)

    def _fuse_all(self, current: Decomposition, targets: tuple[str, ...]) -> Revision:
        """Two at a time, from the start of the dataflow."""
        order = {name: at for at, name in enumerate(parse(current.top_level).parts)}
        first, *rest = sorted(set(targets), key=lambda i: order[current.subproblem(i).name])
        revision = None
        for target in rest:
            pair = current.subproblem(first), current.subproblem(target)
            revision = self._fuse_pair(current, *pair)
            before, current = set(current.ids), apply(current, revision)
            first = next(i for i in current.ids if i not in before)
        assert revision is not None
        return _with_parents(revision, first, targets)

    def _fuse_best(self, current: Decomposition) -> Revision:
        graphs = {part.name: read_graphs(self._sandbox, part) for part in current.subproblems}
        refusal = "No two subproblems can be fused."
        for one, other in ranked_pairs(current, graphs):
            try:
                return self._fuse_pair(current, one, other)
            except AgentDeclined as declined:
                refusal = str(declined)
        raise AgentDeclined(refusal)

    def _fuse_pair(self, current: Decomposition, one: Subproblem, other: Subproblem) -> Revision:
        top = parse(current.top_level)
        pairs, swapped = _paired_calls(top, one, other)
        parts = (other, one) if swapped else (one, other)
        graphs = [read_graphs(self._sandbox, part) for part in parts]
        joints = [_joint(top, pair, parts, graphs) for pair in pairs]
        name = _fused_name(parts, joints[0].piece)
        taken = names_beside(top, {part.name for part in parts})
        try:
            built = build_parts([j.piece for j in joints], [name] * len(joints), taken, keep_names=True)
        except DecompositionError as error:
            raise AgentDeclined(f"{parts[0].title} and {parts[1].title} cannot be fused: {error}.") from None
        if len(built) != 1:
            raise AgentDeclined(f"{parts[0].title} and {parts[1].title} differ between their instances.")
        return revise(current, _change(top, parts, joints, built[0]))


@dataclass(frozen=True, slots=True)
class _Joint:
    """One instance of each of the two, as one."""

    calls: tuple[Call, Call]
    piece: Piece
    values: Mapping[str, str]  # the joint graph's values → the top-level module's
    origin: Mapping[str, str]  # the joint graph's states → names in the decomposition's state_dict


def ranked_pairs(
    current: Decomposition, graphs: Mapping[str, Sequence[Graph]]
) -> list[tuple[Subproblem, Subproblem]]:
    """Producers with their consumers, the best to fuse first.

    The largest tensor between them goes first; pairs beyond the writer's capacity and the halves of one split
    come last.
    """
    top = parse(current.top_level)
    by_name = {part.name: part for part in current.subproblems}
    sizes = _sizes_between(top, graphs)

    def key(names: tuple[str, str]) -> tuple[bool, bool, int]:
        one, other = by_name[names[0]], by_name[names[1]]
        halves = one.parents == other.parents != ()
        anchors = sum(kind_of(node) in ANCHORS for name in names for node in graphs[name][0].nodes)
        return (halves, anchors > MOST_ANCHORS, -sizes[names])

    return [(by_name[a], by_name[b]) for a, b in sorted(sizes, key=key)]


def _sizes_between(top: TopLevel, graphs: Mapping[str, Sequence[Graph]]) -> dict[tuple[str, str], int]:
    """Elements that pass from one subproblem to another, over all instances, in dataflow order."""
    made_by = {value: (call, at) for call in top.calls for at, value in enumerate(call.outputs)}
    sizes: dict[tuple[str, str], int] = {}
    for call in top.calls:
        for value in dict.fromkeys(call.inputs):
            if value not in made_by:
                continue
            maker, at = made_by[value]
            names = top.part_of(maker.attribute), top.part_of(call.attribute)
            outputs = [ref.name for ref in refs(graphs[names[0]][0].output)]
            if names[0] != names[1] and at < len(outputs):
                numel = graphs[names[0]][0].values[outputs[at]].numel
                sizes[names] = sizes.get(names, 0) + numel
    return sizes


def _paired_calls(top: TopLevel, one: Subproblem, other: Subproblem) -> tuple[list[tuple[Call, Call]], bool]:
    """Each call of the producer with the one call that it feeds; whether `other` is the producer."""
    calls = top.calls_of(one.name), top.calls_of(other.name)
    for swapped in (False, True):
        producers, consumers = calls[::-1] if swapped else calls
        pairs = list(_feeding(producers, consumers))
        if len(pairs) == len(producers) == len(consumers) == len({id(c) for _, c in pairs}):
            return pairs, swapped
    raise AgentDeclined(
        f"{one.title} ({len(calls[0])} instances) and {other.title} ({len(calls[1])}) are no neighbours "
        "in all of their instances."
    )


def _feeding(producers: Sequence[Call], consumers: Sequence[Call]) -> Iterator[tuple[Call, Call]]:
    for producer in producers:
        for consumer in consumers:
            if set(producer.outputs) & set(consumer.inputs):
                yield producer, consumer
                break


def _joint(
    top: TopLevel, calls: tuple[Call, Call], parts: Sequence[Subproblem], graphs: Sequence[Sequence[Graph]]
) -> _Joint:
    both = []
    for call, part, configs in zip(calls, parts, graphs, strict=True):
        attributes = [one.attribute for one in top.instances if one.part == part.name]
        both.append(configs[attributes.index(call.attribute)])
    outer = [values_of_call(call, graph) for call, graph in zip(calls, both, strict=True)]
    values = {f"{side}.{name}": value for side in (0, 1) for name, value in outer[side].items()}
    bound, joint_values = _bound(values, both)
    outputs = tuple(_needed_outputs(top, calls, joint_values))
    graph = splice(both[0], both[1], bound, outputs)
    (piece,) = cut(graph, (graph.nodes,))
    origin = {
        f"{side}.{name}": f"{calls[side].attribute}.{name}" for side in (0, 1) for name in both[side].states
    }
    return _Joint(calls, piece, joint_values, origin)


def _bound(values: Mapping[str, str], both: Sequence[Graph]) -> tuple[dict[str, str], dict[str, str]]:
    """Inputs that are one value get one name: the first output or input that has it."""
    name_of: dict[str, str] = {}
    outputs = [f"{side}.{ref.name}" for side in (0, 1) for ref in refs(both[side].output)]
    inputs = [f"{side}.{name}" for side in (0, 1) for name in both[side].inputs]
    for name in [*outputs, *inputs]:
        name_of.setdefault(values[name], name)
    bound = {name: name_of[values[name]] for name in inputs if name_of[values[name]] != name}
    return bound, {name: value for value, name in name_of.items()}


def _needed_outputs(top: TopLevel, calls: tuple[Call, Call], values: Mapping[str, str]) -> Iterator[str]:
    """The second call's outputs, and those of the first that others read."""
    read = {ref.name for ref in refs(top.output)}
    read.update(value for call in top.calls if call not in calls for value in call.inputs)
    names = {value: name for name, value in values.items()}
    for call in reversed(calls):
        yield from (names[value] for value in call.outputs if value in read)


def _fused_name(parts: Sequence[Subproblem], piece: Piece) -> str:
    """The two halves of a block become the block again; others are called by both names."""
    one, other = parts[0].name, parts[1].name
    shared = one.rpartition("_")[0]
    if parts[0].parents == parts[1].parents != () and shared and other.rpartition("_")[0] == shared:
        return shared
    plain = operations_name(piece)
    return plain if plain.startswith(re.sub(r"_\d+$", "", one)) else f"{one}_{other}"


def _change(top: TopLevel, parts: Sequence[Subproblem], joints: Sequence[_Joint], built: Part) -> Change:
    made: dict[str, Instance] = {}
    called: dict[str, Call] = {}
    for joint, instance in zip(joints, built.instances, strict=True):
        ends = [tuple(joint.values[n] for n in names) for names in (joint.piece.inputs, joint.piece.outputs)]
        made[joint.calls[0].attribute] = instance
        called[joint.calls[0].attribute] = Call(instance.attribute, ends[0], ends[1])
    gone = {joint.calls[1].attribute for joint in joints}
    instances = tuple(made.get(i.attribute, i) for i in top.instances if i.attribute not in gone)
    calls = [called.get(c.attribute, c) for c in top.calls if c.attribute not in gone]
    changed = replace(top, instances=instances, calls=_in_order(top.arguments, calls, parts))
    parents = tuple(part.subproblem_id for part in parts)
    return Change(changed, (built,), (tuple(joint.origin for joint in joints),), parents)


def _in_order(
    arguments: Sequence[str], calls: Sequence[Call], parts: Sequence[Subproblem]
) -> tuple[Call, ...]:
    """Calls after those that they read from. Raises AgentDeclined where something lies between the two."""
    waiting = list(calls)
    known = set(arguments)
    ordered = []
    while waiting:
        ready = next((call for call in waiting if known.issuperset(call.inputs)), None)
        if ready is None:
            between = ", ".join(dict.fromkeys(call.attribute for call in waiting))
            raise AgentDeclined(
                f"{parts[0].title} and {parts[1].title} cannot be fused: {between} would need each other."
            )
        waiting.remove(ready)
        known.update(ready.outputs)
        ordered.append(ready)
    return tuple(ordered)


def _with_parents(revision: Revision, fused: str, targets: tuple[str, ...]) -> Revision:
    """Fused two at a time, it still comes from all of the targets."""
    parts = tuple(
        replace(part, parents=targets) if part.subproblem_id == fused else part
        for part in revision.subproblems
    )
    return replace(revision, subproblems=parts)
