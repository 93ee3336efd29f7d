"""The second gate where there is no GPU: every kernel that ran is compiled for the named one.

The interpreter accepts code that the compiler rejects, and knows nothing of registers or shared memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from mkevolve_core.domain import Codebase, Resources
from mkevolve_core.errors import SandboxError
from mkevolve_core.protocols import JobFailed, Sandbox
from verifier.launches import Entry, KernelResources, distinct_launches, path_within
from verifier.roofline import Target, target_facts


@dataclass(frozen=True, slots=True)
class AotReport:
    """`error` is the candidate's failure in one sentence; `kernels` are by launch key, for `roofline`."""

    error: str | None
    resources: Resources | None
    kernels: dict[str, KernelResources] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # kernels that could not be compiled here, and why


def compile_launches(
    sandbox: Sandbox, candidate: Codebase, launches: list[Entry], target: str, seconds: float
) -> AotReport:
    """Compile each distinct kernel of the launches. Raises SandboxError if we failed, ConfigError."""
    facts = target_facts(target)
    distinct = distinct_launches(launches)
    if not distinct:
        return AotReport(None, None)
    paths = [file.path for file in candidate.files]
    payload = {
        "files": [{"path": file.path, "text": file.text} for file in candidate.files],
        "capability": facts.capability,
        "kernels": [{**entry, "path": path_within(entry["file"], paths)} for entry in distinct.values()],
    }
    try:
        answer = sandbox.run("compile", payload, seconds)
    except JobFailed as failed:
        return AotReport(_spell_failure(failed, facts, seconds), None)
    return _read_answer(dict(zip(distinct, answer["kernels"], strict=True)), facts)


def _spell_failure(failed: JobFailed, facts: Target, seconds: float) -> str:
    if failed.kind == "timeout":
        return f"compiling its kernels for {facts.name} took longer than {seconds:g} s"
    return f"compiling its kernels for {facts.name} failed: {failed.detail}"


def _read_answer(answers: dict[str, Entry], facts: Target) -> AotReport:
    for trouble in (answer["trouble"] for answer in answers.values() if "trouble" in answer):
        raise SandboxError(f"{trouble}; free the disk or lift the limit.")
    errors = [str(answer["error"]) for answer in answers.values() if "error" in answer]
    notes = tuple(str(answer["note"]) for answer in answers.values() if "note" in answer)
    kernels = {key: _resources(answer) for key, answer in answers.items() if "shared_bytes" in answer}
    errors += [_too_much(kernel, facts) for kernel in kernels.values() if _exceeds(kernel, facts)]
    return AotReport(errors[0] if errors else None, _largest(kernels.values(), facts), kernels, notes)


def _resources(answer: Entry) -> KernelResources:
    registers, spills = answer["registers"], answer["spills"]
    return KernelResources(
        str(answer["name"]),
        None if registers is None else int(registers),
        None if spills is None else int(spills),
        int(answer["shared_bytes"]),
    )


def _exceeds(kernel: KernelResources, facts: Target) -> bool:
    return kernel.shared_bytes > facts.shared_limit


def _too_much(kernel: KernelResources, facts: Target) -> str:
    return (
        f"kernel {kernel.name} needs {kernel.shared_bytes} bytes of shared memory, {facts.name} has "
        f"{facts.shared_limit}: use smaller tiles or fewer stages"
    )


def _largest(kernels: Iterable[KernelResources], facts: Target) -> Resources | None:
    found = list(kernels)
    if not found:
        return None
    return Resources(
        target=facts.name,
        registers=max((k.registers for k in found if k.registers is not None), default=None),
        spills=max((k.spills for k in found if k.spills is not None), default=None),
        shared_bytes=max(kernel.shared_bytes for kernel in found),
        shared_limit=facts.shared_limit,
    )
