"""What a run would do, said before it starts; and Start, which starts one run however often it is pressed."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import streamlit as st

from mkevolve_core import launch
from mkevolve_core.config import RunConfig, build_config
from mkevolve_core.domain import Problem
from mkevolve_core.errors import MKEvolveError
from pages import _cache, _start
from pages._words import count, plain, span

_ID, _ERROR = "next_run", "start_error"
Chosen = tuple[Path, Problem] | None


def outlook(problem: Chosen, config: RunConfig) -> None:
    """Calls, agents, device and time, in plain words."""
    st.subheader("What will happen", anchor=False)
    total = config.iterations * config.calls
    st.markdown(
        f"- **{total} kernel-writing calls** at most: {config.iterations} iterations × {config.calls}\n"
        "- **Built-in agents** write them: deterministic, no key, no LLM, no cost\n"
        f"- {_revisions(config)}\n"
        f"- {_device(config)}\n"
        f"- {_time(problem, config)}"
    )


def _revisions(config: RunConfig) -> str:
    when = [str(t) for t in range(2, config.iterations + 1) if t % config.period == 0]
    fuse = "split, or fused if all are correct" if config.fuse else "split"
    if not when:
        return "The decomposition is not revised: the run is too short for it"
    return f"Before {_iterations(when)}, subproblems without a subkernel are {fuse}"


def _iterations(numbers: list[str]) -> str:
    *first, last = numbers
    return f"iterations {', '.join(first)} and {last}" if first else f"iteration {last}"


def _device(config: RunConfig) -> str:
    if config.device != "cpu" and _cache.has_gpu():
        return (
            f"Correctness and times are **measured on the GPU**, {config.repeats} runs against torch.compile"
        )
    target = plain(config.target)
    return (
        "**No GPU**: correctness in the Triton interpreter, then compiled for "
        f"{target}. Times are **estimates** from a model of it, never called speedups"
    )


def _time(problem: Chosen, config: RunConfig) -> str:
    name = problem[1].name if problem else None
    before = [
        run["minutes"] * 60
        for run in _cache.runs()
        if run["finished"] and run["problem"] == name and run["preset"] == config.preset
    ]
    if not before:
        return "No finished run of this problem with this preset says yet how long it takes"
    known = count(len(before), "finished run")
    return f"{span(min(before))} to {span(max(before))}, as {known} of it took"


# ------------------------------------------------------------------------------- start


def start(problem: Chosen, preset: str, config: RunConfig) -> None:
    """Its id is made before anything is spawned, so pressing twice finds the run that is there."""
    active = [run for run in _cache.runs() if run["active"]]
    beside = False
    if active:
        st.warning(
            f"Run {plain(active[0]['run_id'])} is at work here. Two at once disturb each other's times.",
            icon=":material/hourglass_top:",
        )
        if st.button("Open it", icon=":material/account_tree:", key="open_active"):
            st.switch_page(_start.LIVE, query_params={"run": active[0]["run_id"]})
        beside = st.checkbox("Start a second run beside it", key="beside")
    if st.session_state.get(_ERROR):
        st.error(plain(st.session_state[_ERROR]), icon=":material/error:")
    refusal = (
        "Choose a problem first."
        if problem is None
        else "A run is at work."
        if active and not beside
        else None
    )
    pressed = st.button(
        "Start run",
        type="primary",
        icon=":material/play_arrow:",
        shortcut="N",
        disabled=refusal is not None,
        help=refusal,
        key="start",
        width="stretch",
    )
    if pressed and problem:
        _go(problem[0], preset, config, beside)


def _go(path: Path, preset: str, config: RunConfig, beside: bool) -> None:
    """Start, or find what another tab has started meanwhile, and open it."""
    _cache.look()
    other = next((run["run_id"] for run in _cache.runs() if run["active"]), None)
    try:
        run_id = other if other and not beside else _spawn(path, preset, config)
    except MKEvolveError as error:
        st.session_state[_ERROR] = str(error)
        st.rerun()
    st.session_state.pop(_ERROR, None)
    _cache.look()
    st.switch_page(_start.LIVE, query_params={"run": run_id})


def _spawn(path: Path, preset: str, config: RunConfig) -> str:
    known: tuple[Path, str] | None = st.session_state.get(_ID)
    if known is None or known[0] != path:
        known = st.session_state[_ID] = (path, launch.propose_run_id(path))
    base = asdict(build_config(preset))
    changes = {key: value for key, value in asdict(config).items() if value != base[key]}
    run_id = launch.start_run(_cache.desk().runs_dir, path, preset, changes, known[1])
    del st.session_state[_ID]
    return run_id
