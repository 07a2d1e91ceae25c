"""Plans and repairs on a real Nova: servers are where they were said to come, as Nova's administrator reads it."""

import asyncio
from typing import Any

from roost.clouds.nova import Nova
from tests.lab.conftest import SCOPES, Access
from tests.lab.deployment import until
from tests.lab.front import Front, Person, part

ZONES = SCOPES["maintenance_zone"]


def zone(host: str) -> str:
    return part(ZONES, host)


def broken_group(somebody: Person) -> tuple[str, list[str]]:
    """A group of two, who may not be in one zone; somebody who may pass over the scheduler has put them there."""
    group = somebody.group("anti-affinity:maintenance_zone")
    first, second = somebody.boot(group), somebody.boot(group)
    beside = next(host for host in ZONES[zone(somebody.host(first))] if host != somebody.host(first))
    move = {"os-migrateLive": {"host": beside, "block_migration": "auto", "force": True}}
    answer = somebody.admin.compute.post(f"/servers/{second}/action", json=move, microversion="2.67")
    assert answer.status_code == 202, answer.text
    assert somebody.host(second) == beside
    assert len(somebody.violations(group)) == 1
    return group, [first, second]


def begin(operator: Person, group: str, **asked: Any) -> Any:
    status, answer = operator.ask("POST", f"/os-server-groups/{group}/repairs", {"repair": asked})
    assert status == 200, answer
    return answer["repair"]


def ended(operator: Person, group: str, repair: str) -> Any:
    """A repair, once it has ended."""

    def over() -> Any:
        shown = operator.ask("GET", f"/os-server-groups/{group}/repairs/{repair}")[1]["repair"]
        return shown if shown["status"] not in ("running", "stopping") else None

    return until(over)


def drained(operator: Person, group: str, place: dict[str, str]) -> tuple[list[Any], str]:
    """Plan a drain and apply it; its moves, and the repair that carries them out. It is planned again while Roost sees
    no member to move yet, or sees something change in between."""

    def tried() -> Any:
        path, change = f"/os-server-groups/{group}/plan", {"drain": place}
        status, answer = operator.ask("POST", path, {"plan": change})
        assert status == 200, answer
        planned = answer["plan"]
        if not planned["moves"]:
            return None
        status, answer = operator.ask("POST", path, {"plan": {**change, "generation": planned["generation"]}})
        assert status in (200, 409), answer
        return (planned["moves"], answer["plan"]["repair_id"]) if status == 200 else None

    moves, repair = until(tried)
    return moves, repair


def is_mended(person: Person, group: str) -> None:
    audit = person.ask("GET", f"/os-server-groups/{group}/audit")[1]["server_group_policy_audit"]
    assert audit["violations"] == []


def test_a_broken_group_is_mended_by_novas_live_migrations(somebody: Person, operator: Person) -> None:
    group, servers = broken_group(somebody)
    status, planned = somebody.ask("POST", f"/os-server-groups/{group}/repairs", {"repair": {"dry_run": True}})
    assert (status, planned["repair"]["sentence"]) == (
        200, "1 live migration would repair everything; fewer cannot."
    )  # fmt: skip
    assert somebody.ask("POST", f"/os-server-groups/{group}/repairs", {"repair": {}})[0] == 403
    done = ended(operator, group, begin(operator, group)["id"])
    assert (done["status"], done["sentence"]) == ("done", "1 of 1 move done.")
    [move] = done["moves"]
    assert somebody.host(move["server_id"]) == move["target"]["host"]
    assert len({zone(host) for host in somebody.hosts(servers)}) == 2
    is_mended(somebody, group)


def test_a_group_in_continuous_mode_is_mended_without_being_asked(somebody: Person, operator: Person) -> None:
    group, servers = broken_group(somebody)
    path = f"/os-server-groups/{group}/repair"
    assert operator.ask("PUT", path, {"repair": {"continuous": True}})[0] == 200
    until(lambda: len({zone(host) for host in somebody.hosts(servers)}) == 2)
    until(lambda: operator.ask("GET", f"{path}s")[1]["repairs"][0]["status"] == "done")
    is_mended(somebody, group)


def test_members_that_are_apart_are_brought_together_and_together_they_stay(somebody: Person, operator: Person) -> None:
    """Nova's own filter lets no member leave an affinity group's host."""
    group = somebody.group("affinity")
    servers = [somebody.boot(group), somebody.boot()]
    away = next(host for hosts in ZONES.values() for host in hosts if host != somebody.host(servers[0]))
    if somebody.host(servers[1]) == somebody.host(servers[0]):
        somebody.admin.compute.live_migrate_server(servers[1], host=away, force=False, block_migration="auto")
        assert somebody.host(servers[1]) == away
    added = {"add_instance": {"instance_id": servers[1]}}
    assert somebody.ask("POST", f"/os-server-groups/{group}/action", added)[0] == 200
    done = ended(operator, group, begin(operator, group)["id"])
    assert done["status"] == "done", done
    [host] = set(somebody.hosts(servers))
    somebody.delete(servers[1])
    # Roost sees in Nova that it is gone: until then it would be moved too.
    until(lambda: somebody.ask("GET", f"/os-server-groups/{group}")[1]["server_group"]["members"] == servers[:1])
    _, repair = drained(operator, group, {"scope": "host", "identifier": host})
    failed = ended(operator, group, repair)
    assert failed["status"] == "failed"
    assert "No valid host" in failed["moves"][0]["reason"]
    assert somebody.host(servers[0]) == host


