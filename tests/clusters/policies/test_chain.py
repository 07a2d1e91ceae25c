"""Policies in concert: their order, what each leaves for the next, and what they contradict each other in."""

from collections.abc import Sequence
from typing import Any

import pytest

from roost.clusters.policies.base import (
    BEFORE,
    ActionView,
    Policy,
    ProfileView,
)
from roost.clusters.policies.chain import Fit, fit
from roost.clusters.states import ActionName
from roost.policies.memory import MemoryCloud
from tests.clusters.builders import action, ask_all, cluster, nodes, pinned, policy, types

GROUP = {"AffinityPolicy": {"version": 1.0, "data": {"servergroup_id": "XYZ-ABCD", "inherited_group": True}}}


def zones(*names: str, **more: Any) -> Policy:
    version = "zone_placement-1.1" if more else "zone_placement-1.0"
    return policy(version, {"zones": [{"name": name} for name in names], **more}, name="spread")


def affinity(version: str = "1.0", **properties: Any) -> Policy:
    return policy(f"affinity-{version}", properties, name="near")


def rule(name: str, scope: str, **more: Any) -> Policy:
    return affinity("1.1", servergroup={"policies": [{"name": name, "scope": scope, **more}]})


def test_the_order_of_the_types_of_the_house() -> None:
    assert [kind.TYPE.removeprefix("senlin.policy.") for kind in types().chain()] == [
        "scaling",
        "region_placement",
        "batch",
        "zone_placement",
        "affinity",
        "deletion",
        "loadbalance",
        "health",
    ]


async def test_each_new_server_gets_its_zone_and_its_group() -> None:
    view = action(ActionName.CLUSTER_SCALE_OUT, cluster(*nodes(nova_1=2)), inputs={"count": 3})
    said = await ask_all(BEFORE, view, (affinity(), GROUP), (zones("nova-1", "nova-2"), {}))
    assert said.refusal is None
    assert view.data == {
        "status": "OK",
        "reason": "Completed policy checking.",
        "creation": {"count": 3, "zones": {"nova-1": 1, "nova-2": 2}},
        "placement": {
            "count": 3,
            "placements": [
                {"zone": "nova-1", "servergroup": "XYZ-ABCD"},
                {"zone": "nova-2", "servergroup": "XYZ-ABCD"},
                {"zone": "nova-2", "servergroup": "XYZ-ABCD"},
            ],
        },
    }


async def test_scaling_zone_and_deletion_agree_on_who_goes() -> None:
    view = action(ActionName.CLUSTER_SCALE_IN, cluster(*nodes(nova_1=4, nova_2=2)))
    scaling = policy("scaling-1.0", {"event": ActionName.CLUSTER_SCALE_IN, "adjustment": {"number": 4}})
    deletion = policy("deletion-1.0", {"criteria": "OLDEST_FIRST"})
    await ask_all(BEFORE, view, (deletion, {}), (zones("nova-1", "nova-2"), {}), (scaling, {}))
    assert view.data["deletion"]["zones"] == {"nova-1": 3, "nova-2": 1}
    assert view.data["deletion"]["candidates"] == ["nova-1.0", "nova-1.1", "nova-1.2", "nova-2.0"]


async def test_nodes_that_move_get_their_zone_and_their_group() -> None:
    view = action(ActionName.CLUSTER_RECOVER, cluster(*nodes(nova_1=4)))
    spread = zones("nova-1", "nova-2", rebalance=True, rebalance_budget=2)
    await ask_all(BEFORE, view, (affinity(), GROUP), (spread, {}))
    assert view.data["rebalance"] == ["nova-1.0", "nova-1.1"]
    assert view.data["placement"]["placements"] == [{"zone": "nova-2", "servergroup": "XYZ-ABCD"}] * 2


async def test_the_first_refusal_ends_it_and_its_reason_is_kept() -> None:
    view = action(ActionName.CLUSTER_SCALE_OUT, cluster(), MemoryCloud(zones={}))
    said = await ask_all(BEFORE, view, (zones("nova-1"), {}), (affinity(), GROUP))
    assert said.refusal == "Failed policy 'spread': No availability zone found available."
    assert "placement" not in view.data


# Conflicts


def check(new: Policy, *attached: Policy, **more: Any) -> Fit:
    return fit(new, cluster(**more), attached)


def test_a_policy_of_another_profile_type_does_not_fit() -> None:
    stack = ProfileView("p", "stack", "os.heat.stack-1.0", {})
    assert check(zones("a"), profile=stack).refusals == ("Policy not applicable on profile type: os.heat.stack-1.0",)
    health = {
        "detection": {"detection_modes": [{"type": "NODE_STATUS_POLLING"}]},
        "recovery": {"actions": [{"name": "RECREATE"}]},
    }
    assert check(policy("health-1.0", health), profile=stack) == Fit()


def test_only_one_of_a_type_whatever_the_version() -> None:
    older = policy("deletion-1.0", {}, id="older", name="first")
    newer = policy("deletion-1.1", {}, id="newer")
    assert check(newer, older).refusals == (
        "Only one instance of policy type (senlin.policy.deletion-1.1) can be attached to a cluster, but another "
        "instance (first) is found attached to the cluster (cluster-1) already.",
    )
    assert check(older, older) == Fit()


