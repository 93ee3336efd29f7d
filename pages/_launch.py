"""What a run would do, said before it starts; and Start, which starts one run however often it is pressed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import streamlit as st

from mkevolve_core import launch
from mkevolve_core.config import RunConfig, build_config
from mkevolve_core.domain import Problem
from mkevolve_core.errors import MKEvolveError
from mkevolve_core.llm.forecast import Range, RoleTotals, forecast
from mkevolve_core.llm.settings import LLMSettings
from mkevolve_core.llm.values import Role
from pages import _cache, _start
from pages._words import amount, count, dollars, plain, span
from pages._writers import Writers
from store.describe import describe_limits

_ID, _ERROR = "next_run", "start_error"
Chosen = tuple[Path, Problem] | None


def outlook(problem: Chosen, config: RunConfig, writers: Writers) -> None:
    """Calls, agents, device and time, in plain words."""
    st.subheader("What will happen", anchor=False)
    total = config.iterations * config.calls
    st.markdown(
        f"- **{total} kernel-writing calls** at most: {config.iterations} iterations × {config.calls}\n"
        f"- {_agents(writers)}\n"
        f"- {_revisions(config)}\n"
        f"- {_device(config)}\n"
        f"- {_time(problem, config)}"
    )
    if writers.settings is not None:
        _forecast(config, writers, writers.settings)


def _agents(writers: Writers) -> str:
    return {
        "built-in": "**Built-in agents** write them: deterministic, no key, no LLM, no cost",
        "llm": "**Language models** write them, review them, and decompose, split and fuse the problem",
        "mailbox": "**You, or any program,** write them: each call waits in the run's mailbox",
    }[writers.agents]


def _forecast(config: RunConfig, writers: Writers, settings: LLMSettings) -> None:
    """Calls, tokens and dollars as ranges, with what they rest on."""
    earlier = {Role(row["role"]): _took(row) for row in _cache.llm_earlier() if row["role"] in set(Role)}
    seen = forecast(config, settings, writers.prices, earlier)
    cost = (
        "unknown" if seen.dollars is None else f"{dollars(seen.dollars.low)} to {dollars(seen.dollars.high)}"
    )
    with st.container(border=True, key="forecast", gap="small"):
        st.markdown(
            f"**Forecast**: {_between(seen.calls)} calls in all · {_between(seen.input_tokens)} tokens in · "
            f"{_between(seen.output_tokens)} out · cost **{plain(cost)}**"
        )
        limits = f"Limits: {describe_limits(settings.limits)}."
        if writers.agents == "mailbox":
            st.caption(plain(f"What an answer costs is known only to whoever gives it. {limits}"))
            return
        st.caption(plain(f"From {seen.basis}. Caches make it cheaper. {limits}"))
        if seen.unknown:
            st.caption(plain(seen.unknown))


def _took(row: Mapping[str, Any]) -> RoleTotals:
    return RoleTotals(row["calls"], row["tokens_in"], row["tokens_out"])


def _between(found: Range) -> str:
    return amount(found.low) if found.low == found.high else f"{amount(found.low)} to {amount(found.high)}"


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


def start(problem: Chosen, preset: str, config: RunConfig, writers: Writers) -> None:
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
    busy = "A run is at work." if active and not beside else None
    refusal = "Choose a problem first." if problem is None else writers.refusal or busy
    pressed = st.button(
        "Start run",
        type="primary",
        icon=":material/play_arrow:",
        shortcut="N",
        disabled=refusal is not None,
        help=plain(refusal) if refusal else None,
        key="start",
        width="stretch",
    )
    if pressed and problem:
        _go(problem[0], preset, config, writers, beside)


def _go(path: Path, preset: str, config: RunConfig, writers: Writers, beside: bool) -> None:
    """Start, or find what another tab has started meanwhile, and open it."""
    _cache.look()
    other = next((run["run_id"] for run in _cache.runs() if run["active"]), None)
    try:
        run_id = other if other and not beside else _spawn(path, preset, config, writers)
    except MKEvolveError as error:
        st.session_state[_ERROR] = str(error)
        st.rerun()
    st.session_state.pop(_ERROR, None)
    _cache.look()
    st.switch_page(_start.LIVE, query_params={"run": run_id})


def _spawn(path: Path, preset: str, config: RunConfig, writers: Writers) -> str:
    known: tuple[Path, str] | None = st.session_state.get(_ID)
    if known is None or known[0] != path:
        known = st.session_state[_ID] = (path, launch.propose_run_id(path))
    base = asdict(build_config(preset))
    changes = {key: value for key, value in asdict(config).items() if value != base[key]}
    run_id = launch.start_run(
        _cache.desk().runs_dir,
        path,
        preset,
        changes,
        known[1],
        limits=writers.changed,
        llm_file=writers.file,
    )
    del st.session_state[_ID]
    return run_id
