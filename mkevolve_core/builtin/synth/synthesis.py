"""The synthesizer as a whole: graphs of a subproblem's instances in, plans, tiles and source out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mkevolve_core.builtin.graph import Graph
from mkevolve_core.builtin.synth.instances import signature
from mkevolve_core.builtin.synth.lower import lower
from mkevolve_core.builtin.synth.module import assemble
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
    graphs: tuple[Graph, ...]
    structure: Structure
    plans: tuple[Plan, ...]

    @property
    def kernels(self) -> list[Kernel]:
        return self.plans[0].kernels

    def sizes(self) -> dict[str, Sizes]:
        """By kernel: the sizes of the instance that works most."""
        found = {}
        for at, kernel in enumerate(self.kernels):
            all_sizes = [sizes_of(one, one.kernels[at]) for one in self.plans]
            found[kernel.name] = max(all_sizes, key=lambda s: s.groups * s.rows * s.columns * s.inner)
        return found

    def default_tiles(self, shrink: int = 0) -> Tiles:
        """Sensible tiles; blocks that must span something span it for every instance."""
        tiles: Tiles = {}
        for at, (name, sizes) in enumerate(self.sizes().items()):
            tile = default_tile(sizes, {}, shrink)
            for one in self.plans:
                _widen(tile, one, one.kernels[at])
            tiles[name] = tile
        return tiles

    def source(self, tiles: Tiles) -> str:
        """The candidate's text: a function of the graphs, the structure and the tiles alone."""
        return assemble(self.name, self.reference, self.graphs, self.plans, self.structure, tiles)


def _widen(tile: Tile, one: Plan, kernel: Kernel) -> None:
    sizes = sizes_of(one, kernel)
    spans = dict(widths(one, kernel))
    if sizes.is_fixed and sizes.scheme != "attention":
        key = "BLOCK_C" if sizes.scheme == "row" else "BLOCK_N"
        spans[key] = default_tile(sizes, {})[key]
    for key, value in spans.items():
        tile[key] = max(int(tile.get(key, 0)), int(value))


def blueprint(name: str, reference: str, graphs: Sequence[Graph], structure: Structure) -> Blueprint:
    """Raises AgentDeclined for what no scheme covers and where instances need different kernels."""
    distinct = tuple({signature(graph): graph for graph in graphs}.values())
    plans = tuple(plan(rewrite(lower(graph), structure), structure) for graph in distinct)
    if len({tuple(kernel.name for kernel in one.kernels) for one in plans}) > 1:
        raise AgentDeclined("the instances of this subproblem need different kernels")
    if not plans[0].kernels:
        raise AgentDeclined("nothing is computed here, so there is no kernel to write")
    return Blueprint(name, reference, distinct, structure, plans)
