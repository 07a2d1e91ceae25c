"""Signing in with a password, and how often one may be wrong."""

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa

from roost.errors import TooManyFailures
from roost.identity import sign_ins, users
from roost.identity.sign_ins import Proof, SignInLimit
from roost.store.database import Database

THREE = SignInLimit(failures=3, seconds=300)
NONE = SignInLimit(failures=0, seconds=300)


@pytest.fixture
async def ada(database: Database) -> Any:
    async with database.begin() as connection:
        return await users.create(connection, "ada", await users.hashed("lovelace"))


async def fail(database: Database, times: int = 3, limit: SignInLimit = THREE, **who: Any) -> None:
    for _ in range(times):
        assert await sign_ins.prove(database, limit, "wrong", **who) is None


async def later(database: Database) -> None:
    """The window is over."""
    async with database.begin() as connection:
        await connection.execute(sa.text("UPDATE failed_sign_ins SET ends_at = ends_at - interval '300 seconds'"))


async def accepted(database: Database, proof: Proof | None) -> bool:
    assert proof is not None
    async with database.begin() as connection:
        return await sign_ins.hold(connection, THREE, proof)


async def test_who_was_guessed_at_too_often_must_wait_and_then_gets_in(database: Database, ada: Any) -> None:
    await fail(database, name="ada")
    for password in ("wrong", "lovelace"):
        with pytest.raises(TooManyFailures) as caught:
            await sign_ins.prove(database, THREE, password, name="ada")
        assert 290 < caught.value.seconds <= 301
    await later(database)
    assert await accepted(database, await sign_ins.prove(database, THREE, "lovelace", name="ada"))


async def test_the_window_begins_with_the_first_failure(database: Database, ada: Any) -> None:
    await fail(database, 2, name="ada")
    await later(database)
    await fail(database, name="ada")
    with pytest.raises(TooManyFailures):
        await sign_ins.prove(database, THREE, "lovelace", name="ada")


async def test_a_name_and_an_id_are_one_user(database: Database, ada: Any) -> None:
    await fail(database, 2, name="ada")
    await fail(database, 1, user_id=ada.id)
    for who in ({"name": "ada"}, {"user_id": ada.id}):
        with pytest.raises(TooManyFailures):
            await sign_ins.prove(database, THREE, "lovelace", **who)


async def test_others_are_not_affected(database: Database, ada: Any) -> None:
    async with database.begin() as connection:
        await users.create(connection, "charles", await users.hashed("babbage"))
    await fail(database, name="ada")
    assert await accepted(database, await sign_ins.prove(database, THREE, "babbage", name="charles"))


async def test_a_name_that_nobody_has_is_counted_like_any_other(database: Database) -> None:
    for name in ("nobody", "x" * 100_000):
        await fail(database, name=name)
        with pytest.raises(TooManyFailures):
            await sign_ins.prove(database, THREE, "wrong", name=name)


async def test_a_success_forgets_the_failures_before(database: Database, ada: Any) -> None:
    for _ in range(3):
        await fail(database, 2, name="ada")
        assert await accepted(database, await sign_ins.prove(database, THREE, "lovelace", name="ada"))


async def test_all_processes_count_together(database: Database, database_url: str, ada: Any) -> None:
    other = Database(database_url)
    try:
        await fail(database, 2, name="ada")
        await fail(other, 1, name="ada")
        for process in (database, other):
            with pytest.raises(TooManyFailures):
                await sign_ins.prove(process, THREE, "lovelace", name="ada")
    finally:
        await other.close()


async def test_of_many_guesses_at_once_no_more_than_the_limit_learn_anything(database: Database, ada: Any) -> None:
    guesses = [sign_ins.prove(database, THREE, f"guess {number}", name="ada") for number in range(12)]
    outcomes = await asyncio.gather(*guesses, return_exceptions=True)
    assert outcomes.count(None) == 3
    assert sum(isinstance(outcome, TooManyFailures) for outcome in outcomes) == 9


async def test_the_right_one_of_many_guesses_at_once_is_refused_with_the_others(database: Database, ada: Any) -> None:
    proof = await sign_ins.prove(database, THREE, "lovelace", name="ada")
    await fail(database, name="ada")
    with pytest.raises(TooManyFailures):
        await accepted(database, proof)


async def test_without_a_limit_nothing_is_counted(database: Database, ada: Any) -> None:
    await fail(database, 5, NONE, name="ada")
    async with database.begin() as connection:
        assert await connection.scalar(sa.text("SELECT count(*) FROM failed_sign_ins")) == 0
    assert await sign_ins.prove(database, NONE, "lovelace", name="ada") is not None


async def test_a_password_that_changed_meanwhile_is_not_held(database: Database, ada: Any) -> None:
    proof = await sign_ins.prove(database, THREE, "lovelace", name="ada")
    assert await accepted(database, proof)
    async with database.begin() as connection:
        await users.update(connection, ada.id, {"password_hash": await users.hashed("new")})
    assert not await accepted(database, proof)


async def test_a_success_costs_two_looks(database: Database, ada: Any) -> None:
    asked: list[str] = []

    def note(*given: Any) -> None:
        asked.append(given[2])

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        assert await accepted(database, await sign_ins.prove(database, THREE, "lovelace", name="ada"))
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)
    assert len(asked) == 2, asked


async def test_what_counts_no_more_is_forgotten(database: Database, ada: Any) -> None:
    await fail(database, 1, name="ada")
    async with database.begin() as connection:
        assert await sign_ins.purge(connection) == 0
    await later(database)
    async with database.begin() as connection:
        assert await sign_ins.purge(connection) == 1


async def test_names_are_not_kept(database: Database) -> None:
    await fail(database, 1, name="my password by mistake")
    async with database.begin() as connection:
        kept = await connection.scalar(sa.text("SELECT t::text FROM failed_sign_ins t"))
    assert b"password".hex() not in str(kept)
