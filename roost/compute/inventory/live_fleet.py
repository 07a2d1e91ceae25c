"""The fleet as one process knows it: loaded once, then brought up to date by the hosts that changed.

Where hosts belong (zones, aggregates, up or down) is followed by generation: `sync`, called in the transaction that
decides, reads every change committed before it. How much room they have left changes far more often; other processes'
claims are announced and read again lazily, and the claim itself looks at the truth under lock.
"""

import logging
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.inventory import claims
from roost.compute.inventory.changes import CLAIMS, latest_generation
from roost.compute.inventory.hosts import DEFAULT_ZONE
from roost.placement.fleet import Fleet, Resources
from roost.placement.rules import AVAILABILITY_ZONE
from roost.store.database import notify
from roost.store.tables.compute import aggregate_hosts, fleet_changes, hosts, scopes

logger = logging.getLogger(__name__)

_LONGEST_PAYLOAD = 7000


@dataclass(frozen=True, slots=True)
class FleetHost:
    """What a decision needs to know of a host beside the columns."""

    id: int
    name: str
    zone: str


@dataclass(slots=True)
class LiveFleet:
    """All hosts, in memory, kept true."""

    fleet: Fleet = field(default_factory=Fleet)
    generation: int = -1
    origin: str = field(default_factory=lambda: secrets.token_hex(4))
    """Marks this process's own announcements, which it need not read back."""
    _hosts: dict[int, FleetHost] = field(default_factory=dict)
    _indexes: dict[int, int] = field(default_factory=dict)
    _memberships: dict[int, dict[str, str]] = field(default_factory=dict)
    _stale: set[int] = field(default_factory=set)
    _all_stale: bool = False

    def index(self, host_id: int) -> int | None:
        """The place of a host in the columns."""
        return self._indexes.get(host_id)

    def host(self, index: int) -> FleetHost:
        """The host at a place in the columns."""
        return self._hosts[index]

    def indexes(self, host_ids: Iterable[int | None]) -> list[int]:
        """The places of those of these hosts that there are."""
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
        return zone >= 0 and bool((self.fleet.division(AVAILABILITY_ZONE).column == zone).any())

    def doubt(self, host_ids: Iterable[int]) -> None:
        """Read these hosts again before the next decision."""
        self._stale.update(host_ids)

    async def noted(self, payload: str) -> None:
        """A process has claimed or released on these hosts; no hosts means that any may have changed."""
        origin, _, changed = payload.partition(":")
        if changed and origin != self.origin:
            self.doubt(int(part) for part in changed.split(","))
        elif not changed:
            self._all_stale = True

    async def sync(self, connection: AsyncConnection) -> None:
        """Take in every change that was committed before now."""
        changes = sa.select(fleet_changes.c.generation, fleet_changes.c.host_ids)
        rows = (
            await connection.execute(
                changes.where(fleet_changes.c.generation > self.generation).order_by(fleet_changes.c.generation)
            )
        ).all()
        missed = bool(rows) and rows[0].generation != self.generation + 1
        if self.generation < 0 or self._all_stale or missed:
            await self._load(connection)
            return
        changed = self._stale.union(*(row.host_ids for row in rows))
        if changed:
            self._stale = set()
            try:
                await self.refresh(connection, changed)
            except BaseException:
                self.doubt(changed)
                raise
        if rows:
            self.generation = rows[-1].generation

    async def refresh(self, connection: AsyncConnection, host_ids: Collection[int]) -> None:
        """Read these hosts again."""
        belongs = await memberships(connection, host_ids)
        rows = (await connection.execute(sa.select(hosts).where(hosts.c.id.in_(host_ids)))).all()
        for row in rows:
            self._put(row, belongs.get(row.id, {}))
        for host_id in set(host_ids) - {row.id for row in rows}:
            self._remove(host_id)

    async def can_take(
        self,
        connection: AsyncConnection,
        needs: Mapping[int, Sequence[Resources]],
        *,
        wait: bool,
        forced: bool = False,
    ) -> bool:
        """Lock the hosts; whether all of them can take what is wanted of them. Those that cannot are read again."""
        rows = await claims.lock_hosts(connection, needs, wait=wait)
        short = [host_id for host_id, wanted in needs.items() if not _has_room(rows.get(host_id), wanted, forced)]
        if short:
            await self.refresh(connection, short)
        return not short

    async def read_room(self, connection: AsyncConnection) -> None:
        """Read again how much room every host has left: before somebody is told that there is none."""
        columns = (hosts.c.id, *(hosts.c[f"{name}_used"].label(name) for name in Resources._fields))
        for host_id, *used in await connection.execute(sa.select(*columns)):
            index = self._indexes.get(host_id)
            if index is not None:
                total, free = self.fleet.total(index), self.fleet.free(index)
                taken = Resources(*(f - (t - u) for f, t, u in zip(free, total, used, strict=True)))
                if any(taken):
                    self.fleet.claim(index, taken)

    async def _load(self, connection: AsyncConnection) -> None:
        """Read everything. A host that is known keeps its place in the columns: others may be deciding on it."""
        # The generation first: what commits between the two reads is then read again, not missed.
        generation = await latest_generation(connection)
        self._stale, self._all_stale = set(), False
        try:
            rows = (await connection.execute(sa.select(hosts).order_by(hosts.c.id))).all()
            belongs = await memberships(connection, None)
        except BaseException:
            self._all_stale = True
            raise
        for row in rows:
            self._put(row, belongs.get(row.id, {}))
        for host_id in self._indexes.keys() - {row.id for row in rows}:
            self._remove(host_id)
        self.generation = generation
        logger.info("fleet loaded", extra={"hosts": len(rows), "generation": generation})

    def _put(self, row: sa.Row[Any], scopes_of_host: Mapping[str, str]) -> None:
        total = Resources(row.vcpus, row.memory_mb, row.disk_gb)
        free = Resources(row.vcpus - row.vcpus_used, row.memory_mb - row.memory_mb_used, row.disk_gb - row.disk_gb_used)
        zone = row.availability_zone or DEFAULT_ZONE
        wanted = {**scopes_of_host, AVAILABILITY_ZONE: zone}
        index = self._indexes.get(row.id)
        if index is None:
            index = self.fleet.add_host(row.name, total, free=free, aggregates=wanted)
            self._indexes[row.id] = index
        else:
            self.fleet.set_total(index, total)
            now = self.fleet.free(index)
            self.fleet.claim(index, Resources(*(a - b for a, b in zip(now, free, strict=True))))
            self._move(index, wanted)
        self.fleet.enable(index, row.enabled and not row.forced_down)
        self._hosts[index] = FleetHost(row.id, row.name, zone)
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
            del self._hosts[index], self._memberships[index]


