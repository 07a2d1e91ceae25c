"""One request for new servers on its way through a transaction: what it wants, what was decided, what is written."""

import asyncio
import json
import secrets
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.inventory.claims import Usage
from roost.compute.inventory.flavors import ServerFlavor
from roost.compute.inventory.live_fleet import LiveFleet
from roost.compute.scheduling import records
from roost.compute.scheduling.request import CreatedServers, CreateRequest, NewServer
from roost.compute.scheduling.steps import RUNNING, Transition
from roost.placement.decision import Decision, Refusal, Request
from roost.placement.fleet import Fleet, Members
from roost.placement.record import Record
from roost.placement.scheduler import place, still_holds

_SHORTAGES = frozenset(
    {Refusal.TOO_FEW_VCPUS, Refusal.TOO_LITTLE_MEMORY, Refusal.TOO_LITTLE_DISK, Refusal.TOO_SMALL_FOR_ALL}
)


_SEARCHES = 3
"""How often the exact search is asked for one request whose circumstances change meanwhile."""


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A request, and whoever waits for the answer; nobody, if they went away."""

    boot: CreateRequest
    future: "asyncio.Future[CreatedServers]"
    searched: list[Decision] = field(default_factory=list)
    """What the exact search found, each time that it was asked."""

    @property
    def answered(self) -> bool:
        """Whether there is an answer, or nobody waits for one any more."""
        return self.future.done()

    def answer(self, booted: CreatedServers) -> None:
        """Answer with the servers."""
        if not self.answered:
            self.future.set_result(booted)

    def refuse(self, error: Exception) -> None:
        """Answer with an error."""
        if not self.answered:
            self.future.set_exception(error)


class SearchNeeded(Exception):
    """A request cannot be decided in a moment. The search for it takes no part in any transaction: it is made on the
    fleet and members as they were, and what it finds is checked when it is claimed."""

    def __init__(self, pending: PendingRequest, fleet: Fleet, request: Request) -> None:
        super().__init__("the request needs the exact search")
        self.pending = pending
        self.fleet = fleet
        self.request = request


@dataclass(slots=True)
class Attempt:
    """A request, and what becomes of it."""

    pending: PendingRequest
    flavor: sa.Row[Any]
    wanted: tuple[NewServer, ...]
    existing: Mapping[str, str]
    """The servers that an earlier attempt has made, by their tokens."""
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
    def boot(self) -> CreateRequest:
        """What was asked for."""
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

    def usage(self, servers: Sequence[NewServer]) -> Usage:
        """What so many of its servers count for in the project's quota."""
        count = len(servers)
        return Usage(count, count * self.flavor.vcpus, count * self.flavor.memory_mb)

    def decide(self, live: LiveFleet, fleet: Fleet, members: Mapping[str, Members]) -> None:
        """Choose hosts; `fleet` and `members` then show them as taken to those who come after."""
        present = members.get(self.boot.group_id or "", self.request.members)
        least = min(self.boot.least, len(self.wanted))
        request = replace(self.request, members=present, least=max(least, 1))
        decision = self._choose(fleet, request)
        self.decision, self.places = decision, decision.hosts
        self.host_ids = tuple(live.host(index).id for index in decision.hosts)
        self.records = records.records(decision, live, least)
        for index, partition in decision.placed():
            fleet.claim(index, request.resources)
            if self.boot.group_id is not None:
                present.add(index, partition=partition)

    def _choose(self, fleet: Fleet, request: Request) -> Decision:
        """Decide in a moment, or use what the exact search has found, if that still holds. Raises `SearchNeeded`."""
        quick = place(fleet, replace(request, budget=0))
        if not quick.cut_short:
            return quick
        searched = self.pending.searched
        if searched and still_holds(fleet, searched[-1], request.members):
            return searched[-1]
        # A refusal is believed once it was found twice: the first time, the room may not have been read again.
        if len(searched) == _SEARCHES or (len(searched) > 1 and not searched[-1]):
            return quick if quick else searched[-1]
        raise SearchNeeded(self.pending, fleet, request)

    def rows(self) -> Iterator[dict[str, Any]]:
        """The servers as they are written, each under a new id."""
        self.ids = tuple(str(uuid.uuid4()) for _ in self.made)
        places = self.placed or ((None, self.partition),) * len(self.made)
        for number, (host_id, partition) in enumerate(places):
            yield self._row(number, host_id, partition)

    def _row(self, number: int, host_id: int | None, partition: int | None) -> dict[str, Any]:
        boot, new, server_id, decision = self.boot, self.made[number], self.ids[number], self.decision
        assert decision is not None
        return {
            "id": server_id,
            "project_id": boot.project_id,
            "user_id": boot.user_id,
            "name": new.name,
            "hostname": new.hostname or _hostname(new.name, server_id),
            "description": boot.description,
            "flavor": ServerFlavor.of(self.flavor).to_json(),
            "image_id": boot.image_id,
            "key_name": boot.key_name,
            "user_data": boot.user_data,
            "config_drive": boot.config_drive,
            "metadata": dict(new.metadata),
            "tags": list(boot.tags),
            "addresses": dict(new.addresses),
            "hints": dict(boot.hints),
            "zone": boot.zone,
            "reservation_id": self.reservation_id,
            "launch_index": number,
            "host_id": host_id,
            "group_id": boot.group_id,
            "partition": partition,
            "client_token": new.token,
            "request_id": boot.request_id,
            "step": None if host_id is None else _booting(host_id).to_json(),
            "fault": None if host_id is not None else f"No valid host was found. {records.sentence(decision)}",
            "explanation": self.records[number],
        }

    def answer(self) -> None:
        """Tell who asked, once the transaction is committed, which servers there are."""
        new = iter(self.ids)
        ids = (self.existing.get(each.token or "") or next(new, None) for each in self.boot.servers)
        self.pending.answer(CreatedServers(tuple(filter(None, ids)), self.reservation_id))


async def insert(connection: AsyncConnection, rows: Sequence[dict[str, Any]]) -> None:
    """Write the rows of new servers in one statement, each with its first action in its history."""
    await connection.execute(_INSERT, {"rows": json.dumps(rows)})


def _booting(host_id: int) -> Transition:
    message = "The boot failed, as the topology's failure_rate asks."
    failed = Transition("error", fault=message, host_id=None, release=(host_id,))
    return Transition("active", RUNNING, launches=True, undo=failed)


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
