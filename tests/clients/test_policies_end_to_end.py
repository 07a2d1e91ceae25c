"""Every policy type on a cluster of `roost serve`, through openstacksdk: asserted is where the servers are."""

import socket
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

SERVER = {"flavor": "1", "image": "cirros-0.6.2-x86_64-disk", "networks": [{"network": "private"}]}
ZONES: dict[str, Any] = {"zones": [{"name": "zone1"}, {"name": "zone2"}, {"name": "zone3"}]}


@dataclass
class Cluster:
    """A cluster, made and scaled through the SDK."""

    cloud: Any
    undo: list[Callable[[], Any]] = field(default_factory=list)
    id: str = ""

    @property
    def clustering(self) -> Any:
        return self.cloud.clustering

    def make(self, size: int = 0, **properties: Any) -> "Cluster":
        spec = {"type": "os.nova.server", "version": "1.0", "properties": {**SERVER, **properties}}
        profile = self.clustering.create_profile(name="web", spec=spec)
        self.undo.append(lambda: self.clustering.delete_profile(profile))
        made = self.clustering.create_cluster(name="web", profile_id=profile.id, desired_capacity=size)
        self.id = made.id
        self.undo.append(self.delete)
        self.settle()
        return self

    def delete(self) -> None:
        self.settle()
        self.clustering.delete_cluster(self.id)
        self.until(lambda: self.clustering.find_cluster(self.id, ignore_missing=True) is None)

    def attach(self, kind: str, version: str = "1.0", **properties: Any) -> str:
        spec = {"type": f"senlin.policy.{kind}", "version": version, "properties": properties}
        policy = self.clustering.create_policy(name=kind, spec=spec)
        self.undo.insert(0, lambda: self.clustering.delete_policy(policy))
        self.do("attach_policy_to_cluster", policy.id)
        return str(policy.id)

    def do(self, verb: str, *given: Any, **more: Any) -> Any:
        """One verb of the SDK on the cluster, and its action once it has ended well."""
        answer = getattr(self.clustering, verb)(self.id, *given, **more)
        assert "action" in answer, answer
        action = self.until(lambda: self.ended(answer["action"]))
        assert action.status == "SUCCEEDED", action.status_reason
        return action

    def ended(self, action_id: str) -> Any:
        action = self.clustering.get_action(action_id)
        return action if action.status in ("SUCCEEDED", "FAILED", "CANCELLED") else None

    def data(self, action: Any) -> Any:
        """What policies wrote into an action; the SDK has no name for it."""
        return self.clustering.get(f"/actions/{action.id}").json()["action"]["data"]

    def settle(self) -> None:
        self.until(lambda: self.clustering.get_cluster(self.id).status in ("ACTIVE", "WARNING", "ERROR"))

    def until(self, true: Callable[[], Any], seconds: float = 60) -> Any:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := true():
                return found
            time.sleep(0.1)
        raise AssertionError("it did not come to pass in time")

    def servers(self) -> list[Any]:
        """The servers of the cluster, as the compute service shows them to an administrator."""
        return [
            server
            for server in self.cloud.compute.servers(all_projects=False)
            if server.metadata.get("cluster_id") == self.id
        ]

    def zones(self) -> dict[str, int]:
        return dict(Counter(server.availability_zone for server in self.servers()))


@pytest.fixture
def cluster(sdk: Any) -> Iterator[Cluster]:
    made = Cluster(sdk)
    yield made
    for undo in reversed(made.undo):
        undo()


def test_the_types_are_listed(sdk: Any) -> None:
    names = {each.name for each in sdk.clustering.policy_types()}
    assert {"senlin.policy.affinity-1.0", "senlin.policy.zone_placement-1.0"} <= names


def test_zones_are_filled_evenly_and_stay_so(cluster: Cluster) -> None:
    cluster.make(0).attach("zone_placement", **ZONES)
    cluster.do("scale_out_cluster", 7)
    assert sorted(cluster.zones().values()) == [2, 2, 3]
    cluster.do("scale_in_cluster", 4)
    assert cluster.zones() == {"zone1": 1, "zone2": 1, "zone3": 1}
    cluster.do("resize_cluster", adjustment_type="EXACT_CAPACITY", number=6)
    assert cluster.zones() == {"zone1": 2, "zone2": 2, "zone3": 2}


