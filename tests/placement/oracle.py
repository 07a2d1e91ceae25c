"""What must hold, said again in plain Python: slow, obvious, and sharing nothing with the core but its vocabulary."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations_with_replacement, product

Triple = tuple[int, int, int]


@dataclass(frozen=True)
class PlainHost:
    """A host: what is free and in all, whether it is up, and the aggregate it has in each scope, if any."""

    free: Triple
    total: Triple
    up: bool = True
    aggregates: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PlainRule:
    """A rule, spelled out."""

    together: bool
    soft: bool
    scope: str
    identifier: str | None = None
    limit: int | None = None
    skew: int | None = None
    partitions: int | None = None


@dataclass(frozen=True)
class PlainRequest:
    """What is asked for; `members` are the hosts of the members that count, one entry each, `numbers` their partitions
    where the group is divided, and `partition` the one asked for. A member on the way `between` two hosts has an entry
    for both."""

    need: Triple
    count: int
    rules: tuple[PlainRule, ...]
    members: tuple[int, ...] = ()
    zone: str | None = None
    targets: tuple[int, ...] | None = None
    excluded: tuple[int, ...] = ()
    same: tuple[int, ...] | None = None
    different: tuple[int, ...] = ()
    numbers: tuple[int, ...] = ()
    partition: int | None = None
    between: tuple[tuple[int, int], ...] = ()


World = list[PlainHost]


def aggregate(world: World, host: int, scope: str) -> str | None:
    """Where a host is in a scope."""
    return f"#{host}" if scope == "host" else world[host].aggregates.get(scope)


def held(world: World, scope: str, servers: tuple[int, ...]) -> Counter[str | None]:
    """How many of these servers each aggregate holds."""
    return Counter(aggregate(world, host, scope) for host in servers)


def eligible(world: World, request: PlainRequest, host: int) -> bool:
    """Whether a host may take a server as far as the members play no part."""
    plain = world[host]
    if not plain.up or (request.zone is not None and plain.aggregates.get("availability_zone") != request.zone):
        return False
    if request.targets is not None and host not in request.targets:
        return False
    if request.same is not None and host not in request.same:
        return False
    if host in request.excluded or host in request.different:
        return False
    if any(need > free for need, free in zip(request.need, plain.free, strict=True) if need):
        return False
    return all(in_scope(world, rule, host) for rule in request.rules if not rule.soft)


def in_scope(world: World, rule: PlainRule, host: int) -> bool:
    """Whether a host lies in the rule's scope, and in or out of its target as it should."""
    place = aggregate(world, host, rule.scope)
    if place is None:
        return False
    return rule.identifier is None or (place == rule.identifier) == rule.together


def fits(world: World, request: PlainRequest, chosen: tuple[int, ...]) -> bool:
    """Whether the hosts chosen carry all their new servers at once."""
    for host, servers in Counter(chosen).items():
        for need, free in zip(request.need, world[host].free, strict=True):
            if need and need * servers > free:
                return False
    return True


def company(world: World, scope: str, request: PlainRequest) -> set[str | None]:
    """The aggregates in which a member will be for sure: one that is on the way is, if it is on the way within one."""
    staying = Counter(request.members)
    staying.subtract(host for pair in request.between for host in pair)
    sure = {aggregate(world, host, scope) for host in staying.elements()}
    ways = [{aggregate(world, host, scope) for host in pair} for pair in request.between]
    return sure.union(*(way for way in ways if len(way) == 1))


def keeps(world: World, rule: PlainRule, request: PlainRequest, chosen: tuple[int, ...]) -> bool:
    """Whether a hard rule without a target holds for the servers placed, skew aside."""
    new = {aggregate(world, host, rule.scope) for host in chosen}
    if rule.together:
        return new <= company(world, rule.scope, request) if request.members else len(new) == 1
    after = held(world, rule.scope, request.members + chosen)
    return rule.limit is None or all(after[place] <= rule.limit for place in new)


def dividing(rules: tuple[PlainRule, ...]) -> PlainRule | None:
    """The rule that divides a group."""
    return next((rule for rule in rules if rule.partitions is not None), None)


