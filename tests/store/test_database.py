"""Transactions, notifications, and the names of broken constraints."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError, OperationalError

from roost.store.database import Database, is_unavailable, notify, violated, worth_retrying
from roost.store.tables.identity import projects
from tests.loop import stretches


async def _names(database: Database) -> list[str]:
    async with database.begin() as connection:
        return list((await connection.scalars(sa.select(projects.c.name))).all())


async def _add(database: Database, name: str, *, fail: bool = False) -> None:
    async with database.begin() as connection:
        await connection.execute(projects.insert().values(id=name, name=name))
        if fail:
            raise RuntimeError


async def test_a_transaction_is_kept_or_forgotten_as_a_whole(database: Database) -> None:
    await _add(database, "kept")
    with pytest.raises(RuntimeError):
        await _add(database, "forgotten", fail=True)
    names = await _names(database)
    assert "kept" in names
    assert "forgotten" not in names


async def test_a_broken_constraint_is_known_by_its_name(database: Database) -> None:
    await _add(database, "once")
    with pytest.raises(IntegrityError) as caught:
        await _add(database, "once")
    assert violated(caught.value) == "pk_projects"
    assert not worth_retrying(caught.value)


@asynccontextmanager
async def _listening(database: Database) -> AsyncIterator[list[str]]:
    """What is heard on a channel."""
    heard: list[str] = []

    async def hear(payload: str) -> None:
        heard.append(payload)

    listening = asyncio.create_task(database.listen("channel", hear))
    try:
        await _until(lambda: heard == [""])
        yield heard
    finally:
        listening.cancel()


async def test_a_notification_arrives_when_its_transaction_commits_and_only_then(database: Database) -> None:
    async with _listening(database) as heard:
        async with database.begin() as connection:
            await notify(connection, ("channel", "never"))
            await connection.rollback()
        async with database.begin() as connection:
            await notify(connection, ("channel", "committed"))
            assert heard == [""]
        await _until(lambda: heard == ["", "committed"])


async def test_a_listener_that_was_cut_off_comes_back_and_says_that_it_may_have_missed_something(
    database: Database, database_url: str
) -> None:
    async with _listening(database) as heard:
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE query LIKE 'LISTEN%' AND datname = current_database()"
            )
        await _until(lambda: heard == ["", ""])


async def _until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < until
        await asyncio.sleep(0.01)


async def test_a_long_answer_is_read_piece_by_piece(database: Database) -> None:
    long = "SELECT n, jsonb_build_object('n', n, 'text', repeat('x', 1000)) FROM generate_series(1, 20000) AS n"
    async with database.begin() as connection:
        await connection.execute(sa.text(long.replace("20000", "10")))
        with stretches() as found:
            await asyncio.sleep(0)
            rows = (await connection.execute(sa.text(long))).all()
    assert [row.n for row in rows] == list(range(1, 20_001))
    assert found.longest < 0.7 * found.total, found


async def _pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(65_536):
        sink.write(data)
    sink.close()


async def test_a_server_that_goes_away_amid_its_answer_to_a_commit_is_unavailable(database: Database) -> None:
    committed = b"C\x00\x00\x00\x0bCOMMIT\x00"
    fields = b"SFATAL\x00VFATAL\x00C57P01\x00Mterminating connection due to administrator command\x00\x00"
    ended = b"E" + (len(fields) + 4).to_bytes(4, "big") + fields

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(
            f"{database.address.parameters['host']}/.s.PGSQL.5432"
        )
        asking = asyncio.create_task(_pass_on(reader, far_writer))
        while committed not in (data := await far_reader.read(65_536)):
            writer.write(data)
        writer.write(data.partition(committed)[0] + committed + ended)
        asking.cancel()
        writer.close()
        far_writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    leaving = Database(f"postgresql://roost@127.0.0.1:{port}/{database.address.database}")
    try:
        with pytest.raises(OperationalError) as caught:
            await _add(leaving, "acknowledged or not")
        assert is_unavailable(caught.value)
    finally:
        await leaving.close()
        server.close()