def _has_room(row: sa.Row[Any] | None, wanted: Sequence[Resources], forced: bool) -> bool:
    if row is None or row.forced_down or not (row.enabled or forced):
        return False
    vcpus, memory_mb, disk_gb = (sum(column) for column in zip(*wanted, strict=True))
    return bool(
        row.vcpus - row.vcpus_used >= vcpus
        and row.memory_mb - row.memory_mb_used >= memory_mb
        and row.disk_gb - row.disk_gb_used >= disk_gb
    )


async def memberships(connection: AsyncConnection, host_ids: Collection[int] | None) -> dict[int, dict[str, str]]:
    """For each host, its aggregate in each scope that the deployer made."""
    query = sa.select(aggregate_hosts.c.host_id, scopes.c.name, aggregate_hosts.c.aggregate_id).join(
        scopes, scopes.c.id == aggregate_hosts.c.scope_id
    )
    if host_ids is not None:
        query = query.where(aggregate_hosts.c.host_id.in_(host_ids))
    found: dict[int, dict[str, str]] = {}
    for host_id, scope, aggregate_id in await connection.execute(query):
        found.setdefault(host_id, {})[scope] = str(aggregate_id)
    return found


async def announce_claims(connection: AsyncConnection, host_ids: Iterable[int], origin: str = "", *wake: str) -> None:
    """Tell the processes on which hosts the room changed, once this commits; `origin` knows already. Those who listen
    on the channels to `wake` are told that something happened."""
    changed = ",".join(str(host_id) for host_id in sorted(set(host_ids)))
    messages = [(channel, "") for channel in wake]
    if changed:
        messages.append((CLAIMS, f"{origin}:{changed if len(changed) < _LONGEST_PAYLOAD else ''}"))
    await notify(connection, *messages)
