"""How many calls a provider gets, and when."""

import asyncio
import time

import pytest

from mkevolve_core.llm.limiter import GROW_AFTER, Limiter
from mkevolve_core.llm.settings import ProviderSettings
from mkevolve_core.llm.values import CallFailed, FailureKind


def limiter(**changes) -> Limiter:
    return Limiter(ProviderSettings("lab", "anthropic", **changes))


async def entered(one: Limiter, within: float = 0.05) -> bool:
    try:
        async with asyncio.timeout(within):
            await one.enter()
    except TimeoutError:
        return False
    return True


def test_only_so_many_enter_and_who_leaves_makes_room_in_turn():
    async def main() -> list[int]:
        one, order = limiter(max_parallel=1), []

        async def call(number: int) -> None:
            await one.enter()
            order.append(number)
            await asyncio.sleep(0.01)
            one.leave()

        await asyncio.gather(*(call(number) for number in range(5)))
        return order

    assert asyncio.run(main()) == [0, 1, 2, 3, 4]


def test_a_complaint_halves_once_for_all_calls_of_the_same_round():
    async def main() -> list[int]:
        one = limiter(max_parallel=8)
        rounds = [await one.enter() for _ in range(8)]
        seen = [one.allowed]
        for number in rounds:
            one.complained(number)
        seen.append(one.allowed)
        for _ in rounds:
            one.leave()
        for _ in range(3):
            one.complained(await one.enter())
            one.leave()
            seen.append(one.allowed)
        return seen

    assert asyncio.run(main()) == [8, 4, 2, 1, 1]


def test_ten_successes_give_one_place_back_up_to_the_setting():
    async def main() -> list[int]:
        one, seen = limiter(max_parallel=4), []
        one.complained(await one.enter())
        one.leave()
        for _ in range(5):
            for _ in range(GROW_AFTER):
                one.succeeded()
            seen.append(one.allowed)
        return seen

    assert asyncio.run(main()) == [3, 4, 4, 4, 4]


def test_fewer_places_hold_back_those_who_come_next():
    async def main() -> None:
        one = limiter(max_parallel=2)
        first = await one.enter()
        one.complained(first)
        assert not await entered(one)
        one.leave()
        assert await entered(one)

    asyncio.run(main())


def test_who_gives_up_waiting_does_not_block_the_next():
    async def main() -> None:
        one = limiter(max_parallel=1)
        await one.enter()
        gives_up = asyncio.create_task(one.enter())
        waits = asyncio.create_task(one.enter())
        await asyncio.sleep(0.01)
        gives_up.cancel()
        one.leave()
        await asyncio.wait_for(waits, 1.0)

    asyncio.run(main())


def test_a_newcomer_does_not_overtake_those_who_wait():
    async def main() -> list[str]:
        one, order = limiter(max_parallel=1), []

        async def call(name: str) -> None:
            await one.enter()
            order.append(name)
            one.leave()

        await one.enter()
        waits = asyncio.create_task(call("waits"))
        await asyncio.sleep(0.01)
        one.leave()
        await call("newcomer")
        await waits
        return order

    assert asyncio.run(main()) == ["waits", "newcomer"]


def test_a_minute_has_only_so_many_starts():
    async def main() -> None:
        now = [1000.0]
        one = Limiter(ProviderSettings("lab", "anthropic", requests_per_minute=2), clock=lambda: now[0])
        assert await entered(one) and await entered(one)
        assert not await entered(one)
        now[0] += 59.0
        assert not await entered(one)
        now[0] += 1.0
        assert await entered(one)

    asyncio.run(main())


def test_a_pause_holds_all_back_until_it_ends_and_a_later_end_stands():
    async def main() -> None:
        one = limiter()
        one.pause(0.25, "slow down")
        one.pause(0.05, "a little")
        assert one.paused_until is not None and one.paused_until == pytest.approx(
            time.time() + 0.25, abs=0.05
        )
        began = time.monotonic()
        await asyncio.gather(one.enter(), one.enter())
        assert 0.2 < time.monotonic() - began < 0.5
        assert one.paused_until is None and one.reason == ""

    asyncio.run(main())


def test_a_block_ends_all_waiting_and_turns_all_away():
    async def main() -> None:
        one = limiter(max_parallel=1)
        await one.enter()
        waits = asyncio.create_task(one.enter())
        await asyncio.sleep(0.01)
        one.block(FailureKind.AUTH, "no such key")
        one.block(FailureKind.BILLING, "said later")
        for call in (waits, one.enter()):
            with pytest.raises(CallFailed) as caught:
                await call
            assert (caught.value.kind, caught.value.detail) == (FailureKind.AUTH, "no such key")

    asyncio.run(main())
