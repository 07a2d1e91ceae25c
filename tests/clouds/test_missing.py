"""What Nova does not list is not deleted at once: groups keep their rules, and hosts their servers."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import sqlalchemy as sa

from roost import config
from roost.compute.fronting import mirror
from roost.compute.groups import notifications
from roost.config import Settings
from roost.errors import Conflict
from roost.store.tables.compute import hosts
from roost.store.tables.servers import outbox, server_groups, servers
from tests.clouds.conftest import Cloud, Person, through
from tests.clouds.fault_proxy import FaultProxy
from tests.conftest import Served

SCOPED = ("anti-affinity:rack", "soft-affinity:switch")


@pytest.fixture
async def proxy(cloud: Cloud, served: Served) -> AsyncIterator[FaultProxy]:
    """Between Roost and its Nova."""
    async with FaultProxy(served.url).running() as proxy:
        nova, cloud.front.nova = cloud.front.nova, through(proxy, served)
        yield proxy
        cloud.front.nova.close()
        cloud.front.nova = nova


async def scopes_of(person: Person, group: str) -> list[str]:
    """The scopes of a group's policies; none if it is not there."""
    answer = await person.ask("GET", f"/os-server-groups/{group}")
    return [policy["scope"] for policy in answer.json()["server_group"]["policies"]] if answer.is_success else []


def announcing(cloud: Cloud) -> Settings:
    loaded = config.load(clusters__cloud="openstack", notifications__driver="messagingv2")
    cloud.front.settings = config.with_database(loaded, cloud.front.settings.database_url or "")
    return cloud.front.settings


async def announced(cloud: Cloud) -> list[str]:
    async with cloud.front.database.begin() as connection:
        return list(await connection.scalars(sa.select(outbox.c.event_type).order_by(outbox.c.id)))


async def test_short_pages_are_not_taken_for_the_last(cloud: Cloud, proxy: FaultProxy) -> None:
    """Nova's max_limit may be lower than what Roost asks for."""
    proxy.max_limit = 2
    groups = [await cloud.tenant.group(*SCOPED) for _ in range(5)]
    members = [await cloud.tenant.boot(group) for group in groups[:3]]
    await cloud.front.follow()
    assert [await scopes_of(cloud.tenant, group) for group in groups] == [["rack", "switch"]] * 5
    assert len(await cloud.front.nova.hosts()) == 48
    found, _ = await cloud.front.nova.servers(None)
    assert set(members) <= {server.id for server in found}


async def test_a_group_that_nova_lost_is_hidden_and_has_its_rules_when_it_is_back(
    cloud: Cloud, proxy: FaultProxy
) -> None:
    announcing(cloud)
    group = await cloud.tenant.group(*SCOPED)
    server = await cloud.tenant.boot(group)
    await cloud.host(server)
    await cloud.front.follow()
    proxy.fail("GET", r"/os-server-groups\?", 200, 1, body={"server_groups": []})
    proxy.fail("GET", f"/os-server-groups/{group}$", 404, 1, body={"itemNotFound": {"message": "no", "code": 404}})
    await cloud.front.follow()
    assert (await cloud.tenant.ask("GET", f"/os-server-groups/{group}")).status_code == 404
    listed = await cloud.tenant.ask("GET", "/os-server-groups")
    assert listed.json()["server_groups"] == []
    async with cloud.front.database.begin() as connection:
        [missing] = await mirror.missing_groups(connection)
    assert missing.id == group
    assert notifications.MISSING in await announced(cloud)
    await cloud.front.follow()
    assert await scopes_of(cloud.tenant, group) == ["rack", "switch"]
    shown = (await cloud.tenant.ask("GET", f"/os-server-groups/{group}")).json()["server_group"]
    assert shown["members"] == [server]


async def test_a_group_that_only_the_list_leaves_out_stays(cloud: Cloud, proxy: FaultProxy) -> None:
    """Offsets shift when groups before it are deleted while the list is read."""
    group = await cloud.tenant.group(*SCOPED)
    proxy.fail("GET", r"/os-server-groups\?", 200, 1, body={"server_groups": []})
    await cloud.front.follow()
    assert await scopes_of(cloud.tenant, group) == ["rack", "switch"]


async def test_a_scheduler_that_asks_for_a_missing_group_brings_it_back(cloud: Cloud, proxy: FaultProxy) -> None:
    group = await cloud.tenant.group(*SCOPED)
    async with cloud.front.database.begin() as connection:
        await connection.execute(server_groups.update().values(missing_since=sa.func.now()))
    await cloud.front.adopt_group(group)
    assert await scopes_of(cloud.tenant, group) == ["rack", "switch"]


async def test_many_groups_that_vanish_at_once_are_not_believed(cloud: Cloud, proxy: FaultProxy) -> None:
    announcing(cloud)
    groups = [await cloud.tenant.group(*SCOPED) for _ in range(3)]
    async with cloud.front.database.begin() as connection:
        others = [{"name": f"g{number}", "project_id": "p", "user_id": "u"} for number in range(20)]
        await connection.execute(server_groups.insert(), others)
    empty: dict[str, Any] = {"server_groups": []}
    for _ in range(2):
        proxy.fail("GET", r"/os-server-groups\?", 200, 1, body=empty)
        with pytest.raises(mirror.Implausible, match="23 of the 23 server groups") as refused:
            await cloud.front.follow()
        await cloud.front._raise_alarm(refused.value)
    assert [await scopes_of(cloud.tenant, group) for group in groups] == [["rack", "switch"]] * 3
    assert (await announced(cloud)).count(notifications.MASS_MISSING) == 1


