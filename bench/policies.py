"""The whole chain of policies on clusters of up to 10,000 nodes and 50 zones, from a cold database and from memory.

    python -m bench.policies [--figures FILE]

"Cold" is what an engine does before it can act: read the cluster, its policies, its bindings and all its nodes from
PostgreSQL, ask the embedded cloud for its zones, and ask every policy. Senlin's figures were measured on its last code
(ec5fae99) with SQLite in the same way and are CPU time, as ours; its loading alone takes 0.46 ms a node.
"""

import argparse
import asyncio
import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from roost import config
from roost.cli import bootstrap
from roost.clouds.embedded import EmbeddedCloud, EmbeddedClouds
from roost.clusters import bindings, plugins, state
from roost.clusters.policies.base import BEFORE, ActionView
from roost.clusters.state import Binding
from roost.clusters.states import ActionName
from roost.compute.scheduling.scheduler import Scheduler
from roost.config import Settings
from roost.store import schema
from roost.store.database import Database
from roost.store.embedded import EmbeddedPostgres
from roost.store.tables import clusters as tables

SIZES = (1_000, 2_500, 5_000, 10_000)
ZONES = 50
COUNT = 100
ROUNDS = 9
CHAINS = {3: "zone, affinity, deletion", 6: "scaling, region, zone, affinity, deletion"}
"""How many of the policies, and which these are."""
FIGURES = Path("bench/figures/policies.md")
SENLIN_COLD_MS: dict[str, int] = {ActionName.CLUSTER_SCALE_OUT: 4_620 + 2_253, ActionName.CLUSTER_SCALE_IN: 4_620 + 41}
"""CPU of its zone and affinity checks, and of its zone check and victim selection, for 100 of 10,000 nodes."""
SENLIN_VICTIMS_MS = {"RANDOM": 63.0, "OLDEST_FIRST": 61.0, "YOUNGEST_FIRST": 58.0, "OLDEST_PROFILE_FIRST": 59.0}
"""Of 10,000 nodes in memory, two from each of 50 zones."""

Policies = list[tuple[str, str, dict[str, Any], dict[str, Any]]]


def policies() -> Policies:
    """The chain: type, version, properties and what the binding keeps."""
    group = {"AffinityPolicy": {"version": 1.0, "data": {"servergroup_id": "group", "inherited_group": True}}}
    zones = [{"name": f"zone{at}", "weight": 100 + at} for at in range(1, ZONES + 1)]
    return [
        ("zone_placement", "1.0", {"zones": zones}, {}),
        ("affinity", "1.0", {}, group),
        ("deletion", "1.0", {"criteria": "OLDEST_FIRST"}, {}),
        ("region_placement", "1.0", {"regions": [{"name": "RegionOne"}]}, {}),
        ("scaling", "1.0", {"event": ActionName.CLUSTER_SCALE_OUT, "adjustment": {"number": COUNT}}, {}),
        ("scaling", "1.0", {"event": ActionName.CLUSTER_SCALE_IN, "adjustment": {"number": COUNT}}, {}),
    ]


