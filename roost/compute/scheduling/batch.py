"""Requests for new servers that share one transaction. Inside it

1. the fleet takes in every change of hosts, zones and scopes that was committed before (`LiveFleet.sync`);
2. the projects' usage and the groups are locked, so that quotas, rules and members stay as they are read;
3. each request is decided in memory, seeing what those before it took;
4. the chosen hosts are locked and looked at: if another process took the room, they are read again and all is decided
   anew, with the locks kept; nobody is told that there is no room before all hosts were read again;
5. servers, claims, usage and notifications are written, and committed at once.
"""

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.groups import groups
from roost.compute.groups.group_cache import CachedGroup, GroupCache
from roost.compute.inventory import claims, quotas
from roost.compute.inventory.claims import NOTHING, Claim, Usage
from roost.compute.inventory.flavors import resources_of
from roost.compute.inventory.live_fleet import LiveFleet, announce_claims
from roost.compute.scheduling import lifecycle
from roost.compute.scheduling.attempt import Attempt, PendingRequest, insert
from roost.compute.scheduling.request import CreateRequest, References, asked_partition
from roost.config import Settings
from roost.errors import Conflict, Invalid, OverQuota, RoostError, Unavailable
from roost.placement.decision import Decision, Request
from roost.placement.fleet import Members, Resources


class Overtaken(Conflict):
    """What was expected of a request is no longer what would become of it."""

    def __init__(self, now: Decision) -> None:
        super().__init__("The servers would no longer be placed as planned.")
        self.now = now


