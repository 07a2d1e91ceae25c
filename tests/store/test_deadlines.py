"""What takes too long ends: in the server, on the connection, and in the answer to a request."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import httpx
import psycopg
import pytest
import sqlalchemy as sa

from roost.api.app import App, make_services
from roost.api.auth import RoostAuthenticator
from roost.config import Settings
from roost.store import patterns
from roost.store.addresses import Address
from roost.store.database import Database, GuardedConnection, Limits, is_unavailable
from tests.compute.cloud import Cloud
from tests.conftest import Api
from tests.faults.proxy import Proxy

SHORT = Limits(statement=0.3, lock=0.2, idle=0.4)
FLAVORS = "/compute/v2.1/flavors"


@pytest.fixture
async def hurried(database_url: str) -> AsyncIterator[Database]:
    """Connections with short limits."""
    database = Database(database_url, limits=SHORT)
    yield database
    await database.close()


async def _failure(database: Database, statement: str) -> BaseException:
    with pytest.raises(sa.exc.DBAPIError) as caught:
        async with database.begin() as connection:
            await connection.execute(sa.text(statement))
    return caught.value


async def test_a_statement_is_cancelled_by_the_server(hurried: Database) -> None:
    error = await _failure(hurried, "SELECT pg_sleep(20)")
    assert isinstance(error.__cause__, psycopg.errors.QueryCanceled)
    assert is_unavailable(error)


async def test_a_lock_is_not_waited_for_longer_than_the_limit(hurried: Database, database: Database) -> None:
    async with database.begin() as holder:
        await holder.execute(sa.text("LOCK TABLE projects"))
        error = await _failure(hurried, "SELECT * FROM projects")
    assert isinstance(error.__cause__, psycopg.errors.LockNotAvailable)
    assert is_unavailable(error)


async def test_a_session_that_says_nothing_in_a_transaction_loses_what_it_held(
    hurried: Database, database: Database
) -> None:
    async def hold_and_hang() -> None:
        async with hurried.begin() as holder:
            await holder.execute(sa.text("LOCK TABLE projects"))
            async with database.begin() as other:
                await other.execute(sa.text("SELECT * FROM projects"))
            await holder.execute(sa.text("SELECT 1"))

    with pytest.raises(sa.exc.DBAPIError) as caught:
        await hold_and_hang()
    assert is_unavailable(caught.value)


async def test_every_connection_says_whose_it_is_and_checks_its_peer(database_url: str) -> None:
    named = Database(database_url, name="roost-api")
    try:
        async with named.begin() as connection:
            query = "SELECT name, setting FROM pg_settings WHERE name = ANY(:names)"
            names = ["application_name", "client_connection_check_interval", "lock_timeout", "statement_timeout"]
            rows = await connection.execute(sa.text(query), {"names": names})
            settings: dict[str, str] = {row.name: row.setting for row in rows}
    finally:
        await named.close()
    assert settings["application_name"].startswith("roost-api@")
    assert settings["application_name"].endswith(" pool")
    assert settings["client_connection_check_interval"] == "2000"
    assert (settings["lock_timeout"], settings["statement_timeout"]) == ("10000", "15000")


@pytest.mark.parametrize("code", ["25P03", "25P04", "25006", "57014", "55P03", "57P01", "57P03", "53300", "40P01"])
async def test_what_passes_is_unavailable_and_not_a_defect(database: Database, code: str) -> None:
    error = await _failure(database, f"DO $$ BEGIN RAISE EXCEPTION SQLSTATE '{code}'; END $$")
    assert is_unavailable(error)


@pytest.mark.parametrize("statement", ["SELECT 1/0", "SELECT * FROM nowhere", "INSERT INTO projects DEFAULT VALUES"])
async def test_a_defect_stays_one(database: Database, statement: str) -> None:
    assert not is_unavailable(await _failure(database, statement))


async def test_a_commit_that_did_not_reach_its_standby_is_not_taken_for_one_that_did(database_url: str) -> None:
    """PostgreSQL ends the wait for a standby with a warning and success, when its statement is cancelled."""
    connection = await GuardedConnection.connect(database_url)
    connection.add_notice_handler(connection.notice)

    class Warned:
        source_function = "SyncRepWaitForLSN"

    async with connection:
        connection.notice(Warned())  # type: ignore[arg-type]
        with pytest.raises(psycopg.OperationalError, match="may not be on the standby"):
            await connection.execute("SELECT 1")
        await connection.execute("SELECT 1")


async def test_a_statement_that_does_not_hear_that_it_is_cancelled_ends_with_its_connection(
    database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL ignores a cancellation that overtakes its statement."""

    async def nothing(*_: object, **__: object) -> None:
        """As if it had come too early."""

    monkeypatch.setattr(psycopg.AsyncConnection, "cancel_safe", nothing)

    async def work() -> None:
        async with database.begin() as connection:
            await connection.execute(sa.text("SELECT pg_sleep(60)"))

    working, started = asyncio.create_task(work()), time.monotonic()
    await asyncio.sleep(0.3)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert time.monotonic() - started < 4
    sleeping = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(60)' AND datname = current_database()"
    with psycopg.connect(database_url, autocommit=True) as looking:
        while looking.execute(sleeping).fetchone() != (0,):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    assert time.monotonic() - started < 12
    async with database.begin() as connection:
        await connection.execute(sa.text("SELECT 1"))


