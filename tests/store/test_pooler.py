"""A pooler that shares sessions between clients: refused where it is not expected, harmless where it is."""

import asyncio
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from roost.errors import Invalid
from roost.store import pooler
from roost.store.addresses import Address
from roost.store.database import Database, Limits
from roost.store.locks import AdvisoryLock
from roost.store.rounds import Rounds

PGBOUNCER = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


@pytest.fixture
def pooled(request: pytest.FixtureRequest, database_url: str, folders: Path) -> Iterator[str]:
    """The test's database behind a PgBouncer with two server connections."""
    if PGBOUNCER is None:
        pytest.skip("there is no pgbouncer")
    mode = getattr(request, "param", "transaction")
    address = Address.parse(database_url)
    folder = folders / f"pgbouncer-{time.monotonic_ns()}"
    folder.mkdir(mode=0o755)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "users.txt").write_text('"roost" ""\n')
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\n{address.database} = host={address.parameters['host']} user=roost\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = trust\nunix_socket_dir =\n"
        f"auth_file = {folder}/users.txt\npool_mode = {mode}\ndefault_pool_size = 2\n"
    )
    for file in (folder, *folder.iterdir()):
        file.chmod(0o755)
    command = [PGBOUNCER, str(folder / "pgbouncer.ini")]
    account = "roost-postgres"
    unprivileged = {"user": account, "group": account, "extra_groups": []} if os.geteuid() == 0 else {}
    with subprocess.Popen(command, stderr=subprocess.PIPE, **unprivileged) as process:  # type: ignore[call-overload]
        url = f"postgresql://roost@127.0.0.1:{port}/{address.database}"
        for _ in range(200):
            try:
                psycopg.connect(url).close()
                break
            except psycopg.OperationalError:
                assert process.poll() is None, process.stderr.read()
                time.sleep(0.05)
        yield url
        process.terminate()


def test_a_pooler_that_shares_sessions_is_refused_without_a_session_url(pooled: str, database_url: str) -> None:
    with pytest.raises(Invalid, match=r"set \[database\] session_url"):
        pooler.refuse_unknown(pooled, None)
    pooler.refuse_unknown(pooled, database_url)
    with pytest.raises(Invalid, match="session_url leads to a pooler"):
        pooler.refuse_unknown(pooled, pooled)


@pytest.mark.parametrize("pooled", ["session"], indirect=True)
def test_a_pooler_that_keeps_sessions_apart_is_fine(pooled: str, database_url: str) -> None:
    pooler.refuse_unknown(pooled, None)
    pooler.refuse_unknown(database_url, None)


async def test_many_transactions_share_few_sessions_and_none_sees_another(pooled: str, database_url: str) -> None:
    databases = [Database(pooled, session_url=database_url, limits=Limits(statement=7)) for _ in range(2)]

    async def ask(database: Database, number: int) -> None:
        for _ in range(8):  # more than it takes for a driver to prepare a statement
            async with database.begin() as connection:
                query = sa.text("SELECT " + " + ".join(f":n{each}" for each in range(number)))
                values = {f"n{each}": 1 for each in range(number)}
                assert await connection.scalar(query, values) == number
                assert await connection.scalar(sa.text("SHOW statement_timeout")) == "7s"

    try:
        await asyncio.gather(*(ask(database, number) for database in databases for number in range(1, 6)))
        with psycopg.connect(pooled) as after:
            assert after.execute("SHOW statement_timeout").fetchone() == ("0",)
            assert after.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
    finally:
        for database in databases:
            await database.close()


async def test_turns_and_listeners_have_sessions_of_their_own(pooled: str, database_url: str) -> None:
    databases = [Database(pooled, session_url=database_url) for _ in range(2)]
    one, other = (Rounds(database) for database in databases)
    heard = asyncio.Event()

    async def hear(payload: str) -> None:
        if payload == "news":
            heard.set()

    listening = asyncio.create_task(databases[0].listen("channel", hear))
    try:
        async with one.turn(AdvisoryLock.AUDIT) as first, other.turn(AdvisoryLock.AUDIT) as second:
            assert (first, second) == (True, False)
        while not heard.is_set():
            async with databases[1].begin() as connection:
                await connection.execute(sa.text("SELECT pg_notify('channel', 'news')"))
            await asyncio.sleep(0.05)
    finally:
        listening.cancel()
        for each in (one, other):
            await each.close()
        for database in databases:
            await database.close()