def numberings(request: PlainRequest, servers: int) -> Iterator[tuple[int, ...]]:
    """Every way to give so many new servers their partitions."""
    rule = dividing(request.rules)
    if rule is None:
        yield ()
    elif request.partition is not None:
        yield (request.partition,) * servers
    else:
        yield from product(range(1, (rule.partitions or 0) + 1), repeat=servers)


def divided(world: World, request: PlainRequest, chosen: tuple[int, ...], new: tuple[int, ...]) -> bool:
    """Whether no aggregate that takes a server holds two partitions."""
    rule = dividing(request.rules)
    if rule is None:
        return True
    inside: dict[str | None, set[int]] = {}
    for host, number in zip(request.members + chosen, request.numbers + new, strict=True):
        inside.setdefault(aggregate(world, host, rule.scope), set()).add(number)
    return all(len(inside[aggregate(world, host, rule.scope)]) == 1 for host in chosen)


def passes(world: World, request: PlainRequest, chosen: tuple[int, ...]) -> bool:
    """Whether a choice of hosts is allowed in some partitions, skew aside."""
    return any(divided(world, request, chosen, new) for new in numberings(request, len(chosen))) and (
        all(eligible(world, request, host) for host in set(chosen))
        and fits(world, request, chosen)
        and all(
            keeps(world, rule, request, chosen) for rule in request.rules if not rule.soft and rule.identifier is None
        )
    )


Floors = list[tuple[PlainRule, set[str | None]]]


def floors(world: World, request: PlainRequest) -> Floors:
    """For each skew, the aggregates where one server alone could go."""
    hosts = [host for host in range(len(world)) if passes(world, request, (host,))]
    skewed = [rule for rule in request.rules if rule.skew is not None]
    return [(rule, {aggregate(world, host, rule.scope) for host in hosts}) for rule in skewed]


def level(world: World, request: PlainRequest, chosen: tuple[int, ...], floors: Floors) -> bool:
    """Whether every skew holds."""
    for rule, feasible in floors:
        after = held(world, rule.scope, request.members + chosen)
        lowest = min(after[place] for place in feasible)
        assert rule.skew is not None
        if any(after[aggregate(world, host, rule.scope)] > lowest + rule.skew for host in chosen):
            return False
    return True


def allowed(world: World, request: PlainRequest, chosen: tuple[int, ...], new: tuple[int, ...]) -> bool:
    """Whether a choice of hosts, one for each server, is right; and of partitions, where the group is divided."""
    return (
        new in numberings(request, len(chosen))
        and divided(world, request, chosen, new)
        and passes(world, request, chosen)
        and level(world, request, chosen, floors(world, request))
    )


def placements(world: World, request: PlainRequest) -> Iterator[tuple[int, ...]]:
    """Every right choice of hosts, the order of servers aside."""
    hosts = [host for host in range(len(world)) if eligible(world, request, host)]
    lows = floors(world, request)
    for chosen in combinations_with_replacement(hosts, request.count):
        if passes(world, request, chosen) and level(world, request, chosen, lows):
            yield chosen


def considered(world: World, request: PlainRequest) -> tuple[int | None, list[int]]:
    """For one server: the partition that it comes to, where the group is divided, and the hosts that it may come to."""
    rule = dividing(request.rules)
    if rule is None:
        return None, [chosen[0] for chosen in placements(world, request)]
    open_to = {
        new[0]: [host for host in range(len(world)) if allowed(world, request, (host,), new)]
        for new in numberings(request, 1)
    }
    sizes = Counter(request.numbers)
    with_room = [number for number, hosts in open_to.items() if hosts]
    if not with_room:
        return None, []
    number = min(with_room, key=lambda each: (sizes[each], each))
    used = {aggregate(world, host, rule.scope) for host in request.members}
    own = [host for host in open_to[number] if aggregate(world, host, rule.scope) in used]
    unused = {aggregate(world, host, rule.scope) for host in open_to[number]} - used
    waiting = sum(not sizes[each] for each in range(1, (rule.partitions or 0) + 1))
    return number, own if own and waiting and len(unused) <= waiting else open_to[number]


