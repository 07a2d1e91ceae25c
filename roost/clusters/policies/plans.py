"""How nodes are spread over zones or regions: the placement core's plans, in the words of policies."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roost.clusters.policies.base import NodeView
from roost.placement import distribution
from roost.placement.distribution import Zone

INFEASIBLE = "There is no feasible plan to handle all nodes."
UNKNOWN = ""
"""Where a node is of which it is not known."""

Order = Callable[[NodeView], Any]
"""What the nodes of a place are sorted by: the least goes first."""


@dataclass(frozen=True, slots=True)
class Place:
    """A zone or region that a policy names: how much of the cluster it is to hold, and within what bounds."""

    name: str
    weight: int
    cap: int | None = None
    minimum: int = 0


@dataclass(frozen=True, slots=True)
class Move:
    """A node to be replaced by one elsewhere."""

    node_id: str
    to: str


def population(nodes: Iterable[NodeView], key: str, without: frozenset[str] = frozenset()) -> Counter[str]:
    """How many nodes there are in each zone (key "zone") or region (key "region_name")."""
    counted = [node for node in nodes if node.id not in without] if without else nodes
    placements = [node.data.get("placement") for node in counted]
    return Counter([(placement.get(key) if placement else None) or UNKNOWN for placement in placements])


def creation(
    places: Sequence[Place], usable: Iterable[str], standing: Mapping[str, int], count: int
) -> dict[str, int] | None:
    """How many nodes to make in each place; None if not all of them fit."""
    usable = frozenset(usable)
    zones = [_zone(place, standing, place.name in usable) for place in places]
    plan = distribution.create(zones, count)
    return None if plan.short else dict(plan.changes)


def deletion(
    places: Sequence[Place], usable: Iterable[str], standing: Mapping[str, int], count: int
) -> dict[str, int] | None:
    """How many nodes to remove from each place, those that no policy names first; None if there are not as many."""
    usable = frozenset(usable)
    zones = [_zone(place, standing, place.name in usable) for place in places]
    named = {place.name for place in places}
    zones += [
        Zone(name, weight=0, servers=number, available=False) for name, number in standing.items() if name not in named
    ]
    plan = distribution.delete(zones, count)
    return None if plan.short else {name: -change for name, change in plan.changes.items()}


def _zone(place: Place, standing: Mapping[str, int], usable: bool) -> Zone:
    return Zone(
        place.name,
        weight=place.weight,
        servers=standing.get(place.name, 0),
        available=usable,
        cap=place.cap,
        minimum=place.minimum,
    )


def moves(
    places: Sequence[Place],
    usable: Iterable[str],
    nodes: Sequence[NodeView],
    coming: Mapping[str, int],
    budget: int,
    order: Order,
) -> list[Move]:
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
    share = Share(sum(held.values()), sum(place.weight for place in targets.values()))
    found: list[Move] = []
    while targets and len(found) < budget:
        sources = [name for name in held if waiting[name]]
        source = max(sources, key=lambda name: share.strain(targets, name, held[name]), default=None)
        if source is None:
            break
        target = min(targets, key=lambda name: share.strain(targets, name, held[name] + 1))
        if share.strain(targets, source, held[source]) <= share.strain(targets, target, held[target] + 1):
            break
        found.append(Move(waiting[source].pop().id, target))
        held[source] -= 1
        held[target] += 1
    return found


@dataclass(frozen=True, slots=True)
class Share:
    """What each place should hold of all nodes."""

    nodes: int
    weights: int

    def strain(self, targets: Mapping[str, Place], name: str, number: int) -> tuple[int, int]:
        """How much the last of so many nodes is out of place there: bounds come before weights.

        The second part is the rise of (nodes there - ideal)^2 by that node, in whole numbers.
        """
        place = targets.get(name)
        if place is None:
            return 1, 0
        bound = 1 if place.cap is not None and number > place.cap else -1 if number <= place.minimum else 0
        return bound, (2 * number - 1) * self.weights - 2 * self.nodes * place.weight
