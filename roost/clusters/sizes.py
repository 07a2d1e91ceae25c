"""How large a cluster may be, and what a request to change its size comes to. Pure: nothing is read or written."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

EXACT_CAPACITY, CHANGE_IN_CAPACITY, CHANGE_IN_PERCENTAGE = ADJUSTMENTS = (
    "EXACT_CAPACITY",
    "CHANGE_IN_CAPACITY",
    "CHANGE_IN_PERCENTAGE",
)


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a cluster: its bounds (no upper one if negative), and the size that it should have."""

    min_size: int
    max_size: int
    desired_capacity: int

    @classmethod
    def of(cls, cluster: Any) -> "Sizes":
        """Those of a cluster, as a row or as a policy sees it."""
        return cls(cluster.min_size, cluster.max_size, cluster.desired_capacity)


@dataclass(frozen=True, slots=True)
class Resize:
    """What a resize comes to: the size to have, how many nodes come (or, if negative, go), and the bounds to set."""

    desired: int
    change: int
    min_size: int | None
    max_size: int | None


def adjust(kind: str, number: float, current: int, min_step: int | None = None) -> int:
    """The size that an adjustment leads to. A percentage of less than one node is one node; more is rounded toward
    the present size, and is at least `min_step`."""
    if kind == EXACT_CAPACITY:
        return int(number)
    if kind == CHANGE_IN_CAPACITY:
        return current + int(number)
    exact = current * number / 100
    if number == 0:
        return current
    direction = 1 if number > 0 else -1
    steps = 1 if 0 < abs(exact) < 1 else int(abs(exact))
    return current + direction * max(steps, min_step or 0)


def misfit(
    sizes: Sizes | None,
    desired: int | None,
    *,
    min_size: int | None = None,
    max_size: int | None = None,
    strict: bool,
    max_nodes: int,
) -> str | None:
    """Why a cluster of these sizes (None: a new one) cannot get that size and those bounds, if it cannot."""
    own = sizes or Sizes(0, -1, 0)
    bounded = strict and sizes is not None
    rules: list[tuple[bool, str]] = []
    if desired is not None:
        rules += [
            (
                desired > max_nodes,
                f"The target capacity ({desired}) is greater than the maximum number of nodes allowed per cluster "
                f"({max_nodes}).",
            ),
            (
                min_size is not None and desired < min_size,
                f"The target capacity ({desired}) is less than the specified min_size ({min_size}).",
            ),
            (
                bounded and min_size is None and desired < own.min_size,
                f"The target capacity ({desired}) is less than the cluster's min_size ({own.min_size}).",
            ),
            (
                max_size is not None and 0 <= max_size < desired,
                f"The target capacity ({desired}) is greater than the specified max_size ({max_size}).",
            ),
            (
                bounded and max_size is None and 0 <= own.max_size < desired,
                f"The target capacity ({desired}) is greater than the cluster's max_size ({own.max_size}).",
            ),
        ]
    if min_size is not None:
        rules += [
            (
                max_size is not None and 0 <= max_size < min_size,
                f"The specified min_size ({min_size}) is greater than the specified max_size ({max_size}).",
            ),
            (
                max_size is None and 0 <= own.max_size < min_size,
                f"The specified min_size ({min_size}) is greater than the current max_size ({own.max_size}) of the "
                "cluster.",
            ),
            (
                bounded and desired is None and min_size > own.desired_capacity,
                f"The specified min_size ({min_size}) is greater than the current desired_capacity "
                f"({own.desired_capacity}) of the cluster.",
            ),
        ]
    if max_size is not None:
        rules += [
            (
                max_size > max_nodes,
                f"The specified max_size ({max_size}) is greater than the maximum number of nodes allowed per cluster "
                f"({max_nodes}).",
            ),
            (
                min_size is None and 0 <= max_size < own.min_size,
                f"The specified max_size ({max_size}) is less than the current min_size ({own.min_size}) of the "
                "cluster.",
            ),
            (
                bounded and desired is None and 0 <= max_size < own.desired_capacity,
                f"The specified max_size ({max_size}) is less than the current desired_capacity "
                f"({own.desired_capacity}) of the cluster.",
            ),
        ]
    return next((sentence for broken, sentence in rules if broken), None)


def resize(inputs: Mapping[str, Any], sizes: Sizes, current: int, max_nodes: int) -> Resize | str:
    """What the inputs of a resize come to for a cluster of `current` nodes, or why they cannot be followed.

    Unless the request is strict, a size outside the bounds is moved to the nearest one inside.
    """
    min_size, max_size = inputs.get("min_size"), inputs.get("max_size")
    strict = bool(inputs.get("strict", False))
    kind, number = inputs.get("adjustment_type"), inputs.get("number")
    asked = None
    if kind is not None and number is not None:
        asked = adjust(str(kind), float(number), current, inputs.get("min_step"))
    desired = current if asked is None else asked
    refusal = None
    if not strict:
        # Bounds that contradict the cluster's own are refused; a size that they leave no room for is moved.
        refusal = misfit(sizes, None, min_size=min_size, max_size=max_size, strict=False, max_nodes=max_nodes)
        asked = desired = _clip(desired, sizes, min_size, max_size)
    refusal = refusal or misfit(sizes, asked, min_size=min_size, max_size=max_size, strict=strict, max_nodes=max_nodes)
    return refusal or Resize(desired, desired - current, min_size, max_size)


def _clip(desired: int, sizes: Sizes, min_size: int | None, max_size: int | None) -> int:
    least = sizes.min_size if min_size is None else min_size
    most = sizes.max_size if max_size is None else max_size
    if most >= 0:
        desired = min(desired, most)
    return max(desired, least, 0)
