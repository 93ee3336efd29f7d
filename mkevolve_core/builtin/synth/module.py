"""Assembles a candidate's source: header, tiles, kernels, and a module that only allocates and launches."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import asdict

from mkevolve_core.builtin.graph import Graph
from mkevolve_core.builtin.synth import attention, gemm, pointwise, rows
from mkevolve_core.builtin.synth.emitted import Emitted
from mkevolve_core.builtin.synth.plan import Plan
from mkevolve_core.builtin.synth.rewrite import Structure
from mkevolve_core.builtin.synth.states import construction, spelled
from mkevolve_core.builtin.synth.tiles import Tiles

SCHEMES = {"gemm": gemm.emit, "attention": attention.emit, "row": rows.emit, "pointwise": pointwise.emit}
_IMPORTS = "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n"


def emit_kernels(plan: Plan) -> list[Emitted]:
    return [SCHEMES[kernel.scheme](plan, kernel) for kernel in plan.kernels]


def assemble(name: str, reference: str, graph: Graph, plan: Plan, structure: Structure, tiles: Tiles) -> str:
    """The whole text of a candidate."""
    kernels = emit_kernels(plan)
    parts = [
        _header(name, kernels, tiles),
        _IMPORTS,
        _settings(structure, tiles),
        *(kernel.text() for kernel in kernels),
        _module(reference, graph, plan, kernels),
    ]
    return "\n".join([*parts[:3], *("\n" + part for part in parts[3:])])


def _header(name: str, kernels: list[Emitted], tiles: Tiles) -> str:
    lines = [f'"""{name}, by the built-in writer.', ""]
    for kernel in kernels:
        precision = tiles[kernel.name].get("PRECISION")
        products = f" Products in {_PRECISIONS[str(precision)]}." if precision else ""
        lines.append(f"{kernel.name}: {kernel.summary}{products}")
    return "\n".join([*lines, '"""', ""])


_PRECISIONS = {"ieee": "fp32 (ieee)", "tf32x3": "three TF32 products each (tf32x3), as accurate as fp32"}


def _settings(structure: Structure, tiles: Tiles) -> str:
    lines = ["# How the kernels are cut, and the tile and launch parameters of each.", f"STRUCTURE = {_plain(asdict(structure))}"]
    lines.append("TILES = {")
    lines += [f'    "{name}": {_plain(tile)},' for name, tile in tiles.items()]
    return "\n".join([*lines, "}", ""])


def _plain(values: Mapping[str, object]) -> str:
    items = (f'"{key}": ' + (f'"{v}"' if isinstance(v, str) else repr(v)) for key, v in values.items())
    return "{" + ", ".join(items) + "}"


def _module(reference: str, graph: Graph, plan: Plan, kernels: list[Emitted]) -> str:
    used = [name for kernel in kernels for _, name in kernel.pointers if name in graph.states]
    lines = ["class ModelNew(nn.Module):", '    """Checks shapes, allocates outputs and launches the kernels."""', ""]
    lines += [f"    def __init__({_constructor(reference)}):", "        super().__init__()"]
    lines += [f"        {line}" for line in construction(graph, used)]
    lines += ["", f"    def forward(self, {', '.join(graph.inputs)}):"]
    lines += [f"        {line}" for line in _forward(graph, plan, kernels)]
    return "\n".join(lines) + "\n"


def _constructor(reference: str) -> str:
    """The reference's constructor parameters; defaults that are no literals become None."""
    for node in ast.parse(reference).body:
        if isinstance(node, ast.ClassDef) and node.name == "Model":
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == "__init__":
                    return ast.unparse(_bare(item.args))
    return "self"


def _bare(arguments: ast.arguments) -> ast.arguments:
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        argument.annotation = None
    for extra in (arguments.vararg, arguments.kwarg):
        if extra is not None:
            extra.annotation = None
    arguments.defaults = [_literal_or_none(node) for node in arguments.defaults]
    arguments.kw_defaults = [node and _literal_or_none(node) for node in arguments.kw_defaults]
    return arguments


def _literal_or_none(node: ast.expr) -> ast.expr:
    try:
        ast.literal_eval(node)
    except ValueError:
        return ast.Constant(None)
    return node


def _forward(graph: Graph, plan: Plan, kernels: list[Emitted]) -> list[str]:
    lines = []
    for name in graph.inputs:
        if name in graph.values:
            shape = tuple(graph.values[name].shape)
            said = f'f"{name} is {{tuple({name}.shape)}}; these kernels are for {shape}"'
            lines += [f"assert {name}.shape == {shape}, {said}", f"{name} = {name}.contiguous()"]
        else:
            value = graph.literals[name]
            lines.append(f'assert {name} == {value!r}, f"{name} is {{{name}}}; these kernels are for {value!r}"')
    device = _device(graph)
    for kernel in kernels:
        lines += _launch(plan, kernel, device)
    results = [_spelled(plan, name) for name in plan.program.outputs]
    is_tuple = isinstance(graph.output, tuple)
    text = ", ".join(results) + ("," if len(results) == 1 and is_tuple else "")
    return [*lines, f"return {text}"]


def _device(graph: Graph) -> str:
    tensors = [name for name in graph.inputs if name in graph.values]
    return f"{tensors[0]}.device" if tensors else f"{spelled(next(iter(graph.states)))}.device"


def _launch(plan: Plan, kernel: Emitted, device: str) -> list[str]:
    lines = []
    for name in kernel.stores:
        op = plan.program.ops[name]
        made = f"torch.empty({op.shape}, device={device}, dtype=torch.{op.dtype})"
        lines.append(f"{plan.label(name)} = {made}")
    sizes = dict(kernel.sizes)
    programs = re.sub(r"\b[A-Z]+\b(?!')", lambda m: str(sizes.get(m[0], m[0])), kernel.programs)
    given = [_spelled(plan, name) for _, name in kernel.pointers]
    given += [f"{key}={value}" for key, value in kernel.sizes]
    lines.append(f't = TILES["{kernel.name}"]')
    lines.append(f"{kernel.name}[({programs.replace(chr(39), chr(34))},)]({', '.join([*given, '**t'])})")
    return lines


def _spelled(plan: Plan, name: str) -> str:
    return spelled(name) if plan.program.ops[name].kind == "state" else plan.label(name)
