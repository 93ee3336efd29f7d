"""The decomposer without an LLM: record the forward pass, group it, write the paper's codebase form."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from mkevolve_core.builtin.build import Part, build_parts
from mkevolve_core.builtin.graph import Graph
from mkevolve_core.builtin.grouping import block_calls, group
from mkevolve_core.builtin.immediate import at_once
from mkevolve_core.builtin.naming import piece_name
from mkevolve_core.builtin.pieces import Piece, cut
from mkevolve_core.builtin.toplevel import Call, Instance, TopLevel, render
from mkevolve_core.builtin.tracing import trace
from mkevolve_core.checks import check, with_report
from mkevolve_core.domain import Cause, Decomposition, Problem, Subproblem
from mkevolve_core.errors import DecompositionError
from mkevolve_core.llm.values import Conversation
from mkevolve_core.protocols import Sandbox
from mkevolve_core.whole import whole_problem


class BuiltinDecomposer:
    """Deterministic: the same problem gives the same text."""

    name = "built-in"

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def workers(self, problem: Problem) -> tuple[Conversation[Decomposition], ...]:
        """One: a second would come to the same. Raises DecompositionError where it finds no cut."""
        return (self._decompose(problem),)

    def whole(self, problem: Problem, reason: str) -> Decomposition:
        return whole_problem(self._sandbox, problem, reason)

    @at_once
    def _decompose(self, problem: Problem) -> Decomposition:
        proposal = self._propose(problem)
        report = check(self._sandbox, problem, proposal)
        if report.findings:
            raise DecompositionError(f"the cut failed its checks: {report.findings[0]}")
        return with_report(proposal, report)

    def _propose(self, problem: Problem) -> Decomposition:
        (graph, *_) = trace(self._sandbox, problem.source)
        pieces = cut(graph, group(graph))
        if len(pieces) == 1:
            raise DecompositionError("it is one group of operations that belong together")
        parts = build_parts(pieces, _names(graph, pieces))
        return _decomposition(problem, graph, pieces, parts)


def _names(graph: Graph, pieces: Sequence[Piece]) -> list[str]:
    among_blocks = bool(block_calls(graph))
    return [piece_name(piece, among_blocks) for piece in pieces]


def _decomposition(
    problem: Problem, graph: Graph, pieces: Sequence[Piece], parts: Sequence[Part]
) -> Decomposition:
    instance_of = {id(p): i for part in parts for p, i in zip(part.pieces, part.instances, strict=True)}
    calls = [Call(instance_of[id(piece)].attribute, piece.inputs, piece.outputs) for piece in pieces]
    top = TopLevel(
        signature=signature(problem.source),
        arguments=graph.inputs,
        instances=_in_creation_order(graph, parts),
        calls=tuple(calls),
        output=graph.output,
    )
    order = {name: at for at, name in enumerate(top.parts)}
    ordered = sorted(parts, key=lambda part: order[part.name])
    subproblems = tuple(
        Subproblem(str(at), part.name, part.title, part.source, len(part.instances))
        for at, part in enumerate(ordered, start=1)
    )
    return Decomposition("d1", Cause.INITIAL, subproblems, render(top), weight_pairs(parts))


def _in_creation_order(graph: Graph, parts: Sequence[Part]) -> tuple[Instance, ...]:
    """The order in which the problem creates their weights, so that one seed gives both the same."""
    position = {name: at for at, name in enumerate(graph.states)}
    keyed: list[tuple[int, int, Instance]] = []
    for part in parts:
        for instance, piece in zip(part.instances, part.pieces, strict=True):
            first = min((position[name] for name in piece.states), default=len(position))
            keyed.append((first, len(keyed), instance))
    return tuple(instance for _, _, instance in sorted(keyed, key=lambda item: item[:2]))


def weight_pairs(parts: Sequence[Part]) -> tuple[tuple[str, str], ...]:
    """(name in the decomposition's state_dict, name in the graph)."""
    return tuple(
        (f"{instance.attribute}.{local}", name)
        for part in parts
        for instance, states in zip(part.instances, part.states, strict=True)
        for local, name in states
    )


def signature(source: str) -> str:
    """The arguments of `Model.__init__`, without self; any arguments where its defaults are not plain."""
    tree = ast.parse(source)
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == "Model":
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                    return _plain_signature(method.args)
    return "*args, **kwargs"


def _plain_signature(arguments: ast.arguments) -> str:
    defaults = [*arguments.defaults, *(d for d in arguments.kw_defaults if d is not None)]
    if any(isinstance(node, ast.Name | ast.Call | ast.Attribute) for d in defaults for node in ast.walk(d)):
        return "*args, **kwargs"
    for one in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        one.annotation = None
    return ast.unparse(arguments).partition(",")[2].strip()
