"""More processes, more throughput: servers created through HTTP by 1, 2 and 4 API processes on one database.

5,000 hosts, 32 clients, one engine, everything on this machine. Many groups (hard rules for host and rack), one soft
group that all share, eight projects, many groups with a synchronous standby, and many groups where each process decides
for itself, as if it had a machine of its own; else one decides for all. CPU is that of the API processes, the
engine and PostgreSQL together; statements are those of the API processes; a round trip is a statement here, since
claims commit by themselves. Waiting is the average number of sessions that wait for a lock of another. Each is measured
several times, in turns with other numbers of processes, and of these runs the median by rate is shown.

    python -m bench.processes [--servers N] [--apis 1 2 4] [--rounds N] [--only many hot projects standby apart]

`bench/clusters.py` has the actions of clusters.
"""

import argparse
import asyncio
import os
import platform
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import uvloop

from bench.servers import POLICIES, TOPOLOGY, Connection, hammer
from roost import config
from roost.cli import bootstrap
from roost.compute.inventory import quotas
from roost.identity import users
from roost.store import schema
from roost.store.database import Database
from roost.store.embedded import EmbeddedPostgres
from tests.faults.standby import REPLICATION, standby

FIGURES = Path("bench/figures/processes.md")
CLIENTS = 32
GROUPS = 100
PROJECTS = 8
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Scenario:
    """Who asks for what."""

    name: str
    projects: int = 1
    groups: int = GROUPS
    soft: bool = False
    apart: bool = False
    """Each process decides for itself."""


