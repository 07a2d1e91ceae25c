"""Which nodes go first: the unhealthy, then those that never came up, then by a criterion."""

import heapq
import random
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from roost.clusters.policies.base import UNHEALTHY, NodeView, ProfileView
from roost.clusters.policies.spreading import UNKNOWN, Order

OLDEST_FIRST = "OLDEST_FIRST"
OLDEST_PROFILE_FIRST = "OLDEST_PROFILE_FIRST"
YOUNGEST_FIRST = "YOUNGEST_FIRST"
RANDOM = "RANDOM"
CRITERIA = (OLDEST_FIRST, OLDEST_PROFILE_FIRST, YOUNGEST_FIRST, RANDOM)

_NEVER = datetime.min.replace(tzinfo=UTC)


def order(criterion: str, profiles: Mapping[str, ProfileView], seed: str = "") -> Order:
    """What to sort nodes by: the least goes first. Equal nodes go by index, so that a plan made twice is the same.

    RANDOM is random in the seed, the action's own: a plan that is made again after a crash chooses the same nodes.
    """
    if criterion == YOUNGEST_FIRST:
        return lambda node: (*_worth(node), -_age(node), -node.index)
    if criterion == OLDEST_FIRST:
        return lambda node: (*_worth(node), node.created_at, node.index)
    if criterion == OLDEST_PROFILE_FIRST:
        born = {key: profile.created_at or _NEVER for key, profile in profiles.items()}
        return lambda node: (*_worth(node), born.get(node.profile_id, _NEVER), node.profile_id, _age(node), node.index)
    drawn = random.Random(seed)
    return lambda node: (*_worth(node), drawn.random())


def _worth(node: NodeView) -> tuple[bool, bool]:
    return not (node.tainted or node.status in UNHEALTHY), node.created_at is not None


def _age(node: NodeView) -> float:
    return 0.0 if node.created_at is None else node.created_at.timestamp()


def select(
    nodes: Iterable[NodeView], count: int, by: Order, regions: Mapping[str, int] | None, zones: Mapping[str, int] | None
) -> list[NodeView]:
    """The nodes that go: from each region and zone as many as the plans of the policies before have, else `count`."""
    if regions and zones:
        return choose_from_regions_and_zones(nodes, regions, zones, by)
    if regions:
        return choose_from_places(nodes, "region_name", regions, by)
    if zones:
        return choose_from_places(nodes, "zone", zones, by)
    return choose(nodes, count, by)


def choose(nodes: Iterable[NodeView], count: int, by: Order) -> list[NodeView]:
    """The first `count` nodes, in order."""
    return heapq.nsmallest(count, nodes, key=by)


def choose_from_places(nodes: Iterable[NodeView], key: str, plan: Mapping[str, int], by: Order) -> list[NodeView]:
    """The first nodes of each zone (key "zone") or region (key "region_name"), in the numbers of the plan."""
    members: dict[str, list[NodeView]] = {name: [] for name in plan}
    for node in nodes:
        here = members.get(node.placement.get(key) or UNKNOWN)
        if here is not None:
            here.append(node)
    return [node for name in sorted(plan) for node in choose(members[name], plan[name], by)]


def choose_from_regions_and_zones(
    nodes: Iterable[NodeView], regions: Mapping[str, int], zones: Mapping[str, int], by: Order
) -> list[NodeView]:
    """The first nodes of each region, and from each zone as many as the plan has as long as the regions allow it."""
    left, of_zone = dict(regions), dict(zones)
    members: dict[tuple[str, str], list[NodeView]] = {}
    for node in nodes:
        placement = node.placement
        members.setdefault((placement.get("region_name") or UNKNOWN, placement.get("zone") or UNKNOWN), []).append(node)
    # Of the nodes of one region and one zone, no more than the smaller of the two numbers can go.
    first = [
        node
        for (region, zone), here in members.items()
        for node in choose(here, min(regions.get(region, 0), zones.get(zone, 0)), by)
    ]
    chosen = [node for node in sorted(first, key=by) if _take(left, of_zone, node)]
    if any(left.values()):
        taken = {node.id for node in chosen}
        for node in sorted((node for here in members.values() for node in here if node.id not in taken), key=by):
            if left.get(_region(node)):
                left[_region(node)] -= 1
                chosen.append(node)
    return chosen


def _take(regions: dict[str, int], zones: dict[str, int], node: NodeView) -> bool:
    region, zone = _region(node), node.placement.get("zone") or UNKNOWN
    if not regions.get(region) or not zones.get(zone):
        return False
    regions[region] -= 1
    zones[zone] -= 1
    return True


def _region(node: NodeView) -> Any:
    return node.placement.get("region_name") or UNKNOWN
