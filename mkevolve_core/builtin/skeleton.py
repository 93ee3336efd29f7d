"""One piece as the text of a `Model`, with holes for its numbers: equal texts are one pattern."""

from __future__ import annotations

from dataclasses import dataclass

from mkevolve_core.builtin.graph import Node
from mkevolve_core.builtin.kinds import FREE, Kind, kind_of
from mkevolve_core.builtin.members import Members, members
from mkevolve_core.builtin.naming_values import Step, input_names, name_values
from mkevolve_core.builtin.pieces import Piece
from mkevolve_core.builtin.spelling import Expression, Hole, Holes, Speller

_LONGEST = 72  # characters of a line that still takes another call around it


@dataclass(frozen=True, slots=True)
class Skeleton:
    piece: Piece
    arguments: tuple[str, ...]  # of forward
    init: tuple[str, ...]  # statements
    body: tuple[str, ...]
    holes: tuple[Hole, ...]
    states: tuple[tuple[str, str], ...]  # (name in the subproblem's state_dict, name in the graph)

    @property
    def pattern(self) -> tuple[tuple[str, ...], ...]:
        return (self.arguments, self.init, self.body)


@dataclass(frozen=True, slots=True)
class _Statement:
    """What one line computes: a node, or a whole attention call by its last node."""

    node: Node
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def skeleton(piece: Piece, keep_names: bool) -> Skeleton:
    """`keep_names`: see `members`. Raises DecompositionError where the piece cannot be written."""
    holes = Holes()
    made = members(piece, holes, keep_names)
    statements = _statements(piece, made)
    inlined = _inlined(piece, statements)
    given = input_names(piece.inputs)
    names = name_values(given, _steps(statements, inlined), piece.outputs)
    writer = _Writer(piece, made, names, inlined, holes)
    body = [line for statement in statements for line in writer.lines(statement)]
    result = ", ".join(names[value] for value in piece.outputs)
    return Skeleton(
        piece=piece,
        arguments=tuple(given[value] for value in piece.inputs),
        init=made.lines,
        body=tuple(_with_return(body, result)),
        holes=tuple(holes.found),
        states=made.states,
    )


def _with_return(body: list[str], result: str) -> list[str]:
    """A last line that makes the result returns it."""
    target, equals, expression = body[-1].partition(" = ")
    if equals and target == result and "," not in result:
        return [*body[:-1], f"return {expression}"]
    return [*body, f"return {result}"]


def _statements(piece: Piece, made: Members) -> list[_Statement]:
    hidden = {
        node.name: call
        for call in made.as_attention.values()
        for node in piece.graph.nodes[call.first : call.last]
    }
    found = []
    for node in piece.nodes:
        if node.name in made.as_attention:
            call = made.as_attention[node.name]
            found.append(_Statement(node, call.inputs, call.outputs[:1]))
        elif node.name not in hidden:
            inputs = tuple(name for name in node.inputs if name not in piece.graph.states)
            found.append(_Statement(node, inputs, node.outputs))
    return found


def _inlined(piece: Piece, statements: list[_Statement]) -> set[str]:
    """Values that are written inside of the next statement, their only reader."""
    uses = [value for statement in statements for value in statement.inputs]
    found: set[str] = set()
    depth = 0
    for before, after in zip(statements, statements[1:], strict=False):
        single = len(before.outputs) == 1 and uses.count(before.outputs[0]) == 1
        value = before.outputs[0]
        kept = value in piece.outputs or value not in after.inputs
        if single and not kept and depth < 2 and _reads_inside(before.node, after.node):
            found.add(value)
            depth += 1
        else:
            depth = 0
    return found


def _reads_inside(inner: Node, outer: Node) -> bool:
    """Activations around a module call and norms around a sum read well; views keep their own line."""
    if kind_of(outer) in FREE or kind_of(inner) in FREE:
        return False
    return kind_of(outer) in (Kind.POINTWISE, Kind.REDUCE) and outer.call.partition(":")[0] != "method"


def _steps(statements: list[_Statement], inlined: set[str]) -> list[Step]:
    """Statements as they are written: an inlined value's inputs are read by the one around it."""
    steps = []
    waiting: dict[str, tuple[str, ...]] = {}
    for statement in statements:
        inputs = tuple(
            name
            for value in statement.inputs
            for name in (waiting.pop(value) if value in waiting else (value,))
        )
        if statement.outputs[0] in inlined:
            waiting[statement.outputs[0]] = inputs
        else:
            steps.append(Step(inputs, statement.outputs))
    return steps


class _Writer:
    """Turns statements into lines, keeping the expressions of inlined values until they are read."""

    def __init__(
        self, piece: Piece, made: Members, names: dict[str, str], inlined: set[str], holes: Holes
    ) -> None:
        self._piece = piece
        self._made = made
        self._names = names
        self._inlined = inlined
        self._expressions: dict[str, Expression] = {}
        device = f"{names[piece.inputs[0]]}.device" if piece.inputs else '"cpu"'
        self._speller = Speller(piece.graph, self._value, holes, device)

    def lines(self, statement: _Statement) -> list[str]:
        expression = self._expression(statement)
        if statement.outputs[0] in self._inlined and len(expression.text) <= _LONGEST:
            self._expressions[statement.outputs[0]] = expression
            return []
        if statement.outputs[0] in self._inlined:
            return self._on_its_own(statement, expression)
        targets = ", ".join(self._names[value] for value in statement.outputs)
        return [f"{targets} = {expression.text}"]

    def _on_its_own(self, statement: _Statement, expression: Expression) -> list[str]:
        """Too long to sit inside of another line."""
        name = "inner"
        self._expressions[statement.outputs[0]] = Expression(name, True)
        return [f"{name} = {expression.text}"]

    def _expression(self, statement: _Statement) -> Expression:
        node = statement.node
        if node.name in self._made.as_attention:
            return self._attention(statement)
        unit = self._made.as_module.get(node.name)
        if unit is not None:
            args = ", ".join(self._value(value).text for value in statement.inputs)
            return Expression(f"self.{self._made.attributes[unit.path]}({args})", True)
        return self._speller.node(node)

    def _attention(self, statement: _Statement) -> Expression:
        path = self._made.as_attention[statement.node.name].path
        args = ", ".join(self._value(value).text for value in statement.inputs)
        return Expression(f"self.{self._made.attributes[path]}({args}, need_weights=False)[0]", True)

    def _value(self, name: str) -> Expression:
        if name in self._made.tensors:
            return Expression(f"self.{self._made.tensors[name]}", True)
        if name in self._expressions:
            return self._expressions[name]
        return Expression(self._names[name], True)
