"""Fair turns: few work at once, and those who ask take turns, so that none of them keeps the others out."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from roost.errors import TooManyRequests, Unavailable


class FairTurns:
    """At most `at_once` owners' turns at a time, `each` asked for by one owner, and `waiting` by all together.

    A free turn goes to the owner that has the fewest, and among those to the one that waits longest. Belongs to one
    event loop.
    """

    def __init__(self, *, at_once: int, each: int, waiting: int) -> None:
        self._at_once, self._each, self._waiting = at_once, each, waiting
        self._working: Counter[str] = Counter()
        self._queue: deque[tuple[str, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def turn(self, owner: str) -> AsyncIterator[None]:
        """Wait for a turn and have it. Raises `TooManyRequests` where the owner has or awaits too many, `Unavailable`
        where too many wait altogether."""
        if self._working[owner] + sum(owner == each for each, _ in self._queue) >= self._each:
            raise TooManyRequests("Too many of your requests like this one are being worked on; try again in a moment.")
        if len(self._queue) >= self._waiting:
            raise Unavailable("Too many requests like this one are being worked on; try again in a moment.")
        await self._begin(owner)
        try:
            yield
        finally:
            self._working[owner] -= 1
            self._pass_on()

    async def _begin(self, owner: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((owner, turn))
        self._pass_on()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._working[owner] -= 1
                self._pass_on()
            else:
                self._queue.remove((owner, turn))
            raise

    def _pass_on(self) -> None:
        self._working += Counter()  # forgets those who have none
        while self._queue and self._working.total() < self._at_once:
            place = min(range(len(self._queue)), key=lambda place: self._working[self._queue[place][0]])
            owner, turn = self._queue[place]
            del self._queue[place]
            if not turn.done():
                self._working[owner] += 1
                turn.set_result(None)
