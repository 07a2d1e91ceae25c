"""The fleet as one process knows it: loaded once, then brought up to date by numbered changes.

Where hosts belong (zones, aggregates, up or down) is followed by generation. How much room they have left comes with
the claims of all processes (`claim_changes`), as it is after each claim, with a version: in whichever order two counts
arrive, the later one is kept. What this process has decided on and not yet claimed is reserved, and taken off the room
that its next decisions see. The claim itself checks the database under lock.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, NotRequired, TypedDict

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost import quick_json
from roost.compute.inventory import claims
from roost.compute.inventory.changes import latest_generation
from roost.compute.inventory.claims import LockedHost
from roost.compute.inventory.hosts import DEFAULT_ZONE
from roost.placement.fleet import Fleet, Resources
from roost.placement.rules import AVAILABILITY_ZONE
from roost.store import feed
from roost.store.feed import Feed
from roost.store.tables.changes import claim_changes
from roost.store.tables.compute import aggregate_hosts, hosts, scopes

logger = logging.getLogger(__name__)

_NEWS = sa.text("""
    SELECT
        (SELECT jsonb_agg(jsonb_build_array(generation, host_ids) ORDER BY generation)
         FROM fleet_changes WHERE generation > :generation) AS moved,
        (SELECT CAST(coalesce(json_agg(json_build_array(number, body) ORDER BY number), '[]') AS text)
         FROM (SELECT number, body FROM claim_changes WHERE number > :seen
               UNION ALL SELECT number, body FROM claim_changes
               WHERE number = ANY (CAST(:missing AS bigint[]))) AS unseen) AS claimed,
        (SELECT min(number) FROM claim_changes) AS oldest
""")
"""All that is new. Of claims it is what `roost_news` returns, but written as text at once, in a fifth of the time:
whoever follows reads many."""
_NOTHING_YET = 1 << 62

Room = tuple[int, int, int, int, int]
"""A host's id, the version of its room, and how much is used of each resource."""
Joined = tuple[str, int, list[tuple[int, int | None, int]], list[tuple[str, int]]]
"""A group's id, its version after the claim, how many members came to each host and partition, and how many each user
made."""


class Unseen(TypedDict):
    """Which changes are new to a process."""

    generation: int
    seen: int
    missing: Sequence[int]


class ClaimNews(TypedDict):
    """What one claim came to."""

    rooms: Sequence[Room]
    joined: NotRequired[Sequence[Joined]]


Moved = tuple[int, list[int]]
"""A generation, and the ids of the hosts that were moved in it."""
Claimed = tuple[int, ClaimNews]
"""A numbered claim."""


@dataclass(frozen=True, slots=True)
class FleetHost:
    """What a decision needs to know of a host besides the columns."""

    id: int
    name: str
    zone: str


class _StoredHost(NamedTuple):
    """A host as it is read into the columns."""

    id: int
    name: str
    availability_zone: str
    enabled: bool
    forced_down: bool
    room_version: int
    vcpus: int
    memory_mb: int
    disk_gb: int
    vcpus_used: int
    memory_mb_used: int
    disk_gb_used: int


_HOSTS = sa.select(*(hosts.c[name] for name in _StoredHost._fields))


