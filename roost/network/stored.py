"""What is stored of each noun of the network API: which rows a project sees, and how they are found and listed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, UUID
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.store import pages, rows
from roost.store.pages import PageRequest, SortKey
from roost.store.tables import network as tables
from roost.store.uuids import is_uuid


class NetworkViewer(NamedTuple):
    """Who asks: a project, or an administrator."""

    project_id: str | None
    is_admin: bool


@dataclass(frozen=True, slots=True)
class StoredNoun:
    """The rows of one noun. A project sees its own and those that are shared; administrators see all."""

    table: sa.Table

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns."""
        return tuple(self.table.c.keys())

    @property
    def filters(self) -> tuple[str, ...]:
        """The columns that the database can look for."""
        return tuple(column.name for column in self.table.c if isinstance(column.type, sa.Text | UUID))

    @property
    def sorts(self) -> tuple[str, ...]:
        """The columns that a list can be sorted by."""
        return tuple(column.name for column in self.table.c if not isinstance(column.type, ARRAY | JSONB))

    async def find(self, connection: AsyncConnection, identifier: str, viewer: NetworkViewer) -> Any | None:
        """The row with this id, if the viewer sees it."""
        query = self._seen(viewer).where(self.table.c.id == identifier)
        return (await connection.execute(query)).one_or_none() if is_uuid(identifier) else None

    async def page(
        self,
        connection: AsyncConnection,
        viewer: NetworkViewer,
        equal: Mapping[str, Sequence[str]],
        order: Sequence[tuple[str, bool]],
        page: PageRequest,
    ) -> Sequence[Any]:
        """A page of what the viewer sees, with one of these values in each of these columns. `order` names columns and
        whether they descend; then the oldest come first."""
        conditions = [self._among(self.table.c[key], values) for key, values in equal.items()]
        keys = [
            SortKey(self.table.c[key], descends) for key, descends in (*order, ("created_at", False), ("id", False))
        ]
        return await pages.read(connection, self._seen(viewer), keys, page, *conditions, named=self.table.c.id)

    async def add(self, connection: AsyncConnection, values: Mapping[str, Any]) -> Any:
        """Add a row."""
        return await rows.add(connection, self.table, values)

    async def change(self, connection: AsyncConnection, identifier: str, values: Mapping[str, Any]) -> None:
        """Change a row."""
        await rows.change(connection, self.table, {**values, "updated_at": sa.func.now()}, id=identifier)

    async def remove(self, connection: AsyncConnection, identifier: str) -> None:
        """Remove a row."""
        await rows.remove(connection, self.table, id=identifier)

    def _seen(self, viewer: NetworkViewer) -> sa.Select[Any]:
        query = sa.select(self.table)
        if viewer.is_admin:
            return query
        seen = [self.table.c.project_id == viewer.project_id]
        if self.table is tables.networks:
            seen.append(tables.networks.c.shared)
        if self.table is tables.subnets:
            shared = sa.select(tables.networks.c.id).where(tables.networks.c.shared)
            seen.append(tables.subnets.c.network_id.in_(shared))
        return query.where(sa.or_(*seen))

    @staticmethod
    def _among(column: sa.Column[Any], values: Sequence[str]) -> sa.ColumnElement[bool]:
        return column.in_(filter(is_uuid, values) if isinstance(column.type, UUID) else values)


NETWORKS = StoredNoun(tables.networks)
SUBNETS = StoredNoun(tables.subnets)
PORTS = StoredNoun(tables.ports)
SECURITY_GROUPS = StoredNoun(tables.security_groups)
SECURITY_GROUP_RULES = StoredNoun(tables.security_group_rules)
FLOATING_IPS = StoredNoun(tables.floating_ips)
ROUTERS = StoredNoun(tables.routers)


async def subnets_of(connection: AsyncConnection, network_ids: Sequence[str]) -> dict[str, list[str]]:
    """The ids of the subnets of networks, the oldest first."""
    of = tables.subnets.c.network_id.in_(network_ids)
    query = sa.select(tables.subnets.c.network_id, tables.subnets.c.id).where(of).order_by(tables.subnets.c.created_at)
    found: dict[str, list[str]] = {}
    for network_id, subnet_id in await connection.execute(query):
        found.setdefault(network_id, []).append(subnet_id)
    return found


async def ports_by_id(connection: AsyncConnection, port_ids: Sequence[str]) -> dict[str, Any]:
    """These ports."""
    query = sa.select(tables.ports).where(tables.ports.c.id.in_(port_ids))
    return {port.id: port for port in await connection.execute(query)} if port_ids else {}
