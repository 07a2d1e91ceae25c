"""What clusters look for on Roost's own hosts: one statement for all that this process looks for at a time."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from roost.clouds.base import CloudResource
from roost.store.database import Database
from roost.store.grouping import Grouped
from roost.store.tables.compute import flavor_access, flavors, hosts, image_members, images
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
        granted = sa.func.array(
            sa.select(flavor_access.c.project_id).where(flavor_access.c.flavor_id == flavors.c.id).scalar_subquery()
        )
        rows = await self._named(flavors, asked, flavors.c.is_public, granted.label("projects"))
        return [
            _best(each.text, [row for row in rows if row.is_public or each.project_id in row.projects])
            for each in asked
        ]

    async def _images(self, asked: Sequence[ProjectName]) -> list[CloudResource | None]:
        """Those that a project's servers can be made from: everybody's, its own, and those shared with it."""
        members = sa.select(image_members.c.member_id).where(image_members.c.image_id == images.c.id)
        shared = sa.func.array(members.scalar_subquery()).label("projects")
        active = (images.c.status == "active").label("active")
        rows = await self._named(images, asked, active, images.c.visibility, images.c.project_id, shared)
        return [_best(each.text, [row for row in rows if _may_use(row, each.project_id)]) for each in asked]

    async def _named(
        self, table: sa.Table, asked: Sequence[ProjectName], *more: sa.ColumnElement[Any]
    ) -> Sequence[sa.Row[Any]]:
        identifier = sa.cast(table.c.id, sa.Text)
        texts = sa.bindparam("texts", sorted({each.text for each in asked}), type_=sa.ARRAY(sa.Text))
        named = sa.or_(identifier == sa.any_(texts), table.c.name == sa.any_(texts))
        async with self._database.begin() as connection:
            query = sa.select(identifier.label("id"), table.c.name, *more).where(named)
            return (await connection.execute(query)).all()


def _may_use(image: sa.Row[Any], project_id: str) -> bool:
    seen = image.visibility in ("public", "community") or image.project_id == project_id
    return image.active and (seen or (image.visibility == "shared" and project_id in image.projects))


def _best(text: str, rows: Sequence[sa.Row[Any]]) -> CloudResource | None:
    """The one with this id, else one with this name."""
    found = [row for row in rows if text in (row.id, row.name)]
    return min((CloudResource(row.id, row.name) for row in found), key=lambda each: each.id != text, default=None)
