"""A real server: what it does with requests that never end, and how its processes share a database."""

import asyncio
import http.client
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest
import sqlalchemy as sa

from roost.cli.processes import _JoinedWrites
from roost.identity import tokens, users
from roost.store import schema
from roost.store.database import Database
from roost.store.embedded import EmbeddedPostgres
from roost.store.tables.identity import tokens as token_table
from tests.conftest import PASSWORDS, Served

SIGN_IN = {
    "auth": {
        "identity": {
            "methods": ["password"],
            "password": {"user": {"name": "admin", "domain": {"id": "default"}, "password": PASSWORDS["admin"]}},
        }
    }
}


def connect(served: Served) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(served.url).netloc, timeout=120)


def test_a_chunked_body_over_the_limit_is_413_and_the_connection_goes_on(served: Served) -> None:
    connection = connect(served)
    headers = {"Content-Type": "application/json"}
    pieces = (b"x" * 65_536 for _ in range(160))
    connection.request("POST", "/identity/v3/auth/tokens", body=pieces, headers=headers, encode_chunked=True)
    answer = connection.getresponse()
    assert answer.status == 413
    assert b"at most 32768 bytes are read" in answer.read()
    connection.request("GET", "/identity/v3")
    assert connection.getresponse().status == 200


class _Sent(asyncio.Transport):
    """A transport that keeps what it is to send, each time."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.closed = False

    def writelines(self, pieces: Iterable[bytes | bytearray | memoryview]) -> None:
        assert not self.closed
        self.sent.append(b"".join(pieces))

    def close(self) -> None:
        self.closed = True


async def test_the_head_and_the_body_of_an_answer_are_sent_together() -> None:
    transport = _Sent()
    joined = _JoinedWrites(transport, asyncio.get_running_loop())
    joined.write(b"head ")
    joined.write(b"body")
    await asyncio.sleep(0)
    assert transport.sent == [b"head body"]
    joined.write(b"more")
    joined.close()
    assert transport.sent[1:] == [b"more"]
    assert transport.closed
    await asyncio.sleep(0)
    assert len(transport.sent) == 2


async def test_a_long_answer_is_sent_as_it_comes() -> None:
    transport = _Sent()
    joined = _JoinedWrites(transport, asyncio.get_running_loop())
    for _ in range(10):
        joined.write(b"x" * 20_000)
    assert len(transport.sent) == 10


def test_headers_that_never_end_are_refused(served: Served) -> None:
    address = urlsplit(served.url)
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=120) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: ")
        answer = b""
        try:
            for _ in range(1000):
                client.sendall(b"x" * 65_536)
            answer = client.recv(65_536)
        except (BrokenPipeError, ConnectionResetError):
            return  # it had gone before we could read why
    assert answer.startswith(b"HTTP/1.1 400")


def test_headers_of_a_usual_size_are_not(served: Served) -> None:
    connection = connect(served)
    connection.request("GET", "/identity/v3", headers={f"X-{number}": "x" * 4000 for number in range(12)})
    assert connection.getresponse().status == 200


def test_what_is_not_http_is_refused(served: Served) -> None:
    address = urlsplit(served.url)
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=120) as client:
        client.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        assert client.recv(100).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("method", ["TRACE", "OPTIONS"])
def test_odd_methods_are_405_in_json(served: Served, method: str) -> None:
    connection = connect(served)
    connection.request(method, "/compute/v2.1/flavors")
    answer = connection.getresponse()
    assert answer.status == 405
    assert answer.read().startswith(b'{"badMethod"')


def test_the_head_of_a_document_has_no_body(served: Served) -> None:
    connection = connect(served)
    connection.request("HEAD", "/compute/v2.1")
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b"")


@contextmanager
def running(command: str, database_url: str, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A `roost` process on the operator's PostgreSQL, ended as an operator would."""
    environment = {**os.environ, "ROOST_DATABASE_URL": database_url}
    process = subprocess.Popen([sys.executable, "-m", "roost", command, *arguments], env=environment)
    try:
        yield process
    finally:
        process.terminate()
        assert process.wait(30) == 0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(url: str, status: int = 200) -> None:
    """Until the address answers so; how long that takes is the machine's affair, within reason."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            found = 200
        except urllib.error.HTTPError as error:
            found = error.code
        except OSError:
            found = 0
        if found == status:
            return
        time.sleep(0.1)
    raise AssertionError(f"{url} never answered {status}")


async def test_api_and_engine_are_processes_of_their_own_on_the_operators_database(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    # A broker that is not there keeps no engine from its work, nor from its end.
    telling = tmp_path / "roost.conf"
    broker = f"rabbit://nobody:nothing@127.0.0.1:{free_port()}/"
    telling.write_text(f"[notifications]\ndriver = messagingv2\ntransport_url = {broker}\n")
    async with database.begin() as connection:
        (user,) = await users.index(connection, name="demo")
        expired = await tokens.issue(connection, user.id, None, ("password",), tokens.expiry(-1))
    ports = free_port(), free_port()
    with (
        running("api", database_url, "--listen", f"127.0.0.1:{ports[0]}"),
        running("api", database_url, "--listen", f"127.0.0.1:{ports[1]}"),
        running("engine", database_url, "--config", str(telling)),
    ):
        for port in ports:
            wait_for(f"http://127.0.0.1:{port}/healthcheck")
        # Expired tokens are forgotten by engines only: when this one is, the engine works.
        digests = sa.select(token_table.c.digest).where(token_table.c.digest == tokens.digest(expired))
        until = time.monotonic() + 60
        while time.monotonic() < until:
            async with database.begin() as connection:
                if await connection.scalar(digests) is None:
                    return
            await asyncio.sleep(0.2)
    raise AssertionError("the engine did not purge the token")


def test_an_api_outlives_a_crash_of_the_database_and_says_so_meanwhile(folders: Path) -> None:
    postgres = EmbeddedPostgres(folders / "crashing")
    postgres.start()
    try:
        schema.upgrade(postgres.url)
        port = free_port()
        with running("api", postgres.url, "--listen", f"127.0.0.1:{port}"):
            wait_for(f"http://127.0.0.1:{port}/healthcheck")
            postgres.stop()
            wait_for(f"http://127.0.0.1:{port}/readiness", 503)
            postgres.start()
            wait_for(f"http://127.0.0.1:{port}/readiness")
    finally:
        postgres.stop()


def test_a_process_does_not_start_on_a_schema_that_it_does_not_know(postgres: EmbeddedPostgres) -> None:
    url = postgres.url.replace("/roost?", "/postgres?")
    done = subprocess.run(
        [sys.executable, "-m", "roost", "engine"],
        env={**os.environ, "ROOST_DATABASE_URL": url},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("roost: The schema is at nothing, this program needs ")
    assert done.stderr.rstrip().endswith(": roost db upgrade")


def test_an_api_that_is_told_to_stop_is_not_ready_first_and_serves_on(database_url: str, tmp_path: Path) -> None:
    draining = tmp_path / "roost.conf"
    draining.write_text("[api]\ndrain_seconds = 3\n")
    port = free_port()
    with running("api", database_url, "--listen", f"127.0.0.1:{port}", "--config", str(draining)) as process:
        wait_for(f"http://127.0.0.1:{port}/readiness")
        process.terminate()
        asked_at = time.monotonic()
        wait_for(f"http://127.0.0.1:{port}/readiness", 503)
        wait_for(f"http://127.0.0.1:{port}/healthcheck")
        assert process.wait(30) == 0
        assert 2.5 < time.monotonic() - asked_at < 3 + 5


def test_a_request_that_hangs_does_not_keep_a_process_that_is_told_to_stop(database_url: str) -> None:
    port = free_port()
    with (
        running("api", database_url, "--listen", f"127.0.0.1:{port}") as process,
        psycopg.connect(database_url) as holder,
        ThreadPoolExecutor(1) as pool,
    ):
        wait_for(f"http://127.0.0.1:{port}/readiness")
        holder.execute("LOCK TABLE users")
        asked = pool.submit(httpx.post, f"http://127.0.0.1:{port}/identity/v3/auth/tokens", json=SIGN_IN, timeout=30)
        time.sleep(1)
        process.terminate()
        asked_at = time.monotonic()
        process.wait(30)
        assert time.monotonic() - asked_at < 5
        assert asked.exception() is not None or asked.result().status_code >= 500
