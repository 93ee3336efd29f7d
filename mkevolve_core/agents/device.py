"""What a prompt says of the machine: lines of a mapping that the judge's facts fill."""

from __future__ import annotations

from collections.abc import Mapping

FUNCTIONS = "triton.language"  # this key's value: the names of its functions, separated by spaces


def device_lines(hardware: Mapping[str, str]) -> tuple[str, ...]:
    """One line a fact, in the mapping's order."""
    return tuple(f"{name}: {value}" for name, value in hardware.items() if name != FUNCTIONS and value)


def functions(hardware: Mapping[str, str]) -> tuple[str, ...]:
    """What the installed `triton.language` offers; empty where that is not known."""
    return tuple(hardware.get(FUNCTIONS, "").split())
