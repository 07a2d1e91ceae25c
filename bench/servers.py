"""Servers created through HTTP, with commit: how many a second, and how long each waits.

5,000 hosts, hard rules in two scopes (one member a host, two a rack), 32 clients, everything on this machine: clients,
API, engine and PostgreSQL. Beside it, in the same run, what the machine gives at best: single-row transactions from as
many connections, and requests to the same server that only say how it is.
"""

import asyncio
import os
import platform
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import psycopg
import uvloop

from roost import config
from roost.cli import bootstrap
from roost.compute.inventory import quotas
from roost.store import schema
from roost.store.database import Database
from roost.store.embedded import EmbeddedPostgres

FIGURES = Path("bench/figures/servers.md")
CLIENTS = 32
SERVERS = 6_000
GROUPS = 200
LISTED = 1_000
KUBERNETES = 460
"""Pods a second that Kubernetes' own gate asks for, for hard topology spread on 5,000 nodes."""

TOPOLOGY = "generate: {zones: 5, racks_per_zone: 25, hosts_per_rack: 40, racks_per_switch: 5}\n"
POLICIES = [
    {"name": "anti-affinity"},
    {"name": "anti-affinity", "scope": "rack", "rules": {"max_server_per_aggregate": 2}},
]


class _Answers(asyncio.Protocol):
    """What comes back on a connection: one answer at a time."""

    def __init__(self) -> None:
        self.waiting: asyncio.Future[tuple[bytes, bytes]] | None = None
        self.open = True
        self._received = b""

    def data_received(self, data: bytes) -> None:
        """Pass on an answer as soon as all of it is there."""
        self._received += data
        head, complete, body = self._received.partition(b"\r\n\r\n")
        if not complete or self.waiting is None:
            return
        length = _LENGTH.search(head)
        if length is None or len(body) >= int(length[1]):
            self._received = b""
            self.waiting.set_result((head, body))

    def connection_lost(self, exc: Exception | None) -> None:
        """End the wait for an answer that does not come."""
        self.open = False
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_exception(exc or ConnectionResetError("closed without an answer"))


_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


@dataclass
class Connection:
    """One keep-alive connection, with as little around it as HTTP allows: the client shares the machine."""

    port: int
    token: str = ""
    headers: list[str] = field(default_factory=list)
    """Of the last answer."""
    _answers: _Answers = field(default_factory=_Answers, repr=False)
    _transport: asyncio.Transport | None = field(default=None, repr=False)

    async def request(self, method: str, path: str, body: Any = None, version: str = "2.1003") -> tuple[int, Any]:
        """The status, and the body if it is JSON."""
        loop = asyncio.get_running_loop()
        if self._transport is None or not self._answers.open:
            self._transport, self._answers = await loop.create_connection(_Answers, "127.0.0.1", self.port)
        content = b"" if body is None else orjson.dumps(body)
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Auth-Token: {self.token}\r\n"
            f"OpenStack-API-Version: compute {version}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(content)}\r\n\r\n"
        )
        self._answers.waiting = loop.create_future()
        self._transport.write(head.encode() + content)
        said, answer = await self._answers.waiting
        self.headers = said.decode().split("\r\n")
        return int(said[9:12]), orjson.loads(answer) if answer else None


@contextmanager
def cloud() -> Iterator[tuple[EmbeddedPostgres, int, dict[str, str]]]:
    """A served Roost with 5,000 hosts and no quotas: the database, the port, and the passwords."""
    with tempfile.TemporaryDirectory(prefix="roost-bench-", ignore_cleanup_errors=True) as folder:
        postgres = EmbeddedPostgres(Path(folder) / "data")
        postgres.start()
        schema.upgrade(postgres.url)
        settings = config.with_database(config.load(), postgres.url)
        passwords = {user.name: "bench" for user in bootstrap.USERS}
        topology = Path(folder) / "topology.yaml"
        topology.write_text(TOPOLOGY)
        bootstrap.fill(settings, passwords, str(topology))
        asyncio.run(_lift_quotas(postgres.url))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        environment = {**os.environ, "ROOST_DATABASE_URL": postgres.url}
        file = Path(folder) / "roost.conf"
        file.write_text(f"[log]\nlevel = WARNING\n[api]\nlisten = 127.0.0.1:{port}\n")
        commands = [["api"], ["engine"]]
        processes = [
            subprocess.Popen([sys.executable, "-m", "roost", *command, "--config", str(file)], env=environment)
            for command in commands
        ]
        try:
            _wait(port)
            yield postgres, port, passwords
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait()
            postgres.stop()


async def _lift_quotas(url: str) -> None:
    database = Database(url)
    async with database.begin() as connection:
        unlimited = dict.fromkeys(("instances", "cores", "ram", "server_groups", "server_group_members"), -1)
        await quotas.change_class(connection, quotas.DEFAULT_CLASS, unlimited)
    await database.close()


def _wait(port: int) -> None:
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("roost api did not start")


async def sign_in(port: int, password: str, name: str = "demo") -> str:
    """A token of the user and the project of this name."""
    connection = Connection(port)
    user = {"name": name, "password": password, "domain": {"id": "default"}}
    identity = {"methods": ["password"], "password": {"user": user}}
    scope = {"project": {"name": name, "domain": {"id": "default"}}}
    status, _ = await connection.request(
        "POST", "/identity/v3/auth/tokens", {"auth": {"identity": identity, "scope": scope}}
    )
    assert status == 201, status
    return next(line[17:] for line in connection.headers if line.lower().startswith("x-subject-token: "))