@dataclass(frozen=True, slots=True)
class Bench:
    """A database with clusters in it."""

    settings: Settings
    database: Database
    plugins: plugins.Plugins
    cloud: EmbeddedCloud

    async def fill(self, size: int, count: int) -> str:
        """A cluster of that many nodes under the first so many policies; its id."""
        cluster_id, now = f"cluster-{size}-{count}", datetime.now(UTC)
        owner = {"user_id": self.cloud.user_id, "project_id": self.cloud.project_id}
        dice = random.Random(size)
        rows = [
            {
                "id": f"{cluster_id}-{at}",
                "name": f"node-{at}",
                "profile_id": f"profile-{cluster_id}",
                "cluster_id": cluster_id,
                "physical_id": f"server-{at}",
                "index": at,
                "status": "ACTIVE",
                "data": {"placement": {"zone": f"zone{dice.randint(1, ZONES)}", "region_name": "RegionOne"}},
                "created_at": now - timedelta(seconds=dice.random() * 1e6),
                **owner,
            }
            for at in range(size)
        ]
        spec = {"type": "os.nova.server", "version": "1.0", "properties": {"flavor": "1"}}
        profile = {"id": f"profile-{cluster_id}", "name": "p", "type": "os.nova.server-1.0", "spec": spec, **owner}
        cluster = {"name": "c", "profile_id": profile["id"], "desired_capacity": size, "timeout": 60}
        async with self.database.begin() as connection:
            await connection.execute(tables.profiles.insert().values(profile))
            await connection.execute(
                tables.clusters.insert().values(id=cluster_id, status="ACTIVE", **cluster, **owner)
            )
            await connection.execute(tables.nodes.insert(), rows)
            for at, (kind, version, properties, kept) in enumerate(policies()[:count]):
                name = f"senlin.policy.{kind}"
                given = {"type": name, "version": version, "properties": properties}
                policy = {"id": f"{cluster_id}-{at}", "name": kind, "type": f"{name}-{version}", "spec": given, **owner}
                await connection.execute(tables.policies.insert().values(policy))
                bound = {"cluster_id": cluster_id, "policy_id": policy["id"], "enabled": True, "data": kept}
                await connection.execute(tables.cluster_policies.insert().values(id=policy["id"], priority=0, **bound))
        return cluster_id

    async def load(self, cluster_id: str, action: str) -> tuple[ActionView, list[bindings.Bound]]:
        """All that an engine reads before it asks."""
        async with self.database.begin() as connection:
            row = (await state.clusters_by_id(connection, [cluster_id]))[cluster_id]
            bound = bindings.chain(await state.bindings(connection, cluster_id), self.plugins.restore_policy)
            members = await state.members(connection, cluster_id)
            profiles = await state.profiles_by_id(connection, [row.profile_id])
        view = ActionView(
            action=action,
            cluster=state.cluster_view(row, members, profiles),
            cloud=self.cloud,
            now=datetime.now(UTC),
            id="bench",
            inputs={"count": COUNT},
            max_nodes=100_000,
        )
        return view, bound

    async def cold(self, cluster_id: str, action: str) -> None:
        """Read everything, and ask."""
        view, bound = await self.load(cluster_id, action)
        said = await bindings.consult(bound, BEFORE, view)
        assert said.refusal is None, said.refusal


