"""Where servers go: decided on the fleet in memory, claimed in one transaction, and never against a hard rule.

Requests that arrive while a transaction is under way wait for the next one and are decided and claimed together: the
busier the process, the more of them share a commit. Inside the transaction

1. the fleet takes in every change of hosts, zones and scopes that was committed before (`LiveFleet.sync`);
2. the projects' usage and the groups are locked, so that quotas, rules and members stay as they are read;
3. each request is decided in memory, seeing what those before it took;
4. the chosen hosts are locked and looked at: if another process took the room, they are read again and all is decided
   anew, with the locks kept; nobody is told that there is no room before all hosts were read again;
5. servers, claims, usage and notifications are written, and committed at once.

A group's members are read once and remembered with the group's version; who changes them raises it.
"""

import asyncio
import json
import logging
import random
import re
import secrets
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import prometheus_client
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute import claims, explain, groups, lifecycle, quotas
from roost.compute.claims import NOTHING, Claim, Usage
from roost.compute.fleet import LiveFleet, announce_claims
from roost.config import Settings
from roost.errors import Conflict, Invalid, OverQuota, RoostError, Unavailable
from roost.placement.decision import Decision, Move, Refusal, Request
from roost.placement.fleet import Fleet, Members, Resources
from roost.placement.record import Record
from roost.placement.rules import Kind, Rule
from roost.placement.scheduler import place
from roost.store.database import Database
from roost.store.tables.compute import flavor_access, flavors, images, keypairs
from roost.store.tables.servers import claims as claims_table
from roost.store.tables.servers import servers

logger = logging.getLogger(__name__)

_LARGEST_BATCH = 64
_ATTEMPTS = 30
_LONGEST_PAUSE = 0.2
_GROUPS_REMEMBERED = 10_000
_SHORTAGES = frozenset(
    {Refusal.TOO_FEW_VCPUS, Refusal.TOO_LITTLE_MEMORY, Refusal.TOO_LITTLE_DISK, Refusal.TOO_SMALL_FOR_ALL}
)

PLACEMENTS = prometheus_client.Counter("roost_placements", "New servers, by whether they found a host.", ["outcome"])
LOST_RACES = prometheus_client.Counter("roost_lost_races", "Times that claims lost to another transaction.")
_PLACED, _REFUSED = PLACEMENTS.labels("placed"), PLACEMENTS.labels("refused")


class NoValidHost(Invalid):
    """No host may take the server; the message says why."""


class Overtaken(Conflict):
    """What was expected of a request is no longer what would become of it."""

    def __init__(self, now: "Decision") -> None:
        super().__init__("The servers would no longer be placed as planned.")
        self.now = now


@dataclass(frozen=True, slots=True)
class NewServer:
    """What is each server's own in a request for several."""

    name: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    addresses: Mapping[str, Any] = field(default_factory=dict)
    hostname: str | None = None
    token: str | None = None
    """Names this server across attempts: asked for again, it is found and not made again."""


@dataclass(frozen=True, slots=True)
class Boot:
    """A request for one or several servers of one kind, to be placed together."""

    project_id: str
    user_id: str
    request_id: str
    servers: tuple[NewServer, ...]
    flavor_id: str
    least: int = 1
    """How many of the servers must find a place; fewer than all are made where not all do."""
    image_id: str | None = None
    key_name: str | None = None
    user_data: str | None = None
    description: str | None = None
    config_drive: bool = False
    tags: tuple[str, ...] = ()
    zone: str | None = None
    target: str | None = None
    """The one host to use, by name."""
    target_must_exist: bool = False
    """Refuse a target that is not there; else the servers are made, and in ERROR."""
    hints: Mapping[str, Any] = field(default_factory=dict)
    group_id: str | None = None
    same_host: tuple[str, ...] | None = None
    different_host: tuple[str, ...] = ()
    may_see_all: bool = False
    """The caller may name servers, groups and flavors of other projects."""
    seed: int | None = None
    """What decides between equals; random if not given."""
    expected: tuple[tuple[int, int | None], ...] | None = None
    """The ids of the hosts that the servers must come to, as a plan said, and in a divided group their partitions; else
    `Overtaken` is raised."""


@dataclass(frozen=True, slots=True)
class Booted:
    """The servers of a request, in its order, and what they can be listed by."""

    server_ids: tuple[str, ...]
    reservation_id: str


@dataclass(slots=True)
class _Group:
    """A group as it was at a version."""

    version: int
    rules: tuple[Rule, ...]
    members: Members
    users: Counter[str]


@dataclass(slots=True)
class _Pending:
    boot: Boot
    future: "asyncio.Future[Booted]"


