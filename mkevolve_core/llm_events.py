"""What can happen with calls to language models; `events` has all events of a run."""

from __future__ import annotations

from dataclasses import dataclass

from mkevolve_core.llm.settings import Limits


@dataclass(frozen=True, slots=True)
class LLMCalled:
    """A call came back with a text, usable or not (`stop`): it is paid."""

    agent: str  # the role: "generate", "review", ...
    model: str
    subproblem_id: str | None
    tokens_in: int  # all of the prompt
    tokens_out: int
    cost: float | None  # dollars; None: unknown
    seconds: float
    prompt_sha: str
    reply_sha: str
    slot: str = ""
    provider: str = ""
    stop: str = "end"
    tokens_cached: int = 0  # of tokens_in
    tokens_known: bool = True
    attempts: int = 1
    template: str = ""
    reask: int = 0
    first_token: float | None = None  # seconds


@dataclass(frozen=True, slots=True)
class LLMFailed:
    """A call that came to nothing after all its attempts: our own trouble, never a kernel's failure."""

    agent: str
    model: str
    subproblem_id: str | None
    reason: str
    slot: str = ""
    provider: str = ""
    kind: str = ""  # a FailureKind's value
    tokens_in: int = 0  # attempts that broke off are paid too
    tokens_cached: int = 0  # of tokens_in
    tokens_out: int = 0
    cost: float | None = 0.0
    seconds: float = 0.0
    attempts: int = 1
    prompt_sha: str = ""


@dataclass(frozen=True, slots=True)
class LimitsChanged:
    """The engineer resumed with other limits."""

    limits: Limits
