"""Roost in front of a Nova: what it reads of Nova to keep its own tables true, again and again and when it matters.

Hosts, aggregates, groups and where members are come from Nova. A round reads what changed, in a number of requests that
does not grow with the number of servers; one engine does it at a time. Between rounds, a group is read again before a
scheduler is told that its rules leave no host.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.clouds.nova import VIA, Nova, is_stricter
from roost.compute.fronting import mirror
from roost.compute.groups import groups
from roost.config import Settings
from roost.errors import Conflict, NotFound, RoostError
from roost.placement.rules import Rule
from roost.store.database import Database

logger = logging.getLogger(__name__)

_OVERLAP = timedelta(minutes=2)
"""How far back a round looks beyond the one before it: clocks differ, and changes take a while to be seen."""
_MOST_AT_ONCE = 200
"""Servers that are asked for one by one; what is left waits for the next round."""
_FRESH_SECONDS = 1.0

# Held while a round lasts: who finds it held has nothing to do.
_TAKE_TURN = sa.text("SELECT pg_try_advisory_xact_lock(7266015)")


@dataclass(slots=True)
class Front:
    """A Nova, and what Roost knows of it."""

    nova: Nova
    database: Database
    settings: Settings
    _since: datetime | None = None
    _read: dict[str, float] = field(default_factory=dict)

    def must_not_ask_itself(self, via: str | None) -> None:
        """Refuse a request that this Roost, or another process of it, sent where it takes Nova to be."""
        if VIA in (via or ""):
            raise Conflict(
                "Roost asks itself where it should ask Nova: in Roost's clouds.yaml, for the cloud "
                f"{self.nova.cloud!r}, set compute_endpoint_override to Nova's own address."
            )

    async def keep_following(self) -> None:
        """Go round again and again, until cancelled."""
        while True:
            try:
                async with self.database.begin() as turn:
                    if await turn.scalar(_TAKE_TURN):
                        await self.follow()
            except RoostError as error:
                logger.warning("Nova could not be followed, trying again: %s", error)
            except Exception:
                logger.exception("Nova could not be followed, trying again")
            await asyncio.sleep(self.settings.group_follow_seconds)

    async def follow(self) -> None:
        """One round: what changed since the one before, or everything."""
        await self.follow_inventory()
        started, at = datetime.now(UTC), await self._now()
        listed, (servers, gone) = await asyncio.gather(self.nova.groups(), self.nova.servers(self._since))
        async with self.database.begin() as connection:
            await mirror.take_turn(connection)
            unknown = await mirror.unknown_groups(connection, listed)
            # They may have been deleted since they were listed.
            found = await asyncio.gather(*(self.nova.group(group_id) for group_id in unknown))
            there = [group for group in listed if group.id not in unknown] + [group for group in found if group]
            await mirror.put_groups(connection, self.settings, there, complete_at=at)
            new = await mirror.missing_members(connection, there)
            followed = await mirror.followed(connection)
        seen = {server.id for server in servers}
        late, _ = await self.nova.servers_by_id(
            [server_id for server_id in new if server_id not in seen][:_MOST_AT_ONCE]
        )
        if self._since is None:
            gone = followed - seen
        concerned = [server for server in (*servers, *late) if server.id in followed or server.id in new]
        async with self.database.begin() as connection:
            await mirror.put_servers(connection, self.settings, concerned, at=at, new=new, gone=gone & followed)
        self._since = started - _OVERLAP

    async def follow_inventory(self) -> None:
        """Hosts and aggregates as they are now."""
        async with self.database.begin() as connection:
            await mirror.take_turn(connection)
            hosts, aggregates = await asyncio.gather(self.nova.hosts(), self.nova.aggregates())
            await mirror.put_inventory(connection, hosts, aggregates)

    async def read_group(self, group_id: str) -> None:
        """Where the members of a group are now: before somebody is told that there is no place for another."""
        if time.monotonic() - self._read.get(group_id, -_FRESH_SECONDS) < _FRESH_SECONDS:
            return
        async with self.database.begin() as connection:
            members = sorted(await mirror.followed(connection, group_id))
        await self.read_servers(members[:_MOST_AT_ONCE])
        self._read[group_id] = time.monotonic()

    async def read_servers(self, server_ids: Sequence[str]) -> list[mirror.NovaServer]:
        """Servers as they are now; without those that are not there any more."""
        at = await self._now()
        servers, gone = await self.nova.servers_by_id(server_ids)
        async with self.database.begin() as connection:
            await mirror.put_servers(connection, self.settings, servers, at=at, gone=gone)
        return servers

    async def adopt_group(self, group_id: str) -> None:
        """Take over a group that somebody made in Nova itself. Raises `NotFound`."""
        at = await self._now()
        async with self.database.begin() as connection:
            await mirror.take_turn(connection)
            group = await self.nova.group(group_id)
            if group is None:
                raise groups.missing(group_id)
            members, _ = await self.nova.servers_by_id(group.members[:_MOST_AT_ONCE])
            await mirror.put_groups(connection, self.settings, [group])
            new = dict.fromkeys((member.id for member in members), group_id)
            await mirror.put_servers(connection, self.settings, members, at=at, new=new)

    async def adopt_server(self, connection: AsyncConnection, token: str, server_id: str) -> None:
        """Follow a server from now on that is in no group, if it is there for whoever has this token."""
        at = await self._now()
        if not await self.nova.shows_server(token, server_id):
            raise NotFound(f"Instance {server_id} could not be found.")
        servers, _ = await self.nova.servers_by_id([server_id])
        await mirror.put_servers(connection, self.settings, servers, at=at, new={server_id: None})

    async def check_change(self, group_id: str, rules: Sequence[Rule]) -> None:
        """Raise `Conflict` where the group underneath, which Nova cannot change, forbids what these rules allow."""
        underneath = await self.nova.group(group_id)
        if underneath is not None and is_stricter(underneath.rule, rules):
            raise Conflict(
                f"The group has '{underneath.rule}' in Nova, which cannot be changed and is stricter than these "
                "policies; make a new group."
            )

    async def _now(self) -> datetime:
        async with self.database.begin() as connection:
            return (await connection.execute(sa.select(sa.func.now()))).scalar_one()
