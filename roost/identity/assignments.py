"""Who has which role where: users and groups, in projects, on domains and on the system, inherited or not."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.errors import NotFound
from roost.identity import tokens
from roost.store import rows
from roost.store.database import violated
from roost.store.tables.identity import grants, group_users, implied_roles, projects, role_assignments, roles


@dataclass(frozen=True, slots=True)
class Grant:
    """A role for a user or a group, in a project, on a domain, or (neither) on the system."""

    role: str
    user_id: str | None = None
    group_id: str | None = None
    project_id: str | None = None
    domain_id: str | None = None
    inherited: bool = False
    """It counts in the projects below, and not there itself."""

    @property
    def usual(self) -> bool:
        """Whether it is that of a role in a project to a user, which has its own table."""
        return self.user_id is not None and self.project_id is not None and not self.inherited

    @property
    def table(self) -> sa.Table:
        """Where it is kept."""
        return role_assignments if self.usual else grants

    def row(self) -> dict[str, Any]:
        """As it is kept."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name in self.table.c}

    def missing(self, role_id: str) -> NotFound:
        """The error for a role that was not given."""
        return NotFound(
            f"Could not find role assignment with role: {role_id}, user or group: {self.user_id or self.group_id}, "
            f"project, domain, or system: {self.project_id or self.domain_id or 'system'}."
        )


async def grant(connection: AsyncConnection, given: Grant) -> None:
    """Give a role; giving it twice changes nothing."""
    try:
        async with connection.begin_nested():
            await connection.execute(insert(given.table).values(**given.row()).on_conflict_do_nothing())
    except IntegrityError as error:
        kind = (violated(error) or "").removesuffix("_id").rpartition("_")[2]
        named = {"user": given.user_id, "group": given.group_id, "project": given.project_id, "domain": given.domain_id}
        raise NotFound(f"Could not find {kind}: {named.get(kind, given.role)}.") from None
    await tokens.recheck(connection)


async def withdraw(connection: AsyncConnection, given: Grant) -> bool:
    """Take a role away, and with it what tokens may do by it; whether it was there."""
    gone = await rows.remove(connection, given.table, **given.row())
    if gone:
        await tokens.recheck(connection)
    return bool(gone)


async def is_given(connection: AsyncConnection, given: Grant) -> bool:
    """Whether this role was given."""
    return await rows.find(connection, given.table, **given.row()) is not None


async def given_to(connection: AsyncConnection, like: Grant) -> list[Any]:
    """The roles given to this user or group there, without those that they imply."""
    wanted = {key: value for key, value in like.row().items() if key != "role"}
    names = {row.role for row in await rows.index(connection, like.table, **wanted)}
    query = sa.select(roles).where(roles.c.name.in_(names)).order_by(roles.c.name)
    return list((await connection.execute(query)).all())


async def index(connection: AsyncConnection, *, effective: bool = False) -> list[Grant]:
    """All grants; effective: what each user has of them, by its groups, by inheritance and by implication."""
    names = tuple(field.name for field in fields(Grant))
    usual = [
        Grant(row.role, row.user_id, None, row.project_id) for row in await rows.index(connection, role_assignments)
    ]
    others = await rows.index(connection, grants, "id")
    found = usual + [Grant(**{name: getattr(row, name) for name in names}) for row in others]
    return list(dict.fromkeys(await _effective(connection, found))) if effective else found


async def _effective(connection: AsyncConnection, found: list[Grant]) -> list[Grant]:
    members: dict[str, list[str]] = {}
    for row in await rows.index(connection, group_users, "user_id"):
        members.setdefault(row.group_id, []).append(row.user_id)
    implied: dict[str, list[str]] = {}
    for row in await rows.index(connection, implied_roles):
        implied.setdefault(row.prior, []).append(row.implied)
    tree = await rows.index(connection, projects)
    by_user = [replace(each, user_id=user, group_id=None) for each in found for user in _users(each, members)]
    inherited = [each for given in by_user for each in _inherited(given, tree)]
    return [replace(each, role=role) for each in inherited for role in _closure(each.role, implied)]


def _users(given: Grant, members: Mapping[str, list[str]]) -> list[str]:
    return [given.user_id] if given.user_id is not None else members.get(given.group_id or "", [])


def _inherited(given: Grant, tree: Any) -> Iterator[Grant]:
    """The same in each project below, where it is inherited."""
    if not given.inherited:
        yield given
        return
    below = {row.id for row in tree if row.domain_id == given.domain_id}
    parents = {given.project_id} if given.project_id is not None else set()
    while parents:
        parents = {row.id for row in tree if row.parent_id in parents} - below
        below |= parents
    for project_id in sorted(below):
        yield replace(given, project_id=project_id, domain_id=None, inherited=False)


def _closure(role: str, implied: Mapping[str, list[str]]) -> list[str]:
    found = [role]
    for each in found:
        found += [more for more in implied.get(each, ()) if more not in found]
    return found


async def on_system(connection: AsyncConnection, user_id: str) -> bool:
    """Whether a user may speak for the whole system: by a role there, or as an admin anywhere."""
    groups = sa.select(group_users.c.group_id).where(group_users.c.user_id == user_id)
    given = sa.exists().where(
        grants.c.project_id.is_(None),
        grants.c.domain_id.is_(None),
        (grants.c.user_id == user_id) | grants.c.group_id.in_(groups),
    )
    admin = sa.exists().where(role_assignments.c.user_id == user_id, role_assignments.c.role == "admin")
    return bool(await connection.scalar(sa.select(given | admin)))