@dataclass(slots=True)
class CreateBatch:
    """The requests of one transaction, and the groups that they touch."""

    settings: Settings
    live: LiveFleet
    known: GroupCache
    attempts: list[Attempt] = field(default_factory=list)
    groups: dict[str, CachedGroup] = field(default_factory=dict)
    members: dict[str, Members] = field(default_factory=dict)
    """The members of the groups as the decisions leave them."""
    taken: list[int] = field(default_factory=list)
    """The hosts whose room was taken off in memory, before the commit."""

    async def carry_out(self, connection: AsyncConnection, together: list[PendingRequest]) -> None:
        """Make the servers of these requests, and refuse those that ask for what cannot be."""
        await self.live.sync(connection)
        await self._prepare(connection, together)
        owners = [(attempt.boot.project_id, attempt.boot.user_id) for attempt in self.attempts if attempt.wanted]
        projects, users = {project for project, _ in owners}, {user for _, user in owners}
        limits = await quotas.limits_of(connection, self.settings.quota, projects, users) if projects else {}
        await self._keep_within_quota(connection, limits)
        await self._join_groups(connection, limits)
        self.attempts = [attempt for attempt in self.attempts if not attempt.pending.answered]
        await self._place(connection)
        self._check_expected()
        await self._write(connection)
        # Before the commit: a host that is read again in between then seems to have too much room, which the next claim
        # finds out; after it, the room could be taken off twice, and nobody would.
        self._take_over()

    def grown_groups(self) -> dict[str, CachedGroup]:
        """The groups as the commit leaves them: at their next version, with the members that were added."""
        joined: dict[str, Counter[str]] = {group_id: Counter() for group_id in self.groups}
        for attempt in self.attempts:
            if attempt.boot.group_id in joined:
                joined[attempt.boot.group_id][attempt.boot.user_id] += len(attempt.ids)
        return {
            group_id: group.grown(self.members[group_id], joined[group_id]) for group_id, group in self.groups.items()
        }

    async def _prepare(self, connection: AsyncConnection, together: list[PendingRequest]) -> None:
        """Look up what the requests name, for all of them together; refuse those that name what is not there."""
        named = await References.load(connection, [pending.boot for pending in together])
        for pending in together:
            try:
                self.attempts.append(self._attempt(pending, named))
            except RoostError as error:
                pending.refuse(error)

    def _attempt(self, pending: PendingRequest, named: References) -> Attempt:
        boot = pending.boot
        flavor = named.flavor(boot)
        named.check(boot, flavor)
        if boot.zone is not None and not self.live.has_zone(boot.zone):
            raise Invalid("The requested availability zone is not available")
        targets = self.live.targets(boot.target)
        if boot.target_must_exist and not targets:
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
            targets=targets,
            same_host=None if boot.same_host is None else self._near(named, boot, boot.same_host),
            different_host=self._near(named, boot, boot.different_host),
            seed=random.getrandbits(32) if boot.seed is None else boot.seed,
        )
        return Attempt(pending, flavor, wanted, existing, request, partition)

    def _near(self, named: References, boot: CreateRequest, server_ids: Iterable[str]) -> list[int]:
        found = (named.places.get(server_id) for server_id in server_ids)
        allowed = (row for row in found if row is not None and (boot.may_see_all or row[0] == boot.project_id))
        return self.live.indexes(host_id for _, host_id in allowed)

    async def _keep_within_quota(
        self, connection: AsyncConnection, limits: Mapping[quotas.Share, quotas.Limits]
    ) -> None:
        """Refuse what the quotas of projects and users do not allow, in order; usage is locked, so the answer stays
        true."""
        used = await quotas.lock_used(connection, limits)
        kept = []
        for attempt in self.attempts:
            if attempt.wanted:
                wants = attempt.usage(attempt.wanted)
                whole, own = (attempt.boot.project_id, ""), (attempt.boot.project_id, attempt.boot.user_id)
                shares = [whole, own] if own in limits else [whole]
                problems = [quotas.excess(used[share], wants, limits[share]) for share in shares]
                most_items = limits[shares[-1]]["metadata_items"]
                if any(0 <= most_items < len(new.metadata) for new in attempt.wanted):
                    problems = [f"Maximum number of metadata items exceeds {most_items}"]
                if any(problems):
                    attempt.pending.refuse(OverQuota(next(filter(None, problems))))
                    continue
                for share in shares:
                    used[share] += wants
            kept.append(attempt)
        self.attempts = kept

    async def _join_groups(self, connection: AsyncConnection, limits: Mapping[quotas.Share, quotas.Limits]) -> None:
        """Lock the groups; put their rules and members into the requests; refuse what their size does not allow."""
        wanted = {attempt.boot.group_id for attempt in self.attempts if attempt.boot.group_id is not None}
        locked = await claims.lock_groups(connection, wanted)
        self.groups = await self.known.load(connection, locked)
        joined: dict[str, Counter[str]] = {}
        for attempt in self.attempts:
            boot = attempt.boot
            if boot.group_id is None or not attempt.wanted:
                continue
            group = self.groups.get(boot.group_id)
            foreign = group is not None and locked[boot.group_id].project_id != boot.project_id
            if group is None or (foreign and not boot.may_see_all):
                attempt.pending.refuse(Invalid(f"Instance group {boot.group_id} could not be found."))
                continue
            try:
                groups.check_partition(boot.group_id, group.rules, attempt.partition)
            except Invalid as error:
                attempt.pending.refuse(error)
                continue
            joining = joined.setdefault(boot.group_id, Counter())
            own = limits.get((boot.project_id, boot.user_id)) or limits[boot.project_id, ""]
            limit, most = own["server_group_members"], self.settings.group_max_members
            theirs = group.users[boot.user_id] + joining[boot.user_id] + len(attempt.wanted)
            everyone = group.users.total() + joining.total() + len(attempt.wanted)
            if 0 <= limit < theirs or 0 <= most < everyone:
                attempt.pending.refuse(OverQuota("Quota exceeded, too many servers in group"))
                continue
            joining[boot.user_id] += len(attempt.wanted)
            attempt.request = replace(
                attempt.request, rules=group.rules, members=group.members, partition=attempt.partition
            )

    async def _place(self, connection: AsyncConnection) -> None:
        """Decide all, and look under lock whether the hosts still have the room; decide anew until they do."""
        read_again = held = False
        for _ in range(claims.ATTEMPTS):
            fleet = self.live.fleet.snapshot()
            self.members = {group_id: group.members.copy() for group_id, group in self.groups.items()}
            needs: dict[int, list[Resources]] = {}
            for attempt in self.attempts:
                if attempt.wanted:
                    attempt.decide(self.live, fleet, self.members)
                for host_id in attempt.host_ids:
                    needs.setdefault(host_id, []).append(attempt.request.resources)
            if not read_again and any(attempt.lacks_room for attempt in self.attempts):
                read_again = True
                await self.live.read_room(connection)
            elif await self.live.can_take(connection, needs, wait=not held):
                return
            else:
                held, read_again = True, False
        raise Unavailable("The hosts chosen were taken by others each time; try again.")

    def _check_expected(self) -> None:
        for attempt in self.attempts:
            if (
                attempt.boot.expected is not None
                and attempt.decision is not None
                and attempt.placed != attempt.boot.expected
            ):
                raise Overtaken(attempt.decision)

    async def _write(self, connection: AsyncConnection) -> None:
        rows: list[dict[str, Any]] = []
        taken: list[Claim] = []
        usage: dict[str, Usage] = {}
        for attempt in self.attempts:
            new = list(attempt.rows())
            rows += new
            sizes = attempt.request.resources
            taken += [Claim(row["id"], row["host_id"], sizes) for row in new if row["host_id"] is not None]
            project = attempt.boot.project_id
            usage[project] = usage.get(project, NOTHING) + attempt.usage(attempt.made)
        if not rows:
            return
        joined = [(row["group_id"], row["id"]) for row in rows if row["group_id"] is not None]
        await insert(connection, rows)
        await claims.take(connection, taken)
        await claims.count_usage(connection, usage)
        await claims.touch_groups(connection, self.groups)
        await groups.member_added(connection, self.settings, joined)
        await announce_claims(connection, (claim.host_id for claim in taken), self.live.origin, lifecycle.CHANNEL)

    def _take_over(self) -> None:
        """Take the claims off the room that this process knows of."""
        for attempt in self.attempts:
            self.taken += attempt.host_ids
            for index in attempt.places:
                self.live.fleet.claim(index, attempt.request.resources)
