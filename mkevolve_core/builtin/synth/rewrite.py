"""Program to program: find attention, split long products over K, take the remaining softmaxes apart."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from mkevolve_core.builtin.synth.builder import Builder
from mkevolve_core.builtin.synth.index import Expr, Index, Var, axes_of, variable
from mkevolve_core.builtin.synth.ir import VIEWS, Op, Program, source_index
from mkevolve_core.builtin.synth.reductions import softmax_parts

WIDEST_HEAD = 256
SKINNY_TILES = 64  # a product with fewer 16 x 32 tiles leaves most of a GPU idle


@dataclass(frozen=True, slots=True)
class Structure:
    """How kernels are cut, beside their tiles: what a mutation may change in the text."""

    fuse_norm: bool = False  # row reductions inside the product before them, where a row fits one tile
    split_k: int = 1  # parts of K that skinny products compute apart and then add up
    looped: bool = False  # rows in several blocks even where they fit one


@dataclass(frozen=True, slots=True)
class Pattern:
    """softmax(f(q k^T)) v around one "contract": what an "attention" operation needs."""

    product: str  # the contract q k^T
    scores: str  # what the softmax sees
    softmax: str
    views: tuple[str, ...]  # from the softmax's output to the [G, M, N] that multiplies v
    is_causal: bool


def rewrite(build: Builder, structure: Structure) -> Program:
    """The program that kernels are planned for."""
    program = build.program.pruned()
    patterns = find_attention(program)
    return _Rewriter(build, program, patterns, structure).run().pruned()


class _Rewriter:
    def __init__(
        self, build: Builder, program: Program, patterns: dict[str, Pattern], structure: Structure
    ) -> None:
        self._old = program
        self._patterns = patterns
        self._hidden = {pattern.product for pattern in patterns.values()}
        self._structure = structure
        self._new = Builder(build.graph)
        self._names: dict[str, str] = {}

    def run(self) -> Program:
        for op in self._old.ops.values():
            self._names[op.name] = self._rewritten(op)
        self._new.program.outputs = tuple(self._names[name] for name in self._old.outputs)
        return self._new.program

    def _rewritten(self, op: Op) -> str:
        if op.name in self._patterns:
            return self._attention(op, self._patterns[op.name])
        if op.kind == "softmax":
            _, powers, sums = softmax_parts(self._new, self._names[op.inputs[0]], op.attr[0])
            return self._new.point("div", powers, sums)
        if op.kind == "contract" and op.name not in self._hidden:
            parts = split_count(op, self._old, self._structure)
            if parts > 1:
                return self._split(op, parts)
        return self._copied(op)

    def _copied(self, op: Op) -> str:
        inputs = tuple(self._names[name] for name in op.inputs)
        name = op.name if op.kind in ("input", "state") else None
        return self._new.program.put(op.kind, op.shape, op.dtype, inputs, op.attr, name)

    def _attention(self, op: Op, pattern: Pattern) -> str:
        product = self._old.ops[pattern.product]
        scores = self._names[pattern.scores]
        for view in (self._old.ops[name] for name in pattern.views):
            scores = self._new.program.put(view.kind, view.shape, view.dtype, (scores,), view.attr)
        inputs = (*(self._names[name] for name in (*product.inputs, op.inputs[1])), scores)
        attr = (self._names[pattern.product], pattern.is_causal)
        return self._new.program.put("attention", op.shape, op.dtype, inputs, attr)

    def _split(self, op: Op, parts: int) -> str:
        """K in `parts` groups of their own, then their sum: more programs for a skinny product."""
        build = self._new
        left, right = (self._names[name] for name in op.inputs)
        groups, rows, inner = build.shape(left)
        columns = op.shape[2]
        each = inner // parts
        left = build.permute(build.reshape(left, (groups, rows, parts, each)), (0, 2, 1, 3))
        left = build.reshape(left, (groups * parts, rows, each))
        right = build.reshape(right, (groups * parts, each, columns))
        product = build.reshape(build.contract(left, right), (groups, parts, rows, columns))
        return build.reduce("sum", product, (1,), False)


def split_count(op: Op, program: Program, structure: Structure) -> int:
    """Into how many parts of K a product is split; 1 where it has tiles enough or K does not divide."""
    inner = program.ops[op.inputs[0]].shape[2]
    tiles = op.shape[0] * ceil(op.shape[1] / 16) * ceil(op.shape[2] / 32)
    parts = structure.split_k
    if tiles > SKINNY_TILES or inner < 1024 or inner % parts or inner // parts < 64:
        return 1
    return parts


def find_attention(program: Program) -> dict[str, Pattern]:
    """Products that end an attention, by name."""
    users = program.users()
    found = {}
    for op in program.ops.values():
        if op.kind == "contract":
            pattern = _match(op, program, users)
            if pattern is not None:
                found[op.name] = pattern
    return found


def _match(op: Op, program: Program, users: dict[str, list[str]]) -> Pattern | None:
    weights = program.ops[op.inputs[0]]
    tile = _tile(weights.shape)
    softmax, index, path = _through_views(weights, tile, program)
    if softmax.kind != "softmax" or prod(op.shape) == 0 or op.shape[2] > WIDEST_HEAD:
        return None
    dim = softmax.attr[0]
    others = [item for axis, item in enumerate(index) if axis != dim]
    if index[dim] != tile[2] or 2 in axes_of(*others):
        return None
    walk = _ScoreWalk(program, tile)
    if not walk.reach(softmax.inputs[0], index) or walk.product is None:
        return None
    inside = {*walk.tainted, softmax.name, *path, op.name}
    if any(user not in inside for name in inside - {op.name} for user in users[name]):
        return None
    if any(name in program.outputs for name in inside - {op.name}):
        return None
    if program.ops[program.ops[walk.product].inputs[0]].shape[2] > WIDEST_HEAD:
        return None
    return Pattern(walk.product, softmax.inputs[0], softmax.name, tuple(reversed(path)), walk.is_causal)


def _tile(shape: tuple[int, ...]) -> tuple[Expr, Expr, Expr]:
    """Index variables that are never taken for the number 0."""
    sizes = [max(size, 2) for size in shape]
    texts = ("g", "m", "n")
    made = [Var(texts[axis], sizes[axis], frozenset([axis])) for axis in range(3)]
    return variable(made[0]), variable(made[1]), variable(made[2])


def _through_views(op: Op, index: Index, program: Program) -> tuple[Op, Index, list[str]]:
    path = []
    while op.kind in VIEWS:
        path.append(op.name)
        source = program.ops[op.inputs[0]]
        index = source_index(op, source.shape, index)
        op = source
    return op, index, path


@dataclass(slots=True)
class _ScoreWalk:
    """From the scores back to the one product that they come from, at one index."""

    program: Program
    tile: tuple[Expr, Expr, Expr]
    product: str | None = None
    is_causal: bool = False
    tainted: tuple[str, ...] = ()

    def reach(self, name: str, index: Index) -> bool:
        """False where the scores are no function of one product's element; collects what lies between."""
        op = self.program.ops[name]
        if op.kind == "contract":
            return self._reached_product(op, index)
        if op.kind not in VIEWS and op.kind != "point":
            return True
        before = self.tainted
        for source in op.inputs:
            inner = index if op.kind == "point" else source_index(op, self.program.ops[source].shape, index)
            if not self.reach(source, inner):
                return False
        if self.tainted != before:
            self.tainted = (*self.tainted, name)
        self.is_causal = self._is_causal_mask(op, index) or (self.is_causal and self._keeps_mask(op))
        return True

    def _reached_product(self, op: Op, index: Index) -> bool:
        sizes = tuple(self.program.ops[op.name].shape)
        expected = tuple(e if n > 1 else Expr() for e, n in zip(self.tile, sizes, strict=True))
        if index not in (self.tile, expected) or self.product not in (None, op.name):
            return False
        self.product = op.name
        self.tainted = (*self.tainted, op.name)
        return True

    def _keeps_mask(self, op: Op) -> bool:
        """What was minus infinity before this operation still is."""
        if op.kind != "point" or op.attr[0] in ("add", "cast"):
            return True
        return op.attr[0] == "where" and self._is_lowest(op.inputs[2])

    def _is_lowest(self, name: str) -> bool:
        op = self.program.ops[name]
        return op.kind == "const" and bool(op.attr[0] == float("-inf"))

    def _is_causal_mask(self, op: Op, index: Index) -> bool:
        """where(column <= row, scores, -inf)."""
        if op.kind != "point" or op.attr[0] != "where" or not self._is_lowest(op.inputs[2]):
            return False
        test = self.program.ops[op.inputs[0]]
        test, place, _ = _through_views(test, index, self.program)
        if test.kind != "point" or test.attr[0] != "le":
            return False
        ends = [_through_views(self.program.ops[name], place, self.program)[:2] for name in test.inputs]
        is_range = all(end.kind == "iota" for end, _ in ends)
        return is_range and [at[0] for _, at in ends] == [self.tile[2], self.tile[1]]
