"""A forecast says how much, and what it is based on; it never makes up a price."""

from dataclasses import replace

import pytest

from mkevolve_core.config import RunConfig, build_config
from mkevolve_core.llm.configuration import mailbox_settings
from mkevolve_core.llm.forecast import NOTHING, RoleTotals, forecast, totals_by_role
from mkevolve_core.llm.prices import Price, Prices, Rates
from mkevolve_core.llm.settings import STATIC, LLMSettings, ProviderSettings, RoleSettings
from mkevolve_core.llm.values import FailureKind, Reply, Role, Usage

OPUS = Price("opus", Rates(4.0, 20.0))
SMALL = Price("small", Rates(1.0, 5.0))
PRICES = Prices({"opus": OPUS, "small": SMALL})


def settings(price: str | None = None, **models: str) -> LLMSettings:
    roles = tuple(RoleSettings(role, "lab", models.get(role.value, "opus")) for role in Role)
    return LLMSettings((ProviderSettings("lab", "anthropic", price=price),), roles)


def line(found, role: Role):
    return next(each for each in found.roles if role in each.roles)


def test_a_run_like_the_papers_takes_as_many_kernel_writing_tokens():
    found = forecast(RunConfig(), settings(), PRICES)
    writing = line(found, Role.DEBUG)
    assert writing.calls.low == 160 and writing.calls.high == 176
    assert writing.input_tokens.low + writing.output_tokens.low == pytest.approx(1.7e6, rel=0.01)
    assert writing.dollars.low == pytest.approx(17.5, abs=0.5)
    assert found.dollars.low >= writing.dollars.low and found.dollars.high > found.dollars.low
    assert found.unknown == "" and "paper" in found.basis


def test_each_part_of_the_run_has_its_calls():
    config = replace(build_config("quick"), swap=True, swap_calls=2, postfuse=24)
    calls = {
        each.roles[0]: (each.calls.low, each.calls.high)
        for each in forecast(config, settings(), PRICES).roles
    }
    assert calls == {
        Role.GENERATE: (24, 27),
        Role.REVIEW: (6, 30),
        Role.DECOMPOSE: (3, 9),
        Role.SPLIT: (0, 6),
        Role.FUSE: (0, 6),
        Role.POSTFUSE: (0, 24),
        Role.ALTERNATIVE: (0, 12),
    }


def test_what_is_turned_off_costs_nothing():
    alone = settings()
    alone = replace(
        alone,
        roles=tuple(
            replace(role, provider=STATIC) if role.role is Role.REVIEW else role for role in alone.roles
        ),
    )
    found = forecast(replace(RunConfig(), decompose=False), alone, PRICES)
    assert [each.roles[0] for each in found.roles] == [Role.GENERATE]
    assert found.calls.low == 160


def test_earlier_runs_stand_before_the_paper():
    earlier = {
        Role.GENERATE: RoleTotals(10, 10_000, 50_000),
        Role.DEBUG: RoleTotals(10, 30_000, 10_000),
    }
    found = forecast(RunConfig(), settings(), PRICES, earlier)
    writing = line(found, Role.REFINE)
    assert writing.input_tokens.low == pytest.approx(160 * 2000 * 0.7)
    assert writing.output_tokens.high == pytest.approx(176 * 3000 * 1.5)
    assert found.basis == "20 earlier calls"
    only_reviews = forecast(RunConfig(), settings(), PRICES, {Role.REVIEW: RoleTotals(5, 500, 50)})
    assert only_reviews.basis.startswith("5 earlier calls, and the paper's")
    assert line(only_reviews, Role.REVIEW).output_tokens.high == pytest.approx(200 * 10 * 1.5)


def test_roles_of_several_models_range_from_the_cheapest_to_the_dearest():
    dear = line(forecast(RunConfig(), settings(), PRICES), Role.DEBUG).dollars
    cheap = line(
        forecast(RunConfig(), settings(generate="small", debug="small", refine="small"), PRICES), Role.DEBUG
    )
    mixed = line(forecast(RunConfig(), settings(debug="small"), PRICES), Role.DEBUG).dollars
    assert (mixed.low, mixed.high) == (cheap.dollars.low, dear.high)


def test_an_unknown_price_makes_the_cost_unknown_and_is_named():
    found = forecast(RunConfig(), settings(review="new-model"), PRICES)
    assert found.dollars is None and line(found, Role.DEBUG).dollars is not None
    assert found.unknown == "The price of lab's new-model is not known, so the cost is not either."
    assert forecast(RunConfig(), settings(alternative="new-model"), PRICES).dollars is not None, "never asked"
    people = forecast(RunConfig(), mailbox_settings(), PRICES)
    assert people.dollars is None and "mailbox's anyone" in people.unknown


def test_a_server_of_ones_own_costs_nothing():
    found = forecast(RunConfig(), settings("free"), Prices())
    assert found.dollars == NOTHING and found.unknown == ""


def test_only_calls_that_came_back_and_told_their_usage_are_counted():
    told = Usage(input=10, cache_read=5, output=7, known=True)
    base = Reply("1", Role.DEBUG, "lab", "opus", usage=told)
    replies = (
        base,
        replace(base, usage=replace(told, known=False)),
        replace(base, failure=FailureKind.DEADLINE),
        replace(base, role=Role.REVIEW),
        base,
    )
    assert totals_by_role(replies) == {Role.DEBUG: RoleTotals(2, 30, 14), Role.REVIEW: RoleTotals(1, 15, 7)}
