"""Where servers would go if hosts could not hold them any more: drained, or lost."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from roost.compute.answers.placed_servers import PlacedServer
from roost.placement.audit import Violation, audit
from roost.placement.decision import Decision, Move, Request
from roost.placement.fleet import Fleet, Members
from roost.placement.rules import Rule
from roost.placement.scheduler import place

Rules = Mapping[str, tuple[Rule, ...]]
"""The rules of each group, by its id."""


@dataclass(slots=True)
class DrainOutcome:
    """Which servers move where, which find no other place, and where all of them are afterwards."""

    places: dict[str, int]
    moves: list[tuple[PlacedServer, int]] = field(default_factory=list)
    stranded: list[tuple[PlacedServer, Decision]] = field(default_factory=list)


def displace(
    fleet: Fleet, rules: Rules, occupants: Sequence[PlacedServer], hosts: Collection[int], *, lost: bool
) -> DrainOutcome:
    """Place all servers on these hosts elsewhere, one after another, as the scheduler would. If the hosts are lost, the
    servers that find no other place are lost with them."""
    after, inside = fleet.snapshot(), set(hosts)
    for host in inside:
        after.enable(host, False)
    members = {group: Members() for group in rules}
    for each in occupants:
        if each.group_id in members:
            members[each.group_id].add(each.host, partition=each.partition)
    found = DrainOutcome({each.id: each.host for each in occupants})
    for each in occupants:
        if each.host in inside:
            _place(after, rules, members, each, found)
    if lost:
        for each, _ in found.stranded:
            del found.places[each.id]
    return found


def _place(fleet: Fleet, rules: Rules, members: Mapping[str, Members], each: PlacedServer, found: DrainOutcome) -> None:
    group = each.group_id if each.group_id in members else None
    request = Request(
        each.resources,
        rules=rules[group] if group else (),
        members=members[group] if group else Members(),
        zone=each.zone,
        moving=Move(each.host, each.resources),
        partition=each.partition if group else None,
    )
    decision = place(fleet, request)
    if not decision:
        found.stranded.append((each, decision))
        return
    target = decision.hosts[0]
    fleet.release(each.host, each.resources)
    fleet.claim(target, each.resources)
    if group:
        members[group].remove(each.host, partition=each.partition)
        members[group].add(target, partition=each.partition)
    found.places[each.id] = target
    found.moves.append((each, target))


def violations(
    fleet: Fleet, rules: Rules, occupants: Sequence[PlacedServer], places: Mapping[str, int] | None = None
) -> dict[str, tuple[Violation, ...]]:
    """What is broken in each group once its members are in these places, or where they are; only groups in which
    something is."""
    if places is None:
        places = {each.id: each.host for each in occupants}
    named: dict[str, dict[str, int]] = {group: {} for group in rules}
    for each in occupants:
        if each.group_id in named and each.id in places:
            named[each.group_id][each.id] = places[each.id]
    partitions = {each.id: each.partition for each in occupants}
    found = {group: audit(fleet, rules[group], named[group], partitions).violations for group in rules}
    return {group: broken for group, broken in found.items() if broken}
