"""AllocateLLMBudget: who gets the iteration's kernel-writing calls (paper, section 3). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from mkevolve_core.state import RunState, SubproblemState


def allocate(state: RunState, calls: int) -> tuple[dict[str, int], str]:
    """Calls for each live subproblem, zeros included, and the rule that gave them."""
    open_parts = [part for part in state.live if not part.pinned]
    budget = {part.subproblem.subproblem_id: 0 for part in state.live}
    needy = [part for part in open_parts if _needs_subkernel(part, state)]
    if needy:
        budget.update(_even(needy, calls))
        reason = f"even among {len(needy)} new or without a subkernel"
    else:
        budget.update(_by_time(open_parts, state, calls))
        reason = "by share of end-to-end time" if state.shares else "even: no time share yet"
    for part in open_parts:
        budget[part.subproblem.subproblem_id] += part.boost
    return budget, reason


def _needs_subkernel(part: SubproblemState, state: RunState) -> bool:
    chosen = state.subkernel(part.subproblem.subproblem_id)
    return chosen is None or not chosen.counts or not part.candidates


def _even(parts: Sequence[SubproblemState], calls: int) -> dict[str, int]:
    """Whole calls; what does not divide goes first to those with the fewest calls so far."""
    share, rest = divmod(calls, len(parts))
    fewest_first = sorted(parts, key=lambda part: part.calls)
    extra = {part.subproblem.subproblem_id for part in fewest_first[:rest]}
    ids = [part.subproblem.subproblem_id for part in parts]
    return {one: share + (one in extra) for one in ids}


def _by_time(parts: Sequence[SubproblemState], state: RunState, calls: int) -> dict[str, int]:
    """In proportion to each subproblem's time in the last end-to-end run, by largest remainder."""
    times = {share.name: share.time_ms for share in state.shares}
    weights = [times.get(part.subproblem.name, 0.0) for part in parts]
    total = sum(weights)
    if not parts or total <= 0:
        return _even(parts, calls) if parts else {}
    exact = [calls * weight / total for weight in weights]
    whole = [int(value) for value in exact]
    by_remainder = sorted(range(len(parts)), key=lambda i: exact[i] - whole[i], reverse=True)
    for i in by_remainder[: calls - sum(whole)]:
        whole[i] += 1
    ids = [part.subproblem.subproblem_id for part in parts]
    return dict(zip(ids, whole, strict=True))
