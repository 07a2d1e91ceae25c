"""Periodic work: by one engine at a time where it must be, and in spite of failures.

Every periodic loop of the engine is declared with `every`.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

import psycopg

from roost.errors import RoostError
from roost.store.database import Database, GuardedConnection, is_unavailable
from roost.store.locks import AdvisoryLock

logger = logging.getLogger(__name__)

T = TypeVar("T")

_LONGEST_PAUSE = 5.0


class Rounds:
    """The rounds of one engine, and the connection on which it holds its turns."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: GuardedConnection | None = None
        self._connecting = asyncio.Lock()

    async def every(
        self,
        seconds: float,
        work: Callable[[], Awaitable[float | None]],
        *,
        turn: AdvisoryLock | None = None,
        woken: asyncio.Event | None = None,
    ) -> None:
        """Do `work` every so many seconds, or as soon as `woken` is set, until cancelled; 0 seconds is never.

        With a `turn`, one engine does it at a time, and the others pass. The work may return the seconds until it is to
        be done again. After a failure it waits longer, up to five seconds beyond what is usual.
        """
        pause, name = 0.0, getattr(getattr(work, "func", work), "__qualname__", str(work))
        while seconds:
            if woken is not None:
                woken.clear()
            try:
                wanted = await self._once(work, turn)
                pause = seconds if wanted is None else wanted
            except Exception as error:
                pause = min(max(2 * pause, seconds, 0.1), seconds + _LONGEST_PAUSE)
                _report(error, "%s failed, trying again", name)
            if woken is None:
                await asyncio.sleep(pause)
            elif pause:
                with suppress(TimeoutError):
                    # Not wait_for: in Python 3.11 it loses a cancellation that comes together with the event.
                    async with asyncio.timeout(pause):
                        await woken.wait()

    async def _once(self, work: Callable[[], Awaitable[float | None]], turn: AdvisoryLock | None) -> float | None:
        if turn is None:
            return await work()
        async with self.turn(turn) as mine:
            return await work() if mine else None

    @asynccontextmanager
    async def turn(self, lock: AdvisoryLock) -> AsyncIterator[bool]:
        """Hold a turn if no other engine does; whether we do. It ends with the block, or with this process."""
        connection = await self._connected()
        taken = await _ask(connection, "SELECT pg_try_advisory_lock(%s)", lock)
        try:
            yield taken
        finally:
            if taken:
                with suppress(psycopg.Error):
                    await _ask(connection, "SELECT pg_advisory_unlock(%s)", lock)

    async def _connected(self) -> GuardedConnection:
        async with self._connecting:
            if self._connection is None or self._connection.closed:
                self._connection = await self._database.open("turns")
            return self._connection

    async def close(self) -> None:
        """Give all turns back."""
        if self._connection is not None:
            await self._connection.close()


async def _ask(connection: GuardedConnection, query: str, lock: AdvisoryLock) -> bool:
    row = await (await connection.execute(query.encode(), [int(lock)])).fetchone()
    return bool(row and row[0])


async def each(items: Iterable[T], work: Callable[[T], Awaitable[object]], what: str) -> None:
    """Do `work` for each of the items. One that fails is logged by the name that `what` gives it, and the next has its
    turn."""
    for item in items:
        try:
            await work(item)
        except Exception as error:
            _report(error, what + " failed, going on with the others", item)


def _report(error: Exception, message: str, about: object) -> None:
    """Logs a failure with what is needed to fix it: only the reason, where the failure is known to pass by itself."""
    if isinstance(error, RoostError) or is_unavailable(error):
        logger.warning(message, about, extra={"error": str(error.__cause__ or error)})
    else:
        logger.error(message, about, exc_info=error)
