"""One request for new servers on its way to a claim: what it wants, what was decided, what is written."""

import asyncio
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from roost import traces
from roost.compute.inventory.claims import Usage
from roost.compute.inventory.flavors import Flavor, ServerFlavor
from roost.compute.inventory.live_fleet import LiveFleet
from roost.compute.scheduling import records
from roost.compute.scheduling.request import CreatedServers, CreateRequest, NewServer
from roost.compute.scheduling.steps import RUNNING, Transition
from roost.placement.decision import Decision, Refusal, Request
from roost.placement.fleet import Fleet, Members
from roost.placement.holding import still_holds
from roost.placement.record import Record
from roost.placement.scheduler import place

_SHORTAGES = frozenset(
    {Refusal.TOO_FEW_VCPUS, Refusal.TOO_LITTLE_MEMORY, Refusal.TOO_LITTLE_DISK, Refusal.TOO_SMALL_FOR_ALL}
)


_SEARCHES = 3
"""How often the exact search is asked for one request whose circumstances change meanwhile."""


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A request, and the caller that waits for its answer, unless it went away."""

    asked: CreateRequest
    future: "asyncio.Future[CreatedServers]"
    searched: list[Decision] = field(default_factory=list)
    """What the exact search found, each time that it was asked."""
    trace: str | None = field(default_factory=traces.current)

    @property
    def answered(self) -> bool:
        """Whether there is an answer, or the caller went away."""
        return self.future.done()

    def answer(self, created: CreatedServers) -> None:
        """Answer with the servers."""
        if not self.answered:
            self.future.set_result(created)

    def refuse(self, error: Exception) -> None:
        """Answer with an error."""
        if not self.answered:
            self.future.set_exception(error)


class SearchNeeded(Exception):
    """A request cannot be decided in a moment. The search for it runs outside any transaction, on the fleet and members
    as they were, and what it finds is checked when it is claimed."""

    def __init__(self, pending: PendingRequest, fleet: Fleet, request: Request) -> None:
        super().__init__("the request needs the exact search")
        self.pending = pending
        self.fleet = fleet
        self.request = request


@dataclass(slots=True)
class Attempt:
    """A request, and what becomes of it."""

    pending: PendingRequest
    flavor: Flavor
    wanted: tuple[NewServer, ...]
    existing: Mapping[str, str]
    """The servers that an earlier attempt has made, by their tokens."""
    request: Request
    partition: int | None = None
    """The partition asked for."""
    host_ids: tuple[int, ...] = ()
    records: list[Record] = field(default_factory=list)
    """What each server keeps of the decision."""
    decision: Decision | None = None
    reservation_id: str = field(default_factory=lambda: f"r-{secrets.token_hex(4)}")

    @property
    def asked(self) -> CreateRequest:
        """What was asked for."""
        return self.pending.asked

    @property
    def made(self) -> tuple[NewServer, ...]:
        """Those of the wanted servers that are made: as many as found a place; if that is none, the least to fail."""
        return self.wanted[: len(self.host_ids) or self.asked.least]

    @property
    def placed(self) -> tuple[tuple[int, int | None], ...]:
        """The host of each server that found one, and its partition in a divided group."""
        partitions = (self.decision.partitions if self.decision else ()) or (None,) * len(self.host_ids)
        return tuple(zip(self.host_ids, partitions, strict=True))

    @property
    def lacks_room(self) -> bool:
        """Whether more room somewhere might have led to another decision."""
        decision = self.decision
        if decision is None or len(self.host_ids) == len(self.wanted):
            return False
        return decision.candidates > 0 or any(refused.reason in _SHORTAGES for refused in decision.refused)

    def usage(self, servers: Sequence[NewServer]) -> Usage:
        """What so many of its servers count for in the project's quota."""
        count = len(servers)
        return Usage(count, count * self.flavor.vcpus, count * self.flavor.memory_mb)

    def decide(self, live: LiveFleet, members: Mapping[str, Members]) -> None:
        """Choose hosts, and reserve them; `members` then show the new ones to the requests that come after."""
        present = members.get(self.asked.group_id or "", self.request.members)
        least = min(self.asked.least, len(self.wanted))
        request = replace(self.request, members=present, least=max(least, 1))
        decision = self.decision = self._choose(live.fleet, request)
        self.host_ids = tuple(live.host(index).id for index in decision.hosts)
        self.records = records.records(decision, live, least)
        for host_id in self.host_ids:
            live.reserve(host_id, request.resources)
        if self.asked.group_id is not None:
            for index, partition in decision.placed():
                present.add(index, partition=partition)

    def _choose(self, fleet: Fleet, request: Request) -> Decision:
        """Decide in a moment, or use what the exact search has found, if that still holds. Raises `SearchNeeded`."""
        with traces.part("decision", servers=request.count):
            quick = place(fleet, replace(request, budget=0))
        if not quick.cut_short:
            return quick
        searched = self.pending.searched
        if searched and still_holds(fleet, searched[-1], request.members):
            return searched[-1]
        # A refusal counts only when it was found twice: the first time, the room may not have been read again.
        if len(searched) == _SEARCHES or (len(searched) > 1 and not searched[-1]):
            return quick if quick else searched[-1]
        raise SearchNeeded(self.pending, fleet.snapshot(), request)

    def rows(self) -> Iterator[dict[str, object]]:
        """The servers as they are written."""
        places = self.placed or ((None, self.partition),) * len(self.made)
        flavor = ServerFlavor.of(self.flavor).to_json()
        for number, (host_id, partition) in enumerate(places):
            yield {**self._row(number, host_id, partition), "flavor": flavor}

    def _row(self, number: int, host_id: int | None, partition: int | None) -> dict[str, object]:
        asked, new, decision = self.asked, self.made[number], self.decision
        assert decision is not None
        return {
            "id": new.id,
            "user_id": asked.user_id,
            "name": new.name,
            "hostname": new.hostname or _hostname(new.name, new.id),
            "description": asked.description,
            "image_id": asked.image_id,
            "key_name": asked.key_name,
            "user_data": asked.user_data,
            "config_drive": asked.config_drive,
            "metadata": dict(new.metadata),
            "tags": list(asked.tags),
            "addresses": dict(new.addresses),
            "hints": dict(asked.hints),
            "zone": asked.zone,
            "reservation_id": self.reservation_id,
            "launch_index": number,
            "host_id": host_id,
            "group_id": asked.group_id,
            "partition": partition,
            "client_token": new.token,
            "request_id": asked.request_id,
            "step": None if host_id is None else _booting(host_id).to_json(),
            "fault": None if host_id is not None else f"No valid host was found. {records.sentence(decision)}",
            "explanation": self.records[number],
        }

    def answer(self) -> None:
        """Answer with the servers that there are, once they are committed."""
        new = (each.id for each in self.made)
        ids = (self.existing.get(each.token or "") or next(new, None) for each in self.asked.servers)
        self.pending.answer(CreatedServers(tuple(filter(None, ids)), self.reservation_id))


def _booting(host_id: int) -> Transition:
    message = "The boot failed, as the topology's failure_rate asks."
    failed = Transition("error", fault=message, host_id=None, release=(host_id,))
    return Transition("active", RUNNING, launches=True, undo=failed)


def _hostname(name: str, server_id: str) -> str:
    """A valid host name for the guest: made from the server's name where its letters allow it, else from its id."""
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name.lower())
    return plain.strip("-")[:63].strip("-") or f"server-{server_id}"
