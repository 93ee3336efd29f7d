"""What an engineer asks of a run: written as command files, shown as chips with the engine's answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from mkevolve_core.commands import new_command_id, write_command
from mkevolve_core.domain import Command, CommandKind
from mkevolve_core.errors import CommandError
from pages import _cache, _components
from pages._words import plain

_SHOWN = 8  # the newest commands; the log has them all


def ask(run_id: str, kind: CommandKind, *ids: str, candidate: str | None = None, text: str = "") -> None:
    """Write one command, unless the same is waiting already; a toast says why it was not written."""
    if _waiting(run_id, kind, ids, candidate):
        st.toast(f"{kind.capitalize()} is asked for already and waits for the engine.")
        return
    command = Command(new_command_id(), kind, ids, candidate, text=text.strip() or None)
    try:
        write_command(_cache.folder(run_id) / "commands", command)
    except CommandError as error:
        st.toast(plain(error), icon=":material/error:", duration="long")
    _cache.look()


def any_waits(run_id: str) -> bool:
    """Whether the engine has yet to carry out or refuse a command."""
    return bool(_unanswered(run_id))


def _unanswered(run_id: str) -> list[dict[str, Any]]:
    return [row for row in _cache.commands(run_id) if row["status"] in ("queued", "accepted")]


def _waiting(run_id: str, kind: CommandKind, ids: tuple[str, ...], candidate: str | None) -> bool:
    asked = (kind.value, ", ".join(ids) or None, candidate)
    known = _unanswered(run_id)
    return asked in [(row["kind"], row["subproblem_ids"], row["candidate_id"]) for row in known]


def chips(run_id: str) -> None:
    """The newest commands and how far each has come."""
    shown = _cache.commands(run_id)[-_SHOWN:]
    _components.chips(key="chips", data={"chips": [_chip(row) for row in reversed(shown)]})


def _chip(row: Mapping[str, Any]) -> dict[str, str]:
    about = [row["subproblem_ids"] or "", f"→ {row['candidate_id']}" if row["candidate_id"] else ""]
    return {
        "id": row["command_id"],
        "status": row["status"],
        "what": " ".join([row["kind"], *filter(None, about)]),
        "detail": _detail(row),
    }


def _detail(row: Mapping[str, Any]) -> str:
    told = row["detail"] or ""
    where = f"applied at iteration {row['iteration']}"
    return {
        "queued": "queued: the engine has not read it yet",
        "accepted": f"accepted: {told}",
        "applied": f"{where}: {told}" if told else where,
        "refused": f"refused: {told}",
        "withdrawn": "withdrawn",
    }[row["status"]]
