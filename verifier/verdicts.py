"""From what happened to a candidate to an outcome and one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from mkevolve_core.domain import Case, Outcome, Policy
from mkevolve_core.protocols import JobFailed
from verifier.answers import CandidateAnswer, Mismatch, Operation

_OUTCOMES = {
    "import": Outcome.COMPILE_ERROR,
    "compile": Outcome.COMPILE_ERROR,
    "raise": Outcome.RUNTIME_ERROR,
    "crash": Outcome.RUNTIME_ERROR,
    "memory": Outcome.OUT_OF_MEMORY,
    "timeout": Outcome.TIMEOUT,
    "interface": Outcome.INTERFACE_ERROR,
}
_MAX_NAMES = 6
_MAX_TEXT = 1000


def of_failure(failed: JobFailed) -> tuple[Outcome, str]:
    return _OUTCOMES.get(failed.kind, Outcome.RUNTIME_ERROR), sentence(failed.detail)


def of_mismatch(mismatch: Mismatch) -> str:
    """Why the reference's weights cannot be given to the candidate."""
    parts = []
    if mismatch.missing:
        parts.append(f"it lacks {_listed(mismatch.missing)}")
    if mismatch.extra:
        parts.append(f"Model has no {_listed(mismatch.extra)}")
    parts += mismatch.misshapen[:_MAX_NAMES]
    return sentence(f"The weights of ModelNew are not those of Model: {'; '.join(parts)}")


def of_cheating(answer: CandidateAnswer, policy: Policy, is_right: bool) -> str | None:
    """The evidence in one sentence, or None: PyTorch computed, or nothing of the candidate's own ran."""
    operations = answer.operations
    tampering = [flag for flag in answer.flags if flag.startswith(("alters ", "leaves "))]
    if tampering:
        return sentence(f"It {tampering[0]}")
    if not answer.launches and not policy.torch_parts and (operations or not is_right):
        return sentence(
            f"No kernel of its own was launched{_failed_launches(answer)}{_came_from(operations)}"
        )
    if operations:
        return sentence(f"PyTorch computed beside its kernels: {_operations(operations)}")
    return None


def _failed_launches(answer: CandidateAnswer) -> str:
    count = answer.failed_launches
    return f" ({count} {'launch' if count == 1 else 'launches'} failed)" if count else ""


def _came_from(operations: Sequence[Operation]) -> str:
    return f": its result came from {_operations(operations)}" if operations else ""


def _operations(operations: Sequence[Operation]) -> str:
    return ", ".join(_operation(operation) for operation in operations[:_MAX_NAMES])


def _operation(operation: Operation) -> str:
    times = f", {operation.times} times" if operation.times > 1 else ""
    return f"{operation.name} ({operation.where or 'somewhere'}{times})"


def of_wrong_cases(cases: Sequence[Case]) -> str:
    """The first failing case; how many failed."""
    wrong = [case for case in cases if not case.passed]
    first = wrong[0]
    share = f"{100 * (first.fraction_wrong or 0.0):.3g} % of its elements are wrong"
    bound = f" by up to {first.max_error:.3g} (bound {first.bound:.3g})" if _has_numbers(first) else ""
    return sentence(
        f"{len(wrong)} of {len(cases)} cases are wrong; '{first.name}': {share}{bound}, {first.where}"
    )


def _has_numbers(case: Case) -> bool:
    return case.max_error is not None and case.bound is not None


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more


def sentence(text: str) -> str:
    text = text.strip()[:_MAX_TEXT]
    return text[:1].upper() + text[1:]