@dataclass(slots=True)
class _Case:
    """A request on its way through a transaction."""

    pending: _Pending
    flavor: sa.Row[Any]
    wanted: tuple[NewServer, ...]
    existing: Mapping[str, str]
    request: Request
    partition: int | None = None
    """The partition asked for."""
    places: tuple[int, ...] = ()
    """Where the chosen hosts stand in the columns."""
    host_ids: tuple[int, ...] = ()
    records: list[Record] = field(default_factory=list)
    """What each server keeps of the decision."""
    decision: Decision | None = None
    ids: tuple[str, ...] = ()
    reservation_id: str = field(default_factory=lambda: f"r-{secrets.token_hex(4)}")

    @property
    def boot(self) -> Boot:
        return self.pending.boot

    @property
    def made(self) -> tuple[NewServer, ...]:
        """Those of the wanted servers that are made: as many as found a place; if that is none, the least to fail."""
        return self.wanted[: len(self.host_ids) or self.boot.least]

    @property
    def placed(self) -> tuple[tuple[int, int | None], ...]:
        """The host of each server that found one, and its partition in a divided group."""
        partitions = (self.decision.partitions if self.decision else ()) or (None,) * len(self.host_ids)
        return tuple(zip(self.host_ids, partitions, strict=True))

    @property
    def lacks_room(self) -> bool:
        """Whether more room somewhere might have made another decision."""
        decision = self.decision
        if decision is None or len(self.host_ids) == len(self.wanted):
            return False
        return decision.candidates > 0 or any(refused.reason in _SHORTAGES for refused in decision.refused)


@dataclass(slots=True)
class _Batch:
    """The requests of one transaction, and the groups that they touch."""

    cases: list[_Case]
    groups: dict[str, _Group]
    members: dict[str, Members] = field(default_factory=dict)
    """The members of the groups as the decisions leave them."""


