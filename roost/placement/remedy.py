"""What would help: the smallest changes, one at a time, that would turn a refusal into a placement.

Each is found by deciding again with the change made, on the fleet that refused, so that its promise holds. All these
decisions together have one budget (`PROBES` of them, and the work of one request for the exact search): what is not
found within it is not offered.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

import numpy as np

from roost.placement.decision import WORK, Decision, Request, WorkBudget
from roost.placement.fleet import NOWHERE, Fleet, Resources
from roost.placement.rules import AVAILABILITY_ZONE, HOST, Kind, Rule
from roost.placement.scheduler import eligible, place

PROBES: Final = 400
"""How many changes are tried for one refusal."""
_LONGEST_SCAN: Final = 60
"""How many numbers are tried one by one, where a larger one need not do although a smaller one does."""
_MOST_NEW_HOSTS: Final = 4000


class RemedyKind(StrEnum):
    """What could be changed. The codes are public and do not change."""

    RAISE_LIMIT = "raise_limit"
    RAISE_SKEW = "raise_skew"
    ADD_AGGREGATES = "add_aggregates"
    ENABLE_HOSTS = "enable_hosts"
    FREE_CAPACITY = "free_capacity"
    ASK_FOR_FEWER = "ask_for_fewer"
    LEAVE_PARTITION_OPEN = "leave_partition_open"


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change that would do by itself."""

    change: RemedyKind
    amount: int
    """The new limit, skew or number of servers; how many aggregates or hosts more; or the partition that would do."""
    sentence: str
    rule: Rule | None = None
    hosts: tuple[int, ...] = ()
    """The hosts to enable, or the one to free capacity on."""
    lacking: Resources | None = None
    """What has to become free there."""


class _Spent(Exception):
    """The budget is used up."""


@dataclass(slots=True)
class _Probe:
    """Decides again with changes made, as often as the budget allows."""

    fleet: Fleet
    request: Request
    budget: WorkBudget = field(default_factory=lambda: WorkBudget(WORK))
    left: int = PROBES

    def decide(self, fleet: Fleet | None = None, request: Request | None = None) -> Decision:
        """The decision on another fleet, or on another request."""
        if not self.left:
            raise _Spent
        self.left -= 1
        return place(fleet or self.fleet, request or self.request, self.budget)

    def smallest(self, low: int, high: int, would_do: Callable[[int], bool]) -> int | None:
        """The smallest number that would do; None if there is none.

        A skew is measured against every aggregate that could take a server, and a change can add to these. A number
        may then be too large, so the numbers are tried one by one.
        """
        if any(rule.max_skew is not None for rule in self.request.rules):
            return next((number for number in range(low, min(high, low + _LONGEST_SCAN) + 1) if would_do(number)), None)
        if low > high or not would_do(high):
            return None
        while low < high:
            middle = (low + high) // 2
            if would_do(middle):
                high = middle
            else:
                low = middle + 1
        return low


def remedies(decision: Decision) -> tuple[Remedy, ...]:
    """The changes that would help by themselves, each as small as it can be; none for a placement."""
    if decision.fleet is None:
        return ()
    probe = _Probe(decision.fleet, decision.request)
    found: list[Remedy] = []
    try:
        for kind in (_limits, _aggregates, _enabling, _capacity, _fewer, _other_partition):
            found += kind(probe)
    except _Spent:
        pass
    return tuple(found)


def advice(decision: Decision) -> str:
    """The decision in plain words, with what would help."""
    helping = [remedy.sentence for remedy in remedies(decision)]
    return decision.sentence() + (f"; {', or '.join(helping)}, would do" if helping else "")


def _limits(probe: _Probe) -> Iterator[Remedy]:
    most = probe.request.members.total + probe.request.count
    for rule in dict.fromkeys(probe.request.rules):
        if rule.limit is not None:
            number = probe.smallest(rule.limit + 1, most, _trying(probe, rule, _with_limit))
            if number is not None:
                yield Remedy(RemedyKind.RAISE_LIMIT, number, f"a limit of {number} per {rule.scope}", rule)
        if rule.max_skew is not None:
            number = probe.smallest(rule.max_skew + 1, most, _trying(probe, rule, _with_skew))
            if number is not None:
                yield Remedy(RemedyKind.RAISE_SKEW, number, f"a skew of {number} between {rule.scope}s", rule)