async def test_another_cloud_is_not_taken_for_this_one(cloud: Cloud, proxy: FaultProxy) -> None:
    group = await cloud.tenant.group(*SCOPED)
    server = await cloud.tenant.boot(group)
    await cloud.host(server)
    await cloud.front.follow()
    proxy.fail("GET", "/os-hypervisors/detail", 200, 1, body={"hypervisors": []})
    with pytest.raises(mirror.Implausible, match="another cloud or region"):
        await cloud.front.follow()
    async with cloud.front.database.begin() as connection:
        assert await connection.scalar(sa.select(sa.func.count()).select_from(hosts)) == 48


async def test_a_host_that_is_not_listed_keeps_its_servers(cloud: Cloud, proxy: FaultProxy) -> None:
    """A cell that does not answer hides its hosts, and rules still count what runs there."""
    group = await cloud.tenant.group("anti-affinity")
    server = await cloud.tenant.boot(group)
    home = await cloud.host(server)
    await cloud.front.follow()
    listed = await cloud.operator.ask("GET", "/os-hypervisors/detail", version="2.87", straight=True)
    others = [row for row in listed.json()["hypervisors"] if row["service"]["host"] not in (home, "zone3-rack4-host4")]
    proxy.fail("GET", "/os-hypervisors/detail.*limit=1000$", 200, 1, body={"hypervisors": others})
    proxy.fail("GET", "/os-hypervisors/detail.*marker", 200, 1, body={"hypervisors": []})
    await cloud.front.follow()
    async with cloud.front.database.begin() as connection:
        rows = {row.name: row for row in await connection.execute(sa.select(hosts))}
        place = await connection.scalar(sa.select(servers.c.host_id).where(servers.c.id == server))
    assert rows[home].forced_down
    assert place == rows[home].id
    gone = {"zone3-rack4-host4"} - {home}
    assert len(rows) == 48 - len(gone)
    await cloud.front.follow()
    async with cloud.front.database.begin() as connection:
        assert not await connection.scalar(sa.select(hosts.c.forced_down).where(hosts.c.name == home))


async def test_a_cell_that_does_not_answer_stops_nobody(cloud: Cloud, proxy: FaultProxy) -> None:
    """Nova lists what it knows of servers in such a cell, which is little."""
    group = await cloud.tenant.group("anti-affinity")
    server = await cloud.tenant.boot(group)
    home = await cloud.host(server)
    await cloud.front.follow()
    unknown = {"id": server, "status": "UNKNOWN", "tenant_id": "t", "created": "2026-01-01T00:00:00Z", "links": []}
    cloud.front._since = None
    proxy.fail("GET", r"/servers/detail\?.*limit=1000$", 200, 1, body={"servers": [unknown]})
    proxy.fail("GET", r"/servers/detail\?.*marker", 200, 1, body={"servers": []})
    proxy.fail("GET", f"/servers/{server}$", 200, 1, body={"server": unknown})
    other = await cloud.tenant.group(*SCOPED)
    await cloud.front.follow()
    audit = (await cloud.tenant.ask("GET", f"/os-server-groups/{group}/audit")).json()["server_group_policy_audit"]
    [placed] = audit["members"]
    assert (placed["instance_id"], bool(placed["placements"]["host"])) == (server, True), home
    assert await scopes_of(cloud.tenant, other) == ["rack", "switch"]


async def test_what_was_missing_too_long_is_deleted(cloud: Cloud) -> None:
    group, younger = await cloud.tenant.group(*SCOPED), await cloud.tenant.group(*SCOPED)
    for each in (group, younger):
        await cloud.tenant.ask("DELETE", f"/os-server-groups/{each}", version="2.64", straight=True)
    await cloud.front.follow()
    async with cloud.front.database.begin() as connection:
        long_ago = sa.func.now() - sa.func.make_interval(0, 0, 0, 8)
        await connection.execute(
            server_groups.update().where(server_groups.c.id == group).values(missing_since=long_ago)
        )
    await cloud.front.follow()
    async with cloud.front.database.begin() as connection:
        assert await mirror.all_groups(connection) == {younger}


async def test_an_operator_forgets_what_is_missing_and_nothing_else(cloud: Cloud) -> None:
    gone, there = await cloud.tenant.group(*SCOPED), await cloud.tenant.group(*SCOPED)
    await cloud.tenant.ask("DELETE", f"/os-server-groups/{gone}", version="2.64", straight=True)
    with pytest.raises(Conflict, match="delete it there"):
        await cloud.front.forget([there])
    assert await cloud.front.forget(None) == ([gone], [])
    async with cloud.front.database.begin() as connection:
        assert await mirror.all_groups(connection) == {there}
