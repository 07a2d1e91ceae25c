"""Whether what was decided earlier still holds: the fleet and the group may have changed since."""

from collections import Counter
from dataclasses import replace

import numpy as np

from roost.placement.board import ANY, Board, holders, settled, tally_of, target_of
from roost.placement.decision import Decision
from roost.placement.fleet import NOWHERE, Bools, Division, Fleet, Ints, Members
from roost.placement.rules import Kind, Rule


def still_holds(fleet: Fleet, decision: Decision, members: Members) -> bool:
    """Whether a placement that was decided earlier can be carried out on this fleet, beside these members."""
    request = replace(decision.request, members=members)
    if not decision or not Board(fleet, request).ok[list(decision.hosts)].all():
        return False
    room = (
        free >= servers * need
        for host, servers in Counter(decision.hosts).items()
        for free, need in zip(fleet.free(host), request.resources, strict=True)
        if need and servers > 1
    )
    return all(room) and not broken_rules(fleet, decision, members)


def broken_rules(fleet: Fleet, decision: Decision, members: Members) -> tuple[Rule, ...]:
    """The hard rules that a decision would break if the group's members were these. It looks at the chosen hosts
    only."""
    request = replace(decision.request, members=members)
    present, hosts = request.present(), np.array(decision.hosts, np.int64)
    feasible = dict(decision.feasible)
    broken = []
    for rule in request.rules:
        kept = rule.soft or _kept(fleet, rule, present, hosts, feasible.get(rule))
        if not kept or (rule.partitions and not _divided(fleet.division(rule.scope), present, decision)):
            broken.append(rule)
    return tuple(broken)


def _kept(fleet: Fleet, rule: Rule, present: Members, hosts: Ints, feasible: Bools | None) -> bool:
    division = fleet.division(rule.scope)
    chosen = division.column[hosts]
    if NOWHERE in chosen:
        return False
    if rule.identifier is not None:
        return bool(np.all((chosen == target_of(fleet, rule)) == (rule.kind is Kind.AFFINITY)))
    before = tally_of(division, present)
    if rule.kind is Kind.AFFINITY:
        staying = settled(division, present, before)
        return bool(np.all(staying[chosen] > 0) if present.total else np.all(chosen == chosen[0]))
    after = before.copy()
    np.add.at(after, chosen, 1)
    limit = rule.limit
    if limit is not None and after[chosen].max() > limit:
        return False
    if rule.max_skew is None or feasible is None:
        return True
    return bool(after[chosen].max() <= after[np.flatnonzero(feasible)].min() + rule.max_skew)


def _divided(division: Division, present: Members, decision: Decision) -> bool:
    """Whether no aggregate comes to hold two partitions by a decision."""
    holder = holders(division, present)
    for host, partition in zip(decision.hosts, decision.partitions, strict=True):
        aggregate = division.column[host]
        if holder[aggregate] not in (ANY, partition):
            return False
        holder[aggregate] = partition
    return True