def test_each_server_has_its_group_its_zone_and_a_host_of_its_own(cluster: Cluster) -> None:
    cluster.make(0).attach("affinity")
    cluster.attach("zone_placement", **ZONES)
    cluster.do("scale_out_cluster", 6)
    [group] = [each for each in cluster.cloud.compute.server_groups() if each.name.startswith("server_group_")]
    servers = cluster.servers()
    assert set(group.member_ids) == {server.id for server in servers}
    assert len({server.compute_host for server in servers}) == 6
    assert cluster.zones() == {"zone1": 2, "zone2": 2, "zone3": 2}


def test_the_profile_group_is_inherited(cluster: Cluster) -> None:
    group = cluster.cloud.compute.create_server_group(name="mine", policy="soft-anti-affinity")
    cluster.undo.append(lambda: cluster.cloud.compute.delete_server_group(group))
    cluster.make(0, scheduler_hints={"group": group.id})
    policy = cluster.attach("affinity", servergroup={"policies": "soft-anti-affinity"})
    bound = cluster.clustering.get_cluster_policy(policy, cluster.id)
    assert bound.data == {
        "AffinityPolicy": {"version": 1.0, "data": {"servergroup_id": group.id, "inherited_group": True}}
    }
    cluster.do("scale_out_cluster", 2)
    members = cluster.cloud.compute.get_server_group(group.id).member_ids
    assert set(members) == {server.id for server in cluster.servers()}
    cluster.do("detach_policy_from_cluster", policy)
    assert cluster.cloud.compute.find_server_group(group.id) is not None


