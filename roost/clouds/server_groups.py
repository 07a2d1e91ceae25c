"""Server groups of clusters in Roost's own tables: those of the embedded cloud, and those in front of a Nova, which
have one of Nova's underneath, under the same id."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from roost.clouds.base import CloudGroup
from roost.compute.fronting import mirror
from roost.compute.groups import groups
from roost.compute.groups.groups import GroupPolicy
from roost.config import Settings
from roost.errors import NotFound
from roost.placement.rules import Rule
from roost.store.database import Database
from roost.store.tables.servers import server_groups


@dataclass(frozen=True, slots=True)
class OwnGroups:
    """The groups of one project."""

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
        policies: Sequence[str],
        limits: Mapping[str, Any] | None = None,
        make_underneath: Callable[[Sequence[Rule]], Awaitable[str]] | None = None,
    ) -> CloudGroup:
        """Limits belong to the first policy. What is underneath is made once it is known that the rules can be used."""
        rules = [Rule.parse(policy, (limits or {}) if place == 0 else {}) for place, policy in enumerate(policies)]
        asked = [GroupPolicy(rule) for rule in rules]
        async with self.database.begin() as connection:
            underneath = None
            if make_underneath is not None:
                await mirror.hold_off(connection)
                await groups.check_policies(connection, asked, self.project_id)
                underneath = await make_underneath(rules)
            made = await groups.create(
                connection,
                self.settings,
                name=name,
                policies=asked,
                project_id=self.project_id,
                user_id=self.user_id,
                group_id=underneath,
            )
        return _shown(made)

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


def _shown(group: groups.Group) -> CloudGroup:
    rules = {key: value for policy in group.policies[:1] for key, value in policy.flat_rules.items()}
    return CloudGroup(group.id, group.name, tuple(str(policy) for policy in group.policies), rules)
