"""Plans: what a change to a group would do; and the change itself, if it would still do the same.

A plan is stored with the random numbers behind it. Applying it decides again with the same numbers and makes the
change while the group is locked: if the outcome is the same, nothing that matters has changed.

Policies and members are planned by making the change and taking it back, so that a plan meets the same refusals.
"""

import itertools
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import NamedTuple, NotRequired, TypedDict

import numpy as np
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.answers import drain, explain, placed_servers, repairs, what_if
from roost.compute.answers.drain import Rules
from roost.compute.answers.placed_servers import PlacedServer
from roost.compute.answers.repairs import Budget, PlannedMove
from roost.compute.answers.violations import aggregate_name
from roost.compute.groups import groups, members
from roost.compute.groups.groups import Group, GroupPolicy
from roost.compute.inventory import claims
from roost.compute.inventory.changes import latest_generation
from roost.compute.inventory.flavors import FlavorSize, resources_of
from roost.compute.inventory.scopes import aggregates_in, load_scopes
from roost.compute.scheduling.batch import Overtaken
from roost.compute.scheduling.request import CreateRequest, asked_partition
from roost.compute.scheduling.scheduler import Scheduler
from roost.compute.scheduling.servers import Actor
from roost.errors import Conflict, Invalid, NotFound
from roost.placement.audit import Breach, Violation
from roost.placement.fleet import Fleet
from roost.placement.record import HostPlace, RankedPlace, Record, WrittenRule, written_rule
from roost.placement.record import record as written
from roost.placement.rules import HOST
from roost.store.tables.answers import plans
from roost.store.tables.compute import hosts
from roost.store.tables.servers import server_groups, servers
from roost.suggestions import known_names

_KEPT = "1 day"
_TRIES = 3
_MOST_KEPT = 20
"""Plans that are kept for one group."""


@dataclass(frozen=True, slots=True)
class Create:
    """Boot servers in the group."""

    boot: CreateRequest
    flavor: FlavorSize
    name: str
    """What the servers' names begin with."""

    def as_data(self) -> dict[str, object]:
        """What makes two requests the same."""
        partition = asked_partition(self.boot.hints)
        asked = [self.name, len(self.boot.servers), self.flavor.id, self.boot.image_id, self.boot.zone, partition]
        return {"create": asked}


@dataclass(frozen=True, slots=True)
class ChangePolicies:
    """Give the group other policies."""

    policies: tuple[GroupPolicy, ...]

    def as_data(self) -> dict[str, object]:
        """What makes two requests the same."""
        return {"policies": [[str(policy), policy.rule.limits] for policy in self.policies]}


@dataclass(frozen=True, slots=True)
class ChangeMembers:
    """Add servers that exist to the group, or take some out."""

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()

    def as_data(self) -> dict[str, object]:
        """What makes two requests the same."""
        return {"add": list(self.add), "remove": list(self.remove)}


@dataclass(frozen=True, slots=True)
class Displace:
    """Drain an aggregate, or lose it; named as the project may name it, or, for an operator, by its real name."""

    scope: str
    identifier: str
    lost: bool
    real: bool

    def as_data(self) -> dict[str, object]:
        """What makes two requests the same."""
        return {"lose" if self.lost else "drain": [self.scope, self.identifier]}


Change = Create | ChangePolicies | ChangeMembers | Displace


class PlannedPlace(HostPlace):
    """Where a new server would be."""

    name: str
    partition: NotRequired[int]


class StoredViolation(TypedDict):
    """A broken rule, with real names."""

    breach: str
    rule: WrittenRule
    aggregate: str | None
    members: list[str]
    excess: int


class StrandedServer(NamedTuple):
    """A server that finds no other place, and why."""

    server_id: str
    record: Record


class Essence(TypedDict):
    """All of an outcome that must be the same for a plan to hold: it is stored."""

    placements: list[PlannedPlace]
    partitions: dict[str, int | None]
    moves: list[PlannedMove]
    stranded: list[str]
    violations: list[StoredViolation]
    broken_before: list[StoredViolation]
    mended: list[StoredViolation]
    refused: bool


