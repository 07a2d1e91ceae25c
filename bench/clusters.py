"""Clusters of up to 5,000 nodes made and deleted on the embedded cloud, and 200 clusters scaling at once.

    python -m bench.clusters [--figures FILE]

Everything is real but the hypervisors: the API, the queue, the policies' chain, scheduling on 200 hosts, and a commit
for every step. The peer is Senlin 16 on MariaDB with a cloud that does nothing at all, measured on a 2-core machine.
"""

import argparse
import asyncio
import os
import platform
import signal
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa
import yaml

from bench.processes import free_port
from roost import config, engine
from roost.cli import bootstrap
from roost.clusters import clusters, plugins
from roost.clusters.clusters import RequestContext
from roost.clusters.states import ActionName
from roost.config import Settings
from roost.identity.tokens import Caller
from roost.store import schema
from roost.store.database import Database
from roost.store.embedded import EmbeddedPostgres
from roost.store.tables.clusters import actions, profiles

SIZES = (10, 100, 1_000, 5_000)
ROUNDS = 15
CLUSTERS = 200
HISTORY = 100_000
FIGURES = Path("bench/figures/clusters.md")

SENLIN = "Senlin 16, measured on a 2-core machine"
SENLIN_NODES_PER_SECOND = 9.7
SENLIN_CPU_MS_PER_NODE = 58.7
SENLIN_STATEMENTS_PER_NODE = 37.6
SENLIN_TEN_NODES_SECONDS = 5.0
SENLIN_DELETE_SECONDS = {10: 4.1, 100: 11.1}
"""Of 20 and of 110 nodes: the nearest that were measured."""
SENLIN_NODE_ACTIONS_PER_SECOND = 18.7

CALLER = Caller("bench", "bench", "bench", "bench", ("member",))
TOPOLOGY = {"generate": {"zones": 5, "racks_per_zone": 4, "hosts_per_rack": 10, "racks_per_switch": 2}}
SPEC = {"type": "os.nova.server", "version": "1.0", "properties": {"flavor": "1", "image": "cirros-0.6.2-x86_64-disk"}}

statements = 0


def count_statements() -> None:
    """Count every statement that this process sends."""
    execute = psycopg.AsyncCursor.execute

    async def counted(self: Any, *args: Any, **more: Any) -> Any:
        global statements
        statements += 1
        return await execute(self, *args, **more)

    psycopg.AsyncCursor.execute = counted  # type: ignore[method-assign]


class Bench:
    """A service to be measured."""

    def __init__(self, settings: Settings, database: Database, profile_id: str) -> None:
        self.settings, self.database, self.profile_id = settings, database, profile_id
        self.number = 0

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[RequestContext]:
        async with self.database.begin() as connection:
            loaded = plugins.load(self.settings)
            yield RequestContext(connection, CALLER, self.settings.clusters, loaded, lambda rules: None)

    async def create(self, size: int) -> tuple[str, str]:
        """A cluster, and the action that makes it."""
        self.number += 1
        given = {"name": f"bench-{self.number}", "profile_id": self.profile_id, "desired_capacity": size}
        async with self.asking() as ask:
            row, action_id = await clusters.create(ask, given)
        return str(row.id), action_id

    async def scale_out(self, cluster_id: str, count: int) -> str:
        async with self.asking() as ask:
            return await clusters.scale(ask, cluster_id, ActionName.CLUSTER_SCALE_OUT, count)

    async def delete(self, cluster_id: str) -> str:
        async with self.asking() as ask:
            return await clusters.delete(ask, cluster_id, force=False)

    async def ended(self, *action_ids: str) -> None:
        """Wait until all of these have succeeded."""
        theirs = actions.c.id == sa.any_(sa.literal(list(action_ids), sa.ARRAY(sa.Text)))
        query = sa.select(actions.c.status, actions.c.status_reason).where(theirs, actions.c.status != "SUCCEEDED")
        while True:
            async with self.database.begin() as connection:
                rows = (await connection.execute(query)).all()
            failed = [row.status_reason for row in rows if row.status in ("FAILED", "CANCELLED")]
            assert not failed, failed[0]
            if not rows:
                return
            await asyncio.sleep(0.005 if len(action_ids) == 1 else 0.1)


