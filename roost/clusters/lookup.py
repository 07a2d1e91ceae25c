"""A thing by its id, its name, or the beginning of its id, as far as the caller may see it: found, or deleted."""

import re

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.clusters.errors import BadRequest, MultipleChoices, ResourceInUse, ResourceNotFound
from roost.identity.tokens import Caller
from roost.store.uuids import is_uuid

_ANYTHING_SPECIAL = re.compile(r"([\\%_])")


async def find(
    connection: AsyncConnection, table: sa.Table, noun: str, identity: str, caller: Caller, *, lock: bool = False
) -> sa.Row[tuple[object, ...]]:
    """The row, or `ResourceNotFound`; `MultipleChoices` where a name or a short id fits several.

    A caller's own things come first: only an administrator who has nothing of that name is shown another project's.
    """
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
            query = sa.select(table).where(attempt, scope).limit(2)
            rows = (await connection.execute(query.with_for_update() if lock else query)).all()
            if len(rows) > 1:
                raise MultipleChoices(identity)
            if rows:
                return rows[0]
    raise ResourceNotFound(noun, identity)


async def refer(
    connection: AsyncConnection, table: sa.Table, noun: str, identity: str, caller: Caller, *, lock: bool = False
) -> sa.Row[tuple[object, ...]]:
    """The row that the body of a request refers to: a wrong reference is the request's fault, not the address's."""
    try:
        return await find(connection, table, noun, identity, caller, lock=lock)
    except ResourceNotFound:
        raise BadRequest(f"The specified {noun} '{identity}' could not be found.") from None


async def delete_unused(
    connection: AsyncConnection, table: sa.Table, noun: str, identity: str, caller: Caller, *, unless: str
) -> None:
    """Delete what nothing refers to any more; else raise `ResourceInUse`, which says what stands against it."""
    row = await find(connection, table, noun, identity, caller, lock=True)
    try:
        async with connection.begin_nested():
            await connection.execute(table.delete().where(table.c.id == row.id))
    except IntegrityError:
        raise ResourceInUse(noun, identity, unless) from None
