"""The plug-in inside a real nova-scheduler: races, moves, several servers at once, and a Roost that is not there."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from openstack import exceptions

from lab import control
from lab.settings import Settings
from tests.lab.conftest import SCOPES
from tests.lab.deployment import until
from tests.lab.front import Front, Person, connect, part
from tests.lab.test_driver import bring_back

ZONES = SCOPES["maintenance_zone"]


def zone(host: str) -> str:
    return part(ZONES, host)


def test_two_schedulers_fill_every_host_and_break_no_rule(front: Front, somebody: Person) -> None:
    """Six servers at once on six hosts: each must find the one that the others leave."""
    front.plug_in(scheduler_workers=2)
    group = somebody.group("anti-affinity")
    with ThreadPoolExecutor(6) as people:
        servers = list(people.map(lambda _: somebody.begin(group), range(6)))
    assert [somebody.settled(server).status for server in servers] == ["ACTIVE"] * 6
    assert len(set(somebody.hosts(servers))) == 6
    front.plug_in()


def test_several_servers_of_one_request_each_get_their_own_place(somebody: Person) -> None:
    group = somebody.group("anti-affinity:maintenance_zone")
    somebody.begin(group, min_count=3, max_count=3)
    servers = [server.id for server in somebody.connection.compute.servers(details=False)]
    assert {zone(host) for host in somebody.hosts(servers)} == set(ZONES)


def test_several_servers_that_belong_together_come_together(somebody: Person) -> None:
    group = somebody.group("affinity:switch", "anti-affinity")
    somebody.begin(group, min_count=3, max_count=3)
    hosts = somebody.hosts([server.id for server in somebody.connection.compute.servers(details=False)])
    assert len(set(hosts)) == 3
    assert len({part(SCOPES["switch"], host) for host in hosts}) == 1


def test_the_place_of_a_server_that_was_deleted_is_free_at_once(somebody: Person) -> None:
    group = somebody.group("anti-affinity:maintenance_zone")
    servers = [somebody.boot(group) for _ in range(3)]
    freed = zone(somebody.host(servers[1]))
    somebody.delete(servers[1])
    assert zone(somebody.host(somebody.boot(group))) == freed


def test_a_server_that_moves_keeps_the_rules(somebody: Person) -> None:
    group = somebody.group("anti-affinity:maintenance_zone")
    first, second = somebody.boot(group), somebody.boot(group)
    admin = somebody.admin.compute
    forbidden = zone(somebody.host(second))
    admin.migrate_server(first)
    assert somebody.settled(first).status == "VERIFY_RESIZE"
    assert zone(somebody.host(first)) != forbidden
    admin.confirm_server_resize(first)
    admin.wait_for_server(admin.get_server(first), interval=0.3, wait=300)
    [target, *_] = [host for host in ZONES[forbidden] if host != somebody.host(second)]
    before = somebody.host(first)
    with pytest.raises(exceptions.BadRequestException):
        admin.live_migrate_server(first, host=target, force=False, block_migration="auto")
    assert somebody.host(first) == before
    admin.live_migrate_server(first, host=None, force=False, block_migration="auto")
    admin.wait_for_server(admin.get_server(first), interval=0.3, wait=300)
    assert somebody.host(first) != before
    assert zone(somebody.host(first)) != forbidden


def test_a_server_that_is_resized_keeps_the_rules(somebody: Person) -> None:
    group = somebody.group("anti-affinity:maintenance_zone")
    first, second = somebody.boot(group), somebody.boot(group)
    compute = somebody.connection.compute
    compute.resize_server(first, compute.find_flavor("m2.lab").id)
    assert somebody.settled(first).status == "VERIFY_RESIZE"
    assert zone(somebody.host(first)) != zone(somebody.host(second))
    compute.confirm_server_resize(first)
    until(lambda: somebody.settled(first).status == "ACTIVE")
    assert len({zone(host) for host in somebody.hosts([first, second, somebody.boot(group)])}) == 3


def test_a_server_comes_back_from_the_shelf_only_where_the_rules_have_room(somebody: Person) -> None:
    group = somebody.group("anti-affinity:maintenance_zone")
    shelved, *others = (somebody.boot(group) for _ in range(3))
    compute = somebody.connection.compute
    compute.shelve_server(shelved)
    until(lambda: somebody.settled(shelved).status == "SHELVED_OFFLOADED")
    others.append(somebody.boot(group))
    compute.unshelve_server(shelved)
    events = until(lambda: failed_events(somebody, shelved, "unshelve"))
    assert {event.details for event in events} == {"No valid host was found. There are not enough hosts available."}
    assert somebody.settled(shelved).status == "SHELVED_OFFLOADED"
    freed = zone(somebody.host(others[0]))
    somebody.delete(others[0])
    compute.unshelve_server(shelved)
    until(lambda: somebody.settled(shelved).status == "ACTIVE")
    assert zone(somebody.host(shelved)) == freed


def failed_events(person: Person, server: str, action: str) -> list[Any]:
    """What failed of an action on a server, in Nova's own words."""
    compute = person.admin.compute
    asked = [each.request_id for each in compute.server_actions(server) if each.action == action]
    events = [event for each in asked for event in compute.get_server_action(each, server).events]
    return [event for event in events if event.result == "Error"]


