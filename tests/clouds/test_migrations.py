"""Repairs in front of a Nova: what it is asked, how often, and what is made of its answers."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import sqlalchemy as sa

from roost.clouds.front import Front
from roost.clouds.migrations import NovaMover
from roost.clouds.nova import Nova
from roost.compute.moves import repair_steps
from roost.compute.scheduling.scheduler import Scheduler
from roost.store.tables.servers import servers
from tests.api.compute.test_repairs import mended
from tests.clouds.conftest import Cloud, Person, through
from tests.clouds.fault_proxy import Cut, FaultProxy
from tests.conftest import Served

ACTION = "/servers/[^/]+/action$"


@dataclass
class Broken:
    """A group of two, who may not be in one rack and are, in front of a Nova behind a proxy."""

    cloud: Cloud
    proxy: FaultProxy
    nova: Nova
    group: str
    servers: tuple[str, str]

    async def repair(self, *, person: Person | None = None, **asked: Any) -> Any:
        """Ask for a repair."""
        path = f"/os-server-groups/{self.group}/repairs"
        return await (person or self.cloud.operator).ask("POST", path, {"repair": asked})

    async def begin(self, **asked: Any) -> Any:
        """Ask for a repair, which begins."""
        answer = await self.repair(**asked)
        assert answer.status_code == 200, answer.text
        return answer.json()["repair"]

    async def show(self, repair: str) -> Any:
        """How far a repair has come."""
        answer = await self.cloud.operator.ask("GET", f"/os-server-groups/{self.group}/repairs/{repair}")
        return answer.json()["repair"]

    async def work(self) -> None:
        """What an engine does in a round; each time another one, which knows only what is written down."""
        front = Front(self.nova, self.cloud.front.database, self.cloud.front.settings)
        mover = NovaMover(front, Scheduler(front.database, front.settings))
        await repair_steps.advance_all(front.database, mover)

    async def ended(self, repair: str) -> Any:
        """A repair, once it has ended."""
        for _ in range(300):
            await self.work()
            shown = await self.show(repair)
            if shown["status"] not in ("running", "stopping"):
                return shown
            for server in self.servers:
                await self.cloud.host(server)
        raise AssertionError(shown)

    async def hosts(self) -> list[str]:
        """Where the two are."""
        return [await self.cloud.host(server) for server in self.servers]

    async def migrations(self) -> int:
        """How many live migrations the Nova has begun since the one that broke the group."""
        found = 0
        for server in self.servers:
            path = f"/os-migrations?instance_uuid={server}"
            answer = await self.cloud.operator.ask("GET", path, version="2.87", straight=True)
            found += len(answer.json()["migrations"])
        return found - 1


@pytest.fixture
async def broken(cloud: Cloud, served: Served) -> AsyncIterator[Broken]:
    group = await cloud.tenant.group("anti-affinity:rack")
    servers = (await cloud.tenant.boot(group), await cloud.tenant.boot(group))
    first, second = [await cloud.host(server) for server in servers]
    aggregates = (await cloud.operator.ask("GET", "/os-aggregates", version="2.87", straight=True)).json()["aggregates"]
    [rack] = [each for each in aggregates if each["metadata"].get("policy_scope") == "rack" and first in each["hosts"]]
    beside = next(host for host in rack["hosts"] if host not in (first, second))
    await cloud.move(servers[1], beside)
    await cloud.front.follow()
    async with FaultProxy(served.url).running() as proxy:
        nova = through(proxy, served)
        yield Broken(cloud, proxy, nova, group, servers)
        nova.close()


async def violations(broken: Broken) -> list[Any]:
    answer = await broken.cloud.tenant.ask("GET", f"/os-server-groups/{broken.group}/audit")
    return list(answer.json()["server_group_policy_audit"]["violations"])


async def test_a_repair_moves_servers_behind_to_where_it_said(broken: Broken) -> None:
    planned = await broken.repair(person=broken.cloud.tenant, dry_run=True)
    assert planned.json()["repair"]["sentence"] == "1 live migration would repair everything; fewer cannot."
    assert (await broken.repair(person=broken.cloud.tenant)).status_code == 403
    assert len(await violations(broken)) == 1
    begun = await broken.begin()
    assert begun["status"] == "running"
    assert (await broken.repair()).status_code == 409
    ended = await broken.ended(begun["id"])
    assert (ended["status"], ended["sentence"]) == ("done", "1 of 1 move done.")
    [move] = ended["moves"]
    assert await broken.cloud.host(move["server_id"]) == move["target"]["host"]
    assert await violations(broken) == [], "known as soon as the move has ended"


async def test_a_drain_disables_the_host_behind_and_moves_its_members(broken: Broken) -> None:
    operator = broken.cloud.operator
    host = await broken.cloud.host(broken.servers[0])
    answer = await operator.ask("POST", "/os-drains", {"drain": {"scope": "host", "identifier": host}})
    assert answer.status_code == 200, answer.text
    path = f"/os-services?host={host}"
    [service] = (await operator.ask("GET", path, version="2.87", straight=True)).json()["services"]
    assert (service["status"], service["disabled_reason"]) == ("disabled", "Being drained.")
    for _ in range(300):
        await broken.work()
        shown = (await operator.ask("GET", f"/os-drains/{answer.json()['drain']['id']}")).json()["drain"]
        if shown["status"] != "running":
            break
    assert shown["status"] == "done"
    assert await broken.cloud.host(broken.servers[0]) != host
    body = {"status": "enabled"}
    await operator.ask("PUT", f"/os-services/{service['id']}", body, version="2.87", straight=True)


async def test_a_plan_keeps_to_the_zones_that_servers_were_asked_for_in(broken: Broken) -> None:
    """Nova would refuse any other move, once it is asked."""
    cloud = broken.cloud
    zone = (await broken.hosts())[0].partition("-")[0]
    for server in broken.servers:
        pinned = {"server": {"pinned_availability_zone": zone}}
        answer = await cloud.operator.ask("PUT", f"/servers/{server}", pinned, version="2.104", straight=True)
        assert answer.status_code == 200, answer.text
    free = await cloud.tenant.boot(broken.group)
    await cloud.host(free)
    await cloud.front.follow()
    async with cloud.front.database.begin() as connection:
        found = {row.id: row.zone for row in await connection.execute(sa.select(servers.c.id, servers.c.zone))}
    assert {found[server] for server in broken.servers} == {zone}
    assert found[free] is None
    for _ in range(4):
        [move] = (await broken.repair(dry_run=True)).json()["repair"]["moves"]
        assert move["target"]["host"].startswith(f"{zone}-")


async def test_members_come_to_the_one_that_nova_keeps_on_its_host(broken: Broken) -> None:
    """Though it is one against two: Nova's own filter lets no member of its affinity groups leave their host, and it
    does not know of members that were added later."""
    cloud = broken.cloud
    group = await cloud.tenant.group("affinity")
    native, *added = [await cloud.tenant.boot(of) for of in (group, None, None)]
    host = await cloud.host(native)
    away = next(each.name for each in await cloud.front.nova.hosts() if each.name != host)
    for server in added:
        if await cloud.host(server) != away:
            await cloud.move(server, away)
        body = {"add_instance": {"instance_id": server}}
        answer = await cloud.tenant.ask("POST", f"/os-server-groups/{group}/action", body)
        assert answer.status_code == 200, answer.text
    await cloud.front.follow()
    answer = await cloud.operator.ask("POST", f"/os-server-groups/{group}/repairs", {"repair": {"dry_run": True}})
    moves = answer.json()["repair"]["moves"]
    assert {(move["server_id"], move["target"]["host"]) for move in moves} == {(server, host) for server in added}


async def test_an_older_nova_says_nothing_of_zones_and_is_followed(broken: Broken) -> None:
    older = {"version": {"id": "v2.1", "version": "2.95"}}
    broken.proxy.fail("GET", r"/v2\.1/$", 200, 9, body=older)
    asked = len(broken.proxy.heard)
    await Front(broken.nova, broken.cloud.front.database, broken.cloud.front.settings).follow()
    sent = {headers.get("openstack-api-version") for headers in broken.proxy.heard[asked:]} - {None}
    assert sent == {"compute 2.87"}


@pytest.mark.parametrize("fault", [503, 500, Cut.BEFORE, Cut.AFTER])
async def test_a_server_moves_once_whatever_happens_to_the_request(broken: Broken, fault: Cut | int) -> None:
    begun = await broken.begin()
    broken.proxy.fail("POST", ACTION, fault)
    await broken.work()
    await broken.work()
    assert (await broken.show(begun["id"]))["moves"][0]["state"] == "running"
    assert (await broken.ended(begun["id"]))["status"] == "done"
    assert await violations(broken) == []
    assert await broken.migrations() == 1


async def test_a_nova_that_does_not_answer_fails_no_move(broken: Broken) -> None:
    begun = await broken.begin()
    await broken.work()
    broken.proxy.fail("GET", "/servers/", 500)
    await broken.work()
    [move] = (await broken.show(begun["id"]))["moves"]
    assert (move["state"], move["reason"]) == ("running", "Nova answered 500; trying again.")
    assert (await broken.ended(begun["id"]))["moves"][0]["reason"] is None


async def test_a_move_is_over_when_the_migration_is(broken: Broken) -> None:
    begun = await broken.begin()
    await broken.work()
    await broken.work()
    assert await broken.cloud.host(begun["moves"][0]["server_id"]) == begun["moves"][0]["target"]["host"]
    cleaning_up = {"migrations": [{"status": "completed"}, {"status": "running"}]}
    broken.proxy.fail("GET", "/os-migrations", 200, body=cleaning_up)
    broken.proxy.fail("GET", "/os-migrations", 403, body={"forbidden": {"message": "Policy doesn't allow it."}})
    await broken.work()
    assert (await broken.show(begun["id"]))["status"] == "running"
    await broken.work()
    [move] = (await broken.show(begun["id"]))["moves"]
    assert (move["state"], move["reason"]) == ("running", "Policy doesn't allow it; trying again.")
    await broken.work()
    assert (await broken.show(begun["id"]))["status"] == "done"


async def test_an_engine_that_dies_before_or_after_it_asked_neither_loses_a_move_nor_doubles_it(
    broken: Broken,
) -> None:
    begun = await broken.begin()
    await broken.work()
    [move] = (await broken.show(begun["id"]))["moves"]
    assert move["state"] == "running"
    assert broken.proxy.count("POST", ACTION) == 0, "written down before it is asked"
    # As an engine that died before it wrote down that it has asked.
    await broken.nova.live_migrate(move["server_id"], begun["moves"][0]["target"]["host"])
    assert (await broken.ended(begun["id"]))["status"] == "done"
    assert broken.proxy.count("POST", ACTION) == await broken.migrations() == 1


async def test_what_nova_refuses_fails_in_its_own_words(broken: Broken) -> None:
    begun = await broken.begin()
    [move] = begun["moves"]
    path = f"/servers/{move['server_id']}/action"
    await broken.cloud.tenant.ask("POST", path, {"os-stop": None}, version="2.87", straight=True)
    await broken.cloud.host(move["server_id"])
    ended = await broken.ended(begun["id"])
    assert ended["status"] == "failed"
    assert "Cannot 'os-migrateLive' instance" in ended["moves"][0]["reason"]
    again = await broken.begin()
    gone = {"itemNotFound": {"code": 404, "message": "Instance could not be found."}}
    broken.proxy.fail("POST", ACTION, 404, body=gone)
    ended = await broken.ended(again["id"])
    assert (ended["status"], ended["moves"][0]["reason"]) == ("failed", "Instance could not be found.")


async def test_what_nova_gives_up_later_fails_with_what_it_says_of_it(broken: Broken) -> None:
    begun = await broken.begin()
    accepted = {"X-OpenStack-Request-Id": "req-1"}
    broken.proxy.fail("POST", ACTION, 202, headers=accepted)
    event = {"event": "conductor_live_migrate_instance", "result": "Error", "details": "No valid host was found."}
    broken.proxy.fail("GET", "/os-instance-actions/req-1$", 200, body={"instanceAction": {"events": [event]}})
    ended = await broken.ended(begun["id"])
    assert (ended["status"], ended["moves"][0]["reason"]) == ("failed", "No valid host was found.")
    assert broken.proxy.count("POST", ACTION) == 1


async def test_a_server_that_ends_in_error_fails_its_move_wherever_it_is(broken: Broken) -> None:
    begun = await broken.begin()
    await broken.work()
    await broken.work()
    assert broken.proxy.count("POST", ACTION) == 1
    path = f"/servers/{begun['moves'][0]['server_id']}/action"
    error = {"os-resetState": {"state": "error"}}
    assert (await broken.cloud.operator.ask("POST", path, error, version="2.87", straight=True)).status_code == 202
    await broken.work()
    ended = await broken.show(begun["id"])
    assert (ended["status"], ended["moves"][0]["reason"]) == ("failed", "the migration failed")


async def test_a_server_that_somebody_moved_meanwhile_is_left_alone(broken: Broken) -> None:
    begun = await broken.begin()
    await broken.work()
    [move] = begun["moves"]
    listed = (await broken.cloud.operator.ask("GET", "/os-hypervisors", version="2.87", straight=True)).json()
    names = {each["hypervisor_hostname"] for each in listed["hypervisors"]}
    elsewhere = min(names - {*await broken.hosts(), move["target"]["host"]})
    await broken.cloud.move(move["server_id"], elsewhere)
    ended = await broken.ended(begun["id"])
    assert (ended["status"], ended["moves"][0]["state"]) == ("done", "skipped")
    assert broken.proxy.count("POST", ACTION) == 0


async def test_a_server_that_is_deleted_meanwhile_fails_its_move_and_no_other(broken: Broken) -> None:
    begun = await broken.begin()
    await broken.work()
    broken.proxy.fail("GET", f"/servers/{begun['moves'][0]['server_id']}", 404, body={"itemNotFound": {"message": ""}})
    await broken.work()
    ended = await broken.show(begun["id"])
    assert (ended["status"], ended["moves"][0]["reason"]) == ("failed", "the server was deleted")


async def test_a_move_that_was_not_asked_for_yet_is_skipped_when_the_repair_is_stopped(broken: Broken) -> None:
    begun, before = await broken.begin(), await broken.hosts()
    await broken.work()
    path = f"/os-server-groups/{broken.group}/repairs/{begun['id']}"
    assert (await broken.cloud.operator.ask("DELETE", path)).status_code == 204
    ended = await broken.ended(begun["id"])
    assert (ended["status"], ended["moves"][0]["reason"]) == ("stopped", "the repair was stopped")
    assert await broken.hosts() == before


async def test_a_group_in_continuous_mode_is_mended_and_one_without_is_not(broken: Broken) -> None:
    front = broken.cloud.front
    database, scheduler = front.database, Scheduler(front.database, front.settings)
    assert await mended(database, scheduler) == 0
    mode = {"repair": {"continuous": True}}
    path = f"/os-server-groups/{broken.group}"
    assert (await broken.cloud.operator.ask("PUT", f"{path}/repair", mode)).status_code == 200
    assert await mended(database, scheduler) == 1
    [begun] = (await broken.cloud.operator.ask("GET", f"{path}/repairs")).json()["repairs"]
    assert (await broken.ended(begun["id"]))["status"] == "done"
    assert await mended(database, scheduler) == 0
