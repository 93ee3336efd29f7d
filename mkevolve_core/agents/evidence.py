"""From a verdict to what a prompt says of it: the same verdict gives the same text, on every machine.

Nothing here words an instruction; the templates do.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mkevolve_core.domain import Baseline, Case, Outcome, Resources, Timing, Verdict
from mkevolve_core.protocols import Judged

_MESSAGE = 4000  # characters
_HEAD = 2700
_PAST = 200  # characters of one line about an earlier candidate
_CASES = 8
_FLAGS = 8
_METRICS = 24

_PATH = re.compile(r"(?<![\w.])/(?:[\w.+@-]+/)+(?=[\w.+-])")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{5,}\b")
_MISSING = (
    re.compile(r"module 'triton\.language[\w.]*' has no attribute '(\w+)'"),
    re.compile(r"\btriton\.language has no attribute '?(\w+)"),
    re.compile(r"\btl\.(\w+) (?:does not exist|is not defined)"),
)


@dataclass(frozen=True, slots=True)
class Missing:
    """A function that the candidate invented, and what is called alike."""

    name: str
    close: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a candidate does not count."""

    outcome: str
    message: str
    cases: tuple[str, ...] = ()  # a table's lines, its head first
    flags: tuple[str, ...] = ()
    objection: str = ""  # the reviewer's, where the judge had none
    missing: Missing | None = None


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    value: str


def is_sound(judged: Judged) -> bool:
    """Correct, and no reviewer lowered it."""
    lowered = judged.review is not None and judged.review.outcome is not Outcome.CORRECT
    return judged.verdict.is_correct and not lowered


def failure(judged: Judged, functions: Sequence[str] = ()) -> Failure:
    """For a candidate that is not sound; `functions` are the names in `triton.language`."""
    verdict, review = judged.verdict, judged.review
    if verdict.is_correct and review is not None:
        return Failure(review.outcome.value, "", (), flags(verdict), _shortened(review.quote))
    message = _shortened(verdict.detail)
    return Failure(
        verdict.outcome.value,
        message,
        _table(verdict.cases) if verdict.outcome is Outcome.WRONG_RESULT else (),
        flags(verdict),
        missing=_missing(message, functions),
    )


def metrics(verdict: Verdict) -> tuple[Metric, ...]:
    """What is known of a correct candidate's speed, the most telling first."""
    return tuple(_metrics(verdict))[:_METRICS]


def is_modelled(verdict: Verdict) -> bool:
    """Its time is an estimate: nothing was measured."""
    return verdict.measured is None and verdict.estimate is not None


def past(judged: Judged) -> str:
    """One line: what was tried, and what came of it."""
    idea = judged.candidate.note or "no description"
    return f"{_one_line(idea)} -> {result(judged)}"


def result(judged: Judged) -> str:
    """What came of a candidate in a few words."""
    verdict = judged.verdict
    if not is_sound(judged):
        found = failure(judged)
        return _one_line(f"{found.outcome.replace('_', ' ')}: {found.objection or found.message}")
    if verdict.speedup is not None:
        return f"correct, {digits(verdict.speedup)}x"
    if verdict.estimate is not None:
        return f"correct, estimated ratio {digits(verdict.estimate.ratio)}"
    return "correct, not timed"


def reference_times(baselines: Sequence[Baseline]) -> tuple[Metric, ...]:
    return tuple(_baseline(baseline) for baseline in baselines)


def normalised(text: str) -> str:
    """Without what differs between machines and runs: folders and addresses."""
    return _ADDRESS.sub("0x...", _PATH.sub("", text)).strip()


