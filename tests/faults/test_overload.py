"""Too many clients, slow clients, clients and databases that are gone: refused or let go, and never waited for."""

import asyncio
import secrets
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psycopg
import pytest
import sqlalchemy as sa

from roost.store import addresses
from roost.store import database as connections
from roost.store.database import Database, Limits
from roost.store.embedded import EmbeddedPostgres
from tests.cli.test_processes import free_port, running, wait_for
from tests.conftest import PASSWORDS, Api
from tests.faults.proxy import Proxy

MOST_AT_WORK, MOST_CONNECTIONS, PATIENCE = 4, 60, 2.0
SETTINGS = f"""
[api]
max_requests = {MOST_AT_WORK}
project_requests = {MOST_AT_WORK}
max_connections = {MOST_CONNECTIONS}
body_seconds = {PATIENCE}
"""
FLAVORS = "/compute/v2.1/flavors"


@dataclass
class Served:
    """One API process with narrow limits."""

    url: str
    database_url: str
    token: str

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.url.removeprefix("http://").partition(":")
        return host, int(port)

    def get(self, path: str = FLAVORS) -> httpx.Response:
        return httpx.get(self.url + path, headers={"X-Auth-Token": self.token}, timeout=120)

    @contextmanager
    def holding(self, table: str) -> Iterator[None]:
        """Requests for these rows wait until the end of this."""
        with psycopg.connect(self.database_url) as connection:
            connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
            yield

    def waiting(self) -> int:
        """How many requests wait for rows that are held."""
        with psycopg.connect(self.database_url) as connection:
            query = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'flavors'::regclass"
            row = connection.execute(query).fetchone()
            return int(row[0]) if row else 0


