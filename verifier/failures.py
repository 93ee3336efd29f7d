"""Exceptions of hostile code in words: of which kind, the last useful line, and where in the hostile file."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mkevolve_core.protocols import JobFailed

_MAX_DETAIL = 600

_COMPILE_ERRORS = frozenset(
    {"CompilationError", "CompileTimeAssertionFailure", "UnsupportedLanguageConstruct"}
)
_RESOURCE_ERRORS = frozenset({"OutOfResources", "PTXASError"})
# The interpreter runs the kernel as Python: what would not have compiled shows as one of these.
_KERNEL_ERRORS = (AttributeError, TypeError, NameError, ValueError, AssertionError, NotImplementedError)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a hostile file, its path relative to the job's folder."""

    file: str
    number: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.number}" + (f": {self.text}" if self.text else "")


def as_job_failed(error: BaseException, folder: Path, kind: str) -> JobFailed:
    """The kind is sharpened where the exception tells: "memory", "compile", "import" for syntax errors."""
    line = line_in(error, folder)
    message = _message(error) + (f" ({line})" if line else "")
    return JobFailed(_kind(error, kind), message[:_MAX_DETAIL])


def line_in(error: BaseException, folder: Path) -> Line | None:
    """The innermost line of a file below the folder that the exception or its causes passed through."""
    if isinstance(error, SyntaxError) and error.filename and _is_below(error.filename, folder):
        return _line(error.filename, error.lineno or 0, (error.text or "").strip(), folder)
    compiled = _compiled_line(error, folder)
    if compiled:
        return compiled
    for link in _deepest_first(error):
        for frame in reversed(traceback.extract_tb(link.__traceback__)):
            if _is_below(frame.filename, folder):
                return _line(frame.filename, frame.lineno or 0, frame.line or "", folder)
    return None


def _deepest_first(error: BaseException) -> list[BaseException]:
    return list(_chain(error))[::-1]


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception and what it was explicitly raised from."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__


def _compiled_line(error: BaseException, folder: Path) -> Line | None:
    """Triton counts lines from the kernel's first: find that in the files to name the file's own line."""
    link = next((link for link in _deepest_first(error) if _name(link) in _COMPILE_ERRORS), None)
    source, offset = getattr(link, "src", None), getattr(getattr(link, "node", None), "lineno", None)
    if not isinstance(source, str) or not isinstance(offset, int):
        return None
    text = source.splitlines()[offset - 1].strip() if 0 < offset <= len(source.splitlines()) else ""
    for path in sorted(folder.rglob("*.py")):
        before, found, _ = path.read_text(errors="replace").partition(source.strip())
        if found:
            return _line(str(path), before.count("\n") + offset, text, folder)
    return None


def _is_below(filename: str, folder: Path) -> bool:
    """Below the job's folder, or executed from text that was registered under a name like `<problem>`."""
    return Path(filename).is_relative_to(folder) or _registered_name(filename) is not None


def _registered_name(filename: str) -> str | None:
    found = re.fullmatch(r"<([\w.]+)>", filename)
    return found[1] if found and found[1] not in ("string", "stdin") else None


def _line(filename: str, number: int, text: str, folder: Path) -> Line:
    registered = _registered_name(filename)
    if registered:
        return Line(f"{registered}.py", number, text)
    relative = Path(filename).relative_to(folder)
    return Line(
        Path(*relative.parts[1:]).as_posix() if len(relative.parts) > 1 else relative.name, number, text
    )


def _name(error: BaseException) -> str:
    return type(error).__name__


def _message(error: BaseException) -> str:
    """The last line that says something; the interpreter's wrapper gives way to what it wraps."""
    causes = _deepest_first(error)
    if _name(error) == "InterpreterError" and len(causes) > 1:
        return _message(causes[0])
    if _name(error) in _COMPILE_ERRORS:
        error = next(link for link in causes if _name(link) in _COMPILE_ERRORS)
        text = str(getattr(error, "error_message", None) or error).strip().splitlines()[-1]
    elif isinstance(error, SyntaxError):
        text = error.msg
    else:
        text = next((line.strip() for line in _text(error).splitlines() if line.strip()), "no message")
    return f"{_name(error)}: {text}"


def _text(error: BaseException) -> str:
    text = error.args[0] if len(error.args) == 1 and isinstance(error, KeyError) else None
    return f"no key {text!r}" if text is not None else str(error)


def _kind(error: BaseException, kind: str) -> str:
    links = _deepest_first(error)
    if any(_is_memory(link) for link in links):
        return "memory"
    if any(_name(link) in _COMPILE_ERRORS | _RESOURCE_ERRORS for link in links):
        return "compile"
    if _name(error) == "InterpreterError" and isinstance(links[0], _KERNEL_ERRORS):
        return "compile"
    if isinstance(error, SyntaxError):
        return "import"
    return kind


def _is_memory(error: BaseException) -> bool:
    text = str(error)
    words = ("can't allocate memory", "CUDA out of memory", "Cannot allocate memory", "Unable to allocate")
    return (
        isinstance(error, MemoryError) or _name(error) == "OutOfMemoryError" or any(w in text for w in words)
    )
