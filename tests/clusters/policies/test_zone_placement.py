"""The zone placement policy, scenario by scenario of its document, with the document's own JSON."""

from typing import Any

import pytest

from roost.clusters.policies.base import (
    Policy,
)
from roost.clusters.spec import InvalidSpec
from roost.clusters.states import ActionName
from roost.policies.memory import MemoryCloud
from tests.clusters.builders import SETTINGS, action, before, cluster, node, nodes, pinned, policy

NO_ZONE = {"status": "ERROR", "reason": "No availability zone found available."}
NO_PLAN = {"status": "ERROR", "reason": "There is no feasible plan to handle all nodes."}
THREE_GO = {"status": "OK", "deletion": {"count": 3, "zones": {"nova-1": 2, "nova-2": 1}}}
THREE_COME = {"status": "OK", "creation": {"count": 3, "zones": {"nova-1": 1, "nova-2": 2}}}


def zones(version: str = "1.0", **weights: int) -> Policy:
    listed = [{"name": name.replace("_", "-"), "weight": weight} for name, weight in weights.items()]
    return policy(f"zone_placement-{version}", {"zones": listed})


EQUAL = zones(nova_1=100, nova_2=100)


# S1: CLUSTER_SCALE_IN


@pytest.mark.parametrize(
    ("inputs", "data"),
    [
        ({"count": 3}, {}),
        ({"count": "3"}, {}),
        ({"count": 1}, {"deletion": {"count": 3}}),
    ],
)
async def test_s1_the_count_is_another_policys_or_the_inputs(inputs: dict[str, Any], data: dict[str, Any]) -> None:
    view = action(ActionName.CLUSTER_SCALE_IN, cluster(*nodes(nova_1=4, nova_2=3)), inputs=inputs, data=data)
    assert await before(EQUAL, view) == THREE_GO


@pytest.mark.parametrize(("inputs", "data"), [({}, {}), ({"count": 5}, {"deletion": {}})])
async def test_s1_the_count_is_one_where_nobody_says(inputs: dict[str, Any], data: dict[str, Any]) -> None:
    view = action(ActionName.CLUSTER_SCALE_IN, cluster(*nodes(nova_1=2, nova_2=3)), inputs=inputs, data=data)
    assert await before(EQUAL, view) == {"status": "OK", "deletion": {"count": 1, "zones": {"nova-2": 1}}}


async def test_s1_without_a_zone_that_is_available_the_check_fails() -> None:
    cloud = MemoryCloud(zones={"nova-1": False, "nova-3": True})
    assert await before(EQUAL, action(ActionName.CLUSTER_SCALE_IN, cluster(*nodes(nova_1=2)), cloud)) == NO_ZONE


async def test_s1_more_nodes_than_there_are_have_no_plan() -> None:
    view = action(ActionName.CLUSTER_SCALE_IN, cluster(*nodes(nova_1=1, nova_2=1)), inputs={"count": 3})
    assert await before(EQUAL, view) == NO_PLAN


async def test_s1_nodes_outside_the_zones_go_first() -> None:
    members = [*nodes(nova_1=1, mars=2), node("lost")]
    view = action(ActionName.CLUSTER_SCALE_IN, cluster(*members), inputs={"count": 3})
    assert (await before(EQUAL, view))["deletion"]["zones"] == {"": 1, "mars": 2}


# S2: CLUSTER_SCALE_OUT


@pytest.mark.parametrize(
    ("inputs", "data"),
    [
        ({"count": 3}, {}),
        ({"count": 1}, {"creation": {"count": 3}}),
    ],
)
async def test_s2_new_nodes_go_where_there_are_fewest(inputs: dict[str, Any], data: dict[str, Any]) -> None:
    view = action(ActionName.CLUSTER_SCALE_OUT, cluster(*nodes(nova_1=2, nova_2=1)), inputs=inputs, data=data)
    assert await before(EQUAL, view) == THREE_COME


@pytest.mark.parametrize(("inputs", "data"), [({}, {}), ({"count": None}, {}), ({"count": 5}, {"creation": {}})])
async def test_s2_the_count_is_one_where_nobody_says(inputs: dict[str, Any], data: dict[str, Any]) -> None:
    view = action(ActionName.CLUSTER_SCALE_OUT, cluster(*nodes(nova_1=2, nova_2=1)), inputs=inputs, data=data)
    assert await before(EQUAL, view) == {"status": "OK", "creation": {"count": 1, "zones": {"nova-2": 1}}}


async def test_s2_without_a_zone_that_is_available_the_check_fails() -> None:
    assert await before(EQUAL, action(ActionName.CLUSTER_SCALE_OUT, cluster(), MemoryCloud(zones={}))) == NO_ZONE


async def test_s2_zones_that_are_not_available_get_nothing() -> None:
    cloud = MemoryCloud(zones={"nova-1": False, "nova-2": True})
    view = action(ActionName.CLUSTER_SCALE_OUT, cluster(), cloud, {"count": 2})
    assert (await before(EQUAL, view))["creation"]["zones"] == {"nova-2": 2}


