"""Groups as one process remembers them: read once, and again when their version says that something has changed."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.groups import groups
from roost.compute.inventory.claims import touch_groups
from roost.compute.inventory.live_fleet import LiveFleet
from roost.placement.fleet import Members
from roost.placement.rules import Rule, division_of
from roost.store.tables.servers import claims, servers

_MOST = 10_000


@dataclass(frozen=True, slots=True)
class CachedGroup:
    """A group as it was at a version."""

    version: int
    rules: tuple[Rule, ...]
    members: Members
    users: Counter[str]
    """How many of the members each user made."""

    def grown(self, members: Members, joined: Counter[str]) -> "CachedGroup":
        """The group at its next version, with the members that these users added."""
        return replace(self, version=self.version + 1, members=members, users=self.users + joined)


@dataclass(slots=True)
class GroupCache:
    """The rules and members of groups; the hosts are places in the columns of this process's fleet."""

    live: LiveFleet
    _groups: dict[str, CachedGroup] = field(default_factory=dict)

    def remember(self, known: Mapping[str, CachedGroup]) -> None:
        """Keep what was committed of these groups."""
        if len(self._groups) > _MOST:
            self._groups.clear()
        self._groups.update(known)

    async def load(self, connection: AsyncConnection, locked: Mapping[str, sa.Row[Any]]) -> dict[str, CachedGroup]:
        """The rules and members of locked groups: remembered where the version is still the same, else read. Members
        that should have a partition and have none get one."""
        known = {}
        unknown = []
        for group_id, row in locked.items():
            group = self._groups.get(group_id)
            if group is not None and group.version == row.version:
                known[group_id] = group
            else:
                unknown.append(group_id)
        if unknown:
            rules = await groups.rules_of(connection, unknown)
            found = await self.read(connection, rules)
            lacking = [group_id for group_id, (members, _) in found.items() if _lacks_numbers(rules[group_id], members)]
            for group_id in lacking:
                await groups.divide(connection, group_id)
            if lacking:
                await touch_groups(connection, lacking)
                found |= await self.read(connection, {group_id: rules[group_id] for group_id in lacking})
            for group_id, (members, users) in found.items():
                known[group_id] = CachedGroup(locked[group_id].version, rules[group_id], members, users)
        return known

    async def read(
        self, connection: AsyncConnection, rules: Mapping[str, Sequence[Rule]]
    ) -> dict[str, tuple[Members, Counter[str]]]:
        """Where the members of the groups with these rules are, and how many each user made. A server that moves is in
        both places."""
        # Members may be on hosts that came after this transaction began.
        await self.live.sync(connection)
        found: dict[str, tuple[Members, Counter[str]]] = {group_id: (Members(), Counter()) for group_id in rules}
        of_groups = servers.c.group_id.in_(rules)
        places = (
            sa.select(servers.c.group_id, claims.c.host_id, servers.c.partition, sa.func.count().label("servers"))
            .join(claims, claims.c.server_id == servers.c.id)
            .where(of_groups)
            .group_by(servers.c.group_id, claims.c.host_id, servers.c.partition)
        )
        for row in await connection.execute(places):
            index = self.live.index(row.host_id)
            if index is not None:
                found[row.group_id][0].add(index, row.servers, row.partition)
        owners = (
            sa.select(servers.c.group_id, servers.c.user_id, sa.func.count().label("servers"))
            .where(of_groups)
            .group_by(servers.c.group_id, servers.c.user_id)
        )
        for row in await connection.execute(owners):
            found[row.group_id][1][row.user_id] = row.servers
        kept_together = [group_id for group_id in rules if any(rule.together for rule in rules[group_id])]
        for group_id, between in (await self._read_moves(connection, kept_together)).items():
            found[group_id][0].between = tuple(between)
        return found

    async def _read_moves(
        self, connection: AsyncConnection, group_ids: Collection[str]
    ) -> dict[str, list[tuple[int, int]]]:
        """The two hosts of each member that holds a claim on two."""
        found: dict[str, list[tuple[int, int]]] = {}
        if not group_ids:
            return found
        query = (
            sa.select(servers.c.group_id, sa.func.array_agg(claims.c.host_id).label("host_ids"))
            .join(claims, claims.c.server_id == servers.c.id)
            .where(servers.c.group_id.in_(group_ids))
            .group_by(servers.c.id)
            .having(sa.func.count() > 1)
        )
        for row in await connection.execute(query):
            found.setdefault(row.group_id, []).extend(pairwise(self.live.indexes(row.host_ids)))
        return found


def _lacks_numbers(rules: Sequence[Rule], members: Members) -> bool:
    """Whether the group is divided and members are in no partition, as a process of the release before leaves them."""
    return division_of(rules) is not None and sum(each.total for each in members.partitions.values()) < members.total
