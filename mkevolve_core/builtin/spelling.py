"""Traced nodes as Python expressions, with holes where numbers stand that may differ between instances."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mkevolve_core.builtin.graph import Arg, Graph, Name, Node, Ref, Slice
from mkevolve_core.errors import DecompositionError

OPEN, CLOSE = "\u27e6", "\u27e7"  # around a hole's number
_BINARY = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "truediv": "/",
    "matmul": "@",
    "pow": "**",
    "floordiv": "//",
    "mod": "%",
    "gt": ">",
    "lt": "<",
    "ge": ">=",
    "le": "<=",
    "eq": "==",
    "ne": "!=",
    "and_": "&",
    "or_": "|",
}
_UNARY = {"neg": "-", "invert": "~"}
_SHAPED = frozenset({"view", "reshape", "expand", "unflatten"})


@dataclass(frozen=True, slots=True)
class Hole:
    value: int | float
    role: str  # the argument's name: "in_features"; empty for a number in `forward`


@dataclass(slots=True)
class Holes:
    """Numbers taken out of a text, in order."""

    found: list[Hole] = field(default_factory=list)

    def put(self, value: int | float, role: str = "") -> str:
        self.found.append(Hole(value, role))
        return f"{OPEN}{len(self.found) - 1}{CLOSE}"


@dataclass(frozen=True, slots=True)
class Expression:
    text: str
    is_simple: bool  # needs no parentheses as an operand


@dataclass(slots=True)
class Speller:
    """Turns arguments and nodes into text. `names` gives the expression that stands for a value."""

    graph: Graph
    names: Callable[[str], Expression]
    holes: Holes
    device: str  # how to say the inputs' device

    def node(self, node: Node) -> Expression:
        """Raises DecompositionError for a call that has no spelling."""
        kind, _, name = node.call.partition(":")
        if kind == "operator":
            return self._operator(node, name)
        keywords = [f"{key}={self.text(value)}" for key, value in node.kwargs]
        if kind == "method":
            rest = self._method_arguments(node)
            return Expression(f"{self._operand(node.args[0])}.{name}({', '.join([*rest, *keywords])})", True)
        args = [self.text(arg) for arg in node.args]
        return Expression(f"{node.call}({', '.join([*args, *keywords])})", True)

    def _operator(self, node: Node, name: str) -> Expression:
        if name == "getitem":
            return Expression(f"{self._operand(node.args[0])}[{self._index(node.args[1])}]", True)
        if name in _UNARY:
            return Expression(f"{_UNARY[name]}{self._operand(node.args[0])}", False)
        if name not in _BINARY or len(node.args) != 2:
            raise DecompositionError(f"operator.{name} has no spelling")
        left, right = (self._operand(arg) for arg in node.args)
        return Expression(f"{left} {_BINARY[name]} {right}", False)

    def _method_arguments(self, node: Node) -> list[str]:
        if node.op not in _SHAPED:
            return [self.text(arg) for arg in node.args[1:]]
        flat = node.args[1] if len(node.args) == 2 and isinstance(node.args[1], tuple) else node.args[1:]
        return [self._size(node.args[0], at, size) for at, size in enumerate(flat)]

    def _size(self, receiver: Arg, at: int, size: Arg) -> str:
        """A dimension that stays what it was is read off, so that the code fits other sizes too."""
        text = self._operand(receiver)
        if isinstance(receiver, Ref) and text.isidentifier() and isinstance(size, int) and size > 1:
            shape = self.graph.values[receiver.name].shape
            if at < len(shape) and shape[at] == size:
                return f"{text}.shape[{at}]"
        return self.text(size)

    def _operand(self, arg: Arg) -> str:
        if isinstance(arg, Ref):
            expression = self.names(arg.name)
            return expression.text if expression.is_simple else f"({expression.text})"
        text = self.text(arg)
        return f"({text})" if text.startswith("-") else text

    def text(self, arg: Arg) -> str:
        if isinstance(arg, Ref):
            return self.names(arg.name).text
        if isinstance(arg, Name):
            return self._named(arg)
        if isinstance(arg, tuple):
            inner = ", ".join(self.text(item) for item in arg)
            return f"({inner},)" if len(arg) == 1 else f"({inner})"
        if isinstance(arg, Slice):
            return f"slice({', '.join(self.text(part) for part in (arg.start, arg.stop, arg.step))})"
        return literal(arg, self.holes)

    def _named(self, name: Name) -> str:
        if name.kind == "device":
            return self.device
        return "..." if name.kind == "ellipsis" else f"torch.{name.text}"

    def _index(self, arg: Arg) -> str:
        if isinstance(arg, tuple) and arg:
            return ", ".join(self._index(item) for item in arg) + ("," if len(arg) == 1 else "")
        if isinstance(arg, Slice):
            start, stop = (self._bound(part) for part in (arg.start, arg.stop))
            step = self._bound(arg.step)
            return f"{start}:{stop}:{step}" if step else f"{start}:{stop}"
        return self.text(arg)

    def _bound(self, arg: Arg) -> str:
        return "" if arg is None else self.text(arg)


def literal(arg: Arg, holes: Holes | None = None, role: str = "") -> str:
    """A constant as Python; numbers other than small ones become holes."""
    if isinstance(arg, float) and (arg != arg or arg in (float("inf"), float("-inf"))):
        return f'float("{arg}")'
    is_number = isinstance(arg, int | float) and not isinstance(arg, bool)
    if holes is not None and is_number:
        assert isinstance(arg, int | float)
        return holes.put(arg, role)
    if isinstance(arg, tuple):
        inner = ", ".join(literal(item, holes, role) for item in arg)
        return f"({inner},)" if len(arg) == 1 else f"({inner})"
    return repr(arg)


def attribute_names(paths: Sequence[str], by_class: Mapping[str, str], keep_names: bool) -> dict[str, str]:
    """A unique attribute name for each dotted path: its last word, or what its class is called."""
    names: dict[str, str] = {}
    for path in paths:
        *owners, leaf = path.split(".")
        wanted = leaf if not leaf.isdigit() else by_class.get(path, "weight")
        if path in by_class and not keep_names:
            wanted = by_class[path]
        elif (
            owners and not owners[-1].isdigit() and (wanted in ("weight", "bias") or wanted in names.values())
        ):
            wanted = f"{owners[-1]}_{wanted}"
        names[path] = _unique(wanted, names)
    return names


def _unique(wanted: str, names: Mapping[str, str]) -> str:
    taken = set(names.values())
    number = 1
    name = wanted
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    return name
