"""The settings of a run as fields: a preset's values first, and what the engineer changed of them."""

from __future__ import annotations

from typing import Any

import streamlit as st

from mkevolve_core.config import RunConfig, build_config

_DEVICES = ("auto", "cuda:0", "cpu")


def told(config: RunConfig) -> str:
    """A preset in one sentence."""
    fuse = "fuses what is correct" if config.fuse else "does not fuse"
    swap = "swaps slow subkernels at the end" if config.swap else "swaps nothing at the end"
    every = "each iteration" if config.period == 1 else f"every {config.period} iterations"
    return (
        f"{config.iterations} iterations of {config.calls} calls; splits what fails {every}, {fuse}, {swap}."
    )


def fields(preset: str, agents: str) -> dict[str, Any]:
    """The changes against the preset; another preset brings its own values."""
    base = build_config(preset)
    found = {"agents": agents, **_main(preset, base)}
    found |= {} if agents == "built-in" else _asked(preset, base, agents)
    found |= _limits(preset, base)
    return {key: value for key, value in found.items() if value != getattr(base, key)}


def _main(preset: str, base: RunConfig) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        found["iterations"] = _whole(preset, base, "iterations", "Iterations")
        found["calls"] = _whole(preset, base, "calls", "Calls an iteration")
        found["period"] = _whole(preset, base, "period", "Revise every")
        found["width"] = _whole(preset, base, "width", "Beam width")
    with st.container(horizontal=True, gap="medium", vertical_alignment="center"):
        found["fuse"] = st.toggle(
            "Fuse", base.fuse, key=f"fuse {preset}", help="Fuse neighbours that are correct."
        )
        found["swap"] = st.toggle(
            "Swap at the end",
            base.swap,
            key=f"swap {preset}",
            help="Replace subkernels that are slower than this.",
        )
        if found["swap"]:
            found["swap_below"] = st.number_input(
                "below",
                0.0,
                10.0,
                base.swap_below,
                0.05,
                format="%.2f×",
                key=f"swap_below {preset}",
                width=130,
            )
    return found


def _asked(preset: str, base: RunConfig, agents: str) -> dict[str, Any]:
    """What only runs have that ask language models, or people in their place."""
    found: dict[str, Any] = {}
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        found["decompose"] = st.toggle(
            "Decompose",
            base.decompose,
            key=f"decompose {preset}",
            help="Off: the whole problem is one subproblem; beam search alone.",
        )
        found["workers"] = _whole(preset, base, "workers", "Decomposers")
        found["postfuse"] = _whole(preset, base, "postfuse", "Post-fuse tries")
        found["swap_calls"] = _whole(preset, base, "swap_calls", "Calls to swap")
        if agents == "mailbox":
            minutes = st.number_input(
                "Patience (minutes)", 0.0, None, base.patience / 60, 5.0, key=f"patience {preset}", width=150,
                help="So long all requests may wait; then the run parks, and goes on when it is resumed.",
            )  # fmt: skip
            found["patience"] = minutes * 60
    return found


def _limits(preset: str, base: RunConfig) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with st.expander("Device, limits and numerics"):
        with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
            found["device"] = st.selectbox("Device", _DEVICES, key=f"device {preset}", width=130)
            found["target"] = st.text_input(
                "Modelled as", base.target, key=f"target {preset}", width=130,
                help="Where there is no GPU: compiled for this target, and times are modelled for it.",
            )  # fmt: skip
            park = st.number_input(
                "Park after (minutes)",
                0.0,
                None,
                None,
                5.0,
                key=f"park {preset}",
                width=170,
                placeholder="never",
            )
            found["park_after"] = park * 60 if park else None
            found["candidate_seconds"] = float(_whole(preset, base, "candidate_seconds", "Limit (s)"))
        with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
            for key in ("atol", "rtol"):
                found[key] = st.number_input(
                    key, 0.0, None, getattr(base, key), format="%.1e", key=f"{key} {preset}", width=130
                )
            found["cases"] = _whole(preset, base, "cases", "Inputs")
            found["warmup"] = _whole(preset, base, "warmup", "Warm-up runs")
            found["repeats"] = _whole(preset, base, "repeats", "Timed runs")
            found["seed"] = _whole(preset, base, "seed", "Seed")
    return found


def _whole(preset: str, base: RunConfig, key: str, label: str) -> int:
    start = int(getattr(base, key))
    return int(st.number_input(label, 0, None, start, 1, key=f"{key} {preset}", width=130))