VIOLATIONS = {"violations": "violations", "broken_before": "violations from before", "mended": "mended violations"}
"""What a plan says of rules, and the words for it."""
_Broken = Mapping[tuple[str, ...], StoredViolation]
"""Violations as they are stored, by what makes one the same before and after a change."""


@dataclass(slots=True)
class PlanOutcome:
    """What a change comes to, with real names."""

    placements: list[PlannedPlace] = field(default_factory=list)
    partitions: dict[str, int | None] = field(default_factory=dict)
    """The number of each member once policies or members have changed, where the group is divided."""
    moves: list[PlannedMove] = field(default_factory=list)
    stranded: list[StrandedServer] = field(default_factory=list)
    violations: list[StoredViolation] = field(default_factory=list)
    """What the change breaks, or breaks further."""
    broken_before: list[StoredViolation] = field(default_factory=list)
    """What is broken already, and stays so."""
    mended: list[StoredViolation] = field(default_factory=list)
    """What is broken, and no longer would be."""
    record: Record | None = None
    """Why new servers come where they do, or nowhere."""

    def essence(self) -> Essence:
        """All that must be the same for a plan to hold; how many other hosts there were need not be."""
        return {
            "placements": self.placements,
            "partitions": self.partitions,
            "moves": self.moves,
            "stranded": [each.server_id for each in self.stranded],
            "violations": self.violations,
            "broken_before": self.broken_before,
            "mended": self.mended,
            "refused": self.record is not None and self.record["verdict"] != "placed",
        }

    def note(self, before: "_Broken", after: "_Broken") -> None:
        """Separate what the change breaks from what was broken before it, and from what it mends."""
        for key, violation in after.items():
            worse = key not in before or violation["excess"] > before[key]["excess"]
            (self.violations if worse else self.broken_before).append(violation)
        self.mended += [violation for key, violation in before.items() if key not in after]


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """An outcome, and what it can be applied by."""

    outcome: PlanOutcome
    generation: str | None = None
    applied: bool = False
    server_ids: tuple[str, ...] = ()
    repair_id: str | None = None


class Changed(Conflict):
    """Something that matters has changed since the plan was made."""

    def __init__(self, before: Essence, now: Essence) -> None:
        different = [(key, before.get(key, ()), value) for key, value in now.items() if before.get(key) != value]
        sentence = "; ".join(_different(*each) for each in different)
        super().__init__(f"The plan no longer holds: {sentence}. Plan again.")
        self.before, self.now = before, now


def _different(key: str, before: object, now: object) -> str:
    if not (isinstance(before, Sized) and isinstance(now, Sized)):
        return "there is no place any more" if now else "there is a place now"
    what = VIOLATIONS.get(key, key)
    return f"other {what}" if len(before) == len(now) else f"{what}: {len(before)} then, {len(now)} now"


async def propose(scheduler: Scheduler, group: Group, change: Change, owner: str) -> GroupPlan:
    """Say what a change would come to, and remember it. Nothing is changed. `owner` is the project that asks."""
    seed = random.getrandbits(32)
    outcome = await look_ahead(scheduler, group, change, seed, owner)
    async with scheduler.database.begin() as connection:
        old = plans.c.created_at < sa.func.now() - sa.cast(_KEPT, sa.Interval)
        newest = sa.select(plans.c.number).where(plans.c.group_id == group.id).order_by(plans.c.number.desc())
        surplus = sa.and_(plans.c.group_id == group.id, plans.c.number.not_in(newest.limit(_MOST_KEPT - 1)))
        await connection.execute(plans.delete().where(sa.or_(old, surplus)))
        row = {"group_id": group.id, "change": change.as_data(), "seed": seed, "outcome": outcome.essence()}
        number = await connection.scalar(plans.insert().values(row).returning(plans.c.number))
        version = await connection.scalar(sa.select(server_groups.c.version).where(server_groups.c.id == group.id))
        return GroupPlan(outcome, f"{await latest_generation(connection)}.{version}.{number}")


