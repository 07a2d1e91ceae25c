"""How many nodes an action makes or removes: what policies before have decided, else what the inputs say, else one."""

from dataclasses import dataclass
from typing import Any

from roost.clusters import sizes
from roost.clusters.policies.base import CREATION_COUNT, DELETION_COUNT, ActionView, NodeView
from roost.clusters.states import ActionName, NodeStatus

RECREATE = "RECREATE"
_WHOLE = ("min_size", "max_size", "min_step")


@dataclass(frozen=True, slots=True)
class SizeChange:
    """How the number of nodes changes: above 0 they are made, below 0 they go."""

    count: int
    replaced: frozenset[str] = frozenset()
    """The nodes whose servers are recreated, and which hold no place while one is chosen for them."""


def change(action: ActionView) -> SizeChange | str:
    """What the action comes to, or why its inputs cannot be understood. A resize leaves its result for others."""
    if action.action == ActionName.CLUSTER_SCALE_OUT:
        return _decided(action, "creation", 1)
    if action.action == ActionName.CLUSTER_SCALE_IN:
        return _decided(action, "deletion", -1)
    if action.action == ActionName.CLUSTER_RESIZE:
        return _resize(action)
    if action.action == ActionName.CLUSTER_CREATE:
        return SizeChange(CREATION_COUNT.read(action.data) or max(action.cluster.desired_capacity, 0))
    if action.action == ActionName.NODE_CREATE:
        return SizeChange(1)
    if action.action in (ActionName.CLUSTER_RECOVER, ActionName.NODE_RECOVER):
        recreated = frozenset(node.id for node in recreated_nodes(action))
        return SizeChange(len(recreated), recreated)
    return SizeChange(0)


def unplaced(action: ActionView, wanted: SizeChange) -> frozenset[str]:
    """The nodes that a plan is made for: they may be members already, but have no server yet."""
    if action.action in (ActionName.NODE_CREATE, ActionName.CLUSTER_CREATE):
        return frozenset(node.id for node in action.cluster.nodes if not node.physical_id)
    return wanted.replaced


def sizes_of(action: ActionView) -> sizes.Sizes:
    """The sizes of the cluster before the action."""
    return sizes.Sizes.of(action.cluster)


def recreated_nodes(action: ActionView) -> list[NodeView]:
    """The nodes whose servers a recovery recreates: those named, else all that are not well."""
    if str(_operation(action)).upper() != RECREATE:
        return []
    if action.node is not None:
        return [action.node]
    named = action.inputs.get("candidates")
    if named is not None:
        return [node for node in action.cluster.nodes if node.id in set(named)]
    return [node for node in action.cluster.nodes if node.status != NodeStatus.ACTIVE]


def _operation(action: ActionView) -> Any:
    given = action.inputs.get("operation")
    if isinstance(given, list):
        given = given[0] if given else None
    return (given.get("name") if isinstance(given, dict) else given) or RECREATE


def _decided(action: ActionView, field: str, sign: int) -> SizeChange | str:
    given = action.data[field].get("count") if field in action.data else action.inputs.get("count")
    try:
        count = 1 if given is None else int(given)
    except (TypeError, ValueError):
        count = -1
    if count < 0:
        return f"Invalid count ({given}) for action '{action.action}'."
    return SizeChange(sign * count)


def _resize(action: ActionView) -> SizeChange | str:
    if "creation" not in action.data and "deletion" not in action.data:
        try:
            outcome = sizes.resize(_numbers(action), sizes_of(action), len(action.cluster.nodes), action.max_nodes)
        except (TypeError, ValueError) as error:
            return f"The inputs of the resize cannot be understood: {error}."
        if isinstance(outcome, str):
            return outcome
        key = DELETION_COUNT if outcome.change < 0 else CREATION_COUNT
        key.write(action.data, abs(outcome.change))
    if "creation" in action.data:
        return _decided(action, "creation", 1)
    return _decided(action, "deletion", -1)


def _numbers(action: ActionView) -> dict[str, Any]:
    """The inputs, with the numbers as numbers: a webhook sends them as text."""
    whole = {key: int(action.inputs[key]) for key in _WHOLE if action.inputs.get(key) is not None}
    return {**action.inputs, **whole}
