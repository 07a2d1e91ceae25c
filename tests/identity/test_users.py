"""Users and their passwords."""

import asyncio
import statistics
import time

import pytest

from roost.errors import Conflict, NotFound
from roost.identity import assignments, projects, sign_ins, tokens, users
from roost.identity.assignments import Grant
from roost.store.database import Database


async def test_a_password_is_right_or_not(database: Database) -> None:
    async with database.begin() as connection:
        user = await users.create(connection, "ada", await users.hashed("lovelace ✓"))
    assert user.password_hash.startswith("$argon2id$")
    assert await users.is_right(user, "lovelace ✓")
    for wrong in ("lovelace", "", "lovelace ✓ ", "x" * 100_000):
        assert not await users.is_right(user, wrong)


async def test_nobody_has_a_password_and_takes_as_long_as_somebody(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users, "_wrong_seconds", 0)
    async with database.begin() as connection:
        user = await users.create(connection, "ada", await users.hashed("lovelace"))
    assert not await users.is_right(None, "lovelace")

    async def seconds(who: object) -> float:
        """The median, because the machine has other things to do."""
        times = []
        for _ in range(5):
            started = time.perf_counter()
            await users.is_right(who, "wrong")
            times.append(time.perf_counter() - started)
        return statistics.median(times)

    assert await seconds(None) > await seconds(user) / 3


async def test_an_address_that_guesses_waits_and_others_do_not(database: Database) -> None:
    """Wrong passwords of one address took half of the CPU, and everybody else's requests waited."""
    async with database.begin() as connection:
        user = await users.create(connection, "ada", await users.hashed("lovelace"))

    async def is_right_from(address: str, password: str) -> bool:
        async with sign_ins.addresses.turn(address):
            return await users.is_right(user, password)

    guesses = [asyncio.create_task(is_right_from("203.0.113.1", "wrong")) for _ in range(8)]
    await asyncio.sleep(0)
    assert await is_right_from("203.0.113.2", "lovelace")
    assert not any(guess.done() for guess in guesses[1:])
    for guess in guesses:
        guess.cancel()
    await asyncio.gather(*guesses, return_exceptions=True)


async def test_a_user_made_without_a_password_cannot_sign_in(database: Database) -> None:
    async with database.begin() as connection:
        user = await users.create(connection, "ada", await users.hashed(None))
    assert not await users.is_right(user, "")


async def test_a_disabled_user_cannot_sign_in(database: Database) -> None:
    async with database.begin() as connection:
        user = await users.create(connection, "ada", await users.hashed("lovelace"), enabled=False)
    started = time.perf_counter()
    assert not await users.is_right(user, "lovelace")
    # As after a wrong password: how long it takes does not tell that this one was right.
    assert time.perf_counter() - started >= users._wrong_seconds


async def test_ensuring_a_user_twice_changes_nothing_and_keeps_its_tokens(database: Database) -> None:
    passwords = {"ada": "lovelace", "charles": "babbage"}
    hashes = await users.kept(database, passwords)
    async with database.begin() as connection:
        ids = await users.ensure(connection, hashes)
        await users.grant_in(connection, ids["ada"], "engines", "member")
        user = await users.show(connection, ids["ada"])
        (project,) = await projects.of_user(connection, user.id)
        secret = await tokens.issue(connection, user.id, project.id, ("password",), tokens.expiry(60))
    assert await users.kept(database, passwords) == hashes
    async with database.begin() as connection:
        assert await users.ensure(connection, hashes) == ids
        await users.grant_in(connection, ids["ada"], "engines", "member")
        assert await users.show(connection, user.id) == user
        assert await tokens.find(connection, secret) is not None


async def test_ensuring_another_password_ends_the_tokens_of_the_old_one(database: Database) -> None:
    old, new = [await users.kept(database, {"ada": password}) for password in ("lovelace", "byron")]
    async with database.begin() as connection:
        ids = await users.ensure(connection, old)
        await users.grant_in(connection, ids["ada"], "engines", "member")
        user = await users.show(connection, ids["ada"])
        (project,) = await projects.of_user(connection, user.id)
        secret = await tokens.issue(connection, user.id, project.id, ("password",), tokens.expiry(60))
        await users.ensure(connection, new)
        assert await tokens.find(connection, secret) is None
        assert await users.is_right(await users.show(connection, user.id), "byron")


async def test_a_name_is_taken_once(database: Database) -> None:
    message = "Conflict occurred attempting to store user - Duplicate entry found with name demo at domain ID default."
    with pytest.raises(Conflict, match=f"^{message}$"):
        async with database.begin() as connection:
            await users.create(connection, "demo", await users.hashed("x"))
    with pytest.raises(Conflict, match="store project - Duplicate entry found with name demo"):
        async with database.begin() as connection:
            await projects.create(connection, {"name": "demo", "domain_id": "default"})


@pytest.mark.parametrize(
    ("user", "project", "missing"), [("nobody", "demo", "user: nobody"), ("demo", "nowhere", "project: nowhere")]
)
async def test_roles_are_granted_only_to_users_and_in_projects_that_exist(
    database: Database, user: str, project: str, missing: str
) -> None:
    async with database.begin() as connection:
        users_found = {row.name: row.id for row in await users.index(connection)}
        projects_found = {row.name: row.id for row in await projects.index(connection)}
    ids = users_found.get(user, user), projects_found.get(project, project)
    with pytest.raises(NotFound, match=f"^Could not find {missing}.$"):
        async with database.begin() as connection:
            await assignments.grant(connection, Grant("admin", ids[0], project_id=ids[1]))
