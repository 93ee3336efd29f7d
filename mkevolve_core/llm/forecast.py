"""What a run may take, told before it starts: ranges of calls, tokens and dollars, and what they rest on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mkevolve_core.config import RunConfig
from mkevolve_core.llm.prices import Prices
from mkevolve_core.llm.settings import STATIC, LLMSettings, RoleSettings
from mkevolve_core.llm.values import WRITING, Reply, Role, Usage

REASKED = 1.1  # kernel-writing replies that could not be used are asked for again
REVIEWED = (0.25, 1.25)  # reviews for each kernel-writing call: correct ones, and those accepted once more
ATTEMPTS = 3  # at a decomposition, a split or a fusion
SLOW_PARTS = 6  # subkernels that Swap may ask another LLM for
SPREAD = (0.7, 1.5)  # of what earlier runs took for a call

_WRITERS = (Role.GENERATE, Role.DEBUG, Role.REFINE)
# Tokens of one call, (prompt, reply) low and high. 160 kernels took the paper's runs 1.7 to 2.1 million
# tokens, everything included: 10.6 to 13.1 thousand each, of which we take three fifths to be prompt.
_USUAL = ((6400.0, 4200.0), (7900.0, 5200.0))
_REVIEW = ((4000.0, 500.0), (8000.0, 2000.0))
_PAPER = (
    "the paper's 10.6 to 13.1 thousand tokens for a kernel-writing call; an LLM that thinks long takes more"
)


@dataclass(frozen=True, slots=True)
class Range:
    low: float
    high: float

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)


NOTHING = Range(0, 0)


@dataclass(frozen=True, slots=True)
class RoleTotals:
    """What the calls of a role took in earlier runs; those of unknown usage are left out."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class RoleForecast:
    roles: tuple[Role, ...]  # the three kernel-writing ones are one line
    calls: Range
    input_tokens: Range
    output_tokens: Range
    dollars: Range | None  # None: unknown


@dataclass(frozen=True, slots=True)
class Forecast:
    roles: tuple[RoleForecast, ...]
    calls: Range
    input_tokens: Range
    output_tokens: Range
    dollars: Range | None  # None: unknown, and `unknown` says why
    basis: str
    unknown: str = ""


def forecast(
    config: RunConfig,
    settings: LLMSettings,
    prices: Prices,
    earlier: Mapping[Role, RoleTotals] | None = None,
) -> Forecast:
    """Nothing is asked of anyone. Prompts count as uncached, so caches only make it cheaper."""
    lines = tuple(
        _line(roles, calls, settings, prices, earlier or {})
        for roles, calls in _calls(config, settings).items()
        if calls.high > 0
    )
    unknown = _unknown(lines, settings, prices)
    priced = [line.dollars for line in lines if line.dollars is not None]
    return Forecast(
        roles=lines,
        calls=sum((line.calls for line in lines), NOTHING),
        input_tokens=sum((line.input_tokens for line in lines), NOTHING),
        output_tokens=sum((line.output_tokens for line in lines), NOTHING),
        dollars=sum(priced, NOTHING) if len(priced) == len(lines) else None,
        basis=_basis(lines, earlier or {}),
        unknown=unknown,
    )


def totals_by_role(replies: Iterable[Reply]) -> dict[Role, RoleTotals]:
    """Of calls that came back, for the forecast of another run."""
    found: dict[Role, RoleTotals] = {}
    for reply in replies:
        if reply.failure is None and reply.usage.known:
            before = found.get(reply.role, RoleTotals())
            found[reply.role] = RoleTotals(
                before.calls + 1,
                before.input_tokens + reply.usage.prompt,
                before.output_tokens + reply.usage.output,
            )
    return found


def _calls(config: RunConfig, settings: LLMSettings) -> dict[tuple[Role, ...], Range]:
    writing = config.iterations * config.calls
    revised = sum(t % config.period == 0 for t in range(2, config.iterations + 1)) if config.decompose else 0
    reviewed = settings.role(Role.REVIEW).provider != STATIC
    workers = config.workers if config.decompose else 0
    return {
        _WRITERS: Range(writing, math.ceil(writing * REASKED)),
        (Role.REVIEW,): Range(*(round(writing * share) for share in REVIEWED)) if reviewed else NOTHING,
        (Role.DECOMPOSE,): Range(workers, workers * ATTEMPTS),
        (Role.SPLIT,): Range(0, revised * ATTEMPTS),
        (Role.FUSE,): Range(0, revised * ATTEMPTS if config.fuse else 0),
        (Role.POSTFUSE,): Range(0, config.postfuse),
        (Role.ALTERNATIVE,): Range(0, config.swap_calls * SLOW_PARTS if config.swap else 0),
    }


def _line(
    roles: tuple[Role, ...],
    calls: Range,
    settings: LLMSettings,
    prices: Prices,
    earlier: Mapping[Role, RoleTotals],
) -> RoleForecast:
    (low_in, low_out), (high_in, high_out) = low, high = _one_call(roles, earlier)
    asked = [settings.role(role) for role in roles]
    return RoleForecast(
        roles,
        calls,
        Range(calls.low * low_in, calls.high * high_in),
        Range(calls.low * low_out, calls.high * high_out),
        _dollars(
            calls,
            [_price(one, low, settings, prices) for one in asked],
            [_price(one, high, settings, prices) for one in asked],
        ),
    )


def _dollars(calls: Range, low: list[float | None], high: list[float | None]) -> Range | None:
    """Which of the roles will be asked how often is not known: the cheapest and the dearest."""
    cheap, dear = [one for one in low if one is not None], [one for one in high if one is not None]
    if len(cheap) < len(low):
        return None
    return Range(calls.low * min(cheap), calls.high * max(dear))


def _one_call(
    roles: tuple[Role, ...], earlier: Mapping[Role, RoleTotals]
) -> tuple[tuple[float, float], tuple[float, float]]:
    known = [earlier[role] for role in roles if role in earlier]
    if calls := sum(one.calls for one in known):
        prompt = sum(one.input_tokens for one in known) / calls
        reply = sum(one.output_tokens for one in known) / calls
        low, high = SPREAD
        return (prompt * low, reply * low), (prompt * high, reply * high)
    return _REVIEW if roles == (Role.REVIEW,) else _USUAL


def _price(
    role: RoleSettings, tokens: tuple[float, float], settings: LLMSettings, prices: Prices
) -> float | None:
    usage = Usage(input=round(tokens[0]), output=round(tokens[1]), known=True)
    free = settings.provider(role.provider).price == "free"
    cost = prices.cost(usage, role.model, free=free)
    return cost.dollars if cost is not None else None


def _unknown(lines: tuple[RoleForecast, ...], settings: LLMSettings, prices: Prices) -> str:
    without = [role for line in lines if line.dollars is None for role in line.roles]
    names = {
        f"{role.provider}'s {role.model}"
        for role in map(settings.role, without)
        if settings.provider(role.provider).price != "free" and prices.find(role.model) is None
    }
    return (
        f"The price of {', '.join(sorted(names))} is not known, so the cost is not either." if names else ""
    )


def _basis(lines: tuple[RoleForecast, ...], earlier: Mapping[Role, RoleTotals]) -> str:
    counted = {role: earlier[role].calls for line in lines for role in line.roles if role in earlier}
    if not counted:
        return _PAPER
    said = f"{sum(counted.values())} earlier calls"
    all_writing = any(role in WRITING for role in counted)
    return said if all_writing else f"{said}, and {_PAPER}"
