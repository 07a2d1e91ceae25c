"""Find, list or delete a resource by id, name or id prefix, if the caller may see it."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.clusters.errors import BadRequest, MultipleChoices, ResourceInUse, ResourceNotFound
from roost.identity.tokens import Caller
from roost.store import pages
from roost.store.pages import PageRequest, SortKey
from roost.store.uuids import is_uuid

R = TypeVar("R")

_ANYTHING_SPECIAL = re.compile(r"([\\%_])")


@dataclass(frozen=True, slots=True)
class Resource(Generic[R]):
    """What can be found and listed: the table of a noun, and the record that its rows become."""

    name: str
    table: sa.Table
    make: Callable[..., R]
    """Takes the columns, in order."""
    columns: tuple[sa.ColumnElement[Any], ...]
    source: sa.FromClause | None = None
    """What to select from, if there are columns of other tables."""

    @property
    def query(self) -> sa.Select[Any]:
        """Selects all of them."""
        return sa.select(*self.columns).select_from(self.table if self.source is None else self.source)

    def column(self, name: str) -> sa.ColumnElement[Any]:
        """The column that a filter or a sort key names."""
        return next(column for column in self.columns if column.key == name)

    async def read(
        self,
        connection: AsyncConnection,
        *conditions: sa.ColumnElement[bool],
        order: sa.ColumnElement[Any] | None = None,
        limit: int | None = None,
        lock: bool = False,
    ) -> list[R]:
        """The records that meet these conditions; locked until the transaction ends, if asked."""
        query = self.query.where(*conditions).order_by(order).limit(limit)
        rows = await connection.execute(query.with_for_update(of=self.table) if lock else query)
        return [self.make(*row) for row in rows]

    async def insert(self, connection: AsyncConnection, values: Mapping[str, Any]) -> R:
        """Add a row."""
        return await self._write(connection, self.table.insert().values(**values))

    async def update(self, connection: AsyncConnection, identifier: str, values: Mapping[str, Any]) -> R:
        """Change a row that the caller has found."""
        return await self._write(connection, self.table.update().where(self.table.c.id == identifier).values(**values))

    async def _write(self, connection: AsyncConnection, statement: sa.Insert | sa.Update) -> R:
        return self.make(*(await connection.execute(statement.returning(*self.columns))).one())


async def find(
    connection: AsyncConnection, resource: Resource[R], identity: str, caller: Caller, *, lock: bool = False
) -> R:
    """The record, or `ResourceNotFound`; `MultipleChoices` where a name or a short id fits several.

    The caller's own project comes first: only an administrator who has nothing of that name sees another project's.
    """
    table = resource.table
    attempts = [table.c.id == identity]
    if hasattr(table.c, "name"):
        attempts.append(table.c.name == identity)
    if not is_uuid(identity) and identity:
        attempts = [*attempts[1:], table.c.id.like(_ANYTHING_SPECIAL.sub(r"\\\1", identity) + "%")]
    scopes = [table.c.project_id == caller.project_id]
    if caller.is_admin:
        scopes.append(sa.true())
    for scope in scopes:
        for attempt in attempts:
            found = await resource.read(connection, attempt, scope, limit=2, lock=lock)
            if len(found) > 1:
                raise MultipleChoices(identity)
            if found:
                return found[0]
    raise ResourceNotFound(resource.name, identity)


async def refer(
    connection: AsyncConnection, resource: Resource[R], identity: str, caller: Caller, *, lock: bool = False
) -> R:
    """What the body of a request refers to: a wrong reference is a bad request, not a wrong address."""
    try:
        return await find(connection, resource, identity, caller, lock=lock)
    except ResourceNotFound:
        raise BadRequest(f"The specified {resource.name} '{identity}' could not be found.") from None


async def by_id(connection: AsyncConnection, resource: Resource[R], identifier: str) -> R:
    """What was found or made a moment ago; `ResourceNotFound` if it has gone since."""
    found = await resource.read(connection, resource.table.c.id == identifier)
    if not found:
        raise ResourceNotFound(resource.name, identifier)
    return found[0]


async def read_page(
    connection: AsyncConnection,
    resource: Resource[R],
    page: PageRequest,
    order: Sequence[tuple[str, bool]],
    filters: Mapping[str, Collection[Any]],
    caller: Caller | None,
) -> list[R]:
    """A page of a list: what the caller's project has, or without a caller what all have. `order` names columns and
    whether they descend, `filters` the values to let through."""
    query = resource.query
    visible = query if caller is None else query.where(resource.table.c.project_id == caller.project_id)
    keys = [SortKey(resource.column(name), descends) for name, descends in (*order, ("id", False))]
    wanted = [resource.column(name).in_(values) for name, values in filters.items()]
    rows = await pages.read(connection, visible, keys, page, *wanted, named=resource.table.c.id)
    return [resource.make(*row) for row in rows]


async def delete_unused(
    connection: AsyncConnection, resource: Resource[Any], identity: str, caller: Caller, *, unless: str
) -> None:
    """Delete what nothing refers to any more; else raise `ResourceInUse`, which says what still does."""
    table, found = resource.table, await find(connection, resource, identity, caller, lock=True)
    try:
        async with connection.begin_nested():
            await connection.execute(table.delete().where(table.c.id == found.id))
    except IntegrityError:
        raise ResourceInUse(resource.name, identity, unless) from None
