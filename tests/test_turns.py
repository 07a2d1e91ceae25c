"""Turns are few, and shared."""

import asyncio

import pytest

from roost.errors import TooManyRequests, Unavailable
from roost.turns import FairTurns


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
