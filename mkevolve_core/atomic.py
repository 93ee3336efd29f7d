"""Writing a file so that readers see all of it or none: under another name, synced, then renamed."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def renamed_at_end(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`: it becomes `path` if nothing is raised, and is removed otherwise."""
    temporary = path.with_name(f".{path.name[:80]}.{secrets.token_hex(4)}")
    try:
        yield temporary
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def write_atomically(path: Path, content: bytes) -> None:
    """Raises OSError; then `path` is as it was."""
    with renamed_at_end(path) as temporary, temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
