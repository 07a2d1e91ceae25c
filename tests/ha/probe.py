"""How long PostgreSQL itself could not be written to: Patroni's own outage, against which Roost's is held."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import Future

import psycopg

from tests.ha.clients import longest_pause

EVERY_SECONDS = 0.5
PATIENCE_SECONDS = 30.0
_TABLE = "CREATE TABLE IF NOT EXISTS probe (number bigint PRIMARY KEY)"


class Probe:
    """Writes a row on a new connection twice a second, whether the one before was written or not."""

    def __init__(self, url: str, loop: asyncio.AbstractEventLoop) -> None:
        self._url, self._loop = url, loop
        self.written: dict[int, float] = {}
        """When which row was acknowledged."""
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Write as long as the block lasts."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(_TABLE)
        work: Future[None] = asyncio.run_coroutine_threadsafe(self._go_on(), self._loop)
        try:
            yield
        finally:
            work.cancel()

    async def _go_on(self) -> None:
        while True:
            task = asyncio.create_task(self._write(time.time_ns()))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(EVERY_SECONDS)

    async def _write(self, number: int) -> None:
        with contextlib.suppress(psycopg.Error, TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                connection = await psycopg.AsyncConnection.connect(self._url, autocommit=True)
                async with connection:
                    await connection.execute("INSERT INTO probe VALUES (%s)", (number,))
            self.written[number] = time.time()

    def lost(self) -> list[int]:
        """Rows that were acknowledged and are not there."""
        with psycopg.connect(self._url) as connection:
            there = {row[0] for row in connection.execute("SELECT number FROM probe")}
        return [number for number in self.written if number not in there]

    def longest_pause(self, begin: float, end: float) -> float:
        """The longest time without an acknowledged row."""
        return longest_pause(list(self.written.values()), begin, end)
