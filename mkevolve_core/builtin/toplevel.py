"""The top-level module as data: instances of subproblems and straight-line calls of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mkevolve_core.builtin.graph import Arg, Graph, Ref, refs
from mkevolve_core.builtin.naming_values import Step, name_values
from mkevolve_core.errors import AgentDeclined

_PARTS = "subkernel_problems"


@dataclass(frozen=True, slots=True)
class Instance:
    attribute: str  # "transformer_block_1"
    part: str  # the subproblem's file stem: "transformer_block"
    arguments: str  # of its constructor, as source


@dataclass(frozen=True, slots=True)
class Call:
    attribute: str
    inputs: tuple[str, ...]  # values
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopLevel:
    """Every value has one name: an argument of forward, or what one call made."""

    signature: str  # of __init__, without self
    arguments: tuple[str, ...]  # of forward
    instances: tuple[Instance, ...]
    calls: tuple[Call, ...]
    output: Arg

    def part_of(self, attribute: str) -> str:
        return next(one.part for one in self.instances if one.attribute == attribute)

    @property
    def parts(self) -> tuple[str, ...]:
        """Subproblems in dataflow order."""
        return tuple(dict.fromkeys(self.part_of(call.attribute) for call in self.calls))

    def calls_of(self, part: str) -> tuple[Call, ...]:
        return tuple(call for call in self.calls if self.part_of(call.attribute) == part)


def class_name(part: str) -> str:
    """ "transformer_block" → "TransformerBlock"."""
    return "".join(word[:1].upper() + word[1:] for word in part.split("_"))


def instance_names(part: str, count: int) -> tuple[str, ...]:
    return (part,) if count == 1 else tuple(f"{part}_{number}" for number in range(1, count + 1))


def render(top: TopLevel) -> str:
    """The source of decomposed_problem.py."""
    names = _value_names(top)
    imports = [f"from {_PARTS}.{part} import Model as {class_name(part)}" for part in sorted(set(top.parts))]
    made = [f"self.{i.attribute} = {class_name(i.part)}({i.arguments})" for i in top.instances]
    called = [_call_line(call, names) for call in top.calls]
    lines = [
        '"""The problem as a chain of subproblems."""',
        "",
        "import torch.nn as nn",
        "",
        *imports,
        "",
        "",
        "class ModelNew(nn.Module):",
        *_init_head(top.signature),
        "        super().__init__()",
        *(f"        {line}" for line in made),
        "",
        f"    def forward({', '.join(['self', *top.arguments])}):",
        *(f"        {line}" for line in called),
        f"        return {_output_text(top.output, names)}",
    ]
    return "\n".join(lines) + "\n"


def _init_head(signature: str) -> list[str]:
    line = f"    def __init__({', '.join(filter(None, ['self', signature]))}):"
    if len(line) <= 100:
        return [line]
    return ["    def __init__(", f"        self, {signature}", "    ):"]


def _value_names(top: TopLevel) -> dict[str, str]:
    kept = [ref.name for ref in refs(top.output)]
    steps = [Step(call.inputs, call.outputs) for call in top.calls]
    return name_values({name: name for name in top.arguments}, steps, kept)


def _call_line(call: Call, names: dict[str, str]) -> str:
    targets = ", ".join(names[value] for value in call.outputs)
    return f"{targets} = self.{call.attribute}({', '.join(names[value] for value in call.inputs)})"


def _output_text(output: Arg, names: dict[str, str]) -> str:
    if isinstance(output, Ref):
        return names[output.name]
    if isinstance(output, tuple):
        inner = ", ".join(_output_text(item, names) for item in output)
        return f"({inner},)" if len(output) == 1 else f"({inner})"
    return repr(output)


def parse(source: str) -> TopLevel:
    """Raises AgentDeclined where the module is more than a chain of calls."""
    tree = ast.parse(source)
    model = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "ModelNew"), None)
    methods = {m.name: m for m in model.body if isinstance(m, ast.FunctionDef)} if model else {}
    if not {"__init__", "forward"} <= methods.keys():
        raise AgentDeclined("The top-level module has no class ModelNew with __init__ and forward.")
    init, forward = methods["__init__"], methods["forward"]
    reader = _Reader([argument.arg for argument in forward.args.args[1:]])
    if forward.args.vararg or forward.args.kwarg:
        raise AgentDeclined(
            "The top-level module takes any number of inputs, so its calls cannot be followed."
        )
    output = reader.body(forward.body)
    return TopLevel(
        signature=_signature(init),
        arguments=tuple(argument.arg for argument in forward.args.args[1:]),
        instances=tuple(_instances(init, _aliases(tree))),
        calls=tuple(reader.calls),
        output=output,
    )


def parse_lone(source: str, signature: str, graph: Graph) -> TopLevel:
    """A top-level module that only hands its arguments on to one subproblem, whose graph is given."""
    tree = ast.parse(source)
    inits = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
    instances = tuple(_instances(inits[0], _aliases(tree))) if len(inits) == 1 else ()
    if len(instances) != 1:
        raise AgentDeclined("The top-level module does not consist of one subproblem.")
    outputs = tuple(dict.fromkeys(ref.name for ref in refs(graph.output)))
    call = Call(instances[0].attribute, graph.inputs, outputs)
    return TopLevel(signature, graph.inputs, instances, (call,), graph.output)


def _signature(init: ast.FunctionDef) -> str:
    text = ast.unparse(init.args)
    return text.partition(",")[2].strip()


def _aliases(tree: ast.Module) -> dict[str, str]:
    found = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{_PARTS}."):
            for name in node.names:
                found[name.asname or name.name] = (node.module or "").removeprefix(f"{_PARTS}.")
    return found


def _instances(init: ast.FunctionDef, aliases: dict[str, str]) -> Iterator[Instance]:
    for statement in init.body:
        if isinstance(statement, ast.Expr):
            continue  # super().__init__() or a docstring
        instance = _instance(statement, aliases)
        if instance is None:
            raise AgentDeclined(f"Line {statement.lineno} of the top-level module constructs no subproblem.")
        yield instance


def _instance(statement: ast.stmt, aliases: dict[str, str]) -> Instance | None:
    if not (isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call)):
        return None
    target, call = statement.targets[0], statement.value
    if not (
        isinstance(target, ast.Attribute) and isinstance(call.func, ast.Name) and call.func.id in aliases
    ):
        return None
    arguments = [ast.unparse(arg) for arg in call.args]
    arguments += [
        f"{k.arg}={ast.unparse(k.value)}" if k.arg else f"**{ast.unparse(k.value)}" for k in call.keywords
    ]
    return Instance(target.attr, aliases[call.func.id], ", ".join(arguments))


@dataclass(slots=True)
class _Reader:
    """Follows values through forward; every assignment makes a value of its own."""

    arguments: list[str]
    calls: list[Call] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)
    made: int = 0

    def body(self, statements: Sequence[ast.stmt]) -> Arg:
        self.values = {name: name for name in self.arguments}
        for statement in statements:
            if isinstance(statement, ast.Return) and statement.value is not None:
                return self._output(statement.value)
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                self._assign(statement.targets[0], statement.value)
            elif not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
                raise self._not_straight(statement)
        raise AgentDeclined("The top-level module's forward returns nothing.")

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        if not all(isinstance(name, ast.Name) for name in names) or not isinstance(value, ast.Call):
            raise self._not_straight(target)
        outputs = self._call(value, len(names))
        for name, output in zip(names, outputs, strict=True):
            assert isinstance(name, ast.Name)
            self.values[name.id] = output

    def _call(self, call: ast.Call, count: int) -> tuple[str, ...]:
        function = call.func
        owned = isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)
        if not owned or call.keywords:
            raise self._not_straight(call)
        assert isinstance(function, ast.Attribute)
        inputs = tuple(self._value(arg) for arg in call.args)
        outputs = tuple(f"value_{self.made + at}" for at in range(count))
        self.made += count
        self.calls.append(Call(function.attr, inputs, outputs))
        return outputs

    def _value(self, node: ast.expr) -> str:
        if isinstance(node, ast.Call):
            return self._call(node, 1)[0]
        if isinstance(node, ast.Name) and node.id in self.values:
            return self.values[node.id]
        raise self._not_straight(node)

    def _output(self, node: ast.expr) -> Arg:
        if isinstance(node, ast.Tuple | ast.List):
            return tuple(self._output(item) for item in node.elts)
        return Ref(self._value(node))

    def _not_straight(self, node: ast.AST) -> AgentDeclined:
        line = getattr(node, "lineno", 0)
        return AgentDeclined(f"Line {line} of the top-level module is more than a call of a subproblem.")