async def test_s2_weights_decide() -> None:
    view = action(ActionName.CLUSTER_SCALE_OUT, cluster(), inputs={"count": 8})
    assert (await before(zones(nova_1=100, nova_2=300), view))["creation"]["zones"] == {"nova-1": 2, "nova-2": 6}


@pytest.mark.parametrize("count", ["many", -1])
async def test_a_count_that_is_none_is_refused(count: object) -> None:
    view = action(ActionName.CLUSTER_SCALE_OUT, cluster(), inputs={"count": count})
    await before(EQUAL, view)
    assert view.refusal == f"Invalid count ({count}) for action 'CLUSTER_SCALE_OUT'."


# S3: CLUSTER_RESIZE


@pytest.mark.parametrize(
    ("inputs", "data"),
    [
        ({"adjustment_type": "EXACT_CAPACITY", "number": 6}, {}),
        ({"adjustment_type": "EXACT_CAPACITY", "number": "6"}, {}),
        ({}, {"creation": {"count": 3}}),
        ({}, {"creation": {"count": 3}, "deletion": {"count": 1}}),
    ],
)
async def test_s3_growing_is_as_scaling_out(inputs: dict[str, Any], data: dict[str, Any]) -> None:
    view = action(ActionName.CLUSTER_RESIZE, cluster(*nodes(nova_1=2, nova_2=1)), inputs=inputs, data=data)
    found = await before(EQUAL, view)
    assert {key: found[key] for key in ("status", "creation")} == THREE_COME


@pytest.mark.parametrize(
    ("inputs", "data"),
    [
        ({"adjustment_type": "CHANGE_IN_CAPACITY", "number": -3}, {}),
        ({}, {"deletion": {"count": 3}}),
    ],
)
async def test_s3_shrinking_is_as_scaling_in(inputs: dict[str, Any], data: dict[str, Any]) -> None:
    view = action(ActionName.CLUSTER_RESIZE, cluster(*nodes(nova_1=4, nova_2=3)), inputs=inputs, data=data)
    assert await before(EQUAL, view) == THREE_GO


async def test_s3_the_error_of_the_parser_is_the_reason() -> None:
    inputs = {"adjustment_type": "EXACT_CAPACITY", "number": 9, "strict": True}
    view = action(ActionName.CLUSTER_RESIZE, cluster(max_size=5), inputs=inputs)
    assert await before(EQUAL, view) == {
        "status": "ERROR",
        "reason": "The target capacity (9) is greater than the cluster's max_size (5).",
    }


@pytest.mark.parametrize("inputs", [{"min_size": "x"}, {"adjustment_type": "EXACT_CAPACITY", "number": "x"}])
async def test_s3_inputs_that_are_no_numbers_are_refused(inputs: dict[str, Any]) -> None:
    view = action(ActionName.CLUSTER_RESIZE, cluster(), inputs=inputs)
    await before(EQUAL, view)
    assert view.refusal is not None
    assert view.refusal.startswith("The inputs of the resize cannot be understood: ")


# S4: NODE_CREATE


async def test_s4_a_node_goes_where_it_is_needed() -> None:
    view = action(ActionName.NODE_CREATE, cluster(*nodes(nova_1=2, nova_2=1)), node=node("new", physical=None))
    assert await before(EQUAL, view) == {"status": "OK", "creation": {"count": 1, "zones": {"nova-2": 1}}}


async def test_s4_a_node_that_is_a_member_already_does_not_count_as_one() -> None:
    new = node("new", physical=None)
    view = action(ActionName.NODE_CREATE, cluster(*nodes(nova_1=1, nova_2=2), new), node=new)
    assert (await before(EQUAL, view))["creation"]["zones"] == {"nova-1": 1}


async def test_s4_the_zone_of_the_profile_comes_first() -> None:
    view = action(ActionName.NODE_CREATE, cluster(profile=pinned(availability_zone="nova-1")), node=node("new"))
    assert await before(EQUAL, view) == {}
    view = action(ActionName.NODE_CREATE, cluster(), node=node("new"), node_profile=pinned(availability_zone="nova-1"))
    assert await before(EQUAL, view) == {}


# Beyond the document


async def test_the_nodes_of_a_new_cluster_are_spread() -> None:
    view = action(ActionName.CLUSTER_CREATE, cluster(desired_capacity=5))
    assert (await before(EQUAL, view))["creation"] == {"count": 5, "zones": {"nova-1": 3, "nova-2": 2}}


async def test_a_node_that_is_recreated_may_move_to_where_it_is_needed() -> None:
    ill = node("ill", zone="nova-1", status="ERROR")
    members = [*nodes(nova_1=2, nova_2=1), ill]
    for name, own in ((ActionName.CLUSTER_RECOVER, None), (ActionName.NODE_RECOVER, ill)):
        view = action(name, cluster(*members), node=own)
        assert (await before(EQUAL, view))["creation"] == {"count": 1, "zones": {"nova-2": 1}}


