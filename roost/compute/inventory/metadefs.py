"""Metadata definitions: namespaces of objects, properties, tags and resource types, each kept by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.inventory.images import Viewer
from roost.errors import Conflict, Forbidden, Invalid, NotFound
from roost.store import pages, rows
from roost.store.pages import PageRequest, SortKey
from roost.store.tables.compute import metadef_namespaces as table

MOST = 200
"""Objects, properties, tags or resource types of one namespace."""


Definitions = Mapping[str, Mapping[str, object]]
"""Objects, properties, tags or resource types by name, as they were written."""


@dataclass(frozen=True, slots=True)
class MetadefNamespace:
    """A namespace with all that it has."""

    namespace: str
    project_id: str
    display_name: str | None
    description: str | None
    visibility: str
    protected: bool
    objects: Definitions
    properties: Definitions
    tags: Definitions
    resource_types: Definitions
    created_at: datetime
    updated_at: datetime | None


class NamespaceValues(TypedDict, total=False):
    """What can be set when a namespace is made or changed; its name always is."""

    namespace: str
    project_id: str
    display_name: str | None
    description: str | None
    visibility: str
    protected: bool


def _sees(viewer: Viewer) -> sa.ColumnElement[bool]:
    if viewer.is_admin:
        return sa.true()
    return sa.or_(table.c.visibility == "public", table.c.project_id == viewer.project_id)


async def index(
    connection: AsyncConnection, viewer: Viewer, visibility: str | None, page: PageRequest
) -> list[MetadefNamespace]:
    """The namespaces that the viewer sees, by name; if asked, those that are public or not."""
    asked = [] if visibility is None else [table.c.visibility == visibility]
    visible, named = sa.select(table).where(_sees(viewer)), table.c.namespace
    found = await pages.read(connection, visible, [SortKey(named)], page, *asked, named=named)
    return [MetadefNamespace(**row._mapping) for row in found]


async def find(connection: AsyncConnection, viewer: Viewer, namespace: str, *, lock: bool = False) -> MetadefNamespace:
    """One namespace that the viewer sees."""
    query = sa.select(table).where(table.c.namespace == namespace, _sees(viewer))
    row = (await connection.execute(query.with_for_update() if lock else query)).one_or_none()
    if row is None:
        raise NotFound(f"Metadata definition namespace={namespace} was not found.")
    return MetadefNamespace(**row._mapping)


async def add(connection: AsyncConnection, values: NamespaceValues) -> MetadefNamespace:
    """Add a namespace."""
    return MetadefNamespace(**(await rows.add(connection, table, values, _taken(values)))._mapping)


async def change(connection: AsyncConnection, row: MetadefNamespace, values: NamespaceValues) -> MetadefNamespace:
    """Rename or describe a namespace, which the caller has locked."""
    changed = await rows.change(connection, table, values, _taken(values), namespace=row.namespace)
    assert changed is not None
    return MetadefNamespace(**changed._mapping)


def _taken(values: NamespaceValues) -> Conflict:
    return Conflict(f"Metadata definition namespace={values['namespace']} already exists.")


async def delete(connection: AsyncConnection, row: MetadefNamespace) -> None:
    """Delete a namespace with all that it has, unless it is protected."""
    check_unprotected(row)
    await rows.remove(connection, table, namespace=row.namespace)


def check_unprotected(row: MetadefNamespace) -> None:
    """Raise `Forbidden` if nothing of a namespace may be deleted."""
    if row.protected:
        raise Forbidden(f"Metadata definition namespace {row.namespace} is protected and cannot be deleted.")


async def keep(connection: AsyncConnection, row: MetadefNamespace, column: str, held: Definitions) -> None:
    """Replace everything of one kind in a locked namespace."""
    if len(held) > MOST:
        raise Invalid(f"A namespace has at most {MOST} of each.")
    await rows.change(connection, table, {column: held}, namespace=row.namespace)


async def resource_types(connection: AsyncConnection, viewer: Viewer) -> list[str]:
    """The names of the resource types of all namespaces that the viewer sees."""
    named = sa.func.jsonb_object_keys(table.c.resource_types)
    query = sa.select(named).where(_sees(viewer)).distinct().limit(1000)
    return sorted((await connection.scalars(query)).all())
