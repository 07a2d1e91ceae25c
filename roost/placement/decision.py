"""What is asked of the scheduler, and what it answers."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Self

import numpy as np

from roost.placement.fleet import HEADROOM, HEADROOM_BITS, TIE_BITS, Bools, Fleet, Ints, Members, Resources
from roost.placement.rules import Rule

RUNNERS_UP: Final = 3
"""How many of those that came next an explanation names."""


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
    """A server that already runs: neither what it holds nor its membership counts against it."""

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
    """Why a host was not considered further. The codes are public: once set, they are set."""

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
    Refusal.SCOPE_FULL: "{hosts} {are} in a {scope} with as many members as '{rule}' allows",
    Refusal.TOO_SMALL_FOR_ALL: "{hosts} {are} in a {scope} that cannot hold all servers, as '{rule}' asks",
    Refusal.SKEWED: "{hosts} {are} in a {scope} too far ahead of the least filled one for '{rule}'",
    Refusal.SHARED_BY_PARTITIONS: "{hosts} {are} in a {scope} that partitions share already, against '{rule}'",
    Refusal.OTHER_PARTITION: "{hosts} {are} in a {scope} of another partition, by '{rule}'",
    Refusal.KEPT_FOR_PARTITIONS: "{hosts} {are} in a {scope} kept for a partition that has none yet, by '{rule}'",
}

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
        return SENTENCES[self.reason].format(hosts=hosts, scope=self.scope, rule=self.rule, **verbs)


class Verdict(StrEnum):
    """How a decision ended. The codes are public: once set, they are set."""

    PLACED = "placed"
    REFUSED = "refused"
    UNDECIDED = "undecided"
    """The search ended first: there may be a placement, and none was found."""


@dataclass(frozen=True, slots=True)
class RankingField:
    """Where a soft rule's preference stands within the ranking's words."""

    rule: Rule
    word: int
    shift: int
    width: int
    top: int
    """For anti-affinity, what the number of members is taken from, so that fewer rank higher."""

    def value(self, word: int) -> int | None:
        """What the rule saw in a host when it was ranked: see `Share`."""
        stored = word >> self.shift & ((1 << self.width) - 1)
        if stored == 0:
            return None
        return self.top - stored if self.top else stored - 1


@dataclass(slots=True)
class Ranking:
    """The candidates in order of preference: words of bits, compared word by word, the higher the better.

    A word holds as many soft rules as fit, the first ones highest. The last word ends with the capacity and the
    seeded tie-break, and is 0 for a refused host, so that the best host is mostly a single argmax.
    """

    words: list[Ints]
    fields: tuple[RankingField, ...]
    flip: int

    @property
    def key(self) -> Ints:
        """The last word."""
        return self.words[-1]

    def best(self, among: Bools | None = None) -> int:
        """The best candidate; where its key is 0 there was none."""
        key = self.words[-1] if among is None else self.words[-1] * among
        if len(self.words) == 1:
            return int(key.argmax())
        left = np.flatnonzero(key)
        for word in self.words[:-1] if len(left) else ():
            ranked = word[left]
            left = left[ranked == ranked.max()]
        return int(left[key[left].argmax()]) if len(left) else 0

    def row(self, host: int) -> tuple[int, ...]:
        """One host's words."""
        return tuple(int(word[host]) for word in self.words)

    def preferences(self) -> Ints:
        """What the soft rules alone say of each host: the higher the better, and equal where they see no difference."""
        own = [*self.words[:-1], self.key >> (TIE_BITS + HEADROOM_BITS)]
        return np.unique(np.stack(own), axis=1, return_inverse=True)[1].reshape(-1)

    def copy(self) -> "Ranking":
        """The same ranking, to be changed apart."""
        return Ranking([word.copy() for word in self.words], self.fields, self.flip)


@dataclass(frozen=True, slots=True)
class SoftRuleShare:
    """What a soft rule saw in a host.

    How many members its aggregate held, None if it is in no aggregate; for a rule with a target, 1 where the host is
    as the rule likes it and 0 where it is not.
    """

    rule: Rule
    value: int | None


