"""Races and failures: several API processes and an engine on one database, many clients at once, and things that die.

Whatever happens, no hard rule is broken, no server that fits is refused, none is placed twice, and every sum is exact.
"""

import asyncio
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import sqlalchemy as sa

from roost import config
from roost.cli import bootstrap
from roost.store import schema
from roost.store.database import Database
from roost.store.embedded import EmbeddedPostgres
from tests.compute import truth
from tests.compute.cloud import IMAGE
from tests.conftest import PASSWORDS

CLIENTS = 64
TOPOLOGY = """
generate: {zones: 9, racks_per_zone: 5, hosts_per_rack: 6, host: {vcpus: 4, memory_mb: 16384, disk_gb: 200}}
hosts:
""" + "".join(f"  - {{name: lab{number}, zone: lab, vcpus: 4}}\n" for number in range(30))
RACKS, RACK_LIMIT = 45, 2


@dataclass
class Deployment:
    """Four API processes and an engine on one PostgreSQL, as if on two machines, on each of which one API decides."""

    url: str
    logs: Path
    ports: list[int] = field(default_factory=list)
    apis: list["subprocess.Popen[bytes]"] = field(default_factory=list)
    engine: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        """Start what does not run."""
        while len(self.apis) < 4:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.ports.append(probe.getsockname()[1])
            machine = self.logs / f"machine{len(self.apis) // 2}.conf"
            machine.write_text(f"[api]\nregion = {machine.stem}\n")  # processes whose settings differ decide apart
            self.apis.append(self._run("api", "--config", str(machine), "--listen", f"127.0.0.1:{self.ports[-1]}"))
        if self.engine is None:
            self.engine = self._run("engine")
        for port, process in zip(self.ports, self.apis, strict=True):
            _wait_for(port, process)

    def kill_api(self) -> None:
        """End an API process without a word."""
        self.ports.pop()
        self._kill(self.apis.pop())

    def kill_engine(self) -> None:
        """End the engine without a word."""
        assert self.engine is not None
        self._kill(self.engine)
        self.engine = None

    def _kill(self, process: "subprocess.Popen[bytes]") -> None:
        process.send_signal(signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        """End everything, in order; all must succeed."""
        processes = [*self.apis, *([self.engine] if self.engine else [])]
        for process in processes:
            process.terminate()
        assert [process.wait(60) for process in processes] == [0] * len(processes)

    def _run(self, *command: str) -> "subprocess.Popen[bytes]":
        environment = {**os.environ, "ROOST_DATABASE_URL": self.url}
        with (self.logs / f"{secrets.token_hex(3)}-{command[0]}.log").open("wb") as log:
            return subprocess.Popen([sys.executable, "-m", "roost", *command], env=environment, stdout=log, stderr=log)


def _wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    for _ in range(1200):
        assert process.poll() is None, "an API process ended"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("an API process does not answer")


@pytest.fixture(scope="module")
def deployment(postgres: EmbeddedPostgres, folders: Path) -> Iterator[Deployment]:
    """A deployment on a database of 300 hosts, without quotas."""
    name = f"races_{secrets.token_hex(4)}"
    url = postgres.url.replace("/roost?", f"/{name}?")
    with psycopg.connect(postgres.url.replace("/roost?", "/postgres?"), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    topology = folders / "races.yaml"
    topology.write_text(TOPOLOGY)
    schema.upgrade(url)
    bootstrap.fill(config.with_database(config.load(), url), PASSWORDS, str(topology))
    with psycopg.connect(url) as database:
        for resource in ("instances", "cores", "ram", "server_groups", "server_group_members"):
            database.execute("INSERT INTO quota_classes VALUES ('default', %s, -1)", (resource,))
    logs = folders / "races"
    logs.mkdir()
    running = Deployment(url, logs)
    running.start()
    yield running
    running.stop()


@dataclass
class Clients:
    """Many clients: each request goes to one of the API processes."""

    deployment: Deployment
    http: httpx.AsyncClient
    token: str
    statuses: Counter[int] = field(default_factory=Counter)

    async def ask(self, method: str, path: str, body: Any = None, port: int | None = None) -> httpx.Response | None:
        """One request; None where the process that was asked went away."""
        port = port or random.choice(self.deployment.ports)
        headers = {"X-Auth-Token": self.token, "OpenStack-API-Version": "compute 2.1003"}
        url = f"http://127.0.0.1:{port}/compute/v2.1{path}"
        try:
            response = await self.http.request(method, url, json=body, headers=headers)
        except httpx.TransportError:
            self.statuses[0] += 1
            return None
        self.statuses[response.status_code] += 1
        return response

    async def boot(
        self, group: str | None = None, zone: str | None = None, flavor: str = "1", port: int | None = None
    ) -> str | None:
        """Make a server; its id, if the answer came."""
        server = {"name": "s", "flavorRef": flavor, "imageRef": IMAGE, "networks": "none"}
        wanted = {**server, **({"availability_zone": zone} if zone else {})}
        hints = {"os:scheduler_hints": {"group": group}} if group else {}
        response = await self.ask("POST", "/servers", {"server": wanted, **hints}, port)
        if response is None or response.status_code != 202:
            return None
        return str(response.json()["server"]["id"])

    async def group(self, *policies: dict[str, Any]) -> str:
        """Make a group."""
        response = await self.ask("POST", "/os-server-groups", {"server_group": {"name": "g", "policies": policies}})
        assert response is not None
        return str(response.json()["server_group"]["id"])

    async def which_hands_over(self, *processes: int) -> int:
        """The one of these API processes of a machine that has another decide."""
        handed = {process: await self._handed_over(process) for process in processes}
        async with asyncio.timeout(30):
            while True:
                for process in processes:
                    await self.boot(port=self.deployment.ports[process])
                    if await self._handed_over(process) > handed[process]:
                        return process

    async def which_decides(self, one: int, other: int) -> int:
        """The one of the two API processes of a machine that decides for both."""
        return one if await self.which_hands_over(one, other) == other else other

    async def _handed_over(self, process: int) -> float:
        url = f"http://127.0.0.1:{self.deployment.ports[process]}/metrics"
        lines = (await self.http.get(url, headers={"X-Auth-Token": self.token})).text.splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith("roost_handed_over_total "))

    async def at_once(self, works: Sequence[Callable[[], Awaitable[Any]]], number: int = CLIENTS) -> list[Any]:
        """Do these works, so many of them at a time."""
        gate = asyncio.Semaphore(number)

        async def one(work: Callable[[], Awaitable[Any]]) -> Any:
            async with gate:
                return await work()

        return await asyncio.gather(*(one(work) for work in works))


@asynccontextmanager
async def clients_of(deployment: Deployment) -> AsyncIterator[Clients]:
    """Clients of a deployment, signed in as its administrator."""
    identity = {"user": {"name": "admin", "domain": {"id": "default"}, "password": PASSWORDS["admin"]}}
    scope = {"project": {"name": "admin", "domain": {"id": "default"}}}
    body = {"auth": {"identity": {"methods": ["password"], "password": identity}, "scope": scope}}
    limits = httpx.Limits(max_connections=CLIENTS)
    async with httpx.AsyncClient(timeout=600, limits=limits) as http:
        answer = await http.post(f"http://127.0.0.1:{deployment.ports[0]}/identity/v3/auth/tokens", json=body)
        yield Clients(deployment, http, answer.headers["X-Subject-Token"])


@pytest.fixture
async def clients(deployment: Deployment) -> AsyncIterator[Clients]:
    """Sixty-four clients."""
    async with clients_of(deployment) as clients:
        yield clients


@pytest.fixture
async def rows(deployment: Deployment) -> AsyncIterator[Database]:
    """The database behind it all; empty of servers again after each test."""
    database = Database(deployment.url)
    yield database
    await at_rest(database)
    async with database.begin() as connection:
        await connection.execute(sa.text("UPDATE servers SET task_state = 'deleting', step = jsonb_build_object("
                                         "'delete', true, 'flavor', step->'flavor'), due_at = now()"))  # fmt: skip
    await truth.settle(database)
    await truth.check(database)
    await database.close()


async def at_rest(database: Database) -> None:
    """Wait until the engine has finished everything."""
    for _ in range(600):
        async with database.begin() as connection:
            if not await connection.scalar(sa.text("SELECT count(*) FROM servers WHERE task_state IS NOT NULL")):
                return
        await asyncio.sleep(0.1)
    raise AssertionError("steps stay unfinished")


async def states(database: Database, group: str) -> Counter[str]:
    """How many members of a group are in which state."""
    query = sa.text("SELECT vm_state, count(*) AS n FROM servers WHERE group_id = :group GROUP BY vm_state")
    async with database.begin() as connection:
        return Counter({row.vm_state: row.n for row in await connection.execute(query, {"group": group})})


async def test_the_case_that_nova_loses(clients: Clients, rows: Database) -> None:
    """30 hosts, 30 servers, 8 at a time, one anti-affinity group: Nova 34 leaves 25 of them in ERROR."""
    group = await clients.group({"name": "anti-affinity"})
    await clients.at_once([lambda: clients.boot(group, "lab")] * 30, 8)
    await at_rest(rows)
    assert await states(rows, group) == {"active": 30}
    await truth.check(rows)


async def test_nobody_breaks_a_rule_and_nobody_who_fits_is_refused(clients: Clients, rows: Database) -> None:
    """Three groups, each asking for more members than two a rack and one a host leave room for."""
    rules: list[dict[str, Any]] = [
        {"name": "anti-affinity"},
        {"name": "anti-affinity", "scope": "rack", "rules": {"max_server_per_aggregate": RACK_LIMIT}},
    ]
    groups = [await clients.group(*rules) for _ in range(3)]
    fit, more = RACKS * RACK_LIMIT, 10
    works = [lambda group=group: clients.boot(group) for group in groups for _ in range(fit + more)]
    random.shuffle(works)
    made = await clients.at_once(works)
    await at_rest(rows)
    assert clients.statuses == {200: 3, 202: 3 * (fit + more)}
    assert len(set(made)) == len(made)
    for group in groups:
        assert await states(rows, group) == {"active": fit, "error": more}
    await truth.check(rows)


@pytest.mark.parametrize("deciding", [True, False])
async def test_a_process_that_stands_still_holds_up_no_other_for_five_seconds(
    deployment: Deployment, clients: Clients, rows: Database, deciding: bool
) -> None:
    """SIGSTOP meets the engine and an API process, one that decides for another or the other one, in the middle of
    creates for groups that all share."""
    groups = [await clients.group({"name": "anti-affinity"}), await clients.group({"name": "soft-anti-affinity"})]
    index = await clients.which_decides(2, 3) if deciding else await clients.which_hands_over(2, 3)
    frozen, engine = deployment.apis[index], deployment.engine
    others = [port for port in deployment.ports if port != deployment.ports[index]]
    assert engine is not None
    longest = 0.0

    async def boot(number: int) -> None:
        nonlocal longest
        started = time.monotonic()
        port = deployment.ports[index] if number % 4 == 3 else others[number % 3]
        await clients.boot(groups[number % 2], port=port)
        if port in others:
            longest = max(longest, time.monotonic() - started)

    works = asyncio.gather(*(boot(number) for number in range(120)))
    try:
        for _ in range(2):
            await asyncio.sleep(0.2)
            for process in (frozen, engine):
                process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(6)
            for process in (frozen, engine):
                process.send_signal(signal.SIGCONT)
    finally:
        for process in (frozen, engine):
            process.send_signal(signal.SIGCONT)
    await works
    assert longest < 6, "five seconds, and one for a machine that is busy"
    await at_rest(rows)
    await truth.check(rows)


async def test_room_is_given_to_the_last_vcpu(clients: Clients, rows: Database) -> None:
    """The zone has 30 hosts of 4 vCPUs; flavors of 2 fill it exactly, whichever process is asked."""
    works = [lambda: clients.boot(None, "lab", "3")] * 70
    await clients.at_once(works)
    await at_rest(rows)
    async with rows.begin() as connection:
        query = sa.text("SELECT vm_state, count(*) AS n FROM servers GROUP BY vm_state")
        found = {row.vm_state: row.n for row in await connection.execute(query)}
    assert found == {"active": 60, "error": 10}
    await truth.check(rows)


async def test_a_repair_that_an_engine_was_killed_in_is_finished_by_another(
    deployment: Deployment, clients: Clients, rows: Database
) -> None:
    """One move has ended and the next is under way when the engine dies; nothing is moved twice."""
    group = await clients.group({"name": "anti-affinity", "scope": "rack"})
    await clients.at_once([lambda: clients.boot(group)] * 4)
    await at_rest(rows)
    together = {"server_group": {"policies": [{"name": "affinity", "scope": "rack"}]}}
    await clients.ask("POST", f"/os-server-groups/{group}", together)
    await moves_take(rows, 3600)
    await clients.ask("POST", f"/os-server-groups/{group}/repairs", {"repair": {}})
    await repair_reaches(rows, group, running=1)
    await end_moves(rows)
    await repair_reaches(rows, group, done=1, running=1)
    deployment.kill_engine()
    await moves_take(rows, 0)
    await end_moves(rows)
    deployment.start()
    await repair_reaches(rows, group, done=3)
    query = "SELECT count(*) AS moves FROM migrations GROUP BY server_id"
    async with rows.begin() as connection:
        assert [server.moves for server in await connection.execute(sa.text(query))] == [1, 1, 1]
    await truth.check(rows)


async def moves_take(database: Database, seconds: int) -> None:
    """How long moves last from now on."""
    change = "UPDATE topologies SET simulation = simulation || jsonb_build_object('boot_seconds', CAST(:s AS int))"
    async with database.begin() as connection:
        await connection.execute(sa.text(change), {"s": seconds})


async def end_moves(database: Database) -> None:
    """Let those that are under way have lasted long enough; an engine sees it at its next look."""
    async with database.begin() as connection:
        await connection.execute(sa.text("UPDATE servers SET due_at = now() WHERE due_at IS NOT NULL"))


async def repair_states(database: Database, group: str) -> Counter[str]:
    """How many moves of a group's repair are in which state."""
    query = """
        SELECT m.state, count(*) AS n FROM repair_moves m JOIN repairs r ON r.id = m.repair_id
        WHERE r.group_id = :group GROUP BY m.state
    """
    async with database.begin() as connection:
        return Counter({row.state: row.n for row in await connection.execute(sa.text(query), {"group": group})})


async def repair_reaches(database: Database, group: str, **moves: int) -> None:
    """Wait until so many moves of a repair are in these states."""
    for _ in range(1200):
        if moves.items() <= (await repair_states(database, group)).items():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"the repair stays at {await repair_states(database, group)}")


