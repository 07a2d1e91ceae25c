"""What changed, for people who watch: written by triggers (migration 0005) in the transaction that changes it.

A process reads these changes only while somebody watches. What a watcher has not taken yet is merged, never queued:
however slow it is, it holds at most a few sets of ids, and where those grow too long, "any of them".
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.store.database import Database
from roost.store.feed import Feed, newest
from roost.store.tables.changes import watch_changes

logger = logging.getLogger(__name__)

FALLEN = "fallen"
"""Another kind of change, for engines alone: the nodes, by id, whose servers are gone or no longer active."""
SERVERS, HOSTS, GROUPS, CLUSTERS = KINDS = ("servers", "hosts", "groups", "clusters")
"""Servers and hosts appear under the ids of the hosts, groups and clusters under their own."""

_MOST_IDS = 2000
_POLL_SECONDS = 0.2


class WatchedChange(NamedTuple):
    """Something changed: of a kind, in a project (hosts have none), and which; None is any of them."""

    kind: str
    project_id: str
    ids: frozenset[str] | None


Changes = Mapping[str, frozenset[str] | None]
"""By kind, what changed since the last look; None is any."""

EVERYTHING: Changes = dict.fromkeys(KINDS)


@dataclass(slots=True, eq=False)
class Watcher:
    """A watcher, and the changes it has not seen yet."""

    wants: Callable[[WatchedChange], bool]
    _unseen: dict[str, frozenset[str] | None] = field(default_factory=dict)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _closed: bool = False

    async def take(self, patience: float) -> Changes | None:
        """What changed since the last time, as soon as anything did; nothing if patience ends; None at the end."""
        try:
            await asyncio.wait_for(self._woken.wait(), patience)
        except TimeoutError:
            return {}
        if self._closed:
            return None
        self._woken.clear()
        unseen, self._unseen = self._unseen, {}
        return unseen

    def note(self, change: WatchedChange | None) -> None:
        """Remember a change; None is everything."""
        if change is None:
            self._unseen = dict(EVERYTHING)
        elif not self.wants(change):
            return
        else:
            known = self._unseen.get(change.kind, frozenset())
            ids = None if known is None or change.ids is None else known | change.ids
            self._unseen[change.kind] = None if ids is None or len(ids) > _MOST_IDS else ids
        self._woken.set()

    def close(self) -> None:
        """End the watch: nothing more will come."""
        self._closed = True
        self._woken.set()


class Watch:
    """All watchers in this process."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._watchers: set[Watcher] = set()
        self._listening: asyncio.Task[None] | None = None
        self._closed = False

    @asynccontextmanager
    async def look(self, wants: Callable[[WatchedChange], bool]) -> AsyncIterator[Watcher]:
        """Watch what `wants` agrees to. Whenever something may have been missed, everything counts as changed."""
        watcher = Watcher(wants)
        self._watchers.add(watcher)
        if self._closed:
            watcher.close()
        elif self._listening is None or self._listening.done():
            self._listening = asyncio.create_task(follow(self._database, self._received))
        else:
            watcher.note(None)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)
            if not self._watchers and self._listening is not None:
                self._listening.cancel()
                self._listening = None

    def close(self) -> None:
        """End all watching: this process stops."""
        self._closed = True
        for watcher in self._watchers:
            watcher.close()

    async def _received(self, changes: list[WatchedChange] | None) -> None:
        for watcher in self._watchers:
            if changes is None:
                watcher.note(None)
            for change in changes or ():
                if change.kind in KINDS:
                    watcher.note(change)


async def follow(database: Database, received: Callable[[list[WatchedChange] | None], Awaitable[None]]) -> None:
    """Call `received` with new changes as they come, until cancelled; with None at first, and whenever some may have
    been missed: anything may have changed then."""
    feed = Feed()
    while True:
        try:
            async with database.autocommit() as connection:
                changes = None if feed.seen < 0 else await _read(connection, feed)
                if changes is None:
                    feed.start(await newest(connection, watch_changes))
        except SQLAlchemyError as error:
            logger.warning("changes could not be read, trying again", extra={"error": str(error)})
            feed = Feed()
            await asyncio.sleep(1)
            continue
        if changes or changes is None:
            await received(changes)
        await asyncio.sleep(_POLL_SECONDS)


async def _read(connection: AsyncConnection, feed: Feed) -> list[WatchedChange] | None:
    """The changes that were not read before, in order; None if some may already have been dropped."""
    number = watch_changes.c.number
    new = sa.or_(number > feed.seen, number.in_(feed.missing))
    rows = (await connection.execute(sa.select(watch_changes).where(new).order_by(number))).all()
    oldest = next((row.number for row in rows if row.number > feed.seen), feed.seen + 1)
    lost = oldest > feed.seen + 1 and await _begins_after(connection, feed.seen + 1)
    fresh = [_change(*columns) for number, *columns in rows if feed.is_new(number)]
    return None if lost else fresh


def _change(kind: str, project_id: str, ids: str) -> WatchedChange:
    return WatchedChange(kind, project_id, None if ids == "*" else frozenset(filter(None, ids.split(","))))


async def _begins_after(connection: AsyncConnection, number: int) -> bool:
    """Whether the changes that are kept begin after this number."""
    first = await connection.scalar(sa.select(sa.func.min(watch_changes.c.number)))
    return first is not None and int(first) > number
