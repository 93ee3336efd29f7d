"""What tokens cost, and what is not known."""

from datetime import date

import pytest

from mkevolve_core.errors import ConfigError
from mkevolve_core.llm.prices import Cost, Price, Prices, Rates, Tier, parse_prices, read_prices
from mkevolve_core.llm.values import Usage

OPUS = "claude-opus-5-5"


@pytest.fixture
def shipped(tmp_path) -> Prices:
    (tmp_path / "mkevolve.toml").write_text("")
    return read_prices({"HOME": str(tmp_path)}, tmp_path / "mkevolve.toml")


def known(**tokens: int) -> Usage:
    return Usage(**tokens, known=True)


def test_every_shipped_price_says_when_and_where_it_was_read(shipped):
    assert len(shipped.table) >= 7
    for price in shipped.table.values():
        assert date.fromisoformat(price.as_of) and price.source
        assert 0 < price.rates.input < price.rates.output


def test_input_output_and_cache_each_have_their_price(shipped):
    usage = known(input=1_000_000, output=1_000_000, cache_read=1_000_000)
    assert shipped.cost(usage, OPUS) == Cost(4.0 + 20.0 + 0.20)


def test_writing_to_the_cache_costs_by_how_long_it_is_kept(shipped):
    raw = '{"cache_creation": {"ephemeral_5m_input_tokens": 600000, "ephemeral_1h_input_tokens": 400000}}'
    told = Usage(cache_write=1_000_000, known=True, raw=raw)
    assert shipped.cost(told, OPUS) == Cost(pytest.approx(0.6 * 5.0 + 0.4 * 8.0))
    assert shipped.cost(known(cache_write=1_000_000), OPUS) == Cost(8.0), "not told: the dearer one"


def test_a_missing_cache_price_errs_high_and_is_an_estimate(shipped):
    sonnet = "claude-sonnet-5-5"
    assert shipped.cost(known(cache_read=1_000_000), sonnet) == Cost(2.0, estimated=True)
    assert shipped.cost(known(cache_write=1_000_000), sonnet) == Cost(4.0, estimated=True)
    assert shipped.cost(known(input=1_000_000), sonnet) == Cost(2.0)


def test_one_price_may_stand_for_both_lifetimes(shipped):
    assert shipped.cost(known(cache_write=1_000_000), "gpt-6.1-sol") == Cost(2.5)


@pytest.mark.parametrize(("prompt", "rate"), [(100_000, 0.10), (100_001, 0.50)])
def test_a_long_prompt_is_priced_by_its_tier_the_whole_call(shipped, prompt, rate):
    cost = shipped.cost(known(input=prompt - 50, cache_read=50, output=1000), "claude-haiku-5-5")
    assert cost.dollars == pytest.approx((prompt * rate + 1000 * 5 * rate) / 1e6)


def test_of_several_tiers_the_highest_that_is_reached_counts():
    tiers = (Tier(200, Rates(3, 3)), Tier(100, Rates(2, 2)))
    prices = Prices({"m": Price("m", Rates(1, 1), tiers)})
    found = [prices.cost(known(input=n), "m").dollars * 1e6 / n for n in (100, 101, 201)]
    assert found == pytest.approx([1, 2, 3])


@pytest.mark.parametrize("model", [OPUS, f"{OPUS}-20261015", f"{OPUS}-2026-10-15", f"{OPUS}@20261015"])
def test_the_date_at_the_end_of_an_id_does_not_matter(shipped, model):
    assert shipped.find(model).model == OPUS


def test_an_entry_with_the_date_stands_before_the_one_without():
    prices = Prices({"m": Price("m", Rates(1, 1)), "m-20260101": Price("m-20260101", Rates(2, 2))})
    assert prices.find("m-20260101").rates.input == 2 and prices.find("m-20260202").rates.input == 1


@pytest.mark.parametrize(
    "model", ["claude-opus-5-5-fast", "claude-opus", "anthropic/claude-opus-5-5", "gpt-oss"]
)
def test_another_model_is_unknown_and_never_free(shipped, model):
    assert shipped.find(model) is None
    assert shipped.cost(known(input=10, output=10), model) is None
    assert shipped.worst(model, 10, 10) is None


def test_the_resolved_name_helps_where_the_asked_one_is_unknown(shipped):
    assert shipped.cost(known(input=1_000_000), "claude-latest", resolved=f"{OPUS}-20261015") == Cost(4.0)


def test_usage_that_nobody_told_is_unknown_and_an_estimate_stays_one(shipped):
    assert shipped.cost(Usage(), OPUS) is None
    assert shipped.cost(Usage(input=1_000_000), OPUS) == Cost(4.0, estimated=True)
    assert shipped.cost(known(), OPUS) == Cost(0.0)


def test_what_the_provider_says_wins_and_a_server_of_ones_own_is_free(shipped):
    told = Usage(input=5, known=True, cost=0.125)
    assert shipped.cost(told, "never heard of") == Cost(0.125)
    assert shipped.cost(Usage(), "never heard of", free=True) == Cost(0.0)
    assert shipped.worst("never heard of", 10, 10, free=True) == 0.0


@pytest.mark.parametrize("usage", [known(input=10_000, output=5), known(cache_write=10_000, output=1000)])
def test_no_call_costs_more_than_its_worst_case(shipped, usage):
    for model in shipped.table:
        assert shipped.cost(usage, model).dollars <= shipped.worst(model, 10_000, 1000)


def test_the_users_file_stands_before_the_shipped_one_and_the_projects_before_both(tmp_path):
    folder = tmp_path / ".config" / "mkevolve"
    folder.mkdir(parents=True)
    (folder / "prices.toml").write_text(
        f'["{OPUS}"]\ninput = 1\noutput = 1\n["mine"]\ninput = 2\noutput = 2\n'
    )
    project = tmp_path / "mkevolve.toml"
    project.write_text('[prices.mine]\ninput = 3\noutput = 3\n[prices."local.7b"]\ninput = 0\noutput = 0\n')
    prices = read_prices({"HOME": str(tmp_path), "MKEVOLVE_CONFIG": str(project)})
    assert [prices.find(m).rates.input for m in (OPUS, "mine", "local.7b", "claude-opus-5")] == [1, 3, 0, 5]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"input": 1}, "'output' is missing"),
        ({"input": "1", "output": 2}, "expected float"),
        ({"input": -1, "output": 2}, "not a number of dollars"),
        ({"input": float("nan"), "output": 2}, "not a number of dollars"),
        ({"input": 1, "output": 2, "cache_reads": 1}, "unknown key 'cache_reads'"),
        ({"input": 1, "output": 2, "as_of": "yesterday"}, "yesterday"),
        ({"input": 1, "output": 2, "tiers": [{"input": 1, "output": 2}]}, "above_input_tokens"),
        ({"1-sol": {"input": 1, "output": 2}}, "Put an id with a dot in quotes"),
        (3, "cannot be used"),
    ],
)
def test_an_entry_that_cannot_be_used_is_told(entry, said):
    with pytest.raises(ConfigError, match="The price of 'm' in here") as caught:
        parse_prices({"m": entry}, "here")
    assert said in str(caught.value)


def test_old_prices_are_told_once_and_young_ones_are_not(shipped):
    models = [OPUS, f"{OPUS}-20261015", "unknown"]
    assert shipped.stale(models, date(2027, 3, 1)) == ()
    (said,) = shipped.stale(models, date(2027, 3, 2))
    assert said == f"The price of {OPUS} was read on 2026-12-01: check it in prices.toml."
