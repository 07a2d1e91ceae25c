"""Turns are few, and shared."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable

import pytest

from roost.errors import TooManyRequests, Unavailable
from roost.turns import FairTurns, RestingTurns, spread


async def have(shares: FairTurns, owner: str, log: list[str], release: asyncio.Event) -> None:
    async with shares.turn(owner):
        log.append(owner)
        await release.wait()


async def test_a_newcomer_does_not_wait_behind_everything_that_another_has_asked_for() -> None:
    shares, log, release = FairTurns(at_once=2, each=10, waiting=100), list[str](), asyncio.Event()
    greedy = [asyncio.create_task(have(shares, "greedy", log, release)) for _ in range(10)]
    await asyncio.sleep(0)
    modest = asyncio.create_task(have(shares, "modest", log, release))
    await asyncio.sleep(0)
    assert log == ["greedy", "greedy"]
    release.set()
    await asyncio.gather(*greedy, modest)
    assert log.index("modest") == 2


async def test_an_owner_may_ask_for_so_many_and_all_together_for_so_many() -> None:
    shares, log, release = FairTurns(at_once=1, each=2, waiting=3), list[str](), asyncio.Event()
    tasks = [asyncio.create_task(have(shares, owner, log, release)) for owner in ("a", "a", "b", "b")]
    await asyncio.sleep(0)
    with pytest.raises(TooManyRequests):
        await have(shares, "a", log, release)
    with pytest.raises(Unavailable):
        await have(shares, "c", log, release)
    release.set()
    await asyncio.gather(*tasks)
    await have(shares, "c", log, release)


async def test_who_gives_up_waiting_or_working_leaves_nothing_behind() -> None:
    shares, log, release = FairTurns(at_once=1, each=2, waiting=3), list[str](), asyncio.Event()
    tasks = [asyncio.create_task(have(shares, owner, log, release)) for owner in ("a", "b", "c")]
    await asyncio.sleep(0)
    for task in tasks[:2]:
        task.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert log == ["a", "c"]
    release.set()
    await tasks[2]
    for _ in range(3):
        await have(shares, "a", log, release)


async def test_who_gives_up_in_the_moment_when_a_turn_is_passed_on_is_just_gone() -> None:
    """Two that end in the same step of the event loop: the second was looked for in a queue that it had left."""
    shares, log, release = FairTurns(at_once=1, each=9, waiting=9), list[str](), asyncio.Event()
    tasks = [asyncio.create_task(have(shares, owner, log, release)) for owner in ("a", "b", "c")]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError] * 3
    release.set()
    await have(shares, "d", log, release)
    assert log == ["a", "d"]


async def test_an_owner_never_has_more_than_its_share_at_once() -> None:
    shares, log, release = FairTurns(at_once=4, share=2, each=9, waiting=9), list[str](), asyncio.Event()
    greedy = [asyncio.create_task(have(shares, "greedy", log, release)) for _ in range(6)]
    await asyncio.sleep(0)
    assert log == ["greedy", "greedy"]
    modest = asyncio.create_task(have(shares, "modest", log, release))
    await asyncio.sleep(0)
    assert log == ["greedy", "greedy", "modest"]
    release.set()
    await asyncio.gather(*greedy, modest)
    assert log.count("greedy") == 6


async def test_what_is_done_with_many_things_lets_others_be_served_in_between() -> None:
    served = 0

    async def serve() -> None:
        nonlocal served
        while True:
            served += 1
            await asyncio.sleep(0)

    def slowly(number: int) -> str:
        time.sleep(0.0005)
        return str(number)

    serving = asyncio.create_task(serve())
    assert await spread(str, range(10)) == [str(number) for number in range(10)]
    assert served <= 1, "a busy machine may take the CPU away meanwhile"
    assert await spread(slowly, range(100)) == [str(number) for number in range(100)]
    serving.cancel()
    assert served >= 30


async def test_a_backlog_takes_half_of_the_time_while_others_are_served() -> None:
    async def work(owner: str) -> None:
        async with turns.turn(owner):
            await asyncio.sleep(0.02)

    async def elapsed(*work: Awaitable[None]) -> float:
        began = asyncio.get_running_loop().time()
        await asyncio.gather(*work)
        return asyncio.get_running_loop().time() - began

    turns = RestingTurns(at_once=4, share=1, each=99, waiting=99)
    backlog = [asyncio.create_task(work("greedy")) for _ in range(10)]
    beside = await elapsed(work("modest"), *backlog)
    assert beside > 1.5 * 10 * 0.02
    await elapsed(work("greedy"), work("modest"))
    assert not turns._resting, "who has nothing waiting does not rest"


async def test_a_rest_ends_and_leaves_nothing_behind() -> None:
    async def work(owner: str) -> None:
        async with turns.turn(owner):
            await asyncio.sleep(0.01)

    turns = RestingTurns(at_once=2, share=2, each=9, waiting=9)
    tasks = [asyncio.create_task(work(owner)) for owner in ("a", "b", "b", "b", "a", "b", "b")]
    await asyncio.sleep(0.015)
    tasks[3].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0.02)
    assert (turns._began, turns._resting, turns._working) == ({}, Counter(), Counter())
    await asyncio.wait_for(work("b"), 5)
