"""Groups as one process remembers them: read once, then grown by the members that claims add.

A group's version says whether what is remembered still holds. A claim that adds members says so in its numbered change,
which is taken in without reading the group again; after any other change the group is read again as a whole.
"""

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.groups import groups
from roost.compute.groups.groups import Group
from roost.compute.inventory.claims import touch_groups
from roost.compute.inventory.live_fleet import Joined, LiveFleet
from roost.placement.fleet import Members
from roost.placement.rules import Rule, division_of

_MOST = 10_000
_CONTENDED_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class CachedGroup:
    """A group as it was at a version."""

    version: int
    rules: tuple[Rule, ...]
    members: Members
    users: Counter[str]
    """How many of the members each user made."""
    shown: Group | None = None
    """As notifications show it, without members; only where they are sent."""

    @property
    def lacks_numbers(self) -> bool:
        """Whether the group is divided and members are in no partition, as a process of an earlier release leaves
        them."""
        numbered = sum(each.total for each in self.members.partitions.values())
        return division_of(self.rules) is not None and numbered < self.members.total


class _StoredGroup(NamedTuple):
    """A group as it is read."""

    id: str
    version: int
    places: list[tuple[int, int | None, int]]
    """How many members have a place on which host, and in which partition."""
    users: dict[str, int]
    moves: list[list[int]]
    """The hosts of each member that has a place on several."""


@dataclass(slots=True)
class GroupCache:
    """The rules and members of groups; the hosts are places in the columns of this process's fleet."""

    live: LiveFleet
    announces: bool = False
    """Whether notifications are sent, for which a group is kept as they show it."""
    _groups: dict[str, CachedGroup] = field(default_factory=dict)
    _contended: dict[str, float] = field(default_factory=dict)
    """The groups that this process has lost to another, and until when it expects to again."""

    def __post_init__(self) -> None:
        self.live.joined = self._grow

    def get(self, group_id: str | None) -> CachedGroup | None:
        """What is remembered of a group."""
        return None if group_id is None else self._groups.get(group_id)

    def stale(self, versions: Mapping[str, int]) -> list[str]:
        """Those of these groups that are not remembered at this version, or a later one."""
        known = {group_id: self._groups.get(group_id) for group_id in versions}
        return [group_id for group_id, group in known.items() if group is None or group.version < versions[group_id]]

    async def load(self, connection: AsyncConnection, versions: Mapping[str, int]) -> None:
        """Remember these groups as they are, which the caller has not locked; only the stale ones are read."""
        stale = self.stale(versions)
        if stale:
            self._remember(await self.read(connection, stale))

    async def load_locked(self, connection: AsyncConnection, locked: Mapping[str, int]) -> None:
        """Remember locked groups, by their versions. Members that should have a partition and have none get one."""
        await self.load(connection, locked)
        lacking = [group_id for group_id in locked if self._groups[group_id].lacks_numbers]
        for group_id in lacking:
            await groups.divide(connection, group_id)
        if lacking:
            await touch_groups(connection, lacking)
            # Not remembered: this transaction may yet be rolled back.
            self._remember(await self.read(connection, lacking))

    async def read(self, connection: AsyncConnection, group_ids: Collection[str]) -> dict[str, CachedGroup]:
        """The rules of these groups, where their members are, and how many each user made. A server that moves is in
        both places."""
        found = [_StoredGroup(*row) for row in await connection.execute(_READ, {"group_ids": list(group_ids)})]
        # After the versions: rules that changed in between belong to a version that no claim will find.
        rules = await groups.rules_of(connection, [each.id for each in found])
        shown = await groups.brief(connection, [each.id for each in found]) if self.announces else {}
        if any(self.live.index(host_id) is None for each in found for host_id, _, _ in each.places):
            await self.live.sync(connection)
        return {each.id: self._group(each, rules[each.id], shown.get(each.id)) for each in found}

    def _group(self, stored: _StoredGroup, rules: tuple[Rule, ...], shown: Group | None) -> CachedGroup:
        members = Members()
        for host_id, partition, servers in stored.places:
            index = self.live.index(host_id)
            if index is not None:
                members.add(index, servers, partition)
        if any(rule.together for rule in rules):
            members.between = tuple(pair for hosts in stored.moves for pair in pairwise(self.live.indexes(hosts)))
        return CachedGroup(stored.version, rules, members, Counter(stored.users), shown)

    def _remember(self, read: Mapping[str, CachedGroup]) -> None:
        if len(self._groups) > _MOST:
            self._groups.clear()
        self._groups.update(read)

    def forget(self, group_ids: Iterable[str]) -> None:
        """Read these groups again before they are next used."""
        for group_id in group_ids:
            self._groups.pop(group_id, None)

    def contended(self, group_ids: Iterable[str]) -> None:
        """Note that another process has changed these groups first."""
        until = time.monotonic() + _CONTENDED_SECONDS
        self._contended = {each: end for each, end in self._contended.items() if end > until - _CONTENDED_SECONDS}
        self._contended.update(dict.fromkeys(group_ids, until))

    def is_contended(self, group_id: str) -> bool:
        """Whether another process has lately changed this group first."""
        return self._contended.get(group_id, 0.0) > time.monotonic()

    def _grow(self, joined: Joined) -> None:
        """Add the members that a claim added, if nothing else happened to the group since it was read."""
        group_id, version, places, users = joined
        group = self._groups.get(group_id)
        if group is None or group.version >= version:
            return
        indexes = [self.live.index(host_id) for host_id, _, _ in places]
        if group.version + 1 != version or None in indexes:
            del self._groups[group_id]
            return
        for index, (_, partition, servers) in zip(indexes, places, strict=True):
            assert index is not None
            group.members.add(index, servers, partition)
        group.users.update(dict(users))
        self._groups[group_id] = replace(group, version=version)


# One statement, so that the members are those of the version.
_READ = sa.text("""
    SELECT CAST(g.id AS text) AS id, g.version,
        coalesce((SELECT jsonb_agg(jsonb_build_array(host_id, partition, servers)) FROM (
            SELECT c.host_id, s.partition, count(*) AS servers
            FROM servers AS s JOIN claims AS c ON c.server_id = s.id WHERE s.group_id = g.id GROUP BY 1, 2
        ) AS p), '[]') AS places,
        coalesce((SELECT jsonb_object_agg(user_id, servers) FROM (
            SELECT user_id, count(*) AS servers FROM servers WHERE group_id = g.id GROUP BY 1
        ) AS u), '{}') AS users,
        coalesce((SELECT jsonb_agg(hosts) FROM (
            SELECT array_agg(c.host_id) AS hosts FROM servers AS s JOIN claims AS c ON c.server_id = s.id
            WHERE s.group_id = g.id GROUP BY s.id HAVING count(*) > 1
        ) AS m), '[]') AS moves
    FROM server_groups AS g WHERE g.id = ANY (CAST(:group_ids AS uuid[]))
""")