async def apply(
    connection: AsyncConnection,
    scheduler: Scheduler,
    group: Group,
    change: ChangePolicies | ChangeMembers,
    generation: str,
) -> GroupPlan:
    """Make the change that was planned, in the caller's transaction; raises `Changed` if the plan no longer holds.

    New servers are booted by `boot_planned` instead, in the scheduler's own transaction; `drain` moves servers.
    """
    kept = await _take(connection, group, change, generation)
    outcome = await _made(connection, scheduler, group, change)
    _compare(kept, outcome)
    return GroupPlan(outcome, generation, True)


async def drain_planned(
    scheduler: Scheduler, group: Group, change: Displace, generation: str, actor: Actor, owner: str
) -> GroupPlan:
    """Begin the moves that were planned; raises `Changed` if the plan no longer holds. They are decided again without
    a lock, for the project that asks, and once more if the group has changed by the time it is locked."""
    if change.lost:
        raise Invalid("To lose an aggregate is a question, nothing that could be applied.")
    for _ in range(_TRIES):
        async with scheduler.database.begin() as connection:
            version = await connection.scalar(sa.select(server_groups.c.version).where(server_groups.c.id == group.id))
        outcome = await _displaced(scheduler, group, change, owner)
        async with scheduler.database.begin() as connection:
            locked = await claims.lock_groups(connection, [group.id])
            if group.id in locked and locked[group.id] == version:
                _compare(await _take(connection, group, change, generation), outcome)
                repair_id = await repairs.begin(connection, group.id, outcome.moves, Budget(), actor)
                return GroupPlan(outcome, generation, True, repair_id=repair_id)
    raise Conflict("The group changes all the time; try again.")


async def unused_names(connection: AsyncConnection, project_id: str, name: str, count: int) -> list[str]:
    """Names for new servers of a project: the one asked for, if it is free, or numbered on from those there are."""
    alike = (servers.c.project_id == project_id, servers.c.name.startswith(name, autoescape=True))
    taken = set(await connection.scalars(sa.select(servers.c.name).where(*alike)))
    if count == 1 and name not in taken:
        return [name]
    numbered = (f"{name}-{number}" for number in itertools.count(1))
    return list(itertools.islice((each for each in numbered if each not in taken), count))


async def boot_planned(scheduler: Scheduler, group: Group, change: Create, generation: str) -> GroupPlan:
    """Boot the servers of a plan where it said; raises `Changed` if they would come elsewhere."""
    async with scheduler.database.begin() as connection:
        kept = await _take(connection, group, change, generation)
        expected = await _expected(connection, kept)
    boot = replace(_as_named(change, kept).boot, group_id=group.id, seed=kept.seed, expected=expected)
    try:
        booted = await scheduler.create(boot)
    except Overtaken as overtaken:
        record = written(overtaken.now, partial(explain.where, scheduler.live.fleet))
        now = PlanOutcome(record=record, placements=_placements(change, record))
        for kind in VIOLATIONS:
            setattr(now, kind, kept.outcome.get(kind, []))
        raise Changed(kept.outcome, now.essence()) from None
    return GroupPlan(PlanOutcome(placements=kept.outcome["placements"]), generation, True, booted.server_ids)


Hold = Callable[[AsyncConnection, str, Sequence[tuple[int, int | None]]], Awaitable[list[str]]]
"""Holds places in a group, each a host and a partition, until servers come for them; the token of each."""


