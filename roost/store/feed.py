"""Numbered changes: what a process has read of a table to which others add rows with rising numbers.

A number is given before its transaction commits, so a smaller one may appear after a larger one. Such gaps are asked
for again, for as long as a transaction may take; a number that was rolled back is given up then.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

_GAP_SECONDS = 30.0
_MOST_GAPS = 1_000
_EARLIER = 50
_KEPT = 20_000


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


async def forget_old(connection: AsyncConnection, tables: Iterable[sa.Table], keep: int = _KEPT) -> None:
    """Drop the changes that no process will ask for: a process that is further behind starts over."""
    for table in tables:
        last = sa.select(sa.func.max(table.c.number)).scalar_subquery()
        await connection.execute(table.delete().where(table.c.number <= last - keep))