def _with_limit(rule: Rule, number: int) -> Rule:
    return replace(rule, max_server_per_host=None, max_server_per_aggregate=number)


def _with_skew(rule: Rule, number: int) -> Rule:
    return replace(rule, max_skew=number)


def _trying(probe: _Probe, rule: Rule, changed: Callable[[Rule, int], Rule]) -> Callable[[int], bool]:
    """Whether a number in a rule would let the request be placed."""

    def would_do(number: int) -> bool:
        rules = tuple(changed(rule, number) if each == rule else each for each in probe.request.rules)
        return bool(probe.decide(request=replace(probe.request, rules=rules)))

    return would_do


def _aggregates(probe: _Probe) -> Iterator[Remedy]:
    for rule in dict.fromkeys(probe.request.rules):
        if rule.limit or rule.max_skew or rule.partitions:
            number = probe.smallest(1, probe.request.count, _growing(probe, rule))
            if number is not None:
                plural = "" if number == 1 else "s"
                yield Remedy(RemedyKind.ADD_AGGREGATES, number, f"{number} more {rule.scope}{plural}", rule)


def _growing(probe: _Probe, rule: Rule) -> Callable[[int], bool]:
    """Whether so many aggregates more would do: of hosts that are large enough, apart from each other in other scopes,
    and where the request and its affinities want them."""
    request, scope = probe.request, rule.scope
    hard = [each for each in request.rules if not each.soft]
    scopes = {each.scope for each in hard} - {HOST}
    wanted = _wanted(probe)
    total = Resources(*(need * request.count for need in request.resources))
    apart = any(each.scope != scope and (each.limit or each.max_skew or each.partitions) for each in hard)
    hosts = min(request.count, rule.limit or request.count) if apart and scope != HOST else 1

    def would_do(number: int) -> bool:
        if number * hosts > _MOST_NEW_HOSTS:
            return False
        larger = probe.fleet.snapshot()
        for aggregate in range(number):
            for host in range(hosts):
                name = f"new {aggregate}.{host}"
                places = dict.fromkeys(scopes, name) | ({} if scope == HOST else {scope: f"new {aggregate}"})
                larger.add_host(name, total, aggregates={**places, **wanted})
        return bool(probe.decide(larger))

    return would_do


def _wanted(probe: _Probe) -> dict[str, str]:
    """The aggregates that new hosts must be in: those asked for, and those where the members are, or could be."""
    fleet, request = probe.fleet, probe.request
    near = [rule for rule in request.rules if not rule.soft and rule.kind is Kind.AFFINITY and rule.scope != HOST]
    wanted = {rule.scope: rule.identifier for rule in near if rule.identifier is not None}
    if request.zone is not None:
        wanted[AVAILABILITY_ZONE] = request.zone
    present = request.present()
    if any(rule.together for rule in near):
        if present.total:
            hosts = present.hosts[[present.counts.argmax()]].tolist()
        else:
            hosts = probe.decide(request=replace(request, least=1)).hosts[:1]
        for host in hosts:
            for rule in near:
                if rule.together and (aggregate := fleet.aggregate(host, rule.scope)) != NOWHERE:
                    wanted[rule.scope] = fleet.identifiers(rule.scope)[aggregate]
    return wanted


def _enabling(probe: _Probe) -> Iterator[Remedy]:
    """The hosts that are down and would be chosen if none were, as far as none of them can be left out."""
    fleet = probe.fleet
    down = [host for host in fleet.hosts() if not fleet.is_enabled(host)]
    if not down:
        return
    chosen = _necessary(probe, sorted(set(probe.decide(_awake(fleet, down)).hosts) & set(down)))
    if chosen is None:
        # With all of them up a skew may be measured against too many aggregates.
        alone = ([host] for host in down[:_LONGEST_SCAN])
        chosen = next((hosts for hosts in alone if probe.decide(_awake(fleet, hosts))), None)
    if chosen:
        names = ", ".join(fleet.name(host) for host in chosen)
        yield Remedy(RemedyKind.ENABLE_HOSTS, len(chosen), f"enabling {names}", hosts=tuple(chosen))