async def hammer(clients: int, jobs: int, job: Callable[[int, int], Awaitable[None]]) -> tuple[float, list[float]]:
    """`jobs` jobs by as many clients at a time; the seconds that all took, and that each took, sorted."""
    numbers = iter(range(jobs))
    took: list[float] = []

    async def work(client: int) -> None:
        for number in numbers:
            started = time.perf_counter()
            await job(client, number)
            took.append(time.perf_counter() - started)

    started = time.perf_counter()
    await asyncio.gather(*(work(client) for client in range(clients)))
    return time.perf_counter() - started, sorted(took)


_said: list[str] = []


def say(text: str) -> None:
    """Print, and keep for the figures."""
    print(text, flush=True)
    _said.append(text)


def line(name: str, seconds: float, took: list[float]) -> float:
    """Say a row; the rate."""
    rate = len(took) / seconds
    percentiles = [took[min(len(took) - 1, int(len(took) * share))] * 1000 for share in (0.5, 0.9, 0.99)]
    say(f"| {name} | {rate:,.0f} | " + " | ".join(f"{value:.1f}" for value in percentiles) + " |")
    return rate


async def _bare_commits(url: str) -> tuple[float, list[float]]:
    connections = [await psycopg.AsyncConnection.connect(url, autocommit=True) for _ in range(CLIENTS)]
    await connections[0].execute("CREATE TABLE bare (id bigint GENERATED ALWAYS AS IDENTITY, body jsonb)")

    async def job(client: int, number: int) -> None:
        await connections[client].execute("INSERT INTO bare (body) VALUES ('{}')")

    result = await hammer(CLIENTS, 4_000, job)
    for connection in connections:
        await connection.close()
    return result


async def _measure(postgres: EmbeddedPostgres, port: int, passwords: dict[str, str]) -> None:
    token = await sign_in(port, passwords["demo"])
    connections = [Connection(port, token) for _ in range(CLIENTS)]
    groups = []
    for number in range(GROUPS):
        body = {"server_group": {"name": f"group {number}", "policies": POLICIES}}
        status, answer = await connections[0].request("POST", "/compute/v2.1/os-server-groups", body)
        assert status == 200, answer
        groups.append(answer["server_group"]["id"])
    _, images = await connections[0].request("GET", "/image/v2/images")
    image = images["images"][0]["id"]
    placed = 0

    async def create(client: int, number: int) -> None:
        nonlocal placed
        body = {
            "server": {"name": f"server-{number}", "imageRef": image, "flavorRef": "1", "networks": "none"},
            "os:scheduler_hints": {"group": groups[number % GROUPS]},
        }
        status, answer = await connections[client].request("POST", "/compute/v2.1/servers", body, "2.100")
        assert status == 202, answer
        placed += 1

    async def nothing(client: int, number: int) -> None:
        status, _ = await connections[client].request("GET", "/compute/v2.1")
        assert status == 200

    async def listing(client: int, number: int) -> None:
        status, _ = await connections[client].request("GET", f"/compute/v2.1/os-server-groups?limit={LISTED}")
        assert status == 200

    say("| what | per second | median ms | 90 % ms | 99 % ms |\n|---|---|---|---|---|")
    await hammer(CLIENTS, 200, create)
    rate = line("servers created, 32 clients", *await hammer(CLIENTS, SERVERS, create))
    line("servers created, 1 client", *await hammer(1, 200, create))
    empty = line("version document, 32 clients", *await hammer(CLIENTS, 4_000, nothing))
    bare = line("bare commits, 32 connections", *await _bare_commits(postgres.url))
    for number in range(LISTED - GROUPS):
        body = {"server_group": {"name": f"more {number}", "policies": POLICIES}}
        await connections[0].request("POST", "/compute/v2.1/os-server-groups", body)
    line(f"list of {LISTED:,} groups, 1 client", *await hammer(1, 10, listing))
    say(
        f"\nCreated: {rate / KUBERNETES:.2f} times Kubernetes' gate of {KUBERNETES} pods/s; "
        f"{rate / bare:.2f} times bare commits; {rate / empty:.2f} times requests that do nothing."
    )
    await _check(postgres.url, placed)


async def _check(url: str, placed: int) -> None:
    """Speed that breaks a rule would be worth nothing."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        counts = await (
            await connection.execute("""
                SELECT count(*), count(host_id), (SELECT coalesce(max(n), 0) FROM (
                    SELECT count(*) AS n FROM servers WHERE group_id IS NOT NULL GROUP BY group_id, host_id) AS h),
                (SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM servers s
                    JOIN aggregate_hosts ah ON ah.host_id = s.host_id
                    JOIN scopes ON scopes.id = ah.scope_id AND scopes.name = 'rack'
                    GROUP BY s.group_id, ah.aggregate_id) AS r)
                FROM servers
            """)
        ).fetchone()
    assert counts is not None
    assert counts == (placed, placed, 1, 2), counts
    say(f"\nChecked: all {placed:,} servers have a host, no host has two of a group, no rack three.")


def main() -> None:
    """Measure, say a table, and keep the figures."""
    with cloud() as (postgres, port, passwords):
        uvloop.run(_measure(postgres, port, passwords))
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    head = f"# Servers\n\n{__doc__}\n{machine}; load {os.getloadavg()[0]:.1f} at the end."
    FIGURES.write_text("\n".join([head, "", *_said]) + "\n")


if __name__ == "__main__":
    main()
