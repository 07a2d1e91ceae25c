"""Random subsets of policies on random clusters, asked about random requests one after the other, against brute force.

The cluster is a list of nodes that every accepted request is applied to, as the engine would. What must hold: sizes
stay within limits, zone counts are the best there are, the right nodes go, every new node has its group, and requests
that cannot be followed change nothing.
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roost.clusters.actions.cluster_plans import placements
from roost.clusters.policies.base import (
    BEFORE,
    ActionView,
    NodeView,
    Policy,
)
from roost.clusters.policies.decisions import Decisions
from roost.clusters.states import ActionName
from roost.policies.memory import MemoryCloud
from tests.clusters.builders import action, ask_all, cluster, node, policy

GROUP = {"AffinityPolicy": {"version": 1.0, "data": {"servergroup_id": "group", "inherited_group": True}}}
NAMES = ("a", "b", "c", "d")


@dataclass
class World:
    """A cluster, its policies, and the cloud below."""

    weights: dict[str, int]
    policies: dict[str, Policy]
    min_size: int
    max_size: int
    down: set[str] = field(default_factory=set)
    nodes: list[NodeView] = field(default_factory=list)
    born: int = 0

    async def ask(self, name: str, inputs: dict[str, Any], own: NodeView | None = None) -> ActionView | None:
        """The action as the policies leave it; None if they stop it."""
        members = cluster(*self.nodes, min_size=self.min_size, max_size=self.max_size)
        cloud = MemoryCloud(zones={zone: zone not in self.down for zone in NAMES})
        view = action(name, members, cloud, inputs, node=own)
        view.id = f"action-{self.born}-{len(self.nodes)}"
        said = await ask_all(BEFORE, view, *((each, GROUP) for each in self.policies.values()))
        return view if said.refusal is None else None

    def make(self, view: ActionView, count: int) -> list[NodeView]:
        """The nodes that the engine would make, oldest first; an unlucky one falls ill at once."""
        made = []
        for place in itertools.islice(placements(Decisions.from_json(view.data)), count):
            self.born += 1
            status = "ERROR" if self.born % 7 == 0 else "ACTIVE"
            new = node(f"n{self.born}", age=1000 - self.born, index=self.born, status=status, profile="profile-1")
            # Without a plan, the cloud chooses.
            zone = place.zone or NAMES[self.born % 2]
            made.append(new._replace(data={"placement": {**place.to_json(), "zone": zone}}))
        self.nodes += made
        return made

    def remove(self, ids: Sequence[str]) -> None:
        self.nodes = [each for each in self.nodes if each.id not in ids]

    def zones(self, without: Sequence[str] = ()) -> Counter[str]:
        return Counter(each.placement["zone"] for each in self.nodes if each.id not in without)


def distance(counts: Counter[str], weights: dict[str, int]) -> int:
    """How far the zones are from their shares, as a whole number."""
    total, whole = sum(counts.values()), sum(weights.values())
    return sum((counts[zone] * whole - total * weight) ** 2 for zone, weight in weights.items())


def spreads(zones: Sequence[str], count: int) -> Iterator[Counter[str]]:
    for chosen in itertools.combinations_with_replacement(zones, count):
        yield Counter(chosen)


def check_creation(world: World, view: ActionView, count: int) -> None:
    before = world.zones()
    made = world.make(view, count)
    if "affinity" in world.policies:
        assert all(each.placement["servergroup"] == "group" for each in made)
    if "zone" not in world.policies:
        return
    usable = {zone: weight for zone, weight in world.weights.items() if zone not in world.down}
    assert sum(view.data["creation"]["zones"].values()) == count
    assert Counter(each.placement["zone"] for each in made) == Counter(view.data["creation"]["zones"])
    inside = Counter({zone: before[zone] for zone in world.weights})
    best = min(distance(inside + more, usable) for more in spreads(list(usable), count))
    assert distance(inside + Counter(view.data["creation"]["zones"]), usable) == best


def check_deletion(world: World, view: ActionView, count: int) -> None:
    chosen = view.data.get("deletion", {}).get("candidates")
    if "deletion" in world.policies:
        assert chosen is not None
        assert len(set(chosen)) == len(chosen) == count
        assert {each.id for each in world.nodes} >= set(chosen)
        check_victims(world, view, chosen)
    if "zone" in world.policies:
        check_deletion_zones(world, view, count)
    world.remove(chosen if chosen is not None else [each.id for each in world.nodes[:count]])


def check_deletion_zones(world: World, view: ActionView, count: int) -> None:
    plan, before = Counter(view.data["deletion"]["zones"]), world.zones()
    assert plan.total() == count
    assert all(plan[zone] <= before[zone] for zone in plan)
    usable = {zone: weight for zone, weight in world.weights.items() if zone not in world.down}
    foreign = {zone: number for zone, number in before.items() if zone not in usable}
    first = min(count, sum(foreign.values()))
    assert sum(plan[zone] for zone in foreign) == first
    inside = Counter({zone: before[zone] for zone in usable})
    best = min(
        distance(inside - fewer, usable)
        for fewer in spreads(list(usable), count - first)
        if all(fewer[zone] <= inside[zone] for zone in fewer)
    )
    assert distance(inside - Counter({zone: plan[zone] for zone in usable}), usable) == best


def check_victims(world: World, view: ActionView, chosen: Sequence[str]) -> None:
    """Within each zone of the plan (or in all), no node stays that should have gone before one that goes."""
    plan = view.data["deletion"].get("zones")
    for zone in plan or [None]:
        here = [each for each in world.nodes if zone is None or each.placement["zone"] == zone]
        ranked = sorted(here, key=lambda each: (not each.unhealthy, each.created_at))
        going = [each.id for each in ranked if each.id in chosen]
        assert going == [each.id for each in ranked[: len(going)]]


def within_limits(world: World, size: int) -> bool:
    return world.min_size <= size and (world.max_size < 0 or size <= world.max_size)


Request = tuple[str, int]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    weights = {
        zone: draw(st.integers(1, 4)) for zone in draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    }
    kinds = draw(st.sets(st.sampled_from(["zone", "affinity", "deletion", "scaling out", "scaling in"])))
    best_effort = draw(st.booleans())
    listed = [{"name": zone, "weight": weight} for zone, weight in weights.items()]
    built = {
        "zone": policy("zone_placement-1.0", {"zones": listed}),
        "affinity": policy("affinity-1.0", {}),
        "deletion": policy("deletion-1.0", {"criteria": "OLDEST_FIRST"}),
        "scaling out": policy(
            "scaling-1.0", {"event": ActionName.CLUSTER_SCALE_OUT, "adjustment": {"best_effort": best_effort}}, id="out"
        ),
        "scaling in": policy(
            "scaling-1.0", {"event": ActionName.CLUSTER_SCALE_IN, "adjustment": {"best_effort": best_effort}}, id="in"
        ),
    }
    least = draw(st.integers(0, 2))
    most = draw(st.sampled_from([-1, 5, 8]))
    members = [node(f"first{at}", zone=NAMES[at], age=2000, index=-at) for at in range(least)]
    return World(weights, {kind: built[kind] for kind in kinds}, least, most, nodes=members)


requests = st.lists(
    st.tuples(
        st.sampled_from(
            [
                ActionName.CLUSTER_SCALE_OUT,
                ActionName.CLUSTER_SCALE_IN,
                ActionName.CLUSTER_RESIZE,
                ActionName.NODE_CREATE,
                ActionName.NODE_DELETE,
                "zone fails",
            ]
        ),
        st.integers(0, 6),
    ),
    max_size=10,
)


@settings(max_examples=150, derandomize=True, deadline=None)
@given(world=worlds(), wanted=requests)
async def test_whatever_is_asked_for_in_whatever_order(world: World, wanted: list[Request]) -> None:
    for name, number in wanted:
        if name == "zone fails":
            world.down ^= {NAMES[number % len(NAMES)]}
        elif name == ActionName.CLUSTER_RESIZE:
            await resize(world, number)
        elif name == ActionName.NODE_CREATE:
            await one_more(world)
        elif name == ActionName.NODE_DELETE:
            await one_fewer(world, number)
        else:
            await scale(world, name, number)


async def scale(world: World, name: str, number: int) -> None:
    scaling = world.policies.get("scaling out" if name == ActionName.CLUSTER_SCALE_OUT else "scaling in")
    view = await world.ask(name, {"count": number} if number else {})
    if view is None:
        return
    field = "creation" if name == ActionName.CLUSTER_SCALE_OUT else "deletion"
    count = view.data.get(field, {}).get("count", number or 1)
    sign = 1 if name == ActionName.CLUSTER_SCALE_OUT else -1
    if not within_limits(world, len(world.nodes) + sign * count):
        # Only a scaling policy knows of limits; without one, the engine refuses.
        assert scaling is None or count > len(world.nodes)
        return
    if scaling is not None and sign > 0:
        assert count <= (number or 1)
    if sign > 0 and count:
        check_creation(world, view, count)
    elif count:
        check_deletion(world, view, count)


async def resize(world: World, number: int) -> None:
    view = await world.ask(
        ActionName.CLUSTER_RESIZE, {"adjustment_type": "EXACT_CAPACITY", "number": number, "strict": True}
    )
    if view is None:
        return
    planned = {"zone", "affinity", "deletion"} & set(world.policies)
    if not planned or not within_limits(world, number):
        assert within_limits(world, number) or not planned
        return
    if number > len(world.nodes):
        check_creation(world, view, number - len(world.nodes))
    elif number < len(world.nodes):
        check_deletion(world, view, len(world.nodes) - number)
    assert len(world.nodes) == number


async def one_more(world: World) -> None:
    new = node("new", physical=None)
    view = await world.ask(ActionName.NODE_CREATE, {}, new)
    if view is not None and within_limits(world, len(world.nodes) + 1):
        check_creation(world, view, 1)


async def one_fewer(world: World, number: int) -> None:
    if not world.nodes or not within_limits(world, len(world.nodes) - 1):
        return
    own = world.nodes[number % len(world.nodes)]
    view = await world.ask(ActionName.NODE_DELETE, {}, own)
    assert view is not None
    if "deletion" in world.policies:
        assert view.data["deletion"]["candidates"] == [own.id]
    world.remove([own.id])


@settings(max_examples=200, derandomize=True, deadline=None)
@given(
    counts=st.lists(st.integers(0, 5), min_size=2, max_size=4),
    weights=st.lists(st.integers(1, 4), min_size=4, max_size=4),
    budget=st.integers(1, 8),
)
async def test_rebalance_ends_at_an_optimum_and_never_makes_it_worse(
    counts: list[int], weights: list[int], budget: int
) -> None:
    zones = dict(zip(NAMES[: len(counts)], weights, strict=False))
    listed = [{"name": zone, "weight": weight} for zone, weight in zones.items()]
    spread = policy("zone_placement-1.1", {"zones": listed, "rebalance": True, "rebalance_budget": budget})
    members = [
        node(f"{zone}{at}", zone=zone, index=at)
        for zone, count in zip(zones, counts, strict=True)
        for at in range(count)
    ]
    cloud = MemoryCloud(zones=dict.fromkeys(NAMES, True))
    best = min(distance(each, zones) for each in spreads(list(zones), len(members)))
    for _ in range(20):
        before = Counter(each.placement["zone"] for each in members)
        view = action("CLUSTER_RECOVER", cluster(*members), cloud)
        await ask_all(BEFORE, view, (spread, {}))
        moved = view.data.get("rebalance", [])
        if not moved:
            break
        assert len(moved) <= budget
        came = [
            node(f"m{len(members)}{at}", zone=zone)
            for at, zone in enumerate(Counter(view.data["creation"]["zones"]).elements())
        ]
        members = [each for each in members if each.id not in moved] + came
        assert distance(Counter(each.placement["zone"] for each in members), zones) < distance(before, zones)
    assert distance(Counter(each.placement["zone"] for each in members), zones) == best


@pytest.mark.parametrize("zones", [2, 3])
async def test_the_plan_is_lopsided_nowhere(zones: int) -> None:
    listed = [{"name": name} for name in NAMES[:zones]]
    cloud = MemoryCloud(zones=dict.fromkeys(NAMES, True))
    for count in range(1, 30):
        view = action(ActionName.CLUSTER_SCALE_OUT, cluster(), cloud, {"count": count})
        await ask_all(BEFORE, view, (policy("zone_placement-1.0", {"zones": listed}), {}))
        found = view.data["creation"]["zones"]
        assert max(found.values()) - min(found.get(name, 0) for name in NAMES[:zones]) <= 1
