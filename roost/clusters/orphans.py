"""Policies and profiles whose type is no longer installed, and the clusters that use them."""

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.clusters.plugins import Plugins, not_installed
from roost.clusters.records import POLICIES, PROFILES
from roost.store.tables.clusters import cluster_policies, clusters


@dataclass(frozen=True, slots=True)
class Orphan:
    """A policy or a profile without its type."""

    sentence: str
    clusters: tuple[str, ...]
    """The names of the clusters that use it."""

    def __str__(self) -> str:
        used = f"Clusters: {', '.join(self.clusters)}." if self.clusters else "No cluster uses it."
        return f"{self.sentence} {used}"


async def find(connection: AsyncConnection, plugins: Plugins) -> list[Orphan]:
    """All of them, policies first."""
    attached = sa.select(cluster_policies.c.policy_id.label("used"), clusters.c.name).join(
        clusters, clusters.c.id == cluster_policies.c.cluster_id
    )
    made = sa.select(clusters.c.profile_id.label("used"), clusters.c.name)
    found: list[Orphan] = []
    for resource, known, users in ((POLICIES, plugins.policies, attached), (PROFILES, plugins.profiles, made)):
        rows = await resource.read(connection, resource.table.c.type.not_in(list(known)))
        names: dict[str, list[str]] = {}
        for use in await connection.execute(users) if rows else ():
            names.setdefault(use.used, []).append(use.name)
        for row in rows:
            found.append(Orphan(not_installed(row, resource.name), tuple(sorted(names.get(row.id, ())))))
    return found
