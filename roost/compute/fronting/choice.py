"""Which of the hosts that a nova-scheduler offers may take a member of a group, decided over all of them and reserved.

A decision is made on the group and the fleet as they were at one moment, without a lock, and reserved with the version
of the group and the generation of the fleet. Where one of them has changed since, everything is decided again: a
reservation is valid when it is made, however many schedulers are at work.

What is reserved is a place: the best host, and with it every host that lies in the same aggregates of all scopes that
the hard rules count in. Whichever of them Nova takes, the rules hold.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.fronting import reservations
from roost.compute.fronting.reservations import HeldPlace, Order, Reserved, Snapshot
from roost.compute.inventory.live_fleet import LiveFleet
from roost.config import Settings
from roost.errors import Invalid, NotFound, Unavailable
from roost.placement.decision import Decision, Request
from roost.placement.fleet import NOWHERE, Bools, Fleet, Ints, Members, Resources
from roost.placement.record import HostPlace, record
from roost.placement.rules import Rule, division_of
from roost.placement.scheduler import candidates, place
from roost.store.database import Database
from roost.store.tables.servers import servers

logger = logging.getLogger(__name__)

Floats = NDArray[np.float64]

_SECONDS = 30.0
"""How long a decision may take with all attempts; schedulers give up before."""
_TURNS = [asyncio.Lock() for _ in range(64)]
"""Servers of the same group take turns in a process, instead of overtaking each other."""
_MOST = 2**40
"""More than any host has of anything, and small enough to add up without an overflow."""

FAILED_BUILDS = "failed_builds"
COLUMNS = (*(f"{name}_{part}" for name in Resources._fields for part in ("total", "used")), FAILED_BUILDS)
"""What a scheduler says of its hosts beside their names: a list of numbers each."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A server that needs a host, and how many more of the same request come with it."""

    instance_id: str
    group_id: str | None
    """The group that Nova names."""
    project_id: str
    user_id: str
    resources: Resources
    count: int = 1
    partition: int | None = None
    """The partition that it asks for."""
    token: str | None = None
    """The place of an applied plan that it comes for."""


@dataclass(frozen=True, slots=True)
class Offered:
    """The hosts that a scheduler's other filters have left."""

    names: Sequence[str]
    columns: Mapping[str, Floats]

    @classmethod
    def read(cls, names: Sequence[str], columns: Mapping[str, Sequence[float]]) -> "Offered":
        """Raises `Invalid` unless each column has a number for each host."""
        try:
            arrays = {name: np.array(columns[name], np.float64) for name in COLUMNS}
        except (KeyError, TypeError, ValueError) as error:
            raise Invalid(f"The room of the hosts cannot be read: {error}.") from error
        if any(array.shape != (len(names),) or not (np.abs(array) < _MOST).all() for array in arrays.values()):
            raise Invalid(f"Each column of room needs {len(names)} numbers below {_MOST}.")
        return cls(names, arrays)

    def room(self, at: Ints, need: Resources) -> tuple[list[Ints], list[Ints]]:
        """What some of the hosts have, and have left, of each resource; at least room for one, as Placement has found
        it. Hosts on which builds failed come last."""
        sound = self.columns[FAILED_BUILDS][at] == 0
        total = [self.columns[f"{name}_total"][at].astype(np.int64) for name in Resources._fields]
        used = [self.columns[f"{name}_used"][at].astype(np.int64) for name in Resources._fields]
        left = zip(total, used, need, strict=True)
        return total, [np.maximum((whole - taken) * sound, least) for whole, taken, least in left]


@dataclass(frozen=True, slots=True)
class Choice:
    """The hosts that may take a server, once a place among them is reserved: none if the rules leave none."""

    hosts: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()
    """What the soft rules say of each: the higher the better, and of those that they like equally the hosts at the
    place that is reserved."""


