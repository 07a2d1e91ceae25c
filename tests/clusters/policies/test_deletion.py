"""The deletion policy: who goes, from where, and in what manner."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from roost.clusters.policies.base import (
    NodeView,
)
from roost.clusters.spec import InvalidSpec
from roost.clusters.states import ActionName
from roost.policies.memory import MemoryCloud
from tests.clusters.builders import NOW, PROFILE, SETTINGS, action, before, cluster, node, nodes, policy

OLDER = PROFILE._replace(id="profile-0", created_at=NOW - timedelta(days=9))
MEMBERS = (
    node("young", age=10, index=1),
    node("old", age=30, index=2, profile="profile-1"),
    node("middle", age=20, index=3, profile="profile-0"),
)


async def candidates(criteria: str, members: tuple[NodeView, ...], count: int, **more: Any) -> list[str]:
    view = action(
        ActionName.CLUSTER_SCALE_IN,
        cluster(*members, profiles={"profile-0": OLDER, "profile-1": PROFILE}),
        inputs={"count": count},
        **more,
    )
    found = await before(policy("deletion-1.0", {"criteria": criteria}), view)
    chosen: list[str] = found["deletion"]["candidates"]
    return chosen


async def test_the_data_is_as_documented() -> None:
    view = action(ActionName.CLUSTER_SCALE_IN, cluster(*MEMBERS), inputs={"count": 2})
    properties = {
        "criteria": "OLDEST_FIRST",
        "grace_period": 60,
        "reduce_desired_capacity": False,
        "destroy_after_deletion": False,
    }
    assert await before(policy("deletion-1.0", properties), view) == {
        "status": "OK",
        "reason": "Candidates generated",
        "deletion": {
            "count": 2,
            "candidates": ["old", "middle"],
            "destroy_after_deletion": False,
            "grace_period": 60,
            "reduce_desired_capacity": False,
        },
    }


@pytest.mark.parametrize(
    ("criteria", "expected"),
    [
        ("OLDEST_FIRST", ["old", "middle", "young"]),
        ("YOUNGEST_FIRST", ["young", "middle", "old"]),
        ("OLDEST_PROFILE_FIRST", ["middle", "old", "young"]),
    ],
)
async def test_the_criteria(criteria: str, expected: list[str]) -> None:
    assert await candidates(criteria, MEMBERS, 3) == expected


async def test_random_is_random_and_yet_the_same_when_the_plan_is_made_again() -> None:
    members = tuple(node(str(at), index=at) for at in range(50))
    first = await candidates("RANDOM", members, 10)
    assert await candidates("RANDOM", members, 10) == first
    view = action(ActionName.CLUSTER_SCALE_IN, cluster(*members), inputs={"count": 10})
    view.id = "another"
    found = await before(policy("deletion-1.0", {}), view)
    assert found["deletion"]["candidates"] != first
    assert len(set(first)) == 10


@pytest.mark.parametrize("criteria", ["OLDEST_FIRST", "YOUNGEST_FIRST", "OLDEST_PROFILE_FIRST", "RANDOM"])
async def test_the_unhealthy_and_those_that_never_came_up_go_first(criteria: str) -> None:
    members = (
        *MEMBERS,
        node("unborn", born=False),
        node("error", status="ERROR"),
        node("tainted", tainted=True, age=99),
        node("warning", status="WARNING"),
    )
    chosen = await candidates(criteria, members, 4)
    assert set(chosen[:3]) == {"error", "tainted", "warning"}
    assert chosen[3] == "unborn"


async def test_the_oldest_in_each_zone_in_the_numbers_of_the_plan() -> None:
    members = tuple(nodes(nova_1=3, nova_2=3))
    data = {"deletion": {"count": 3, "zones": {"nova-1": 2, "nova-2": 1}}}
    view = action(ActionName.CLUSTER_SCALE_IN, cluster(*members), data=data)
    found = await before(policy("deletion-1.0", {"criteria": "OLDEST_FIRST"}), view)
    assert found["deletion"]["candidates"] == ["nova-1.0", "nova-1.1", "nova-2.0"]
    assert found["deletion"]["zones"] == {"nova-1": 2, "nova-2": 1}


async def test_the_oldest_in_each_region() -> None:
    members = (node("a", region="one", age=2), node("b", region="one", age=1), node("c", region="two", age=9))
    data = {"deletion": {"count": 2, "regions": {"one": 1, "two": 1}}}
    assert await candidates("OLDEST_FIRST", members, 0, data=data) == ["a", "c"]


async def test_with_regions_and_zones_the_regions_are_exact() -> None:
    members = (
        node("a", region="one", zone="x", age=9),
        node("b", region="one", zone="y", age=8),
        node("c", region="two", zone="x", age=7),
        node("d", region="two", zone="y", age=6),
    )
    data = {"deletion": {"count": 2, "regions": {"one": 1, "two": 1}, "zones": {"x": 1, "y": 1}}}
    assert await candidates("OLDEST_FIRST", members, 0, data=data) == ["a", "d"]
    data = {"deletion": {"count": 2, "regions": {"one": 2}, "zones": {"x": 2}}}
    assert await candidates("OLDEST_FIRST", members, 0, data=data) == ["a", "b"]


async def test_no_more_than_there_are() -> None:
    assert len(await candidates("RANDOM", MEMBERS, 99)) == 3


@pytest.mark.parametrize(
    ("name", "more"),
    [
        (ActionName.NODE_DELETE, {"node": MEMBERS[0]}),
        (ActionName.CLUSTER_DEL_NODES, {"inputs": {"candidates": ["young"]}}),
    ],
)
async def test_nodes_that_the_request_names_are_taken_as_they_are(name: str, more: dict[str, Any]) -> None:
    view = action(name, cluster(*MEMBERS), **more)
    found = await before(policy("deletion-1.1", {"criteria": "OLDEST_FIRST"}), view)
    assert found["deletion"]["candidates"] == ["young"]
    assert found["deletion"]["count"] == 1


async def test_a_request_that_says_whether_nodes_are_destroyed_is_followed() -> None:
    inputs = {"candidates": ["young"], "destroy_after_deletion": False}
    view = action(ActionName.CLUSTER_DEL_NODES, cluster(*MEMBERS), inputs=inputs)
    found = await before(policy("deletion-1.1", {"destroy_after_deletion": True}), view)
    assert found["deletion"]["destroy_after_deletion"] is False


@pytest.mark.parametrize(("number", "expected"), [(-2, ["old", "middle"]), (2, None), (0, None)])
async def test_a_resize_concerns_it_only_when_nodes_go(number: int, expected: list[str] | None) -> None:
    inputs = {"adjustment_type": "CHANGE_IN_CAPACITY", "number": number}
    view = action(ActionName.CLUSTER_RESIZE, cluster(*MEMBERS), inputs=inputs)
    found = await before(policy("deletion-1.0", {"criteria": "OLDEST_FIRST"}), view)
    assert found.get("deletion", {}).get("candidates") == expected
    assert view.refusal is None


async def test_a_resize_that_cannot_be_done_is_refused() -> None:
    inputs = {"adjustment_type": "EXACT_CAPACITY", "number": 0, "strict": True}
    view = action(ActionName.CLUSTER_RESIZE, cluster(*MEMBERS, min_size=1), inputs=inputs)
    await before(policy("deletion-1.0", {}), view)
    assert view.refusal == "The target capacity (0) is less than the cluster's min_size (1)."


async def test_hooks_are_passed_on() -> None:
    hooks = {"type": "zaqar", "timeout": 300, "params": {"queue": "test_queue"}}
    view = action(ActionName.CLUSTER_SCALE_IN, cluster(*MEMBERS))
    found = await before(policy("deletion-1.1", {"hooks": hooks}), view)
    assert found["hooks"] == {"type": "zaqar", "timeout": 300, "params": {"queue": "test_queue", "url": ""}}
    assert "hooks" not in await before(
        policy("deletion-1.1", {}), action(ActionName.CLUSTER_SCALE_IN, cluster(*MEMBERS))
    )


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        (
            {"criteria": "FATTEST"},
            "'FATTEST' must be one of the allowed values: OLDEST_FIRST, OLDEST_PROFILE_FIRST, YOUNGEST_FIRST, RANDOM",
        ),
        ({"grace_period": -1}, "The 'grace_period' must be >= 0."),
        ({"hooks": {"timeout": -1}}, "The 'timeout' for 'hooks' must be >= 0."),
        ({"hooks": {"type": "webhook"}}, "A hook of type 'webhook' needs a 'url' in its 'params'."),
    ],
)
def test_specs_that_make_no_sense_are_refused(properties: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        policy("deletion-1.1", properties)
    assert caught.value.message == message


async def test_a_webhook_into_the_operators_own_network_is_refused() -> None:
    hooks = {"type": "webhook", "params": {"url": "http://10.0.0.1/hook"}}
    asked = policy("deletion-1.1", {"hooks": hooks})
    assert str(await asked.validate(MemoryCloud(), SETTINGS.clusters)).startswith("The URL 'http://10.0.0.1/hook'")
    allowed = replace(SETTINGS.clusters, private_urls=True)
    assert await asked.validate(MemoryCloud(), allowed) is None