async def measure(act: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """CPU and wall milliseconds of one call: the median of several rounds after the first."""
    await act()
    cpu, wall = [], []
    for _ in range(ROUNDS):
        started, ticked = time.process_time(), time.perf_counter()
        await act()
        cpu.append(time.process_time() - started)
        wall.append(time.perf_counter() - ticked)
    return statistics.median(cpu) * 1e3, statistics.median(wall) * 1e3


def prepare(folder: Path) -> tuple[EmbeddedPostgres, Settings]:
    """A PostgreSQL of its own, with hosts in fifty zones."""
    server = EmbeddedPostgres(folder / "postgres")
    server.start()
    schema.upgrade(server.url)
    topology = folder / "topology.yaml"
    topology.write_text(f"generate: {{zones: {ZONES}, racks_per_zone: 1, hosts_per_rack: 2}}\n")
    settings = config.with_database(config.load(), server.url)
    bootstrap.fill(settings, {user.name: "x" for user in bootstrap.USERS}, str(topology))
    return server, settings


async def chain_section(bench: Bench) -> tuple[list[str], list[str]]:
    lines = [
        "| nodes | policies | request for 100 | CPU, ms | wall, ms | us of CPU a node |",
        "|---|---|---|---|---|---|",
    ]
    costs: dict[tuple[int, int, str], float] = {}
    for size in SIZES:
        for chosen, named in CHAINS.items():
            cluster_id = await bench.fill(size, chosen)
            for action in (ActionName.CLUSTER_SCALE_OUT, ActionName.CLUSTER_SCALE_IN):

                async def ask(cluster_id: str = cluster_id, action: str = action) -> None:
                    await bench.cold(cluster_id, action)

                cpu, wall = await measure(ask)
                costs[size, chosen, action] = cpu
                lines.append(f"| {size:,} | {named} | {action} | {cpu:.1f} | {wall:.1f} | {cpu / size * 1e3:.1f} |")
    return lines, [bar for action in SENLIN_COLD_MS for bar in bars_of(costs, action)]


def bars_of(costs: dict[tuple[int, int, str], float], action: str) -> list[str]:
    """The bars of the three policies that Senlin's figures are for."""
    least, most, chosen = SIZES[0], SIZES[-1], min(CHAINS)
    ours, theirs = costs[most, chosen, action], SENLIN_COLD_MS[action]
    growth = (ours / most) / (costs[least, chosen, action] / least)
    return [
        f"| {action}, 100 of 10,000 nodes, zone + affinity + deletion, cold, CPU | >= 100x Senlin's {theirs:,} ms "
        f"| {ours:.1f} ms, {theirs / ours:.0f}x | {'met' if theirs / ours >= 100 else '**missed**'} |",
        f"| {action}, cost a node from 1,000 to 10,000 nodes | flat (< 1.5x) | {growth:.2f}x "
        f"| {'met' if growth < 1.5 else '**missed**'} |",
    ]


async def memory_section(bench: Bench) -> list[str]:
    """The decisions alone, on a cluster that has been read."""
    lines = ["| decision, 10,000 nodes in memory, 50 zones | CPU, ms | Senlin, ms |", "|---|---|---|"]
    view, bound = await bench.load(f"cluster-{SIZES[-1]}-{max(CHAINS)}", ActionName.CLUSTER_SCALE_IN)
    for criteria, theirs in SENLIN_VICTIMS_MS.items():
        spec = {"type": "senlin.policy.deletion", "version": "1.0", "properties": {"criteria": criteria}}
        policy = bench.plugins.policy("senlin.policy.deletion-1.0")("d", spec, id="d")
        own = bindings.Bound(policy, Binding("d", policy.row, True, 400, {}, None, datetime.now(UTC)))
        plan = {f"zone{at}": 2 for at in range(1, ZONES + 1)}

        async def choose(own: bindings.Bound = own, plan: dict[str, int] = plan) -> None:
            view.data = {"deletion": {"count": COUNT, "zones": plan}}
            await bindings.consult([own], BEFORE, view)
            assert len(view.data["deletion"]["candidates"]) == COUNT

        cpu, _ = await measure(choose)
        lines.append(f"| victims, two from each zone, {criteria} | {cpu:.1f} | {theirs:.0f} |")
    zone = next(one for one in bound if one.policy.TYPE == "senlin.policy.zone_placement")

    async def plan_zones() -> None:
        view.data = {}
        await bindings.consult([zone], BEFORE, view)

    cpu, _ = await measure(plan_zones)
    lines.append(f"| zone plan, with the zones asked of the embedded cloud | {cpu:.1f} | 2.0 |")
    return lines


async def run(settings: Settings) -> str:
    """All sections, as one page."""
    database = Database(config.database_url(settings))
    cloud = EmbeddedClouds(database, settings, Scheduler(database, settings)).of("demo", "demo")
    bench = Bench(settings, database, plugins.load(settings), cloud)
    try:
        lines, bars = await chain_section(bench)
        memory = await memory_section(bench)
    finally:
        await database.close()
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    return "\n".join(
        [
            "# Policies",
            "",
            f"Measured on {machine}; load {os.getloadavg()[0]:.1f}.",
            "",
            "| what | bar | measured | |",
            "|---|---|---|---|",
            *bars,
            "",
            *lines,
            "",
            *memory,
            "",
        ]
    )


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description="The chain of policies, from a cold database and from memory.")
    parser.add_argument("--figures", type=Path, default=FIGURES, metavar="FILE")
    options, _ = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        server, settings = prepare(Path(folder))
        try:
            page = asyncio.run(run(settings))
        finally:
            server.stop()
    print(page)
    options.figures.parent.mkdir(parents=True, exist_ok=True)
    options.figures.write_text(page)


if __name__ == "__main__":
    main()