@dataclass(slots=True)
class GroupChooser:
    """Chooses for all schedulers that ask one API process."""

    database: Database
    settings: Settings
    live: LiveFleet
    read_group: Callable[[str], Awaitable[None]] | None = None
    """Reads again where the members of a group are, before a scheduler is refused a place for another."""

    async def choose(self, wanted: Wanted, offered: Offered) -> Choice:
        """Choose and reserve. Raises `NotFound` where no group of Roost's binds the server."""
        async with self.database.begin() as connection:
            group_id = await _group_of(connection, wanted)
        try:
            async with asyncio.timeout(_SECONDS), _TURNS[hash(group_id) % len(_TURNS)]:
                return await self._choose(wanted, group_id, offered)
        except TimeoutError:
            raise Unavailable(f"Too many servers of server group {group_id} are being placed.") from None

    async def _choose(self, wanted: Wanted, group_id: str, offered: Offered) -> Choice:
        looked_again = self.read_group is None
        while True:
            async with self.database.begin() as connection:
                await self.live.sync(connection)
                group = await reservations.show(connection, group_id)
            if not _offers(group, wanted.partition):
                logger.warning("server group %s has no partition %s: no host passes", group_id, wanted.partition)
                return Choice()
            stage = _Stage(self.live, offered)
            decided = await asyncio.to_thread(_decide, stage, group, wanted, offered)
            if not decided.decision and not looked_again and self.read_group is not None:
                looked_again = True
                await self.read_group(group_id)
                continue
            order = _order(wanted, group, stage, decided.decision)
            async with self.database.begin() as connection:
                done = await reservations.reserve(connection, self.settings, group_id, order)
            if isinstance(done, Reserved):
                return decided.choice


async def _group_of(connection: AsyncConnection, wanted: Wanted) -> str:
    """The group that binds a server: one that Roost made it a member of later, or the one that Nova names."""
    query = sa.select(servers.c.group_id).where(servers.c.id == wanted.instance_id, servers.c.group_id.is_not(None))
    group_id = (await connection.scalar(query)) or wanted.group_id
    if group_id is None:
        raise NotFound(f"Instance {wanted.instance_id} is in no server group.")
    return str(group_id)


class _Stage:
    """The hosts as they are known when a decision begins; news that comes meanwhile does not change them."""

    def __init__(self, live: LiveFleet, offered: Offered) -> None:
        self.fleet = live.fleet.snapshot()
        self.generation = live.generation
        found = [self.fleet.index(name) for name in offered.names]
        everywhere = np.array([NOWHERE if index is None else index for index in found], np.int64)
        self.at: Ints = np.flatnonzero(everywhere != NOWHERE)
        """Which of the hosts offered are known."""
        self.indexes: Ints = everywhere[self.at]
        self._places = {index: live.places(index) for index in self.indexes.tolist()}

    def where(self, host: int, scopes: Sequence[str]) -> HostPlace:
        """A host by its name, and its aggregates in these scopes."""
        name = self.fleet.name(host)
        places = {"host": name, **self._places[host]}
        return {"host": name, "places": {scope: places[scope] for scope in scopes if scope in places}}


@dataclass(frozen=True, slots=True)
class _Decided:
    decision: Decision
    choice: Choice


def _decide(stage: _Stage, group: Snapshot, wanted: Wanted, offered: Offered) -> _Decided:
    fleet = stage.fleet
    if wanted.instance_id in group.members and wanted.instance_id not in group.building:
        # Nova remembers with how many others a server was once made; it moves alone.
        wanted = replace(wanted, count=1)
    request = _request(wanted, group, fleet, stage.indexes)
    for index in stage.indexes[~fleet.enabled_column[stage.indexes]].tolist():
        # Nova's filters have found them up; what is known here may be older.
        fleet.enable(index)
    fleet.set_room(stage.indexes, *offered.room(stage.at, request.resources))
    decision = place(fleet, request)
    if not decision:
        return _Decided(decision, Choice())
    passing = _same_place(fleet, decision)[stage.indexes]
    weights = _weights(fleet, decision)
    return _Decided(
        decision,
        Choice(
            tuple(offered.names[at] for at in stage.at[passing].tolist()),
            tuple(float(weights[index]) for index in stage.indexes[passing].tolist()),
        ),
    )