def digits(value: float) -> str:
    """Three significant ones, without an exponent where that is readable."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:.0f}" if 1000 <= abs(rounded) < 1e9 else f"{rounded:g}"


# ------------------------------------------------------------------------------------- failures


def _shortened(text: str) -> str:
    """Head and tail of a long message: what matters stands at its ends."""
    text = normalised(text)
    if len(text) <= _MESSAGE:
        return text
    mark = f"\n[... {len(text) - _MESSAGE} characters left out ...]\n"
    return text[:_HEAD] + mark + text[_HEAD - _MESSAGE :]


def _one_line(text: str) -> str:
    text = " ".join(normalised(text).split())
    return text if len(text) <= _PAST else f"{text[: _PAST - 3]}..."


def flags(verdict: Verdict) -> tuple[str, ...]:
    """What the judge noted besides, a line each."""
    return tuple(_one_line(flag) for flag in verdict.flags[:_FLAGS])


def _missing(message: str, functions: Sequence[str]) -> Missing | None:
    for pattern in _MISSING:
        found = pattern.search(message)
        if found:
            close = difflib.get_close_matches(found[1], functions, n=5, cutoff=0.5)
            return Missing(found[1], tuple(close))
    return None


def _table(cases: Sequence[Case]) -> tuple[str, ...]:
    """Wrong cases first; `where` names the first bad element."""
    if not cases:
        return ()
    ordered = sorted(cases, key=lambda case: case.passed)
    rows = [_row(case) for case in ordered[:_CASES]]
    left = len(cases) - len(rows)
    more = (f"and {left} more",) if left > 0 else ()
    return ("case | result | largest error | bound there | share wrong | first bad element", *rows, *more)


def _row(case: Case) -> str:
    share = "-" if case.fraction_wrong is None else f"{digits(100 * case.fraction_wrong)} %"
    cells = (
        case.name,
        "right" if case.passed else "wrong",
        _number(case.max_error),
        _number(case.bound),
        share,
        _one_line(case.where) or "-",
    )
    return " | ".join(cells)


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.3g}"


# ---------------------------------------------------------------------------------------- speed


def _metrics(verdict: Verdict) -> Iterator[Metric]:
    if verdict.measured is not None:
        yield Metric("time of one forward", _timing(verdict.measured))
        yield from reference_times(verdict.baselines)
        if verdict.speedup is not None:
            yield Metric("speedup over torch.compile", f"{digits(verdict.speedup)}x")
    if verdict.estimate is not None:
        yield from _estimate(verdict)
    if verdict.resources is not None:
        yield from _resources(verdict.resources)
    yield from _accuracy(verdict)
    for share in verdict.shares:
        yield Metric(f"part {share.name}", f"{digits(share.time_ms)} ms in {share.calls} calls")
    for flag in flags(verdict):
        yield Metric("the judge notes", flag)


def _estimate(verdict: Verdict) -> Iterator[Metric]:
    estimate = verdict.estimate
    assert estimate is not None
    yield Metric(f"estimated time on {estimate.target}", f"{digits(estimate.time_ms)} ms")
    yield Metric("estimated time of PyTorch's operations one by one", f"{digits(estimate.baseline_ms)} ms")
    yield Metric("estimated ratio (no speedup: nothing was measured)", digits(estimate.ratio))
    yield Metric("launches", str(estimate.launches))
    yield Metric("bytes moved", f"{digits(estimate.bytes_moved / 1e6)} MB")
    yield Metric("floating-point operations", f"{digits(estimate.flops / 1e6)} million")


def _resources(resources: Resources) -> Iterator[Metric]:
    if resources.registers is not None:
        yield Metric("registers a thread, most of all kernels", str(resources.registers))
    if resources.spills is not None:
        yield Metric(
            "spilled registers", f"{resources.spills} bytes a thread" if resources.spills else "none"
        )
    if resources.shared_bytes is not None:
        limit = f" of {resources.shared_limit}" if resources.shared_limit else ""
        yield Metric("shared memory a program", f"{resources.shared_bytes}{limit} bytes")


def _accuracy(verdict: Verdict) -> Iterator[Metric]:
    """How much of what it may be off by it uses, in the case where that is most."""
    used = [c.max_error / c.bound for c in verdict.cases if c.max_error is not None and c.bound]
    if verdict.max_error is not None and used:
        share = f"at most {digits(100 * max(used))} % of its bound"
        yield Metric("largest error", f"{verdict.max_error:.3g}, {share}")


def _timing(timing: Timing) -> str:
    spread = f"{digits(timing.low_ms)} to {digits(timing.high_ms)}"
    return f"{digits(timing.median_ms)} ms (20th to 80th percentile {spread})"


def _baseline(baseline: Baseline) -> Metric:
    if baseline.timing is None:
        return Metric(f"{baseline.name} of the reference", f"not measured: {_one_line(baseline.detail)}")
    return Metric(f"{baseline.name} of the reference", f"{digits(baseline.timing.median_ms)} ms")
