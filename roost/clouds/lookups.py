"""What clusters look for on Roost's own hosts: one statement for all that this process looks for at a time."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.clouds.base import CloudResource, CloudServer
from roost.compute.inventory.hosts import DEFAULT_ZONE
from roost.compute.inventory.images import Viewer
from roost.compute.scheduling.servers import status
from roost.store import bulk
from roost.store.database import Database
from roost.store.grouping import Grouped
from roost.store.tables.compute import flavor_access, flavors, hosts, images
from roost.store.tables.servers import servers


class ProjectName(NamedTuple):
    """A name or an id, and the project that uses it."""

    project_id: str
    text: str


class FoundServer(NamedTuple):
    """A server, the project that it belongs to, the token that it was made for, and whether a change is under way."""

    project_id: str
    token: str
    changes: bool
    server: CloudServer


class _StoredServer(NamedTuple):
    id: str
    project_id: str
    client_token: str | None
    due_at: datetime | None
    name: str
    vm_state: str
    task_state: str | None
    fault: Mapping[str, str] | None
    flavor: Mapping[str, object]
    image_id: str | None
    metadata: Mapping[str, str]
    addresses: Mapping[str, object]
    key_name: str | None
    config_drive: bool
    user_data: str | None
    created_at: datetime
    zone: str | None
    host: str | None
    host_zone: str | None


_SERVERS = sa.select(
    *(servers.c[name] for name in _StoredServer._fields[:-2]), hosts.c.name, hosts.c.availability_zone
).outerjoin(hosts, hosts.c.id == servers.c.host_id)


async def find_servers(connection: AsyncConnection, *conditions: sa.ColumnElement[bool]) -> list[FoundServer]:
    """The servers that meet these conditions."""
    found = [_StoredServer._make(row) for row in await connection.execute(_SERVERS.where(*conditions))]
    return [
        FoundServer(each.project_id, each.client_token or "", each.due_at is not None, _server(each)) for each in found
    ]


def _server(stored: _StoredServer) -> CloudServer:
    zone = stored.zone if stored.host is None else stored.host_zone or DEFAULT_ZONE
    shown = status(stored.vm_state, stored.task_state)
    fault = stored.fault or {}
    return CloudServer(
        id=str(stored.id),
        name=stored.name,
        status=shown,
        zone=zone,
        host=stored.host,
        node_id=stored.client_token,
        fault=fault.get("message") if isinstance(fault, dict) else str(fault),
        details={
            "id": str(stored.id),
            "name": stored.name,
            "status": shown,
            "flavor": dict(stored.flavor),
            "image": {"id": stored.image_id} if stored.image_id else "",
            "metadata": dict(stored.metadata),
            "addresses": dict(stored.addresses),
            "key_name": stored.key_name,
            "config_drive": stored.config_drive,
            "user_data": stored.user_data,
            "OS-EXT-AZ:availability_zone": zone,
            "OS-EXT-SRV-ATTR:host": stored.host,
            "created": stored.created_at.isoformat(),
        },
    )


class Lookups:
    """Servers by the ids of their nodes, flavors and images by name or id."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.servers: Grouped[Sequence[str], list[FoundServer]] = Grouped(self._servers, writes=False)
        self.flavors: Grouped[ProjectName, CloudResource | None] = Grouped(self._flavors, writes=False)
        self.images: Grouped[ProjectName, CloudResource | None] = Grouped(self._images, writes=False)

    async def _servers(self, asked: Sequence[Sequence[str]]) -> list[list[FoundServer]]:
        tokens = sorted({token for some in asked for token in some})
        wanted = servers.c.client_token == sa.any_(sa.bindparam("tokens", tokens))
        by_token: dict[str, list[FoundServer]] = {}
        async with self._database.begin() as connection:
            for each in await find_servers(connection, wanted):
                by_token.setdefault(each.token, []).append(each)
        return [[each for token in some for each in by_token.get(token, ())] for some in asked]

    async def _flavors(self, asked: Sequence[ProjectName]) -> list[CloudResource | None]:
        """Public ones, and those that a project has been given."""
        granted = sa.exists().where(
            flavor_access.c.flavor_id == flavors.c.id, flavor_access.c.project_id == _ASKED.c.project_id
        )
        return await self._named(flavors, sa.or_(flavors.c.is_public, granted), asked)

    async def _images(self, asked: Sequence[ProjectName]) -> list[CloudResource | None]:
        """Those that a project sees and that have their data."""
        usable = sa.and_(images.c.status == "active", Viewer(_ASKED.c.project_id).sees())
        return await self._named(images, usable, asked)

    async def _named(
        self, table: sa.Table, usable: sa.ColumnElement[bool], asked: Sequence[ProjectName]
    ) -> list[CloudResource | None]:
        identifier = sa.cast(table.c.id, sa.Text)
        by_id = identifier == _ASKED.c.text
        query = (
            sa.select(_ASKED.c.project_id, _ASKED.c.text, identifier.label("id"), table.c.name)
            .where(sa.or_(by_id, table.c.name == _ASKED.c.text), usable)
            .order_by(by_id)  # the last one counts
        )
        async with self._database.begin() as connection:
            rows = await connection.execute(query, {"rows": [each._asdict() for each in set(asked)]})
        found = {ProjectName(row.project_id, row.text): CloudResource(row.id, row.name) for row in rows}
        return [found.get(each) for each in asked]


_ASKED = bulk.given(project_id=sa.Text, text=sa.Text)
