"""Answers: what an explanation adds to a create, how long the audit of everything and a repair plan take.

5,000 hosts in 125 racks; 30,000 servers in 1,000 groups of 30. Everything on this machine. The first and the second go
to PostgreSQL; the third is the planner alone, since that is where its time goes.
"""

import asyncio
import json
import random
import tempfile
import time
import uuid
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bench.servers import TOPOLOGY
from roost import config
from roost.api.app import App, make_services
from roost.api.auth import RoostAuthenticator
from roost.cli import bootstrap
from roost.compute.answers.violations import Violations
from roost.compute.inventory.live_fleet import LiveFleet
from roost.compute.scheduling import records
from roost.config import Settings
from roost.identity import tokens
from roost.placement.decision import Decision
from roost.placement.fleet import Fleet, Resources
from roost.placement.record import Record
from roost.placement.repair import RepairMember, repair
from roost.placement.rules import Rule
from roost.store import schema
from roost.store.database import Database
from roost.store.embedded import EmbeddedPostgres

FIGURES = Path("bench/figures/answers.md")
GROUPS, MEMBERS, HOSTS = 1_000, 30, 5_000
CREATES, TOGETHER = 1_600, 32
SMALL = Resources(1, 512, 1)


@contextmanager
def database() -> Iterator[Settings]:
    """A database with 5,000 hosts."""
    with tempfile.TemporaryDirectory(prefix="roost-bench-", ignore_cleanup_errors=True) as folder:
        topology = Path(folder) / "topology.yaml"
        topology.write_text(TOPOLOGY)
        postgres = EmbeddedPostgres(Path(folder) / "data")
        postgres.start()
        try:
            schema.upgrade(postgres.url)
            quotas: dict[str, Any] = {
                f"quota__{name}": -1 for name in ("instances", "cores", "ram", "server_group_members")
            }
            settings = config.with_database(config.load(**quotas), postgres.url)
            bootstrap.fill(settings, {user.name: "bench" for user in bootstrap.USERS}, str(topology))
            yield settings
        finally:
            postgres.stop()


async def fill(connection: AsyncConnection) -> None:
    """1,000 groups that want different hosts, of 30 members each, somewhere; about a third are in violation."""
    hosts = list(await connection.scalars(sa.text("SELECT id FROM hosts")))
    rows = []
    for _ in range(GROUPS):
        group = str(uuid.uuid4())
        values = {"id": group}
        await connection.execute(
            sa.text("INSERT INTO server_groups (id, name, project_id, user_id) VALUES (:id, 'g', 'p', 'u')"), values
        )
        await connection.execute(
            sa.text(
                "INSERT INTO server_group_policies (group_id, position, name, builtin_scope) "
                "VALUES (:id, 0, 'anti-affinity', 'host')"
            ),
            values,
        )
        places = random.sample(hosts, MEMBERS)
        if random.random() < 1 / 3:
            places[1] = places[0]
        rows += [{"id": str(uuid.uuid4()), "group_id": group, "host_id": place} for place in places]
    await connection.execute(
        sa.text(
            "INSERT INTO servers (id, project_id, user_id, name, hostname, flavor, reservation_id, vm_state, group_id, "
            "host_id) SELECT id, 'p', 'u', 's', 's', '{}', 'r', 'active', group_id, host_id FROM "
            "jsonb_to_recordset(CAST(:rows AS jsonb)) AS r(id uuid, group_id uuid, host_id int)"
        ),
        {"rows": json.dumps(rows)},
    )


async def measure_audit(settings: Settings) -> tuple[float, int]:
    """Seconds for the audit of all groups, the fleet being read first; and what it found."""
    database = Database(settings.database_url or "")
    async with database.begin() as connection:
        await fill(connection)
    best, found = float("inf"), 0
    for _ in range(3):
        started = time.perf_counter()
        async with database.begin() as connection:
            found = len(await Violations(LiveFleet()).now(connection))
        best = min(best, time.perf_counter() - started)
    await database.close()
    return best, found


