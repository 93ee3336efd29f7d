"""Artifacts: texts (sources, prompts, replies) kept under the sha256 of their bytes."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from mkevolve_core.atomic import write_atomically
from mkevolve_core.errors import JournalError

_SHA = re.compile(r"[0-9a-f]{64}")


def encode(text: str) -> bytes:
    """UTF-8; lone surrogates, which LLMs and compilers do emit, survive the round trip."""
    return text.encode("utf-8", "surrogatepass")


def sha_of(text: str) -> str:
    return hashlib.sha256(encode(text)).hexdigest()


class FileArtifacts:
    """One file a text, named by its sha and never changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, text: str) -> str:
        """Keep a text and return its sha256 (hex). Raises JournalError for a full or read-only disk."""
        sha = sha_of(text)
        path = self._folder / sha
        if path.exists():
            return sha
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, encode(text))
        except OSError as error:
            raise JournalError(f"Cannot write to {self._folder}: {error.strerror}.") from error
        return sha

    def get(self, sha: str) -> str:
        """Raises KeyError for a sha that was never put, JournalError for a text that is no longer its own."""
        if not _SHA.fullmatch(sha):
            raise KeyError(sha)
        try:
            content = (self._folder / sha).read_bytes()
        except FileNotFoundError:
            raise KeyError(sha) from None
        if hashlib.sha256(content).hexdigest() != sha:
            raise JournalError(f"The artifact {self._folder / sha} was changed: its sha256 is another.")
        return content.decode("utf-8", "surrogatepass")


class MemoryArtifacts:
    """The same contract without files."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def put(self, text: str) -> str:
        sha = sha_of(text)
        self._texts[sha] = text
        return sha

    def get(self, sha: str) -> str:
        return self._texts[sha]
