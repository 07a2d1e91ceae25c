"""The affinity policy, scenario by scenario of its document, with the document's own JSON."""

from typing import Any

import pytest

from roost.clouds.base import CloudGroup, Hypervisor
from roost.clusters.policies import chain
from roost.clusters.policies.affinity import NOT_ADMIN
from roost.clusters.policies.base import (
    BEFORE,
    ActionView,
)
from roost.clusters.spec import InvalidSpec
from roost.clusters.states import ActionName
from roost.placement.rules import Rule
from roost.policies.memory import MemoryCloud
from tests.clusters.builders import (
    SETTINGS,
    action,
    ask_all,
    attach,
    before,
    cluster,
    detach,
    node,
    nodes,
    pinned,
    policy,
)

INHERITED = {"AffinityPolicy": {"version": 1.0, "data": {"servergroup_id": "XYZ-ABCD", "inherited_group": True}}}
TWO_PLACES = {
    "placement": {"count": 2, "placements": [{"servergroup": "XYZ-ABCD"}, {"servergroup": "XYZ-ABCD"}]},
}


def cloud_with_group(policies: tuple[str, ...] = ("anti-affinity",), **more: Any) -> MemoryCloud:
    return MemoryCloud(
        groups={"XYZ-ABCD": CloudGroup("XYZ-ABCD", "my-group", tuple(map(Rule.parse, policies)))}, **more
    )


def bound(view: ActionView) -> ActionView:
    view.binding = INHERITED
    return view


# S1: inheriting the server group from the profile


@pytest.mark.parametrize("group", ["my-group", "XYZ-ABCD"])
async def test_s1_the_group_of_the_profile_is_inherited(group: str) -> None:
    view = action(
        ActionName.CLUSTER_ATTACH_POLICY, cluster(profile=pinned(scheduler_hints={"group": group})), cloud_with_group()
    )
    assert await attach(policy("affinity-1.0", {}), view) == (True, INHERITED)


async def test_s1_a_group_that_does_not_exist_is_an_error() -> None:
    view = action(ActionName.CLUSTER_ATTACH_POLICY, cluster(profile=pinned(scheduler_hints={"group": "gone"})))
    assert await attach(policy("affinity-1.0", {}), view) == (
        False,
        "Failed in retrieving servergroup 'gone': it does not exist.",
    )


async def test_s1_a_group_with_other_rules_is_an_error() -> None:
    view = action(
        ActionName.CLUSTER_ATTACH_POLICY,
        cluster(profile=pinned(scheduler_hints={"group": "my-group"})),
        cloud_with_group(("soft-affinity",)),
    )
    ok, reason = await attach(policy("affinity-1.0", {"servergroup": {"policies": "affinity"}}), view)
    assert (ok, reason) == (
        False,
        "Policies specified (affinity) doesn't match that of the existing servergroup (soft-affinity).",
    )


async def test_s1_profile_and_policy_that_name_different_groups_are_an_error() -> None:
    view = action(
        ActionName.CLUSTER_ATTACH_POLICY,
        cluster(profile=pinned(scheduler_hints={"group": "my-group"})),
        cloud_with_group(),
    )
    ok, reason = await attach(policy("affinity-1.0", {"servergroup": {"name": "another"}}), view)
    assert not ok
    assert reason == "The profile names servergroup 'my-group', and the policy names 'another'."


async def test_s1_an_inherited_group_survives_the_policy() -> None:
    cloud = cloud_with_group()
    ok, _ = await detach(policy("affinity-1.0", {}), bound(action(ActionName.CLUSTER_DETACH_POLICY, cluster(), cloud)))
    assert ok
    assert list(cloud.groups) == ["XYZ-ABCD"]


async def test_s1_new_nodes_get_the_group() -> None:
    view = bound(action(ActionName.CLUSTER_SCALE_OUT, cluster(), inputs={"count": 2}))
    await before(policy("affinity-1.0", {}), view)
    assert view.data == TWO_PLACES


# S2: creating a server group when needed