def share(plain: PlainHost) -> int:
    """How much of the scarcest resource is free, in whole per cent."""
    parts = [100 * free // total for free, total in zip(plain.free, plain.total, strict=True) if total]
    return max(0, min(parts)) if parts else 0


def liking(world: World, request: PlainRequest, host: int) -> tuple[int, ...]:
    """How much each soft rule likes a host, in order: more is better."""
    likes = []
    for rule in request.rules:
        if not rule.soft:
            continue
        place = aggregate(world, host, rule.scope)
        if rule.identifier is not None:
            likes.append(int((place == rule.identifier) == rule.together))
        elif place is None:
            likes.append(-(10**9))
        else:
            count = held(world, rule.scope, request.members)[place]
            likes.append(count if rule.together else -count)
    return tuple(likes)


@dataclass(frozen=True)
class PlainServer:
    """A running server: what it takes, and its group."""

    need: Triple
    group: int
    number: int = 0
    zone: str | None = None
    held: bool = False


def broken(world: World, rules: tuple[PlainRule, ...], members: tuple[int, ...], numbers: tuple[int, ...] = ()) -> bool:
    """Whether members on these hosts, in these partitions where the group is divided, break a hard rule."""
    for rule in rules:
        if rule.soft or not members:
            continue
        if not all(in_scope(world, rule, host) for host in members):
            return True
        counts = held(world, rule.scope, members)
        if rule.identifier is not None:
            continue
        if rule.together and len(counts) > 1:
            return True
        if rule.limit is not None and max(counts.values()) > rule.limit:
            return True
        if rule.partitions is not None:
            pairs = {(aggregate(world, h, rule.scope), number) for h, number in zip(members, numbers, strict=True)}
            if len(pairs) > len(counts):
                return True
        if rule.skew is not None:
            up = {aggregate(world, h, rule.scope) for h, host in enumerate(world) if host.up} - {None}
            if max(counts.values()) > min((counts[place] for place in up), default=0) + rule.skew:
                return True
    return False


def fewest_moves(
    world: World, groups: list[tuple[PlainRule, ...]], servers: list[PlainServer], start: tuple[int, ...]
) -> int | None:
    """How many allowed migrations, one after another, mend everything: breadth first; None if none do.

    The world's free capacity is what is left with the servers where they start.
    """
    reached, edge, steps = {start}, [start], 0
    while edge:
        for hosts in edge:
            if not any(broken(world, rules, *members_of(servers, hosts, g)) for g, rules in enumerate(groups)):
                return steps
        following = []
        for hosts in edge:
            for after in migrations(world, groups, servers, start, hosts):
                if after not in reached:
                    reached.add(after)
                    following.append(after)
        edge, steps = following, steps + 1
    return None


def migrations(
    world: World,
    groups: list[tuple[PlainRule, ...]],
    servers: list[PlainServer],
    start: tuple[int, ...],
    hosts: tuple[int, ...],
) -> Iterator[tuple[int, ...]]:
    """Where one allowed migration can lead."""
    now = shifted(world, servers, start, hosts)
    for number, server in enumerate(servers):
        rules = groups[server.group]
        others, numbers = members_of(
            servers[:number] + servers[number + 1 :], hosts[:number] + hosts[number + 1 :], server.group
        )
        request = PlainRequest(
            server.need, 1, rules, others, excluded=(hosts[number],), numbers=numbers, partition=server.number
        )
        new = (server.number,) if dividing(rules) else ()
        for host in range(len(world)):
            zoned = server.zone in (None, world[host].aggregates.get("availability_zone"))
            if not server.held and zoned and allowed(now, request, (host,), new):
                yield (*hosts[:number], host, *hosts[number + 1 :])


def members_of(
    servers: list[PlainServer], hosts: tuple[int, ...], group: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Where the members of a group are, and in which partitions."""
    inside = [(host, server.number) for host, server in zip(hosts, servers, strict=True) if server.group == group]
    return tuple(host for host, _ in inside), tuple(number for _, number in inside)


def shifted(world: World, servers: list[PlainServer], start: tuple[int, ...], hosts: tuple[int, ...]) -> World:
    """The world once the servers have moved."""
    free = [list(host.free) for host in world]
    for server, before, after in zip(servers, start, hosts, strict=True):
        for at, need in enumerate(server.need):
            free[before][at] += need
            free[after][at] -= need
    return [
        PlainHost((left[0], left[1], left[2]), host.total, host.up, host.aggregates)
        for host, left in zip(world, free, strict=True)
    ]
