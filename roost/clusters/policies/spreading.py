"""How nodes are spread over zones or regions: the placement core's plans, in the words of policies."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roost.clusters.policies.base import BEFORE, CHECK_OK, CREATION_COUNT, DELETION_COUNT, ActionView, DataKey, NodeView
from roost.clusters.policies.counts import SizeChange, unplaced
from roost.clusters.spec import InvalidSpec
from roost.clusters.states import ActionName
from roost.placement import distribution
from roost.placement.distribution import WeightedZone

_OF_CLUSTERS = (
    ActionName.CLUSTER_CREATE,
    ActionName.CLUSTER_SCALE_IN,
    ActionName.CLUSTER_SCALE_OUT,
    ActionName.CLUSTER_RESIZE,
    ActionName.CLUSTER_RECOVER,
)
TARGET = [(BEFORE, action) for action in (*_OF_CLUSTERS, ActionName.NODE_CREATE, ActionName.NODE_RECOVER)]
"""The actions that nodes are placed by."""

INFEASIBLE = "There is no feasible plan to handle all nodes."
UNKNOWN = ""
"""Where a node is of which it is not known."""

Order = Callable[[NodeView], Any]
"""What the nodes of a place are sorted by: the least goes first."""


@dataclass(frozen=True, slots=True)
class WeightedPlace:
    """A zone or region that a policy names: how much of the cluster it is to hold, and within what bounds."""

    name: str
    weight: int
    cap: int | None = None
    minimum: int = 0


@dataclass(frozen=True, slots=True)
class NodeReplacement:
    """A node to be replaced by one elsewhere."""

    node_id: str
    to: str


def check_places(kind: str, listed: Sequence[Mapping[str, Any]]) -> None:
    """Raise `InvalidSpec` unless the places of a spec are named once, and have weights."""
    names = [each["name"] for each in listed]
    if not names:
        raise InvalidSpec(f"At least one {kind} has to be named in '{kind}s'.")
    for each in listed:
        if names.count(each["name"]) > 1:
            raise InvalidSpec(f"The {kind} '{each['name']}' is named more than once.")
        if each["weight"] <= 0:
            raise InvalidSpec(f"The 'weight' of {kind} '{each['name']}' must be > 0.")


def places_of(listed: Sequence[Mapping[str, Any]]) -> list[WeightedPlace]:
    """The places of a spec."""
    return [
        WeightedPlace(
            each["name"],
            each["weight"],
            cap=None if each.get("cap", -1) < 0 else each["cap"],
            minimum=each.get("minimum", 0),
        )
        for each in listed
    ]


def spread(
    action: ActionView,
    wanted: SizeChange,
    places: Sequence[WeightedPlace],
    usable: Sequence[str],
    placed_by: str,
    creation: DataKey[dict[Any, Any]],
    deletion: DataKey[dict[Any, Any]],
) -> bool:
    """Write down how many nodes are made in, or go from, each place; where that cannot be, refuse the action."""
    standing = _population(action.cluster.nodes, placed_by, without=unplaced(action, wanted))
    zones = [_zone(place, standing, place.name in usable) for place in places]
    if wanted.count > 0:
        plan, count, by_place = distribution.create(zones, wanted.count), CREATION_COUNT, creation
    else:
        # Nodes in places that the policy does not name go first.
        named = {place.name for place in places}
        elsewhere = {name: number for name, number in standing.items() if name not in named}
        zones += [WeightedZone(name, weight=0, servers=number, available=False) for name, number in elsewhere.items()]
        plan, count, by_place = distribution.delete(zones, -wanted.count), DELETION_COUNT, deletion
    if plan.short:
        action.refuse(INFEASIBLE)
        return False
    action.data["status"] = CHECK_OK
    count.write(action.data, abs(wanted.count))
    by_place.write(action.data, {name: abs(change) for name, change in plan.changes.items()})
    return True


def moves(
    places: Sequence[WeightedPlace],
    usable: Iterable[str],
    nodes: Sequence[NodeView],
    coming: Mapping[str, int],
    budget: int,
    order: Order,
) -> list[NodeReplacement]:
    """Up to `budget` replacements that bring the nodes nearer to the plan, each the one that helps most.

    A move counts only if it helps, so that a cluster which is as near as it can be is left alone. Nodes that are about
    to be made in a place are `coming`: they count, and do not move.
    """
    usable = frozenset(usable)
    targets = {place.name: place for place in places if place.name in usable}
    waiting: dict[str, list[NodeView]] = {name: [] for name in targets}
    for node in nodes:
        waiting.setdefault(node.placement.get("zone") or UNKNOWN, []).append(node)
    held = {name: len(members) + coming.get(name, 0) for name, members in waiting.items()}
    for members in waiting.values():
        members.sort(key=order, reverse=True)
    share = FairShare(sum(held.values()), sum(place.weight for place in targets.values()))
    found: list[NodeReplacement] = []
    while targets and len(found) < budget:
        sources = [name for name in held if waiting[name]]
        source = max(sources, key=lambda name: share.strain(targets, name, held[name]), default=None)
        if source is None:
            break
        target = min(targets, key=lambda name: share.strain(targets, name, held[name] + 1))
        if share.strain(targets, source, held[source]) <= share.strain(targets, target, held[target] + 1):
            break
        found.append(NodeReplacement(waiting[source].pop().id, target))
        held[source] -= 1
        held[target] += 1
    return found


@dataclass(frozen=True, slots=True)
class FairShare:
    """What each place should hold of all nodes."""

    nodes: int
    weights: int

    def strain(self, targets: Mapping[str, WeightedPlace], name: str, number: int) -> tuple[int, int]:
        """How much the last of so many nodes is out of place there: bounds come before weights.

        The second part is the rise of (nodes there - ideal)^2 by that node, in whole numbers.
        """
        place = targets.get(name)
        if place is None:
            return 1, 0
        bound = 1 if place.cap is not None and number > place.cap else -1 if number <= place.minimum else 0
        return bound, (2 * number - 1) * self.weights - 2 * self.nodes * place.weight


def _population(nodes: Iterable[NodeView], key: str, without: frozenset[str] = frozenset()) -> Counter[str]:
    """How many nodes there are in each zone (key "zone") or region (key "region_name")."""
    counted = [node for node in nodes if node.id not in without] if without else nodes
    placements = [node.data.get("placement") for node in counted]
    return Counter([(placement.get(key) if placement else None) or UNKNOWN for placement in placements])


def _zone(place: WeightedPlace, standing: Mapping[str, int], usable: bool) -> WeightedZone:
    return WeightedZone(
        place.name,
        weight=place.weight,
        servers=standing.get(place.name, 0),
        available=usable,
        cap=place.cap,
        minimum=place.minimum,
    )