@dataclass(slots=True)
class LiveFleet:
    """All hosts, in memory, kept up to date."""

    fleet: Fleet = field(default_factory=Fleet)
    generation: int = -1
    feed: Feed = field(default_factory=Feed)
    joined: Callable[[Joined], None] | None = None
    """Called with the members that claims added to groups."""
    _hosts: dict[int, FleetHost] = field(default_factory=dict)
    _indexes: dict[int, int] = field(default_factory=dict)
    _memberships: dict[int, dict[str, str]] = field(default_factory=dict)
    _rooms: dict[int, tuple[int, Resources]] = field(default_factory=dict)
    """What is used of each host, and as of which version."""
    _later: dict[int, Room] = field(default_factory=dict)
    """What is known of hosts' rooms and not in the columns yet."""
    _reserved: dict[int, Resources] = field(default_factory=dict)
    _settled: asyncio.Event = field(default_factory=asyncio.Event)

    def index(self, host_id: int) -> int | None:
        """The place of a host in the columns."""
        return self._indexes.get(host_id)

    def host(self, index: int) -> FleetHost:
        """The host at a place in the columns."""
        return self._hosts[index]

    def indexes(self, host_ids: Iterable[int | None]) -> list[int]:
        """The places of those of these hosts that are known."""
        found = (self._indexes.get(host_id) for host_id in host_ids if host_id is not None)
        return [index for index in found if index is not None]

    def targets(self, name: str | None) -> list[int] | None:
        """The place of the one host to use, if there is such a host; None where any may be used."""
        if name is None:
            return None
        index = self.fleet.index(name)
        return [] if index is None else [index]

    def places(self, index: int) -> Mapping[str, str]:
        """The aggregate of a host, by its real identifier, in each scope that it is in."""
        return self._memberships[index]

    def has_zone(self, name: str) -> bool:
        """Whether any host is in this zone."""
        zone = self.fleet.aggregate_index(AVAILABILITY_ZONE, name)
        if self.fleet.host_index is not None and zone in self.fleet.pools(AVAILABILITY_ZONE):
            return True
        return zone >= 0 and bool((self.fleet.division(AVAILABILITY_ZONE).column == zone).any())

    # What this process has decided on and not yet claimed

    def reserve(self, host_id: int, resources: Resources) -> None:
        """Take room off a host until the claim has an answer."""
        self._reserved[host_id] = _plus(self._reserved.get(host_id, Resources()), resources)
        self.fleet.claim(self._indexes[host_id], resources)

    def unreserve(self, wanted: Iterable[tuple[int, Resources]], rooms: Iterable[Room] = ()) -> None:
        """End reservations once the claim has an answer; if it won, `rooms` says what room is left."""
        for host_id, resources in wanted:
            left = _minus(self._reserved[host_id], resources)
            self._reserved[host_id] = left
            if not any(left):
                del self._reserved[host_id]
            index = self._indexes.get(host_id)
            if index is not None:
                self.fleet.release(index, resources)
        for room in rooms:
            self.put_room(*room)
        self._settled.set()

    async def reservations_ended(self) -> bool:
        """Wait until a reservation ends; returns whether there were any."""
        if not self._reserved:
            return False
        self._settled.clear()
        await self._settled.wait()
        return True

    # What others did

    def unseen(self) -> Unseen:
        """What this process has seen so far."""
        seen = _NOTHING_YET if self.generation < 0 else self.feed.seen
        return {"generation": self.generation, "seen": seen, "missing": self.feed.missing}

    async def sync(self, connection: AsyncConnection) -> None:
        """Take in every change that was committed before now."""
        await self.take_in(connection, *await self._news(connection))

    async def follow(self, connection: AsyncConnection) -> None:
        """Read every change that was committed before now. Of each host's rooms, only the last is put into the columns,
        with the next change that is taken in: a process that decides nothing saves the work."""
        moved, claimed, oldest = await self._news(connection)
        if moved or self._is_behind(oldest):
            await self.take_in(connection, moved, claimed, oldest)
            return
        for body in self._unread(claimed):
            for room in body["rooms"]:
                known = self._later.get(room[0])
                if known is None or known[1] <= room[1]:
                    self._later[room[0]] = room

    async def _news(self, connection: AsyncConnection) -> tuple[list[Moved] | None, list[Claimed], int | None]:
        moved, claimed, oldest = (await connection.execute(_NEWS, self.unseen())).one()
        return moved, quick_json.loads(claimed), oldest

    def _is_behind(self, oldest: int | None) -> bool:
        """Whether changes that this process has not seen are not kept any more, or it has seen none."""
        return self.generation < 0 or (oldest is not None and oldest > self.feed.seen + 1)

    async def take_in(
        self,
        connection: AsyncConnection,
        moved: Sequence[Moved] | None,
        claimed: Sequence[Claimed],
        oldest: int | None,
    ) -> None:
        """Take in the hosts that moved in each generation and what was claimed; `oldest` is the first claim kept."""
        # Another task may have taken in some of it meanwhile.
        moved = [each for each in moved or () if each[0] > self.generation]
        if self._is_behind(oldest) or (moved and moved[0][0] != self.generation + 1):
            await self._load(connection)
            return
        if moved:
            await self.refresh(connection, set[int]().union(*(host_ids for _, host_ids in moved)))
            self.generation = max(self.generation, moved[-1][0])
        self.take_in_claims(claimed)

    def take_in_claims(self, claimed: Iterable[Claimed]) -> None:
        """Take in numbered claims, each once."""
        later, self._later = self._later, {}
        for room in later.values():
            self.put_room(*room)
        for body in self._unread(claimed):
            for room in body["rooms"]:
                self.put_room(*room)

    def _unread(self, claimed: Iterable[Claimed]) -> Iterator[ClaimNews]:
        """The claims that are new; those who remember groups are told of the members."""
        for number, body in claimed:
            if self.feed.is_new(number):
                yield body
                for joined in body.get("joined", ()):
                    if self.joined is not None:
                        self.joined(joined)

    def put_room(self, host_id: int, version: int, *used: int) -> None:
        """What is used of a host, unless a later version is known."""
        index = self._indexes.get(host_id)
        if index is None or version < self._rooms[host_id][0]:
            return
        now, before = Resources(*used), self._rooms[host_id][1]
        self._rooms[host_id] = (version, now)
        if now != before:
            self.fleet.claim(index, _minus(now, before))

    async def refresh(self, connection: AsyncConnection, host_ids: Collection[int]) -> None:
        """Read these hosts again."""
        belongs = await memberships(connection, host_ids)
        rows = (await connection.execute(_HOSTS.where(hosts.c.id.in_(host_ids)))).all()
        for row in rows:
            self._put(_StoredHost(*row), belongs.get(row.id, {}))
        for host_id in set(host_ids) - {row.id for row in rows}:
            self._remove(host_id)

    async def can_take(
        self, connection: AsyncConnection, needs: Mapping[int, Sequence[Resources]], *, wait: bool, forced: bool = False
    ) -> bool:
        """Lock the hosts; whether all of them can take what is wanted of them. Those that cannot are read again."""
        rows = await claims.lock_hosts(connection, needs, wait=wait)
        short = [host_id for host_id, wanted in needs.items() if not _has_room(rows.get(host_id), wanted, forced)]
        if short:
            await self.refresh(connection, short)
        return not short

    async def read_room(self, connection: AsyncConnection) -> None:
        """Read again how much room every host has left, before a request is refused for lack of it."""
        for room in await connection.execute(sa.select(*_ROOM)):
            self.put_room(*room)

    async def _load(self, connection: AsyncConnection) -> None:
        """Read everything. A host that is known keeps its place in the columns: others may be deciding on it."""
        # The numbers are read first: what commits between the reads is then read again instead of missed.
        generation = await latest_generation(connection)
        self.feed.start(await feed.newest(connection, claim_changes))
        self.generation = -1
        rows = (await connection.execute(_HOSTS.order_by(hosts.c.id))).all()
        belongs = await memberships(connection, None)
        for row in rows:
            self._put(_StoredHost(*row), belongs.get(row.id, {}))
        for host_id in self._indexes.keys() - {row.id for row in rows}:
            self._remove(host_id)
        self.fleet.index_hosts()
        self.generation = generation
        logger.info("fleet loaded", extra={"hosts": len(rows), "generation": generation})

    def _put(self, host: _StoredHost, scopes_of_host: Mapping[str, str]) -> None:
        total = Resources(host.vcpus, host.memory_mb, host.disk_gb)
        used = Resources(host.vcpus_used, host.memory_mb_used, host.disk_gb_used)
        zone = host.availability_zone or DEFAULT_ZONE
        wanted = {**scopes_of_host, AVAILABILITY_ZONE: zone}
        index = self._indexes.get(host.id)
        if index is None:
            index = self.fleet.add_host(host.name, total, free=_minus(total, used), aggregates=wanted)
            self._indexes[host.id] = index
            self._rooms[host.id] = (host.room_version, used)
        else:
            self.fleet.set_total(index, total)
            self.put_room(host.id, host.room_version, *used)
            self._move(index, wanted)
        self.fleet.enable(index, host.enabled and not host.forced_down)
        self._hosts[index] = FleetHost(host.id, host.name, zone)
        self._memberships[index] = wanted

    def _move(self, index: int, wanted: Mapping[str, str]) -> None:
        known = self._memberships[index]
        for scope in known.keys() - wanted.keys():
            self.fleet.leave(index, scope)
        for scope, identifier in wanted.items():
            if known.get(scope) != identifier:
                self.fleet.join(index, scope, identifier)

    def _remove(self, host_id: int) -> None:
        index = self._indexes.pop(host_id, None)
        if index is not None:
            self.fleet.remove_host(index)
            del self._hosts[index], self._memberships[index], self._rooms[host_id]


