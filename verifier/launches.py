"""What `counting` reports, as its readers need it: which launches are of the same compiled kernel."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

Entry = dict[str, Any]

_COMPILED_FROM = ("name", "file", "signature", "constants", "aligned", "num_warps", "num_stages", "options")


@dataclass(frozen=True, slots=True)
class KernelResources:
    """What one compiled kernel needs; registers and spilled bytes are those of one thread."""

    name: str
    registers: int | None
    spills: int | None
    shared_bytes: int


def is_launch(entry: Entry) -> bool:
    return entry.get("kind") == "launch" and bool(entry.get("completed"))


def launch_key(entry: Entry) -> str:
    """Equal for two launches that the same compiled kernel serves."""
    return json.dumps([entry.get(name) for name in _COMPILED_FROM], sort_keys=True)


def distinct_launches(entries: Iterable[Entry]) -> dict[str, Entry]:
    """The first completed launch of every compiled kernel, by its key."""
    found: dict[str, Entry] = {}
    for entry in entries:
        if is_launch(entry):
            found.setdefault(launch_key(entry), entry)
    return found


def torch_computes(entries: Iterable[Entry]) -> tuple[str, ...]:
    """What PyTorch computed beside the kernels, most frequent first: "aten.addmm.default (3 times)"."""
    counts: dict[str, int] = {}
    for entry in entries:
        if entry.get("kind") == "operation" and entry.get("compute"):
            counts[str(entry["name"])] = counts.get(str(entry["name"]), 0) + 1
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(name if count == 1 else f"{name} ({count} times)" for name, count in ordered)


def path_within(file: str, paths: Iterable[str]) -> str | None:
    """The candidate's path that a file on disk was written from: the longest that ends it."""
    parts = PurePosixPath(file).parts
    fitting = [
        path for path in paths if parts[-len(PurePosixPath(path).parts) :] == PurePosixPath(path).parts
    ]
    return max(fitting, key=len, default=None)
