"""Which candidates survive a step and which are expanded next. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

from mkevolve_core.domain import Outcome, Verdict
from mkevolve_core.ids import ordinal_of
from mkevolve_core.state import CandidateState

# The nearer to a correct result, the better worth debugging (paper, section 3: generate, debug, optimize).
_NEARNESS = {
    Outcome.CORRECT: 9,
    Outcome.UNSTABLE: 8,
    Outcome.WRONG_RESULT: 7,
    Outcome.TIMEOUT: 6,
    Outcome.RUNTIME_ERROR: 5,
    Outcome.OUT_OF_MEMORY: 5,
    Outcome.COMPILE_ERROR: 4,
    Outcome.INTERFACE_ERROR: 3,
}
_FARTHEST = 99


def ranked(candidates: Iterable[CandidateState]) -> list[CandidateState]:
    """Best first: by reward, then by nearness to correct, then by the error's magnitude, then the newer."""
    judged = [one for one in candidates if one.verdict is not None and one.rejected is None]
    newest_first = sorted(reversed(judged), key=lambda one: -ordinal_of(one.candidate.candidate_id))
    return sorted(newest_first, key=_rank, reverse=True)


def survivors(candidates: Iterable[CandidateState], width: int) -> tuple[str, ...]:
    """Ids of the `width` best, the same source only once."""
    kept: dict[str, str] = {}
    for one in ranked(candidates):
        kept.setdefault(one.candidate.source_sha, one.candidate.candidate_id)
    return tuple(kept.values())[:width]


def parents(beam: tuple[str, ...], width: int, expansion: int, calls: int) -> tuple[str | None, ...]:
    """Whom to expand in the next step, best first; an empty beam starts with `width` from scratch."""
    chosen: list[str | None] = [one for one in beam for _ in range(expansion)] or [None] * width
    return tuple(chosen[:calls])


def _rank(one: CandidateState) -> tuple[float, int, int]:
    verdict = one.verdict
    assert verdict is not None
    outcome = verdict.outcome if one.counts or not verdict.is_correct else Outcome.CHEAT
    return (one.reward, _NEARNESS.get(outcome, 0), -_magnitude(verdict))


def _magnitude(verdict: Verdict) -> int:
    """The power of ten of a wrong candidate's error: coarse, since it changes with every draw of inputs."""
    if verdict.is_correct:
        return 0
    error = verdict.max_error
    return _FARTHEST if error is None or error > 10**_FARTHEST else math.ceil(math.log10(max(error, 1e-12)))
