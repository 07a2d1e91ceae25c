"""The load balance policy: nodes join the pool when they come and leave it before they go."""

from typing import Any

import pytest

from roost.clusters.spec import InvalidSpec
from roost.clusters.states import ActionName
from roost.policies.memory import MemoryCloud
from tests.clusters.builders import SETTINGS, action, after, attach, before, cluster, detach, node, policy

SPEC: dict[str, Any] = {
    "pool": {"subnet": "private-subnet", "protocol_port": 8080},
    "vip": {"subnet": "private-subnet"},
}
BALANCE = policy("loadbalance-1.3", SPEC)
DATA = {"loadbalancer": "lb-0", "listener": "listener-0", "pool": "pool-0", "healthmonitor": None}
BINDING = {"LoadBalancingPolicy": {"version": 1.3, "data": {**DATA, "vip_address": "192.0.2.7"}}}
MEMBERS = [node(name, lb_member=f"member-of-server-{name}") for name in "abc"]


def cloud(**more: Any) -> MemoryCloud:
    return MemoryCloud(balancers={"pool-0": {f"member-of-server-{name}": f"server-{name}" for name in "abc"}}, **more)


async def test_attach_makes_a_load_balancer_and_puts_all_nodes_into_it() -> None:
    empty = MemoryCloud()
    view = action(ActionName.CLUSTER_ATTACH_POLICY, cluster(node("a"), node("b"), node("unmade", physical=None)), empty)
    assert await attach(BALANCE, view) == (True, BINDING)
    assert empty.balancers == {
        "pool-0": {"member-of-server-a": "server-a", "member-of-server-b": "server-b"},
    }
    assert view.effects.cluster_data == {"loadbalancers": {BALANCE.id: {"vip_address": "192.0.2.7"}}}
    assert view.effects.node_data["a"]["lb_member"] == "member-of-server-a"


async def test_attach_leaves_nothing_behind_when_a_node_cannot_be_added() -> None:
    empty = MemoryCloud(broken={"server-b"})
    view = action(ActionName.CLUSTER_ATTACH_POLICY, cluster(node("a"), node("b")), empty)
    assert await attach(BALANCE, view) == (False, "Failed in adding node into lb pool")
    assert empty.balancers == {}
    assert view.effects.node_data == {}


async def test_attach_says_why_no_load_balancer_could_be_made() -> None:
    view = action(ActionName.CLUSTER_ATTACH_POLICY, cluster(), MemoryCloud(broken={"balancers"}))
    assert await attach(BALANCE, view) == (
        False,
        "Failed in creating a load balancer: balancers does not answer",
    )


async def test_detach_deletes_the_load_balancer() -> None:
    full = cloud()
    view = action(ActionName.CLUSTER_DETACH_POLICY, cluster(*MEMBERS, data={"loadbalancers": {BALANCE.id: {}}}), full)
    view.binding = BINDING
    assert await detach(BALANCE, view) == (True, "LB resources deletion succeeded.")
    assert full.balancers == {}
    assert view.effects.cluster_data == {"loadbalancers": None}
    assert view.effects.node_data == {name: {"lb_member": None} for name in "abc"}


async def test_a_load_balancer_that_was_there_before_stays() -> None:
    existing = {**SPEC, "loadbalancer": "lb-9", "pool": {**SPEC["pool"], "id": "pool-9"}}
    asked, theirs = policy("loadbalance-1.3", existing), MemoryCloud()
    view = action(ActionName.CLUSTER_ATTACH_POLICY, cluster(node("a")), theirs)
    ok, binding = await attach(asked, view)
    assert ok
    assert binding["LoadBalancingPolicy"]["data"]["preexisting"] is True
    assert theirs.balancers == {"pool-9": {"member-of-server-a": "server-a"}}

    member = node("a", lb_member="member-of-server-a")
    view = action(ActionName.CLUSTER_DETACH_POLICY, cluster(member), theirs)
    view.binding = binding
    assert (await detach(asked, view))[0]
    assert theirs.balancers == {"pool-9": {}}


@pytest.mark.parametrize(
    ("name", "more", "left"),
    [
        (ActionName.CLUSTER_SCALE_IN, {"data": {"deletion": {"count": 1, "candidates": ["a"]}}}, "bc"),
        (ActionName.CLUSTER_DEL_NODES, {"inputs": {"candidates": ["a", "b"]}}, "c"),
        (ActionName.CLUSTER_REPLACE_NODES, {"inputs": {"candidates": {"a": "new"}}}, "bc"),
        (ActionName.NODE_DELETE, {"node": MEMBERS[0]}, "bc"),
        (ActionName.CLUSTER_RESIZE, {"data": {"creation": {"count": 0}, "rebalance": ["c"]}}, "ab"),
        (ActionName.CLUSTER_RESIZE, {"inputs": {"adjustment_type": "CHANGE_IN_CAPACITY", "number": 1}}, "abc"),
    ],
)
async def test_nodes_leave_the_pool_before_they_go(name: str, more: dict[str, Any], left: str) -> None:
    full = cloud()
    view = action(name, cluster(*MEMBERS), full, **more)
    view.binding = BINDING
    await before(BALANCE, view)
    assert view.refusal is None
    assert sorted(full.balancers["pool-0"].values()) == [f"server-{letter}" for letter in left]
    assert {key: value["lb_member"] for key, value in view.effects.node_data.items()} == {
        letter: None for letter in "abc" if letter not in left
    }