async def _nothing(deployment: Deployment, postgres: EmbeddedPostgres) -> None:
    """No fault: only everything at once."""


async def _kill_an_api(deployment: Deployment, postgres: EmbeddedPostgres) -> None:
    await asyncio.sleep(0.5)
    deployment.kill_api()


async def _kill_the_engine(deployment: Deployment, postgres: EmbeddedPostgres) -> None:
    await asyncio.sleep(0.5)
    deployment.kill_engine()


async def _restart_the_database(deployment: Deployment, postgres: EmbeddedPostgres) -> None:
    await asyncio.sleep(0.5)
    await asyncio.to_thread(postgres.restart)


ACTIONS: list[dict[str, Any]] = [
    {"os-migrateLive": {"host": None, "block_migration": "auto"}},
    {"migrate": None},
    {"resize": {"flavorRef": "2"}},
    {"confirmResize": None},
    {"revertResize": None},
    {"shelve": None},
    {"unshelve": None},
    {"os-stop": None},
]


async def _live(clients: Clients, groups: list[str], accepted: set[str]) -> None:
    """The life of one client: make a server, do things to it whether it is ready or not, perhaps delete it."""
    server = await clients.boot(random.choice(groups), flavor=random.choice("13"))
    if server is None:
        return
    accepted.add(server)
    for action in random.sample(ACTIONS, 3):
        await clients.ask("POST", f"/servers/{server}/action", action)
    if random.random() < 0.4:
        accepted.discard(server)
        await clients.ask("DELETE", f"/servers/{server}")