@dataclass(slots=True)
class Scheduler:
    """Decides and claims for one process."""

    database: Database
    settings: Settings
    live: LiveFleet = field(default_factory=LiveFleet)
    _pending: list[_Pending] = field(default_factory=list)
    _worker: "asyncio.Task[None] | None" = None
    _groups: dict[str, _Group] = field(default_factory=dict)

    async def boot(self, boot: Boot) -> Booted:
        """Make the servers; those that find no host are made too, in ERROR, and say why."""
        future: asyncio.Future[Booted] = asyncio.get_running_loop().create_future()
        self._pending.append(_Pending(boot, future))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._drain())
        return await future

    async def boot_all(self, boots: Sequence[Boot]) -> list[Booted | BaseException]:
        """Several requests at once, each with its own outcome."""
        return list(await asyncio.gather(*(self.boot(boot) for boot in boots), return_exceptions=True))

    async def relocate(
        self,
        connection: AsyncConnection,
        server: sa.Row[Any],
        resources: Resources,
        *,
        target: str | None = None,
        zone: str | None = None,
        may_stay: bool = False,
        forced: bool = False,
    ) -> int:
        """Claim room for a server elsewhere (or, if it `may_stay`, where it is), in the caller's transaction, which
        holds the server's row; the host's id. Raises `NoValidHost`, and then nothing was changed.

        A target that is `forced` may be disabled, in another zone, or not where the server's hints want it; it must
        have the room, and the rules of the group hold all the same.
        """
        await self.live.sync(connection)
        group = None
        if server.group_id is not None:
            locked = await claims.lock_groups(connection, [server.group_id])
            group = (await self._load_groups(connection, locked)).get(server.group_id)
        near, apart = (None, ()) if forced else await self._hinted(connection, server)
        read_again = held = False
        for _ in range(_ATTEMPTS):
            request = self._move_request(server, resources, group, target, zone, may_stay)
            request = replace(request, same_host=near, different_host=apart)
            decision = self._force(request) if forced else place(self.live.fleet, request)
            if not decision and not read_again:
                read_again = True
                await self.live.read_room(connection)
                continue
            if not decision:
                raise NoValidHost(f"No valid host was found. {explain.sentence(decision)}")
            host = self.live.host(decision.hosts[0])
            if host.id == server.host_id:
                if await self._resize_claim(connection, server, resources, wait=not held):
                    return host.id
            elif await self._stands(connection, {host.id: [resources]}, wait=not held, forced=forced):
                await claims.take(connection, [Claim(server.id, host.id, resources)])
                await claims.touch_groups(connection, [server.group_id] if server.group_id else [])
                await announce_claims(connection, [host.id])
                return host.id
            held, read_again = True, False
        raise Unavailable("The hosts chosen were taken by others each time; try again.")

    async def members_of(self, connection: AsyncConnection, group_id: str) -> Members:
        """Where the members of a group are, as a decision counts them: a server that moves is in both places."""
        return (await self._read_members(connection, [group_id]))[group_id][0]

    # A batch of new servers

    async def _drain(self) -> None:
        while self._pending:
            batch, self._pending = self._pending[:_LARGEST_BATCH], self._pending[_LARGEST_BATCH:]
            # What must go as expected goes alone: whoever shares its transaction would share its failure.
            for planned in [each for each in batch if each.boot.expected is not None]:
                batch.remove(planned)
                await self._serve([planned])
            if batch:
                await self._serve(batch)

    async def _serve(self, batch: list[_Pending]) -> None:
        """Carry out a batch. What fails as a whole is tried one by one, so that one request cannot fail the others."""
        try:
            done = await self._attempt(batch)
        except Exception as error:
            if len(batch) > 1 and isinstance(error, DBAPIError) and not error.connection_invalidated:
                for pending in batch:
                    await self._serve([pending])
                return
            for pending in batch:
                _refuse(pending, error)
            return
        self._remember(done)
        for case in done.cases:
            self._settle(case)

    async def _attempt(self, batch: list[_Pending]) -> _Batch:
        for attempt in range(_ATTEMPTS):
            done = None
            try:
                async with self.database.begin() as connection:
                    done = await self._transact(connection, [each for each in batch if not each.future.done()])
                    # Before the commit: a host that is read again in between then seems to have too much room, which
                    # the next claim finds out; after it, the room could be taken off twice, and nobody would.
                    self._take_over(done)
                return done
            except BaseException as error:
                if done is not None:
                    self.live.doubt(host_id for case in done.cases for host_id in case.host_ids)
                if not claims.lost_race(error) or attempt == _ATTEMPTS - 1:
                    raise
                LOST_RACES.inc()
                logger.info("a batch lost to another transaction and is tried again", extra={"attempt": attempt + 1})
                await asyncio.sleep(random.uniform(0, min(0.01 * attempt, _LONGEST_PAUSE)))
        raise AssertionError("unreachable")

    async def _transact(self, connection: AsyncConnection, pending: list[_Pending]) -> _Batch:
        await self.live.sync(connection)
        cases = await self._prepare(connection, pending)
        owners = [(case.boot.project_id, case.boot.user_id) for case in cases if case.wanted]
        projects, users = {project for project, _ in owners}, {user for _, user in owners}
        limits = await quotas.limits_of(connection, self.settings.quota, projects, users) if projects else {}
        cases = await self._within_quota(connection, cases, limits)
        groups_known = await self._join_groups(connection, cases, limits)
        batch = _Batch([case for case in cases if not case.pending.future.done()], groups_known)
        await self._place(connection, batch)
        _check_expected(batch.cases)
        await self._write(connection, batch)
        return batch

    async def _prepare(self, connection: AsyncConnection, batch: list[_Pending]) -> list[_Case]:
        """Look up what the requests name, for all of them together; refuse those that name what is not there."""
        boots = [pending.boot for pending in batch]
        named = await _Named.load(connection, boots)
        cases = []
        for pending in batch:
            try:
                cases.append(self._case(pending, named))
            except RoostError as error:
                _refuse(pending, error)
        return cases

    def _case(self, pending: _Pending, named: "_Named") -> _Case:
        boot = pending.boot
        flavor = named.flavor(boot)
        named.check(boot, flavor)
        if boot.zone is not None and not self.live.has_zone(boot.zone):
            raise Invalid("The requested availability zone is not available")
        if boot.target_must_exist and not self._targets(boot.target):
            raise Invalid(f"Compute host {boot.target} could not be found.")
        partition = asked_partition(boot.hints)
        if partition is not None and boot.group_id is None:
            raise Invalid("A partition is one of a server group: give a 'group' hint too, or no 'partition' hint.")
        tokens = {each.token for each in boot.servers if each.token is not None}
        existing = {token: named.tokens[token] for token in tokens if token in named.tokens}
        wanted = tuple(each for each in boot.servers if each.token not in existing)
        request = Request(
            resources=resources_of(flavor),
            count=max(len(wanted), 1),
            zone=boot.zone,
            targets=self._targets(boot.target),
            same_host=None if boot.same_host is None else self._near(named, boot, boot.same_host),
            different_host=self._near(named, boot, boot.different_host),
            seed=random.getrandbits(32) if boot.seed is None else boot.seed,
        )
        return _Case(pending, flavor, wanted, existing, request, partition)

    def _targets(self, name: str | None) -> list[int] | None:
        if name is None:
            return None
        index = self.live.fleet.index(name)
        return [] if index is None else [index]

    def _near(self, named: "_Named", boot: Boot, server_ids: Iterable[str]) -> list[int]:
        found = (named.places.get(server_id) for server_id in server_ids)
        allowed = (row for row in found if row is not None and (boot.may_see_all or row[0] == boot.project_id))
        return self._indexes(host_id for _, host_id in allowed)

    def _indexes(self, host_ids: Iterable[int | None]) -> list[int]:
        indexes = (self.live.index(host_id) for host_id in host_ids if host_id is not None)
        return [index for index in indexes if index is not None]

    async def _within_quota(
        self, connection: AsyncConnection, cases: list[_Case], limits: Mapping[quotas.Share, quotas.Limits]
    ) -> list[_Case]:
        """Those requests that the quotas of their projects and users allow, in order; usage is locked, so the answer
        stays true."""
        used = await quotas.lock_used(connection, limits)
        kept = []
        for case in cases:
            if case.wanted:
                wants = _usage(case.flavor, len(case.wanted))
                whole, own = (case.boot.project_id, ""), (case.boot.project_id, case.boot.user_id)
                shares = [whole, own] if own in limits else [whole]
                problems = [quotas.excess(used[share], wants, limits[share]) for share in shares]
                most_items = limits[shares[-1]]["metadata_items"]
                if any(0 <= most_items < len(new.metadata) for new in case.wanted):
                    problems = [f"Maximum number of metadata items exceeds {most_items}"]
                if any(problems):
                    _refuse(case.pending, OverQuota(next(filter(None, problems))))
                    continue
                for share in shares:
                    used[share] += wants
            kept.append(case)
        return kept

    async def _join_groups(
        self, connection: AsyncConnection, cases: list[_Case], limits: Mapping[quotas.Share, quotas.Limits]
    ) -> dict[str, _Group]:
        """Lock the groups; put their rules and members into the requests; refuse what their size does not allow."""
        wanted = {case.boot.group_id for case in cases if case.boot.group_id is not None}
        locked = await claims.lock_groups(connection, wanted)
        known = await self._load_groups(connection, locked)
        joined: dict[str, Counter[str]] = {}
        for case in cases:
            boot = case.boot
            if boot.group_id is None or not case.wanted:
                continue
            group = known.get(boot.group_id)
            foreign = group is not None and locked[boot.group_id].project_id != boot.project_id
            if group is None or (foreign and not boot.may_see_all):
                _refuse(case.pending, Invalid(f"Instance group {boot.group_id} could not be found."))
                continue
            try:
                groups.check_partition(boot.group_id, group.rules, case.partition)
            except Invalid as error:
                _refuse(case.pending, error)
                continue
            joining = joined.setdefault(boot.group_id, Counter())
            own = limits.get((boot.project_id, boot.user_id)) or limits[boot.project_id, ""]
            limit, most = own["server_group_members"], self.settings.group_max_members
            theirs = group.users[boot.user_id] + joining[boot.user_id] + len(case.wanted)
            everyone = group.users.total() + joining.total() + len(case.wanted)
            if 0 <= limit < theirs or 0 <= most < everyone:
                _refuse(case.pending, OverQuota("Quota exceeded, too many servers in group"))
                continue
            joining[boot.user_id] += len(case.wanted)
            case.request = replace(case.request, rules=group.rules, members=group.members, partition=case.partition)
        return known

    async def _load_groups(self, connection: AsyncConnection, locked: Mapping[str, sa.Row[Any]]) -> dict[str, _Group]:
        """The rules and members of locked groups: remembered where the version is still the same, else read."""
        known = {}
        unknown = []
        for group_id, row in locked.items():
            group = self._groups.get(group_id)
            if group is not None and group.version == row.version:
                known[group_id] = group
            else:
                unknown.append(group_id)
        if unknown:
            # Members may be on hosts that came after this transaction began.
            await self.live.sync(connection)
            rules = await groups.rules_of(connection, unknown)
            present = await self._read_members(connection, unknown)
            between = await self._read_moves(
                connection, [each for each in unknown if any(map(_keeps_together, rules[each]))]
            )
            for group_id in unknown:
                members, users = present[group_id]
                members.between = tuple(between.get(group_id, ()))
                known[group_id] = _Group(locked[group_id].version, rules[group_id], members, users)
        return known

    async def _read_members(
        self, connection: AsyncConnection, group_ids: Sequence[str]
    ) -> dict[str, tuple[Members, Counter[str]]]:
        found: dict[str, tuple[Members, Counter[str]]] = {group_id: (Members(), Counter()) for group_id in group_ids}
        of_groups = servers.c.group_id.in_(group_ids)
        places = (
            sa.select(servers.c.group_id, claims_table.c.host_id, servers.c.partition, sa.func.count().label("servers"))
            .join(claims_table, claims_table.c.server_id == servers.c.id)
            .where(of_groups)
            .group_by(servers.c.group_id, claims_table.c.host_id, servers.c.partition)
        )
        for row in await connection.execute(places):
            index = self.live.index(row.host_id)
            if index is not None:
                found[row.group_id][0].add(index, row.servers, row.partition)
        owners = (
            sa.select(servers.c.group_id, servers.c.user_id, sa.func.count().label("servers"))
            .where(of_groups)
            .group_by(servers.c.group_id, servers.c.user_id)
        )
        for row in await connection.execute(owners):
            found[row.group_id][1][row.user_id] = row.servers
        return found

    async def _read_moves(
        self, connection: AsyncConnection, group_ids: Sequence[str]
    ) -> dict[str, list[tuple[int, int]]]:
        """The two hosts of each member that holds a claim on two."""
        found: dict[str, list[tuple[int, int]]] = {}
        if not group_ids:
            return found
        query = (
            sa.select(servers.c.group_id, sa.func.array_agg(claims_table.c.host_id).label("host_ids"))
            .join(claims_table, claims_table.c.server_id == servers.c.id)
            .where(servers.c.group_id.in_(group_ids))
            .group_by(servers.c.id)
            .having(sa.func.count() > 1)
        )
        for row in await connection.execute(query):
            source, target = self._indexes(row.host_ids)
            found.setdefault(row.group_id, []).append((source, target))
        return found

    async def _place(self, connection: AsyncConnection, batch: _Batch) -> None:
        """Decide all, and look under lock whether the hosts still have the room; decide anew until they do."""
        read_again = held = False
        for _ in range(_ATTEMPTS):
            fleet = self.live.fleet.snapshot()
            batch.members = {group_id: group.members.copy() for group_id, group in batch.groups.items()}
            needs: dict[int, list[Resources]] = {}
            for case in batch.cases:
                if case.wanted:
                    self._decide(case, fleet, batch.members)
                for host_id in case.host_ids:
                    needs.setdefault(host_id, []).append(case.request.resources)
            if not read_again and any(case.lacks_room for case in batch.cases):
                read_again = True
                await self.live.read_room(connection)
            elif await self._stands(connection, needs, wait=not held):
                return
            else:
                held, read_again = True, False
        raise Unavailable("The hosts chosen were taken by others each time; try again.")

    def _decide(self, case: _Case, fleet: Fleet, members: Mapping[str, Members]) -> None:
        present = members.get(case.boot.group_id or "", case.request.members)
        request = replace(case.request, members=present)
        decision = place(fleet, request)
        least = min(case.boot.least, len(case.wanted))
        if not decision and least < request.count:
            decision = _most(fleet, request, least) or decision
        case.decision, case.places = decision, decision.hosts
        case.host_ids = tuple(self.live.host(index).id for index in decision.hosts)
        case.records = explain.records(decision, self.live, least)
        for index, partition in decision.placed():
            fleet.claim(index, request.resources)
            if case.boot.group_id is not None:
                present.add(index, partition=partition)

    async def _stands(
        self,
        connection: AsyncConnection,
        needs: Mapping[int, Sequence[Resources]],
        *,
        wait: bool,
        forced: bool = False,
    ) -> bool:
        """Lock the hosts; whether all of them can take what is wanted of them. Those that cannot are read again."""
        rows = await claims.lock_hosts(connection, needs, wait=wait)
        short = [host_id for host_id, wanted in needs.items() if not _has_room(rows.get(host_id), wanted, forced)]
        if short:
            await self.live.refresh(connection, short)
        return not short

    async def _write(self, connection: AsyncConnection, batch: _Batch) -> None:
        rows: list[dict[str, Any]] = []
        taken: list[Claim] = []
        usage: dict[str, Usage] = {}
        joined: list[tuple[str, str]] = []
        for case in batch.cases:
            made = case.made
            case.ids = tuple(str(uuid.uuid4()) for _ in made)
            places = case.placed or ((None, case.partition),) * len(made)
            for number, (server_id, new) in enumerate(zip(case.ids, made, strict=True)):
                host_id, partition = places[number]
                rows.append(_row(case, new, server_id, number, host_id, partition))
                if host_id is not None:
                    taken.append(Claim(server_id, host_id, case.request.resources))
                if case.boot.group_id is not None:
                    joined.append((case.boot.group_id, server_id))
            project = case.boot.project_id
            usage[project] = usage.get(project, NOTHING) + _usage(case.flavor, len(made))
        if not rows:
            return
        await connection.execute(_INSERT, {"rows": json.dumps(rows)})
        await claims.take(connection, taken)
        await claims.count_usage(connection, usage)
        await claims.touch_groups(connection, batch.groups)
        await groups.member_added(connection, self.settings, joined)
        await announce_claims(connection, (claim.host_id for claim in taken), self.live.origin, lifecycle.CHANNEL)

    def _take_over(self, batch: _Batch) -> None:
        """Take the claims of a batch off the room that this process knows of."""
        for case in batch.cases:
            for index in case.places:
                self.live.fleet.claim(index, case.request.resources)

    def _remember(self, batch: _Batch) -> None:
        """The transaction is committed: the groups are at their next version, with the members that it added."""
        if len(self._groups) > _GROUPS_REMEMBERED:
            self._groups.clear()
        for group_id, group in batch.groups.items():
            users = Counter(group.users)
            for case in batch.cases:
                if case.boot.group_id == group_id:
                    users[case.boot.user_id] += len(case.ids)
            self._groups[group_id] = replace(
                group, version=group.version + 1, members=batch.members[group_id], users=users
            )

    def _settle(self, case: _Case) -> None:
        """The transaction is committed: answer, unless nobody waits any more."""
        _PLACED.inc(len(case.host_ids))
        _REFUSED.inc(len(case.made) - len(case.host_ids))
        new = iter(case.ids)
        ids = (case.existing.get(each.token or "") or next(new, None) for each in case.boot.servers)
        if not case.pending.future.done():
            case.pending.future.set_result(Booted(tuple(filter(None, ids)), case.reservation_id))

    # A server that moves

    async def _hinted(
        self, connection: AsyncConnection, server: sa.Row[Any]
    ) -> tuple[Sequence[int] | None, Sequence[int]]:
        """Where the servers are that this one asked to be with, or away from; those that are gone do not count."""
        near, apart = named_servers(server.hints, "same_host"), named_servers(server.hints, "different_host")
        rows = await _rows(connection, servers, "id", {*(near or ()), *(apart or ())})
        places = {row.id: row.host_id for row in rows if row.project_id == server.project_id}
        together = self._indexes(places.get(server_id) for server_id in near or ())
        return together or None, self._indexes(places.get(server_id) for server_id in apart or ())

    def _move_request(
        self,
        server: sa.Row[Any],
        resources: Resources,
        group: _Group | None,
        target: str | None,
        zone: str | None,
        may_stay: bool,
    ) -> Request:
        source = None if server.host_id is None else self.live.index(server.host_id)
        held = Resources(*(server.flavor[key] for key in Resources._fields))
        return Request(
            resources=resources,
            rules=group.rules if group else (),
            members=group.members if group else Members(),
            zone=zone or server.zone,
            targets=self._targets(target),
            moving=None if source is None else Move(source, held, may_stay),
            partition=server.partition,
            seed=random.getrandbits(32),
        )

    def _force(self, request: Request) -> Decision:
        """A decision on the one target, as if it took servers, and whatever its zone."""
        fleet = self.live.fleet.snapshot()
        for host in request.targets or ():
            fleet.enable(host)
        return place(fleet, replace(request, zone=None))

    async def _resize_claim(
        self, connection: AsyncConnection, server: sa.Row[Any], resources: Resources, *, wait: bool
    ) -> bool:
        """Keep room for the larger of what the server had and what it becomes, on the host where it stays."""
        held = Resources(*(server.flavor[key] for key in Resources._fields))
        both = Resources(*(max(old, new) for old, new in zip(held, resources, strict=True)))
        more = Resources(*(new - old for old, new in zip(held, both, strict=True)))
        if not await self._stands(connection, {server.host_id: [more]}, wait=wait):
            return False
        await claims.change(connection, Claim(server.id, server.host_id, both))
        await announce_claims(connection, [server.host_id])
        return True