async def test_where_no_policy_chose_victims_it_chooses_them() -> None:
    full = cloud()
    view = action(ActionName.CLUSTER_SCALE_IN, cluster(*MEMBERS), full, {"count": 2})
    view.binding = BINDING
    found = await before(BALANCE, view)
    assert found["deletion"]["count"] == 2
    gone = {f"server-{name}" for name in found["deletion"]["candidates"]}
    assert set(full.balancers["pool-0"].values()) == {"server-a", "server-b", "server-c"} - gone


async def test_nothing_leaves_the_pool_for_a_request_that_will_be_refused() -> None:
    full = cloud()
    view = action(ActionName.CLUSTER_SCALE_IN, cluster(*MEMBERS, min_size=3), full)
    view.binding = BINDING
    await before(BALANCE, view)
    assert len(full.balancers["pool-0"]) == 3


async def test_with_hooks_nodes_leave_when_their_turn_comes() -> None:
    full = cloud()
    data = {"hooks": {"timeout": 9}, "deletion": {"count": 1, "candidates": ["a"]}}
    view = action(ActionName.CLUSTER_SCALE_IN, cluster(*MEMBERS), full, data=data)
    view.binding = BINDING
    await before(BALANCE, view)
    assert len(full.balancers["pool-0"]) == 3
    view = action(ActionName.NODE_DELETE, cluster(*MEMBERS), full, data={"hooks": {"timeout": 9}}, node=MEMBERS[0])
    view.binding = BINDING
    await before(BALANCE, view)
    assert len(full.balancers["pool-0"]) == 2


async def test_a_node_that_cannot_leave_the_pool_stops_the_action() -> None:
    view = action(ActionName.NODE_DELETE, cluster(*MEMBERS), cloud(broken={"member-of-server-a"}), node=MEMBERS[0])
    view.binding = BINDING
    await before(BALANCE, view)
    assert view.refusal == "Failed in removing deleted node(s) from lb pool: ['a']"
    assert view.effects.node_warnings == {
        "a": "Failed in removing node from lb pool: member-of-server-a does not answer"
    }


@pytest.mark.parametrize(
    ("name", "more"),
    [
        (ActionName.CLUSTER_SCALE_OUT, {"data": {"creation": {"count": 1, "nodes": ["new"]}}}),
        (ActionName.CLUSTER_ADD_NODES, {"inputs": {"nodes": ["new"]}}),
        (ActionName.CLUSTER_REPLACE_NODES, {"inputs": {"candidates": {"x": "new"}}}),
        (ActionName.NODE_CREATE, {"node": node("new")}),
        (ActionName.NODE_RECOVER, {"node": node("new")}),
        (ActionName.CLUSTER_RECOVER, {}),
    ],
)
async def test_nodes_join_the_pool_when_they_have_come(name: str, more: dict[str, Any]) -> None:
    full = cloud()
    view = action(name, cluster(*MEMBERS, node("new")), full, **more)
    view.binding = BINDING
    await after(BALANCE, view)
    assert full.balancers["pool-0"]["member-of-server-new"] == "server-new"
    assert view.effects.node_data["new"]["lb_member"] == "member-of-server-new"


async def test_a_server_that_was_made_anew_is_another_member() -> None:
    full = cloud()
    again = node("a", lb_member="member-of-server-a", recovery="RECREATE", physical="server-a2")
    view = action(ActionName.NODE_RECOVER, cluster(again, *MEMBERS[1:]), full, node=again)
    view.binding = BINDING
    await after(BALANCE, view)
    assert sorted(full.balancers["pool-0"].values()) == ["server-a2", "server-b", "server-c"]
    assert view.effects.node_data["a"] == {"lb_member": "member-of-server-a2", "recovery": None}


async def test_a_server_that_was_rebooted_is_the_same_member() -> None:
    full = cloud()
    again = node("a", lb_member="member-of-server-a", recovery="REBOOT")
    view = action(ActionName.NODE_RECOVER, cluster(again, *MEMBERS[1:]), full, node=again)
    view.binding = BINDING
    await after(BALANCE, view)
    assert view.effects.node_data == {}


async def test_a_node_that_cannot_join_is_told() -> None:
    view = action(ActionName.NODE_CREATE, cluster(), cloud(broken={"server-new"}), node=node("new"))
    view.binding = BINDING
    await after(BALANCE, view)
    assert view.refusal == "Failed in adding nodes into lb pool: ['new']"


async def test_after_a_failure_nothing_joins() -> None:
    full = cloud()
    view = action(ActionName.NODE_CREATE, cluster(), full, node=node("new"), succeeded=False)
    await after(BALANCE, view)
    assert len(full.balancers["pool-0"]) == 3


async def test_a_network_that_the_cloud_does_not_have_is_refused() -> None:
    asked = policy("loadbalance-1.1", {**SPEC, "vip": {"network": "mars"}})
    assert await asked.validate(cloud(), SETTINGS.clusters) == "The specified network 'mars' could not be found."
    assert await BALANCE.validate(cloud(), SETTINGS.clusters) is None


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"vip": {"subnet": "x"}}, "Required spec item 'pool' not provided"),
        ({"pool": {}, "vip": {"subnet": "x"}}, "Required spec item 'subnet' not provided"),
        ({**SPEC, "vip": {}}, "At least one of VIP Subnet or Network must be defined."),
        ({**SPEC, "loadbalancer": "lb"}, "With a 'loadbalancer' that exists, the 'id' of its 'pool' is needed."),
        (
            {**SPEC, "vip": {"subnet": "x", "protocol_port": 0}},
            "The 'protocol_port' of 'vip' must be between 1 and 65535.",
        ),
    ],
)
def test_specs_that_make_no_sense_are_refused(properties: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        policy("loadbalance-1.1", properties)
    assert caught.value.message == message