def test_a_move_that_needs_the_room_of_another_waits_for_it(
    somebody: Person, operator: Person, whole_host: Any
) -> None:
    """A large member can only come to where a small one is, which has to make room first."""
    places = {"large": "fake-4", "other": "fake-3", "small": "fake-1", "second": "fake-2", "third": "fake-2"}
    servers = {}
    for name, host in places.items():
        servers[name] = somebody.boot(flavor=whole_host.name if name in ("large", "other") else "m1.lab")
        if somebody.host(servers[name]) != host:
            somebody.admin.compute.live_migrate_server(servers[name], host=host, force=False, block_migration="auto")
        assert somebody.host(servers[name]) == host
    group = somebody.group("affinity:switch")
    for name in ("large", "small", "second", "third"):
        added = {"add_instance": {"instance_id": servers[name]}}
        assert somebody.ask("POST", f"/os-server-groups/{group}/action", added)[0] == 200
    # Roost has to have seen how full the hosts are now.
    until(lambda: len(begin(operator, group, dry_run=True)["moves"]) == 2)
    done = ended(operator, group, begin(operator, group, max_parallel=2)["id"])
    assert done["status"] == "done", done
    assert [move["server_id"] for move in done["moves"]] == [servers["small"], servers["large"]]
    assert somebody.hosts([servers["small"], servers["large"]]) == ["fake-2", "fake-1"]


def test_a_repair_goes_on_when_its_engine_was_killed(front: Front, somebody: Person, operator: Person) -> None:
    group, servers = broken_group(somebody)
    engine = front.processes[-1]
    begun = begin(operator, group)
    path = f"/os-server-groups/{group}/repairs/{begun['id']}"
    until(lambda: operator.ask("GET", path)[1]["repair"]["moves"][0]["state"] != "waiting")
    front.kill(engine)
    front.start("engine")
    assert ended(operator, group, begun["id"])["status"] == "done"
    moved = [each for server in servers for each in somebody.admin.compute.migrations(instance_uuid=server)]
    assert len(moved) == 2, "once to break the group and once to mend it"
    is_mended(somebody, group)


def test_a_move_that_nova_refuses_fails_in_its_words(somebody: Person, operator: Person) -> None:
    group, _ = broken_group(somebody)
    [move] = begin(operator, group, dry_run=True)["moves"]
    somebody.connection.compute.stop_server(move["server_id"])
    until(lambda: somebody.admin.compute.get_server(move["server_id"]).status == "SHUTOFF")
    failed = ended(operator, group, begin(operator, group)["id"])
    assert failed["status"] == "failed"
    assert "while it is in vm_state stopped" in failed["moves"][0]["reason"]


async def test_what_the_scheduler_refuses_later_is_told_in_its_words(service: Access, somebody: Person) -> None:
    group = somebody.group("anti-affinity:maintenance_zone")
    first, second = somebody.boot(group), somebody.boot(group)
    before = somebody.host(second)
    forbidden = next(host for host in ZONES[zone(somebody.host(first))] if host != somebody.host(first))
    nova = Nova(None, service.config)
    request = await nova.live_migrate(second, forbidden)
    assert somebody.host(second) == before
    for _ in range(600):
        if why := await nova.why_failed(second, request):
            break
        await asyncio.sleep(0.1)
    assert "No valid host" in str(why)
    assert not await nova.is_migrating(second)
    nova.close()


def test_a_drain_that_was_planned_is_carried_out_as_planned(somebody: Person, operator: Person) -> None:
    group = somebody.group("anti-affinity:maintenance_zone")
    servers = [somebody.boot(group), somebody.boot(group)]
    empty = zone(somebody.host(servers[0]))
    [move], repair = drained(operator, group, {"scope": "maintenance_zone", "identifier": empty})
    done = ended(operator, group, repair)
    assert done["status"] == "done", done
    assert somebody.host(servers[0]) == move["target"]["host"]
    assert empty not in {zone(host) for host in somebody.hosts(servers)}


def test_what_the_loss_of_a_zone_would_come_to_is_told_for_the_cloud(somebody: Person, operator: Person) -> None:
    group = somebody.group("anti-affinity:maintenance_zone")
    servers = [somebody.boot(group) for _ in range(3)]
    lost = {"plan": {"lose": {"scope": "maintenance_zone", "identifier": zone(somebody.host(servers[0]))}}}

    def planned() -> Any:
        plan = operator.ask("POST", "/os-server-groups/plan?all_projects=1", lost)[1]["plan"]
        # As soon as Roost has seen all three: before, there seems to be a zone left.
        return plan if any(each["stranded"] for each in plan["groups"]) else None

    plan = until(planned)
    assert plan["sentence"] == "1 server in 1 group would be affected: 0 would find another place, 1 would not."
    assert [each["server_id"] for each in plan["groups"][0]["stranded"]] == servers[:1]


def test_where_new_servers_would_come_is_planned_with_novas_flavors(somebody: Person) -> None:
    group = somebody.group("anti-affinity:maintenance_zone")
    asked = {"flavorRef": somebody.connection.compute.find_flavor("m1.lab").id, "count": 3}
    path = f"/os-server-groups/{group}/plan"
    planned = somebody.ask("POST", path, {"plan": {"create": asked}})[1]["plan"]
    assert planned["sentence"] == "3 servers would be placed, no rules would be broken."
