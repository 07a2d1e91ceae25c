"""Requests for new servers, shared out fairly and carried out side by side.

Each project has a queue. A batch is what one project has waiting, up to a quantum; projects take turns (deficit round
robin, counted in servers), several batches are under way at once, and no project has more than its share of them. So a
project that asks for much, or whose rows are locked elsewhere, holds up itself. Requests that arrive while their
project's batches are under way wait for the next one, and after a batch of a few the next gathers for a moment: the
busier the process, the more of them share a commit.

Of the API processes of a machine, one decides for all, while it can (`handover`): their batches are one queue.

A server that moves is decided and claimed in the transaction that moves it (`moves.relocation`).
"""

import asyncio
import logging
import random
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import prometheus_client
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from roost import traces
from roost.compute.groups import notifications
from roost.compute.groups.group_cache import GroupCache
from roost.compute.inventory import claims
from roost.compute.inventory.live_fleet import LiveFleet
from roost.compute.scheduling import handover
from roost.compute.scheduling.attempt import PendingRequest, SearchNeeded
from roost.compute.scheduling.batch import CreateBatch
from roost.compute.scheduling.handover import Handover
from roost.compute.scheduling.request import CreatedServers, CreateRequest
from roost.config import Settings
from roost.errors import RoostError, Unavailable
from roost.placement.decision import Decision, Request
from roost.placement.fleet import Fleet
from roost.placement.scheduler import place
from roost.store.database import Database, violated
from roost.store.tables.servers import servers
from roost.workers import WorkerPool

logger = logging.getLogger(__name__)

_BATCHES = 8
"""How many batches may be under way."""
_BATCHES_OF_A_PROJECT = 2
_WORTH_ANOTHER = 12
"""How many requests are worth a batch beside the one under way: fewer wait, and share the next."""
_QUANTUM = 64
"""How many servers a project may ask for in one turn."""
_ENOUGH, _GATHERING, _LONGEST_GATHERING = 12, 0.5, 0.015
"""After a batch of several requests, but not enough, how long the next one gathers: a part of the time that it took,
and the most."""
_LONGEST_PAUSE = 0.2
_IDLE_SECONDS = 1.0

PLACEMENTS = prometheus_client.Counter("roost_placements", "New servers, by whether they found a host.", ["outcome"])
LOST_RACES = prometheus_client.Counter("roost_lost_races", "Times that claims lost to another transaction.")
BATCHES = prometheus_client.Counter("roost_batches", "Batches of requests for new servers that were claimed.")
_PLACED, _REFUSED = PLACEMENTS.labels("placed"), PLACEMENTS.labels("refused")


@dataclass(slots=True)
class _Project:
    """What a project has waiting, and how many servers it may still ask for; negative after a large request."""

    waiting: deque[PendingRequest] = field(default_factory=deque)
    balance: int = 0