async def test_a_node_that_is_rebooted_stays() -> None:
    ill = node("ill", zone="nova-1", status="ERROR")
    view = action(ActionName.NODE_RECOVER, cluster(ill), inputs={"operation": [{"name": "REBOOT"}]}, node=ill)
    assert await before(EQUAL, view) == {}


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({}, "Required spec item 'zones' not provided"),
        ({"zones": []}, "At least one zone has to be named in 'zones'."),
        ({"zones": [{"weight": 1}]}, "Required spec item 'name' not provided"),
        ({"zones": [{"name": "a"}, {"name": "a"}]}, "The zone 'a' is named more than once."),
        ({"zones": [{"name": "a", "weight": 0}]}, "The 'weight' of zone 'a' must be > 0."),
        ({"zones": [{"name": "a", "cap": 1}]}, "cap (min_version=1.1) is not supported by spec version 1.0."),
    ],
)
def test_specs_that_make_no_sense_are_refused(properties: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        policy("zone_placement-1.0", properties)
    assert caught.value.message == message


async def test_zones_that_the_cloud_does_not_have_are_refused() -> None:
    problem = await zones(nova_1=1, bad1=1).validate(MemoryCloud(), SETTINGS.clusters)
    assert problem == "The specified name '['bad1']' could not be found."


# 1.1: minimums, caps and rebalance


def bounded(*, rebalance: bool = False, budget: int = 1, **bounds: dict[str, int]) -> Policy:
    listed = [{"name": name.replace("_", "-"), **more} for name, more in bounds.items()]
    properties = {"zones": listed, "rebalance": rebalance, "rebalance_budget": budget}
    return policy("zone_placement-1.1", properties)


async def test_version_1_1_fills_minimums_first_and_stops_at_caps() -> None:
    spread = bounded(nova_1={"cap": 2}, nova_2={"weight": 1, "minimum": 3})
    view = action(ActionName.CLUSTER_SCALE_OUT, cluster(), inputs={"count": 3})
    assert (await before(spread, view))["creation"]["zones"] == {"nova-2": 3}
    view = action(ActionName.CLUSTER_SCALE_OUT, cluster(), inputs={"count": 7})
    assert (await before(spread, view))["creation"]["zones"] == {"nova-1": 2, "nova-2": 5}


async def test_version_1_1_has_no_plan_beyond_the_caps() -> None:
    view = action(ActionName.CLUSTER_SCALE_OUT, cluster(), inputs={"count": 5})
    assert await before(bounded(nova_1={"cap": 2}, nova_2={"cap": 2}), view) == NO_PLAN


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"minimum": -1}, "The 'minimum' of zone 'a' must be >= 0."),
        ({"minimum": 3, "cap": 2}, "The 'cap' of zone 'a' is less than its 'minimum'."),
    ],
)
def test_version_1_1_refuses_bounds_that_make_no_sense(bounds: dict[str, int], message: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        bounded(a=bounds)
    assert caught.value.message == message


@pytest.mark.parametrize("name", [ActionName.CLUSTER_RECOVER, ActionName.CLUSTER_RESIZE])
async def test_rebalance_moves_the_oldest_of_the_fullest_zone_within_the_budget(name: str) -> None:
    members = nodes(nova_1=5, nova_2=1)
    view = action(name, cluster(*members))
    found = await before(bounded(rebalance=True, nova_1={}, nova_2={}), view)
    assert found["rebalance"] == ["nova-1.0"]
    assert found["creation"] == {"count": 0, "zones": {"nova-2": 1}}
    view = action(name, cluster(*members))
    found = await before(bounded(rebalance=True, budget=9, nova_1={}, nova_2={}), view)
    assert found["rebalance"] == ["nova-1.0", "nova-1.1"]


async def test_rebalance_leaves_a_cluster_alone_that_is_as_near_as_it_can_be() -> None:
    view = action(ActionName.CLUSTER_RECOVER, cluster(*nodes(nova_1=2, nova_2=3)))
    assert await before(bounded(rebalance=True, budget=9, nova_1={}, nova_2={}), view) == {}


async def test_rebalance_empties_zones_that_are_not_named_and_heeds_bounds() -> None:
    members = nodes(mars=2, nova_1=3)
    spread = bounded(rebalance=True, budget=9, nova_1={"cap": 2}, nova_2={"weight": 1})
    found = await before(spread, action(ActionName.CLUSTER_RECOVER, cluster(*members)))
    assert sorted(found["rebalance"]) == ["mars.0", "mars.1", "nova-1.0"]
    assert found["creation"]["zones"] == {"nova-2": 3}


async def test_rebalance_happens_only_where_it_is_asked_for() -> None:
    members = nodes(nova_1=5, nova_2=1)
    assert await before(bounded(nova_1={}, nova_2={}), action(ActionName.CLUSTER_RECOVER, cluster(*members))) == {}
    view = action(ActionName.CLUSTER_SCALE_OUT, cluster(*members))
    assert "rebalance" not in await before(bounded(rebalance=True, nova_1={}, nova_2={}), view)