async def grow_and_shrink(bench: Bench, lines: list[str]) -> dict[int, dict[str, float]]:
    """Clusters of every size, made and deleted by one engine in this process."""
    found: dict[int, dict[str, float]] = {}
    lines += [
        "| nodes | create s | nodes/s | CPU ms/node | SQL/node | delete s |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for size in SIZES:
        before, cpu, started = statements, time.process_time(), time.perf_counter()
        cluster_id, action_id = await bench.create(size)
        await bench.ended(action_id)
        wall, used, sent = time.perf_counter() - started, time.process_time() - cpu, statements - before
        started = time.perf_counter()
        await bench.ended(await bench.delete(cluster_id))
        gone = time.perf_counter() - started
        found[size] = {"rate": size / wall, "cpu": used * 1000 / size, "sql": sent / size, "wall": wall, "gone": gone}
        row = found[size]
        lines.append(
            f"| {size:,} | {wall:.2f} | {row['rate']:.0f} | {row['cpu']:.2f} | {row['sql']:.2f} | {gone:.2f} |"
        )
        print(lines[-1], flush=True)
    return found


async def ten_nodes(bench: Bench) -> tuple[float, float, float]:
    """Seconds of an action of 10 nodes: the least, the median, and what nine in ten stay under."""
    cluster_id, action_id = await bench.create(0)
    await bench.ended(action_id)
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        await bench.ended(await bench.scale_out(cluster_id, 10))
        times.append(time.perf_counter() - started)
    await bench.ended(await bench.delete(cluster_id))
    return min(times), statistics.median(times), statistics.quantiles(times, n=10)[-1]


@dataclass(frozen=True)
class Engine:
    """An engine in a separate process."""

    process: asyncio.subprocess.Process
    port: int

    def used(self) -> dict[str, float]:
        """What it has used so far."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        values = {name: value for name, _, value in (line.rpartition(" ") for line in lines)}
        return {
            "cpu": float(values["process_cpu_seconds_total"]) * 1000,
            "statements": float(values["roost_statements_total"]),
        }


async def many_clusters(bench: Bench, engines: Sequence[Engine]) -> dict[str, float]:
    """200 clusters scaling by five at once: actions a second; CPU and statements of the engines an action."""
    made = [await bench.create(0) for _ in range(CLUSTERS)]
    await bench.ended(*(action_id for _, action_id in made))
    before = [each.used() for each in engines]
    # The engines begin when all of it is asked for: what asking takes is not theirs.
    for each in engines:
        each.process.send_signal(signal.SIGSTOP)
    running = [await bench.scale_out(cluster_id, 5) for cluster_id, _ in made]
    started = time.perf_counter()
    for each in engines:
        each.process.send_signal(signal.SIGCONT)
    await bench.ended(*running)
    found = {"rate": CLUSTERS / (time.perf_counter() - started)}
    after = [each.used() for each in engines]
    for name in ("cpu", "statements"):
        found[name] = (sum(each[name] for each in after) - sum(each[name] for each in before)) / CLUSTERS
    return found


async def add_history(database: Database) -> None:
    """As many finished actions as a busy year leaves behind."""
    fill = sa.text(
        "INSERT INTO actions (id, name, action, target, cluster_id, lock, cause, timeout, status, user_id, project_id)"
        " SELECT gen_random_uuid(), 'old', 'CLUSTER_CHECK', md5((n % 500)::text), md5((n % 500)::text),"
        " md5((n % 500)::text), 'RPC Request', 60, 'SUCCEEDED', 'bench', 'bench' FROM generate_series(1, :count) AS n"
    )
    async with database.begin() as connection:
        await connection.execute(fill, {"count": HISTORY})


@asynccontextmanager
async def in_process(bench: Bench) -> AsyncIterator[None]:
    task = asyncio.create_task(engine.run(bench.database, bench.settings))
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def in_processes(settings_file: Path, url: str, count: int) -> AsyncIterator[list[Engine]]:
    command = [sys.executable, "-m", "roost", "engine", "--config", str(settings_file), "--listen"]
    environment = {**os.environ, "ROOST_DATABASE_URL": url}
    running = []
    for port in (free_port() for _ in range(count)):
        process = await asyncio.create_subprocess_exec(
            *command, f"127.0.0.1:{port}", env=environment, stderr=asyncio.subprocess.DEVNULL
        )
        running.append(Engine(process, port))
    await asyncio.sleep(3)
    yield running
    for each in running:
        each.process.terminate()
        await each.process.wait()


async def measure(url: str, folder: Path) -> list[str]:
    """All of it."""
    file = folder / "roost.conf"
    file.write_text(
        "[clusters]\nmax_nodes = 10000\nmax_clusters = 1000\n[quota]\ninstances = -1\ncores = -1\nram = -1\n"
    )
    settings = config.with_database(config.load(file), url)
    database = Database(url)
    async with database.begin() as connection:
        row = {"id": "bench", "name": "bench", "type": "os.nova.server-1.0", "spec": SPEC}
        await connection.execute(profiles.insert().values(**row, user_id="bench", project_id="bench"))
    bench = Bench(settings, database, "bench")
    lines: list[str] = []
    async with in_process(bench):
        await bench.ended((await bench.create(1))[1])
        sizes = await grow_and_shrink(bench, lines)
        least, median, most = await ten_nodes(bench)
    async with in_processes(file, url, 2) as engines:
        many = await many_clusters(bench, engines)
    await add_history(database)
    async with in_process(bench):
        await bench.ended((await bench.create(1))[1])
        later, _, _ = await ten_nodes(bench)
    await database.close()
    thousand = sizes[1_000]
    ratio = thousand["rate"] / SENLIN_NODES_PER_SECOND
    growth = sizes[5_000]["cpu"] / min(sizes[100]["cpu"], thousand["cpu"])
    bars = [
        ("1,000 nodes made, nodes/s", f"{thousand['rate']:.0f}", f"{SENLIN_NODES_PER_SECOND}", f"{ratio:.0f} x",
         ">= 50 x", ratio >= 50),
        ("the same, CPU ms a node", f"{thousand['cpu']:.2f}", f"{SENLIN_CPU_MS_PER_NODE}",
         f"{SENLIN_CPU_MS_PER_NODE / thousand['cpu']:.0f} x", ">= 50 x",
         thousand["cpu"] * 50 <= SENLIN_CPU_MS_PER_NODE),
        ("the same, SQL statements a node", f"{thousand['sql']:.2f}", f"{SENLIN_STATEMENTS_PER_NODE}",
         f"{SENLIN_STATEMENTS_PER_NODE / thousand['sql']:.0f} x", "< 2", thousand["sql"] < 2),
        ("an action of 10 nodes, median s", f"{median:.3f} (90 %: {most:.3f})", f"{SENLIN_TEN_NODES_SECONDS}",
         f"{SENLIN_TEN_NODES_SECONDS / median:.0f} x", "< 0.5 s", median < 0.5),
        ("deleting 100 nodes, s", f"{sizes[100]['gone']:.2f}", f"{SENLIN_DELETE_SECONDS[100]}",
         f"{SENLIN_DELETE_SECONDS[100] / sizes[100]['gone']:.0f} x", "", True),
        (f"{CLUSTERS} clusters scaling by 5 at once, 2 engines, actions/s", f"{many['rate']:.0f}",
         f"{SENLIN_NODE_ACTIONS_PER_SECOND} node actions/s",
         f"{many['rate'] * 5 / SENLIN_NODE_ACTIONS_PER_SECOND:.0f} x", ">= 200", many["rate"] >= 200),
        ("the same, the engines' CPU ms an action", f"{many['cpu']:.1f}", "", "", "<= 8", many["cpu"] <= 8),
        ("the same, statements an action", f"{many['statements']:.1f}", "", "", "<= 10", many["statements"] <= 10),
        ("CPU a node, 5,000 nodes over 100 or 1,000", f"{growth:.2f}", "", "", "<= 1.25", growth <= 1.25),
        (f"10 nodes beside {HISTORY:,} finished actions, least s", f"{later:.3f}", "", f"{later / least:.2f} of before",
         "<= 1.25", later / least <= 1.25),
    ]  # fmt: skip
    lines += ["", f"| what | Roost | {SENLIN} | ratio | bar | |", "| --- | --- | --- | --- | --- | --- |"]
    lines += [f"| {' | '.join(row[:5])} | {'met' if row[5] else 'MISSED'} |" for row in bars]
    return lines


def main() -> None:
    """Measure, print, and keep the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.clusters")
    parser.add_argument("--figures", type=Path, default=FIGURES)
    figures = parser.parse_known_args()[0].figures
    count_statements()
    with tempfile.TemporaryDirectory(prefix="roost-bench-") as name:
        folder = Path(name)
        topology = folder / "topology.yaml"
        topology.write_text(yaml.safe_dump(TOPOLOGY))
        postgres = EmbeddedPostgres(folder / "postgres")
        postgres.start()
        try:
            schema.upgrade(postgres.url)
            passwords = {user.name: "bench" for user in bootstrap.USERS}
            bootstrap.fill(config.with_database(config.load(), postgres.url), passwords, str(topology))
            lines = asyncio.run(measure(postgres.url, folder))
        finally:
            postgres.stop()
    machine = f"{platform.machine()}, {os.cpu_count()} cores"
    head = f"{machine}, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}"
    text = "\n".join(["# Clusters", "", head, "", *lines, ""])
    print(text)
    figures.parent.mkdir(parents=True, exist_ok=True)
    figures.write_text(text)


if __name__ == "__main__":
    main()
