"""What a problem needs to be worked on, found by running it once in the sandbox before anything is spent."""

from __future__ import annotations

from mkevolve_core.codec import from_plain
from mkevolve_core.domain import Problem, ProblemFacts
from mkevolve_core.errors import ProblemError
from mkevolve_core.protocols import JobFailed, Sandbox

INSPECT_SECONDS = 120.0

_HINTS = {
    "timeout": f"it must run within {INSPECT_SECONDS:.0f} s: use smaller inputs",
    "memory": "it needs more memory than there is: use smaller inputs or a larger machine",
    "crash": "it ended its own process",
}


def inspect(sandbox: Sandbox, problem: Problem) -> ProblemFacts:
    """Raises ProblemError in one sentence (what, where, what to do), SandboxError if we failed."""
    try:
        return from_plain(ProblemFacts, sandbox.run("inspect", {"source": problem.source}, INSPECT_SECONDS))
    except JobFailed as failure:
        hint = _HINTS.get(failure.kind)
        detail = failure.detail.rstrip(".")
        raise ProblemError(f"{problem.name}: {detail}{'; ' + hint if hint else ''}.") from failure