def test_a_cluster_on_one_switch_and_never_two_in_one_rack(cluster: Cluster) -> None:
    rules = [{"name": "anti-affinity", "scope": "rack"}, {"name": "affinity", "scope": "switch"}]
    cluster.make(0).attach("affinity", "1.1", servergroup={"policies": rules})
    cluster.do("scale_out_cluster", 2)
    racks = {server.compute_host.rpartition("-")[0] for server in cluster.servers()}
    assert len(racks) == 2
    assert len({(rack.partition("-")[0], (int(rack[-1]) - 1) // 2) for rack in racks}) == 1


def test_the_oldest_of_each_zone_go(cluster: Cluster) -> None:
    cluster.make(0).attach("zone_placement", **ZONES)
    cluster.attach("deletion", criteria="OLDEST_FIRST")
    cluster.attach("scaling", event="CLUSTER_SCALE_IN", adjustment={"number": 3})
    for _ in range(2):
        cluster.do("scale_out_cluster", 3)
    newest = {server.id for server in cluster.servers() if int(server.metadata["cluster_node_index"]) > 3}
    cluster.do("scale_in_cluster")
    assert {server.id for server in cluster.servers()} == newest
    assert cluster.zones() == {"zone1": 1, "zone2": 1, "zone3": 1}


def test_a_contradiction_is_refused_at_once(cluster: Cluster) -> None:
    cluster.make(0).attach("zone_placement", **ZONES)
    spec = {"type": "senlin.policy.affinity", "version": "1.0", "properties": {"servergroup": {"policies": "affinity"}}}
    policy = cluster.clustering.create_policy(name="near", spec=spec)
    cluster.undo.insert(0, lambda: cluster.clustering.delete_policy(policy))
    answer = cluster.clustering.attach_policy_to_cluster(cluster.id, policy.id)
    assert "Policy 'near' keeps all servers on one host" in answer["error"]["message"]
    assert "policy 'zone_placement' spreads servers over zones" in answer["error"]["message"]


def test_a_region_takes_no_more_than_its_cap(cluster: Cluster) -> None:
    cluster.make(0).attach("region_placement", regions=[{"name": "RegionOne", "cap": 3}])
    action = cluster.do("scale_out_cluster", 3)
    assert cluster.data(action)["creation"]["regions"] == {"RegionOne": 3}
    first = {server.id for server in cluster.servers()}
    assert len(first) == 3
    answer = cluster.clustering.scale_out_cluster(cluster.id, 1)
    assert cluster.until(lambda: cluster.ended(answer["action"])).status == "FAILED"
    assert {server.id for server in cluster.servers()} == first
    cluster.do("scale_in_cluster", 2)
    assert len(cluster.servers()) == 1


def test_an_update_goes_through_a_cluster_in_batches(cluster: Cluster) -> None:
    cluster.make(4).attach("batch", min_in_service=2, max_batch_size=2, pause_time=1)
    before = {server.id for server in cluster.servers()}
    spec = {"type": "os.nova.server", "version": "1.0", "properties": {**SERVER, "flavor": "2"}}
    larger = cluster.clustering.create_profile(name="larger", spec=spec)
    cluster.undo.insert(0, lambda: cluster.clustering.delete_profile(larger))
    cluster.clustering.update_cluster(cluster.id, profile_id=larger.id)
    [update] = cluster.clustering.actions(target=cluster.id, action="CLUSTER_UPDATE")
    action = cluster.until(lambda: cluster.ended(update.id))
    assert action.status == "SUCCEEDED", action.status_reason
    batches = cluster.data(action)["update"]["plan"]
    assert [len(batch) for batch in batches] == [2, 2]
    ends = [_ended_at(cluster, batch) for batch in batches]
    assert min(ends[1]) - max(ends[0]) >= 1.0
    servers = cluster.servers()
    assert {server.id for server in servers} == before
    assert {server.flavor["original_name"] for server in servers} == {"m1.small"}


def _ended_at(cluster: Cluster, nodes: list[str]) -> list[float]:
    """When the updates of some nodes ended, in seconds."""
    found = [cluster.clustering.actions(target=node, action="NODE_UPDATE") for node in nodes]
    return [float(each.end_at) for each in (next(iter(actions)) for actions in found)]


@contextmanager
def answering(host: str, port: int, name: str) -> Iterator[None]:
    """Something that says its name on each connection."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.sendall(name.encode())

    with socketserver.TCPServer((host, port), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield
        server.shutdown()


def heard(address: str, port: int) -> set[str]:
    """Who answers at an address."""
    names = set()
    for _ in range(6):
        try:
            with socket.create_connection((address, port), timeout=2) as connection:
                names.add(connection.recv(100).decode())
        except OSError:
            names.add("")
    return names


def test_a_connection_to_the_address_of_a_load_balancer_reaches_the_servers(cluster: Cluster) -> None:
    cluster.make(1, metadata={"roost.address": "127.1.9.{index}"})
    pool = {"subnet": "private", "protocol": "TCP", "protocol_port": 18093}
    vip = {"subnet": "private", "protocol": "TCP", "protocol_port": 18090}
    cluster.attach("loadbalance", "1.3", pool=pool, vip=vip)
    [balancer] = cluster.clustering.get_cluster(cluster.id).data["loadbalancers"].values()
    address = balancer["vip_address"]
    with answering("127.1.9.1", 18093, "first"), answering("127.1.9.2", 18093, "second"):
        cluster.until(lambda: heard(address, 18090) == {"first"}, 10)
        cluster.do("scale_out_cluster", 1)
        cluster.until(lambda: heard(address, 18090) == {"first", "second"}, 10)
        cluster.do("scale_in_cluster", 1)
        [left] = cluster.servers()
        name = {"1": "first", "2": "second"}[left.metadata["cluster_node_index"]]
        cluster.until(lambda: heard(address, 18090) == {name}, 10)


def test_servers_that_fall_ill_behind_its_back_are_made_anew_in_their_zones(cluster: Cluster) -> None:
    cluster.make(0).attach("zone_placement", **ZONES)
    cluster.do("scale_out_cluster", 3)
    modes = [{"type": "NODE_STATUS_POLLING"}]
    detection = {"interval": 1, "node_update_timeout": 0, "detection_modes": modes}
    cluster.attach("health", "1.2", detection=detection, recovery={"actions": [{"name": "RECREATE"}]})
    stopped, deleted, well = cluster.servers()
    cluster.cloud.compute.stop_server(stopped.id)
    cluster.cloud.compute.delete_server(deleted.id)
    cluster.until(lambda: _well(cluster, without={stopped.id, deleted.id}), 20)
    assert well.id in {server.id for server in cluster.servers()}
    assert cluster.zones() == {"zone1": 1, "zone2": 1, "zone3": 1}


def _well(cluster: Cluster, without: set[str]) -> bool:
    servers = cluster.servers()
    return (
        len(servers) == 3
        and not without & {server.id for server in servers}
        and {server.status for server in servers} == {"ACTIVE"}
    )