@pytest.mark.parametrize(
    ("properties", "rules"),
    [
        ({}, ("anti-affinity",)),
        ({"servergroup": {}}, ("anti-affinity",)),
        ({"servergroup": {"policies": "soft-affinity"}}, ("soft-affinity",)),
    ],
)
async def test_s2_a_group_is_made_and_deleted_again(properties: dict[str, Any], rules: tuple[str, ...]) -> None:
    cloud = MemoryCloud()
    affinity = policy("affinity-1.0", properties)
    ok, binding = await attach(affinity, action(ActionName.CLUSTER_ATTACH_POLICY, cluster(), cloud))
    [group] = cloud.groups.values()
    assert ok
    assert binding == {
        "AffinityPolicy": {"version": 1.0, "data": {"servergroup_id": group.id, "inherited_group": False}}
    }
    assert tuple(map(str, group.rules)) == rules

    view = action(ActionName.CLUSTER_DETACH_POLICY, cluster(), cloud)
    view.binding = binding
    assert await detach(affinity, view) == (True, "Servergroup resource deletion succeeded.")
    assert cloud.groups == {}


async def test_s2_a_named_group_is_found_or_made_under_that_name() -> None:
    cloud = MemoryCloud()
    affinity = policy("affinity-1.0", {"servergroup": {"name": "mine"}})
    ok, _ = await attach(affinity, action(ActionName.CLUSTER_ATTACH_POLICY, cluster(), cloud))
    assert ok
    assert [group.name for group in cloud.groups.values()] == ["mine"]
    ok, again = await attach(affinity, action(ActionName.CLUSTER_ATTACH_POLICY, cluster(), cloud))
    assert ok
    assert again["AffinityPolicy"]["data"]["inherited_group"]


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (attach, "Failed in creating servergroup: groups does not answer"),
        (detach, "Failed in deleting servergroup: groups does not answer"),
    ],
)
async def test_s2_a_cloud_that_does_not_answer_is_a_reason(call: Any, reason: str) -> None:
    view = action(ActionName.CLUSTER_ATTACH_POLICY, cluster(), MemoryCloud(broken={"groups"}))
    view.binding = {"AffinityPolicy": {"version": 1.0, "data": {"servergroup_id": "x", "inherited_group": False}}}
    assert await call(policy("affinity-1.0", {}), view) == (False, reason)


# S3: the vSphere DRS extension


async def test_s3_the_first_drs_hypervisor_is_the_zone() -> None:
    cloud = MemoryCloud(hosts=["hydra-1", "vsphere_drs_1", "vsphere_drs_2"])
    view = bound(action(ActionName.CLUSTER_SCALE_OUT, cluster(), cloud, {"count": 2}, is_admin=True))
    await before(policy("affinity-1.0", {"enable_drs_extension": True}), view)
    assert view.data == {
        "placement": {
            "count": 2,
            "placements": [
                {"zone": "nova:vsphere_drs_1", "servergroup": "XYZ-ABCD"},
                {"zone": "nova:vsphere_drs_1", "servergroup": "XYZ-ABCD"},
            ],
        }
    }


async def test_s3_the_zone_of_the_spec_goes_before_the_host() -> None:
    cloud = MemoryCloud(hosts=["vsphere_drs_1"])
    view = bound(action(ActionName.NODE_CREATE, cluster(), cloud, is_admin=True))
    await before(policy("affinity-1.0", {"enable_drs_extension": True, "availability_zone": "az-9"}), view)
    assert view.data["placement"]["placements"] == [{"zone": "az-9:vsphere_drs_1", "servergroup": "XYZ-ABCD"}]


async def test_s3_without_such_a_hypervisor_the_check_fails_and_the_user_reads_why() -> None:
    view = bound(action(ActionName.CLUSTER_SCALE_OUT, cluster(), MemoryCloud(hosts=["andromeda"]), is_admin=True))
    affinity = policy("affinity-1.0", {"enable_drs_extension": True}, name="near")
    await before(affinity, view)
    assert view.data == {"status": "ERROR", "status_reason": "No suitable vSphere host is available."}

    said = await ask_all(BEFORE, view, (affinity, INHERITED))
    assert said.refusal == "Failed policy 'near': No suitable vSphere host is available."


