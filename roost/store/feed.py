"""Numbered changes: what a process has read of a table to which others add rows with rising numbers.

A number is given before its transaction commits, so a smaller one may appear after a larger one. Such gaps are asked
for again, for as long as a transaction may take; a number that was rolled back is given up then.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.store.database import Database

logger = logging.getLogger(__name__)

_GAP_SECONDS = 30.0
_MOST_GAPS = 1_000
_EARLIER = 50
_KEPT = 20_000
_POLL_SECONDS = 0.2


@dataclass(slots=True)
class Feed:
    """How far one process has read; -1 is not at all."""

    seen: int = -1
    _missing: dict[int, float] = field(default_factory=dict)
    """The numbers that were skipped, and until when to ask for them."""

    @property
    def missing(self) -> list[int]:
        """The numbers below `seen` that may still appear."""
        if self._missing:
            now = time.monotonic()
            self._missing = {number: until for number, until in self._missing.items() if until > now}
        return list(self._missing)

    def start(self, newest: int) -> None:
        """Begin after this number. Those shortly before it may yet be committed: they are read too, once more if need
        be."""
        self.seen = newest
        until = time.monotonic() + _GAP_SECONDS
        self._missing = dict.fromkeys(range(max(1, newest - _EARLIER), newest), until)

    def is_new(self, number: int) -> bool:
        """Note that a change was read; whether it had not been read before."""
        if number <= self.seen:
            return self._missing.pop(number, None) is not None
        if number - self.seen <= _MOST_GAPS:
            until = time.monotonic() + _GAP_SECONDS
            self._missing.update(dict.fromkeys(range(self.seen + 1, number), until))
        self.seen = number
        return True


async def newest(connection: AsyncConnection, table: sa.Table) -> int:
    """The largest number that is committed."""
    return int((await connection.execute(sa.select(sa.func.coalesce(sa.func.max(table.c.number), 0)))).scalar_one())


async def read(connection: AsyncConnection, table: sa.Table, feed: Feed) -> list[sa.Row[Any]] | None:
    """The changes that were not read before, in order; None if there may be some that are no longer kept."""
    new = sa.or_(table.c.number > feed.seen, table.c.number.in_(feed.missing))
    rows = (await connection.execute(sa.select(table).where(new).order_by(table.c.number))).all()
    oldest = next((row.number for row in rows if row.number > feed.seen), feed.seen + 1)
    lost = oldest > feed.seen + 1 and await _begins_after(connection, table, feed.seen + 1)
    fresh = [row for row in rows if feed.is_new(row.number)]
    return None if lost else fresh


async def follow(
    database: Database, table: sa.Table, received: Callable[[list[sa.Row[Any]] | None], Awaitable[None]]
) -> None:
    """Call `received` with new changes as they come, until cancelled; with None at first, and whenever some may have
    been missed: anything may have changed then."""
    feed = Feed()
    while True:
        try:
            async with database.autocommit() as connection:
                rows = None if feed.seen < 0 else await read(connection, table, feed)
                if rows is None:
                    feed.start(await newest(connection, table))
        except SQLAlchemyError as error:
            logger.warning("changes could not be read, trying again", extra={"error": str(error)})
            feed = Feed()
            await asyncio.sleep(1)
            continue
        if rows or rows is None:
            await received(rows)
        await asyncio.sleep(_POLL_SECONDS)


async def _begins_after(connection: AsyncConnection, table: sa.Table, number: int) -> bool:
    """Whether what is kept of a table begins after this number."""
    first = await connection.scalar(sa.select(sa.func.min(table.c.number)))
    return first is not None and int(first) > number


async def forget_old(connection: AsyncConnection, tables: Iterable[sa.Table], keep: int = _KEPT) -> None:
    """Drop the changes that no process will ask for: a process that is further behind starts over."""
    for table in tables:
        last = sa.select(sa.func.max(table.c.number)).scalar_subquery()
        await connection.execute(table.delete().where(table.c.number <= last - keep))
