"""What goes to a language model and what comes back. Standard library only; all of it fits into JSON."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias, TypeVar

T = TypeVar("T")


class Role(StrEnum):
    """What a call is for; `mkevolve.toml` gives each a provider, a model and an effort."""

    DECOMPOSE = "decompose"
    GENERATE = "generate"
    DEBUG = "debug"
    REFINE = "refine"
    SPLIT = "split"
    FUSE = "fuse"
    POSTFUSE = "postfuse"
    REVIEW = "review"
    ALTERNATIVE = "alternative"  # another model's subkernel, for Swap


WRITING = frozenset([Role.GENERATE, Role.DEBUG, Role.REFINE])  # the paper's kernel-writing calls


class Expects(StrEnum):
    """The shape of the reply, so that whoever answers by hand can be told at once what is wrong with it."""

    KERNEL = "kernel"  # one Python block that defines ModelNew
    FILES = "files"  # the multi-file contract, or a refusal line
    JSON = "json"  # one JSON object


@dataclass(frozen=True, slots=True)
class Request:
    """One call. The three texts are sent in this order, so that a provider's cache hits the first two.

    `slot` says where in the algorithm the call stands and is the same whenever the run comes by there
    again: "4a#17", "decompose 1.2", "review 4a#17 1"; a re-ask appends "~1", "~2".
    """

    slot: str
    role: Role
    system: str  # the same for every call of a role
    context: str  # the same for every call on a subproblem: device, reference
    task: str  # evidence and what to do now
    template: str  # "generate.j2 1f3a9c02": the file and its version hash
    expects: Expects = Expects.KERNEL
    subproblem_id: str | None = None
    reask: int = 0  # 0: a call of its own; 1, 2: asked again because the reply could not be used

    @property
    def prompt(self) -> str:
        """Everything that is sent, as one text: what is kept and hashed."""
        return "\n\n".join((self.system, self.context, self.task))


class Stop(StrEnum):
    """Why a reply ended. All but END are outcomes of their own, never a kernel's failure."""

    END = "end"
    LENGTH = "length"  # the reply's own limit
    REFUSAL = "refusal"
    CONTEXT = "context"  # the context window is full
    OTHER = "other"  # a tool call, a pause: nothing we asked for


class FailureKind(StrEnum):
    """Why there is no reply."""

    AUTH = "auth"
    PERMISSION = "permission"
    BILLING = "billing"
    NOT_FOUND = "not_found"
    BAD_REQUEST = "bad_request"
    CONTEXT = "context"
    RATE_LIMIT = "rate_limit"
    OVERLOADED = "overloaded"
    SERVER = "server"
    TIMEOUT = "timeout"
    CONNECTION = "connection"
    PROTOCOL = "protocol"
    DEADLINE = "deadline"
    CANCELLED = "cancelled"
    BUDGET = "budget"
    CONFIG = "config"
    DOWN = "down"  # several calls in a row came to nothing, whatever each of them met
    REJECTED = "rejected"  # the mailbox: answers that could not be used, too often


RETRYABLE = frozenset(
    [
        FailureKind.RATE_LIMIT,
        FailureKind.OVERLOADED,
        FailureKind.SERVER,
        FailureKind.TIMEOUT,
        FailureKind.CONNECTION,
        FailureKind.PROTOCOL,
    ]
)
# The next call would fail the same way: the run parks instead of burning its budget.
BLOCKING = frozenset(
    [
        FailureKind.AUTH,
        FailureKind.PERMISSION,
        FailureKind.BILLING,
        FailureKind.NOT_FOUND,
        FailureKind.BAD_REQUEST,
        FailureKind.CONFIG,
        FailureKind.DOWN,
    ]
)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, in classes that do not overlap; `reasoning` is a part of `output`."""

    input: int = 0  # uncached
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0
    known: bool = False  # False: the provider said nothing; all zeros then mean "unknown"
    raw: str = ""  # the provider's own object as JSON, so that costs can be computed again
    cost: float | None = None  # dollars, where the provider itself says so (OpenRouter)

    @property
    def prompt(self) -> int:
        """All tokens of the prompt, cached or not."""
        return self.input + self.cache_read + self.cache_write


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a call: all are paid, the failed ones too."""

    kind: str  # a FailureKind's value, or "ok"
    seconds: float
    usage: Usage = Usage()
    detail: str = ""
    waited: float = 0.0  # seconds before this try
    model: str = ""  # as asked for: the fallback may have another price


@dataclass(frozen=True, slots=True)
class Reply:
    """The end of a call, good or bad. `failure` is None where there is a text to read."""

    slot: str
    role: Role
    provider: str
    model: str  # as the server resolved it, not as asked
    text: str = ""
    stop: Stop = Stop.END
    usage: Usage = Usage()  # of all attempts together
    cost: float | None = None  # dollars; None is unknown, never 0
    seconds: float = 0.0
    first_token: float | None = None  # seconds
    attempts: tuple[Attempt, ...] = ()
    failure: FailureKind | None = None
    detail: str = ""  # one sentence where it failed
    prompt_sha: str = ""
    reply_sha: str = ""
    template: str = ""
    reask: int = 0
    subproblem_id: str | None = None
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """What the open calls wait for."""

    open: int = 0  # submitted, no reply taken yet
    with_people: int = 0  # of these, published in a mailbox and not answered
    paused_until: float | None = None  # seconds since the epoch: the provider asked for patience
    reason: str = ""


# An agent's work: it yields requests, is sent their replies, and returns what it is for. Work that needs
# no LLM yields nothing. One `Desk` carries many conversations at once.
Conversation: TypeAlias = Generator[Request, Reply, T]


class CallFailed(Exception):
    """A provider's one attempt failed. Plain and picklable: no SDK object is kept in it."""

    def __init__(
        self,
        kind: FailureKind,
        detail: str,
        retry_after: float | None = None,
        usage: Usage | None = None,
        partial: str = "",
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.retry_after = retry_after  # seconds
        self.usage = usage or Usage()
        self.partial = partial  # text that came before it broke off

    def __reduce__(self) -> tuple[type[CallFailed], tuple[object, ...]]:
        return CallFailed, (self.kind, self.detail, self.retry_after, self.usage, self.partial)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a provider's one attempt came back with; paid whatever `stop` says."""

    text: str
    stop: Stop
    usage: Usage
    model: str  # as the server resolved it
    request_id: str | None = None
    first_token: float | None = None  # seconds
