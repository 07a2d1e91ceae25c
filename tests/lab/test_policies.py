"""The policies' scenarios on real Nova and Octavia: a tenant works through the SDK, an administrator reads back."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from lab import tenants
from tests.lab.conftest import ZONES, LabCluster
from tests.lab.deployment import Deployment, until

SPREAD: dict[str, Any] = {"zones": [{"name": zone} for zone in ZONES]}


def servers_stand_where_nova_says(cluster: LabCluster) -> None:
    """Every server is active, on a host of the zone that it is in."""
    for server in cluster.servers():
        assert server.status == "ACTIVE"
        assert server.compute_host in ZONES[server.availability_zone]


def bound(cluster: LabCluster, policy: str) -> Any:
    """What the affinity policy keeps of its server group."""
    return cluster.clustering.get_cluster_policy(policy, cluster.id).data["AffinityPolicy"]["data"]


# Affinity


def test_a_group_that_the_profile_names_is_used_and_outlives_the_policy(cluster: LabCluster) -> None:
    compute = cluster.cloud.compute
    group = compute.create_server_group(name="mine", policy="anti-affinity")
    cluster.undo.append(lambda: compute.delete_server_group(group))
    cluster.make(0, scheduler_hints={"group": group.id})
    policy = cluster.attach("affinity")
    assert bound(cluster, policy) == {"servergroup_id": group.id, "inherited_group": True}
    action = cluster.do("scale_out_cluster", 3)
    assert cluster.data(action)["placement"] == {"count": 3, "placements": [{"servergroup": group.id}] * 3}
    assert set(compute.get_server_group(group.id).member_ids) == {server.id for server in cluster.servers()}
    assert len(set(cluster.hosts())) == 3
    cluster.do("detach_policy_from_cluster", policy)
    assert compute.find_server_group(group.id) is not None


def test_a_group_that_does_not_match_is_refused(cluster: LabCluster) -> None:
    compute = cluster.cloud.compute
    group = compute.create_server_group(name="other", policy="affinity")
    cluster.undo.append(lambda: compute.delete_server_group(group))
    cluster.make(0, scheduler_hints={"group": group.id})
    spec = {"type": "senlin.policy.affinity", "version": "1.0", "properties": {}}
    policy = cluster.clustering.create_policy(name="apart", spec=spec)
    cluster.undo.insert(0, lambda: cluster.clustering.delete_policy(policy))
    answer = cluster.clustering.attach_policy_to_cluster(cluster.id, policy.id)
    action = cluster.until(lambda: cluster.ended(answer["action"]))
    assert action.status == "FAILED"
    assert "doesn't match that of the existing servergroup (affinity)" in action.status_reason


def test_a_group_is_made_when_there_is_none_and_goes_with_the_policy(cluster: LabCluster) -> None:
    compute = cluster.cloud.compute
    policy = cluster.make(0).attach("affinity")
    data = bound(cluster, policy)
    assert data["inherited_group"] is False
    assert compute.get_server_group(data["servergroup_id"]).policy == "anti-affinity"
    cluster.do("scale_out_cluster", 6)
    assert sorted(cluster.hosts()) == [f"fake-{number}" for number in range(1, 7)]
    answer = cluster.clustering.scale_out_cluster(cluster.id, 1)
    action = cluster.until(lambda: cluster.ended(answer["action"]))
    assert action.status == "FAILED"
    assert len(cluster.hosts()) == 6, "no host takes a second"
    cluster.do("resize_cluster", adjustment_type="EXACT_CAPACITY", number=2)
    cluster.do("detach_policy_from_cluster", policy)
    assert compute.find_server_group(data["servergroup_id"]) is None


def test_servers_that_are_to_be_together_share_a_host_in_the_zone(cluster: LabCluster) -> None:
    cluster.make(0).attach("affinity", servergroup={"policies": "affinity"}, availability_zone="az2")
    action = cluster.do("scale_out_cluster", 3)
    assert {place["zone"] for place in cluster.data(action)["placement"]["placements"]} == {"az2"}
    assert len(set(cluster.hosts())) == 1
    servers_stand_where_nova_says(cluster)
    assert cluster.zones() == {"az2": 3}


def test_a_cluster_that_is_not_an_administrators_has_no_drs(cluster: LabCluster) -> None:
    cluster.make(0)
    spec = {"type": "senlin.policy.affinity", "version": "1.0", "properties": {"enable_drs_extension": True}}
    policy = cluster.clustering.create_policy(name="drs", spec=spec)
    cluster.undo.insert(0, lambda: cluster.clustering.delete_policy(policy))
    answer = cluster.clustering.attach_policy_to_cluster(cluster.id, policy.id)
    action = cluster.until(lambda: cluster.ended(answer["action"]))
    assert action.status_reason.endswith("needs a cluster that is owned by an administrator of the cloud.")


RACKS = {"rack-a": ("fake-1", "fake-2", "fake-3"), "rack-b": ("fake-4", "fake-5"), "rack-c": ("fake-6",)}


@pytest.fixture
def racks(deployment: Deployment, admin: Any) -> Iterator[None]:
    """Aggregates of a scope, as an operator makes them in Nova; Roost has seen them."""
    compute = admin.compute
    made = [(compute.create_aggregate(name=rack), hosts) for rack, hosts in RACKS.items()]
    for aggregate, hosts in made:
        compute.set_aggregate_metadata(aggregate, {"policy_scope": "rack"})
        for host in hosts:
            compute.add_host_to_aggregate(aggregate, host)
    until(lambda: "rack" in scopes_that_roost_knows(deployment, admin))
    yield
    for aggregate, hosts in made:
        for host in hosts:
            compute.remove_host_from_aggregate(aggregate, host)
        compute.delete_aggregate(aggregate)


def scopes_that_roost_knows(deployment: Deployment, admin: Any) -> set[str]:
    headers = {"X-Auth-Token": admin.auth_token, "OpenStack-API-Version": "compute 2.1002"}
    answer = httpx.get(f"{deployment.url}/compute/v2.1/os-policy-scopes", headers=headers)
    return {scope["name"] for scope in answer.json()["policy_scopes"]}


def test_no_two_servers_share_a_rack_though_nova_knows_of_none(cluster: LabCluster, racks: None) -> None:
    rules = [{"name": "anti-affinity", "scope": "rack"}]
    policy = cluster.make(0).attach("affinity", "1.1", servergroup={"policies": rules})
    group = bound(cluster, policy)["servergroup_id"]
    assert cluster.admin.compute.get_server_group(group).policy == "anti-affinity"
    cluster.do("scale_out_cluster", 3)
    assert sorted(rack for host in cluster.hosts() for rack, hosts in RACKS.items() if host in hosts) == sorted(RACKS)
    answer = cluster.clustering.scale_out_cluster(cluster.id, 1)
    action = cluster.until(lambda: cluster.ended(answer["action"]))
    assert action.status == "FAILED"
    reasons = [action.status_reason, *(node.status_reason for node in cluster.clustering.nodes(cluster_id=cluster.id))]
    assert any("6 hosts are in a rack with as many members" in reason for reason in reasons), reasons
    assert len(cluster.hosts()) == 3
    cluster.do("detach_policy_from_cluster", policy)
    assert cluster.cloud.compute.find_server_group(group) is None


# Zone placement


def test_zones_are_filled_and_emptied_as_planned(cluster: LabCluster) -> None:
    cluster.make(0).attach("zone_placement", **SPREAD)
    out = cluster.do("scale_out_cluster", 5)
    assert sum(cluster.data(out)["creation"]["zones"].values()) == 5
    assert cluster.zones() == cluster.data(out)["creation"]["zones"]
    assert sorted(cluster.zones().values()) == [1, 2, 2]
    servers_stand_where_nova_says(cluster)
    before = Counter(cluster.zones())
    inwards = cluster.do("scale_in_cluster", 2)
    assert Counter(cluster.zones()) == before - Counter(cluster.data(inwards)["deletion"]["zones"])
    cluster.do("resize_cluster", adjustment_type="EXACT_CAPACITY", number=6)
    assert cluster.zones() == {"az1": 2, "az2": 2, "az3": 2}
    cluster.do("resize_cluster", adjustment_type="CHANGE_IN_CAPACITY", number=-3)
    assert cluster.zones() == {"az1": 1, "az2": 1, "az3": 1}


def test_weights_are_followed(cluster: LabCluster) -> None:
    zones = [{"name": "az1", "weight": 300}, {"name": "az2", "weight": 100}]
    cluster.make(0).attach("zone_placement", zones=zones)
    cluster.do("scale_out_cluster", 4)
    assert cluster.zones() == {"az1": 3, "az2": 1}


def test_zones_that_are_not_there_are_refused_when_the_policy_is_made(cluster: LabCluster) -> None:
    spec = {"type": "senlin.policy.zone_placement", "version": "1.0", "properties": {"zones": [{"name": "mars"}]}}
    with pytest.raises(Exception, match="mars"):
        cluster.clustering.create_policy(name="far", spec=spec)


def test_a_node_goes_where_its_profile_says_and_else_where_the_zones_have_least(cluster: LabCluster) -> None:
    cluster.make(0).attach("zone_placement", **SPREAD)
    cluster.do("scale_out_cluster", 2)
    [emptiest] = set(ZONES) - set(cluster.zones())
    profile = cluster.clustering.get_cluster(cluster.id).profile_id
    for zone, chosen in ((None, emptiest), ("az2", "az2")):
        if zone is not None:
            properties = {**cluster.clustering.get_profile(profile).spec["properties"], "availability_zone": zone}
            spec = {"type": "os.nova.server", "version": "1.0", "properties": properties}
            profile = cluster.clustering.create_profile(name="pinned", spec=spec).id
            cluster.undo.insert(0, lambda pinned=profile: cluster.clustering.delete_profile(pinned))  # type: ignore[misc]
        before = {server.id for server in cluster.servers()}
        node = cluster.clustering.create_node(name="one", profile_id=profile, cluster_id=cluster.id)
        cluster.until(lambda made=node: cluster.clustering.get_node(made.id).status == "ACTIVE")  # type: ignore[misc]
        [new] = [server for server in cluster.servers() if server.id not in before]
        assert new.availability_zone == chosen
    servers_stand_where_nova_says(cluster)


# Together


def test_zones_groups_scaling_and_deletion_agree(cluster: LabCluster) -> None:
    cluster.make(0).attach("zone_placement", **SPREAD)
    cluster.attach("affinity")
    cluster.attach("deletion", criteria="OLDEST_FIRST")
    cluster.attach("scaling", event="CLUSTER_SCALE_OUT", adjustment={"number": 3})
    cluster.attach("scaling", event="CLUSTER_SCALE_IN", adjustment={"number": 3})
    cluster.do("scale_out_cluster")
    oldest = {server.id for server in cluster.servers()}
    assert cluster.zones() == {"az1": 1, "az2": 1, "az3": 1}
    cluster.do("scale_out_cluster")
    assert cluster.zones() == {"az1": 2, "az2": 2, "az3": 2}
    assert len(set(cluster.hosts())) == 6
    cluster.do("scale_in_cluster")
    assert cluster.zones() == {"az1": 1, "az2": 1, "az3": 1}
    assert not oldest & {server.id for server in cluster.servers()}


# Load balance


def test_the_members_of_a_load_balancer_follow_the_cluster(cluster: LabCluster) -> None:
    octavia = cluster.admin.load_balancer
    pool = {"subnet": tenants.SUBNET, "protocol": "HTTP", "protocol_port": 8080}
    vip = {"subnet": tenants.SUBNET, "protocol": "HTTP", "protocol_port": 80}
    monitor = {"type": "HTTP", "delay": 5, "timeout": 3, "max_retries": 2, "url_path": "/well"}
    policy = cluster.make(2).attach("loadbalance", "1.1", pool=pool, vip=vip, health_monitor=monitor)
    data = cluster.clustering.get_cluster_policy(policy, cluster.id).data["LoadBalancingPolicy"]["data"]
    balancer = octavia.get_load_balancer(data["loadbalancer"])
    assert (balancer.provisioning_status, balancer.project_id) == ("ACTIVE", cluster.cloud.current_project_id)
    assert octavia.get_health_monitor(data["healthmonitor"]).url_path == "/well"

    def members_are_the_servers() -> bool:
        members = {(member.address, member.protocol_port) for member in octavia.members(data["pool"])}
        addresses = {
            (address["addr"], 8080)
            for server in cluster.servers()
            for addresses in server.addresses.values()
            for address in addresses
        }
        return members == addresses and len(addresses) == len(cluster.servers())

    assert members_are_the_servers()
    cluster.do("scale_out_cluster", 2)
    assert len(cluster.servers()) == 4
    assert members_are_the_servers()
    cluster.do("scale_in_cluster", 3)
    assert len(cluster.servers()) == 1
    assert members_are_the_servers()
    cluster.do("detach_policy_from_cluster", policy)
    assert octavia.find_load_balancer(data["loadbalancer"]) is None
