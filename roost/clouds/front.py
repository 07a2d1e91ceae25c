"""Roost in front of a Nova: what it reads from Nova to keep its own tables up to date, regularly and when it matters.

Hosts, aggregates, groups and where members are come from Nova. A round reads what changed, in a number of requests that
does not grow with the number of servers; one engine does it at a time. Between rounds, a group is read again before a
scheduler gets the answer that its rules leave no host.
"""

import asyncio
import logging
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.clouds.base import CloudError
from roost.clouds.nova import VIA, Nova, is_stricter
from roost.clouds.server_groups import Find, create_above
from roost.compute.answers import plans
from roost.compute.answers.plans import Create, GroupPlan
from roost.compute.fronting import mirror, reservations
from roost.compute.groups import groups, notifications
from roost.compute.groups.groups import Group
from roost.compute.inventory.flavors import FlavorSize
from roost.compute.scheduling.scheduler import Scheduler
from roost.config import Settings
from roost.errors import Conflict, NotFound
from roost.placement.rules import Rule
from roost.store.database import Database

logger = logging.getLogger(__name__)

_OVERLAP = timedelta(minutes=2)
"""How far back a round looks beyond the one before it: clocks differ, and changes take a while to be seen."""
_MOST_AT_ONCE = 200
"""Servers that are looked up one by one in a round; the rest wait for the next."""
_FRESH_SECONDS = 1.0
_LOOKS = (0.0, 1.0, 2.0, 4.0)
"""Seconds before each look for servers whose creation was not answered: Nova may still be at work on it."""
_FEW = 10
_SHARE = 0.1
"""If more groups than this, and than this share of all, vanish between two looks, Nova is not believed."""