# A server that hangs


@pytest.fixture
async def proxy(database_url: str) -> AsyncIterator[Proxy]:
    """Between Roost and its database."""
    sockets = database_url.partition("host=")[2]
    proxy = Proxy(lambda: asyncio.open_unix_connection(f"{sockets}/.s.PGSQL.5432"))
    await proxy.start()
    yield proxy
    await proxy.stop()


@pytest.fixture
def through(proxy: Proxy, database_url: str) -> Callable[..., Database]:
    """Makes a pool behind the proxy."""
    name = Address.parse(database_url).database
    return lambda **more: Database(f"postgresql://roost@127.0.0.1:{proxy.port}/{name}", **more)


async def test_a_server_that_hangs_is_given_up_and_all_its_connections_with_it(
    proxy: Proxy, through: Callable[..., Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roost.store.database._ANSWER_SECONDS", 0.2)
    database = through(limits=SHORT)
    try:
        async with database.begin() as one, database.begin() as other:
            for connection in (one, other):
                await connection.execute(sa.text("SELECT 1"))
        proxy.freeze()
        started = time.monotonic()
        assert is_unavailable(await _failure(database, "SELECT 1"))
        assert time.monotonic() - started < 3
        proxy.heal()
        for _ in range(3):  # no connection from before is used again
            async with database.begin() as connection:
                await connection.execute(sa.text("SELECT 1"))
    finally:
        await database.close()


async def test_a_listener_leaves_a_server_that_hangs(
    proxy: Proxy, through: Callable[..., Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roost.store.database._LISTENING_SECONDS", 0.2)
    database, heard = through(), 0

    async def hear(_: str) -> None:
        nonlocal heard
        heard += 1

    listening = asyncio.create_task(database.listen("channel", hear))
    try:
        async with asyncio.timeout(30):
            while heard < 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await asyncio.sleep(1)
            assert heard == 1
            proxy.freeze()
            await asyncio.sleep(1)
            proxy.heal()
            while heard < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    finally:
        listening.cancel()
        await database.close()


# Requests


async def _ask(api: Api, settings: Settings, database: Database) -> tuple[httpx.Response, float]:
    app = App(make_services(settings, database), RoostAuthenticator(api.services.database, 60))
    headers = {"X-Auth-Token": await api.token("roost")}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://roost.test") as http:
        started = time.monotonic()
        return await http.get(FLAVORS, headers=headers), time.monotonic() - started


def _is_503(answer: httpx.Response) -> bool:
    (fault,) = answer.json().values()
    return (answer.status_code, fault["code"], answer.headers.get("retry-after")) == (503, 503, "1")


async def test_a_request_that_takes_too_long_is_cancelled_in_the_database_too(
    api: Api, database: Database, database_url: str
) -> None:
    settings = replace(api.services.settings, request_seconds=0.5)
    with psycopg.connect(database_url) as holder:
        holder.execute("LOCK TABLE flavors")
        answer, seconds = await _ask(api, settings, database)
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        assert holder.execute(waiting).fetchone() == (0,)
    assert _is_503(answer)
    assert seconds < 3
    assert (await _ask(api, settings, database))[0].status_code == 200


async def test_a_request_to_a_server_that_hangs_is_answered_in_time(
    api: Api, proxy: Proxy, through: Callable[..., Any]
) -> None:
    database = through()
    try:
        settings = replace(api.services.settings, request_seconds=0.5)
        assert (await _ask(api, settings, database))[0].status_code == 200
        proxy.freeze()
        answer, seconds = await _ask(api, settings, database)
        assert _is_503(answer)
        assert seconds < 4
    finally:
        proxy.heal()
        await database.close()


async def test_a_pattern_of_a_client_is_not_looked_for_as_long_as_other_things(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cloud.boot(settle=False)
    monkeypatch.setattr(patterns, "matches", lambda *_: sa.text("pg_sleep(20) IS NULL"))
    started = time.monotonic()
    answer = await cloud.ask("GET", "/servers?name=a.*b")
    assert answer.status_code == 503
    assert time.monotonic() - started < cloud.database.limits.statement / 2
