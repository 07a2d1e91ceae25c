"""The scaling policy: how far, and how soon again."""

from datetime import timedelta
from typing import Any

import pytest

from roost.clusters.policies.base import AFTER, Policy
from roost.clusters.spec import InvalidSpec
from roost.clusters.states import ActionName
from tests.clusters.builders import NOW, action, after, ask_all, before, cluster, nodes, policy


def scaling(event: str, **adjustment: Any) -> Policy:
    return policy("scaling-1.0", {"event": event, "adjustment": adjustment})


@pytest.mark.parametrize(
    ("event", "adjustment", "inputs", "count"),
    [
        (ActionName.CLUSTER_SCALE_OUT, {}, {}, 1),
        (ActionName.CLUSTER_SCALE_OUT, {"number": 3}, {}, 3),
        (ActionName.CLUSTER_SCALE_OUT, {"number": 3}, {"count": 2}, 2),
        (ActionName.CLUSTER_SCALE_OUT, {"number": 3}, {"count": "2"}, 2),
        (ActionName.CLUSTER_SCALE_OUT, {"type": "EXACT_CAPACITY", "number": 14}, {}, 4),
        (ActionName.CLUSTER_SCALE_IN, {"type": "EXACT_CAPACITY", "number": 7}, {}, 3),
        (ActionName.CLUSTER_SCALE_OUT, {"type": "CHANGE_IN_PERCENTAGE", "number": 25}, {}, 2),
        (ActionName.CLUSTER_SCALE_OUT, {"type": "CHANGE_IN_PERCENTAGE", "number": 5, "min_step": 3}, {}, 3),
        (ActionName.CLUSTER_SCALE_IN, {"number": 99, "best_effort": True}, {}, 8),
        (ActionName.CLUSTER_SCALE_OUT, {"number": 99, "best_effort": True}, {}, 10),
    ],
)
async def test_the_count(event: str, adjustment: dict[str, Any], inputs: dict[str, Any], count: int) -> None:
    view = action(event, cluster(*nodes(nova_1=10), min_size=2, max_size=20), inputs=inputs)
    field = "creation" if event == ActionName.CLUSTER_SCALE_OUT else "deletion"
    assert await before(scaling(event, **adjustment), view) == {
        "status": "OK",
        "reason": "Scaling request validated.",
        field: {"count": count},
    }


@pytest.mark.parametrize(
    ("event", "adjustment", "inputs", "reason"),
    [
        (
            ActionName.CLUSTER_SCALE_OUT,
            {"type": "EXACT_CAPACITY", "number": 7},
            {},
            "Invalid count (-3) for action '{}'.",
        ),
        (ActionName.CLUSTER_SCALE_OUT, {}, {"count": 0}, "Invalid count (0) for action '{}'."),
        (ActionName.CLUSTER_SCALE_OUT, {}, {"count": "x"}, "Invalid count (x) for action '{}'."),
        (
            ActionName.CLUSTER_SCALE_OUT,
            {"number": 11},
            {},
            "The target capacity (21) is greater than the cluster's max_size (20).",
        ),
        (
            ActionName.CLUSTER_SCALE_IN,
            {"number": 9},
            {},
            "The target capacity (1) is less than the cluster's min_size (2).",
        ),
    ],
)
async def test_requests_that_cannot_be_followed(
    event: str, adjustment: dict[str, Any], inputs: dict[str, Any], reason: str
) -> None:
    view = action(event, cluster(*nodes(nova_1=10), min_size=2, max_size=20), inputs=inputs)
    await before(scaling(event, **adjustment), view)
    assert view.refusal == reason.format(event)


async def test_another_event_does_not_concern_it() -> None:
    assert await before(scaling(ActionName.CLUSTER_SCALE_IN), action(ActionName.CLUSTER_SCALE_OUT, cluster())) == {}


async def test_of_two_policies_on_one_event_the_first_decides() -> None:
    view = action(ActionName.CLUSTER_SCALE_OUT, cluster(), data={"creation": {"count": 7}})
    assert (await before(scaling(ActionName.CLUSTER_SCALE_OUT, number=2), view))["creation"] == {"count": 7}


async def test_inside_the_cooldown_the_time_left_is_told() -> None:
    view = action(ActionName.CLUSTER_SCALE_OUT, cluster(), last_op=NOW - timedelta(seconds=18))
    await before(scaling(ActionName.CLUSTER_SCALE_OUT, cooldown=60), view)
    assert view.refusal == "Policy id-of-scaling cooldown is still in progress. 42 seconds are left."
    view = action(ActionName.CLUSTER_SCALE_OUT, cluster(), last_op=NOW - timedelta(seconds=60))
    await before(scaling(ActionName.CLUSTER_SCALE_OUT, cooldown=60), view)
    assert view.refusal is None


@pytest.mark.parametrize("event", [ActionName.CLUSTER_SCALE_IN, ActionName.CLUSTER_SCALE_OUT])
async def test_scaling_either_way_is_remembered(event: str) -> None:
    asked = scaling(ActionName.CLUSTER_SCALE_OUT, cooldown=60)
    view = action(event, cluster())
    await after(asked, view)
    assert view.last_op == NOW
    said = await ask_all(AFTER, action(event, cluster()), (asked, {}))
    assert said.last_ops == {asked.id: NOW}


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({}, "Required spec item 'event' not provided"),
        ({"event": "BOOM"}, "'BOOM' must be one of the allowed values: CLUSTER_SCALE_IN, CLUSTER_SCALE_OUT"),
        ({"adjustment": {"number": 0}}, "the 'number' for 'adjustment' must be > 0"),
        ({"adjustment": {"number": "x"}}, "The value 'x' is not a valid number."),
        ({"adjustment": {"min_step": -1}}, "the 'min_step' for 'adjustment' must be >= 0"),
        ({"adjustment": {"cooldown": -1}}, "the 'cooldown' for 'adjustment' must be >= 0"),
        ({"bogus": 1}, "Unrecognizable spec item 'bogus'; allowed are adjustment, event"),
    ],
)
def test_specs_that_make_no_sense_are_refused(properties: dict[str, Any], message: str) -> None:
    given = (
        properties if not properties or "event" in properties else {"event": ActionName.CLUSTER_SCALE_IN, **properties}
    )
    with pytest.raises(InvalidSpec) as caught:
        policy("scaling-1.0", given)
    assert caught.value.message == message


def test_without_an_adjustment_the_defaults_hold() -> None:
    assert policy("scaling-1.0", {"event": ActionName.CLUSTER_SCALE_IN}).spec_data["adjustment"]["number"] == 1
