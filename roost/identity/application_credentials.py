"""Application credentials: a user's own means to sign in for one project, with some of its roles and no password."""

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.errors import Conflict, Forbidden, NotFound
from roost.identity import tokens, users
from roost.store import rows
from roost.store.tables.identity import access_rules, application_credentials
from roost.store.tables.identity import users as users_table

_MOST, _MOST_RULES = 100, 1000
"""How many one user may have: lists of them are not paged."""


async def create(
    connection: AsyncConnection,
    *,
    user_id: str,
    project_id: str,
    name: str,
    secret_hash: users.PasswordHash,
    roles: Sequence[str],
    rules: Sequence[dict[str, str]] | None,
    description: str = "",
    expires_at: datetime | None = None,
    unrestricted: bool = False,
) -> Any:
    """Make one."""
    await _check_number(connection, user_id)
    rule_ids = None if rules is None else [await _rule(connection, user_id, rule) for rule in rules]
    row = {
        "id": uuid.uuid4().hex,
        "user_id": user_id,
        "project_id": project_id,
        "name": name,
        "secret_hash": secret_hash,
        "description": description,
        "expires_at": expires_at,
        "unrestricted": unrestricted,
        "roles": list(roles),
        "access_rules": rule_ids,
    }
    taken = Conflict(
        f"Conflict occurred attempting to store application_credential - Duplicate entry found with name {name}."
    )
    return await rows.add(connection, application_credentials, row, taken)


async def _check_number(connection: AsyncConnection, user_id: str) -> None:
    """One at a time for each user, so that the count is right."""
    await rows.find(connection, users_table, lock=True, id=user_id)
    for table, most in ((application_credentials, _MOST), (access_rules, _MOST_RULES)):
        query = sa.select(sa.func.count()).select_from(table).where(table.c.user_id == user_id)
        if (await connection.scalar(query) or 0) >= most:
            what = table.name.replace("_", " ")
            raise Forbidden(f"Unable to create additional {what}, maximum of {most} already exceeded for user.")


async def index(connection: AsyncConnection, user_id: str, name: str | None = None) -> Sequence[Any]:
    """Those of a user."""
    equal = {"user_id": user_id, **({} if name is None else {"name": name})}
    return await rows.index(connection, application_credentials, "name", **equal)


async def show(connection: AsyncConnection, user_id: str, credential_id: str) -> Any:
    """One of a user, by id and not by name."""
    missing = NotFound(f"Could not find Application Credential: {credential_id}.")
    return await rows.show(connection, application_credentials, missing, id=credential_id, user_id=user_id)


async def delete(connection: AsyncConnection, user_id: str, credential_id: str) -> None:
    """Forget one; tokens that were issued for it become invalid."""
    await show(connection, user_id, credential_id)
    await rows.remove(connection, application_credentials, id=credential_id)
    await tokens.recheck(connection)


async def find(connection: AsyncConnection, **equal: Any) -> Any | None:
    """The one with this id, or with this name and user."""
    return await rows.find(connection, application_credentials, **equal)


# Access rules stay when the credential that brought them goes: the next may name them by id.


async def rules_of(connection: AsyncConnection, user_id: str) -> Sequence[Any]:
    """The access rules of a user."""
    return await rows.index(connection, access_rules, "service", "path", "method", user_id=user_id)


async def rule(connection: AsyncConnection, user_id: str, rule_id: str) -> Any:
    """One access rule of a user."""
    missing = NotFound(f"Could not find Access Rule: {rule_id}.")
    return await rows.show(connection, access_rules, missing, id=rule_id, user_id=user_id)


async def delete_rule(connection: AsyncConnection, user_id: str, rule_id: str) -> None:
    """Forget an access rule that no credential has."""
    await rule(connection, user_id, rule_id)
    used = sa.select(sa.exists().where(application_credentials.c.access_rules.contains([rule_id])))
    if await connection.scalar(used):
        raise Conflict(f"The access rule {rule_id} is used by an application credential.")
    await rows.remove(connection, access_rules, id=rule_id)


async def _rule(connection: AsyncConnection, user_id: str, wanted: dict[str, str]) -> str:
    if "id" in wanted:
        return str((await rule(connection, user_id, wanted["id"])).id)
    values: dict[str, Any] = {key: wanted[key] for key in ("service", "path", "method")}
    await rows.ensure(connection, access_rules, {"id": uuid.uuid4().hex, "user_id": user_id, **values})
    found = await rows.find(connection, access_rules, user_id=user_id, **values)
    assert found is not None
    return str(found.id)
