"""Novas that are configured otherwise: short pages, more filters, NUMA, Neutron's events; a Roost that restarts while
servers boot; and plans that are applied."""

import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from lab import control, tenants
from lab.settings import Settings
from tests.lab.conftest import SCOPES, LabCluster
from tests.lab.deployment import Deployment, until
from tests.lab.front import FILTER, Front, Person, part, restart_scheduler
from tests.lab.test_plugin_rules import straight_to_nova
from tests.lab.test_policies import RACKS, racks

__all__ = ["racks"]

ZONES = SCOPES["maintenance_zone"]
_FILTERS = "nova.scheduler.filters."
AGGREGATES = f"{_FILTERS}aggregate_instance_extra_specs.AggregateInstanceExtraSpecsFilter"
NUMA = f"{_FILTERS}numa_topology_filter.NUMATopologyFilter"


# Pages, links and request ids


@pytest.fixture
def short_pages(lab: Settings, front: Front, tmp_path: Path) -> Iterator[int]:
    """Nova's API lists at most three of anything."""
    conf = tmp_path / "nova.conf"
    conf.write_text("[api]\nmax_limit = 3\n")
    control.restart(replace(lab, nova_conf=str(conf)), ["nova-api"])
    yield 3
    control.restart(lab, ["nova-api"])


def test_with_short_pages_nothing_is_taken_for_lost(front: Front, somebody: Person, short_pages: int) -> None:
    groups = [somebody.group("anti-affinity:maintenance_zone") for _ in range(short_pages * 2 + 1)]
    server = somebody.boot(groups[-1])
    time.sleep(5)  # several rounds of a Roost that follows Nova each second
    for group in groups:
        status, answer = somebody.ask("GET", f"/os-server-groups/{group}")
        assert status == 200, answer
        assert [policy["scope"] for policy in answer["server_group"]["policies"]] == ["maintenance_zone"]
    until(lambda: somebody.ask("GET", f"/os-server-groups/{groups[-1]}")[1]["server_group"]["members"] == [server])
    ran = front.run("front", "missing")
    assert ran.returncode in (0, 1), ran.stderr
    assert not [group for group in groups if group in ran.stdout], "others may have deleted theirs in Nova itself"


def test_a_client_that_reaches_only_roost_turns_pages(front: Front, somebody: Person, short_pages: int) -> None:
    servers = {somebody.begin() for _ in range(short_pages + 1)}
    seen: set[str] = set()
    url = f"{front.url}/compute/v2.1/servers?limit=2"
    headers = {"X-Auth-Token": somebody.connection.auth_token, "OpenStack-API-Version": "compute 2.79"}
    while url:
        assert url.startswith(f"{front.url}/compute/v2.1/")
        page = httpx.get(url, headers=headers, timeout=60).json()
        seen |= {server["id"] for server in page["servers"]}
        assert all(link["href"].startswith(front.url) for server in page["servers"] for link in server["links"])
        url = next((link["href"] for link in page.get("servers_links", ()) if link["rel"] == "next"), "")
    assert seen == servers


def test_the_id_of_a_request_is_the_one_under_which_nova_has_it(somebody: Person) -> None:
    compute = somebody.connection.compute
    server = somebody.boot()
    answer = compute.post(f"/servers/{server}/action", json={"os-stop": None}, microversion="2.79")
    asked = answer.headers["X-OpenStack-Request-Id"]
    assert asked in {action.request_id for action in somebody.admin.compute.server_actions(server)}
    until(lambda: somebody.admin.compute.get_server(server).status == "SHUTOFF")


# What Neutron tells Nova


def test_what_neutron_tells_nova_goes_through_roost(
    lab: Settings, front: Front, somebody: Person, service: object
) -> None:
    """With Roost at Nova's public endpoint, which is where Neutron looks unless it is set up otherwise."""
    ran = front.run("keystone", "register", "compute")
    assert ran.returncode == 0, ran.stderr
    log = lab.dir / "log" / "nova-api.out"
    try:
        control.restart(lab, ["neutron"])  # it remembers where Nova is
        network = somebody.admin.network.find_network(tenants.NETWORK)
        server = somebody.boot(networks=[{"uuid": network.id}])
        [port] = somebody.admin.network.ports(device_id=server)
        event = f"Creating event network-vif-plugged:{port.id}"
        [line, *_] = until(lambda: [line for line in log.read_text().splitlines() if event in line])
        # Nova names the request by the id that Roost gave it, before its own.
        relayed = line.partition("[")[2].split()[0]
        assert relayed.startswith("req-"), line
        assert relayed in front.log("api")
    finally:
        front.run("keystone", "unregister", "compute")
        control.restart(lab, ["neutron"])


# More filters