def test_a_server_is_evacuated_only_where_the_rules_allow(lab: Settings, somebody: Person) -> None:
    group = somebody.group("anti-affinity:maintenance_zone")
    first, second = somebody.boot(group), somebody.boot(group)
    compute, dead = somebody.admin.compute, somebody.host(first)
    forbidden = zone(somebody.host(second))
    [service] = [each for each in compute.services(binary="nova-compute") if each.host == dead]
    control.kill_host(lab, int(dead.removeprefix("fake-")))
    compute.update_service_forced_down(service, forced=True)
    try:
        [target, *_] = [host for host in ZONES[forbidden] if host != somebody.host(second)]
        compute.evacuate_server(first, host=target)
        assert somebody.settled(first).status == "ERROR"
        assert somebody.host(first) == dead
        compute.evacuate_server(first)
        until(lambda: somebody.settled(first).status == "ACTIVE")
        assert somebody.host(first) != dead
        assert zone(somebody.host(first)) != forbidden
    finally:
        bring_back(lab, somebody.admin, service)


def test_a_group_that_was_made_in_nova_is_held_too(somebody: Person) -> None:
    """Tenants who never heard of Roost, and the scheduler is the same."""
    direct = somebody.connection
    there = direct.session.post(
        f"{somebody.admin.compute.get_endpoint()}/os-server-groups",
        json={"server_group": {"name": "native", "policy": "anti-affinity"}},
        headers={"OpenStack-API-Version": "compute 2.64"},
    )
    group = there.json()["server_group"]["id"]
    with ThreadPoolExecutor(4) as people:
        servers = list(people.map(lambda _: somebody.begin(group), range(4)))
    assert len(set(somebody.hosts(servers))) == 4
    status, shown = somebody.ask("GET", f"/os-server-groups/{group}")
    assert status == 200
    assert set(shown["server_group"]["members"]) == set(servers)
    somebody.clean_up()
    assert somebody.ask("DELETE", f"/os-server-groups/{group}")[0] == 204


@pytest.mark.parametrize(("choice", "status"), [("refuse", "ERROR"), ("allow", "ACTIVE")])
def test_without_roost_it_is_as_nova_conf_says(front: Front, somebody: Person, choice: str, status: str) -> None:
    group = somebody.group("anti-affinity:maintenance_zone")
    front.plug_in(on_failure=choice, time_limit=5)
    straight = straight_to_nova(somebody)
    front.stop()
    try:
        assert somebody.settled(straight.begin(group)).status == status
        assert somebody.settled(straight.begin()).status == "ACTIVE", "who is in no group does not need Roost"
    finally:
        front.begin()
        front.plug_in()


def test_after_a_time_without_roost_what_happened_is_seen(front: Front, somebody: Person) -> None:
    group = somebody.group("anti-affinity:maintenance_zone")
    front.plug_in(on_failure="allow", time_limit=5)
    straight = straight_to_nova(somebody)
    front.stop()
    try:
        servers = [straight.boot(group) for _ in range(4)]
        places = Counter(zone(somebody.host(server)) for server in servers)
    finally:
        front.begin()
        front.plug_in()
    crowded = {name for name, number in places.items() if number > 1}
    found = somebody.violations(group)
    assert len(found) == len(crowded) > 0
    assert {violation["breach"] for violation in found} == {"too_many"}


def straight_to_nova(person: Person) -> Person:
    """The same person, past Roost."""
    return replace(person, connection=connect(person.connection.config.config["auth"]))
