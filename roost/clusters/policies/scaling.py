"""Scaling: by how many nodes a request without a count scales, and how soon the next one may come."""

from datetime import datetime
from typing import Any

from roost.clusters import sizes
from roost.clusters.policies.base import (
    AFTER,
    BEFORE,
    CHECK_OK,
    CREATION_COUNT,
    DELETION_COUNT,
    SUPPORTED,
    ActionView,
    ClusterView,
    Objection,
    Policy,
)
from roost.clusters.policies.counts import sizes_of
from roost.clusters.sizes import ADJUSTMENTS, CHANGE_IN_CAPACITY, CHANGE_IN_PERCENTAGE, EXACT_CAPACITY
from roost.clusters.spec import AllowedValues, Boolean, Integer, InvalidSpec, Map, Number, String
from roost.clusters.states import ActionName


class ScalingPolicy(Policy):
    """Decides the number of nodes of a scaling request."""

    TYPE = "senlin.policy.scaling"
    VERSIONS = {"1.0": [{"status": SUPPORTED, "since": "2016.04"}]}
    PRIORITY = 100
    SINGLETON = False
    TARGET = [
        (BEFORE, ActionName.CLUSTER_SCALE_IN),
        (BEFORE, ActionName.CLUSTER_SCALE_OUT),
        (AFTER, ActionName.CLUSTER_SCALE_IN),
        (AFTER, ActionName.CLUSTER_SCALE_OUT),
    ]
    WRITES = [CREATION_COUNT, DELETION_COUNT]
    spec_schema = {
        "event": String(
            "Event that will trigger this policy.",
            required=True,
            constraints=[AllowedValues((ActionName.CLUSTER_SCALE_IN, ActionName.CLUSTER_SCALE_OUT))],
        ),
        "adjustment": Map(
            "Detailed specification for scaling adjustments.",
            default={},
            schema={
                "type": String(
                    "Type of adjustment when scaling is triggered.",
                    default=CHANGE_IN_CAPACITY,
                    constraints=[AllowedValues(ADJUSTMENTS)],
                ),
                "number": Number("A number specifying the amount of adjustment, above 0.", default=1),
                "min_step": Integer(
                    "When the type is CHANGE_IN_PERCENTAGE, the least number of nodes that come or go.", default=1
                ),
                "best_effort": Boolean(
                    "Whether a request that would leave the limits of the cluster goes as far as they allow.",
                    default=False,
                ),
                "cooldown": Integer("Number of seconds to hold the cluster between scaling actions.", default=0),
            },
        ),
    }

    def check_spec(self) -> None:
        """Numbers are in their ranges."""
        adjustment = self.adjustment
        if adjustment["number"] <= 0:
            raise InvalidSpec("the 'number' for 'adjustment' must be > 0")
        if adjustment["min_step"] < 0:
            raise InvalidSpec("the 'min_step' for 'adjustment' must be >= 0")
        if adjustment["cooldown"] < 0:
            raise InvalidSpec("the 'cooldown' for 'adjustment' must be >= 0")

    @property
    def adjustment(self) -> dict[str, Any]:
        """The adjustment of the spec."""
        found: dict[str, Any] = self.spec_data["adjustment"]
        return found

    @property
    def event(self) -> str:
        """The action that this policy answers."""
        return str(self.spec_data["event"])

    def clashes(self, other: Policy, cluster: ClusterView) -> list[Objection]:
        """Two answers to one event."""
        if not isinstance(other, ScalingPolicy) or other.event != self.event or other.id < self.id:
            return []
        message = f"Policies '{self.name}' and '{other.name}' both answer {self.event}: the one attached first decides."
        return [Objection(message, fatal=False)]

    def resting(self, action: str, last_op: datetime | None, now: datetime) -> float:
        """The seconds until the next such action may come, or 0."""
        if action != self.event or last_op is None:
            return 0
        return max(0.0, float(self.adjustment["cooldown"]) - (now - last_op).total_seconds())

    def pre_op(self, cluster_id: str, action: ActionView) -> None:
        """Decide how many nodes come or go."""
        if action.action != self.event:
            return
        left = self.resting(action.action, action.last_op, action.now)
        if left > 0:
            return action.refuse(f"Policy {self.id} cooldown is still in progress. {left:.0f} seconds are left.")
        key = CREATION_COUNT if self.event == ActionName.CLUSTER_SCALE_OUT else DELETION_COUNT
        if key.read(action.data) is not None:
            return
        count = self._count(action)
        if isinstance(count, str):
            return action.refuse(count)
        action.data.update(status=CHECK_OK, reason="Scaling request validated.")
        key.write(action.data, count)

    def _count(self, action: ActionView) -> int | str:
        current = len(action.cluster.nodes)
        given = action.inputs.get("count")
        try:
            count = int(given) if given is not None else self._adjusted(current)
        except (TypeError, ValueError):
            count = 0
        if count <= 0:
            return f"Invalid count ({given if given is not None else count}) for action '{action.action}'."
        sign = 1 if action.action == ActionName.CLUSTER_SCALE_OUT else -1
        bounds, best_effort = sizes_of(action), self.adjustment["best_effort"]
        if best_effort:
            most = action.max_nodes if bounds.max_size < 0 else min(bounds.max_size, action.max_nodes)
            count = max(0, min(count, most - current if sign > 0 else current - bounds.min_size))
        desired = current + sign * count
        refusal = sizes.misfit(bounds, desired, strict=not best_effort, max_nodes=action.max_nodes)
        return refusal or count

    def _adjusted(self, current: int) -> int:
        number, sign = self.adjustment["number"], 1 if self.event == ActionName.CLUSTER_SCALE_OUT else -1
        if self.adjustment["type"] == EXACT_CAPACITY:
            return sign * (int(number) - current)
        if self.adjustment["type"] == CHANGE_IN_PERCENTAGE:
            return max(int(number * current / 100), int(self.adjustment["min_step"]))
        return int(number)

    def post_op(self, cluster_id: str, action: ActionView) -> None:
        """Remember when the cluster was scaled, so that it rests."""
        action.last_op = action.now
