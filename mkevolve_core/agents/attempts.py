"""Ask for a decomposition again and again, saying each time what the checks found in the last one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from mkevolve_core.agents.evidence import normalised
from mkevolve_core.errors import AgentDeclined, DecompositionError
from mkevolve_core.llm.extract import extract_files
from mkevolve_core.llm.outcomes import ExtractedFiles, Outcome
from mkevolve_core.llm.values import Conversation, Reply, Request
from mkevolve_core.llm.visible import visible

T = TypeVar("T")

MOST_FINDINGS = 12
_LONGEST = 1200  # characters of one finding
# Nothing that the next prompt could say would help the LLM with these: it asks the same again.
_UNSAID = frozenset([Outcome.REFUSAL, Outcome.CONTEXT, Outcome.EMPTY])
_TO_CORRECT = frozenset([Outcome.SYNTAX, Outcome.MISSING, Outcome.PATH])


@dataclass(frozen=True, slots=True)
class Tried:
    """What the next prompt says of the attempts before it."""

    files: tuple[tuple[str, str], ...] = ()  # the last proposal: (path, text)
    findings: tuple[str, ...] = ()  # what was found wrong with it
    unusable: str = ""  # why the last reply held no proposal that could be checked
    reply: str = ""  # that reply, where it is to be corrected


@dataclass(frozen=True, slots=True)
class Proposal(Generic[T]):
    """A reply's files, read. `value` is None where the findings leave nothing to check."""

    value: T | None
    findings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Attempts(Generic[T]):
    """How one agent asks, reads and checks."""

    most: int
    ask: Callable[[int, Tried], Request]  # the attempt's number, from 1
    read: Callable[[tuple[tuple[str, str], ...]], Proposal[T]]
    check: Callable[[T], tuple[str, ...]]
    known: frozenset[str] = frozenset()  # names of subproblems whose files need not be repeated

    def conversation(self) -> Conversation[T]:
        """The first proposal without findings.

        Raises AgentDeclined where the LLM declines, DecompositionError with what was last found wrong.
        """
        tried, reason = Tried(), "no attempt was made"
        for number in range(1, self.most + 1):
            reply = yield self.ask(number, tried)
            extracted, reason = self._extracted(reply)
            if extracted is None:
                continue
            if extracted.outcome is not Outcome.OK:
                tried = _unusable(tried, extracted, reply)
                continue
            proposal = self.read(extracted.files)
            findings = self._findings(proposal)
            if not findings and proposal.value is not None:
                return proposal.value
            tried, reason = Tried(extracted.files, findings), " ".join(findings[:3])
        raise DecompositionError(f"{_times(self.most)}; the last: {reason}")

    def _extracted(self, reply: Reply) -> tuple[ExtractedFiles | None, str]:
        """None where there is no reply; with why it cannot be used. Raises AgentDeclined."""
        if reply.failure is not None:
            return None, f"there was no reply ({reply.failure.value}). {reply.detail}".strip()
        extracted = extract_files(reply.text, reply.stop, self.known)
        if extracted.outcome is Outcome.DECLINED:
            raise AgentDeclined(extracted.declined)
        return extracted, extracted.detail

    def _findings(self, proposal: Proposal[T]) -> tuple[str, ...]:
        """Those of its form first; they are told even where the checks cannot be run."""
        checked = self.check(proposal.value) if proposal.value is not None else ()
        found = dict.fromkeys(_shortened(one) for one in (*proposal.findings, *checked))
        left = len(found) - MOST_FINDINGS
        more = (f"{left} more findings of these kinds.",) if left > 0 else ()
        return (*list(found)[:MOST_FINDINGS], *more)


def _unusable(tried: Tried, extracted: ExtractedFiles, reply: Reply) -> Tried:
    """What was found wrong with an earlier proposal stays said."""
    said = "" if extracted.outcome in _UNSAID else extracted.detail
    text = visible(reply.text) if extracted.outcome in _TO_CORRECT else ""
    return replace(tried, unusable=said, reply=text)


def _times(attempts: int) -> str:
    return "1 attempt did not pass" if attempts == 1 else f"{attempts} attempts did not pass"


def _shortened(finding: str) -> str:
    """Without this machine's paths and addresses, and cut in the middle where it is long."""
    text = normalised(finding)
    if len(text) <= _LONGEST:
        return text
    return f"{text[: _LONGEST // 2]} [...] {text[-_LONGEST // 2 :]}"