@dataclass(frozen=True, slots=True)
class _Named:
    """What the requests of a batch refer to, as it is in the database."""

    flavors: Mapping[str, sa.Row[Any]]
    private: frozenset[tuple[str, str]]
    images: Mapping[str, sa.Row[Any]]
    keys: frozenset[tuple[str, str]]
    tokens: Mapping[str, str]
    places: Mapping[str, tuple[str, int | None]]

    @classmethod
    async def load(cls, connection: AsyncConnection, boots: Sequence[Boot]) -> "_Named":
        """One query a kind, and none for a kind that nobody names."""
        flavor_rows = await _rows(connection, flavors, "id", {boot.flavor_id for boot in boots})
        access = await _rows(
            connection, flavor_access, "flavor_id", {row.id for row in flavor_rows if not row.is_public}
        )
        image_rows = await _rows(connection, images, "id", {boot.image_id for boot in boots if boot.image_id})
        owners = {boot.user_id for boot in boots if boot.key_name}
        tokens = {new.token for boot in boots for new in boot.servers if new.token}
        near = {server_id for boot in boots for server_id in (*(boot.same_host or ()), *boot.different_host)}
        return cls(
            flavors={row.id: row for row in flavor_rows},
            private=frozenset((row.flavor_id, row.project_id) for row in access),
            images={row.id: row for row in image_rows},
            keys=frozenset((row.user_id, row.name) for row in await _rows(connection, keypairs, "user_id", owners)),
            tokens={row.client_token: row.id for row in await _rows(connection, servers, "client_token", tokens)},
            places={row.id: (row.project_id, row.host_id) for row in await _rows(connection, servers, "id", near)},
        )

    def flavor(self, boot: Boot) -> sa.Row[Any]:
        """The flavor of a request, if its project may use it."""
        row = self.flavors.get(boot.flavor_id)
        allowed = row is not None and (row.is_public or boot.may_see_all or (row.id, boot.project_id) in self.private)
        if row is None or not allowed:
            raise Invalid(f"Flavor {boot.flavor_id} could not be found.")
        return row

    def check(self, boot: Boot, flavor: sa.Row[Any]) -> None:
        """Raise `Invalid` for anything else that is named and is not there."""
        if boot.image_id is not None:
            image = self.images.get(boot.image_id)
            if image is None:
                raise Invalid("Can not find requested image")
            if image.min_memory_mb > flavor.memory_mb:
                raise Invalid("Flavor's memory is too small for requested image.")
            if flavor.disk_gb and image.min_disk_gb > flavor.disk_gb:
                raise Invalid("Flavor's disk is too small for requested image.")
        if boot.key_name is not None and (boot.user_id, boot.key_name) not in self.keys:
            raise Invalid("Invalid key_name provided.")


