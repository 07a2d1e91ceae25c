"""Where servers go: decided on the fleet in memory, claimed in one transaction, and never against a hard rule.

Requests that arrive while a transaction is under way wait for the next one and are decided and claimed together
(`Batch`): the busier the process, the more of them share a commit. A server that moves is decided and claimed in the
transaction of whoever moves it (`relocation`).
"""

import asyncio
import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import prometheus_client
from sqlalchemy.exc import DBAPIError

from roost.compute.groups.group_cache import GroupCache
from roost.compute.inventory import claims
from roost.compute.inventory.live_fleet import LiveFleet
from roost.compute.scheduling.attempt import PendingRequest, SearchNeeded
from roost.compute.scheduling.batch import CreateBatch
from roost.compute.scheduling.request import CreatedServers, CreateRequest
from roost.config import Settings
from roost.placement.scheduler import place
from roost.store.database import Database

logger = logging.getLogger(__name__)

_LARGEST_BATCH = 64
_LONGEST_PAUSE = 0.2

PLACEMENTS = prometheus_client.Counter("roost_placements", "New servers, by whether they found a host.", ["outcome"])
LOST_RACES = prometheus_client.Counter("roost_lost_races", "Times that claims lost to another transaction.")
_PLACED, _REFUSED = PLACEMENTS.labels("placed"), PLACEMENTS.labels("refused")


@dataclass(slots=True)
class Scheduler:
    """Decides and claims for one process."""

    database: Database
    settings: Settings
    live: LiveFleet = field(default_factory=LiveFleet)
    groups: GroupCache = field(init=False)
    _pending: list[PendingRequest] = field(default_factory=list)
    _worker: "asyncio.Task[None] | None" = None
    _searches: "set[asyncio.Task[None]]" = field(default_factory=set)
    _one_search: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.groups = GroupCache(self.live)

    async def boot(self, boot: CreateRequest) -> CreatedServers:
        """Make the servers; those that find no host are made too, in ERROR, and say why."""
        future: asyncio.Future[CreatedServers] = asyncio.get_running_loop().create_future()
        self._enqueue(PendingRequest(boot, future))
        return await future

    def _enqueue(self, pending: PendingRequest) -> None:
        self._pending.append(pending)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._drain())

    async def boot_all(self, boots: Sequence[CreateRequest]) -> list[CreatedServers | BaseException]:
        """Several requests at once, each with its own outcome."""
        return list(await asyncio.gather(*(self.boot(boot) for boot in boots), return_exceptions=True))

    async def _drain(self) -> None:
        while self._pending:
            together, self._pending = self._pending[:_LARGEST_BATCH], self._pending[_LARGEST_BATCH:]
            # What must go as expected goes alone: whoever shares its transaction would share its failure.
            for planned in [each for each in together if each.boot.expected is not None]:
                together.remove(planned)
                await self._serve([planned])
            if together:
                await self._serve(together)

    async def _serve(self, together: list[PendingRequest]) -> None:
        """Carry out a batch. What fails as a whole is tried one by one, so that one request cannot fail the others."""
        try:
            done = await self._attempt(together)
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
        self.groups.remember(done.grown_groups())
        for made in done.attempts:
            _PLACED.inc(len(made.host_ids))
            _REFUSED.inc(len(made.made) - len(made.host_ids))
            made.answer()

    async def _search(self, needed: SearchNeeded) -> None:
        """Search in a thread, one request at a time, and let the request come again with what was found."""
        pending = needed.pending
        try:
            async with self._one_search:
                if not pending.answered:
                    pending.searched.append(await asyncio.to_thread(place, needed.fleet, needed.request))
        except Exception as error:
            pending.refuse(error)
            return
        self._enqueue(pending)

    async def _attempt(self, together: list[PendingRequest]) -> CreateBatch:
        for attempt in range(claims.ATTEMPTS):
            batch = CreateBatch(self.settings, self.live, self.groups)
            try:
                async with self.database.begin() as connection:
                    await batch.carry_out(connection, [each for each in together if not each.answered])
                return batch
            except BaseException as error:
                self.live.doubt(batch.taken)
                if not claims.lost_race(error) or attempt == claims.ATTEMPTS - 1:
                    raise
                LOST_RACES.inc()
                logger.info("a batch lost to another transaction and is tried again", extra={"attempt": attempt + 1})
                await asyncio.sleep(random.uniform(0, min(0.01 * attempt, _LONGEST_PAUSE)))
        raise AssertionError("unreachable")