async def hold_planned(
    scheduler: Scheduler, group: Group, change: Create, generation: str, owner: str, hold: Hold
) -> tuple[GroupPlan, list[str]]:
    """Hold the places of a plan for servers that a Nova is to make; raises `Changed` if they would come elsewhere. They
    are decided again, like those of a drain."""
    for _ in range(_TRIES):
        async with scheduler.database.begin() as connection, connection.begin_nested() as savepoint:
            version = await connection.scalar(sa.select(server_groups.c.version).where(server_groups.c.id == group.id))
            kept = await _take(connection, group, change, generation)
            expected = await _expected(connection, kept)
            await savepoint.rollback()
        outcome = await look_ahead(scheduler, group, _as_named(change, kept), kept.seed, owner)
        async with scheduler.database.begin() as connection:
            locked = await claims.lock_groups(connection, [group.id])
            if group.id in locked and locked[group.id] == version:
                _compare(await _take(connection, group, change, generation), outcome)
                tokens = await hold(connection, group.id, expected)
                return GroupPlan(outcome, generation, True), tokens
    raise Conflict("The group changes all the time; try again.")


class _KeptPlan(NamedTuple):
    change: dict[str, object]
    seed: int
    outcome: Essence


async def _expected(connection: AsyncConnection, kept: _KeptPlan) -> tuple[tuple[int, int | None], ...]:
    """The host of each server of a plan, and its partition."""
    planned = kept.outcome["placements"]
    if not planned:
        raise Conflict("The plan has no place for these servers; there is nothing to apply.")
    ids = {row.name: row.id for row in await connection.execute(sa.select(hosts.c.name, hosts.c.id))}
    return tuple((ids.get(each["host"], 0), each.get("partition")) for each in planned)


def _as_named(change: Create, kept: _KeptPlan) -> Create:
    """The change with the names that the plan gave to its servers."""
    pairs = zip(change.boot.servers, kept.outcome["placements"], strict=True)
    named = tuple(replace(new, name=each["name"]) for new, each in pairs)
    return replace(change, boot=replace(change.boot, servers=named))


async def _take(connection: AsyncConnection, group: Group, change: Change, generation: str) -> _KeptPlan:
    """The plan of a generation, which can be applied once: of two attempts, one finds it gone."""
    number = generation.rpartition(".")[2]
    mine = plans.delete().where(plans.c.group_id == group.id, sa.cast(plans.c.number, sa.Text) == number)
    columns = (plans.c[name] for name in _KeptPlan._fields)
    row = (await connection.execute(mine.returning(*columns))).one_or_none()
    if row is None:
        raise Conflict(f"There is no plan of generation {generation} for this group; plan again.")
    kept = _KeptPlan(*row)
    if kept.change != change.as_data():
        raise Conflict(f"The plan of generation {generation} is for another change; plan again.")
    return kept


def _compare(kept: _KeptPlan, outcome: PlanOutcome) -> None:
    now = outcome.essence()
    if kept.outcome != now:
        raise Changed(kept.outcome, now)


# Looking ahead


async def look_ahead(scheduler: Scheduler, group: Group, change: Change, seed: int, owner: str = "") -> PlanOutcome:
    """What a change would come to, with these dice. Nothing is changed, and no connection is held while a place is
    searched for."""
    if isinstance(change, Create):
        return await _created(scheduler, group, change, seed, owner)
    if isinstance(change, Displace):
        return await _displaced(scheduler, group, change, owner)
    async with scheduler.database.begin() as connection, connection.begin_nested() as savepoint:
        outcome = await _made(connection, scheduler, group, change)
        await savepoint.rollback()
    return outcome


async def _created(scheduler: Scheduler, group: Group, change: Create, seed: int, owner: str) -> PlanOutcome:
    boot = change.boot
    size = resources_of(change.flavor)
    async with scheduler.database.begin() as connection:
        wanted = await what_if.new_members(
            connection,
            scheduler,
            group.id,
            size,
            len(boot.servers),
            zone=boot.zone,
            partition=asked_partition(boot.hints),
            seed=seed,
        )
        rules, inside = await _inside(connection, scheduler, group)
    trial = await what_if.decide(scheduler, wanted, owner)
    outcome = PlanOutcome(record=trial.record, placements=_placements(change, trial.record))
    new = [
        PlacedServer(f"new {number}", f"new {number}", group.project_id, group.id, host, size, None, partition)
        for number, (host, partition) in enumerate(trial.decision.placed())
    ]
    fleet = scheduler.live.fleet
    outcome.note(_violations(fleet, rules, inside), _violations(fleet, rules, [*inside, *new]))
    return outcome