@pytest.fixture(scope="module")
def database_of_the_module(postgres: EmbeddedPostgres) -> str:
    name = f"overload_{secrets.token_hex(4)}"
    with psycopg.connect(postgres.url.replace("/roost?", "/postgres?"), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE roost STRATEGY FILE_COPY')
    return postgres.url.replace("/roost?", f"/{name}?")


@contextmanager
def serving(folder: Path, database_url: str) -> Iterator[tuple[Served, "subprocess.Popen[bytes]"]]:
    settings = folder / f"overload-{secrets.token_hex(3)}.conf"
    settings.write_text(SETTINGS)
    port = free_port()
    with running("api", database_url, "--listen", f"127.0.0.1:{port}", "--config", str(settings)) as process:
        url = f"http://127.0.0.1:{port}"
        wait_for(f"{url}/healthcheck")
        user = {"name": "admin", "domain": {"id": "default"}, "password": PASSWORDS["admin"]}
        scope = {"project": {"name": "admin", "domain": {"id": "default"}}}
        body = {"auth": {"identity": {"methods": ["password"], "password": {"user": user}}, "scope": scope}}
        signed_in = httpx.post(f"{url}/identity/v3/auth/tokens", json=body, timeout=120)
        yield Served(url, database_url, signed_in.headers["X-Subject-Token"]), process


@pytest.fixture(scope="module")
def served(folders: Path, database_of_the_module: str) -> Iterator[Served]:
    with serving(folders, database_of_the_module) as (api, _):
        yield api


def test_what_is_more_than_can_be_worked_on_is_refused_at_once_and_the_rest_is_done(served: Served) -> None:
    with ThreadPoolExecutor(40) as pool:
        with served.holding("flavors"):
            asked = [pool.submit(served.get) for _ in range(40)]
            refused = _done(asked, 40 - MOST_AT_WORK)
            assert {answer.status_code for answer in refused} == {503}
            assert {answer.headers["retry-after"] for answer in refused} == {"1"}
            assert {answer.json()["serviceUnavailable"]["code"] for answer in refused} == {503}
            assert served.waiting() == MOST_AT_WORK
            assert served.get("/healthcheck").status_code == 200
            assert "roost_api_requests_shed_total 36.0" in served.get("/metrics").text
        answers = [each.result().status_code for each in asked]
    assert sorted(answers) == [200] * MOST_AT_WORK + [503] * (40 - MOST_AT_WORK)
    assert served.get().status_code == 200


def _done(asked: "list[Future[httpx.Response]]", number: int) -> list[httpx.Response]:
    """The answers, once there are that many."""
    until = time.monotonic() + 120
    while sum(each.done() for each in asked) < number:
        assert time.monotonic() < until
        time.sleep(0.05)
    return [each.result() for each in asked if each.done()]


def test_a_body_that_does_not_come_is_408_and_keeps_nobody_from_being_served(served: Served) -> None:
    head = (
        f"POST /compute/v2.1/os-server-groups HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {served.token}\r\n"
        "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    )
    slow = [_connect(served, head.encode()) for _ in range(3 * MOST_AT_WORK)]
    assert served.get().status_code == 200
    for client in slow:
        answer = _all(client)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"The body did not come within 2 seconds." in answer


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: x\r\nX-Half: "])
def test_a_request_that_never_begins_or_never_ends_its_head_is_hung_up_on(served: Served, sent: bytes) -> None:
    assert _all(_connect(served, sent)) == b""


def test_a_client_that_does_not_take_its_answers_is_hung_up_on(served: Served) -> None:
    request = b"GET /compute/v2.1/openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
    size = len(_all(_connect(served, request.replace(b"Host: x", b"Host: x\r\nConnection: close"))))
    number = 16_000_000 // size
    client = _connect(served, request * number, room=4096)
    time.sleep(3 * PATIENCE)
    assert served.get().status_code == 200
    assert len(_all(client)) < size * number


def test_a_client_that_takes_its_answer_slowly_gets_it_all(served: Served) -> None:
    request = b"GET /compute/v2.1/openapi.json HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    size = len(_all(_connect(served, request)))
    client, taken = _connect(served, request, room=4096), 0
    for _ in range(int(PATIENCE * 8)):
        taken += len(client.recv(2048))
        time.sleep(0.25)
    assert taken + len(_all(client)) == size


def test_connections_beyond_the_limit_are_told_to_come_again(served: Served) -> None:
    clients = [socket.create_connection(served.address, timeout=60) for _ in range(MOST_CONNECTIONS)]
    last = socket.create_connection(served.address, timeout=60)
    answer = _all(last)
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After: 1\r\n" in answer
    for client in clients:
        client.close()


def _connect(served: Served, data: bytes, room: int | None = None) -> socket.socket:
    client = socket.socket()
    if room is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    client.settimeout(120)
    client.connect(served.address)
    # A sender that does not read may have to wait until the other side takes it.
    threading.Thread(target=_send, args=(client, data), daemon=True).start()
    return client


def _send(client: socket.socket, data: bytes) -> None:
    try:
        client.sendall(data)
    except OSError:
        return


def _all(client: socket.socket) -> bytes:
    """What comes until the end of the connection, however it ends."""
    received = bytearray()
    try:
        while data := client.recv(1 << 16):
            received += data
    except ConnectionResetError:
        pass
    client.close()
    return bytes(received)


def test_a_process_that_is_asked_to_end_first_finishes_what_it_has_begun(
    folders: Path, database_of_the_module: str
) -> None:
    with serving(folders, database_of_the_module) as (served, process), ThreadPoolExecutor(3) as pool:
        with served.holding("flavors"):
            asked = [pool.submit(served.get) for _ in range(3)]
            until = time.monotonic() + 120
            while served.waiting() < 3:
                assert time.monotonic() < until
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            while _answers(served):
                assert time.monotonic() < until
                time.sleep(0.05)
        assert [each.result().status_code for each in asked] == [200] * 3


def _answers(served: Served) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(served.address) == 0


async def test_who_waits_too_long_for_a_connection_to_the_database_is_told_to_come_again(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.token("roost")
    monkeypatch.setattr(connections, "_POOL_SECONDS", 0.1)
    narrow = Database(api.services.database.address.conninfo(), pool_size=1, max_overflow=0)
    object.__setattr__(api.services, "database", narrow)
    try:
        async with narrow.begin():
            answer = await api.get(FLAVORS, cloud="roost")
    finally:
        await narrow.close()
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


async def test_a_database_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "_CONNECT_SECONDS", 2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        database = Database(f"postgresql://roost@127.0.0.1:{silent.getsockname()[1]}/roost")
        with pytest.raises(sa.exc.OperationalError):
            async with asyncio.timeout(60), database.begin():
                pass
        await database.close()


async def test_what_a_process_held_that_vanished_without_a_word_is_let_go(database_url: str) -> None:
    """Not even the end of its connection is heard of, as when its machine loses power."""
    sockets = database_url.partition("host=")[2]
    name = database_url.partition("@/")[2].partition("?")[0]
    proxy = Proxy(lambda: asyncio.open_unix_connection(f"{sockets}/.s.PGSQL.5432"))
    await proxy.start()
    vanishing = Database(f"postgresql://roost@127.0.0.1:{proxy.port}/{name}", limits=Limits(idle=1))
    lock = "SELECT id FROM hosts ORDER BY id FOR UPDATE"

    async def vanish() -> None:
        async with vanishing.begin() as connection:
            await connection.execute(sa.text(lock))
            proxy.freeze()
            async with await psycopg.AsyncConnection.connect(database_url) as other:
                await other.execute("SET lock_timeout = '60s'")
                await other.execute(lock)
            proxy.heal()
            await connection.execute(sa.text(lock))

    try:
        with pytest.raises(sa.exc.DBAPIError):
            await vanish()
    finally:
        await vanishing.close()
        await proxy.stop()
