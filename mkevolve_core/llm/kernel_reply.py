"""The one block of a reply that is the kernel: never a sketch, a usage example, or the parent again."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from mkevolve_core.llm.fences import Block, Scanner
from mkevolve_core.llm.json_reply import objects
from mkevolve_core.llm.kernel_contract import lacking
from mkevolve_core.llm.outcomes import CUT, Extracted, Outcome, stopped
from mkevolve_core.llm.python_text import Parsed, fingerprint, parse, parse_tolerantly, trimmed
from mkevolve_core.llm.values import Stop
from mkevolve_core.llm.visible import visible

_MODEL = re.compile(r"^[ \t]*class[ \t]+ModelNew\b", re.MULTILINE)
_CODE = re.compile(r"^(?:class|def|@)[ \t]*\w", re.MULTILINE)
_DIFF = re.compile(r"^(?:@@ .*@@|\+\+\+ \S|[+-] *(?:class|def|import|from|@) ?\w)", re.MULTILINE)
_REFUSES = re.compile(
    r"\W*(?:I['’]m sorry|sorry,|I apologi[sz]e"
    r"|I can(?:['’]t|not| not) (?:help|assist|do|provide|comply|write)"
    r"|I (?:won['’]t|will not|am unable|['’]m unable|must decline)|I['’]m (?:not able|unable)|As an AI)",
    re.IGNORECASE,
)
_FUTURE = re.compile(r"^from __future__ import .*\n?", re.MULTILINE)
_SEGMENTS = 40  # unfenced pieces that are looked at


@dataclass(frozen=True, slots=True)
class _Found:
    """Python from somewhere in the reply; `block` counts from 1."""

    parsed: Parsed
    block: int | None = None


class _Reply:
    def __init__(self, shown: str, unlike: tuple[str, ...]) -> None:
        self.shown = shown
        self.scanner = Scanner(shown)
        self.blocks = self.scanner.blocks()
        self._known = frozenset(fingerprint(source) for source in unlike if source.strip())

    def is_known(self, parsed: Parsed) -> bool:
        return bool(self._known) and fingerprint(parsed.text) in self._known

    def fenced(self) -> Iterator[_Found]:
        """From the last block to the first."""
        for n in range(len(self.blocks), 0, -1):
            yield _Found(self.blocks[n - 1].parsed, n)

    def elsewhere(self) -> Iterator[_Found]:
        """Where no block will do: wrapped in JSON, spread over blocks, unfenced."""
        yield from (_Found(parsed) for parsed in _in_json(self.shown))
        yield _Found(self._joined())
        yield from self.unfenced()

    def unfenced(self) -> Iterator[_Found]:
        pieces = [piece for piece in self.scanner.between() if _MODEL.search(piece)]
        yield from (_Found(trimmed(piece)) for piece in reversed(pieces[-_SEGMENTS:]))

    def _joined(self) -> Parsed:
        parts = [b.text for b in self.blocks if _is_material(b.parsed.tree) and not self.is_known(b.parsed)]
        return parse(_concatenated(parts))

    def broken_kernel(self, chosen: Block) -> Parsed | None:
        """`chosen` has ModelNew alone, and the block that should hold the kernel is not Python."""
        parts = [b for b in self.blocks if b is chosen or _is_broken(b) and "jit" in b.text]
        return parse(_concatenated([b.text for b in parts])) if len(parts) > 1 else None


def extract_kernel(text: str, stop: Stop, unlike: tuple[str, ...] = ()) -> Extracted:
    """The last complete kernel of a reply that is none of the sources in `unlike`. Never raises."""
    shown = visible(text)
    if early := stopped(shown, stop):
        return Extracted(early[0], detail=early[1])
    reply = _Reply(shown, unlike)
    if stop is not Stop.END:
        return _of_cut(reply, stop)
    return _fitting(reply) or _unfit(reply)


def _of_cut(reply: _Reply, stop: Stop) -> Extracted:
    """A cut reply counts only where its last block is whole: what was cut may have taken it back."""
    last = next((n for n in range(len(reply.blocks), 0, -1) if not reply.blocks[n - 1].foreign), 0)
    dangling = reply.shown.rstrip().rsplit("\n", 1)[-1].strip() in ("`", "``", "~", "~~")
    if last and not dangling and reply.blocks[last - 1].closed:
        found = _Found(reply.blocks[last - 1].parsed, last)
        if _fits(found.parsed) and not reply.is_known(found.parsed):
            return _ok(reply, found)
    if stop is Stop.LENGTH or reply.blocks:
        return Extracted(Outcome.TRUNCATED, detail=CUT, blocks=len(reply.blocks))
    return Extracted(
        Outcome.NOCODE, detail="The reply ended with something other than an answer; give the code."
    )


def _fitting(reply: _Reply) -> Extracted | None:
    """The last that satisfies the contract and is no old source."""
    repeated = False
    for found in chain(reply.fenced(), reply.elsewhere()):
        if _fits(found.parsed):
            if not reply.is_known(found.parsed):
                return _ok(reply, found)
            repeated = True
    return _no_change(reply) if repeated else None


def _unfit(reply: _Reply) -> Extracted:
    n = _best(reply.blocks)
    if n is not None and not (reply.blocks[n - 1].parsed.tree is None and _is_diff(reply.blocks[n - 1])):
        return _judged(reply, _Found(reply.blocks[n - 1].parsed, n))
    unfenced = next(reply.unfenced(), None)
    if unfenced is not None and not reply.blocks:
        return _judged(reply, unfenced)
    if any(map(_is_diff, reply.blocks)) or _DIFF.search(reply.shown):
        return _nothing(reply, "The reply is a diff; give the whole file.")
    if _REFUSES.match(reply.shown):
        return Extracted(Outcome.REFUSAL, detail="The reply is a refusal.", blocks=len(reply.blocks))
    return _nothing(reply, "The reply holds no Python code that defines ModelNew.")


def _judged(reply: _Reply, found: _Found) -> Extracted:
    """A text that is no candidate yet, and why."""
    tree = found.parsed.tree
    if reply.is_known(found.parsed):
        return _no_change(reply)
    problem = lacking(tree) if tree is not None else None
    if problem and "jit" in problem and found.block:
        broken = reply.broken_kernel(reply.blocks[found.block - 1])
        found = _Found(broken) if broken else found
    code = _whole(found.parsed.text)
    if found.parsed.tree is None:
        detail = f"The code is not Python: {found.parsed.error}."
        return Extracted(Outcome.SYNTAX, code, detail, found.block, len(reply.blocks))
    return Extracted(Outcome.CONTRACT, code, f"The code {problem}.", found.block, len(reply.blocks))


def _best(blocks: tuple[Block, ...]) -> int | None:
    """The block that comes nearest, counted from 1."""
    for pattern in (_MODEL, _CODE):
        for n in range(len(blocks), 0, -1):
            if not blocks[n - 1].foreign and pattern.search(blocks[n - 1].text):
                return n
    return None


def _fits(parsed: Parsed) -> bool:
    if parsed.tree is None or "ModelNew" not in parsed.text or "jit" not in parsed.text:
        return False
    return lacking(parsed.tree) is None


def _ok(reply: _Reply, found: _Found) -> Extracted:
    return Extracted(Outcome.OK, _whole(found.parsed.text), "", found.block, len(reply.blocks))


def _no_change(reply: _Reply) -> Extracted:
    detail = "The reply repeats code that it was given, unchanged."
    return Extracted(Outcome.NO_CHANGE, detail=detail, blocks=len(reply.blocks))


def _nothing(reply: _Reply, detail: str) -> Extracted:
    return Extracted(Outcome.NOCODE, detail=detail, blocks=len(reply.blocks))


def _is_diff(block: Block) -> bool:
    return block.tag in ("diff", "patch") or (block.parsed.tree is None and bool(_DIFF.search(block.text)))


def _is_broken(block: Block) -> bool:
    return block.parsed.tree is None and not block.foreign and bool(_CODE.search(block.text))


def _is_material(tree: ast.Module | None) -> bool:
    """Definitions, or imports and constants for them; not an example of use."""
    if tree is None or not tree.body:
        return False
    if any(isinstance(node, ast.ClassDef | ast.FunctionDef) for node in tree.body):
        return True
    plain = all(isinstance(node, ast.Import | ast.ImportFrom | ast.Assign) for node in tree.body)
    return plain and not any(isinstance(n, ast.Name) and n.id == "ModelNew" for n in ast.walk(tree))


def _concatenated(parts: list[str]) -> str:
    future = sorted({line.strip() for part in parts for line in _FUTURE.findall(part)})
    return "\n".join([*future, *(_FUTURE.sub("", part).strip("\n") + "\n" for part in parts)])


def _in_json(shown: str) -> Iterator[Parsed]:
    """Code in a string of a JSON object, as a model writes it that takes the answer for a tool call."""
    if "ModelNew" not in shown or "{" not in shown:
        return
    for value, _ in objects(shown):
        for text in _strings(value, 0):
            if _MODEL.search(text):
                blocks = [b.parsed for b in Scanner(visible(text)).blocks()]
                yield from (*reversed(blocks), parse_tolerantly(text))


def _strings(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list) and depth < 5:
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item, depth + 1)


def _whole(text: str) -> str:
    return text.strip("\n") + "\n"