def _awake(fleet: Fleet, hosts: list[int]) -> Fleet:
    awake = fleet.snapshot()
    for host in hosts:
        awake.enable(host)
    return awake


def _necessary(probe: _Probe, hosts: list[int]) -> list[int] | None:
    """Those of the hosts that must be enabled, if enabling all of them helps."""
    if not hosts or not probe.decide(_awake(probe.fleet, hosts)):
        return None
    for host in hosts[:_LONGEST_SCAN] if len(hosts) > 1 else ():
        others = [each for each in hosts if each != host]
        if others and probe.decide(_awake(probe.fleet, others)):
            hosts = others
    return hosts


def _capacity(probe: _Probe) -> Iterator[Remedy]:
    """For one server, the host that lacks least of those on which freeing it helps.

    lack of a host = max over the resources that are needed of (what is missing / what it has in all)
    """
    fleet, request = probe.fleet, probe.request
    if request.count > 1:
        return
    lacks = []
    for host in np.flatnonzero(eligible(fleet, replace(request, resources=Resources()))).tolist():
        free, total = _free_for(fleet, request, host), fleet.total(host)
        needed = zip(request.resources, free, strict=True)
        lacking = Resources(*(max(0, need - left) if need else 0 for need, left in needed))
        if any(lacking) and all(need <= whole for need, whole in zip(request.resources, total, strict=True)):
            share = max(lack / whole for lack, whole in zip(lacking, total, strict=True) if lack)
            lacks.append((share, host, lacking))
    tried = set()
    for _, host, lacking in sorted(lacks):
        kind = _kind(fleet, request, host)
        if kind in tried:  # the rules count it as one that did not help
            continue
        tried.add(kind)
        larger = fleet.snapshot()
        larger.release(host, lacking)
        if probe.decide(larger):
            yield _freeing(fleet, host, lacking)
            return


def _kind(fleet: Fleet, request: Request, host: int) -> tuple[int, ...]:
    """What the rules see of a host that passes all else: its aggregates, and how many members it holds itself."""
    scopes = sorted({rule.scope for rule in request.rules if not rule.soft} - {HOST})
    return (request.members.on(host), *(fleet.aggregate(host, scope) for scope in scopes))


def _freeing(fleet: Fleet, host: int, lacking: Resources) -> Remedy:
    parts = zip(("vCPUs", "MB of memory", "GB of disk"), lacking, strict=True)
    missing = " and ".join(f"{lack} {unit}" for unit, lack in parts if lack)
    sentence = f"freeing {missing} on {fleet.name(host)}"
    return Remedy(RemedyKind.FREE_CAPACITY, 1, sentence, hosts=(host,), lacking=lacking)


def _free_for(fleet: Fleet, request: Request, host: int) -> Resources:
    """What a host has for the request: a server that may stay brings what it holds."""
    free = fleet.free(host)
    if request.moving is None or request.moving.host != host:
        return free
    return Resources(*(left + held for left, held in zip(free, request.moving.held, strict=True)))


def _fewer(probe: _Probe) -> Iterator[Remedy]:
    if probe.request.count == 1:
        return
    number = len(probe.decide(request=replace(probe.request, count=probe.request.count - 1, least=1)).hosts)
    if number:
        servers = "1 server" if number == 1 else f"{number} servers"
        yield Remedy(RemedyKind.ASK_FOR_FEWER, number, f"asking for {servers}")


def _other_partition(probe: _Probe) -> Iterator[Remedy]:
    """A new server need not be in the requested partition; one that moves keeps its number."""
    if probe.request.partition is None or probe.request.moving is not None:
        return
    elsewhere = probe.decide(request=replace(probe.request, partition=None))
    if elsewhere:
        yield Remedy(RemedyKind.LEAVE_PARTITION_OPEN, elsewhere.partitions[0], "leaving the partition open")
