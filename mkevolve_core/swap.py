"""Swap: slow subkernels give way to an alternative at the end of a run (paper, section 3). Pure."""

from __future__ import annotations

from mkevolve_core.state import RunState


def to_swap(state: RunState) -> tuple[str, ...]:
    """Subproblems whose subkernel is under the threshold; none with fewer than two subkernels
    or when all of them are slower than the baseline."""
    rewards = {}
    for part in state.live:
        subkernel = state.subkernel(part.subproblem.subproblem_id)
        if subkernel is not None and subkernel.counts:
            rewards[part.subproblem.subproblem_id] = subkernel.reward
    if len(rewards) < 2 or all(reward < 1.0 for reward in rewards.values()):
        return ()
    free = {part.subproblem.subproblem_id for part in state.live if not part.pinned}
    return tuple(
        name for name, reward in rewards.items() if reward < state.config.swap_below and name in free
    )