SCENARIOS = {
    "many": Scenario("many groups"),
    "hot": Scenario("one hot group", groups=1, soft=True),
    "projects": Scenario("8 projects", PROJECTS, GROUPS // PROJECTS),
    "standby": Scenario("many groups, synchronous standby"),
    "apart": Scenario("many groups, each process for itself", apart=True),
}


@dataclass
class Sample:
    """What one scenario came to."""

    apis: int
    rate: float
    p50: float
    p99: float
    cpu: float
    """Milliseconds a create."""
    statements: float
    round_trips: float
    """A batch."""
    lost: float
    """Claims lost, for each hundred creates."""
    commits: float
    waiting: float
    idle: float

    def row(self, name: str) -> str:
        """As a line of the table."""
        return (
            f"| {name} | {self.apis} | {self.rate:,.0f} | {self.p50:.0f} | {self.p99:.0f} | {self.cpu:.2f} | "
            f"{self.statements:.2f} | {self.round_trips:.1f} | {self.lost:.1f} | {self.commits:.2f} | "
            f"{self.waiting:.2f} | {self.idle:.2f} |"
        )


HEAD = (
    "| scenario | APIs | creates/s | median ms | 99 % ms | CPU ms a create | statements a create | "
    "round trips a batch | lost claims % | commits a create | waiting for locks | idle in transaction |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|"
)


@dataclass
class Deployment:
    """API processes and an engine on one PostgreSQL."""

    postgres: EmbeddedPostgres
    folder: Path
    ports: list[int] = field(default_factory=list)
    processes: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def start(self, apis: int, *, apart: bool = False) -> None:
        """Start so many API processes and one engine."""
        self.ports = [free_port() for _ in range(apis)]
        self._run("engine", region="bench")
        for port in self.ports:
            # Processes whose settings differ do not decide for each other.
            self._run("api", "--listen", f"127.0.0.1:{port}", region=f"bench{port}" if apart else "bench")
        for port in self.ports:
            _wait(port)

    def _run(self, *command: str, region: str) -> None:
        file = self.folder / f"{region}.conf"
        # One project asks for all that the machine can do: the limit of a project is not what is measured.
        file.write_text(f"[log]\nlevel = WARNING\n[api]\nproject_rate = 0\nregion = {region}\n")
        environment = {**os.environ, "ROOST_DATABASE_URL": self.postgres.url}
        arguments = [sys.executable, "-m", "roost", *command, "--config", str(file)]
        self.processes.append(subprocess.Popen(arguments, env=environment))

    def stop(self) -> None:
        """End them."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()
        self.processes = []

    def cpu(self) -> float:
        """Seconds of CPU that all of it has used so far."""
        postmaster = self.postgres._process
        assert postmaster is not None
        backends = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _parent(pid) == postmaster.pid]
        return sum(_cpu(pid) for pid in (*(process.pid for process in self.processes), postmaster.pid, *backends))

    async def counted(self) -> dict[str, float]:
        """The counters of all API processes, added up."""
        totals: dict[str, float] = {}
        for port in self.ports:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            text = (await reader.read()).decode()
            writer.close()
            for name in ("roost_statements_total", "roost_batches_total", "roost_lost_races_total"):
                found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
                totals[name] = totals.get(name, 0.0) + (float(found[1]) if found else 0.0)
        return totals


class Waiting(threading.Thread):
    """Looks often at who waits for a lock, and who is silent in a transaction."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._over = threading.Event()
        self.looks: list[tuple[int, int]] = []

    def run(self) -> None:
        """Look until it is over."""
        query = """
            SELECT count(*) FILTER (WHERE wait_event_type = 'Lock'),
                   count(*) FILTER (WHERE state = 'idle in transaction')
            FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
        """
        with psycopg.connect(self._url, autocommit=True) as connection:
            while not self._over.wait(0.05):
                row = connection.execute(query).fetchone()
                assert row is not None
                self.looks.append((row[0], row[1]))

    def end(self) -> tuple[float, float]:
        """Stop looking; how many waited, and were silent, on average."""
        self._over.set()
        self.join()
        looks = self.looks or [(0, 0)]
        return sum(each[0] for each in looks) / len(looks), sum(each[1] for each in looks) / len(looks)


async def _groups(connection: Connection, number: int, policies: Sequence[object]) -> list[str]:
    made = []
    for each in range(number):
        body = {"server_group": {"name": f"group {each}", "policies": policies}}
        status, answer = await connection.request("POST", "/compute/v2.1/os-server-groups", body)
        assert status == 200, answer
        made.append(answer["server_group"]["id"])
    return made


async def _sign_in(port: int, name: str) -> str:
    connection = Connection(port)
    user = {"name": name, "password": "bench", "domain": {"id": "default"}}
    scope = {"project": {"name": name, "domain": {"id": "default"}}}
    body = {"auth": {"identity": {"methods": ["password"], "password": {"user": user}}, "scope": scope}}
    status, _ = await connection.request("POST", "/identity/v3/auth/tokens", body)
    assert status == 201, status
    return next(line[17:] for line in connection.headers if line.lower().startswith("x-subject-token: "))


async def measure(deployment: Deployment, servers: int, scenario: Scenario) -> Sample:
    """Create so many servers, with the clients spread over projects and API processes."""
    projects, groups = scenario.projects, scenario.groups
    names = [f"tenant{number}" for number in range(projects)]
    tokens = [await _sign_in(deployment.ports[0], name) for name in names]
    ports = deployment.ports
    connections = [Connection(ports[client % len(ports)], tokens[client % projects]) for client in range(CLIENTS)]
    policies = [{"name": "soft-anti-affinity"}] if scenario.soft else POLICIES
    made = [await _groups(Connection(ports[0], token), groups, policies) for token in tokens]
    _, images = await connections[0].request("GET", "/image/v2/images")
    image = images["images"][0]["id"]

    async def create(client: int, number: int) -> None:
        body = {
            "server": {"name": f"server-{number}", "imageRef": image, "flavorRef": "1", "networks": "none"},
            "os:scheduler_hints": {"group": made[client % projects][number % groups]},
        }
        status, answer = await connections[client].request("POST", "/compute/v2.1/servers", body, "2.100")
        assert status == 202, answer

    await hammer(CLIENTS, min(servers, 10 * CLIENTS), create)
    waiting = Waiting(deployment.postgres.url)
    waiting.start()
    before, cpu, commits = await deployment.counted(), deployment.cpu(), _commits(deployment.postgres.url)
    seconds, took = await hammer(CLIENTS, servers, create)
    cpu = deployment.cpu() - cpu
    after = await deployment.counted()
    changed = {name: after[name] - before[name] for name in after}
    waited, idle = waiting.end()
    await asyncio.sleep(1.5)  # PostgreSQL's own counts come late.
    statements, batches = changed["roost_statements_total"], changed["roost_batches_total"]
    return Sample(
        apis=len(ports),
        rate=servers / seconds,
        p50=took[servers // 2] * 1000,
        p99=took[int(servers * 0.99)] * 1000,
        cpu=cpu / servers * 1000,
        statements=statements / servers,
        round_trips=statements / max(batches, 1),
        lost=changed["roost_lost_races_total"] / servers * 100,
        commits=(_commits(deployment.postgres.url) - commits) / servers,
        waiting=waited,
        idle=idle,
    )


@contextmanager
def database(folder: Path, with_standby: bool) -> Iterator[EmbeddedPostgres]:
    """A filled database without limits, on its own or with a standby that every commit waits for."""
    with ExitStack() as stack:
        postgres = EmbeddedPostgres(folder / "data", REPLICATION if with_standby else {})
        postgres.start()
        stack.callback(postgres.stop)
        schema.upgrade(postgres.url)
        settings = config.with_database(config.load(), postgres.url)
        topology = folder / "topology.yaml"
        topology.write_text(TOPOLOGY)
        bootstrap.fill(settings, {user.name: "bench" for user in bootstrap.USERS}, str(topology))
        asyncio.run(_prepare(postgres.url))
        if with_standby:
            copy = standby(postgres, folder)
            stack.callback(copy.stop)
        yield postgres


async def _prepare(url: str) -> None:
    database = Database(url)
    hashes = await users.kept(database, {f"tenant{number}": "bench" for number in range(PROJECTS)})
    async with database.begin() as connection:
        unlimited = dict.fromkeys(("instances", "cores", "ram", "server_groups", "server_group_members"), -1)
        await quotas.change_class(connection, quotas.DEFAULT_CLASS, unlimited)
        ids = await users.ensure(connection, hashes)
        for name, user_id in ids.items():
            await users.grant_in(connection, user_id, name, "member")
    await database.close()


def _commits(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _parent(pid: int) -> int:
    stat = _stat(pid)
    return int(stat[1]) if stat else 0


def _cpu(pid: int) -> float:
    """What a process has used, with those of its children that have ended."""
    stat = _stat(pid)
    return sum(map(int, stat[11:15])) / _TICKS if stat else 0.0


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(port: int) -> None:
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("roost api did not start")


def _run(name: str, apis: int, servers: int) -> Sample:
    with tempfile.TemporaryDirectory(prefix="roost-bench-", ignore_cleanup_errors=True) as text:
        folder = Path(text)
        with database(folder, name == "standby") as postgres:
            deployment = Deployment(postgres, folder)
            try:
                deployment.start(apis, apart=SCENARIOS[name].apart)
                return uvloop.run(measure(deployment, servers, SCENARIOS[name]))
            finally:
                deployment.stop()


def _against_bars(samples: dict[tuple[str, int], Sample]) -> Iterator[str]:
    """The comparisons that there is a bar for."""

    def ratio(text: str, value: str, one: tuple[str, int], other: tuple[str, int], bar: str) -> Iterator[str]:
        if one in samples and other in samples:
            yield f"| {text} | {getattr(samples[one], value) / getattr(samples[other], value):.2f} | {bar} |"

    yield "\n| comparison | measured | bar |\n|---|---|---|"
    yield from ratio("4 APIs over 1, many groups, creates/s", "rate", ("many", 4), ("many", 1), "≥ 0.9")
    yield from ratio("4 APIs over 1, one hot group, creates/s", "rate", ("hot", 4), ("hot", 1), "≥ 0.6")
    yield from ratio("4 APIs over 1, CPU a create", "cpu", ("many", 4), ("many", 1), "≤ 1.3")
    yield from ratio("synchronous standby over none, creates/s", "rate", ("standby", 1), ("many", 1), "≥ 0.7")
    if ("many", 1) in samples:
        one = samples["many", 1]
        yield f"| 1 API, creates/s | {one.rate:,.0f} | ≥ 1,500 |"
        yield f"| 1 API, 99 % ms | {one.p99:.0f} | < 60 |"
        yield f"| statements a create, round trips a batch | {one.statements:.2f}, {one.round_trips:.1f} | ≤ 1, ≤ 4 |"


def main() -> None:
    """Measure, say the tables, and keep the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--servers", type=int, default=6_000)
    parser.add_argument("--apis", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=list(SCENARIOS), default=list(SCENARIOS))
    options = parser.parse_args()
    samples: dict[tuple[str, int], Sample] = {}
    lines = [HEAD]
    print(HEAD, flush=True)
    for name in options.only:
        numbers = {"standby": options.apis[:1], "apart": options.apis[1:]}.get(name, options.apis)
        rounds = [[_run(name, apis, options.servers) for apis in numbers] for _ in range(options.rounds)]
        for apis, runs in zip(numbers, zip(*rounds, strict=True), strict=True):
            samples[name, apis] = sorted(runs, key=lambda run: run.rate)[len(runs) // 2]
            lines.append(samples[name, apis].row(SCENARIOS[name].name))
            print(lines[-1], flush=True)
    for line in _against_bars(samples):
        lines.append(line)
        print(line, flush=True)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    if options.only == list(SCENARIOS) and options.apis == [1, 2, 4]:
        head = f"# Processes\n\n{__doc__}\n{machine}; load {os.getloadavg()[0]:.1f} at the end."
        FIGURES.write_text("\n".join([head, "", *lines]) + "\n")


if __name__ == "__main__":
    main()
