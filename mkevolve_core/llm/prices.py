"""What tokens cost: a dated table that users edit. An unknown price is None, never 0."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from mkevolve_core.codec import from_plain
from mkevolve_core.errors import ConfigError
from mkevolve_core.llm.places import find_file, read_toml, user_folder
from mkevolve_core.llm.values import Usage

SHIPPED = Path(__file__).with_name("prices.toml")
STALE_DAYS = 90
MILLION = 1_000_000

_DATE = re.compile(r"[-@:](?:20\d{6}|20\d\d-\d\d-\d\d)$")


@dataclass(frozen=True, slots=True)
class Rates:
    """Dollars per million tokens; a cache price that is None is not known."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None  # for both lifetimes
    cache_write_5m: float | None = None
    cache_write_1h: float | None = None

    def write(self, hour: bool | None) -> tuple[float, bool]:
        """(price, whether it is a guess); `hour` None: the lifetime is not known, so the dearer one."""
        short = self.cache_write_5m if self.cache_write_5m is not None else self.cache_write
        long = self.cache_write_1h if self.cache_write_1h is not None else self.cache_write
        wanted = (short, long) if hour is None else (long,) if hour else (short,)
        known = [price for price in wanted if price is not None]
        return (max(known), len(known) < len(wanted)) if known else (2 * self.input, True)


@dataclass(frozen=True, slots=True)
class Tier:
    above_input_tokens: int
    rates: Rates


@dataclass(frozen=True, slots=True)
class Price:
    model: str
    rates: Rates
    tiers: tuple[Tier, ...] = ()
    max_output: int | None = None
    as_of: str = ""  # "2026-12-01"
    source: str = ""

    def rates_for(self, prompt: int) -> Rates:
        """Of a prompt with so many tokens, cached ones included."""
        reached = [tier for tier in self.tiers if prompt > tier.above_input_tokens]
        return max(reached, key=lambda tier: tier.above_input_tokens).rates if reached else self.rates


@dataclass(frozen=True, slots=True)
class Cost:
    dollars: float
    estimated: bool = False  # a price or a number of tokens was guessed, on the high side


FREE = Cost(0.0)


@dataclass(frozen=True, slots=True)
class Prices:
    table: Mapping[str, Price] = field(default_factory=dict)

    def find(self, model: str) -> Price | None:
        """The exact id, else the id without the date at its end."""
        return self.table.get(model) or self.table.get(_DATE.sub("", model))

    def cost(self, usage: Usage, model: str, resolved: str = "", free: bool = False) -> Cost | None:
        """Of one attempt. What the provider itself says comes first; None: unknown."""
        if free or usage.cost is not None:
            return FREE if free else Cost(usage.cost or 0.0)
        price = self.find(model) or self.find(resolved)
        if price is None or not (usage.known or usage.prompt or usage.output):
            return None
        return _cost(usage, price)

    def worst(self, model: str, prompt: int, output: int, free: bool = False) -> float | None:
        """The most that one attempt can cost: nothing cached, and all of `output` written."""
        price = self.find(model)
        if free or price is None:
            return 0.0 if free else None
        rates = price.rates_for(prompt)
        dearest = max(rates.input, *(rates.write(hour)[0] for hour in (False, True)))
        return (prompt * dearest + output * rates.output) / MILLION

    def max_output(self, model: str) -> int | None:
        price = self.find(model)
        return price.max_output if price else None

    def stale(self, models: Iterable[str], today: date) -> tuple[str, ...]:
        """A sentence on each price that was read long ago."""
        found = {price.model: price for model in models if (price := self.find(model)) and price.as_of}
        return tuple(
            f"The price of {price.model} was read on {price.as_of}: check it in prices.toml."
            for price in found.values()
            if (today - date.fromisoformat(price.as_of)).days > STALE_DAYS
        )


def read_prices(environment: Mapping[str, str], path: Path | None = None) -> Prices:
    """Shipped, then the user's `prices.toml`, then `[prices]` of mkevolve.toml. Raises ConfigError."""
    table = parse_prices(read_toml(SHIPPED), str(SHIPPED))
    user_file = user_folder(environment) / "prices.toml"
    if user_file.exists():
        table |= parse_prices(read_toml(user_file), str(user_file))
    path = path or find_file(environment)
    if path is not None:
        table |= parse_prices(read_toml(path).get("prices", {}), f"[prices] of {path}")
    return Prices(table)


def parse_prices(plain: Mapping[str, Any], where: str) -> dict[str, Price]:
    """Raises ConfigError naming the entry that cannot be used."""
    return {model: _price(model, entry, where) for model, entry in plain.items()}


def _price(model: str, entry: Any, where: str) -> Price:
    try:
        own = {key: entry[key] for key in ("max_output", "as_of", "source") if key in entry}
        tiers = tuple(_tier(tier) for tier in entry.get("tiers", ()))
        rates = _rates({key: value for key, value in entry.items() if key not in (*own, "tiers")})
        price = from_plain(Price, {"model": model, "rates": {"input": 0, "output": 0}, **own})
        date.fromisoformat(price.as_of or "2026-01-01")
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        hint = " Put an id with a dot in quotes." if isinstance(entry, dict) and "input" not in entry else ""
        raise ConfigError(f"The price of '{model}' in {where} cannot be used: {error}.{hint}") from None
    return Price(model, rates, tiers, price.max_output, price.as_of, price.source)


def _tier(plain: dict[str, Any]) -> Tier:
    above = plain["above_input_tokens"]
    return Tier(int(above), _rates({k: v for k, v in plain.items() if k != "above_input_tokens"}))


def _rates(plain: dict[str, Any]) -> Rates:
    names = Rates.__dataclass_fields__
    if unknown := [key for key in plain if key not in names]:
        raise ValueError(f"unknown key '{unknown[0]}' (known: {', '.join(names)})")
    if missing := [key for key in ("input", "output") if key not in plain]:
        raise ValueError(f"'{missing[0]}' is missing")
    rates = from_plain(Rates, plain)
    if any(value is not None and not 0 <= value < MILLION for value in (getattr(rates, n) for n in names)):
        raise ValueError("a price is not a number of dollars per million tokens")
    return rates


def _cost(usage: Usage, price: Price) -> Cost:
    rates = price.rates_for(usage.prompt)
    hour = _hour_writes(usage)
    parts = (
        ((usage.cache_write, None),) if hour is None else ((hour, True), (usage.cache_write - hour, False))
    )
    written = [(tokens, *rates.write(long)) for tokens, long in parts if tokens]
    read = rates.input if rates.cache_read is None else rates.cache_read
    dollars = usage.input * rates.input + usage.output * rates.output + usage.cache_read * read
    dollars += sum(tokens * each for tokens, each, _ in written)
    guessed = any(guess for *_, guess in written) or bool(usage.cache_read and rates.cache_read is None)
    return Cost(dollars / MILLION, guessed or not usage.known)


def _hour_writes(usage: Usage) -> int | None:
    """How much of `cache_write` is kept for an hour, where the provider says so."""
    try:
        hour = json.loads(usage.raw)["cache_creation"]["ephemeral_1h_input_tokens"]
    except (ValueError, TypeError, KeyError):
        return None
    return min(hour, usage.cache_write) if isinstance(hour, int) and hour >= 0 else None