def _placements(change: Create, record: Record) -> list[PlannedPlace]:
    return [_place(new.name, chosen) for new, chosen in zip(change.boot.servers, record["chosen"], strict=False)]


def _place(name: str, chosen: RankedPlace) -> PlannedPlace:
    place = PlannedPlace(name=name, host=chosen["host"], places=chosen["places"])
    if "partition" in chosen:
        place["partition"] = chosen["partition"]
    return place


async def _made(
    connection: AsyncConnection, scheduler: Scheduler, group: Group, change: ChangePolicies | ChangeMembers
) -> PlanOutcome:
    """Make the change, and look at what has become of the group."""
    settings = scheduler.settings
    before = _violations(scheduler.live.fleet, *await _inside(connection, scheduler, group))
    if isinstance(change, ChangePolicies):
        await groups.update(connection, settings, group, name=None, policies=change.policies)
    else:
        await members.lock_servers(connection, group, [*change.add, *change.remove])
        steps: list[tuple[Callable[..., Awaitable[Group]], Sequence[str]]] = [
            (members.add, change.add),
            (members.remove, change.remove),
        ]
        for step, server_ids in steps:
            for server_id in server_ids:
                await step(connection, settings, group, server_id)
    outcome = PlanOutcome(partitions=dict((await groups.find(connection, group.id)).partitions))
    outcome.note(before, _violations(scheduler.live.fleet, *await _inside(connection, scheduler, group)))
    return outcome


async def _displaced(scheduler: Scheduler, group: Group, change: Displace, owner: str) -> PlanOutcome:
    async with scheduler.database.begin() as connection:
        rules, inside = await _inside(connection, scheduler, group)
        leaving = await hosts_inside(connection, scheduler, group.project_id, change)
    fleet = scheduler.live.fleet.snapshot()
    return await scheduler.workers.run(owner, _displacement, fleet, rules, inside, leaving, lost=change.lost)


def _displacement(
    fleet: Fleet, rules: Rules, inside: Sequence[PlacedServer], leaving: Sequence[int], *, lost: bool
) -> PlanOutcome:
    found = drain.displace(fleet, rules, inside, leaving, lost=lost)
    outcome = PlanOutcome()
    for each, target in found.moves:
        scopes = [rule.scope for rule in rules.get(each.group_id or "", ())]
        outcome.moves.append(repairs.planned_move(fleet, each.id, each.host, target, scopes))
    for each, decision in found.stranded:
        outcome.stranded.append(StrandedServer(each.id, written(decision, partial(explain.where, fleet))))
    outcome.note(_violations(fleet, rules, inside), _violations(fleet, rules, inside, found.places))
    return outcome


def _violations(
    fleet: Fleet, rules: Rules, inside: Sequence[PlacedServer], places: Mapping[str, int] | None = None
) -> _Broken:
    """What is broken with the servers in these places, or where they are."""
    names = cache(fleet.identifiers)
    found: dict[tuple[str, ...], StoredViolation] = {}
    for group_id, broken in drain.violations(fleet, rules, inside, places).items():
        for each in broken:
            stored = _written(each, names(each.rule.scope))
            # Members that are apart break one rule, wherever most of them are.
            where = "" if each.breach is Breach.APART else stored["aggregate"] or ""
            found[group_id, str(each.breach), str(each.rule), where] = stored
    return found


def _written(violation: Violation, names: Sequence[str]) -> StoredViolation:
    return {
        "breach": str(violation.breach),
        "rule": written_rule(violation.rule),
        "aggregate": aggregate_name(names, violation),
        "members": list(violation.members),
        "excess": violation.excess,
    }


