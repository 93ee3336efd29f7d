"""What the fake server is asked, and what it is to answer: values that know no dialect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Seen:
    """One request."""

    dialect: str  # "messages", "chat", "responses"
    model: str
    system: str
    user: str  # what follows the system prompt, as one text
    slot: str = ""  # where the caller says so in a header; else empty
    role: str = ""
    count: int = 1  # of this model, from 1
    number: int = 1  # of all, from 1

    @property
    def prompt(self) -> str:
        return f"{self.system}\n\n{self.user}"


@dataclass(frozen=True, slots=True)
class Fault:
    """An error object; a dialect gives it its own type names."""

    status: int
    message: str
    code: str = ""
    param: str = ""
    type: str = ""  # empty: the usual one for the status
    headers: tuple[tuple[str, str], ...] = ()


class Break(StrEnum):
    """What happens to a stream after half of the text."""

    NONE = ""
    RESET = "reset"  # the connection is reset
    CUT = "cut"  # it is closed within a chunk
    EOF = "eof"  # the body ends as it should, the reply does not
    ERROR = "error"  # an error event
    STALL = "stall"  # no further byte
    BAD_JSON = "bad json"


class Instead(StrEnum):
    """What comes instead of an answer."""

    NONE = ""
    DROP = "drop"  # the connection is closed before the headers
    SILENCE = "silence"  # no byte
    HTML = "html"
    EMPTY = "empty"
    JSON_ERROR = "json error"  # an error object with the status 200


@dataclass(frozen=True, slots=True)
class Planned:
    """One answer. Times are in units of the server's `pace`."""

    text: str = ""
    stop: str = "end"  # "length", "refusal", "context"
    thinking: str = ""
    fault: Fault | None = None
    instead: Instead = Instead.NONE
    broken: Break = Break.NONE
    drip: float = 0.0  # before each piece
    pings: bool = False  # for ever, after half of the text
    usage: bool = True
    prompt_tokens: int | None = None  # the server read no more than these
    cost: float | None = None  # dollars, as some gateways tell
    strange: bool = False  # with events and fields of tomorrow


Script: TypeAlias = Callable[[Seen], Planned]
Body: TypeAlias = dict[str, Any]


@dataclass(slots=True)
class Call:
    """One request that came in, for tests to look at."""

    seen: Seen
    headers: Mapping[str, str]  # names in lower case; with the key
    body: Body
    planned: Planned
    began: float  # time.monotonic()
    gone: bool = False  # the caller left before the answer was whole


@dataclass(frozen=True, slots=True)
class Tokens:
    """A fourth of the characters; what of the prompt was sent before counts as cached."""

    input: int
    cache_read: int
    cache_write: int
    output: int
    reasoning: int

    @property
    def prompt(self) -> int:
        return self.input + self.cache_read + self.cache_write


def tokens(text: str) -> int:
    return -(-len(text) // 4)
