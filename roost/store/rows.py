"""Rows of small tables: found, listed, added, changed and removed, for the nouns that need no more than that."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.errors import Conflict, RoostError
from roost.store.database import violated


async def find(connection: AsyncConnection, table: sa.Table, *, lock: bool = False, **equal: Any) -> Any | None:
    """The one row with these values, if there is one; locked until the transaction ends, if asked."""
    query = sa.select(table).where(*_equal(table, equal))
    return (await connection.execute(query.with_for_update() if lock else query)).one_or_none()


async def show(
    connection: AsyncConnection, table: sa.Table, missing: RoostError, *, lock: bool = False, **equal: Any
) -> Any:
    """The one row with these values; `missing` is raised where there is none."""
    found = await find(connection, table, lock=lock, **equal)
    if found is None:
        raise missing
    return found


async def index(connection: AsyncConnection, table: sa.Table, *order: str, **equal: Any) -> Sequence[Any]:
    """All rows with these values, in this order."""
    query = sa.select(table).where(*_equal(table, equal)).order_by(*(table.c[name] for name in order))
    return (await connection.execute(query)).all()


async def add(
    connection: AsyncConnection,
    table: sa.Table,
    values: Mapping[str, Any],
    taken: RoostError | None = None,
    missing: Mapping[str, RoostError] | None = None,
) -> Any:
    """Add a row; `taken` is raised where another has what must be unique, and `missing` says, by the foreign key, what
    is raised where it refers to nothing."""
    try:
        async with connection.begin_nested():
            return (await connection.execute(table.insert().values(**values).returning(table))).one()
    except IntegrityError as error:
        raise _refusal(error, taken, missing or {}) from None


async def ensure(connection: AsyncConnection, table: sa.Table, values: Mapping[str, Any]) -> bool:
    """Add a row unless it is there; whether it was not."""
    added = insert(table).values(**values).on_conflict_do_nothing()
    return bool((await connection.execute(added)).rowcount)


async def change(
    connection: AsyncConnection,
    table: sa.Table,
    values: Mapping[str, Any],
    taken: RoostError | None = None,
    missing: Mapping[str, RoostError] | None = None,
    **equal: Any,
) -> Any | None:
    """Change the row with these values; what it is now, if there is one."""
    if not values:
        return await find(connection, table, **equal)
    changed = table.update().where(*_equal(table, equal)).values(**values).returning(table)
    try:
        async with connection.begin_nested():
            return (await connection.execute(changed)).one_or_none()
    except IntegrityError as error:
        raise _refusal(error, taken, missing or {}) from None


async def remove(connection: AsyncConnection, table: sa.Table, in_use: RoostError | None = None, **equal: Any) -> int:
    """Remove the rows with these values; how many there were."""
    try:
        async with connection.begin_nested():
            return (await connection.execute(table.delete().where(*_equal(table, equal)))).rowcount
    except IntegrityError:
        raise in_use or Conflict("It is in use.") from None


def _equal(table: sa.Table, values: Mapping[str, Any]) -> list[sa.ColumnElement[bool]]:
    return [table.c[name].is_(None) if value is None else table.c[name] == value for name, value in values.items()]


def _refusal(error: IntegrityError, taken: RoostError | None, missing: Mapping[str, RoostError]) -> RoostError:
    return missing.get(violated(error) or "") or taken or Conflict("Another has what must be unique.")
