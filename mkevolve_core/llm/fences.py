"""Fenced blocks of a reply, found line by line: ``` or ~~~, nested, indented, unclosed, quoted."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace

from mkevolve_core.llm.python_text import Parsed, parse_tolerantly, trimmed

_FENCE = re.compile(r"(?P<lead>[ \t]*(?:(?:>|[-*+]|\d{1,3}[.)])[ \t]*)*)(?P<mark>`{3,}|~{3,})(?P<info>.*)\Z")
_GLUED_OPEN = re.compile(r"[^`]+(?P<mark>```)(?P<info>python3?|py|triton|json)[ \t]*\Z")
_GLUED_CLOSE = re.compile(r"(?P<code>[^`]+)```[ \t]*\Z")
_FIRST_LINE = re.compile(r"(?:(?:python3?|py)[ \t]+)?(?P<code>(?:import|from)[ \t]+\w.*)\Z")
_STRING = re.compile(r"#[^\n]*|\"\"\"|'''|\"(?:\\.|[^\"\\\n])*\"?|'(?:\\.|[^'\\\n])*'?|\\.")
_FOREIGN = re.compile(
    r"bash|sh|shell|console|zsh|te?xt|plain|plaintext|output|log|jsonc?|ya?ml|toml|ini|xml|html|diff|patch"
    r"|c|cpp|c\+\+|cuda?|markdown|md|mermaid|latex|tex|makefile|dockerfile|csv"
)
_MOST = 2_000  # lines with a fence; a reply that means well has a few dozen
_DEPTH = 3  # of blocks in blocks
_LOOKED_AT = 2_000_000  # characters of fences in docstrings, for one reply


@dataclass(frozen=True, slots=True)
class Fence:
    line: int
    mark: str
    info: str
    lead: str = ""
    glued: bool = False  # behind prose: "Here it is:```python"; opens a block, never ends one

    def closes(self, opening: Fence) -> bool:
        """As in CommonMark: the same character, at least as long, and nothing after it."""
        return not self.info and self.mark[0] == opening.mark[0] and len(self.mark) >= len(opening.mark)

    def interrupts(self, opening: Fence) -> bool:
        """A new block where the one before was never closed."""
        return (
            bool(self.info)
            and not self.glued
            and self.mark[0] == opening.mark[0]
            and len(self.mark) >= len(opening.mark)
        )


@dataclass(frozen=True, slots=True)
class Block:
    """Lines `first` to before `end` of the reply; `parsed` is its Python, dedented."""

    info: str
    first: int
    end: int
    closed: bool
    parsed: Parsed

    @property
    def text(self) -> str:
        return self.parsed.text

    @property
    def tag(self) -> str:
        return re.split(r"[\s:{]", self.info.strip().lower(), maxsplit=1)[0]

    @property
    def foreign(self) -> bool:
        """Says of itself that it is something other than Python."""
        return _FOREIGN.fullmatch(self.tag) is not None


class Scanner:
    """One pass over a reply. Blocks are parsed once, or a few times where one stands in another."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        fences = [fence for n, line in enumerate(self.lines) if (fence := _fence(n, line))]
        self._fences = fences[-_MOST:]
        self._budget = _LOOKED_AT

    def blocks(self) -> tuple[Block, ...]:
        return tuple(self._within(0, len(self._fences), depth=0))

    def _within(self, at: int, limit: int, depth: int) -> Iterator[Block]:
        """Blocks opened by the fences `at` to before `limit`; a wrapper's own blocks take its place."""
        while at < limit:
            block, following = self._block(at, limit)
            inner = [i for i in range(at + 1, following) if self._fences[i].line < block.end]
            if inner and block.parsed.tree is None and (block.foreign or not block.tag) and depth < _DEPTH:
                yield from self._within(inner[0], inner[-1] + 1, depth + 1)
            else:
                yield block
            at = following

    def between(self) -> tuple[str, ...]:
        """What stands between any two lines with a fence: for replies whose fences do not pair up."""
        edges = [-1, *(fence.line for fence in self._fences), len(self.lines)]
        return tuple("\n".join(self.lines[a + 1 : b]) for a, b in zip(edges, edges[1:], strict=False))

    def _block(self, at: int, limit: int) -> tuple[Block, int]:
        """The block that the fence at `at` opens, and the index of the fence to go on with."""
        opening = self._fences[at]
        stop = next((i for i in range(at + 1, limit) if self._ends(i, opening)), None)
        block = self._cut(opening, stop, limit)
        if block.parsed.tree is None and stop is not None and not block.foreign:
            further = self._outside_strings(opening, stop, limit)
            longer = self._cut(opening, further, limit) if further is not None else block
            if longer.parsed.tree is not None:
                block, stop = longer, further
        if block.parsed.tree is None:
            block = _salvaged(block)
        if stop is None:
            return block, limit
        return block, stop + (1 if self._fences[stop].closes(opening) else 0)

    def _ends(self, i: int, opening: Fence) -> bool:
        return self._fences[i].closes(opening) or self._fences[i].interrupts(opening)

    def _cut(self, opening: Fence, stop: int | None, limit: int) -> Block:
        first = opening.line + 1
        edge = self._fences[limit].line if limit < len(self._fences) else len(self.lines)
        end = self._fences[stop].line if stop is not None else edge
        closed = stop is not None and self._fences[stop].closes(opening)
        body = _unindented(self.lines[first:end], opening.lead)
        if code := _FIRST_LINE.match(opening.info):
            body = f"{code['code']}\n{body}"
        return Block(opening.info, first, end, closed, parse_tolerantly(body))

    def _outside_strings(self, opening: Fence, stop: int, limit: int) -> int | None:
        """The first fence from `stop` on that stands in no text in triple quotes."""
        quote, line = "", opening.line + 1
        for i in range(stop, limit):
            until = self._fences[i].line
            chunk = "\n".join(self.lines[line:until])
            self._budget -= len(chunk) + 100
            if self._budget < 0:
                return None
            quote, line = _open_quote(chunk, quote), until
            if not quote and self._ends(i, opening):
                return i if i > stop else None
        return None


