"""What language models were asked and what they answered: text of others, shown character for character."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from pages import _cache
from pages._select import call, select_call
from pages._words import DASH, UNKNOWN, amount, count, dollars, plain, visible

Row = Mapping[str, Any]
_HEIGHT = 420
_ROWS = 8  # a longer table scrolls
_STOPS = {"end": "reply", "length": "cut off", "refusal": "refused", "context": "context full"}
_NUMBER = st.column_config.NumberColumn
_COLUMNS: Mapping[str, Any] = {
    "call": st.column_config.TextColumn("call", width="small"),
    "role": "role",
    "model": "model",
    "in": _NUMBER("prompt tokens", format="localized", help="all of the prompt, cached or not"),
    "cached": _NUMBER("cached", format="%.0f%%", help="of the prompt's tokens"),
    "out": _NUMBER("reply tokens", format="localized"),
    "cost": _NUMBER("cost", format="$%.4f"),
    "seconds": _NUMBER("seconds", format="%.1f"),
    "ended": "ended as",
    "attempts": _NUMBER("attempts", width="small"),
    "template": "template",
}
_ROLE_COLUMNS: Mapping[str, Any] = {**_COLUMNS, "calls": "replies", "failed": "without a reply"}


def of_subproblem(run_id: str, subproblem_id: str, candidate: str | None) -> None:
    """The calls for a subproblem; of a chosen candidate the one that wrote it is shown first."""
    rows = _cache.llm_calls(run_id, subproblem_id)
    if not rows:
        st.caption("No language model was asked for this subproblem.")
        return
    own = [row for row in rows if candidate and row["candidate_id"] == candidate]
    written = [row for row in own if row["slot"] == candidate] or own
    _calls(run_id, rows, (written or rows)[-1], f"calls of {subproblem_id} {candidate}")


def of_run(run_id: str) -> None:
    """What each role took, and the calls that are about no subproblem."""
    roles = _cache.llm_roles(run_id)
    if not roles:
        st.caption("No language model has answered yet.")
        return
    st.caption("By role; one unknown makes a sum unknown")
    st.dataframe(
        [_role(row) for row in roles], hide_index=True, column_config=_ROLE_COLUMNS, placeholder=UNKNOWN
    )
    if rows := _cache.llm_calls(run_id, ""):
        st.caption("Calls about the whole: decompose, split, fuse")
        _calls(run_id, rows, rows[-1], "calls of the run")


def _role(row: Row) -> dict[str, Any]:
    return {
        "role": "asked again" if row["role"] == "repair" else row["role"],
        "model": row["models"],
        "calls": row["calls"],
        "failed": row["failed"],
        "in": row["tokens_in"],
        "cached": 100 * row["tokens_cached"] / row["tokens_in"] if row["tokens_cached"] else None,
        "out": row["tokens_out"],
        "cost": row["cost"],
        "seconds": row["seconds"],
    }


# ------------------------------------------------------------------------------- calls


def _calls(run_id: str, rows: Sequence[Row], first: Row, name: str) -> None:
    seqs = [int(row["seq"]) for row in rows]
    chosen = next((row for row in rows if row["seq"] == call()), first)
    key = re.sub(r"\W", "_", name)
    st.text(_totals(rows))
    st.dataframe(
        [_line(row) for row in rows],
        hide_index=True,
        height="content" if len(rows) <= _ROWS else 330,
        placeholder=UNKNOWN,
        key=key,
        on_select=lambda: _row_chosen(key, seqs),
        selection_mode="single-row",
        selection_default={"selection": {"rows": [seqs.index(int(chosen["seq"]))]}},
        column_config=_COLUMNS,
    )
    _texts(run_id, chosen)


def _row_chosen(key: str, seqs: list[int]) -> None:
    rows = st.session_state[key]["selection"]["rows"]
    if rows and rows[0] < len(seqs):
        select_call(seqs[rows[0]])


def _line(row: Row) -> dict[str, Any]:
    return {
        "call": row["slot"] or DASH,
        "role": f"{row['role']}, asked again" if row["reask"] else row["role"],
        "model": f"{row['provider']}/{row['model']}" if row["provider"] else row["model"],
        "in": row["tokens_in"],
        "cached": None if row["cached"] is None else 100 * row["cached"],
        "out": row["tokens_out"],
        "cost": row["cost"],
        "seconds": row["seconds"],
        "ended": ended(row),
        "attempts": row["attempts"],
        "template": row["template"] or DASH,
    }


def ended(row: Row) -> str:
    """`reply`, `cut off`, `failed: rate limit`."""
    if row["failure"]:
        return f"failed: {row['failure'].replace('_', ' ')}"
    return _STOPS.get(row["stop"], str(row["stop"]))


def _totals(rows: Sequence[Row]) -> str:
    """`12 calls · 98.1 k tokens in, 64% cached · 18 k out · $0.51`; what one call lacks is unknown."""
    known = {key: [row[key] for row in rows if row[key] is not None] for key in ("tokens_in", "tokens_out")}
    whole = {key: sum(some) if len(some) == len(rows) else None for key, some in known.items()}
    cached = sum(row["tokens_cached"] or 0 for row in rows)
    share = f", {cached / whole['tokens_in']:.0%} cached" if cached and whole["tokens_in"] else ""
    costs = [row["cost"] for row in rows]
    cost = None if None in costs else sum(costs)
    told = [
        count(len(rows), "call"),
        f"{amount(whole['tokens_in'])} tokens in{share}",
        f"{amount(whole['tokens_out'])} out",
        f"cost {UNKNOWN}" if cost is None else dollars(cost),
    ]
    return " · ".join(told)


# ------------------------------------------------------------------------------- texts


def _texts(run_id: str, row: Row) -> None:
    """Prompt and reply of one call, side by side."""
    slot = row["slot"] or row["role"]
    prompt, reply = st.columns(2, gap="medium")
    with prompt:
        _text(run_id, row["prompt_sha"], "Prompt", slot, _prompt_facts(row))
    with reply:
        if row["failure"]:
            st.markdown(f"**No reply** · {plain(ended(row))} · {count(row['attempts'], 'attempt')}")
            st.code(visible(row["reason"] or ""), language=None, wrap_lines=True)
        else:
            _text(run_id, row["reply_sha"], "Reply", slot, _reply_facts(row))


def _prompt_facts(row: Row) -> list[str]:
    cached = f"{row['cached']:.0%} cached" if row["cached"] is not None else ""
    return [slot_word(row), f"{amount(row['tokens_in'])} tokens", cached, row["template"] or ""]


def _reply_facts(row: Row) -> list[str]:
    first = f"first after {row['first_token']:.1f} s" if row["first_token"] is not None else ""
    cost = f"cost {UNKNOWN}" if row["cost"] is None else dollars(row["cost"])
    seconds = f"{row['seconds']:.1f} s" if row["seconds"] is not None else ""
    return [row["model"], f"{amount(row['tokens_out'])} tokens", cost, seconds, first, ended(row)]


def slot_word(row: Row) -> str:
    """`refine 4a#17`, `review 4a#17 1`."""
    slot, role = row["slot"] or "", row["role"]
    return slot if slot.startswith(role) else f"{role} {slot}".strip()


def _text(run_id: str, sha: str | None, label: str, slot: str, facts: Sequence[str]) -> None:
    told = " · ".join(plain(fact) for fact in facts if fact)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(f"**{label}** · {told}", width="stretch")
        text = _kept(run_id, sha)
        if text is not None:
            st.download_button(
                "Download",
                text.encode("utf-8", "replace"),
                file_name=f"{re.sub(r'[^A-Za-z0-9]+', '-', slot).strip('-')}-{label.lower()}.txt",
                mime="text/plain",
                icon=":material/download:",
                on_click="ignore",
                key=f"download_{label}",
            )
    if text is None:
        st.caption(f"It is not among the run's artifacts (sha {(sha or DASH)[:12]}).")
    else:
        st.code(visible(text), language=None, height=_HEIGHT, wrap_lines=True)


def _kept(run_id: str, sha: str | None) -> str | None:
    try:
        return _cache.source(run_id, sha) if sha else None
    except KeyError:
        return None