async def test_s3_only_clusters_of_administrators_may_have_it() -> None:
    affinity = policy("affinity-1.0", {"enable_drs_extension": True})
    assert await attach(affinity, action(ActionName.CLUSTER_ATTACH_POLICY, cluster())) == (False, NOT_ADMIN)
    view = bound(action(ActionName.CLUSTER_SCALE_OUT, cluster(), MemoryCloud(hosts=["drs"])))
    await before(affinity, view)
    assert view.refusal == NOT_ADMIN


async def test_the_zone_of_the_spec_is_passed_on_without_the_extension() -> None:
    view = bound(action(ActionName.CLUSTER_SCALE_OUT, cluster(), inputs={"count": 2}))
    await before(policy("affinity-1.0", {"availability_zone": "nova_1"}), view)
    assert view.data == {
        "placement": {
            "count": 2,
            "placements": [
                {"zone": "nova_1", "servergroup": "XYZ-ABCD"},
                {"zone": "nova_1", "servergroup": "XYZ-ABCD"},
            ],
        }
    }


# How many nodes


@pytest.mark.parametrize(
    ("name", "inputs", "data", "count"),
    [
        (ActionName.CLUSTER_SCALE_OUT, {"count": 3}, {"creation": {"count": 2}}, 2),
        (ActionName.CLUSTER_SCALE_OUT, {"count": "3"}, {}, 3),
        (ActionName.CLUSTER_SCALE_OUT, {}, {}, 1),
        (ActionName.CLUSTER_RESIZE, {"adjustment_type": "CHANGE_IN_CAPACITY", "number": 2}, {}, 2),
        (
            ActionName.CLUSTER_RESIZE,
            {"adjustment_type": "CHANGE_IN_CAPACITY", "number": 2},
            {"creation": {"count": 4}},
            4,
        ),
        (ActionName.CLUSTER_RESIZE, {"adjustment_type": "CHANGE_IN_CAPACITY", "number": -2}, {}, None),
        (ActionName.CLUSTER_RESIZE, {"adjustment_type": "CHANGE_IN_CAPACITY", "number": 0}, {}, None),
        (ActionName.NODE_CREATE, {}, {}, 1),
        (ActionName.CLUSTER_CREATE, {}, {}, 3),
        (ActionName.CLUSTER_RECOVER, {}, {}, 1),
        (ActionName.CLUSTER_RECOVER, {"operation": "REBOOT"}, {}, None),
    ],
)
async def test_a_place_for_each_node_that_is_made(
    name: str, inputs: dict[str, Any], data: dict[str, Any], count: int | None
) -> None:
    members = [*nodes(nova_1=2), node("ill", zone="nova-1", status="ERROR")]
    view = bound(action(name, cluster(*members), inputs=inputs, data=data))
    await before(policy("affinity-1.0", {}), view)
    assert view.refusal is None
    assert (view.data.get("placement") or {}).get("count") == count


async def test_a_resize_that_cannot_be_understood_is_refused() -> None:
    inputs = {"adjustment_type": "EXACT_CAPACITY", "number": 9, "strict": True}
    view = bound(action(ActionName.CLUSTER_RESIZE, cluster(max_size=5), inputs=inputs))
    await before(policy("affinity-1.0", {}), view)
    assert view.refusal == "The target capacity (9) is greater than the cluster's max_size (5)."


async def test_a_zone_that_the_cloud_does_not_have_is_refused() -> None:
    affinity = policy("affinity-1.0", {"availability_zone": "mars"})
    problem = await affinity.validate(MemoryCloud(), SETTINGS.clusters)
    assert problem == "The specified availability_zone 'mars' could not be found."
    assert await policy("affinity-1.0", {}).validate(MemoryCloud(), SETTINGS.clusters) is None


# 1.1: scopes and rules


