"""Where the members of a group are, and which of its hard rules they break."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import numpy as np

from roost.placement.fleet import NOWHERE, Fleet
from roost.placement.rules import Kind, Rule, inside


class Breach(StrEnum):
    """How a rule is broken. The codes are public and do not change."""

    OUTSIDE_SCOPE = "outside_scope"
    OUTSIDE_TARGET = "outside_target"
    FORBIDDEN_TARGET = "forbidden_target"
    APART = "apart"
    TOO_MANY = "too_many"
    SKEWED = "skewed"
    PARTITIONS_SHARE = "partitions_share"


SENTENCES: Final = {
    Breach.OUTSIDE_SCOPE: "{members} in no {scope}, which '{rule}' needs",
    Breach.OUTSIDE_TARGET: "{members} outside the {scope} that '{rule}' names",
    Breach.FORBIDDEN_TARGET: "{members} {inside} the {scope} that '{rule}' forbids",
    Breach.APART: "{members} apart from the {scope} that holds most, against '{rule}'",
    Breach.TOO_MANY: "{members} {inside} one {scope}, {excess} more than '{rule}' allows",
    Breach.SKEWED: "{members} {inside} one {scope}, {excess} further ahead of the least filled than '{rule}' allows",
    Breach.PARTITIONS_SHARE: "{members} of several partitions {inside} one {scope}, against '{rule}'; "
    "{excess} must leave",
}


@dataclass(frozen=True, slots=True)
class Violation:
    """One rule broken in one aggregate."""

    breach: Breach
    rule: Rule
    aggregate: int | None
    """The aggregate in question; None for members that are in no aggregate at all."""
    members: tuple[str, ...]
    excess: int
    """By how much: how many members must leave, or come."""

    def __str__(self) -> str:
        return sentence(self.breach, self.rule, len(self.members), self.excess)


def sentence(breach: Breach, rule: Rule, members: int, excess: int) -> str:
    """What is wrong, in words."""
    subject = "1 member is" if members == 1 else f"{members} members are"
    where = {"inside": inside(rule.scope), "scope": rule.scope}
    return SENTENCES[breach].format(members=subject, rule=rule, excess=excess, **where)


@dataclass(frozen=True, slots=True)
class Audit:
    """Each member's aggregate in each scope of the rules, and which rules that breaks."""

    placements: Mapping[str, Mapping[str, int | None]]
    violations: tuple[Violation, ...]


def audit(
    fleet: Fleet,
    rules: Sequence[Rule],
    members: Mapping[str, int],
    partitions: Mapping[str, int | None] = MappingProxyType({}),
) -> Audit:
    """Audit a group whose members are on these hosts and, where it is divided, in these partitions."""
    scopes = dict.fromkeys(rule.scope for rule in rules)
    placements: dict[str, dict[str, int | None]] = {member: {} for member in members}
    for scope in scopes:
        column = fleet.division(scope).column
        for member, host in members.items():
            aggregate = int(column[host])
            placements[member][scope] = None if aggregate == NOWHERE else aggregate
    violations = [found for rule in rules if not rule.soft for found in _broken(fleet, rule, placements, partitions)]
    return Audit(placements, tuple(violations))


def open_aggregates(fleet: Fleet, scope: str) -> list[int]:
    """The aggregates of a scope that have a host which takes servers: those a skew is measured against."""
    column = fleet.division(scope).column[fleet.enabled_column]
    return [int(aggregate) for aggregate in np.unique(column) if aggregate != NOWHERE]


def _broken(
    fleet: Fleet, rule: Rule, placements: Mapping[str, Mapping[str, int | None]], partitions: Mapping[str, int | None]
) -> Iterator[Violation]:
    inside: dict[int, list[str]] = {}
    outside = []
    for member, places in placements.items():
        aggregate = places[rule.scope]
        if aggregate is None:
            outside.append(member)
        else:
            inside.setdefault(aggregate, []).append(member)
    if outside:
        yield Violation(Breach.OUTSIDE_SCOPE, rule, None, tuple(outside), len(outside))
    if rule.identifier is not None:
        yield from _off_target(rule, fleet.aggregate_index(rule.scope, rule.identifier), inside)
    elif rule.kind is Kind.AFFINITY:
        yield from _apart(rule, inside)
    else:
        yield from _too_many(rule, inside)
        yield from _skewed(fleet, rule, inside)
        yield from _shared(rule, inside, partitions)


def _off_target(rule: Rule, target: int, inside: Mapping[int, Sequence[str]]) -> Iterator[Violation]:
    if rule.kind is Kind.AFFINITY:
        breach = Breach.OUTSIDE_TARGET
        wrong = tuple(member for aggregate, members in inside.items() if aggregate != target for member in members)
    else:
        breach = Breach.FORBIDDEN_TARGET
        wrong = tuple(inside.get(target, ()))
    if wrong:
        yield Violation(breach, rule, target, wrong, len(wrong))


def _apart(rule: Rule, inside: Mapping[int, Sequence[str]]) -> Iterator[Violation]:
    """All but the fullest aggregate are wrong: that is the fewest members to move."""
    if len(inside) > 1:
        fullest = min(inside, key=lambda aggregate: (-len(inside[aggregate]), aggregate))
        wrong = tuple(member for aggregate, members in inside.items() if aggregate != fullest for member in members)
        yield Violation(Breach.APART, rule, fullest, wrong, len(wrong))


def _too_many(rule: Rule, inside: Mapping[int, Sequence[str]]) -> Iterator[Violation]:
    limit = rule.limit
    if limit is None:
        return
    for aggregate, members in sorted(inside.items()):
        if len(members) > limit:
            yield Violation(Breach.TOO_MANY, rule, aggregate, tuple(members), len(members) - limit)


def _shared(
    rule: Rule, inside: Mapping[int, Sequence[str]], partitions: Mapping[str, int | None]
) -> Iterator[Violation]:
    """All but the largest partition in an aggregate must leave it: that is the fewest members to move.

    A member without a number shares with none.
    """
    if rule.partitions is None:
        return
    for aggregate, members in sorted(inside.items()):
        numbered = tuple(member for member in members if partitions[member] is not None)
        sizes = Counter(partitions[member] for member in numbered).values()
        if len(sizes) > 1:
            yield Violation(Breach.PARTITIONS_SHARE, rule, aggregate, numbered, sum(sizes) - max(sizes))


def _skewed(fleet: Fleet, rule: Rule, inside: Mapping[int, Sequence[str]]) -> Iterator[Violation]:
    if rule.max_skew is None:
        return
    lowest = min((len(inside.get(aggregate, ())) for aggregate in open_aggregates(fleet, rule.scope)), default=0)
    for aggregate, members in sorted(inside.items()):
        excess = len(members) - lowest - rule.max_skew
        if excess > 0:
            yield Violation(Breach.SKEWED, rule, aggregate, tuple(members), excess)