@dataclass(slots=True)
class Front:
    """A Nova, and what Roost knows of it."""

    nova: Nova
    database: Database
    settings: Settings
    _since: datetime | None = None
    _unseen: set[str] = field(default_factory=set)
    """Servers that the first round did not find in Nova, and that are looked up one by one."""
    _alarmed: bool = False
    _read: dict[str, float] = field(default_factory=dict)

    def must_not_ask_itself(self, via: str | None) -> None:
        """Refuse a request that this Roost, or another process of it, sent where it takes Nova to be."""
        if VIA in (via or ""):
            raise Conflict(
                "Roost asks itself where it should ask Nova: in Roost's clouds.yaml, for the cloud "
                f"{self.nova.cloud!r}, set compute_endpoint_override to Nova's own address."
            )

    async def look(self) -> None:
        """Follow Nova, unless what it says is hard to believe: then say so, and change nothing."""
        try:
            await self.follow()
        except mirror.Implausible as error:
            await self._raise_alarm(error)

    async def follow(self) -> None:
        """One round: what changed since the one before, or everything."""
        await self.follow_inventory()
        started, at = datetime.now(UTC), await self._now()
        listed, (servers, gone) = await asyncio.gather(self.nova.groups(), self.nova.servers(self._since))
        async with self.database.begin() as connection:
            await mirror.take_turn(connection)
            unlisted, known = await mirror.unlisted_groups(connection, listed, at)
            if len(unlisted) > max(_FEW, known * _SHARE):
                raise mirror.Implausible(
                    f"Nova lists {len(unlisted)} of the {known} server groups that Roost knows no more: nothing was "
                    "changed. If they are gone for good, run `roost front forget --all`."
                )
            # They may have been made or deleted while the list was read.
            doubtful = await mirror.unknown_groups(connection, listed) | unlisted
            found = await asyncio.gather(*(self.nova.group(group_id) for group_id in doubtful))
            there = [group for group in listed if group.id not in doubtful] + [group for group in found if group]
            missing = unlisted - {group.id for group in there}
            await mirror.put_groups(connection, self.settings, there, missing=missing)
            new = await mirror.missing_members(connection, there)
            followed = await mirror.followed(connection)
        seen = {server.id for server in servers}
        if self._since is None:
            self._unseen = followed - seen
        # Also those that a list without them does not say anything about: only Nova's word on each is believed.
        asked = [*(server_id for server_id in new if server_id not in seen), *sorted(self._unseen)][:_MOST_AT_ONCE]
        late, deleted = await self.nova.servers_by_id(asked)
        self._unseen -= set(asked)
        gone |= deleted
        concerned = [server for server in (*servers, *late) if server.id in followed or server.id in new]
        async with self.database.begin() as connection:
            await mirror.put_servers(connection, self.settings, concerned, at=at, new=new, gone=gone & followed)
            given_up = await reservations.given_up(connection)
        unwanted = [server.id for server in servers if server.place in given_up and server.task_state != "deleting"]
        await self._delete_unwanted(unwanted)
        self._since = started - _OVERLAP
        self._alarmed = False

    async def _delete_unwanted(self, server_ids: Iterable[str]) -> None:
        """Delete servers that Nova made, or kept, for a plan that failed."""
        for server_id in server_ids:
            logger.warning("server %s belongs to a plan that failed, and is deleted", server_id)
            # One that cannot be deleted now is seen again in the next rounds.
            with suppress(Conflict):
                await self.nova.delete_server(None, server_id)

    async def _raise_alarm(self, error: mirror.Implausible) -> None:
        """Report that Nova is not believed: in the log and the metrics each time, as a notification once."""
        mirror.REFUSED.inc()
        logger.error("Nova is not believed: %s", error)
        if not self._alarmed and notifications.wanted(self.settings):
            async with self.database.begin() as connection:
                await notifications.write(connection, notifications.MASS_MISSING, [{"message": error.message}])
        self._alarmed = True

    async def forget(self, group_ids: Sequence[str] | None) -> tuple[list[str], list[str]]:
        """Delete groups that Nova does not have, with their rules: these, or all (None) and with them every host that
        Nova does not have. The groups, and the hosts. Raises `Conflict` for a group that Nova has."""
        async with self.database.begin() as connection:
            await mirror.take_inventory(connection)
            hosts = await self.nova.hosts()
            await mirror.take_turn(connection)
            listed = await self.nova.groups()
            here = {group.id for group in listed}
            if group_ids is None:
                names = await mirror.forget_hosts_but(connection, {host.name for host in hosts})
                lost = await mirror.all_groups(connection) - here
            else:
                names, lost = [], set(group_ids)
            if still := lost & here:
                raise Conflict(f"Nova has server group {min(still)}: delete it there.")
            await mirror.forget_groups(connection, self.settings, lost)
        return sorted(lost), names

    async def follow_inventory(self) -> None:
        """Hosts and aggregates as they are now."""
        async with self.database.begin() as connection:
            await mirror.take_inventory(connection)
            hosts, aggregates = await asyncio.gather(self.nova.hosts(), self.nova.aggregates())
            await mirror.check_cloud(connection, hosts)
            await mirror.put_inventory(connection, hosts, aggregates)

    async def read_group(self, group_id: str) -> None:
        """Where the members of a group are now: before a request is refused for lack of a place."""
        if time.monotonic() - self._read.get(group_id, -_FRESH_SECONDS) < _FRESH_SECONDS:
            return
        async with self.database.begin() as connection:
            members = sorted(await mirror.followed(connection, group_id))
        await self.read_servers(members[:_MOST_AT_ONCE])
        self._read[group_id] = time.monotonic()

    async def read_servers(self, server_ids: Sequence[str]) -> list[mirror.NovaServer]:
        """Servers as they are now; without those that no longer exist."""
        at = await self._now()
        servers, gone = await self.nova.servers_by_id(server_ids)
        async with self.database.begin() as connection:
            await mirror.put_servers(connection, self.settings, servers, at=at, gone=gone)
        return servers

    async def adopt_group(self, group_id: str) -> None:
        """Take over a group that somebody made in Nova itself. Raises `NotFound`."""
        at = await self._now()
        group = await self.nova.group(group_id)
        if group is None:
            raise groups.missing(group_id)
        members, _ = await self.nova.servers_by_id(group.members[:_MOST_AT_ONCE])
        async with self.database.begin() as connection:
            await mirror.take_turn(connection)
            await mirror.put_groups(connection, self.settings, [group])
            new = dict.fromkeys((member.id for member in members), group_id)
            await mirror.put_servers(connection, self.settings, members, at=at, new=new)

    async def adopt_server(self, connection: AsyncConnection, token: str, server_id: str) -> None:
        """Follow a server from now on that is in no group, if it is there for the owner of this token."""
        at = await self._now()
        if not await self.nova.shows_server(token, server_id):
            raise NotFound(f"Instance {server_id} could not be found.")
        servers, _ = await self.nova.servers_by_id([server_id])
        await mirror.put_servers(connection, self.settings, servers, at=at, new={server_id: None})

    async def _now(self) -> datetime:
        async with self.database.begin() as connection:
            return (await connection.execute(sa.select(sa.func.now()))).scalar_one()


