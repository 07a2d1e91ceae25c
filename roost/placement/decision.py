"""Requests to the scheduler, and its decisions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from roost.placement.fleet import Bools, Fleet, Members, Resources
from roost.placement.ranking import Names, RankedHost, Ranking, Row, SoftRuleShare, free_share
from roost.placement.rules import HOST, Rule

WORK: Final = 200_000
"""How much work the exact search may do for one request, where the request does not say."""


@dataclass(slots=True)
class WorkBudget:
    """Work that searches may still do, in a unit that is the same on every machine: see `exact`."""

    left: int

    def spend(self, work: int) -> None:
        """Account for work that was done."""
        self.left = max(0, self.left - work)


@dataclass(frozen=True, slots=True)
class Move:
    """A server that already runs: its own resources and membership do not count against it."""

    host: int
    held: Resources
    may_stay: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """Servers of one size, to be placed together or not at all, unless it names the `least` that will do."""

    resources: Resources
    count: int = 1
    rules: tuple[Rule, ...] = ()
    members: Members = field(default_factory=Members)
    zone: str | None = None
    targets: Sequence[int] | None = None
    excluded: Sequence[int] = ()
    same_host: Sequence[int] | None = None
    different_host: Sequence[int] = ()
    moving: Move | None = None
    partition: int | None = None
    """Of a divided group, the partition for all servers, or the one that a moving server has; None for the emptiest."""
    seed: int = 0
    least: int | None = None
    """How many of the servers must find a place, where it need not be all of them: then as many as can be do."""
    budget: int = WORK
    """The work that the exact search may do; it is needed only where the quick one fails. With 0 there is no search."""

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"a request is for one server or more, not {self.count}")
        if self.least is not None and not 1 <= self.least <= self.count:
            raise ValueError(f"of {self.count} servers, {self.least} cannot be the least that must find a place")
        if self.moving is not None and self.count != 1:
            raise ValueError("one server moves at a time")

    def present(self) -> Members:
        """The members that count: all of the group but a server that is itself moving."""
        if self.moving is None or not self.members.on(self.moving.host):
            return self.members
        others = self.members.copy()
        others.remove(self.moving.host, partition=self.partition)
        return others


class Refusal(StrEnum):
    """Why a host was not considered further. The codes are public and do not change."""

    DISABLED = "disabled"
    OUTSIDE_ZONE = "outside_zone"
    NOT_TARGETED = "not_targeted"
    EXCLUDED = "excluded"
    NOT_SAME_HOST = "not_same_host"
    NOT_DIFFERENT_HOST = "not_different_host"
    TOO_FEW_VCPUS = "too_few_vcpus"
    TOO_LITTLE_MEMORY = "too_little_memory"
    TOO_LITTLE_DISK = "too_little_disk"
    OUTSIDE_SCOPE = "outside_scope"
    OUTSIDE_TARGET = "outside_target"
    FORBIDDEN_TARGET = "forbidden_target"
    AWAY_FROM_MEMBERS = "away_from_members"
    SCOPE_FULL = "scope_full"
    TOO_SMALL_FOR_ALL = "too_small_for_all"
    SKEWED = "skewed"
    SHARED_BY_PARTITIONS = "shared_by_partitions"
    OTHER_PARTITION = "other_partition"
    KEPT_FOR_PARTITIONS = "kept_for_partitions"


SENTENCES: Final = {
    Refusal.DISABLED: "{hosts} {are} down or disabled",
    Refusal.OUTSIDE_ZONE: "{hosts} {are} outside the availability zone",
    Refusal.NOT_TARGETED: "{hosts} {are} not among the hosts asked for",
    Refusal.EXCLUDED: "{hosts} {are} excluded",
    Refusal.NOT_SAME_HOST: "{hosts} {do} not hold the servers to be with",
    Refusal.NOT_DIFFERENT_HOST: "{hosts} {hold} the servers to be away from",
    Refusal.TOO_FEW_VCPUS: "{hosts} {have} too few free vCPUs",
    Refusal.TOO_LITTLE_MEMORY: "{hosts} {have} too little free memory",
    Refusal.TOO_LITTLE_DISK: "{hosts} {have} too little free disk",
    Refusal.OUTSIDE_SCOPE: "{hosts} {are} in no {scope}, which '{rule}' needs",
    Refusal.OUTSIDE_TARGET: "{hosts} {are} outside the {scope} that '{rule}' names",
    Refusal.FORBIDDEN_TARGET: "{hosts} {are} in the {scope} that '{rule}' forbids",
    Refusal.AWAY_FROM_MEMBERS: "{hosts} {share} no {scope} with the members, as '{rule}' asks",
    Refusal.SCOPE_FULL: "{hosts} {are} in {a_scope} with as many members as '{rule}' allows",
    Refusal.TOO_SMALL_FOR_ALL: "{hosts} {are} in {a_scope} that cannot hold all servers, as '{rule}' asks",
    Refusal.SKEWED: "{hosts} {are} in {a_scope} too far ahead of the least filled one for '{rule}'",
    Refusal.SHARED_BY_PARTITIONS: "{hosts} {are} in {a_scope} that partitions share already, against '{rule}'",
    Refusal.OTHER_PARTITION: "{hosts} {are} in {a_scope} of another partition, by '{rule}'",
    Refusal.KEPT_FOR_PARTITIONS: "{hosts} {are} in {a_scope} kept for a partition that has none yet, by '{rule}'",
}

ON_A_HOST: Final = {
    Refusal.OUTSIDE_TARGET: "{hosts} {are} not the host that '{rule}' names",
    Refusal.FORBIDDEN_TARGET: "{hosts} {are} the host that '{rule}' forbids",
    Refusal.AWAY_FROM_MEMBERS: "{hosts} {hold} none of the members, as '{rule}' asks",
    Refusal.SCOPE_FULL: "{hosts} {hold} as many members as '{rule}' allows",
    Refusal.TOO_SMALL_FOR_ALL: "{hosts} cannot hold all servers, as '{rule}' asks",
    Refusal.SKEWED: "{hosts} {are} too far ahead of the least filled one for '{rule}'",
    Refusal.SHARED_BY_PARTITIONS: "{hosts} {hold} several partitions already, against '{rule}'",
    Refusal.OTHER_PARTITION: "{hosts} {hold} another partition, by '{rule}'",
    Refusal.KEPT_FOR_PARTITIONS: "{hosts} {are} kept for a partition that has none yet, by '{rule}'",
}
"""The same where the scope is the host itself."""

_VERBS: Final = {"are": "is", "have": "has", "hold": "holds", "do": "does", "share": "shares"}


@dataclass(frozen=True, slots=True)
class RefusalCount:
    """How many hosts one check removed of those that the checks before it had left."""

    reason: Refusal
    hosts: int
    rule: Rule | None = None

    @property
    def scope(self) -> str | None:
        """The scope of the rule, where it was a rule."""
        return None if self.rule is None else self.rule.scope

    def __str__(self) -> str:
        one = self.hosts == 1
        verbs = {many: single if one else many for many, single in _VERBS.items()}
        hosts = "1 host" if one else f"{self.hosts} hosts"
        sentence = SENTENCES[self.reason]
        if self.scope == HOST:
            sentence = ON_A_HOST.get(self.reason, sentence)
        scope = (self.scope or "").replace("_", " ")
        a_scope = f"{'an' if scope[:1] in 'aeiou' else 'a'} {scope}"
        return sentence.format(hosts=hosts, scope=scope, a_scope=a_scope, rule=self.rule, **verbs)


class Verdict(StrEnum):
    """How a decision ended. The codes are public and do not change."""

    PLACED = "placed"
    REFUSED = "refused"
    UNDECIDED = "undecided"
    """The search ended first: there may be a placement, and none was found."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The hosts chosen, each as it stood when it was chosen, and the best of those left over at the end."""

    winners: tuple[RankedHost, ...]
    runners_up: tuple[RankedHost, ...]


