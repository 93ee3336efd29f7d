"""What a problem needs to be worked on, found by running it once in the sandbox before anything is spent."""

from __future__ import annotations

from mkevolve_core.codec import from_plain
from mkevolve_core.domain import Problem, ProblemFacts
from mkevolve_core.errors import ProblemError
from mkevolve_core.protocols import JobFailed, Sandbox

INSPECT_SECONDS = 120.0

_BY_KIND = {
    "timeout": f"it must run within {INSPECT_SECONDS:.0f} s: use smaller inputs",
    "memory": "it needs more memory than there is: use smaller inputs or a larger machine",
    "crash": "it ended its own process",
}
_NO_GPU = "no GPU is here: drop the device from the file, or start on a GPU machine"
_BY_WORDS = {
    "No module named": "install that package beside MKEvolve or drop the import, then start again",
    "Torch not compiled with CUDA": _NO_GPU,
    "No CUDA GPUs are available": _NO_GPU,
    "Found no NVIDIA driver": _NO_GPU,
}


def inspect(sandbox: Sandbox, problem: Problem) -> ProblemFacts:
    """Raises ProblemError in one sentence (what, where, what to do), SandboxError if we failed."""
    try:
        return from_plain(ProblemFacts, sandbox.run("inspect", {"source": problem.source}, INSPECT_SECONDS))
    except JobFailed as failure:
        hint = _hint(failure)
        detail = failure.detail.rstrip(".")
        raise ProblemError(f"{problem.name}: {detail}{'; ' + hint if hint else ''}.") from failure


def _hint(failure: JobFailed) -> str | None:
    """What to do about it, where that is known."""
    known = next((hint for words, hint in _BY_WORDS.items() if words in failure.detail), None)
    return known or _BY_KIND.get(failure.kind)
