"""Limits hold under many threads, and what does not fit says why."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from mkevolve_core.llm.budget import Amount, Budget, Refused, Totals
from mkevolve_core.llm.settings import Limits
from mkevolve_core.llm.values import Role

WORST = Amount(calls=1, usd=1.0, output_tokens=1000)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def refused(budget: Budget, worst: Amount = WORST) -> Refused | None:
    return budget.hold(budget.open(Role.GENERATE), worst)


def test_many_threads_together_never_pass_a_limit():
    budget = Budget(Limits(calls=10, usd=3.0))
    gate, made = threading.Barrier(16), []

    def work() -> None:
        gate.wait()
        claim = budget.open(Role.GENERATE)
        if budget.hold(claim, Amount(calls=1, usd=0.25)) is None:
            made.append(1)
            budget.spend(claim, Amount(calls=1, usd=0.2, output_tokens=10))
        budget.settle(claim)

    with ThreadPoolExecutor(16) as pool:
        for _ in range(16):
            pool.submit(work)
    spent = budget.totals().amount
    assert len(made) == spent.calls == 10 and spent.output_tokens == 100
    assert budget.reserved() == Amount()


def test_what_is_held_by_others_may_come_free_and_what_is_spent_does_not():
    budget = Budget(Limits(usd=1.5))
    first = budget.open(Role.GENERATE)
    assert budget.hold(first, WORST) is None
    waits = refused(budget)
    assert waits is not None and not waits.final
    budget.spend(first, Amount(calls=1, usd=0.4))
    budget.settle(first)
    assert refused(budget) is None, "0.4 + 1.0 fits"
    budget = Budget(Limits(usd=1.5), Totals({Role.DEBUG: Amount(3, 0.6)}))
    over = refused(budget)
    assert over is not None and over.final


def test_two_that_wait_for_each_other_both_hear_the_end():
    budget = Budget(Limits(usd=0.5))
    claims = [budget.open(Role.GENERATE) for _ in range(2)]
    assert all(budget.hold(claim, WORST).final for claim in claims)


def test_each_limit_says_what_is_left_and_how_to_raise_it():
    spent = Totals({Role.GENERATE: Amount(4, 1.75, 8000)})
    usd = refused(Budget(Limits(usd=2.0), spent))
    assert usd.reason == (
        "The limit of $2.00 is reached: one more call may take $1.00 and $0.25 are left; "
        "raise usd in [llm.limits] of mkevolve.toml, or lower max_tokens of the role."
    )
    tokens = refused(Budget(Limits(output_tokens=8000), spent))
    assert tokens.reason == (
        "The limit of 8,000 output tokens is reached: raise output_tokens in [llm.limits] of mkevolve.toml."
    )
    calls = refused(Budget(Limits(calls=4), spent))
    assert calls.reason == "The limit of 4 calls is reached: raise calls in [llm.limits] of mkevolve.toml."


def test_a_limit_may_be_used_up_to_the_last_cent_and_token():
    budget = Budget(Limits(usd=0.3, output_tokens=3000, calls=3))
    for _ in range(3):
        claim = budget.open(Role.GENERATE)
        assert budget.hold(claim, Amount(1, 0.1, 1000)) is None
        budget.spend(claim, Amount(1, 0.1, 1000))
        budget.settle(claim)
    assert refused(budget, Amount(calls=1)) is not None


def test_a_limit_of_nothing_allows_nothing():
    assert refused(Budget(Limits(calls=0))).final
    assert refused(Budget(Limits(usd=0.0))).final
    assert refused(Budget(Limits(usd=0.0)), Amount(calls=1)) is None, "what is free costs nothing"


def test_minutes_count_from_the_first_call_and_on_top_of_earlier_ones():
    clock = Clock()
    budget = Budget(Limits(minutes=10), Totals(seconds=240.0), clock)
    clock.now += 3600
    budget.start()
    clock.now += 359
    budget.start()
    assert refused(budget) is None
    clock.now += 1
    late = refused(budget)
    assert late.final and late.reason == "The limit of 10 minutes is reached: raise minutes in [llm.limits]."
    claim = budget.open(Role.DEBUG)
    assert budget.hold(claim, Amount(usd=1.0)) is None, "a call under way may try again"
    assert budget.totals().seconds == 600.0


def test_another_attempt_must_fit_beside_what_the_first_has_cost():
    budget = Budget(Limits(usd=1.5))
    claim = budget.open(Role.GENERATE)
    assert budget.hold(claim, WORST) is None
    budget.spend(claim, Amount(calls=1))
    assert budget.reserved() == replace(WORST, calls=0), "what is spent is held no longer"
    budget.spend(claim, Amount(usd=0.6))
    over = budget.hold(claim, Amount(usd=1.0))
    assert over is not None and over.final
    assert budget.reserved() == Amount(), "what is refused holds nothing"
    assert budget.hold(claim, Amount(usd=0.9)) is None


def test_unknown_costs_are_counted_as_calls_of_unknown_cost():
    budget = Budget(Limits(calls=2))
    claim = budget.open(Role.GENERATE)
    budget.hold(claim, Amount(calls=1))
    budget.spend(claim, Amount(calls=1), input_tokens=70)
    budget.settle(claim, unknown=True)
    totals = budget.totals()
    assert (totals.unknown, totals.amount.calls, totals.amount.usd, totals.input_tokens) == (1, 1, 0.0, 70)


def test_warnings_come_at_four_fifths_and_once():
    budget = Budget(Limits(usd=10.0))
    for number in range(10):
        claim = budget.open(Role.GENERATE)
        budget.spend(claim, Amount(1, 1.0))
        budget.settle(claim)
        assert len(budget.warnings()) == (1 if number >= 7 else 0)
    assert budget.warnings() == ("$8.00 of $10.00 are spent.",)
