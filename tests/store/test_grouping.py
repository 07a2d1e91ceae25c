"""Calls that are answered together, and callers that go away meanwhile."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import pytest

from roost.store.grouping import Grouped


class Rounds:
    """Answers that take as long as they are held up."""

    def __init__(self) -> None:
        self.begun: list[list[int]] = []
        self.ended = 0
        self.go = asyncio.Event()

    async def answer(self, items: Sequence[int]) -> list[int]:
        """Twice each."""
        self.begun.append(list(items))
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.ended += 1
            raise
        return [2 * item for item in items]


async def _begin(grouped: Grouped[int, int], *items: int) -> list["asyncio.Task[int]"]:
    async def ask(item: int) -> int:
        return await grouped(item)

    tasks = [asyncio.create_task(ask(item)) for item in items]
    await asyncio.sleep(0.01)
    return tasks


async def _left(task: "asyncio.Task[int]") -> bool:
    """Whether a caller that is cancelled is gone in a moment."""
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=0.05)
    return bool(done)


async def test_a_round_that_only_reads_ends_when_nobody_waits_for_it() -> None:
    rounds = Rounds()
    grouped = Grouped(rounds.answer, writes=False)
    one, other = await _begin(grouped, 1, 2)
    assert await _left(one)
    assert rounds.ended == 0
    assert await _left(other)
    await asyncio.sleep(0.01)
    assert rounds.ended == 1
    rounds.go.set()
    assert await grouped(3) == 6


async def test_who_stays_is_answered_and_who_left_before_the_round_is_not_asked_for() -> None:
    rounds = Rounds()
    grouped = Grouped(rounds.answer, writes=False)
    (first,) = await _begin(grouped, 1)
    stays, leaves = await _begin(grouped, 2, 3)
    assert await _left(leaves)
    rounds.go.set()
    assert [await first, await stays] == [2, 4]
    assert rounds.begun == [[1], [2]]


async def test_a_caller_waits_for_what_a_round_writes() -> None:
    rounds = Rounds()
    grouped = Grouped(rounds.answer)
    (task,) = await _begin(grouped, 1)
    assert not await _left(task)
    rounds.go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert rounds.ended == 0


async def test_a_round_that_is_ended_with_its_process_leaves_nobody_waiting() -> None:
    rounds = Rounds()
    grouped = Grouped(rounds.answer, writes=False)
    (task,) = await _begin(grouped, 1)
    assert grouped._rounds is not None
    grouped._rounds.cancel()
    with suppress(asyncio.CancelledError):
        await asyncio.wait_for(task, 1)
    assert task.cancelled()