@dataclass(frozen=True, slots=True)
class Account:
    """Why a decision is as it is, counted over all hosts: see the properties of `Decision`."""

    refused: tuple[RefusalCount, ...]
    candidates: int
    feasible: tuple[tuple[Rule, Bools], ...]
    ranking: Ranking
    chosen: tuple[int, ...]
    rows: tuple[Row, ...]

    def names(self) -> Names:
        """The chosen hosts and the best candidates that were not chosen."""
        hosts = self.candidates + sum(refused.hosts for refused in self.refused)
        next_best = tuple(self.ranking.next_best(self.chosen))
        return Names(self.ranking.fields, self.ranking.flip, self.rows, next_best, hosts)


class Reasons:
    """Why a decision is as it is. What the decision itself did not need is worked out when it is first read."""

    __slots__ = ("_account", "_names")

    def __init__(self, account: Account | None) -> None:
        self._account = account
        self._names: Names | None = None

    @property
    def counted(self) -> bool:
        """Whether the hosts have been counted."""
        return self._account is not None

    def account(self) -> Account:
        """What each check removed, over all hosts."""
        if self._account is None:
            self._account = self._count()
        return self._account

    def names(self) -> Names:
        """The chosen hosts and those that came next."""
        if self._names is None:
            self._names = self._name() or self.account().names()
        return self._names

    def _count(self) -> Account:
        raise NotImplementedError

    def _name(self) -> Names | None:
        """The names, if they are known without looking at all hosts."""
        return None


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """Where each server goes, or why nowhere. Where fewer servers than asked for were enough, the request says how
    many were placed."""

    verdict: Verdict
    request: Request
    hosts: tuple[int, ...]
    partitions: tuple[int, ...]
    """The partition of each server, where the group is divided."""
    reasons: Reasons
    fleet: Fleet | None = None
    """The fleet that refused, kept for finding what would help."""
    cut_short: bool = False
    """Whether the budget ended before it was known if more servers could be placed. With a budget of 0 this tells, at
    the cost of the quick search, that a request needs the exact one."""

    @property
    def refused(self) -> tuple[RefusalCount, ...]:
        """What each check removed, in the order applied; for several servers, before the first of them was placed."""
        return self.reasons.account().refused

    @property
    def candidates(self) -> int:
        """How many hosts passed every check."""
        return self.reasons.account().candidates

    @property
    def feasible(self) -> tuple[tuple[Rule, Bools], ...]:
        """For each rule with a skew, the aggregates that could take a server."""
        return self.reasons.account().feasible

    @property
    def ranking(self) -> Ranking:
        """The candidates in order of preference."""
        return self.reasons.account().ranking

    @property
    def names(self) -> Names:
        """The chosen hosts and the best that were not chosen, with what ranked each."""
        return self.reasons.names()

    def __bool__(self) -> bool:
        return self.verdict is Verdict.PLACED

    def placed(self) -> Iterator[tuple[int, int | None]]:
        """Each server's host, and its partition where the group is divided."""
        return zip(self.hosts, self.partitions or (None,) * len(self.hosts), strict=True)

    def explain(self) -> Explanation:
        """What the soft rules and the capacity said of the winners and of those that came next."""
        names = self.names
        winners = (_standing(names, host, row) for host, row in zip(self.hosts, names.rows, strict=True))
        return Explanation(tuple(winners), tuple(_standing(names, host, row) for host, row in names.next_best))

    def sentence(self, refused: Sequence[RefusalCount] | None = None) -> str:
        """The decision in plain words; with other counts of what was refused, where they are to be read by others."""
        many = "1 server" if self.request.count == 1 else f"{self.request.count} servers"
        if self.request.partition is not None:
            many += f" in partition {self.request.partition}"
        if self.verdict is Verdict.PLACED:
            return f"{many} placed"
        lead = "no place found for" if self.verdict is Verdict.UNDECIDED else "no place for"
        reasons = [str(each) for each in (self.refused if refused is None else refused)]
        if self.candidates:
            reasons.append(passing(self.verdict, self.candidates))
        return f"{lead} {many}: {'; '.join(reasons) or 'there are no hosts'}"


def _standing(names: Names, host: int, row: Row) -> RankedHost:
    shares = tuple(SoftRuleShare(field.rule, field.value(row[field.word])) for field in names.fields)
    return RankedHost(host, shares, free_share(row, names.flip))


def passing(verdict: Verdict, candidates: int) -> str:
    """Why hosts that pass every check were not enough."""
    passed = "1 host passes" if candidates == 1 else f"{candidates} hosts pass"
    if verdict is Verdict.UNDECIDED:
        return f"{passed} every check, and the search ended before it was known whether all servers fit together"
    return f"{passed} every check, too few for all servers together"
