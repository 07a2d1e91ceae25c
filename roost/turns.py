"""Fair turns: few callers work at once, and they take turns, so that none of them keeps the others out."""

import asyncio
import math
import time
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from roost.errors import TooManyRequests, Unavailable

T = TypeVar("T")
R = TypeVar("R")


class FairTurns:
    """At most `at_once` turns at a time, `share` of them of one owner; an owner may have or await `each`, and all
    together may await `waiting`.

    A free turn goes to the owner that has the fewest, and among those to the one that waits longest. Belongs to one
    event loop.
    """

    def __init__(self, *, at_once: int, each: int, waiting: int, share: int | None = None) -> None:
        self._at_once, self._each, self._waiting = at_once, each, waiting
        self._share = share or at_once
        self._working: Counter[str] = Counter()
        self._queue: deque[tuple[str, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def turn(self, owner: str) -> AsyncIterator[None]:
        """Wait for a turn and have it. Raises `TooManyRequests` where the owner has or awaits too many, `Unavailable`
        where too many wait altogether."""
        await self.take(owner)
        try:
            yield
        finally:
            self.give_back(owner)

    async def take(self, owner: str) -> None:
        """Wait for a turn, which must be given back."""
        if not self._queue and self._may_work(owner) and self._working[owner] < self._each:
            self._begin(owner)
            return
        if self._working[owner] + sum(owner == each for each, _ in self._queue) >= self._each:
            raise TooManyRequests("Too many of your requests like this one are being worked on; try again in a moment.")
        if len(self._queue) >= self._waiting:
            raise Unavailable("Too many requests like this one are being worked on; try again in a moment.")
        await self.take_another(owner)

    async def take_another(self, owner: str) -> None:
        """Wait for a turn, which must be given back, to go on with what was begun in one: that is never refused."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((owner, turn))
        self._pass_on()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back(owner)
            raise

    def give_back(self, owner: str) -> None:
        """End a turn."""
        self._working[owner] -= 1
        if not self._working[owner]:
            del self._working[owner]
        self._pass_on()

    def _begin(self, owner: str) -> None:
        self._working[owner] += 1

    def _may_work(self, owner: str) -> bool:
        return self._working.total() < self._at_once and self._working[owner] < self._share

    def _pass_on(self) -> None:
        if self._queue and any(turn.done() for _, turn in self._queue):
            self._queue = deque(each for each in self._queue if not each[1].done())
        while places := [place for place, (owner, _) in enumerate(self._queue) if self._may_work(owner)]:
            place = min(places, key=lambda place: self._working[self._queue[place][0]])
            owner, turn = self._queue[place]
            del self._queue[place]
            self._begin(owner)
            turn.set_result(None)


class RestingTurns(FairTurns):
    """Turns with rests: while other owners are served too, one that has more waiting rests after each turn for as long
    as it worked, so that its backlog takes half of the time at most."""

    _ACTIVE_SECONDS = 1.0

    def __init__(self, *, at_once: int, each: int, waiting: int, share: int | None = None) -> None:
        super().__init__(at_once=at_once, each=each, waiting=waiting, share=share)
        self._began: defaultdict[str, deque[float]] = defaultdict(deque)
        self._resting: Counter[str] = Counter()
        self._latest, self._before = ("", -math.inf), ("", -math.inf)

    async def take(self, owner: str) -> None:
        if self._latest[0] != owner:
            self._before = self._latest
        self._latest = owner, time.monotonic()
        await super().take(owner)

    def give_back(self, owner: str) -> None:
        now = time.monotonic()
        worked = now - self._began[owner].popleft()
        if not self._began[owner]:
            del self._began[owner]
        _, other = self._before if self._latest[0] == owner else self._latest
        if now - other < self._ACTIVE_SECONDS and any(each == owner for each, _ in self._queue):
            self._resting[owner] += 1
            asyncio.get_running_loop().call_later(worked, self._rested, owner)
        super().give_back(owner)

    def _begin(self, owner: str) -> None:
        self._began[owner].append(time.monotonic())
        super()._begin(owner)

    def _rested(self, owner: str) -> None:
        self._resting[owner] -= 1
        if not self._resting[owner]:
            del self._resting[owner]
        self._pass_on()

    def _may_work(self, owner: str) -> bool:
        return owner not in self._resting and super()._may_work(owner)


_PIECE_SECONDS = 0.0003
"""A request comes back to the event loop some ten times, and finds such a piece of another's before it each time."""


async def spread(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Do this with each item; where that takes long, others are served in between."""
    done: list[R] = []
    until = time.perf_counter() + _PIECE_SECONDS
    for item in items:
        done.append(work(item))
        if time.perf_counter() > until:
            await asyncio.sleep(0)
            until = time.perf_counter() + _PIECE_SECONDS
    return done