def _offers(group: Snapshot, partition: int | None) -> bool:
    """Whether a group has such a partition; None asks for none."""
    divided = division_of(group.rules)
    return partition is None or (divided is not None and 1 <= partition <= (divided.partitions or 0))


def _request(wanted: Wanted, group: Snapshot, fleet: Fleet, indexes: Ints) -> Request:
    runs = wanted.instance_id in group.members and wanted.instance_id not in group.building
    own = None if runs else _own_place(wanted, group)
    targets = indexes.tolist()
    partition = wanted.partition
    if own is not None:
        targets = [index for index in targets if index == fleet.index(own.host)]
        partition = own.partition
    members = Members()
    for token, kept_place in group.held.items():
        # Once its server came, the server itself is the member.
        index = fleet.index(kept_place.host) if token != wanted.token and kept_place.server_id is None else None
        if index is not None:
            members.add(index, partition=kept_place.partition)
    for member, hosts in group.members.items():
        for index in map(fleet.index, hosts) if member != wanted.instance_id else ():
            if index is not None:
                members.add(index, partition=group.partitions.get(member))
    return Request(
        # Placement has made sure that each host has room for one; for several it has to be counted.
        wanted.resources if wanted.count > 1 else Resources(),
        wanted.count,
        group.rules,
        members,
        targets=targets,
        # A server that runs keeps its partition wherever it goes.
        partition=group.partitions.get(wanted.instance_id) if runs else partition,
        seed=hash(wanted.instance_id),
    )


def _own_place(wanted: Wanted, group: Snapshot) -> HeldPlace | None:
    """The place that a server comes for, unless another came for it before."""
    held = group.held.get(wanted.token or "")
    return held if held is not None and held.server_id in (None, wanted.instance_id) else None


def _order(wanted: Wanted, group: Snapshot, stage: _Stage, decision: Decision) -> Order:
    """An order for the host that ranked first, or one which says that there was none."""
    written = record(decision, stage.where)
    return Order(
        instance_id=wanted.instance_id,
        project_id=wanted.project_id,
        user_id=wanted.user_id,
        resources=wanted.resources._asdict(),
        host=written["chosen"][0]["host"] if decision else None,
        version=group.version,
        generation=stage.generation,
        record={**written, "chosen": written["chosen"][:1]},
        partition=decision.partitions[0] if decision.partitions else None,
        token=wanted.token if _own_place(wanted, group) else None,
    )


def _same_place(fleet: Fleet, decision: Decision) -> Bools:
    """The hosts that pass every check and share with the one chosen every aggregate in which the hard rules count."""
    alone = decision.request.count == 1
    passing = decision.ranking.key > 0 if alone else candidates(fleet, replace(decision.request, count=1))
    return passing & _together(fleet, decision.request.rules, decision.hosts[0], soft=False)


def _weights(fleet: Fleet, decision: Decision) -> Floats:
    rules = decision.request.rules
    if not any(rule.soft for rule in rules):
        return np.zeros(fleet.size)
    alone = decision if decision.request.count == 1 else place(fleet, replace(decision.request, count=1))
    ranked = 2.0 * alone.ranking.preferences()
    return (ranked + _together(fleet, rules, decision.hosts[0], soft=True)).astype(np.float64)


def _together(fleet: Fleet, rules: Sequence[Rule], host: int, *, soft: bool) -> Bools:
    """The hosts that share with one every aggregate in which the hard, or the soft, rules count."""
    same: Bools = np.ones(fleet.size, np.bool_)
    for rule in rules:
        if rule.soft is soft and rule.identifier is None:
            column = fleet.division(rule.scope).column
            same &= column == column[host]
    return same
