"""Split, Fuse, Pin, Swap: each a command to the engine, or a disabled button that says why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import streamlit as st

from mkevolve_core.domain import PYTORCH, CommandKind
from mkevolve_core.state import CandidateState, RunState, SubproblemState
from pages._commands import ask
from pages._select import FRAGMENTS
from pages._words import outcome_word, plain, ratio_word

_OFFERED = 12  # the best ones; the candidates' table has them all


@dataclass(frozen=True, slots=True)
class Target:
    """What the buttons are about: the run, and the selected subproblems, the leading one first."""

    run_id: str
    word: str
    active: bool
    state: RunState
    ids: tuple[str, ...]

    @property
    def part(self) -> SubproblemState:
        return self.state.subproblems[self.ids[0]]


def buttons(target: Target) -> None:
    """The row of actions on the selection."""
    with st.container(horizontal=True, width="content", key="actions", gap="small"):
        _button("Split", "S", ":material/call_split:", split_refusal(target), lambda: _split(target))
        _button("Fuse…", "F", ":material/call_merge:", fuse_refusal(target), lambda: _fuse(target))
        _pin(target)
        _button("Swap…", "W", ":material/swap_horiz:", swap_refusal(target), lambda: _swap(target))


def _button(label: str, key: str, icon: str, refusal: str | None, open_dialog: Callable[[], None]) -> None:
    told = plain(refusal) if refusal else None
    if st.button(label, icon=icon, shortcut=key, disabled=refusal is not None, help=told, key=f"do_{label}"):
        open_dialog()


def _pin(target: Target) -> None:
    if target.part.pinned:
        kind, label, icon, refusal = (
            CommandKind.UNPIN,
            "Unpin",
            ":material/lock_open:",
            general_refusal(target),
        )
    else:
        kind, label, icon, refusal = CommandKind.PIN, "Pin", ":material/lock:", pin_refusal(target)
    st.button(
        label,
        icon=icon,
        shortcut="K",
        key="do_pin",
        disabled=refusal is not None,
        help=plain(refusal) if refusal else None,
        on_click=lambda: _ask_at_once(target.run_id, kind, target.ids[0]),
    )


def _ask_at_once(run_id: str, kind: CommandKind, name: str) -> None:
    """Without a dialog, whose end draws the whole page: the chips are drawn now, not at the next tick."""
    ask(run_id, kind, name)
    st.rerun([*FRAGMENTS])


# ------------------------------------------------------------- why a button is disabled


def general_refusal(target: Target) -> str | None:
    """What forbids any action; None if nothing does."""
    if target.state.replay:
        return "This is a replay: what comes of it is recorded already."
    if not target.active:
        return f"The run is {target.word}: resume it to steer it."
    if not target.part.alive:
        return f"Subproblem {target.ids[0]} is of an earlier decomposition."
    return None


def _unless_pinned(target: Target) -> str | None:
    refusal = general_refusal(target)
    pinned = [name for name in target.ids if target.state.subproblems[name].pinned]
    return refusal or (f"Subproblem {pinned[0]} is pinned: unpin it first." if pinned else None)


def split_refusal(target: Target) -> str | None:
    return _unless_pinned(target)


def fuse_refusal(target: Target) -> str | None:
    refusal = _unless_pinned(target)
    if refusal is None and len(target.state.live) < 2:
        return "There is one subproblem only: nothing to fuse it with."
    return refusal


def pin_refusal(target: Target) -> str | None:
    refusal = general_refusal(target)
    if refusal is None and not subkernels(target):
        return f"Subproblem {target.ids[0]} has no correct candidate yet."
    return refusal


def swap_refusal(target: Target) -> str | None:
    return _unless_pinned(target)


def subkernels(target: Target) -> list[CandidateState]:
    """The correct candidates of the leading subproblem, the best first."""
    known = [target.state.candidates[name] for name in target.part.candidates]
    return sorted((one for one in known if one.counts), key=lambda one: -one.reward)


# ------------------------------------------------------------------------------ dialogs


@st.dialog("Split", icon=":material/call_split:")
def _split(target: Target) -> None:
    name = target.ids[0]
    st.text(f"Subproblem {name} into exactly two, between two beam steps.")
    st.caption("Its candidates stay in the run's journal; the beams of other subproblems go on.")
    st.text_input("Hint (optional)", placeholder="where to cut", key=_key("split hint", target))
    _queue(
        "split", None, lambda: ask(target.run_id, CommandKind.SPLIT, name, text=_typed("split hint", target))
    )


@st.dialog("Fuse", icon=":material/call_merge:")
def _fuse(target: Target) -> None:
    live = [part.subproblem.subproblem_id for part in target.state.live]
    titles = {part.subproblem.subproblem_id: part.subproblem.title for part in target.state.live}
    ticked = [name for name in target.ids if name in live]
    if len(ticked) < 2:
        ticked += [name for name in neighbours(target)[:1] if name not in ticked]
    chosen = st.multiselect(
        "Subproblems that follow each other",
        live,
        default=ticked,
        format_func=lambda name: f"{name} {titles[name]}",
        key=_key("fuse", target),
    )
    st.text_input("Hint (optional)", placeholder="one block kernel", key=_key("fuse hint", target))
    st.caption("Takes effect between two beam steps; the fused subproblem starts with an empty beam.")
    ids = [name for name in live if name in chosen]
    refusal = None if len(ids) > 1 else "Choose two or more."
    _queue(
        "fuse", refusal, lambda: ask(target.run_id, CommandKind.FUSE, *ids, text=_typed("fuse hint", target))
    )


def neighbours(target: Target) -> list[str]:
    """What follows the leading subproblem in the dataflow, then what it follows, pinned ones left out."""
    name, current = target.ids[0], target.state.decomposition
    if current is None:
        return []
    order: Sequence[str] = current.ids
    flow = current.flow or tuple(zip(order, order[1:], strict=False))
    found = [new for old, new in flow if old == name] + [old for old, new in flow if new == name]
    return [one for one in dict.fromkeys(found) if not target.state.subproblems[one].pinned]


@st.dialog("Swap", icon=":material/swap_horiz:")
def _swap(target: Target) -> None:
    part = target.part
    others = {
        one.candidate.candidate_id: one
        for one in subkernels(target)[:_OFFERED]
        if one.candidate.candidate_id != part.chosen
    }
    st.radio(
        f"Instead of {plain(part.chosen or 'nothing')}",
        [*others, PYTORCH],
        format_func=lambda name: plain(_offer(others.get(name))),
        key=_key("swap to", target),
    )
    st.caption("Takes effect after the candidate in hand; the whole is judged again at once.")
    _queue(
        "swap",
        None,
        lambda: ask(target.run_id, CommandKind.SWAP, target.ids[0], candidate=_typed("swap to", target)),
    )


def _queue(what: str, refusal: str | None, write: Callable[[], None]) -> None:
    """The button at the end of a dialog: writes the command and closes."""
    key, off = f"queue_{what}", refusal is not None
    if st.button(f"Queue {what}", type="primary", key=key, disabled=off, help=refusal, on_click=write):
        st.rerun()


def _key(field: str, target: Target) -> str:
    """A field's state is of one selection: another one starts with its own values."""
    return f"{field} {' '.join(target.ids)}"


def _typed(field: str, target: Target) -> str:
    return str(st.session_state[_key(field, target)] or "")


def _offer(one: CandidateState | None) -> str:
    if one is None or one.verdict is None:
        return "PyTorch: the subproblem's own reference"
    estimate = one.verdict.estimate.ratio if one.verdict.estimate else None
    note = f", {one.candidate.note}" if one.candidate.note else ""
    told = ratio_word(one.verdict.speedup, estimate)
    return f"{one.candidate.candidate_id}: {told}{note} ({outcome_word(one.verdict.outcome)})"
