"""The region placement policy: regions with weights and caps."""

from typing import Any

import pytest

from roost.clusters.policies.base import Policy
from roost.clusters.spec import InvalidSpec
from roost.clusters.states import ActionName
from roost.policies.memory import MemoryCloud
from tests.clusters.builders import SETTINGS, action, before, cluster, node, pinned, policy

CLOUD = MemoryCloud(region_names=["one", "two"])


def regions(**caps: int) -> Policy:
    return policy("region_placement-1.0", {"regions": [{"name": name, "cap": cap} for name, cap in caps.items()]})


async def test_nodes_are_spread_up_to_the_caps() -> None:
    view = action(ActionName.CLUSTER_SCALE_OUT, cluster(node("a", region="one")), CLOUD, {"count": 5})
    assert await before(regions(one=2, two=-1), view) == {
        "status": "OK",
        "creation": {"count": 5, "regions": {"one": 1, "two": 4}},
    }


async def test_scaling_in_keeps_the_balance() -> None:
    members = [node(f"one.{at}", region="one") for at in range(4)] + [node("two.0", region="two")]
    view = action(ActionName.CLUSTER_SCALE_IN, cluster(*members), CLOUD, {"count": 3})
    assert (await before(regions(one=-1, two=-1), view))["deletion"] == {"count": 3, "regions": {"one": 3}}


async def test_beyond_the_caps_there_is_no_plan() -> None:
    view = action(ActionName.CLUSTER_SCALE_OUT, cluster(), CLOUD, {"count": 5})
    await before(regions(one=2, two=2), view)
    assert view.refusal == "There is no feasible plan to handle all nodes."


async def test_without_a_region_that_is_usable_the_check_fails() -> None:
    view = action(ActionName.CLUSTER_SCALE_OUT, cluster(), MemoryCloud(region_names=["three"]))
    await before(regions(one=-1), view)
    assert view.refusal == "No region is found usable."


async def test_the_region_of_a_profile_comes_first() -> None:
    view = action(ActionName.NODE_CREATE, cluster(profile=pinned(context={"region_name": "two"})), CLOUD)
    assert await before(regions(one=-1), view) == {}


async def test_regions_that_the_cloud_does_not_have_are_refused() -> None:
    problem = await regions(one=-1, mars=-1).validate(CLOUD, SETTINGS.clusters)
    assert problem == "The specified regions '['mars']' could not be found."


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({}, "Required spec item 'regions' not provided"),
        ({"regions": []}, "At least one region has to be named in 'regions'."),
        ({"regions": [{"name": "a"}, {"name": "a"}]}, "The region 'a' is named more than once."),
        ({"regions": [{"name": "a", "weight": -1}]}, "The 'weight' of region 'a' must be > 0."),
    ],
)
def test_specs_that_make_no_sense_are_refused(properties: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        policy("region_placement-1.0", properties)
    assert caught.value.message == message
