"""The built-in writer: Triton subkernels synthesized from a traced graph, without an LLM."""

from __future__ import annotations

import ast
import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from mkevolve_core.builtin.graph import Graph, graph_from_plain
from mkevolve_core.builtin.immediate import at_once
from mkevolve_core.builtin.synth.rewrite import Structure
from mkevolve_core.builtin.synth.synthesis import CAPACITY, Blueprint, blueprint
from mkevolve_core.builtin.synth.tiles import Tile, Tiles, is_heavy, shrunk, steps, with_precision
from mkevolve_core.domain import Draft, Outcome, Subproblem
from mkevolve_core.errors import AgentDeclined
from mkevolve_core.protocols import JobFailed, Judged, Sandbox, WriteTask

_TOO_LARGE = (Outcome.COMPILE_ERROR, Outcome.OUT_OF_MEMORY)
_SPLITS = (8, 1, 16, 4, 32)


@dataclass(frozen=True, slots=True)
class Variant:
    """A candidate before its text: a blueprint, its tiles, and what to say about them."""

    plan: Blueprint
    tiles: Tiles
    note: str

    @property
    def source(self) -> str:
        return self.plan.source(self.tiles)


class BuiltinWriter:
    """Proposes the same candidates for the same seed, subproblem, parent and ordinal."""

    name = "built-in"

    def __init__(self, sandbox: Sandbox, seed: int = 0) -> None:
        self._sandbox = sandbox
        self._seed = seed
        self._graphs: dict[str, tuple[Graph, ...]] = {}
        self._plans: dict[tuple[str, Structure], Blueprint | AgentDeclined] = {}
        self._first: dict[str, list[Variant]] = {}

    @at_once
    def write(self, task: WriteTask) -> Draft:
        """The candidate of that ordinal, from scratch or from a parent. Raises AgentDeclined.

        It cannot read hints: they are for LLMs.
        """
        subproblem, parent, number = task.subproblem, task.parent, task.ordinal - 1
        starts = self._starts(subproblem)
        settled = self._read_back(subproblem, parent.source) if parent else None
        if parent is None or settled is None:
            return _draft(self._from_scratch(subproblem, starts, number))
        return _draft(self._improved(subproblem, parent, settled, starts, number))

    # --------------------------------------------------------------------- from scratch

    def _starts(self, subproblem: Subproblem) -> list[Variant]:
        """Distinct sensible candidates, the most promising first."""
        key = _sha(f"{subproblem.name}\n{subproblem.reference}")
        if key not in self._first:
            found: dict[str, Variant] = {}
            for variant in self._sensible(subproblem):
                found.setdefault(variant.source, variant)
            self._first[key] = list(found.values())
        return self._first[key]

    def _sensible(self, subproblem: Subproblem) -> Iterator[Variant]:
        plans = self._within_capacity(subproblem)
        first = plans[0]
        tiles = first.default_tiles()
        yield Variant(first, tiles, _described(first, tiles))
        other = {name: _flipped(tile) for name, tile in tiles.items()}
        yield Variant(first, other, _described(first, other))
        for plan in plans[1:]:
            tiles = plan.default_tiles()
            yield Variant(plan, tiles, _described(plan, tiles))
        for shrink in (1, -1, 2):
            tiles = first.default_tiles(shrink)
            yield Variant(first, tiles, _described(first, tiles))

    def _within_capacity(self, subproblem: Subproblem) -> list[Blueprint]:
        """Ways to cut the subproblem into few enough kernels; raises AgentDeclined if there is none."""
        plans: dict[tuple[str, ...], Blueprint] = {}
        for structure in _structures():
            plan = self._plan(subproblem, structure)
            names = tuple(f"{k.name}{k.is_fused}{k.tile[0].size}{k.is_looped}" for k in plan.kernels)
            plans.setdefault(names, plan)
        fewest = min(plan.launches for plan in plans.values())
        if fewest > CAPACITY:
            raise AgentDeclined(
                f"needs {fewest} kernels; the built-in writer stages at most {CAPACITY} in one subkernel"
            )
        fitting = [plan for plan in plans.values() if plan.launches <= CAPACITY]
        return sorted(fitting, key=lambda plan: any(is_heavy(sizes) for sizes in plan.sizes().values()))

    def _plan(self, subproblem: Subproblem, structure: Structure) -> Blueprint:
        key = (_sha(f"{subproblem.name}\n{subproblem.reference}"), structure)
        if key not in self._plans:
            graphs = self._traced(subproblem)
            try:
                self._plans[key] = blueprint(subproblem.name, subproblem.reference, graphs, structure)
            except AgentDeclined as declined:
                self._plans[key] = declined
        found = self._plans[key]
        if isinstance(found, AgentDeclined):
            raise found
        return found

    def _traced(self, subproblem: Subproblem) -> tuple[Graph, ...]:
        """The graphs of all instances, traced once for each reference."""
        reference = subproblem.reference
        key = _sha(reference)
        if key not in self._graphs:
            several = "get_input_configs" in reference
            payload: dict[str, Any] = {"source": reference, "config": "all" if several else 0}
            try:
                reply = self._sandbox.run("trace", payload)
            except JobFailed as failed:
                raise AgentDeclined(f"the reference cannot be traced: {failed.detail}") from failed
            plain = reply["graphs"] if several else [reply]
            self._graphs[key] = tuple(graph_from_plain(item) for item in plain)
        return self._graphs[key]

    def _from_scratch(self, subproblem: Subproblem, starts: list[Variant], ordinal: int) -> Variant:
        """The starts in turn; after the last one, steps away from them."""
        if ordinal < len(starts):
            return starts[ordinal]
        base = starts[ordinal % len(starts)]
        return self._stepped(subproblem, base, ordinal, {start.source for start in starts})

    # ----------------------------------------------------------------------- from a parent

    def _read_back(self, subproblem: Subproblem, source: str) -> Variant | None:
        """The parent's structure and tiles, where it has them in our form."""
        settings = _settings(source)
        if settings is None:
            return None
        structure, tiles = settings
        try:
            plan = self._plan(subproblem, structure)
        except AgentDeclined:
            return None
        default = plan.default_tiles()
        fits = default.keys() == tiles.keys() and all(default[n].keys() == tiles[n].keys() for n in default)
        return Variant(plan, tiles, "") if fits and plan.launches <= CAPACITY else None

    def _improved(
        self, subproblem: Subproblem, parent: Judged, base: Variant, starts: list[Variant], ordinal: int
    ) -> Variant:
        verdict = parent.verdict
        if verdict.outcome in _TOO_LARGE:
            return _smaller(base, verdict.outcome, verdict.detail)
        if verdict.outcome is Outcome.WRONG_RESULT:
            exact = {name: {**t, **_ieee(t)} for name, t in base.tiles.items()}
            if exact != base.tiles:
                return Variant(base.plan, exact, _changes(base.tiles, exact))
        if not verdict.is_correct:
            return self._from_scratch(subproblem, starts, ordinal)
        return self._stepped(subproblem, base, ordinal, {parent.source})

    def _stepped(self, subproblem: Subproblem, base: Variant, ordinal: int, seen: set[str]) -> Variant:
        """One or two steps from `base`; with another ordinal another step, as long as there are some."""
        order = random.Random(f"{self._seed}/{subproblem.subproblem_id}")
        nearby = list(self._neighbours(subproblem, base))
        order.shuffle(nearby)
        if not nearby:
            return base
        draw = random.Random(f"{self._seed}/{subproblem.subproblem_id}/{ordinal}")
        for turn in range(len(nearby)):
            variant = nearby[(ordinal + turn) % len(nearby)]
            if draw.random() < 1 / 3:
                variant = self._second_step(subproblem, base, variant, draw)
            if variant.source not in seen:
                return variant
        return base

    def _second_step(
        self, subproblem: Subproblem, base: Variant, first: Variant, draw: random.Random
    ) -> Variant:
        further = [v for v in self._neighbours(subproblem, first) if v.plan is first.plan]
        if first.plan is not base.plan or not further:
            return first
        second = draw.choice(further)
        note = _changes(base.tiles, second.tiles)
        return replace(second, note=note) if note else first

    def _neighbours(self, subproblem: Subproblem, base: Variant) -> Iterator[Variant]:
        """Everything one step away: a tile parameter, or how the kernels are cut."""
        for name, sizes in base.plan.sizes().items():
            for key, value in steps(sizes, base.tiles[name]):
                tiles = {**base.tiles, name: {**base.tiles[name], key: value}}
                yield Variant(base.plan, tiles, _changes(base.tiles, tiles))
        for plan in self._within_capacity(subproblem):
            if plan.structure != base.plan.structure:
                yield self._recut(base, plan)

    def _recut(self, base: Variant, plan: Blueprint) -> Variant:
        tiles = plan.default_tiles()
        kept = {name: base.tiles[name] for name in tiles if _same_form(base, plan, name)}
        return Variant(plan, {**tiles, **kept}, _structure_changes(base.plan.structure, plan.structure))


