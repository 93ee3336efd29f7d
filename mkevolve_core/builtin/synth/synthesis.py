"""The synthesizer as a whole: graphs of a subproblem's instances in, plans, tiles and source out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mkevolve_core.builtin.graph import Graph
from mkevolve_core.builtin.synth.instances import DifferentForm, share, signature
from mkevolve_core.builtin.synth.lower import lower
from mkevolve_core.builtin.synth.module import Form, assemble, emit_kernels
from mkevolve_core.builtin.synth.plan import Kernel, Plan, plan
from mkevolve_core.builtin.synth.rewrite import Structure, rewrite
from mkevolve_core.builtin.synth.tiles import Sizes, Tile, Tiles, default_tile, sizes_of, widths
from mkevolve_core.errors import AgentDeclined

CAPACITY = 4  # kernels in one subkernel


@dataclass(frozen=True, slots=True)
class Blueprint:
    """One way to cut a subproblem into kernels, planned for each kind of its instances."""

    name: str
    reference: str
    structure: Structure
    forms: tuple[Form, ...]

    @property
    def kernels(self) -> list[Kernel]:
        return [kernel for form in self.forms for kernel in form.plans[0].kernels]

    @property
    def launches(self) -> int:
        """Kernels that one call runs, at most."""
        return max(len(form.plans[0].kernels) for form in self.forms)

    def sizes(self) -> dict[str, Sizes]:
        """By kernel: the sizes of the instance that works most."""
        found = {}
        for form in self.forms:
            for at, kernel in enumerate(form.plans[0].kernels):
                all_sizes = [sizes_of(one, one.kernels[at]) for one in form.plans]
                found[kernel.name] = max(all_sizes, key=lambda s: s.groups * s.rows * s.columns * s.inner)
        return found

    def default_tiles(self, shrink: int = 0) -> Tiles:
        """Sensible tiles; blocks that must span something span it for every instance."""
        tiles = {name: default_tile(sizes, {}, shrink) for name, sizes in self.sizes().items()}
        for form in self.forms:
            for one in form.plans:
                for kernel in one.kernels:
                    _widen(tiles[kernel.name], one, kernel)
        return tiles

    def source(self, tiles: Tiles) -> str:
        """The candidate's text: a function of the graphs, the structure and the tiles alone."""
        return assemble(self.name, self.reference, self.forms, self.structure, tiles)


def _widen(tile: Tile, one: Plan, kernel: Kernel) -> None:
    sizes = sizes_of(one, kernel)
    spans = dict(widths(one, kernel))
    if sizes.is_fixed and sizes.scheme != "attention":
        key = "BLOCK_C" if sizes.scheme == "row" else "BLOCK_N"
        spans[key] = default_tile(sizes, {})[key]
    for key, value in spans.items():
        tile[key] = max(int(tile.get(key, 0)), int(value))


def blueprint(name: str, reference: str, graphs: Sequence[Graph], structure: Structure) -> Blueprint:
    """Raises AgentDeclined for what no scheme covers."""
    forms: list[Form] = []
    for graph in {signature(graph): graph for graph in graphs}.values():
        if graph.states.keys() != graphs[0].states.keys():
            raise AgentDeclined("the instances of this subproblem have different weights")
        _sort_in(forms, graph, structure)
    if not all(form.plans[0].kernels for form in forms):
        raise AgentDeclined("nothing is computed here, so there is no kernel to write")
    return Blueprint(name, reference, structure, tuple(forms))


def _sort_in(forms: list[Form], graph: Graph, structure: Structure) -> None:
    """Into the first form whose text can serve this graph too, or a form of its own."""
    program = rewrite(lower(graph), structure)
    for at, form in enumerate(forms):
        wider = Form((*form.graphs, graph), (*form.plans, plan(program, structure, _suffix(at))))
        if _is_one_form(wider):
            forms[at] = wider
            return
    forms.append(Form((graph,), (plan(program, structure, _suffix(len(forms))),)))


def _suffix(at: int) -> str:
    return f"_form{at}" if at else ""


def _is_one_form(form: Form) -> bool:
    if len({tuple(kernel.name for kernel in one.kernels) for one in form.plans}) > 1:
        return False
    try:
        for instances in zip(*(emit_kernels(one) for one in form.plans), strict=True):
            share(instances)
    except DifferentForm:
        return False
    return True