@pytest.mark.parametrize("fault", [_nothing, _kill_an_api, _kill_the_engine, _restart_the_database])
async def test_everything_at_once_leaves_every_sum_exact(
    deployment: Deployment,
    postgres: EmbeddedPostgres,
    clients: Clients,
    rows: Database,
    fault: Callable[[Deployment, EmbeddedPostgres], Awaitable[None]],
) -> None:
    groups = [
        await clients.group({"name": "anti-affinity"}),
        await clients.group({"name": "anti-affinity", "scope": "rack", "rules": {"max_server_per_aggregate": 2}}),
        await clients.group({"name": "affinity", "scope": "rack"}),
        await clients.group({"name": "anti-affinity", "scope": "rack", "rules": {"partitions": 4}}),
    ]
    accepted: set[str] = set()
    trouble = asyncio.create_task(_as_task(fault(deployment, postgres)))
    await clients.at_once([lambda: _live(clients, groups, accepted)] * 80)
    await trouble
    allowed = {200, 202, 204, 400, 409}
    if fault is not _nothing:
        allowed |= {0, 503, 404}
    assert set(clients.statuses) <= allowed, clients.statuses
    deployment.start()
    await at_rest(rows)
    await truth.check(rows)
    async with rows.begin() as connection:
        kept = {row.id for row in await connection.execute(sa.text("SELECT id::text FROM servers"))}
    assert accepted <= kept
    # The deployment works as before.
    after = await clients.group({"name": "anti-affinity"})
    made = await clients.at_once([lambda: clients.boot(after)] * 20)
    assert None not in made, clients.statuses
    await at_rest(rows)
    assert await states(rows, after) == {"active": 20}


async def _as_task(work: Awaitable[None]) -> None:
    await work
