"""Hard limits that hold with many calls at once: reserve the worst case, settle with the truth."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mkevolve_core.llm.settings import Limits
from mkevolve_core.llm.values import Role

WARN_AT = 0.8
ROUNDING = 1e-9
SHARES: Mapping[Role, float] = {Role.REVIEW: 0.2}  # of a limit; beyond it is said, not stopped


@dataclass(frozen=True, slots=True)
class Amount:
    """What can be limited, minutes aside."""

    calls: int = 0
    usd: float = 0.0
    output_tokens: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            self.calls + other.calls, self.usd + other.usd, self.output_tokens + other.output_tokens
        )

    def __sub__(self, other: Amount) -> Amount:
        return self + Amount(-other.calls, -other.usd, -other.output_tokens)


@dataclass(frozen=True, slots=True)
class Totals:
    """What a run has spent on calls, by role; rebuilt from its ledger."""

    roles: Mapping[Role, Amount] = field(default_factory=dict)
    seconds: float = 0.0  # wall clock, from the first call to the last of each session
    unknown: int = 0  # calls whose cost is not known: `usd` is without them
    input_tokens: int = 0

    @property
    def amount(self) -> Amount:
        return sum(self.roles.values(), Amount())


class Reservation:
    """One call's claim on the budget until it is settled; changed by `Budget` alone."""

    __slots__ = ("held", "role")

    def __init__(self, role: Role) -> None:
        self.role = role
        self.held = Amount()


@dataclass(frozen=True, slots=True)
class Refused:
    reason: str
    final: bool  # False: calls in flight may settle lower, so ask again then


class Budget:
    """Safe to use from many threads."""

    def __init__(
        self, limits: Limits, before: Totals | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.limits = limits
        self._before = before or Totals()
        self._roles = dict(self._before.roles)
        self._open: set[Reservation] = set()
        self._unknown, self._input = self._before.unknown, self._before.input_tokens
        self._clock = clock
        self._started: float | None = None
        self._said: dict[str, str] = {}
        self._lock = threading.Lock()

    def start(self) -> None:
        """The first call is asked for: the minutes count from here."""
        with self._lock:
            self._started = self._clock() if self._started is None else self._started

    def open(self, role: Role) -> Reservation:
        """A claim that holds nothing yet."""
        with self._lock:
            self._open.add(reservation := Reservation(role))
            return reservation

    def hold(self, reservation: Reservation, worst: Amount) -> Refused | None:
        """Before each attempt: hold `worst` for it; or hold nothing, and hear why it does not fit."""
        with self._lock:
            reservation.held = Amount()
            refused = (self._late() if worst.calls else None) or self._refusal(worst)
            if refused is None:
                reservation.held = worst
            return refused

    def spend(self, reservation: Reservation, spent: Amount, input_tokens: int = 0) -> None:
        """Paid, whatever comes of it; calls that are spent are no longer held."""
        with self._lock:
            self._roles[reservation.role] = self._roles.get(reservation.role, Amount()) + spent
            self._input += input_tokens
            reservation.held = reservation.held - Amount(calls=spent.calls)
            self._warn(reservation.role)

    def settle(self, reservation: Reservation, unknown: bool = False) -> None:
        """The call is over: what it still holds is free again."""
        with self._lock:
            self._open.discard(reservation)
            self._unknown += unknown

    def totals(self) -> Totals:
        with self._lock:
            return Totals(dict(self._roles), self._seconds(), self._unknown, self._input)

    def reserved(self) -> Amount:
        with self._lock:
            return sum((each.held for each in self._open), Amount())

    def warnings(self) -> tuple[str, ...]:
        """Said once each."""
        with self._lock:
            return tuple(self._said.values())

    def _seconds(self) -> float:
        return self._before.seconds + (self._clock() - self._started if self._started is not None else 0.0)

    def _late(self) -> Refused | None:
        limit = self.limits.minutes
        if limit is None or self._seconds() < limit * 60:
            return None
        return Refused(f"The limit of {limit:g} minutes is reached: raise minutes in [llm.limits].", True)

    def _refusal(self, worst: Amount) -> Refused | None:
        spent = sum(self._roles.values(), Amount())
        held = sum((each.held for each in self._open), Amount())
        for name in ("calls", "usd", "output_tokens"):
            limit, used, others, more = (getattr(x, name) for x in (self.limits, spent, held, worst))
            if limit is not None and more and used + others + more > limit + ROUNDING:
                return Refused(_sentence(name, limit, used, more), used + more > limit + ROUNDING)
        return None

    def _warn(self, role: Role) -> None:
        spent, own = sum(self._roles.values(), Amount()), self._roles[role]
        for name in ("calls", "usd", "output_tokens"):
            if limit := getattr(self.limits, name):
                if getattr(spent, name) >= WARN_AT * limit:
                    self._say(name, f"{_said(name, getattr(spent, name))} of {_said(name, limit)} are spent.")
                share = SHARES.get(role, 1.0) * limit
                if share < limit and getattr(own, name) >= WARN_AT * share:
                    used = f"{_said(name, getattr(own, name))} of its share of {_said(name, share)}"
                    self._say(f"{role}:{name}", f"{role.value.capitalize()} calls have spent {used}.")

    def _say(self, key: str, sentence: str) -> None:
        self._said.setdefault(key, sentence)


def _sentence(name: str, limit: float, used: float, more: float) -> str:
    left = max(0.0, limit - used)
    how = f"raise {name} in [llm.limits] of mkevolve.toml"
    if name == "calls" or left == 0:
        return f"The limit of {_said(name, limit)} is reached: {how}."
    one = f"one more call may take {_said(name, more)} and {_said(name, left)} are left"
    return f"The limit of {_said(name, limit)} is reached: {one}; {how}, or lower max_tokens of the role."


def _said(name: str, value: float) -> str:
    if name == "usd":
        return f"${value:.2f}"
    return f"{value:,.0f} {name.replace('_', ' ')}"