async def _rows(connection: AsyncConnection, table: sa.Table, key: str, values: Iterable[str]) -> Sequence[sa.Row[Any]]:
    wanted = list(values)
    if not wanted:
        return ()
    return (await connection.execute(sa.select(table).where(table.c[key].in_(wanted)))).all()


def named_servers(hints: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
    """The servers that a hint names, given as one id or several; None if there is no such hint."""
    value = hints.get(key)
    if value is None:
        return None
    return tuple(str(each).lower() for each in (value if isinstance(value, list) else [value]) if _is_uuid(each))


def asked_partition(hints: Mapping[str, Any]) -> int | None:
    """The partition that the hints ask for, as a number or, as the clients send it, in digits."""
    value = hints.get("partition")
    if isinstance(value, str) and re.fullmatch("[0-9]{1,9}", value):
        value = int(value)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise Invalid(f"The hint 'partition' must be one whole number, and is {value!r}.")
    return value


def _is_uuid(value: object) -> bool:
    try:
        uuid.UUID(str(value))
    except ValueError:
        return False
    return True


def _keeps_together(rule: Rule) -> bool:
    """Whether members must be where the others are, wherever that is."""
    return rule.kind is Kind.AFFINITY and not rule.soft and rule.identifier is None


def resources_of(flavor: sa.Row[Any]) -> Resources:
    """What a server of this flavor takes of a host."""
    return Resources(flavor.vcpus, flavor.memory_mb, flavor.disk_gb + flavor.ephemeral_gb)


def embedded(flavor: sa.Row[Any]) -> dict[str, Any]:
    """The flavor as a server keeps it, whatever becomes of the flavor; `disk_gb` is all that the server takes."""
    return {
        "id": flavor.id,
        "name": flavor.name,
        "root_gb": flavor.disk_gb,
        "ephemeral_gb": flavor.ephemeral_gb,
        "swap_mb": flavor.swap_mb,
        "extra_specs": flavor.extra_specs,
        **resources_of(flavor)._asdict(),
    }


def _most(fleet: Fleet, request: Request, least: int) -> Decision | None:
    """As many of the servers as find a place, if that is enough of them."""
    best, low, high = None, least, request.count - 1
    while low <= high:
        middle = (low + high) // 2
        decision = place(fleet, replace(request, count=middle))
        if decision:
            best, low = decision, middle + 1
        else:
            high = middle - 1
    return best


def _refuse(pending: _Pending, error: Exception) -> None:
    """Answer with an error, unless nobody waits any more."""
    if not pending.future.done():
        pending.future.set_exception(error)


def _check_expected(cases: Iterable[_Case]) -> None:
    for case in cases:
        if case.boot.expected is not None and case.decision is not None and case.placed != case.boot.expected:
            raise Overtaken(case.decision)


def _has_room(row: sa.Row[Any] | None, wanted: Sequence[Resources], forced: bool) -> bool:
    if row is None or row.forced_down or not (row.enabled or forced):
        return False
    vcpus, memory_mb, disk_gb = (sum(column) for column in zip(*wanted, strict=True))
    return bool(
        row.vcpus - row.vcpus_used >= vcpus
        and row.memory_mb - row.memory_mb_used >= memory_mb
        and row.disk_gb - row.disk_gb_used >= disk_gb
    )


def _usage(flavor: sa.Row[Any], count: int) -> Usage:
    return Usage(count, count * flavor.vcpus, count * flavor.memory_mb)


def _row(
    case: _Case, new: NewServer, server_id: str, number: int, host_id: int | None, partition: int | None
) -> dict[str, Any]:
    boot, decision = case.boot, case.decision
    assert decision is not None
    return {
        "id": server_id,
        "project_id": boot.project_id,
        "user_id": boot.user_id,
        "name": new.name,
        "hostname": new.hostname or _hostname(new.name, server_id),
        "description": boot.description,
        "flavor": embedded(case.flavor),
        "image_id": boot.image_id,
        "key_name": boot.key_name,
        "user_data": boot.user_data,
        "config_drive": boot.config_drive,
        "metadata": dict(new.metadata),
        "tags": list(boot.tags),
        "addresses": dict(new.addresses),
        "hints": dict(boot.hints),
        "zone": boot.zone,
        "reservation_id": case.reservation_id,
        "launch_index": number,
        "host_id": host_id,
        "group_id": boot.group_id,
        "partition": partition,
        "client_token": new.token,
        "request_id": boot.request_id,
        "step": None if host_id is None else _booting(host_id),
        "fault": None if host_id is not None else f"No valid host was found. {explain.sentence(decision)}",
        "explanation": case.records[number],
    }


def _booting(host_id: int) -> dict[str, Any]:
    failed = {"vm_state": "error", "fault": "The boot failed, as the topology's failure_rate asks.", "host_id": None}
    return {
        "launches": True,
        "vm_state": "active",
        "power_state": 1,
        "undo": {**failed, "release": [host_id]},
    }


def _hostname(name: str, server_id: str) -> str:
    """A name that a guest can bear: of the server's own where its letters allow it, else of its id."""
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name.lower())
    return plain.strip("-")[:63].strip("-") or f"server-{server_id}"