@dataclass(frozen=True, slots=True)
class FrontedGroups:
    """Groups in front of a Nova: each has one of Nova's underneath, and servers, aggregates and flavors are Nova's."""

    front: Front

    async def create(self, token: str, **new: Any) -> Group:
        """With Nova's underneath."""
        nova = self.front.nova
        make, unmake = partial(nova.create_group, token), partial(nova.delete_group, token)
        return await create_above(self.front.database, self.front.settings, make, unmake, **new)

    async def delete(self, token: str, find: Find) -> None:
        """On both sides."""
        async with self.front.database.begin() as connection:
            await mirror.hold_off(connection)
            group = await find(connection)
            await groups.delete(connection, self.front.settings, group)
            await self.front.nova.delete_group(token, group.id)

    async def check_change(self, group_id: str, rules: Sequence[Rule]) -> None:
        """Raise `Conflict` where the group underneath, which Nova cannot change, forbids what these rules allow."""
        underneath = await self.front.nova.group(group_id)
        if underneath is not None and is_stricter(underneath.rule, rules):
            raise Conflict(
                f"The group has '{underneath.rule}' in Nova, which cannot be changed and is stricter than these "
                "policies; make a new group."
            )

    async def adopt_servers(self, connection: AsyncConnection, token: str, server_ids: Sequence[str]) -> None:
        """Follow these servers from now on."""
        for server_id in server_ids:
            await self.front.adopt_server(connection, token, server_id)

    async def adopt_group(self, group_id: str) -> None:
        """Take over a group that somebody made in Nova itself."""
        await self.front.adopt_group(group_id)

    async def read_group(self, group_id: str) -> None:
        """Ask Nova where the members are."""
        await self.front.read_group(group_id)

    async def set_scope(self, token: str, aggregate_ids: Iterable[int], scope: str | None) -> None:
        """In the metadata of Nova's aggregates."""
        for aggregate_id in aggregate_ids:
            await self.front.nova.set_scope(token, aggregate_id, scope)

    async def disable_hosts(self, names: Sequence[str], reason: str) -> None:
        """Disable their services in Nova, and see that they are."""
        for name in names:
            await self.front.nova.disable(name, reason)
        await self.front.follow_inventory()

    async def flavor(self, connection: AsyncConnection, token: str, flavor_id: str, project_id: str) -> FlavorSize:
        """Nova's."""
        return await self.front.nova.flavor(token, flavor_id)

    async def boot_planned(
        self, token: str, scheduler: Scheduler, group: Group, change: Create, generation: str, owner: str
    ) -> GroupPlan:
        """In Nova, with the caller's rights, once the places of the plan are held for them: the plug-in of Nova's
        scheduler asks for these places. If Nova refuses one server, none is left; one whose creation it does not answer
        is looked for."""
        since = datetime.now(UTC) - _OVERLAP
        plan, tokens = await plans.hold_planned(scheduler, group, change, generation, owner, reservations.hold)
        names = [placed["name"] for placed in plan.outcome.placements]
        made = await asyncio.gather(
            *(self._boot(token, change, name, place) for name, place in zip(names, tokens, strict=True)),
            return_exceptions=True,
        )
        ids = {place: each for place, each in zip(tokens, made, strict=True) if isinstance(each, str)}
        errors = [each for each in made if isinstance(each, BaseException)]
        if errors and all(isinstance(each, CloudError) for each in errors):
            ids |= await self._find_placed(set(tokens) - ids.keys(), since)
        if len(ids) < len(tokens):
            # Written down first: what cannot be deleted here, or comes later, is deleted by the engine.
            async with self.front.database.begin() as connection:
                await reservations.give_up(connection, tokens)
            deleted = (self.front.nova.delete_server(token, server_id) for server_id in ids.values())
            await asyncio.gather(*deleted, return_exceptions=True)
            raise errors[0]
        return replace(plan, server_ids=tuple(ids[place] for place in tokens))

    async def _find_placed(self, tokens: Collection[str], since: datetime) -> dict[str, str]:
        """The servers that Nova has made for these places without saying so."""
        found: dict[str, str] = {}
        for pause in _LOOKS:
            await asyncio.sleep(pause)
            with suppress(CloudError):
                servers, _ = await self.front.nova.servers(since)
                found = {server.place: server.id for server in servers if server.place and server.place in tokens}
            if len(found) == len(tokens):
                break
        return found

    async def _boot(self, token: str, change: Create, name: str, place: str) -> str:
        boot = change.boot
        server = {"name": name, "flavorRef": boot.flavor_id, "imageRef": boot.image_id, "availability_zone": boot.zone}
        given = {key: value for key, value in server.items() if value is not None}
        return await self.front.nova.create_server(token, given, boot.hints, place)
