"""Choosing a problem: a sample, a file, pasted text or a path, each with what reading it found."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from mkevolve_core.domain import Problem
from mkevolve_core.errors import ProblemError
from mkevolve_core.problem import read_problem
from pages import _cache
from pages._words import count, plain, title

_WAYS = ("Sample", "Upload", "Paste", "Path")
_MARKS = ("Model", "get_inputs", "get_init_inputs")


def choose() -> tuple[Path, Problem] | None:
    """The chosen problem and its file; None while there is none, with the reason beside the field."""
    way = st.segmented_control(
        "From", _WAYS, default="Sample", required=True, key="way", label_visibility="collapsed"
    )
    try:
        path = {"Sample": _sample, "Upload": _upload, "Paste": _paste, "Path": _path}[way or "Sample"]()
        if path is None:
            return None
        problem = read_problem(path)
    except ProblemError as error:
        st.error(plain(error), icon=":material/error:")
        return None
    _found(problem)
    return path, problem


def _found(problem: Problem) -> None:
    lines = problem.source.count("\n") + 1
    marks = [f"✓ {plain(name)}" for name in _MARKS]
    st.markdown(" · ".join([*marks, count(lines, "line")]))
    st.caption("Read, not run: the run itself starts by running it once, in the sandbox.")
    with st.expander("Source"):
        st.code(problem.source, language="python", line_numbers=True, height=360)


def _sample() -> Path | None:
    names = _cache.samples()
    chosen = st.selectbox(
        "Sample problem",
        list(names),
        format_func=title,
        key="sample",
    )
    return names[chosen] if chosen else None


def _upload() -> Path | None:
    given = st.file_uploader("A Python file in KernelBench's format", type="py", key="upload")
    return _cache.keep_problem(Path(given.name).stem, given.getvalue()) if given else None


def _paste() -> Path | None:
    name = st.text_input("Name", "pasted_problem", key="paste_name", width=280)
    text = st.text_area(
        "Source", height=260, key="paste", placeholder="class Model(nn.Module): ...\n\ndef get_inputs(): ..."
    )
    if not (text or "").strip():
        st.caption(f"It needs {', '.join(_MARKS)}.")
        return None
    return _cache.keep_problem(name or "pasted_problem", (text or "").encode("utf-8", "replace"))


def _path() -> Path | None:
    given = st.text_input(
        "Path on this machine", key="path", placeholder="/home/me/KernelBench/level3/32_ConvViT.py"
    )
    return Path(given).expanduser() if given else None