def _draft(variant: Variant) -> Draft:
    return Draft(variant.source, BuiltinWriter.name, variant.note)


def _structures() -> Iterator[Structure]:
    """Every way to cut, the most promising first."""
    for looped in (False, True):
        for parts in _SPLITS:
            for fused in (True, False):
                yield Structure(fused, parts, looped)


def _settings(source: str) -> tuple[Structure, Tiles] | None:
    """STRUCTURE and TILES of a text that we wrote; None where they are not there."""
    found: dict[str, Any] = {}
    try:
        for node in ast.parse(source).body:
            name = ast.unparse(node.targets[0]) if isinstance(node, ast.Assign) else ""
            if name in ("STRUCTURE", "TILES"):
                found[name] = ast.literal_eval(node.value)  # type: ignore[attr-defined]
        structure = Structure(**found["STRUCTURE"])
        tiles = {str(name): dict(tile) for name, tile in found["TILES"].items()}
    except (SyntaxError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return structure, tiles


def _same_form(base: Variant, plan: Blueprint, name: str) -> bool:
    mine, other = base.plan.sizes().get(name), plan.sizes()[name]
    return mine == other


def _smaller(base: Variant, outcome: Outcome, detail: str) -> Variant:
    """Half the blocks of the kernel that the judge named, of all where it named none."""
    sizes = base.plan.sizes()
    named = [name for name in base.tiles if name in detail] or list(base.tiles)
    tiles = {n: shrunk(sizes[n], t) if n in named else t for n, t in base.tiles.items()}
    return Variant(base.plan, tiles, f"{_changes(base.tiles, tiles)} after {outcome.value}")


def _flipped(tile: Tile) -> Tile:
    """The other input precision."""
    if "PRECISION" not in tile:
        return tile
    return with_precision(tile, "tf32x3" if tile["PRECISION"] == "ieee" else "ieee")


def _ieee(tile: Tile) -> Tile:
    return {"PRECISION": "ieee"} if "PRECISION" in tile else {}


def _described(plan: Blueprint, tiles: Tiles) -> str:
    """ "gemm_0 32x32x128 ieee, row_1 1x256"."""
    parts = []
    for name, tile in tiles.items():
        blocks = "x".join(str(value) for key, value in tile.items() if key.startswith("BLOCK"))
        parts.append(" ".join(str(word) for word in (name, blocks, tile.get("PRECISION", "")) if word))
    return ", ".join(parts)


def _changes(before: Tiles, after: Tiles) -> str:
    """ "gemm_0: BLOCK_N 64 → 32"."""
    changed = [
        f"{name}: {key} {before[name][key]} → {value}"
        for name, tile in after.items()
        for key, value in tile.items()
        if before[name][key] != value
    ]
    return "; ".join(changed)


def _structure_changes(before: Structure, after: Structure) -> str:
    words = {"fuse_norm": "norm fused into the product", "split_k": "parts of K", "looped": "rows in blocks"}
    old, new = ((s.fuse_norm, s.split_k, s.looped) for s in (before, after))
    pairs = zip(words.values(), old, new, strict=True)
    return "; ".join(f"{word}: {a} → {b}" for word, a, b in pairs if a != b)


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
