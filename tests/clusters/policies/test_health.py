"""The health policy: when it looks away, and how it has nodes recovered."""

from typing import Any

import pytest

from roost.clusters.policies.base import (
    ProfileView,
)
from roost.clusters.spec import InvalidSpec
from roost.clusters.states import ActionName
from roost.policies.memory import MemoryCloud
from tests.clusters.builders import SETTINGS, action, after, attach, before, cluster, detach, nodes, policy

POLLING = {"type": "NODE_STATUS_POLLING"}
URL = {"type": "NODE_STATUS_POLL_URL", "options": {"poll_url": "http://{nodename}.example:5050"}}


def spec(*modes: dict[str, Any], actions: tuple[str, ...] = ("RECREATE",), **detection: Any) -> dict[str, Any]:
    return {
        "detection": {"detection_modes": list(modes), **detection},
        "recovery": {"actions": [{"name": name} for name in actions], "node_force_recreate": True},
    }


HEALTH = policy("health-1.1", spec(POLLING, URL))


async def test_attach_begins_to_watch_and_detach_ends_it() -> None:
    view = action(ActionName.CLUSTER_ATTACH_POLICY, cluster())
    ok, binding = await attach(HEALTH, view)
    assert ok
    assert view.effects.health == "register"
    kept = binding["HealthPolicy"]["data"]
    assert (kept["interval"], kept["node_update_timeout"], kept["recovery_conditional"]) == (60, 300, "ANY_FAILED")
    assert [mode["type"] for mode in kept["detection_modes"]] == ["NODE_STATUS_POLLING", "NODE_STATUS_POLL_URL"]
    view = action(ActionName.CLUSTER_DETACH_POLICY, cluster())
    await detach(HEALTH, view)
    assert view.effects.health == "unregister"


@pytest.mark.parametrize("way", ["REBUILD", "REBOOT"])
async def test_servers_alone_can_be_rebuilt_and_rebooted(way: str) -> None:
    stack = ProfileView("p", "stack", "os.heat.stack-1.0", {})
    asked = policy("health-1.1", spec(POLLING, actions=(way,)))
    assert await attach(asked, action(ActionName.CLUSTER_ATTACH_POLICY, cluster(profile=stack))) == (
        False,
        f"Recovery action {way} is only applicable to os.nova.server clusters.",
    )


@pytest.mark.parametrize(
    "name",
    [
        ActionName.CLUSTER_RECOVER,
        ActionName.CLUSTER_DEL_NODES,
        ActionName.CLUSTER_SCALE_IN,
        ActionName.CLUSTER_UPDATE,
        ActionName.CLUSTER_REPLACE_NODES,
        ActionName.NODE_DELETE,
    ],
)
async def test_it_looks_away_while_nodes_come_and_go(name: str) -> None:
    view = action(name, cluster(*nodes(nova_1=2)))
    await before(HEALTH, view)
    looked_away = view.effects.health
    await after(HEALTH, view)
    assert (looked_away, view.effects.health) == ("pause", "resume")


@pytest.mark.parametrize(("number", "effect"), [(-1, "pause"), (1, None)])
async def test_a_resize_concerns_it_only_when_nodes_go(number: int, effect: str | None) -> None:
    inputs = {"adjustment_type": "CHANGE_IN_CAPACITY", "number": number}
    view = action(ActionName.CLUSTER_RESIZE, cluster(*nodes(nova_1=2)), inputs=inputs)
    await before(HEALTH, view)
    assert view.effects.health == effect


@pytest.mark.parametrize("name", [ActionName.CLUSTER_RECOVER, ActionName.NODE_RECOVER])
async def test_it_says_how_to_recover(name: str) -> None:
    assert await before(HEALTH, action(name, cluster())) == {
        "health": {
            "recover_action": [{"name": "RECREATE", "params": {"delete_timeout": 20, "force_recreate": True}}],
            "fencing": [],
        }
    }


async def test_the_operator_sets_how_often_nodes_may_be_looked_at() -> None:
    asked = policy("health-1.0", spec(POLLING, interval=10))
    assert await asked.validate(MemoryCloud(), SETTINGS.clusters) == (
        "Specified interval of 10 seconds has to be larger than health_check_interval_min of 60 seconds set in "
        "configuration."
    )
    assert await HEALTH.validate(MemoryCloud(), SETTINGS.clusters) is None


async def test_a_page_of_the_operators_own_network_is_refused() -> None:
    own = {"type": "NODE_STATUS_POLL_URL", "options": {"poll_url": "http://169.254.169.254/{nodename}"}}
    problem = await policy("health-1.2", spec(own)).validate(MemoryCloud(), SETTINGS.clusters)
    assert problem == (
        "The URL 'http://169.254.169.254/{nodename}' cannot be used: It leads to this machine or into a private "
        "network, which the operator does not allow."
    )


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({}, "Required spec item 'detection' not provided"),
        (spec(POLLING, actions=("REBOOT", "RECREATE")), "Only one 'actions' is supported for now."),
        (
            spec(POLLING, {"type": "LIFECYCLE_EVENTS"}),
            "Invalid detection modes in health policy: NODE_STATUS_POLLING, LIFECYCLE_EVENTS",
        ),
        (
            spec(POLLING, POLLING),
            "Duplicate detection modes are not allowed in health policy: NODE_STATUS_POLLING, NODE_STATUS_POLLING",
        ),
        (
            spec({"type": "NODE_STATUS_POLL_URL"}),
            "A detection mode of type 'NODE_STATUS_POLL_URL' needs a 'poll_url' in its 'options'.",
        ),
        (spec(), "Invalid detection modes in health policy: "),
    ],
)
def test_specs_that_make_no_sense_are_refused(properties: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        policy("health-1.1", properties)
    assert caught.value.message == message
