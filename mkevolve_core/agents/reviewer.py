"""The reviewer that asks an LLM after the static rules: is a correct candidate's work its own?"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mkevolve_core.agents import evidence
from mkevolve_core.agents.prompts import Prompts
from mkevolve_core.agents.reasking import Unusable, asked
from mkevolve_core.domain import Outcome, Review, Verdict
from mkevolve_core.errors import NoDraft
from mkevolve_core.llm.extract import extract_json
from mkevolve_core.llm.outcomes import Outcome as Extraction
from mkevolve_core.llm.values import Conversation, Expects, Reply, Request, Role
from mkevolve_core.protocols import ReviewerAgent, ReviewTask

_REASKS = 1
_NEAR = 2  # lines that a quote may be off
_LONGEST = 8  # lines that it may go over
_SHORTEST = 4  # characters of a quote that says something
_WORDS = 300  # characters
_TOO_LONG = "the file is too long to be read at once"
_VERDICTS = ("clean", "cheating", "unsure")


@dataclass(frozen=True, slots=True)
class Opinion:
    """What the LLM said, its evidence not checked yet."""

    verdict: str
    category: str
    evidence: tuple[tuple[int, str], ...]  # (line, quote)
    reason: str
    model: str


class LLMReviewer:
    """Implements `ReviewerAgent`. It can lower a verdict and leave one open; silence never clears."""

    def __init__(self, prompts: Prompts, static: ReviewerAgent) -> None:
        """`static` goes first: what it convicts is not asked about."""
        self._prompts = prompts
        self._static = static

    def review(self, task: ReviewTask) -> Conversation[Review]:
        """One call, and a re-ask where the reply is no opinion. Raises NoDraft where there is no reply: that
        says nothing of the candidate."""
        first = yield from self._static.review(task)
        if first.outcome is Outcome.CHEAT or _is_confirmed(first, task.verdict):
            return first
        request = self._request(task, first)
        try:
            opinion = yield from asked(self._prompts, request, read_opinion, most=_REASKS)
        except Unusable as unusable:
            if unusable.outcome == "failed":
                raise NoDraft(unusable.detail) from None
            why = _TOO_LONG if unusable.outcome == "context" else unusable.detail
            return Review(Outcome.REVIEW, f"no opinion: {_cut(why)}", unusable.model or "LLM")
        return weigh(opinion, task.source, first)

    def _request(self, task: ReviewTask, first: Review) -> Request:
        rendered = self._prompts.render(
            "review.j2",
            reference=task.reference,
            numbered=numbered(task.source),
            doubt=first.quote if first.outcome is Outcome.REVIEW else "",
            flags=evidence.flags(task.verdict),
        )
        return Request(
            slot=f"review {task.candidate_id} {task.round}",
            role=Role.REVIEW,
            system=rendered.system,
            context=rendered.context,
            task=rendered.task,
            template=rendered.template,
            expects=Expects.JSON,
            subproblem_id=_subproblem_of(task.candidate_id),
        )


def _is_confirmed(first: Review, verdict: Verdict) -> bool:
    """What was seen at run time is a fact that no reading of the source can clear; a doubt of rules on the
    syntax tree alone is not: they cannot tell a tensor from a number, an LLM that reads the file can."""
    seen = any("aten::" in flag or "aten." in flag for flag in verdict.flags)
    return first.outcome is Outcome.REVIEW and seen


def _subproblem_of(candidate_id: str) -> str | None:
    """None for what stands for the whole, such as a post-fused file."""
    name = candidate_id.rpartition("#")[0]
    return name if name[:1].isdigit() else None


def read_opinion(reply: Reply) -> Opinion:
    """Raises Unusable."""
    found = extract_json(reply.text, reply.stop)
    if found.outcome is not Extraction.OK or found.value is None:
        raise Unusable(found.outcome.value, found.detail)
    value = found.value
    verdict = str(value.get("verdict", "")).strip().lower()
    if verdict not in _VERDICTS:
        raise Unusable("contract", f'"verdict" must be one of {", ".join(_VERDICTS)}.')
    rows = value.get("evidence")
    return Opinion(
        verdict,
        _cut(str(value.get("category") or "")),
        tuple(_evidence(rows if isinstance(rows, list) else [])),
        _cut(str(value.get("reason") or "")),
        reply.model,
    )


def _evidence(rows: list[Any]) -> Iterator[tuple[int, str]]:
    for row in rows:
        if isinstance(row, dict) and isinstance(row.get("quote"), str):
            line = str(row.get("line", "")).strip()
            if line.isdecimal() and len(line) < 9:
                yield int(line), row["quote"]


def weigh(opinion: Opinion, source: str, first: Review) -> Review:
    """The opinion as a review: a charge needs a quote that is there, and a doubt goes with a reason only."""
    by, reason = opinion.model, opinion.reason
    if opinion.verdict == "cheating":
        proven = [row for row in opinion.evidence if is_quoted(source, *row)]
        if not proven:
            return Review(Outcome.REVIEW, f"charged without a quote that is in the code: {reason}", by)
        line, quote = proven[0]
        words = ": ".join(part for part in (opinion.category, reason) if part)
        return Review(Outcome.CHEAT, f"line {line}: {_cut(quote)} ({words})", by)
    if opinion.verdict == "unsure":
        return Review(Outcome.REVIEW, reason or "it cannot tell", by)
    if first.outcome is Outcome.REVIEW and not reason:
        return Review(Outcome.REVIEW, first.quote, first.by)
    return Review(Outcome.CORRECT, reason if first.outcome is Outcome.REVIEW else "", by)


# -------------------------------------------------------------------------------------- quotes


def numbered(source: str) -> str:
    return "\n".join(f"{number:4}| {line}" for number, line in enumerate(_lines(source), 1))


def is_quoted(source: str, line: int, quote: str) -> bool:
    """Whether the quote begins on that line or next to it, as code; comments and docstrings are none."""
    wanted = _squeezed(_without_number(quote))
    if len(wanted) < _SHORTEST:
        return False
    code = _code(source)
    for start in range(max(1, line - _NEAR), line + _NEAR + 1):
        ahead = "".join(code.get(start + n, "") for n in range(_LONGEST))
        if 0 <= ahead.find(wanted) < len(code.get(start, "")):
            return True
    return False


def _lines(source: str) -> list[str]:
    """As Python counts them."""
    return source.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _code(source: str) -> dict[int, str]:
    """Line number to its text without white space, docstrings and comments."""
    lines = _lines(source)
    texts = dict(enumerate(lines, 1))
    try:
        for number in _docstring_lines("\n".join(lines)):
            texts[number] = ""
        for number, column in _comments("\n".join(lines)):
            texts[number] = texts[number][:column]
    except (SyntaxError, ValueError, RecursionError, tokenize.TokenError):
        pass  # what cannot be told apart counts as code
    return {number: _squeezed(text) for number, text in texts.items()}


def _docstring_lines(source: str) -> Iterator[int]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _comments(source: str) -> Iterator[tuple[int, int]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start


def _without_number(quote: str) -> str:
    """A quote that was copied with the number in front of it."""
    head, bar, tail = quote.partition("|")
    return tail if bar and head.strip().isdecimal() else quote


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _WORDS else f"{text[: _WORDS - 3]}..."
