"""The audit of everything: what it finds, what it says, and that it stays quick."""

import asyncio
import os
import sys
import time

import prometheus_client
import pytest
import sqlalchemy as sa

from roost.compute.answers import audit
from roost.compute.answers.violations import Violations
from roost.compute.groups import groups
from roost.compute.groups.groups import GroupPolicy
from roost.compute.inventory.live_fleet import LiveFleet
from roost.config import Settings
from roost.placement.rules import Rule
from roost.store.database import Database
from tests.compute.members import put_server


async def make_group(database: Database, settings: Settings, *policies: str) -> str:
    async with database.begin() as connection:
        group = await groups.create(
            connection,
            settings,
            name="g",
            policies=[GroupPolicy(Rule.parse(text)) for text in policies],
            project_id="tenant",
            user_id="somebody",
        )
    return group.id


async def find(database: Database) -> list[tuple[str, str]]:
    async with database.begin() as connection:
        return [(finding.kind, finding.message) for finding in await audit.audit_all(connection)]


async def run(database: Database, statement: str) -> None:
    async with database.begin() as connection:
        await connection.execute(sa.text(statement))


async def test_where_every_rule_holds_nothing_is_found(database: Database, settings: Settings) -> None:
    group = await make_group(database, settings, "anti-affinity:rack", "affinity:availability_zone")
    for host in ("zone1-rack1-host1", "zone1-rack2-host1", None):
        await put_server(database, "tenant", host=host, group=group)
    assert await find(database) == []


async def test_a_broken_rule_is_found_with_the_members_that_break_it(database: Database, settings: Settings) -> None:
    group = await make_group(database, settings, "anti-affinity:rack")
    members = [await put_server(database, "tenant", host=f"zone1-rack1-host{number}", group=group) for number in (1, 2)]
    ((kind, message),) = await find(database)
    assert kind == "rule_broken"
    assert message.startswith(f"server group {group}: 2 members are in one rack, 1 more than 'anti-affinity:rack'")
    assert all(member in message for member in members)


async def test_a_host_in_two_aggregates_of_a_scope_is_found(database: Database) -> None:
    await run(database, "DROP INDEX uq_aggregate_hosts_host_id_scope_id")
    await run(database, "INSERT INTO aggregate_hosts (aggregate_id, host_id, scope_id) VALUES (6, 1, 1)")
    said = "host zone1-rack1-host1 is in 2 aggregates of scope rack: 4, 6"
    assert await find(database) == [("host_twice_in_scope", said)]


async def test_a_member_that_no_longer_exists_is_found(database: Database, settings: Settings) -> None:
    group = await make_group(database, settings, "affinity")
    server = await put_server(database, "tenant", group=group)
    await run(database, f"UPDATE servers SET vm_state = 'deleted' WHERE id = '{server}'")
    assert await find(database) == [("member_lost", f"server {server} of server group {group} no longer exists")]


async def test_the_periodic_audit_counts_and_logs(
    database: Database, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    group = await make_group(database, settings, "anti-affinity")
    for _ in range(2):
        await put_server(database, "tenant", host="zone1-rack1-host1", group=group)
    await audit.look(database, settings, Violations(LiveFleet()))
    logged = [record for record in caplog.records if record.name == "roost.compute.answers.audit"]
    assert f"server group {group}" in logged[0].getMessage()
    counted = {
        kind: prometheus_client.REGISTRY.get_sample_value("roost_audit_findings", {"kind": kind})
        for kind in audit.FindingKind
    }
    assert counted == {"host_twice_in_scope": 0, "rule_broken": 1, "member_lost": 0}


async def test_the_command_prints_what_it_finds_and_says_so_in_its_status(
    database: Database, settings: Settings
) -> None:
    async def audited() -> tuple[int | None, str]:
        command = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "roost", "audit"),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "ROOST_DATABASE_URL": str(settings.database_url)},
        )
        printed, _ = await command.communicate()
        return command.returncode, printed.decode()

    assert await audited() == (0, "Nothing found: every rule holds.\n")
    group = await make_group(database, settings, "anti-affinity")
    for _ in range(2):
        await put_server(database, "tenant", host="zone1-rack1-host1", group=group)
    status, printed = await audited()
    assert status == 1
    assert printed.startswith(f"rule_broken: server group {group}: 2 members are on one host")


MANY = (
    "INSERT INTO server_groups (name, project_id, user_id) SELECT 'g', 'p', 'u' FROM generate_series(1, 1000)",
    "INSERT INTO server_group_policies (group_id, position, name, builtin_scope) "
    "SELECT id, 0, 'anti-affinity', 'host' FROM server_groups",
    "INSERT INTO servers "
    "(id, project_id, user_id, name, hostname, flavor, reservation_id, vm_state, group_id, host_id) "
    "SELECT gen_random_uuid(), 'p', 'u', 's', 's', '{}', 'r', 'active', server_groups.id, hosts.id "
    "FROM server_groups, hosts WHERE hosts.id <= 30",
)


async def test_thirty_thousand_servers_are_audited_in_seconds_and_few_queries(database: Database) -> None:
    for statement in MANY:
        await run(database, statement)
    statements: list[str] = []
    sa.event.listen(database._engine.sync_engine, "before_cursor_execute", lambda *event: statements.append(event[2]))
    started = time.perf_counter()
    assert await find(database) == []
    assert time.perf_counter() - started < 10
    assert len(statements) <= 11
