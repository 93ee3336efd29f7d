"""The runs that come with MKEvolve, recorded for those who want to watch one first: `recorded/index.toml`.

[[recording]]
name = "convvit"                    # as in `mkevolve replay convvit`
file = "convvit.tar.gz"             # a packed run, beside the index
title = "Convolutional vision transformer, three iterations"
calls = 24                          # kernel-writing
device = "NVIDIA H200"              # where it was measured
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from mkevolve_core.errors import ConfigError

SHIPPED = Path(__file__).with_name("recorded")


@dataclass(frozen=True, slots=True)
class Recording:
    name: str
    path: Path  # a packed run
    title: str
    calls: int  # kernel-writing
    device: str  # where its times were measured


def recordings(folder: Path = SHIPPED) -> tuple[Recording, ...]:
    """In the order of the index, those whose file is there. Raises ConfigError for a damaged index."""
    index = folder / "index.toml"
    try:
        entries = tomllib.loads(index.read_text()).get("recording", [])
        found = [
            Recording(one["name"], folder / one["file"], one["title"], int(one["calls"]), one["device"])
            for one in entries
        ]
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{index} cannot be used: {error!r}; lay the checkout out again.") from None
    return tuple(one for one in found if one.path.is_file())
