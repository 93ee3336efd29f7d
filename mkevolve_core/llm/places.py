"""Where the user's files lie: `mkevolve.toml` and `prices.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mkevolve_core.errors import ConfigError

NAME = "mkevolve.toml"


def user_folder(environment: Mapping[str, str]) -> Path:
    """`~/.config/mkevolve`, or where XDG_CONFIG_HOME says."""
    home = environment.get("HOME") or str(Path.home())
    return Path(environment.get("XDG_CONFIG_HOME") or Path(home) / ".config") / "mkevolve"


def find_file(environment: Mapping[str, str], cwd: Path | None = None) -> Path | None:
    """MKEVOLVE_CONFIG, else in the current folder, else in the user's. Raises ConfigError."""
    if named := environment.get("MKEVOLVE_CONFIG"):
        if not Path(named).is_file():
            raise ConfigError(f"MKEVOLVE_CONFIG names {named}, which is no file.")
        return Path(named)
    places = ((cwd or Path.cwd()) / NAME, user_folder(environment) / NAME)
    return next((path for path in places if path.is_file()), None)


def read_toml(path: Path) -> dict[str, Any]:
    """Raises ConfigError, which never quotes what the file says: it might be a key."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is no valid TOML: {error}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is no valid TOML: it is not UTF-8.") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
