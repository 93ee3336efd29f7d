"""Settings of a run: defaults, presets, `--set KEY=VALUE`, environment. The only reader of `os.environ`."""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mkevolve_core.domain import Policy, TimingMode
from mkevolve_core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Everything that decides what a run does. Defaults are the paper's (section 4, Appendix A)."""

    preset: str = "paper"
    iterations: int = 5  # T
    period: int = 2  # L: topology is revised when iteration % period == 0
    calls: int = 32  # kernel-writing calls an iteration
    width: int = 4  # beam width
    expansion: int = 1  # children of each member in one step
    fuse: bool = False
    swap: bool = False
    swap_below: float = 0.9  # tau
    agents: str = "built-in"  # or "llm": the roles of mkevolve.toml; or "mailbox": files, for anyone
    decompose: bool = True  # False: beam search on the whole module, no topology
    workers: int = 3  # decomposers side by side
    postfuse: int = 0  # tries to fuse the finished codebase into one file (the paper's variant: 24)
    swap_calls: int = 0  # of another model, for each slow subkernel; 0: PyTorch alone
    patience: float = 600.0  # seconds that all open requests may wait in a mailbox before the run parks
    seed: int = 0
    device: str = "auto"  # "auto", "cuda:0", "cpu"
    target: str = "cuda:90"  # compiled for, and modelled as, where there is no GPU
    atol: float = 1e-4
    rtol: float = 1e-4
    cases: int = 5
    warmup: int = 10
    repeats: int = 100
    candidate_seconds: float = 300.0
    memory_mb: int = 8192
    park_after: float | None = None  # seconds of wall clock, then the run parks

    def policy(self, timing: TimingMode = TimingMode.FULL) -> Policy:
        return Policy(
            atol=self.atol,
            rtol=self.rtol,
            cases=self.cases,
            timing=timing,
            warmup=self.warmup,
            repeats=self.repeats,
            device=self.device,
            target=self.target,
            seconds=self.candidate_seconds,
            memory_mb=self.memory_mb,
        )


PRESETS: Mapping[str, Mapping[str, Any]] = {
    "paper": {},
    "quick": {"iterations": 3, "calls": 8, "period": 1, "fuse": True},
}

AGENTS = ("built-in", "llm", "mailbox")

_LIMITS: Mapping[str, tuple[float, float]] = {
    "iterations": (1, 1000),
    "period": (1, 1000),
    "calls": (1, 100_000),
    "width": (1, 64),
    "expansion": (1, 16),
    "workers": (1, 16),
    "postfuse": (0, 1000),
    "swap_calls": (0, 1000),
    "patience": (0.0, 31_536_000.0),
    "swap_below": (0.0, 100.0),
    "cases": (1, 1000),
    "warmup": (0, 100_000),
    "repeats": (1, 100_000),
    "candidate_seconds": (1.0, 86_400.0),
    "memory_mb": (512, 10_000_000),
    "park_after": (0.0, 31_536_000.0),
    "atol": (0.0, 1e9),
    "rtol": (0.0, 1e9),
}


def build_config(preset: str = "paper", changes: Mapping[str, Any] | None = None) -> RunConfig:
    """Preset, then changes. Raises ConfigError for an unknown preset or key, or a value out of range."""
    if preset not in PRESETS:
        raise ConfigError(f"Unknown preset '{preset}': use one of {', '.join(PRESETS)}.")
    values = {**PRESETS[preset], **(changes or {}), "preset": preset}
    kinds = {field.name: str(field.type) for field in dataclasses.fields(RunConfig)}
    config = RunConfig(**{key: _checked(key, value, kinds) for key, value in values.items()})
    if config.agents not in AGENTS:
        raise ConfigError(f"Unknown agents '{config.agents}': use one of {', '.join(AGENTS)}.")
    return config


def parse_changes(pairs: Iterable[str]) -> dict[str, Any]:
    """`KEY=VALUE` strings, values in TOML's spelling (bare words are strings)."""
    changes: dict[str, Any] = {}
    for pair in pairs:
        key, sign, text = pair.partition("=")
        if not sign:
            raise ConfigError(f"'{pair}' is not KEY=VALUE: write for example iterations=3.")
        changes[key.strip()] = _toml_value(text.strip())
    return changes


def write_config(config: RunConfig, path: Path) -> None:
    """Flat TOML, one key a line; a key that is None is left out."""
    plain = dataclasses.asdict(config)
    lines = [f"{key} = {json.dumps(value)}" for key, value in plain.items() if value is not None]
    path.write_text("\n".join(lines) + "\n")


def read_config(path: Path) -> RunConfig:
    values = tomllib.loads(path.read_text())
    return build_config(values.pop("preset", "paper"), values)


def default_runs_dir() -> Path:
    """`MKEVOLVE_RUNS_DIR`, else `./runs`."""
    return Path(os.environ.get("MKEVOLVE_RUNS_DIR", "runs"))


def environment() -> Mapping[str, str]:
    """A copy, for those who look for keys and settings files in it."""
    return dict(os.environ)


def child_environment() -> dict[str, str]:
    """What an engine or a dashboard inherits: all of it. No job of the sandbox sees any of this."""
    return dict(os.environ)


def sandbox_environment() -> dict[str, str]:
    """The allow-list for the zygote and its children: no keys, no user settings."""
    keep = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "CC")
    return {name: os.environ[name] for name in keep if name in os.environ}


def answerer_environment() -> dict[str, str]:
    """For a command that answers requests: what a program needs to find itself and its settings; no keys."""
    keep = ("PATH", "HOME", "USER", "SHELL", "LANG", "LC_ALL", "TERM", "TMPDIR")
    return {name: os.environ[name] for name in keep if name in os.environ}


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _checked(key: str, value: Any, kinds: Mapping[str, str]) -> Any:
    if key not in kinds:
        close = difflib.get_close_matches(key, kinds, n=1)
        hint = f" Did you mean '{close[0]}'?" if close else f" Known: {', '.join(kinds)}."
        raise ConfigError(f"Unknown setting '{key}'.{hint}")
    kind = kinds[key].removesuffix(" | None")
    if kind == "float" and type(value) is int:
        value = float(value)
    if type(value).__name__ != kind and not (value is None and "None" in kinds[key]):
        raise ConfigError(f"{key} is {value!r}; it must be a {kind}.")
    low, high = _LIMITS.get(key, (float("-inf"), float("inf")))
    if isinstance(value, int | float) and not isinstance(value, bool) and not low <= value <= high:
        raise ConfigError(f"{key} is {value}; it must lie between {low} and {high}.")
    return value