async def measure_explanation(settings: Settings) -> tuple[float, float]:
    """CPU milliseconds of an API process for a create, where 32 share a transaction and each is at its cheapest; and
    for what is written down of the decision."""
    database = Database(settings.database_url or "")
    app = App(make_services(settings, database), RoostAuthenticator(database, 60))
    spent = 0.0
    recorded = records.records

    def timed(decision: Decision, live: LiveFleet, servers: int) -> list[Record]:
        nonlocal spent
        started = time.process_time()
        made = recorded(decision, live, servers)
        json.dumps(made)
        spent += time.process_time() - started
        return made

    group, token = await _group(database), await _token(database)
    await _create(app, token, group)
    records.records = timed
    started = time.process_time()
    for _ in range(CREATES // TOGETHER):
        await asyncio.gather(*(_create(app, token, group) for _ in range(TOGETHER)))
    whole = time.process_time() - started
    records.records = recorded
    await database.close()
    return 1000 * whole / CREATES, 1000 * spent / CREATES


async def _create(app: App, token: str, group: str) -> None:
    """One POST /servers, handed to the application without a client that would cost more than it."""
    server = {"name": "s", "flavorRef": "1", "networks": "none", "block_device_mapping_v2": [{"boot_index": 0}]}
    body = json.dumps({"server": server, "os:scheduler_hints": {"group": group}}).encode()
    headers = {
        "host": "bench",
        "content-type": "application/json",
        "content-length": str(len(body)),
        "x-auth-token": token,
        "openstack-api-version": "compute 2.90",
    }
    scope = {
        "type": "http",
        "method": "POST",
        "scheme": "http",
        "path": "/compute/v2.1/servers",
        "raw_path": b"/compute/v2.1/servers",
        "query_string": b"",
        "headers": [(key.encode(), value.encode()) for key, value in headers.items()],
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start" and message["status"] != 202:
            raise AssertionError(f"the create was answered with {message['status']}")

    await app(scope, receive, send)


async def _token(database: Database) -> str:
    query = "SELECT u.id, p.id FROM users u, projects p WHERE u.name = 'demo' AND p.name = 'demo'"
    async with database.begin() as connection:
        user_id, project_id = (await connection.execute(sa.text(query))).one()
        return await tokens.issue(connection, user_id, project_id, ("password",), tokens.expiry(3600))


async def _group(database: Database) -> str:
    group = str(uuid.uuid4())
    async with database.begin() as connection:
        await connection.execute(
            sa.text(
                "INSERT INTO server_groups (id, name, project_id, user_id) "
                "SELECT :id, 'b', id, 'b' FROM projects WHERE name = 'demo'"
            ),
            {"id": group},
        )
        for position, name in enumerate(("soft-anti-affinity", "soft-affinity")):
            scope = "availability_zone" if position else "host"
            await connection.execute(
                sa.text(
                    "INSERT INTO server_group_policies (group_id, position, name, builtin_scope) "
                    "VALUES (:id, :position, :name, :scope)"
                ),
                {"id": group, "position": position, "name": name, "scope": scope},
            )
    return group


def measure_repair() -> tuple[float, int, bool]:
    """Seconds for a plan that mends 1,000 groups; its moves, and whether fewer cannot do."""
    fleet, dice = Fleet(), random.Random(1)
    for number in range(HOSTS):
        rack = f"rack-{number // 40}"
        fleet.add_host(f"h{number}", Resources(64, 262_144, 2_000), aggregates={"rack": rack})
    rules = {
        f"g{number}": [Rule.parse("anti-affinity"), Rule.parse("soft-anti-affinity:rack")] for number in range(GROUPS)
    }
    servers = []
    for number in range(GROUPS):
        broken = number % 3 == 0
        hosts = dice.choices(range(HOSTS), k=MEMBERS) if broken else dice.sample(range(HOSTS), MEMBERS)
        if broken:
            hosts[1] = hosts[0]
        servers += [RepairMember(f"s{number}.{at}", host, SMALL, f"g{number}") for at, host in enumerate(hosts)]
    for server in servers:
        fleet.claim(server.host, server.resources)
    started = time.perf_counter()
    found = repair(fleet, rules, servers)
    return time.perf_counter() - started, len(found.moves), found.fewest


def main() -> None:
    """Measure, print a table, and keep it."""
    seconds, moves, fewest = measure_repair()
    with database() as settings:
        create, explanation = asyncio.run(measure_explanation(settings))
        audit, broken = asyncio.run(measure_audit(settings))
    share = 100 * explanation / (create - explanation)
    rows = [
        ("explain adds to a create", "< 10 %", f"{share:.1f} % ({explanation:.2f} of {create:.2f} ms CPU)", share < 10),
        ("audit of 30,000 servers in 1,000 groups", "< 2 s", f"{audit:.2f} s, {broken} violations", audit < 2),
        (
            "repair plan, 5,000 hosts and 30,000 servers",
            "< 10 s",
            f"{seconds:.2f} s, {moves} moves{', fewer cannot' if fewest else ''}",
            seconds < 10,
        ),
    ]
    lines = ["| what | bar | measured | |", "|---|---|---|---|"]
    lines += [
        f"| {what} | {bar} | {measured} | {'met' if met else '**missed**'} |" for what, bar, measured, met in rows
    ]
    text = "\n".join(lines)
    print(text)
    FIGURES.write_text(f"# Answers\n\n{__doc__ or ''}\n{text}\n")


if __name__ == "__main__":
    main()
