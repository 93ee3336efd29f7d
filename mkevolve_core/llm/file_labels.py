"""Which text of a reply belongs to which path, in whatever style a model marks its files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import takewhile

from mkevolve_core.llm.fences import Block, Scanner
from mkevolve_core.llm.python_text import Parsed, parse_tolerantly, trimmed

TOP = "decomposed_problem.py"
FOLDER = "subkernel_problems"
_LONGEST = 300  # characters of a line that may name a file
_MARK_OPEN = re.compile(
    r"\s*(?:<<<\s*FILE\b[\s:=]*(?P<a>[^\s>]+)[^>]*(?:>>>)?"
    r"|<file\b[^>]*?\b(?:path|name|filename)\s*=\s*[\"']?(?P<b>[^\"'>\s]+)[\"']?[^>]*>)\s*\Z",
    re.IGNORECASE,
)
_MARK_CLOSE = re.compile(
    r"\s*(?:</file>|<<<\s*(?:END|/FILE)\b.*|(?:.*\s)?(?:END[ _])?FILE>>>|>>>)\s*\Z", re.IGNORECASE
)
_EXPLICIT = re.compile(
    r"[\s#>*_\-`\d.)]*\bfile\s*(?:name|path)?\s*[:=]\s*[`*\"']*\s*(?P<path>.+)\Z", re.IGNORECASE
)
_IN_BLOCK = re.compile(
    r"#+[ \t]*(?:(?:file|path)[ \t]*:[ \t]*|[=\-]{3,}[ \t]*)?"
    r"`?(?P<path>[^\s`]+\.py)`?[ \t]*(?:[=\-]{3,})?[ \t]*\Z",
    re.IGNORECASE,
)
_PATH = re.compile(r"[^\s`'\"*<>()\[\]{},;=|]+\.py(?![\w.])")
_PREFIX = re.compile(r"\A(?:python3?|py|file|path|filename|title):", re.IGNORECASE)
LISTING = re.compile(r"[\s*>`#-]*FILES[\s*`]*:(?P<paths>.*)\Z")


@dataclass(frozen=True, slots=True)
class Labelled:
    """A text under the path that the reply gives it, unchecked; `explicit`: called a file, not only named."""

    path: str
    parsed: Parsed
    closed: bool
    explicit: bool


@dataclass(frozen=True, slots=True)
class Labelling:
    """`listing`: the paths of the FILES line behind the last file, if any; `after`: what follows it."""

    files: tuple[Labelled, ...]
    listing: tuple[str, ...] | None
    after: str


def labelled(shown: str) -> Labelling:
    scanner = Scanner(_with_fences(shown))
    found: list[Labelled] = []
    previous, end = 0, 0
    for block in scanner.blocks():
        parts = _of_block(block, scanner.lines[previous : block.first - 1])
        previous = block.end + (1 if block.closed else 0)
        if parts:
            found += parts
            end = block.end
    if not found:
        found = _unfenced(shown)
    return Labelling(tuple(found), *_listing(scanner.lines, end))


def _with_fences(shown: str) -> str:
    """`<<<FILE x>>>` and `<file path="x">` rewritten as a heading and a fence."""
    lines, open_mark = [], ""
    for line in shown.split("\n"):
        opened = _MARK_OPEN.match(line) if len(line) <= _LONGEST and "<" in line else None
        if opened or (open_mark and len(line) <= _LONGEST and ">" in line and _MARK_CLOSE.match(line)):
            lines += [open_mark] if open_mark else []
            open_mark = ""
        if opened:
            lines.append(f"### FILE: {opened['a'] or opened['b']}")
            open_mark = "?"
            continue
        if open_mark == "?" and line.strip():
            fenced = line.lstrip().startswith(("```", "~~~"))
            open_mark = "" if fenced else "~" * 12
            lines += [] if fenced else [f"{open_mark}python"]
        lines.append(line)
    return "\n".join(lines)


def _of_block(block: Block, before: list[str]) -> list[Labelled]:
    path, explicit = _label(block, before)
    several = _split(block)
    if several:
        return several
    if path is None or (block.foreign and not explicit):
        return []
    return [Labelled(path, _without_listing(block.parsed), block.closed, explicit)]


def _label(block: Block, before: list[str]) -> tuple[str | None, bool]:
    info = _paths(block.info)
    if info:
        return info[0], True
    heading = _heading(before)
    first = next((line for line in block.text.split("\n")[:5] if line.strip()), "")
    comment = _IN_BLOCK.match(first) if len(first) <= _LONGEST else None
    if heading[0] is None or (comment and not heading[1]):
        return (comment["path"], "file" in first.lower().split(":")[0]) if comment else heading
    return heading


def _heading(before: list[str]) -> tuple[str | None, bool]:
    """The nearest line above a block that names its file."""
    adjacent = True
    for line in reversed(before):
        if not line.strip() or len(line) > _LONGEST or LISTING.match(line):
            continue
        if explicit := _EXPLICIT.match(line):
            return _explicit_path(explicit["path"]), True
        paths = sorted(set(_paths(line)))
        if len(paths) == 1 and (
            _is_heading(line, paths[0]) or (adjacent and line.rstrip(" *`").endswith(":"))
        ):
            return paths[0], False
        adjacent = False
    return None, False


def _explicit_path(rest: str) -> str:
    found = _paths(rest)
    return found[0] if found else rest.split()[0].strip("`*\"':,")


def _is_heading(line: str, path: str) -> bool:
    bare = line.strip().lstrip("#*>-0123456789.) \t`").replace("`", "").replace("*", "").strip(" :")
    return line.lstrip().startswith(("#", "**", "`")) or bare == path.strip("`*")


def _paths(text: str) -> list[str]:
    return [_PREFIX.sub("", found) for found in _PATH.findall(text[:_LONGEST])]


def _split(block: Block) -> list[Labelled]:
    """Several files in one fence, each under a comment with its path."""
    return _at_labels(block.text.split("\n"), block.closed, trim=False)


def _unfenced(shown: str) -> list[Labelled]:
    lines = shown.split("\n")
    listed = next((n for n in range(len(lines) - 1, -1, -1) if LISTING.match(lines[n][:_LONGEST])), None)
    return _at_labels(lines[:listed], closed=listed is not None, trim=True)


def _at_labels(lines: list[str], closed: bool, trim: bool) -> list[Labelled]:
    """Texts between lines that are a path in a comment; one such line alone splits nothing, fenced."""
    marks = [
        (n, m["path"])
        for n, line in enumerate(lines)
        if len(line) <= _LONGEST and (m := _IN_BLOCK.match(line))
    ]
    if len(marks) < (1 if trim else 2) or (not trim and any(line.strip() for line in lines[: marks[0][0]])):
        return []
    ends = [*(n for n, _ in marks[1:]), len(lines)]
    found = []
    for (n, path), end in zip(marks, ends, strict=True):
        text = "\n".join(lines[n + 1 : end])
        parsed = trimmed(text) if trim else _without_listing(parse_tolerantly(text))
        found.append(Labelled(path, parsed, closed or end < len(lines), explicit=True))
    return found


def _without_listing(parsed: Parsed) -> Parsed:
    """A FILES line that slipped into the last fence is no code; alone it would even parse."""
    lines = parsed.text.rstrip().split("\n")
    last = len(lines) - 1
    if not re.match(r"FILES\s*:", lines[last][:_LONGEST]):
        return parsed
    return parse_tolerantly("\n".join(lines[:last]))


def _listing(lines: list[str], end: int) -> tuple[tuple[str, ...] | None, str]:
    """The paths of the last FILES line and of the lines right below it; and the text after them."""
    at = next((n for n in range(len(lines) - 1, -1, -1) if LISTING.match(lines[n][:_LONGEST])), None)
    if at is None or any(line.strip() for line in lines[at + 1 : end]):
        return None, ""
    paragraph = list(takewhile(str.strip, lines[at : at + 100]))
    paths = [path for line in paragraph for path in _paths(line)]
    return tuple(paths), "\n".join(lines[at + len(paragraph) :])
