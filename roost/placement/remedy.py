"""What would help: the smallest changes, one at a time, that would turn a refusal into a placement.

Each is found by deciding again with the change made, on the fleet that refused, so that what is promised holds. It is
worked out only when somebody asks.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from roost.placement.decision import Decision, Request
from roost.placement.fleet import Fleet, Resources
from roost.placement.rules import AVAILABILITY_ZONE, HOST, Kind, Rule
from roost.placement.scheduler import candidates, place


class RemedyKind(StrEnum):
    """What could be changed. The codes are public: once set, they are set."""

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


def remedies(decision: Decision) -> tuple[Remedy, ...]:
    """Every change that would help by itself, each as small as it can be; none for a placement."""
    if decision.fleet is None:
        return ()
    fleet, request = decision.fleet, decision.request
    return (
        *_limits(fleet, request),
        *_aggregates(fleet, request),
        *_enabling(fleet, request),
        *_capacity(fleet, request),
        *_fewer(fleet, request),
        *_other_partition(fleet, request),
    )


def advice(decision: Decision) -> str:
    """The decision in plain words, with what would help."""
    helping = [remedy.sentence for remedy in remedies(decision)]
    return decision.sentence() + (f"; {', or '.join(helping)}, would do" if helping else "")


def _smallest(low: int, high: int, would_do: Callable[[int], bool]) -> int | None:
    """The smallest number that would do, where all larger ones do too; None if not even the largest does."""
    if low > high or not would_do(high):
        return None
    while low < high:
        middle = (low + high) // 2
        if would_do(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _limits(fleet: Fleet, request: Request) -> Iterator[Remedy]:
    most = request.members.total + request.count
    for rule in dict.fromkeys(request.rules):
        if rule.limit is not None:
            number = _smallest(rule.limit + 1, most, _trying(fleet, request, rule, _with_limit))
            if number is not None:
                yield Remedy(RemedyKind.RAISE_LIMIT, number, f"a limit of {number} per {rule.scope}", rule)
        if rule.max_skew is not None:
            number = _smallest(rule.max_skew + 1, most, _trying(fleet, request, rule, _with_skew))
            if number is not None:
                yield Remedy(RemedyKind.RAISE_SKEW, number, f"a skew of {number} between {rule.scope}s", rule)


def _with_limit(rule: Rule, number: int) -> Rule:
    return replace(rule, max_server_per_host=None, max_server_per_aggregate=number)


def _with_skew(rule: Rule, number: int) -> Rule:
    return replace(rule, max_skew=number)


def _trying(fleet: Fleet, request: Request, rule: Rule, changed: Callable[[Rule, int], Rule]) -> Callable[[int], bool]:
    """Whether a number in a rule would let the request be placed."""

    def would_do(number: int) -> bool:
        rules = tuple(changed(rule, number) if each == rule else each for each in request.rules)
        return bool(place(fleet, replace(request, rules=rules)))

    return would_do


def _aggregates(fleet: Fleet, request: Request) -> Iterator[Remedy]:
    for rule in dict.fromkeys(request.rules):
        if rule.limit or rule.partitions:
            number = _smallest(1, request.count, _growing(fleet, request, rule.scope))
            if number is not None:
                plural = "" if number == 1 else "s"
                yield Remedy(RemedyKind.ADD_AGGREGATES, number, f"{number} more {rule.scope}{plural}", rule)


def _growing(fleet: Fleet, request: Request, scope: str) -> Callable[[int], bool]:
    """Whether so many aggregates more, of hosts that are large enough and apart in other scopes, would do."""
    scopes = {rule.scope for rule in request.rules if not rule.soft} - {HOST}
    wanted = {r.scope: r.identifier for r in request.rules if not r.soft and r.kind is Kind.AFFINITY and r.identifier}
    if request.zone is not None:
        wanted[AVAILABILITY_ZONE] = request.zone
    total = Resources(*(need * request.count for need in request.resources))

    def would_do(number: int) -> bool:
        larger = fleet.snapshot()
        for aggregate in range(number):
            for host in range(1 if scope == HOST else request.count):
                places = dict.fromkeys(scopes, f"new {aggregate}.{host}")
                if scope != HOST:
                    places[scope] = f"new {aggregate}"
                larger.add_host(f"new {aggregate}.{host}", total, aggregates={**places, **wanted})
        return bool(place(larger, request))

    return would_do


def _enabling(fleet: Fleet, request: Request) -> Iterator[Remedy]:
    """The hosts that are down and would be chosen if none were: few, though not always the fewest."""
    down = [host for host in fleet.hosts() if not fleet.is_enabled(host)]
    if not down:
        return
    awake = fleet.snapshot()
    for host in down:
        awake.enable(host)
    chosen = tuple(sorted(set(place(awake, request).hosts) & set(down)))
    if chosen:
        names = ", ".join(fleet.name(host) for host in chosen)
        yield Remedy(RemedyKind.ENABLE_HOSTS, len(chosen), f"enabling {names}", hosts=chosen)


def _capacity(fleet: Fleet, request: Request) -> Iterator[Remedy]:
    """For one server, the host that lacks least of those that pass every other check.

    lack of a host = max over resources of (what is missing / what it has in all)
    """
    if request.count > 1:
        return
    others = np.flatnonzero(candidates(fleet, replace(request, resources=Resources())))
    lacks = []
    for host in others.tolist():
        free, total = _free_for(fleet, request, host), fleet.total(host)
        lacking = Resources(*(max(0, n - f) for n, f in zip(request.resources, free, strict=True)))
        if all(need <= whole for need, whole in zip(request.resources, total, strict=True)) and any(lacking):
            share = max(lack / whole for lack, whole in zip(lacking, total, strict=True) if lack)
            lacks.append((share, host, lacking))
    if lacks:
        _, host, lacking = min(lacks)
        parts = zip(("vCPUs", "MB of memory", "GB of disk"), lacking, strict=True)
        missing = " and ".join(f"{lack} {unit}" for unit, lack in parts if lack)
        sentence = f"freeing {missing} on {fleet.name(host)}"
        yield Remedy(RemedyKind.FREE_CAPACITY, 1, sentence, hosts=(host,), lacking=lacking)


def _free_for(fleet: Fleet, request: Request, host: int) -> Resources:
    """What a host has for the request: a server that may stay brings what it holds."""
    free = fleet.free(host)
    if request.moving is None or request.moving.host != host:
        return free
    return Resources(*(left + held for left, held in zip(free, request.moving.held, strict=True)))


def _fewer(fleet: Fleet, request: Request) -> Iterator[Remedy]:
    less = _smallest(1, request.count - 1, lambda cut: bool(place(fleet, replace(request, count=request.count - cut))))
    if less is not None:
        number = request.count - less
        servers = "1 server" if number == 1 else f"{number} servers"
        yield Remedy(RemedyKind.ASK_FOR_FEWER, number, f"asking for {servers}")


def _other_partition(fleet: Fleet, request: Request) -> Iterator[Remedy]:
    """A new server need not be in the partition that was asked for; one that moves keeps its number."""
    if request.partition is None or request.moving is not None:
        return
    elsewhere = place(fleet, replace(request, partition=None))
    if elsewhere:
        yield Remedy(RemedyKind.LEAVE_PARTITION_OPEN, elsewhere.partitions[0], "leaving the partition open")