async def test_version_1_1_takes_rules_with_scopes() -> None:
    cloud = MemoryCloud()
    rules = [
        {"name": "anti-affinity", "scope": "rack", "rules": {"max_server_per_aggregate": 2}},
        {"name": "affinity", "scope": "switch"},
        {"name": "affinity", "scope": "availability_zone", "identifier": "nova-1"},
        {"name": "anti-affinity", "rules": {"max_server_per_host": 1}},
    ]
    affinity = policy("affinity-1.1", {"servergroup": {"policies": rules}})
    ok, binding = await attach(affinity, action(ActionName.CLUSTER_ATTACH_POLICY, cluster(), cloud))
    [group] = cloud.groups.values()
    assert ok
    assert binding["AffinityPolicy"]["version"] == 1.1
    assert group.rules == (
        Rule.parse("anti-affinity:rack", {"max_server_per_aggregate": 2}),
        Rule.parse("affinity:switch"),
        Rule.parse("affinity:availability_zone:nova-1"),
        Rule.parse("anti-affinity", {"max_server_per_host": 1}),
    )
    again = await attach(
        policy("affinity-1.1", {"servergroup": {"name": group.name, "policies": rules[::-1]}}),
        action(ActionName.CLUSTER_ATTACH_POLICY, cluster(), cloud),
    )
    assert again[0], again


@pytest.mark.parametrize(
    "rule",
    [
        {"name": "nearby"},
        {"scope": "rack"},
        {"name": "affinity", "rules": {"max_server_per_host": 2}},
        {"name": "anti-affinity", "rules": {"max_servers": 2}},
    ],
)
def test_version_1_1_refuses_rules_that_mean_nothing(rule: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec):
        policy("affinity-1.1", {"servergroup": {"policies": [rule]}})


def test_version_1_0_has_one_plain_rule() -> None:
    with pytest.raises(InvalidSpec, match="'near' must be one of the allowed values"):
        policy("affinity-1.0", {"servergroup": {"policies": "near"}})


async def test_s3_a_host_that_is_down_or_in_another_zone_is_not_chosen() -> None:
    down = Hypervisor("drs_1", "drs_1", "zone1", up=False)
    elsewhere, here = Hypervisor("drs_2", "drs_2", "zone2"), Hypervisor("drs_3", "drs_3", "zone1")
    spec = {"enable_drs_extension": True, "availability_zone": "zone1"}
    view = bound(action(ActionName.NODE_CREATE, cluster(), MemoryCloud(hosts=[down, elsewhere, here]), is_admin=True))
    await before(policy("affinity-1.0", spec), view)
    assert view.data["placement"]["placements"] == [{"zone": "zone1:drs_3", "servergroup": "XYZ-ABCD"}]

    none = bound(action(ActionName.NODE_CREATE, cluster(), MemoryCloud(hosts=[down, elsewhere]), is_admin=True))
    await before(policy("affinity-1.0", spec), none)
    assert none.refusal == "No suitable vSphere host is available."


async def test_s3_the_zone_is_that_of_the_host_where_the_policy_names_none() -> None:
    cloud = MemoryCloud(hosts=[Hypervisor("drs_2", "drs_2", "zone2")])
    view = bound(action(ActionName.NODE_CREATE, cluster(), cloud, is_admin=True))
    await before(policy("affinity-1.0", {"enable_drs_extension": True}), view)
    assert view.data["placement"]["placements"] == [{"zone": "zone2:drs_2", "servergroup": "XYZ-ABCD"}]


def test_s3_anti_affinity_on_one_host_holds_one_node_and_that_is_said() -> None:
    drs = {"enable_drs_extension": True}
    apart, together = (
        policy("affinity-1.0", drs, name="near"),
        policy("affinity-1.0", {**drs, "servergroup": {"policies": "affinity"}}),
    )
    assert chain.fit(apart, cluster(max_size=5), []).warnings == (
        "Policy 'near' places all servers on one vSphere host, and its rules keep them apart: the cluster can hold one "
        "node only.",
    )
    assert chain.fit(apart, cluster(max_size=1), []).warnings == ()
    assert chain.fit(together, cluster(max_size=5), []).warnings == ()
