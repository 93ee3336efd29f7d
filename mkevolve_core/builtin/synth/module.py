"""Assembles a candidate's source: header, tiles, kernels, and a module that only allocates and launches."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from mkevolve_core.builtin.graph import Graph
from mkevolve_core.builtin.synth import attention, gemm, pointwise, rows
from mkevolve_core.builtin.synth.emitted import Emitted
from mkevolve_core.builtin.synth.forward import Way, forward_lines, sizes_table
from mkevolve_core.builtin.synth.instances import Shared, scalar_arguments, share
from mkevolve_core.builtin.synth.plan import Plan
from mkevolve_core.builtin.synth.rewrite import Structure
from mkevolve_core.builtin.synth.states import construction
from mkevolve_core.builtin.synth.tiles import Tiles

SCHEMES = {"gemm": gemm.emit, "attention": attention.emit, "row": rows.emit, "pointwise": pointwise.emit}
_IMPORTS = "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n"
_PRECISIONS = {"ieee": "fp32 (ieee)", "tf32x3": "three TF32 products each (tf32x3), as accurate as fp32"}


@dataclass(frozen=True, slots=True)
class Form:
    """Instances that one text serves, with a plan for each."""

    graphs: tuple[Graph, ...]
    plans: tuple[Plan, ...]

    def kernels(self) -> list[Shared]:
        emitted = [emit_kernels(plan) for plan in self.plans]
        return [share(instances) for instances in zip(*emitted, strict=True)]


def emit_kernels(plan: Plan) -> list[Emitted]:
    return [SCHEMES[kernel.scheme](plan, kernel) for kernel in plan.kernels]


def assemble(name: str, reference: str, forms: Sequence[Form], structure: Structure, tiles: Tiles) -> str:
    """The whole text of a candidate that serves every form's instances."""
    ways = [Way(form.graphs, form.plans, form.kernels()) for form in forms]
    kernels = [shared for way in ways for shared in way.kernels]
    parts = [*(shared.kernel.text() for shared in kernels), _module(reference, ways)]
    head = [_header(name, kernels, tiles), _IMPORTS, _settings(structure, tiles), *sizes_table(ways)]
    return "\n".join([*head, *("\n" + part for part in parts)])


def _header(name: str, kernels: Sequence[Shared], tiles: Tiles) -> str:
    lines = [f'"""{name}, by the built-in writer.', ""]
    for shared in kernels:
        precision = tiles[shared.kernel.name].get("PRECISION")
        products = f" Products in {_PRECISIONS[str(precision)]}." if precision else ""
        lines.append(f"{shared.kernel.name}: {shared.kernel.summary}{products}")
    return "\n".join([*lines, '"""', ""])


def _settings(structure: Structure, tiles: Tiles) -> str:
    lines = [
        "# How the kernels are cut, and the tile and launch parameters of each.",
        f"STRUCTURE = {_plain(asdict(structure))}",
        "TILES = {",
        *(f'    "{name}": {_plain(tile)},' for name, tile in tiles.items()),
    ]
    return "\n".join([*lines, "}", ""])


def _plain(values: Mapping[str, object]) -> str:
    items = (f'"{key}": ' + (f'"{v}"' if isinstance(v, str) else repr(v)) for key, v in values.items())
    return "{" + ", ".join(items) + "}"


def _module(reference: str, ways: Sequence[Way]) -> str:
    graphs = [graph for way in ways for graph in way.graphs]
    pointers = [name for way in ways for shared in way.kernels for _, name in shared.kernel.pointers]
    built = construction(graphs, [name for name in pointers if name in graphs[0].states])
    if len(graphs) > 1:
        names = scalar_arguments(graphs[0])
        built.append(f"self.arguments = ({', '.join(names)}{',' if len(names) == 1 else ''})")
    lines = ["class ModelNew(nn.Module):", f'    """{_fusion(ways)}"""', ""]
    lines += [f"    def __init__({_constructor(reference)}):", "        super().__init__()"]
    lines += [f"        {line}" for line in built]
    lines += ["", f"    def forward({', '.join(['self', *graphs[0].inputs])}):"]
    lines += [f"        {line}" for line in forward_lines(ways)]
    return "\n".join(lines) + "\n"


def _fusion(ways: Sequence[Way]) -> str:
    count = max(len(way.kernels) for way in ways)
    launches = "one kernel, everything fused" if count == 1 else f"{count} kernels, one after the other"
    return f"Checks shapes, allocates outputs and launches {launches}."


def _constructor(reference: str) -> str:
    """The reference's constructor parameters; defaults that are no literals become None."""
    for node in ast.parse(reference).body:
        if isinstance(node, ast.ClassDef) and node.name == "Model":
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == "__init__":
                    return ast.unparse(_bare(item.args))
    return "self"


def _bare(arguments: ast.arguments) -> ast.arguments:
    named = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    for argument in (*named, arguments.vararg, arguments.kwarg):
        if argument is not None:
            argument.annotation = None
    arguments.defaults = [_literal_or_none(node) for node in arguments.defaults]
    arguments.kw_defaults = [node and _literal_or_none(node) for node in arguments.kw_defaults]
    return arguments


def _literal_or_none(node: ast.expr) -> ast.expr:
    try:
        ast.literal_eval(node)
    except ValueError:
        return ast.Constant(None)
    return node
