"""Requests of one project that are decided and claimed together:

1. `look` reads what the requests name, and every change that is new to this process, in one statement;
2. `decide` chooses hosts in memory for each request, seeing what those before it took, and reserves them;
3. the claim (`claim`) takes them all in one round trip, or says what has changed; then all is decided again.

A batch that has lost a group to another process queues for it the next time: it locks the group first, and the
database lets those that wait have it in their order. So a busy group goes from process to process, and none starves.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.groups import groups, members, notifications
from roost.compute.groups.group_cache import GroupCache
from roost.compute.inventory import claims, quotas
from roost.compute.inventory.claims import NOTHING, Usage
from roost.compute.inventory.flavors import resources_of
from roost.compute.inventory.live_fleet import Joined, LiveFleet
from roost.compute.scheduling.attempt import Attempt, PendingRequest
from roost.compute.scheduling.claim import ClaimAnswer, claim
from roost.compute.scheduling.request import CreateRequest, References, asked_partition
from roost.config import Settings
from roost.errors import Conflict, Invalid, OverQuota, RoostError
from roost.placement.decision import Decision, Request
from roost.placement.fleet import Members, Resources

_LIMITED = ("instances", "cores", "ram")
_MANY = 100
_LOOKS_FOR_ROOM = 3
"""How often the room of all hosts is read before a request is refused for want of it."""


class Overtaken(Conflict):
    """What was expected of a request is no longer what would become of it."""

    def __init__(self, now: Decision) -> None:
        super().__init__("The servers would no longer be placed as planned.")
        self.now = now


@dataclass(slots=True)
class CreateBatch:
    """Requests of one project, on their way through decisions and claims."""

    settings: Settings
    live: LiveFleet
    known: GroupCache
    pending: list[PendingRequest]
    must_queue: bool = False
    """Whether the groups are to be locked before the decision; then the caller begins a transaction."""
    attempts: list[Attempt] = field(default_factory=list)
    _references: References | None = None
    _used: dict[str, Usage] | None = None
    """What the project and its users use, if a claim said that it is too much."""
    _reserved: list[tuple[int, Resources]] = field(default_factory=list)
    _versions: dict[str, int] = field(default_factory=dict)
    """The version of each group that the decision rests on."""
    _loose: set[str] = field(default_factory=set)
    """The groups that others may join meanwhile: nothing that the decision must keep to depends on their members."""

    @property
    def project_id(self) -> str:
        """The project that asks."""
        return self.pending[0].asked.project_id

    @property
    def group_ids(self) -> set[str]:
        """The groups that the requests name."""
        return {each.asked.group_id for each in self.pending if each.asked.group_id is not None}

    async def attempt(self, connection: AsyncConnection) -> ClaimAnswer | None:
        """Decide and claim; None if no request is left to be decided."""
        if self.must_queue:
            await self._queue(connection)
        if self._references is None:
            await self._look(connection)
            known = [self.known.get(group_id) for group_id in self.group_ids]
            if not self.must_queue and any(group is not None and group.lacks_numbers for group in known):
                self.must_queue = True
                return ClaimAnswer(won=False, rooms=())
        self._prepare()
        if not self.attempts:
            return None
        await self._decide(connection)
        if len(self._reserved) > _MANY:
            await asyncio.sleep(0)  # others are served before the rows of so many are made
        self._check_expected()
        return await claim(connection, self._asked())

    def won(self, answer: ClaimAnswer) -> None:
        """Take in what is now committed."""
        self.live.unreserve(self._reserved, answer.rooms)
        self._reserved = []
        self.live.take_in_claims([*answer.news, (answer.number, {"rooms": (), "joined": answer.joined})])

    def lost(self, answer: ClaimAnswer) -> None:
        """Take in what has changed since the decision."""
        self.give_up()
        for room in answer.rooms:
            self.live.put_room(*room)
        self.live.take_in_claims(answer.news)
        self._used = None if answer.used is None else dict(answer.used)
        changed = [group_id for group_id, version in self._versions.items() if answer.versions.get(group_id) != version]
        self.must_queue = self.must_queue or bool(changed)
        self.known.contended(changed)
        current = {group_id: self.known.get(group_id) for group_id in changed}
        stale = [each for each, group in current.items() if not group or group.version != answer.versions.get(each)]
        self.known.forget(stale)
        if stale or answer.generation != self.live.generation:
            self._references = None

    def give_up(self) -> None:
        """End what is reserved: the claim failed, or was lost."""
        self.live.unreserve(self._reserved)
        self._reserved = []

    def look_again(self) -> None:
        """Read again what the requests name, before the next attempt."""
        self._references = None

    async def _queue(self, connection: AsyncConnection) -> None:
        """Lock usage, unless no limit applies, and groups, in the order in which all do."""
        if self._references is None or self._shares_limited():
            await claims.lock_usage(connection, self.project_id)
        locked = await claims.lock_groups(connection, self.group_ids)
        self._references = None
        await self.known.load_locked(connection, locked)

    async def _look(self, connection: AsyncConnection) -> None:
        requests = [each.asked for each in self.pending if not each.answered]
        if not requests:
            return
        found = await References.load(connection, self.live, self.settings.quota, requests)
        await self.known.load(connection, {group_id: version for group_id, (version, _) in found.groups.items()})
        self._references = found

    # What is asked for

    def _prepare(self) -> None:
        """Refuse the requests that ask for what cannot be; the others become attempts."""
        self.attempts, self._versions, self._loose = [], {}, set()
        named = self._references
        if named is None:
            return
        used = dict(self._used) if self._used is not None else None
        joining: dict[str, Counter[str]] = {}
        for pending in self.pending:
            if pending.answered:
                continue
            try:
                attempt = self._attempt(pending, named)
                if attempt.wanted:
                    self._keep_within_quota(attempt, named, used)
                    self._join(attempt, named, joining)
                self.attempts.append(attempt)
            except RoostError as error:
                pending.refuse(error)

    def _attempt(self, pending: PendingRequest, named: References) -> Attempt:
        asked = pending.asked
        flavor = named.flavor(asked)
        named.check(asked, flavor)
        if asked.zone is not None and not self.live.has_zone(asked.zone):
            raise Invalid("The requested availability zone is not available")
        targets = self.live.targets(asked.target)
        if asked.target_must_exist and not targets:
            raise Invalid(f"Compute host {asked.target} could not be found.")
        partition = asked_partition(asked.hints)
        if partition is not None and asked.group_id is None:
            raise Invalid("A partition is one of a server group: give a 'group' hint too, or no 'partition' hint.")
        tokens = {each.token for each in asked.servers if each.token is not None}
        existing = {token: named.tokens[token] for token in tokens if token in named.tokens}
        wanted = tuple(each for each in asked.servers if each.token not in existing)
        request = Request(
            resources=resources_of(flavor),
            count=max(len(wanted), 1),
            zone=asked.zone,
            targets=targets,
            same_host=None if asked.same_host is None else self._near(named, asked, asked.same_host),
            different_host=self._near(named, asked, asked.different_host),
            seed=random.getrandbits(32) if asked.seed is None else asked.seed,
        )
        return Attempt(pending, flavor, wanted, existing, request, partition)

    def _near(self, named: References, asked: CreateRequest, server_ids: Iterable[str]) -> list[int]:
        found = (named.places.get(server_id) for server_id in server_ids)
        allowed = (row for row in found if row is not None and (asked.may_see_all or row[0] == asked.project_id))
        return self.live.indexes(host_id for _, host_id in allowed)

    def _keep_within_quota(self, attempt: Attempt, named: References, used: dict[str, Usage] | None) -> None:
        """Raise `OverQuota` for what the limits do not allow, as far as it is known what is used; the claim checks."""
        shares = self._shares(named, attempt.asked.user_id)
        most_items = named.limits[self.project_id, shares[-1]]["metadata_items"]
        if any(0 <= most_items < len(new.metadata) for new in attempt.wanted):
            raise OverQuota(f"Maximum number of metadata items exceeds {most_items}")
        if used is None:
            return
        wants = attempt.usage(attempt.wanted)
        for user_id in shares:
            if user_id in used:
                problem = quotas.excess(used[user_id], wants, named.limits[self.project_id, user_id])
                if problem:
                    raise OverQuota(problem)
        for user_id in shares:
            if user_id in used:
                used[user_id] += wants

    def _shares(self, named: References, user_id: str) -> list[str]:
        """Whose limits apply: the project's (''), and the user's, if it has some of its own."""
        return ["", user_id] if (self.project_id, user_id) in named.limits else [""]

    def _shares_limited(self) -> bool:
        named = self._references
        return named is not None and any(limits[name] >= 0 for limits in named.limits.values() for name in _LIMITED)

    def _join(self, attempt: Attempt, named: References, joining: dict[str, Counter[str]]) -> None:
        """Put the rules and members of its group into a request; refuse what the group's size does not allow."""
        asked = attempt.asked
        if asked.group_id is None:
            return
        group = self.known.get(asked.group_id)
        _, owner = named.groups.get(asked.group_id, (0, ""))
        if group is None or asked.group_id not in named.groups or (owner != asked.project_id and not asked.may_see_all):
            raise Invalid(f"Instance group {asked.group_id} could not be found.")
        members.check_partition(asked.group_id, group.rules, attempt.partition)
        limits = named.limits[self.project_id, self._shares(named, asked.user_id)[-1]]
        joined = joining.setdefault(asked.group_id, Counter())
        theirs, everyone = group.users[asked.user_id] + joined[asked.user_id], group.users.total() + joined.total()
        members.check_limits(limits, self.settings, theirs, everyone, len(attempt.wanted))
        joined[asked.user_id] += len(attempt.wanted)
        self._versions[asked.group_id] = group.version
        unlimited = limits["server_group_members"] < 0 and self.settings.group_max_members < 0
        if unlimited and asked.expected is None and all(rule.soft and not rule.partitions for rule in group.rules):
            self._loose.add(asked.group_id)
        else:
            self._loose.discard(asked.group_id)
        attempt.request = replace(
            attempt.request, rules=group.rules, members=group.members, partition=attempt.partition
        )

    # What is decided

    async def _decide(self, connection: AsyncConnection) -> None:
        """Choose hosts for all. Before any request is refused for want of room, the room of all hosts is read again."""
        looks = _LOOKS_FOR_ROOM
        while True:
            members: dict[str, Members] = {}
            for attempt in self.attempts:
                group = self.known.get(attempt.asked.group_id)
                if group is not None and attempt.asked.group_id not in members:
                    members[attempt.asked.group_id or ""] = group.members.copy()
            for attempt in self.attempts:
                if attempt.wanted:
                    attempt.decide(self.live, members)
                    self._reserved += [(host_id, attempt.request.resources) for host_id in attempt.host_ids]
            if not looks or not any(attempt.lacks_room for attempt in self.attempts):
                return
            self.give_up()
            # What other batches of this process have reserved comes back if they lose.
            looks = looks - 1 if await self.live.reservations_ended() else 0
            await self.live.read_room(connection)

    def _check_expected(self) -> None:
        for attempt in self.attempts:
            expected = attempt.asked.expected
            if expected is not None and attempt.decision is not None and attempt.placed != expected:
                raise Overtaken(attempt.decision)

    # What is claimed

    def _asked(self) -> dict[str, object]:
        """The claim, as `roost_claim` takes it."""
        counted = sum((attempt.usage(attempt.made) for attempt in self.attempts), NOTHING)
        return {
            "project_id": self.project_id,
            "generation": self.live.generation,
            "seen": self.live.feed.seen,
            "missing": self.live.feed.missing,
            "shares": self._limits_to_check(),
            "counted": asdict(counted),
            "groups": [
                {"id": group_id, "version": version, "loose": group_id in self._loose}
                for group_id, version in self._versions.items()
            ],
            "hosts": self._hosts(),
            "servers": [row for attempt in self.attempts for row in attempt.rows()],
            "joined": list(self._members_added()),
            "notifications": self._notifications(),
        }

    def _hosts(self) -> list[dict[str, int]]:
        """What is wanted of each host."""
        wanted: dict[int, Counter[str]] = {}
        for host_id, resources in self._reserved:
            wanted.setdefault(host_id, Counter()).update({**resources._asdict(), "servers": 1})
        return [{"id": host_id, **amounts} for host_id, amounts in sorted(wanted.items())]

    def _limits_to_check(self) -> list[dict[str, Any]]:
        """Whose limits are to be kept to, and what they are; none where there is no limit."""
        named = self._references
        assert named is not None
        wanted: dict[str, Usage] = {}
        for attempt in self.attempts:
            for user_id in self._shares(named, attempt.asked.user_id):
                wanted[user_id] = wanted.get(user_id, NOTHING) + attempt.usage(attempt.wanted)
        checked = []
        for user_id, wants in wanted.items():
            limits = named.limits[self.project_id, user_id]
            if any(limits[name] >= 0 for name in _LIMITED):
                amounts = {f"{name}_wanted": getattr(wants, name) for name in _LIMITED}
                checked.append({"user_id": user_id, **amounts, **{f"{name}_limit": limits[name] for name in _LIMITED}})
        return checked

    def _members_added(self) -> Iterable[Joined]:
        """What the claim adds to each group."""
        places: dict[str, Counter[tuple[int, int | None]]] = {}
        users: dict[str, Counter[str]] = {}
        for attempt in self.attempts:
            group_id = attempt.asked.group_id
            if group_id is not None and attempt.wanted:
                places.setdefault(group_id, Counter()).update(attempt.placed)
                users.setdefault(group_id, Counter())[attempt.asked.user_id] += len(attempt.made)
        for group_id, version in self._versions.items():
            where = [(host_id, partition, servers) for (host_id, partition), servers in places[group_id].items()]
            yield group_id, version + 1, where, list(users[group_id].items())

    def _notifications(self) -> list[dict[str, object]]:
        written: list[dict[str, object]] = []
        for attempt in self.attempts:
            group = self.known.get(attempt.asked.group_id)
            if group is not None and group.shown is not None:
                for server_id in (new.id for new in attempt.made):
                    payload = groups.payload(replace(group.shown, members=(server_id,)))
                    written.append({"event_type": notifications.ADD_MEMBER, "payload": payload})
        return written
