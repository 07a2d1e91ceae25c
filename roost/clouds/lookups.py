"""What clusters look for on Roost's own hosts: one statement for all that this process looks for at a time."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from roost.clouds.base import CloudResource
from roost.compute.inventory.images import Viewer
from roost.store import bulk
from roost.store.database import Database
from roost.store.grouping import Grouped
from roost.store.tables.compute import flavor_access, flavors, hosts, images
from roost.store.tables.servers import servers

SERVERS = sa.select(servers, hosts.c.name.label("host"), hosts.c.availability_zone.label("host_zone")).outerjoin(
    hosts, hosts.c.id == servers.c.host_id
)


class ProjectName(NamedTuple):
    """A name or an id, and the project that uses it."""

    project_id: str
    text: str


class Lookups:
    """Servers by the ids of their nodes, flavors and images by name or id."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.servers: Grouped[Sequence[str], list[sa.Row[Any]]] = Grouped(self._servers)
        self.flavors: Grouped[ProjectName, CloudResource | None] = Grouped(self._flavors)
        self.images: Grouped[ProjectName, CloudResource | None] = Grouped(self._images)

    async def _servers(self, asked: Sequence[Sequence[str]]) -> list[list[sa.Row[Any]]]:
        tokens = sorted({token for some in asked for token in some})
        query = SERVERS.where(servers.c.client_token == sa.any_(sa.bindparam("tokens", tokens)))
        rows: dict[str, list[sa.Row[Any]]] = {}
        async with self._database.begin() as connection:
            for row in await connection.execute(query):
                rows.setdefault(row.client_token, []).append(row)
        return [[row for token in some for row in rows.get(token, ())] for some in asked]

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