@dataclass(frozen=True, slots=True)
class RankedHost:
    """Why a host ranked where it did: the soft rules first, in their order, then its capacity."""

    host: int
    shares: tuple[SoftRuleShare, ...]
    headroom: int
    """How much of the host's scarcest resource was free, in per cent."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The hosts chosen, each as it stood when it was chosen, and the best of those left over at the end."""

    winners: tuple[RankedHost, ...]
    runners_up: tuple[RankedHost, ...]


@dataclass(frozen=True, slots=True)
class Account:
    """Why a decision is as it is: see the properties of `Decision`."""

    refused: tuple[RefusalCount, ...]
    candidates: int
    feasible: tuple[tuple[Rule, Bools], ...]
    ranking: Ranking
    rows: tuple[tuple[int, ...], ...]


class Reasons:
    """The account of a decision, worked out from the columns when it is first read.

    It must be read before the fleet or the members change, if it is to be read at all: a decision by the index keeps
    no copy of either.
    """

    __slots__ = ("_account", "_give")

    def __init__(self, give: Callable[[], Account] | Account) -> None:
        self._account: Account | None = give if isinstance(give, Account) else None
        self._give: Callable[[], Account] | None = None if isinstance(give, Account) else give

    @classmethod
    def later(cls, fleet: Fleet, members: Members, give: Callable[[], Account]) -> Self:
        """An account that is worked out when it is read, as long as neither the fleet nor the members have changed."""
        before = fleet.changes + members.changes

        def checked() -> Account:
            if fleet.changes + members.changes != before:
                raise RuntimeError("the fleet or the members have changed since the decision; read its reasons earlier")
            return give()

        return cls(checked)

    def read(self) -> Account:
        """The account."""
        if self._account is None:
            assert self._give is not None
            self._account = self._give()
        return self._account


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
        return self.reasons.read().refused

    @property
    def candidates(self) -> int:
        """How many hosts passed every check."""
        return self.reasons.read().candidates

    @property
    def feasible(self) -> tuple[tuple[Rule, Bools], ...]:
        """For each rule with a skew, the aggregates that could take a server."""
        return self.reasons.read().feasible

    @property
    def ranking(self) -> Ranking:
        """The candidates in order of preference."""
        return self.reasons.read().ranking

    @property
    def rows(self) -> tuple[tuple[int, ...], ...]:
        """The words of each chosen host as they were when it was chosen."""
        return self.reasons.read().rows

    def __bool__(self) -> bool:
        return self.verdict is Verdict.PLACED

    def placed(self) -> Iterator[tuple[int, int | None]]:
        """Each server's host, and its partition where the group is divided."""
        return zip(self.hosts, self.partitions or (None,) * len(self.hosts), strict=True)

    def explain(self) -> Explanation:
        """What the soft rules and the capacity said of the winners and of those that came next."""
        winners = (self._standing(host, row) for host, row in zip(self.hosts, self.rows, strict=True))
        return Explanation(tuple(winners), tuple(self._standing(host, row) for host, row in self.next_best()))

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

    def next_best(self) -> list[tuple[int, tuple[int, ...]]]:
        """The best candidates that were not chosen, each with its words."""
        key, taken = self.ranking.key, list(self.hosts)
        hidden = key[taken]
        key[taken] = 0
        found: list[tuple[int, tuple[int, ...]]] = []
        for _ in range(min(RUNNERS_UP, self.candidates)):
            host = self.ranking.best()
            if not key[host]:
                break
            found.append((host, self.ranking.row(host)))
            key[host] = 0
        for host, row in found:
            key[host] = row[-1]
        key[taken] = hidden
        return found

    def _standing(self, host: int, row: tuple[int, ...]) -> RankedHost:
        shares = tuple(SoftRuleShare(field.rule, field.value(row[field.word])) for field in self.ranking.fields)
        return RankedHost(host, shares, free_share(row, self.ranking.flip))


def passing(verdict: Verdict, candidates: int) -> str:
    """Why hosts that pass every check were not enough."""
    passed = "1 host passes" if candidates == 1 else f"{candidates} hosts pass"
    if verdict is Verdict.UNDECIDED:
        return f"{passed} every check, and the search ended before it was known whether all servers fit together"
    return f"{passed} every check, too few for all servers together"


def free_share(row: Sequence[int], flip: int) -> int:
    """How much of a host's scarcest resource was free when it was ranked, in per cent, as its words have it."""
    return ((row[-1] ^ flip) & HEADROOM) >> TIE_BITS
