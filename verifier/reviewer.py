"""The reviewer that needs no LLM: static rules on the source, weighed with what the judge saw at run time."""

from __future__ import annotations

from mkevolve_core.domain import Codebase, Outcome, Review, Verdict
from mkevolve_core.llm.values import Conversation
from mkevolve_core.protocols import ReviewTask
from verifier.bans import Finding
from verifier.static import StaticReport, check_codebase

_BY = "static rules"
# Why a finding is worth an engineer's look; those that are not named are no objection.
_DOUBTFUL = frozenset(["heavy", "compute", "fallback", "identity", "tensor_class"])
_COMPUTES = frozenset(["heavy", "compute"])


class StaticReviewer:
    """Implements `ReviewerAgent`; asks nobody."""

    def review(self, task: ReviewTask) -> Conversation[Review]:
        return review(task.source, task.verdict)
        yield  # a conversation without a call


def review(source: str, verdict: Verdict) -> Review:
    """CORRECT where there is no objection, else CHEAT or REVIEW with the line that it is about.

    A doubt that nothing at run time confirms is REVIEW, not CHEAT.
    """
    report = check_codebase(Codebase.single(source))
    if report.syntax_error or report.refusal:
        return Review(Outcome.CHEAT, _first_line(report, source), _BY)
    if _has(report, "no_launch"):
        return Review(Outcome.CHEAT, "forward launches no kernel of its own", _BY)
    doubts = [finding for finding in report.findings if finding.kind in _DOUBTFUL]
    computing = [finding for finding in doubts if finding.kind in _COMPUTES]
    seen = _computed_by_torch(verdict)
    if computing and seen:
        return Review(Outcome.CHEAT, f"{_quote(computing[0], source)} [{seen}]", _BY)
    if doubts:
        return Review(Outcome.REVIEW, _quote(doubts[0], source), _BY)
    return Review(Outcome.REVIEW, seen, _BY) if seen else Review(Outcome.CORRECT, "", _BY)


def _has(report: StaticReport, kind: str) -> bool:
    return any(finding.kind == kind for finding in report.findings)


def _computed_by_torch(verdict: Verdict) -> str:
    """The judge's flag that PyTorch computed something while the candidate ran, if it has one."""
    return next((flag for flag in verdict.flags if "aten::" in flag or "aten." in flag), "")


def _first_line(report: StaticReport, source: str) -> str:
    text = report.refusal or report.syntax_error or ""
    number = text.removeprefix("line ").partition(":")[0]
    return f"{text}: {_line(source, int(number))}" if number.isdigit() else text


def _quote(finding: Finding, source: str) -> str:
    return f"line {finding.line}: {_line(source, finding.line)} ({finding.text})"


def _line(source: str, number: int) -> str:
    lines = source.splitlines()
    return lines[number - 1].strip() if 0 < number <= len(lines) else ""
