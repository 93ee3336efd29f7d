"""report.md of an export: what was verified, how fast it is, and where every file came from."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

import jinja2

from mkevolve_core.codec import to_plain
from mkevolve_core.domain import PYTORCH, Subproblem, Timing, Verdict
from mkevolve_core.state import CandidateState, RunState, Spent
from store.describe import describe_verdict
from store.numbers import estimate_of

_TEMPLATES = Path(__file__).with_name("templates")
_RULE = {True: "passed", False: "not passed", None: "not checked"}


@dataclass(frozen=True, slots=True)
class Part:
    """One file of the solution and where it came from."""

    file: str
    subproblem: Subproblem
    seen: CandidateState

    @property
    def is_pytorch(self) -> bool:
        return self.seen.candidate.author == PYTORCH


def provenance(part: Part) -> dict[str, object]:
    candidate, verdict, one = part.seen.candidate, part.seen.verdict, part.subproblem
    return {
        "file": part.file,
        "subproblem": one.subproblem_id,
        "title": one.title,
        "instances": one.instances,
        "candidate": candidate.candidate_id,
        "iteration": candidate.iteration,
        "author": candidate.author,
        "note": candidate.note,
        "pytorch": part.is_pytorch,
        "verdict": to_plain(verdict) if verdict else None,
        "speedup": verdict.speedup if verdict else None,
        "estimate": estimate_of(verdict),
    }


def render_report(
    state: RunState, parts: tuple[Part, ...], record: dict[str, object], verdict: Verdict | None
) -> str:
    """Markdown; what candidates and authors wrote is shown as written."""
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        keep_trailing_newline=True,
        autoescape=False,  # Markdown; cells are escaped by `_cell`  # noqa: S701
    )
    return environment.get_template("report.md.j2").render(
        title=_cell(str(record["problem"])),
        summary=_summary(verdict),
        facts=[(name, _cell(value)) for name, value in _facts(state, record, verdict)],
        torch_parts=[_cell(part.subproblem.title) for part in parts if part.is_pytorch],
        parts=[_row(part) for part in parts],
    )


def _summary(verdict: Verdict | None) -> str:
    if verdict is None:
        return "Not verified as a set."
    if not verdict.is_correct:
        return f"**Not correct as a set**: {_cell(describe_verdict(verdict))}."
    timing, base = verdict.measured, verdict.baseline()
    if verdict.speedup is None or timing is None or base is None or base.timing is None:
        return f"Verified as a set: {_cell(_in_words(verdict))}."
    against = f"against {_spread(base.timing)}"
    return (
        f"Verified as a set: correct, **{verdict.speedup:.2f}x** of {base.name}: {_spread(timing)} {against}."
    )


def _spread(timing: Timing) -> str:
    between = f"{timing.low_ms:.4g} to {timing.high_ms:.4g}, n={timing.samples}"
    return f"median {timing.median_ms:.4g} ms ({between})"


def _facts(state: RunState, record: dict[str, object], verdict: Verdict | None) -> list[tuple[str, str]]:
    config = state.config
    baselines = ", ".join(b.name for b in verdict.baselines if b.timing) if verdict else ""
    known = verdict is not None and verdict.max_error is not None
    tolerance = (
        f"atol {config.atol:g}, rtol {config.rtol:g} against the reference in fp64, or the error of the fp32 "
        f"reference where that is larger; {config.cases} draws of inputs; TF32 off"
    )
    return [
        ("date", str(record["made_at"])),
        ("iteration", str(record["iteration"])),
        ("inputs", ", ".join(inputs_of(state)) or "not known"),
        ("device", str(record["device"] or "not known")),
        ("baselines measured", baselines or "none: nothing was timed"),
        ("tolerance", tolerance),
        ("largest error", f"{verdict.max_error:.2g}" if known and verdict else "not known"),
        ("KernelBench's rule (allclose 1e-4)", _RULE[verdict.kernelbench_rule if verdict else None]),
        ("weights", (verdict.weights if verdict else "") or "not known"),
        ("versions", ", ".join(f"{k} {v}" for k, v in state.versions.items()) or "not known"),
        *_written(state),
    ]


def _written(state: RunState) -> list[tuple[str, str]]:
    """Who wrote the subkernels, and what that took; what nobody told is "unknown", never nothing."""
    spent = state.spent
    if not (spent.by_role or spent.failed_calls):
        return [("written by", f"{state.config.agents} agents: no calls to language models"), *_replay(state)]
    other = f"{spent.other_calls:,} other, {spent.failed_calls:,} without a reply"
    return [
        ("written by", "; ".join(f"{role}: {name}" for role, name in models_of(state).items()) or "unknown"),
        ("calls", f"{spent.calls:,} kernel-writing, {other}"),
        ("tokens", _tokens(spent)),
        ("cost", "unknown" if spent.cost is None else f"${spent.cost:.2f}"),
        *_replay(state),
    ]


def _tokens(spent: Spent) -> str:
    if spent.tokens_unknown and not spent.tokens_in:
        return "unknown"
    cached = f" ({spent.tokens_cached:,} cached)" if spent.tokens_cached else ""
    more = f", and those of {spent.tokens_unknown:,} calls unknown" if spent.tokens_unknown else ""
    return f"{spent.tokens_in:,} in{cached}, {spent.tokens_out:,} out{more}"


def _replay(state: RunState) -> list[tuple[str, str]]:
    if state.replay is None:
        return []
    return [("replay", f"of the recording {state.replay}: nothing was asked or measured here")]


def models_of(state: RunState) -> dict[str, str]:
    """Role → "provider/model" as the run was told, for the roles that were asked."""
    known = state.llm.roles if state.llm else ()
    return {str(one.role): f"{one.provider}/{one.model}" for one in known if one.role in state.spent.by_role}


def _row(part: Part) -> dict[str, str]:
    plain = {key: _cell(str(value)) for key, value in provenance(part).items() if key != "verdict"}
    verdict = part.seen.verdict
    error = verdict.max_error if verdict else None
    return {
        **plain,
        "file": part.file,  # in a code span, where nothing is escaped
        "author": f"{plain['author']} (not a subkernel)" if part.is_pytorch else plain["author"],
        "outcome": verdict.outcome.replace("_", " ") if verdict else "not judged",
        "speed": _speed(verdict),
        "error": f"{error:.2g}" if error is not None else "–",
    }


def _in_words(verdict: Verdict) -> str:
    modelled = "(modelled, not measured)"
    said = describe_verdict(verdict)
    return f"{said} {modelled}" if verdict.speedup is None and estimate_of(verdict) else said


def _speed(verdict: Verdict | None) -> str:
    if verdict and verdict.speedup is not None and verdict.measured:
        timing = verdict.measured
        return (
            f"{verdict.speedup:.2f}x ({timing.median_ms:.4g} ms, {timing.low_ms:.4g} to {timing.high_ms:.4g})"
        )
    ratio = estimate_of(verdict)
    return f"estimate {ratio:.2f}x (modelled, not measured)" if ratio else "–"


def inputs_of(state: RunState) -> list[str]:
    """ "float32 (10, 3, 32, 32)" for each input of the problem."""
    specs = state.facts.inputs if state.facts else ()
    return [f"{spec.dtype} {tuple(spec.shape)}" for spec in specs]


def date_of(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))


def _cell(text: str) -> str:
    """One line of a Markdown table, shown as it is written."""
    return re.sub(r"([\\|`*_<>\[\]$])", r"\\\1", " ".join(text.split()))