def _salvaged(block: Block) -> Block:
    """A closing fence at the end of a line of code, or none at all and then prose."""
    lines = block.text.split("\n")
    n, glued = next(((n, g) for n, line in enumerate(lines) if (g := _GLUED_CLOSE.match(line))), (0, None))
    if glued:
        parsed = parse_tolerantly("\n".join([*lines[:n], glued["code"].rstrip()]))
        if parsed.tree is not None:
            return replace(block, parsed=parsed, closed=True)
    if not block.closed and not block.foreign:
        parsed = trimmed(block.text)
        if parsed.tree is not None:
            return replace(block, parsed=parsed)
    return block


def _fence(number: int, line: str) -> Fence | None:
    if "```" not in line and "~~~" not in line:
        return None
    found = _FENCE.match(line)
    if found and not (found["mark"][0] == "`" and "`" in found["info"]):
        return Fence(number, found["mark"], found["info"].strip(), found["lead"])
    glued = _GLUED_OPEN.match(line)
    return Fence(number, glued["mark"], glued["info"], glued=True) if glued else None


def _unindented(lines: list[str], lead: str) -> str:
    if ">" in lead:
        lines = [re.sub(r"^[ \t]*(?:>[ \t]?)+", "", line) for line in lines]
    width = len(lead)
    if width and ">" not in lead:
        lines = [line[min(width, len(line) - len(line.lstrip(" \t"))) :] for line in lines]
    text = "\n".join(lines)
    first = next((line for line in lines if line.strip()), "")
    return textwrap.dedent(text) if first[:1].isspace() else text


def _open_quote(chunk: str, quote: str) -> str:
    """The triple quote that is open after `chunk`, if `quote` was open before it."""
    position = 0
    while True:
        if quote:
            end = chunk.find(quote, position)
            while end > 0 and chunk[end - 1] == "\\":
                end = chunk.find(quote, end + 1)
            if end < 0:
                return quote
            quote, position = "", end + 3
        found = next((m for m in _STRING.finditer(chunk, position) if m[0] in ('"""', "'''")), None)
        if found is None:
            return ""
        quote, position = found[0], found.end()