async def _inside(connection: AsyncConnection, scheduler: Scheduler, group: Group) -> tuple[Rules, list[PlacedServer]]:
    await scheduler.live.sync(connection)
    rules = await groups.rules_of(connection, [group.id])
    return rules, await placed_servers.load(connection, scheduler.live, servers.c.group_id == group.id)


async def hosts_inside(
    connection: AsyncConnection, scheduler: Scheduler, project_id: str, change: Displace
) -> list[int]:
    """The hosts of the aggregate that a change names; raises `Invalid` where the project may not name it so."""
    fleet = scheduler.live.fleet
    if change.scope == HOST:
        host = fleet.index(change.identifier) if change.real else None
        if host is None:
            raise Invalid(f"There is no host '{change.identifier}' that you could name.")
        return [host]
    known = await load_scopes(connection)
    scope = known.get(change.scope)
    if scope is None:
        raise Invalid(f"There is no policy scope '{change.scope}': {known_names(change.scope, known)}")
    if not scope.allow_identifiers and not change.real:
        raise Invalid(f"The policy scope '{scope.name}' does not allow identifiers.")
    for aggregate in await aggregates_in(connection, scope):
        names = tuple(aggregate) if change.real else scope.names_for(project_id, aggregate)
        if change.identifier in names:
            column = fleet.division(scope.name).column
            inside = np.flatnonzero(column == fleet.aggregate_index(scope.name, aggregate.identifier))
            return [int(host) for host in inside]
    raise NotFound(f"The policy scope '{scope.name}' has no '{change.identifier}'.")


# All groups at once


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """What a loss comes to for one group; None for the servers that are in none."""

    group_id: str | None
    project_id: str
    outcome: PlanOutcome
    affected: int


async def displace_all(
    scheduler: Scheduler, project_id: str | None, asker: str, change: Displace
) -> list[GroupOutcome]:
    """What draining or losing an aggregate comes to for all servers of a project, or of all projects (None); in front
    of a Nova, for all members of groups, since only those are followed."""
    async with scheduler.database.begin() as connection:
        await scheduler.live.sync(connection)
        leaving = await hosts_inside(connection, scheduler, asker, change)
        conditions = [] if project_id is None else [servers.c.project_id == project_id]
        if scheduler.settings.in_front_of_nova:
            conditions.append(servers.c.group_id.is_not(None))
        placed = await placed_servers.load(connection, scheduler.live, *conditions)
        affected = {each.group_id for each in placed if each.host in set(leaving)}
        inside = [each for each in placed if each.group_id in affected]
        rules = await groups.rules_of(connection, [group for group in affected if group is not None])
    fleet = scheduler.live.fleet.snapshot()
    whole = await scheduler.workers.run(asker, _displacement, fleet, rules, inside, leaving, lost=change.lost)
    return _by_group(whole, inside, set(leaving))


def _by_group(whole: PlanOutcome, inside: Sequence[PlacedServer], leaving: set[int]) -> list[GroupOutcome]:
    group_of = {each.id: each.group_id for each in inside}
    found: dict[str | None, GroupOutcome] = {}
    for each in inside:
        if each.host in leaving:
            before = found.get(each.group_id)
            affected = before.affected + 1 if before else 1
            outcome = before.outcome if before else PlanOutcome()
            found[each.group_id] = GroupOutcome(each.group_id, each.project_id, outcome, affected)
    for move in whole.moves:
        found[group_of[move["server_id"]]].outcome.moves.append(move)
    for stranded in whole.stranded:
        found[group_of[stranded.server_id]].outcome.stranded.append(stranded)
    for kind in VIOLATIONS:
        for violation in getattr(whole, kind):
            group = group_of[violation["members"][0]]
            if group in found:
                getattr(found[group].outcome, kind).append(violation)
    return list(found.values())
