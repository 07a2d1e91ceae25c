"""Tokens are opaque, end when they should, and are worth no more than what their user may do now."""

from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from roost.identity import assignments, projects, tokens, users
from roost.identity.assignments import Grant
from roost.identity.tokens import Token
from roost.store.database import Database
from roost.store.tables.identity import tokens as table


async def _issue(database: Database, *, seconds: int = 60, system: bool = False, user: str = "demo") -> str:
    async with database.begin() as connection:
        (found,) = await users.index(connection, name=user)
        project = None if system else (await projects.of_user(connection, found.id))[0].id
        expires_at = tokens.expiry(seconds)
        return await tokens.issue(connection, found.id, project, ("password",), expires_at, system=system)


async def _find(database: Database, secret: str) -> Token | None:
    async with database.begin() as connection:
        return await tokens.find(connection, secret)


async def test_a_token_speaks_for_its_user_and_project(database: Database) -> None:
    token = await _find(database, await _issue(database))
    assert token is not None
    assert (token.caller.user_name, token.caller.project_name) == ("demo", "demo")
    assert token.caller.roles == ("member", "reader")
    assert not token.caller.is_admin
    assert timedelta(seconds=55) < token.expires_at - datetime.now(UTC) <= timedelta(seconds=60)


async def test_only_the_digest_of_a_token_is_stored(database: Database) -> None:
    secret = await _issue(database)
    async with database.begin() as connection:
        rows = (await connection.execute(sa.text("SELECT t::text FROM tokens t"))).scalars().all()
    assert rows
    assert not any(secret in row or secret.encode().hex() in row for row in rows)


async def test_forged_expired_and_revoked_tokens_are_unknown(database: Database) -> None:
    secret = await _issue(database)
    assert await _find(database, secret[:-1] + ("a" if secret[-1] != "a" else "b")) is None
    assert await _find(database, "") is None
    assert await _find(database, "\xff\x00\udc80") is None
    assert await _find(database, await _issue(database, seconds=-1)) is None
    async with database.begin() as connection:
        await tokens.revoke(connection, secret)
    assert await _find(database, secret) is None


async def test_a_token_ends_with_the_password_it_was_issued_for(database: Database) -> None:
    secret = await _issue(database)
    other = await _issue(database, user="alt")
    async with database.begin() as connection:
        (user,) = await users.index(connection, name="demo")
        await users.update(connection, user.id, {"password_hash": await users.hashed("new")})
    assert await _find(database, secret) is None
    assert await _find(database, other) is not None


async def test_a_token_of_a_disabled_user_does_not_come_back_with_the_user(database: Database) -> None:
    secret = await _issue(database)
    async with database.begin() as connection:
        (user,) = await users.index(connection, name="demo")
        for enabled in (False, True):
            await users.update(connection, user.id, {"enabled": enabled})
    assert await _find(database, secret) is None


async def test_a_token_is_worthless_while_its_project_is_disabled_or_its_role_withdrawn(database: Database) -> None:
    secret = await _issue(database)
    token = await _find(database, secret)
    assert token is not None
    assert token.caller.project_id is not None
    project_id = token.caller.project_id
    async with database.begin() as connection:
        await projects.update(connection, project_id, {"enabled": False})
    assert await _find(database, secret) is None
    async with database.begin() as connection:
        await projects.update(connection, project_id, {"enabled": True})
    assert await _find(database, secret) is not None
    async with database.begin() as connection:
        await assignments.withdraw(connection, Grant("member", token.caller.user_id, project_id=project_id))
    assert await _find(database, secret) is None


async def test_only_an_admin_speaks_for_the_system(database: Database) -> None:
    token = await _find(database, await _issue(database, system=True, user="admin"))
    assert token is not None
    assert token.caller.system
    assert token.caller.project_id is None
    assert token.caller.is_admin
    assert await _find(database, await _issue(database, system=True, user="demo-manager")) is None


async def test_purging_forgets_expired_tokens_only(database: Database) -> None:
    kept = await _issue(database)
    await _issue(database, seconds=-1)
    async with database.begin() as connection:
        assert await tokens.purge(connection) == 1
        left = (await connection.scalars(sa.select(table.c.digest))).all()
    assert left == [tokens.digest(kept)]


async def test_each_role_implies_those_below_it(database: Database) -> None:
    token = await _find(database, await _issue(database, user="admin"))
    assert token is not None
    assert token.caller.roles == ("admin", "manager", "member", "reader")