def test_two_scaling_policies_on_one_event_are_worth_a_warning() -> None:
    def scaling(name: str, event: str) -> Policy:
        return policy("scaling-1.0", {"event": event}, name=name, id=name)

    up, more = scaling("up", ActionName.CLUSTER_SCALE_OUT), scaling("more", ActionName.CLUSTER_SCALE_OUT)
    assert check(more, up) == Fit(
        warnings=("Policies 'more' and 'up' both answer CLUSTER_SCALE_OUT: the one attached first decides.",)
    )
    assert check(up, scaling("down", ActionName.CLUSTER_SCALE_IN)) == Fit()


CONTRADICTIONS: Sequence[tuple[Policy, bool, str]] = [
    (affinity(servergroup={"policies": "affinity"}), True, "keeps all servers on one host"),
    (affinity(servergroup={"policies": "soft-affinity"}), False, "prefers all servers on one host"),
    (rule("affinity", "availability_zone"), True, "keeps all servers in one availability_zone"),
    (rule("affinity", "rack"), False, "keeps all servers in one rack"),
    (rule("affinity", "availability_zone", identifier="a"), True, "keeps servers in zone 'a'"),
    (rule("anti-affinity", "availability_zone", identifier="a"), True, "keeps servers out of zone 'a'"),
    (rule("anti-affinity", "availability_zone"), True, "allows 1 in a zone, 2 in all"),
    (
        rule("anti-affinity", "availability_zone", rules={"max_server_per_aggregate": 2}),
        False,
        "allows 2 in a zone, 4 in all",
    ),
    (affinity(availability_zone="a"), True, "places all servers in zone 'a'"),
    (affinity(enable_drs_extension=True), True, "places all servers on one vSphere host"),
]


@pytest.mark.parametrize(("group", "fatal", "why"), CONTRADICTIONS)
def test_a_group_that_contradicts_the_zones_names_both_sides(group: Policy, fatal: bool, why: str) -> None:
    message = f"Policy 'near' {why}, and policy 'spread' spreads servers over zones a, b."
    for attached in (group, zones("a", "b")), (zones("a", "b"), group):
        fit = check(*attached, desired_capacity=3, max_size=9)
        assert (fit.refusals if fatal else fit.warnings) == (message,)
        assert fatal or not fit.refusals


@pytest.mark.parametrize(
    "group",
    [
        affinity(),
        rule("anti-affinity", "rack"),
        rule("anti-affinity", "availability_zone", rules={"max_server_per_aggregate": 9}),
        rule("anti-affinity", "availability_zone", identifier="elsewhere"),
    ],
)
def test_a_group_that_does_not_contradict_the_zones_fits(group: Policy) -> None:
    assert check(group, zones("a", "b"), desired_capacity=3, max_size=9) == Fit()


def test_one_zone_contradicts_nothing() -> None:
    assert check(affinity(servergroup={"policies": "affinity"}, availability_zone="a"), zones("a")) == Fit()


def test_a_profile_that_is_pinned_under_a_zone_policy_names_both_sides() -> None:
    assert check(zones("a", "b"), profile=pinned(availability_zone="mars")).refusals == (
        "The profile 'web' pins its servers to zone 'mars', and policy 'spread' spreads them over a, b: the two cannot "
        "both hold.",
    )
    assert check(zones("a", "b"), profile=pinned(availability_zone="a")).warnings == (
        "The profile 'web' pins its servers to zone 'a', and policy 'spread' spreads them over a, b: the policy "
        "decides, but for nodes created one by one.",
    )


def test_a_profile_that_is_pinned_elsewhere_than_the_group() -> None:
    assert check(affinity(availability_zone="b"), profile=pinned(availability_zone="a")).warnings == (
        "The profile 'web' pins its servers to zone 'a', and policy 'near' places them in zone 'b': the policy "
        "decides.",
    )


# What is declared is what is written


SCENES: Sequence[tuple[Policy, ActionView]] = [
    (zones("nova-1", "nova-2"), action(ActionName.CLUSTER_SCALE_OUT, cluster(), inputs={"count": 3})),
    (zones("nova-1", "nova-2"), action(ActionName.CLUSTER_RESIZE, cluster(*nodes(nova_1=3)), inputs={"max_size": 1})),
    (affinity(), action(ActionName.CLUSTER_SCALE_OUT, cluster(), inputs={"count": 3})),
    (policy("deletion-1.0", {"hooks": {"timeout": 1}}), action(ActionName.CLUSTER_SCALE_IN, cluster(*nodes(nova_1=3)))),
    (policy("batch-1.0", {}), action("CLUSTER_UPDATE", cluster(*nodes(nova_1=3)))),
]


@pytest.mark.parametrize(("asked", "view"), SCENES)
async def test_a_policy_writes_what_it_declares(asked: Policy, view: ActionView) -> None:
    await ask_all(BEFORE, view, (asked, GROUP))
    declared = {key.path for key in asked.WRITES}
    written = {
        path
        for key, value in view.data.items()
        if key not in ("status", "reason")
        for path in ([key] if key in declared or not isinstance(value, dict) else [f"{key}.{part}" for part in value])
    }
    assert written
    assert written <= declared