@dataclass(slots=True)
class Scheduler:
    """Decides and claims for one process."""

    database: Database
    settings: Settings
    live: LiveFleet = field(default_factory=LiveFleet)
    groups: GroupCache = field(init=False)
    _projects: dict[str, _Project] = field(default_factory=dict)
    """Those with requests that wait, the one whose turn it is first."""
    _under_way: set["asyncio.Task[None]"] = field(default_factory=set)
    _busy_projects: Counter[str] = field(default_factory=Counter)
    _busy_groups: set[str] = field(default_factory=set)
    _gathering: set[str] = field(default_factory=set)
    """Projects whose clients were just answered: what they ask next is about to arrive."""
    _searches: "set[asyncio.Task[None]]" = field(default_factory=set)
    handover: Handover = field(init=False)
    """Where requests go while another process of the machine decides."""
    workers: WorkerPool = field(init=False)
    """Where searches, explanations, plans and repairs are worked out, for the project that asks."""

    def __post_init__(self) -> None:
        self.groups = GroupCache(self.live, announces=notifications.wanted(self.settings))
        self.handover = Handover(self._decide_here)
        self.workers = WorkerPool(processes=self.settings.worker_processes, each=self.settings.project_questions)

    async def create(self, request: CreateRequest) -> CreatedServers:
        """Make the servers; those that find no host are made too, in ERROR, and say why."""
        if self.handover.takes_more:
            return await self._create_elsewhere(request)
        return await self._decide_here(request, traces.current())

    async def _create_elsewhere(self, request: CreateRequest) -> CreatedServers:
        """Hand the request over; without an answer, look what the other process made of it, and make it here."""
        outcome = await self.handover.hand_over(request)
        if outcome is None:
            outcome = await self._made(request)
        if outcome is None:
            try:
                return await self._decide_here(request, traces.current())
            except (RoostError, DBAPIError):
                # What the other process had begun may have come first, and taken the ids or the last of the room.
                outcome = await self._made(request)
                if outcome is None:
                    raise
        if isinstance(outcome, RoostError):
            raise outcome
        return outcome

    async def _made(self, request: CreateRequest) -> CreatedServers | None:
        """The servers that a request has led to, if it has: all of them are made in one transaction."""
        async with self.database.autocommit() as connection:
            wanted = servers.c.id.in_([new.id for new in request.servers])
            query = sa.select(servers.c.id, servers.c.reservation_id).where(wanted).order_by(servers.c.launch_index)
            rows = (await connection.execute(query)).all()
        return CreatedServers(tuple(row.id for row in rows), rows[0].reservation_id) if rows else None

    def _decide_here(self, request: CreateRequest, trace: str | None) -> "asyncio.Future[CreatedServers]":
        future: asyncio.Future[CreatedServers] = asyncio.get_running_loop().create_future()
        self._enqueue(PendingRequest(request, future, trace=trace))
        return future

    async def share(self) -> None:
        """Decide for the other processes of this machine, or have one of them decide; until cancelled."""
        await self.handover.share(handover.socket_name(self.settings, self.database.address))

    def _enqueue(self, pending: PendingRequest) -> None:
        self._projects.setdefault(pending.asked.project_id, _Project()).waiting.append(pending)
        # Soon, not now: what arrives together then shares a batch.
        asyncio.get_running_loop().call_soon(self._start_batches)

    async def create_all(self, requests: Sequence[CreateRequest]) -> list[CreatedServers | BaseException]:
        """Several requests at once, each with its own outcome."""
        return list(await asyncio.gather(*(self.create(request) for request in requests), return_exceptions=True))

    async def keep_current(self) -> None:
        """Take in what other processes claim, even while there is nothing to decide here; until cancelled."""
        while True:
            await asyncio.sleep(_IDLE_SECONDS)
            try:
                async with self.database.autocommit() as connection:
                    await self.live.follow(connection)
            except SQLAlchemyError as error:
                logger.warning("changes of hosts could not be read, trying again", extra={"error": str(error)})

    def _start_batches(self) -> None:
        while len(self._under_way) < _BATCHES:
            together = self._next()
            if not together:
                return
            task = asyncio.create_task(self._work(together))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    def _next(self) -> list[PendingRequest]:
        """The next batch: of the first project that has something to do and is not at its share."""
        owing = True
        while owing:
            owing = False
            for project_id in list(self._projects):
                if project_id in self._gathering:
                    continue
                under_way = self._busy_projects[project_id]
                few = len(self._projects[project_id].waiting) < _WORTH_ANOTHER
                if under_way >= _BATCHES_OF_A_PROJECT or (under_way and few):
                    continue
                project = self._projects.pop(project_id)
                project.balance = min(project.balance + _QUANTUM, _QUANTUM)
                together = self._take(project) if project.balance > 0 else []
                owing = owing or project.balance <= 0
                if project.waiting:
                    self._projects[project_id] = project  # at the end: the others come first
                if together:
                    return together
        return []

    def _take(self, project: _Project) -> list[PendingRequest]:
        """What a project may do in its turn. Requests for a group that is being worked on stay where they are."""
        together: list[PendingRequest] = []
        left: deque[PendingRequest] = deque()
        full = False
        for pending in project.waiting:
            # What must go as expected goes alone: the others in its batch would share its failure.
            alone = pending.asked.expected is not None
            full = full or project.balance <= 0 or (alone and bool(together))
            if pending.answered:
                continue
            if full or pending.asked.group_id in self._busy_groups:
                left.append(pending)
                continue
            together.append(pending)
            project.balance -= len(pending.asked.servers)
            full = alone
        project.waiting = left
        return together

    async def _work(self, together: list[PendingRequest]) -> None:
        project_id = together[0].asked.project_id
        groups = {each.asked.group_id for each in together if each.asked.group_id is not None}
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._busy_projects[project_id] += 1
        self._busy_groups |= groups
        try:
            with traces.span("scheduling", *(each.trace for each in together), requests=len(together)):
                await self._serve(together)
        finally:
            self._busy_projects[project_id] -= 1
            if not self._busy_projects[project_id]:
                del self._busy_projects[project_id]
            self._busy_groups -= groups
            took = loop.time() - began if 1 < len(together) < _ENOUGH else 0.0
            self._gathering.add(project_id)
            loop.call_later(min(took * _GATHERING, _LONGEST_GATHERING), self._gathered, project_id)

    def _gathered(self, project_id: str) -> None:
        self._gathering.discard(project_id)
        self._start_batches()

    async def _serve(self, together: list[PendingRequest]) -> None:
        """Carry out a batch. What fails as a whole is tried one by one, so that one request cannot fail the others."""
        try:
            batch = await self._carry_out(together)
        except SearchNeeded as needed:
            self._searches.add(search := asyncio.create_task(self._search(needed)))
            search.add_done_callback(self._searches.discard)
            if others := [pending for pending in together if pending is not needed.pending]:
                await self._serve(others)
            return
        except Exception as error:
            if len(together) > 1 and isinstance(error, DBAPIError) and not error.connection_invalidated:
                for pending in together:
                    await self._serve([pending])
                return
            for pending in together:
                pending.refuse(error)
            return
        BATCHES.inc()
        for made in batch.attempts:
            _PLACED.inc(len(made.host_ids))
            _REFUSED.inc(len(made.made) - len(made.host_ids))
            made.answer()

    async def _search(self, needed: SearchNeeded) -> None:
        """Search in a separate process, and let the request come again with what was found."""
        pending = needed.pending
        try:
            if not pending.answered:
                found = await self.decide(pending.asked.project_id, needed.fleet, needed.request)
                pending.searched.append(found)
        except Exception as error:
            pending.refuse(error)
            return
        self._enqueue(pending)

    async def decide(self, owner: str, fleet: Fleet, request: Request) -> Decision:
        """Decide on a snapshot of the fleet, away from this process, on behalf of the project that asks."""
        decision = await self.workers.run(owner, _decide, fleet, request)
        return decision if decision else replace(decision, fleet=fleet)

    async def _carry_out(self, together: list[PendingRequest]) -> CreateBatch:
        """Decide and claim until the claim is won."""
        batch = CreateBatch(self.settings, self.live, self.groups, together)
        batch.must_queue = any(self.groups.is_contended(group_id) for group_id in batch.group_ids)
        for attempt in range(claims.ATTEMPTS):
            try:
                begin = self.database.begin if batch.must_queue else self.database.autocommit
                async with begin() as connection:
                    answer = await batch.attempt(connection)
            except BaseException as error:
                batch.give_up()
                # A server that a request names by its token was made meanwhile, unless by this very batch.
                made = isinstance(error, DBAPIError) and violated(error) == "uq_servers_client_token"
                if not claims.lost_race(error) and not (made and len(together) == 1):
                    raise
                batch.look_again()
                await asyncio.sleep(random.uniform(0, min(0.01 * attempt, _LONGEST_PAUSE)))
            else:
                if answer is None or answer.won:
                    if answer is not None:
                        batch.won(answer)
                    return batch
                batch.lost(answer)
            LOST_RACES.inc()
            logger.debug("a claim was lost and is decided again", extra={"attempt": attempt + 1})
        raise Unavailable("What was chosen was taken by others each time; try again.")


def _decide(fleet: Fleet, request: Request) -> Decision:
    """The decision without the fleet, which is known where it was asked for."""
    return replace(place(fleet, request), fleet=None)
