"""Server groups in Roost's own tables: alone, or with one of Nova's underneath each, under the same id."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.clouds.base import CloudGroup
from roost.compute.answers import plans
from roost.compute.answers.plans import Create, GroupPlan
from roost.compute.fronting import mirror
from roost.compute.groups import groups
from roost.compute.groups.groups import Group, GroupPolicy
from roost.compute.inventory import flavors
from roost.compute.inventory.flavors import FlavorSize
from roost.compute.scheduling.scheduler import Scheduler
from roost.config import Settings
from roost.errors import NotFound
from roost.placement.rules import Rule
from roost.store.database import Database
from roost.store.tables.servers import server_groups

Find = Callable[[AsyncConnection], Awaitable[Group]]
"""Finds a group in a transaction, if the caller may have it."""


class Groups(Protocol):
    """What the compute API does with groups, and what a Nova behind it is asked; `token` is the caller's."""

    async def create(
        self, token: str, *, name: str, policies: Sequence[GroupPolicy], project_id: str, user_id: str
    ) -> Group:
        """Make a group."""
        ...

    async def delete(self, token: str, find: Find) -> None:
        """Delete a group; its members stay."""
        ...

    async def check_change(self, group_id: str, rules: Sequence[Rule]) -> None:
        """Raise `Conflict` where a group cannot have these rules instead of its own."""
        ...

    async def adopt_servers(self, connection: AsyncConnection, token: str, server_ids: Sequence[str]) -> None:
        """Read these servers, which are to become members, from Nova; raises `NotFound`."""
        ...

    async def adopt_group(self, group_id: str) -> None:
        """Take over a group that was made elsewhere; raises `NotFound`."""
        ...

    async def read_group(self, group_id: str) -> None:
        """Read where the members of a group are now."""
        ...

    async def set_scope(self, token: str, aggregate_ids: Iterable[int], scope: str | None) -> None:
        """Record which scope these aggregates belong to."""
        ...

    async def disable_hosts(self, names: Sequence[str], reason: str) -> None:
        """Keep a Nova from choosing these hosts."""
        ...

    async def flavor(self, connection: AsyncConnection, token: str, flavor_id: str, project_id: str) -> FlavorSize:
        """A flavor that the project may use; raises `NotFound`."""
        ...

    async def boot_planned(
        self, token: str, scheduler: Scheduler, group: Group, change: Create, generation: str, owner: str
    ) -> GroupPlan:
        """Make the servers of a plan where it said, for the project `owner` that asks; raises `Changed` if they would
        come elsewhere."""
        ...


@dataclass(frozen=True, slots=True)
class EmbeddedGroups:
    """Groups of the embedded cloud, of which Roost knows everything."""

    database: Database
    settings: Settings

    async def create(self, token: str, **new: Any) -> Group:
        """In Roost's tables."""
        async with self.database.begin() as connection:
            return await groups.create(connection, self.settings, **new)

    async def delete(self, token: str, find: Find) -> None:
        """From Roost's tables."""
        async with self.database.begin() as connection:
            await groups.delete(connection, self.settings, await find(connection))

    async def check_change(self, group_id: str, rules: Sequence[Rule]) -> None:
        """Every rule can be changed."""

    async def adopt_servers(self, connection: AsyncConnection, token: str, server_ids: Sequence[str]) -> None:
        """Every server is known."""

    async def adopt_group(self, group_id: str) -> None:
        """Every group is known already."""
        raise groups.missing(group_id)

    async def read_group(self, group_id: str) -> None:
        """What Roost knows is how it is."""

    async def set_scope(self, token: str, aggregate_ids: Iterable[int], scope: str | None) -> None:
        """The tables have it already."""

    async def disable_hosts(self, names: Sequence[str], reason: str) -> None:
        """No other scheduler chooses them."""

    async def flavor(self, connection: AsyncConnection, token: str, flavor_id: str, project_id: str) -> FlavorSize:
        """Roost's own."""
        return await flavors.show(connection, flavor_id, project_id=project_id)

    async def boot_planned(
        self, token: str, scheduler: Scheduler, group: Group, change: Create, generation: str, owner: str
    ) -> GroupPlan:
        """On Roost's own hosts."""
        return await plans.boot_planned(scheduler, group, change, generation)


async def create_above(
    database: Database,
    settings: Settings,
    make: Callable[[str, Sequence[Rule]], Awaitable[str]],
    unmake: Callable[[str], Awaitable[None]],
    *,
    name: str,
    policies: Sequence[GroupPolicy],
    project_id: str,
    user_id: str,
) -> Group:
    """Make a group with Nova's underneath, both or neither. Nova is called once the rules are known to be usable."""
    underneath = None
    try:
        async with database.begin() as connection:
            await mirror.hold_off(connection)
            await groups.check_policies(connection, policies, project_id)
            underneath = await make(name, [policy.rule for policy in policies])
            return await groups.create(
                connection,
                settings,
                name=name,
                policies=policies,
                project_id=project_id,
                user_id=user_id,
                group_id=underneath,
            )
    except BaseException:
        if underneath is not None:
            await unmake(underneath)
        raise


@dataclass(frozen=True, slots=True)
class OwnGroups:
    """The groups of one project, for its clusters."""

    database: Database
    settings: Settings
    project_id: str
    user_id: str

    async def find(self, name_or_id: str) -> CloudGroup | None:
        """By id, else by name."""
        async with self.database.begin() as connection:
            query = sa.select(sa.cast(server_groups.c.id, sa.Text)).where(
                server_groups.c.project_id == self.project_id,
                sa.or_(sa.cast(server_groups.c.id, sa.Text) == name_or_id, server_groups.c.name == name_or_id),
            )
            by_id_first = query.order_by(sa.cast(server_groups.c.id, sa.Text) != name_or_id, server_groups.c.number)
            found = await connection.scalar(by_id_first.limit(1))
            return _shown(await groups.find(connection, found)) if found is not None else None

    async def create(
        self,
        name: str,
        rules: Sequence[Rule],
        make: Callable[[str, Sequence[Rule]], Awaitable[str]] | None = None,
        unmake: Callable[[str], Awaitable[None]] | None = None,
    ) -> CloudGroup:
        """Alone, or above the one that `make` makes and `unmake` deletes."""
        policies = [GroupPolicy(rule) for rule in rules]
        new: dict[str, Any] = {
            "name": name,
            "policies": policies,
            "project_id": self.project_id,
            "user_id": self.user_id,
        }
        if make is not None and unmake is not None:
            return _shown(await create_above(self.database, self.settings, make, unmake, **new))
        return _shown(await EmbeddedGroups(self.database, self.settings).create("", **new))

    async def delete(self, group_id: str) -> None:
        """Its members stay; one that is not there counts as deleted."""
        try:
            async with self.database.begin() as connection:
                await groups.delete(connection, self.settings, await groups.find(connection, group_id))
        except NotFound:
            return

    async def rules(self, group_ids: Iterable[str]) -> dict[str, tuple[Rule, ...]]:
        """The rules of these groups, as far as they are here, with the real identifiers of aggregates."""
        async with self.database.begin() as connection:
            return await groups.rules_of(connection, group_ids)


def _shown(group: Group) -> CloudGroup:
    return CloudGroup(group.id, group.name, tuple(policy.rule for policy in group.policies))
