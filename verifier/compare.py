"""Outputs against the reference in double precision, on every element, in the judge's own process.

An element passes where |got - exact| <= max(atol + rtol*|exact|, the reference's own largest error), so
that no candidate is asked for more accuracy than the reference has. Integers and booleans must be equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from mkevolve_core.domain import Case, Policy
from verifier.plan import Memory, Plan, PlannedCase, Tree, is_floating, specs_of

Array: TypeAlias = "np.ndarray[Any, Any]"

_CHUNK = 1 << 20  # elements
_KERNELBENCH = 1e-4


@dataclass(frozen=True, slots=True)
class Compared:
    case: Case
    kernelbench: bool  # allclose with 1e-4 against the reference as it is


def compare_case(
    plan: Plan, case: PlannedCase, outputs: Memory, tree: Tree, name: str, policy: Policy
) -> Compared:
    """The worst tensor speaks for the case."""
    rows = zip(specs_of(tree), specs_of(case.expected), specs_of(case.exact), strict=True)
    found = []
    for (place, got), (_, expected), (_, exact) in rows:
        result = _compare(
            outputs.values(got),
            plan.expected.values(expected),
            plan.expected.values(exact),
            _Rule(policy.atol, policy.rtol, is_floating(got)),
        )
        found.append((place, result))
    place, worst = max(found, key=lambda item: (item[1].wrong, item[1].excess))
    return Compared(_as_case(name, place, worst), all(result.kernelbench for _, result in found))


def zeros_would_pass(plan: Plan, policy: Policy) -> bool:
    """Whether an output of nothing but zeros lies within the bound in every case."""
    for case in plan.cases:
        pairs = zip(specs_of(case.expected), specs_of(case.exact), strict=True)
        for (_, expected), (_, exact) in pairs:
            values = plan.expected.values(exact)
            rule = _Rule(policy.atol, policy.rtol, is_floating(expected))
            if _compare(np.zeros_like(values), plan.expected.values(expected), values, rule).wrong:
                return False
    return True


def ignores_inputs(plan: Plan) -> bool:
    """Whether the reference gives one output for all inputs that it was run on."""
    return all(_are_equal(plan, config.cases) for config in plan.configs)


def _are_equal(plan: Plan, cases: Sequence[PlannedCase]) -> bool:
    outputs = [[plan.expected.array(spec) for _, spec in specs_of(case.expected)] for case in cases]
    pairs = [pair for other in outputs[1:] for pair in zip(outputs[0], other, strict=False)]
    return bool(pairs) and all(np.array_equal(left, right) for left, right in pairs)


@dataclass(frozen=True, slots=True)
class _Rule:
    atol: float
    rtol: float
    floating: bool


@dataclass(frozen=True, slots=True)
class _Result:
    total: int
    wrong: int
    max_error: float | None  # None where an element is not finite
    bound: float | None  # at the largest error
    excess: float  # largest error over its bound
    where: str
    kernelbench: bool


def _compare(got: Array, expected: Array, exact: Array, rule: _Rule) -> _Result:
    floor = _own_error(expected, exact) if rule.floating else 0.0
    wrong = np.zeros(got.size, dtype=bool)
    worst, bound_there, kernelbench = -1.0, 0.0, True
    for here, g, plain, true in _chunks(got, expected, exact):
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.abs(g - true)
            bound = np.maximum(rule.atol + rule.rtol * np.abs(true), floor) if rule.floating else 0.0 * error
            same = (g == true) | (np.isnan(g) & np.isnan(true))
            wrong[here] = ~np.where(np.isfinite(true), error <= bound, same)
            kernelbench &= bool(np.allclose(g, plain, _KERNELBENCH, _KERNELBENCH, equal_nan=True))
        finite = np.where(np.isnan(error), np.where(same, 0.0, np.inf), error)
        finite[same] = 0.0
        at = int(np.argmax(finite)) if finite.size else -1
        if at >= 0 and finite[at] > worst:
            worst, bound_there = float(finite[at]), float(bound[at])
    return _result(got, exact, wrong, worst, bound_there, kernelbench)


def _own_error(expected: Array, exact: Array) -> float:
    largest = 0.0
    for _, plain, _, true in _chunks(expected, expected, exact):
        with np.errstate(invalid="ignore"):
            error = np.abs(plain - true)
        finite = error[np.isfinite(error)]
        largest = max(largest, float(finite.max())) if finite.size else largest
    return largest


def _chunks(got: Array, expected: Array, exact: Array) -> Iterator[tuple[slice, Array, Array, Array]]:
    """Flat pieces in double precision."""
    arrays = [array.reshape(-1) for array in (got, expected, exact)]
    for start in range(0, got.size, _CHUNK):
        here = slice(start, start + _CHUNK)
        g, plain, true = (array[here].astype(np.float64) for array in arrays)
        yield here, g, plain, true


def _result(got: Array, exact: Array, wrong: Array, worst: float, bound: float, kernelbench: bool) -> _Result:
    count = int(np.count_nonzero(wrong))
    is_finite = np.isfinite(worst)
    return _Result(
        total=got.size,
        wrong=count,
        max_error=max(worst, 0.0) if is_finite else None,
        bound=bound if is_finite and np.isfinite(bound) else None,
        excess=worst / bound if bound > 0 else worst,
        where=_where(got, exact, wrong) if count else "",
        kernelbench=kernelbench,
    )


def _where(got: Array, exact: Array, wrong: Array) -> str:
    """The first wrong element, and the box that holds them all."""
    first = np.unravel_index(int(np.argmax(wrong)), got.shape)
    at = ", ".join(str(int(index)) for index in first)
    text = f"[{at}]: got {float(got[first]):.7g}, expected {float(exact[first]):.7g}"
    box = _box(wrong.reshape(got.shape))
    whole = [f"0:{size}" for size in got.shape]
    return text if box == whole else f"{text}; all wrong ones lie in [{', '.join(box)}]"


def _box(wrong: Array) -> list[str]:
    ranges = []
    for axis in range(wrong.ndim):
        others = tuple(other for other in range(wrong.ndim) if other != axis)
        hit = np.flatnonzero(wrong.any(axis=others))
        ranges.append(f"{hit[0]}:{hit[-1] + 1}")
    return ranges


def _as_case(name: str, place: str, result: _Result) -> Case:
    where = f"output{place} {result.where}" if place and result.where else result.where
    return Case(
        name=name,
        passed=result.wrong == 0,
        max_error=result.max_error,
        bound=result.bound,
        fraction_wrong=result.wrong / result.total if result.total else 0.0,
        where=where,
    )