@pytest.fixture
def bound_flavor(lab: Settings, admin: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """A flavor that AggregateInstanceExtraSpecsFilter allows on three hosts only."""
    compute, hosts = admin.compute, ("fake-2", "fake-4", "fake-5")
    flavor = compute.create_flavor(name=f"ssd-{uuid.uuid4().hex[:6]}", ram=512, vcpus=1, disk=1)
    compute.create_flavor_extra_specs(flavor, {"aggregate_instance_extra_specs:ssd": "true"})
    aggregate = compute.create_aggregate(name=flavor.name)
    compute.set_aggregate_metadata(aggregate, {"ssd": "true"})
    for host in hosts:
        compute.add_host_to_aggregate(aggregate, host)
    restart_scheduler(replace(lab, filters=AGGREGATES))
    yield flavor.name, hosts
    restart_scheduler(lab)
    for host in hosts:
        compute.remove_host_from_aggregate(aggregate, host)
    compute.delete_aggregate(aggregate)
    compute.delete_flavor(flavor)


def test_a_cluster_finds_the_hosts_that_its_flavor_is_bound_to(
    deployment: Deployment, cluster: LabCluster, bound_flavor: tuple[str, tuple[str, ...]]
) -> None:
    """With a rule that only Roost knows, so that Nova must not choose by itself."""
    flavor, hosts = bound_flavor
    rules = [{"name": "anti-affinity"}, {"name": "soft-anti-affinity", "scope": "availability_zone"}]
    cluster.make(0, flavor=flavor).attach("affinity", "1.1", servergroup={"policies": rules})
    cluster.do("scale_out_cluster", 3)
    assert sorted(cluster.hosts()) == sorted(hosts)
    answer = cluster.clustering.scale_out_cluster(cluster.id, 1)
    action = cluster.until(lambda: cluster.ended(answer["action"]))
    assert action.status == "FAILED"
    assert sorted(cluster.hosts()) == sorted(hosts), "no rule is broken for it"


def test_hints_of_a_profile_are_held_beside_rules_that_nova_does_not_know(
    lab: Settings, deployment: Deployment, cluster: LabCluster, racks: None
) -> None:
    restart_scheduler(replace(lab, filters=f"{_FILTERS}affinity_filter.DifferentHostFilter"))
    try:
        cluster.make(1)
        [other] = cluster.servers()
        spread = [{"name": "anti-affinity", "scope": "rack"}]
        apart = LabCluster(cluster.cloud, admin=cluster.admin)
        apart.make(0, scheduler_hints={"different_host": [other.id]})
        apart.attach("affinity", "1.1", servergroup={"policies": spread})
        apart.do("scale_out_cluster", 2)
        assert other.compute_host not in apart.hosts()
        assert len({part(RACKS, host) for host in apart.hosts()}) == 2
        for undo in reversed(apart.undo):
            undo()
    finally:
        restart_scheduler(lab)


def test_several_servers_of_one_request_each_get_numa_cells_of_their_own_place(
    lab: Settings, front: Front, somebody: Person
) -> None:
    compute = somebody.admin.compute
    flavor = compute.create_flavor(name=f"numa-{uuid.uuid4().hex[:6]}", ram=512, vcpus=2, disk=1)
    compute.create_flavor_extra_specs(flavor, {"hw:numa_nodes": "1"})
    front.plug_in(filters=f"{NUMA},{FILTER}")
    try:
        group = somebody.group("anti-affinity:maintenance_zone")
        somebody.begin(group, flavor=flavor.name, min_count=3, max_count=3)
        servers = [server.id for server in somebody.connection.compute.servers(details=False)]
        assert [somebody.settled(server).status for server in servers] == ["ACTIVE"] * 3
        assert {part(ZONES, host) for host in somebody.hosts(servers)} == set(ZONES)
        topology = compute.get(f"/servers/{servers[0]}/topology", microversion="2.78").json()
        assert len(topology["nodes"]) == 1, "the filter had something to look at"
    finally:
        front.plug_in()
        somebody.clean_up()
        compute.delete_flavor(flavor)


# Restarts


@pytest.mark.parametrize("end", ["kill", "terminate"])
def test_a_restart_of_roost_fails_no_boot(front: Front, somebody: Person, end: str) -> None:
    """The plug-in asks again until Roost is back; the tenant asks Nova itself."""
    group = somebody.group("anti-affinity")
    straight = straight_to_nova(somebody)
    with ThreadPoolExecutor(6) as people:
        asked = [people.submit(straight.begin, group) for _ in range(6)]
        [api, *_] = front.processes
        getattr(api, end)()
        api.wait(60)
        front.processes.remove(api)
        front.start_api()
        front.processes.insert(0, front.processes.pop())
        servers = [each.result() for each in asked]
    assert [somebody.settled(server).status for server in servers] == ["ACTIVE"] * 6
    assert len(set(somebody.hosts(servers))) == 6


# Plans that are applied


def test_a_planned_creation_comes_to_the_hosts_of_the_plan(front: Front, somebody: Person) -> None:
    group = somebody.group("anti-affinity:maintenance_zone")
    compute, image = somebody.connection.compute, somebody.connection.image.find_image(tenants.IMAGE)
    create = {"flavorRef": compute.find_flavor("m1.lab").id, "imageRef": image.id, "count": 3, "name": "planned"}
    path = f"/os-server-groups/{group}/plan"
    status, answer = somebody.ask("POST", path, {"plan": {"create": create}})
    assert status == 200, answer
    order = {"create": create, "generation": answer["plan"]["generation"]}
    status, applied = somebody.ask("POST", path, {"plan": order})
    assert status == 200, applied
    with psycopg.connect(front.database_url) as database:
        query = "SELECT p.server_id::text, h.name FROM planned_places p JOIN hosts h ON h.id = p.host_id"
        servers = [placed["server_id"] for placed in applied["plan"]["placements"]]
        found = [somebody.settled(server) for server in servers]
        planned: dict[str, str] = dict(database.execute(query).fetchall())
    assert [each.status for each in found] == ["ACTIVE"] * 3, [each.fault for each in found]
    assert {each.name for each in found} == {"planned-1", "planned-2", "planned-3"}
    assert {each.id: each.compute_host for each in found} == planned
    assert {part(ZONES, host) for host in planned.values()} == set(ZONES)
    assert somebody.ask("POST", path, {"plan": order})[0] == 409
    again = {"plan": {"create": {**create, "count": 1}}}
    assert somebody.ask("POST", path, again)[1]["plan"]["placements"] == []