def _has_room(host: LockedHost | None, wanted: Sequence[Resources], forced: bool) -> bool:
    if host is None or host.forced_down or not (host.enabled or forced):
        return False
    return all(free >= sum(column) for free, column in zip(host.free, zip(*wanted, strict=True), strict=True))


async def memberships(connection: AsyncConnection, host_ids: Collection[int] | None) -> dict[int, dict[str, str]]:
    """For each host, its aggregate in each scope that the deployer made."""
    query = sa.select(aggregate_hosts.c.host_id, scopes.c.name, aggregate_hosts.c.aggregate_id).join(
        scopes, scopes.c.id == aggregate_hosts.c.scope_id
    )
    if host_ids is not None:
        # The join implies the first condition, but only with it can the partial index be used.
        query = query.where(aggregate_hosts.c.scope_id != 0, aggregate_hosts.c.host_id.in_(host_ids))
    found: dict[int, dict[str, str]] = {}
    for host_id, scope, aggregate_id in await connection.execute(query):
        found.setdefault(host_id, {})[scope] = str(aggregate_id)
    return found


_ROOM = (hosts.c.id, hosts.c.room_version, *(hosts.c[f"{name}_used"] for name in Resources._fields))
_ANNOUNCE = claim_changes.insert().from_select(
    ["body"],
    sa.select(sa.func.jsonb_build_object("rooms", sa.func.jsonb_agg(sa.func.jsonb_build_array(*_ROOM)))).where(
        hosts.c.id == sa.any_(sa.bindparam("host_ids", type_=sa.ARRAY(sa.Integer)))
    ),
)


async def announce_claims(connection: AsyncConnection, host_ids: Iterable[int]) -> None:
    """Publish what room these hosts have now, for the processes that keep it in memory."""
    changed = sorted(set(host_ids))
    if changed:
        await connection.execute(_ANNOUNCE, {"host_ids": changed})


def _plus(one: Resources, other: Resources) -> Resources:
    return Resources(*(a + b for a, b in zip(one, other, strict=True)))


def _minus(one: Resources, other: Resources) -> Resources:
    return Resources(*(a - b for a, b in zip(one, other, strict=True)))