# A server that found a host is booted by the engine, in the time that the topology says; one that found none is done.
_INSERT = sa.text("""
    WITH wanted AS (
        SELECT * FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r(
            id uuid, project_id text, user_id text, name text, hostname text, description text, flavor jsonb,
            image_id text, key_name text, user_data text, config_drive boolean, metadata jsonb, tags jsonb,
            addresses jsonb, hints jsonb, zone text, reservation_id text, launch_index int, host_id int,
            group_id uuid, partition int, client_token text, request_id text, step jsonb, fault text,
            explanation jsonb)
    ), made AS (
        INSERT INTO servers (
            id, project_id, user_id, name, hostname, description, flavor, image_id, key_name, user_data, config_drive,
            metadata, tags, addresses, hints, zone, reservation_id, launch_index, host_id, group_id, partition,
            client_token, explanation, vm_state, task_state, due_at, step, fault)
        SELECT
            id, project_id, user_id, name, hostname, description, flavor, image_id, key_name, user_data, config_drive,
            metadata, tags, addresses, hints, zone, reservation_id, launch_index, host_id, group_id, partition,
            client_token, explanation,
            CASE WHEN host_id IS NULL THEN 'error' ELSE 'building' END,
            CASE WHEN host_id IS NULL THEN NULL ELSE 'spawning' END,
            CASE WHEN host_id IS NULL THEN NULL ELSE
                now() + make_interval(secs => coalesce(
                    (SELECT CAST(simulation ->> 'boot_seconds' AS float) FROM topologies), 0)) END,
            step,
            CASE WHEN fault IS NULL THEN NULL ELSE
                jsonb_build_object('code', 500, 'created', now(), 'message', fault) END
        FROM wanted
    )
    INSERT INTO instance_actions (server_id, action, request_id, user_id, project_id, message, finish_time)
    SELECT id, 'create', request_id, user_id, project_id, CASE WHEN fault IS NULL THEN NULL ELSE 'Error' END,
        CASE WHEN fault IS NULL THEN NULL ELSE now() END
    FROM wanted
""")
