"""How engines share the actions that wait: the table of actions is the queue.

An action is due when it is the oldest of its lock and is ready, has waited long enough, or belonged to an engine that
gives no sign of life. An engine claims as many as it has room for, in one statement, and no project can take all of its
room: a project may begin another action only while it holds fewer than are still free.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from prometheus_client import Counter as Metric
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.clusters import events
from roost.clusters.actions.work import ActionRow, Engine, Work
from roost.clusters.states import ActionStatus
from roost.clusters.stored import MalformedData
from roost.store.tables.clusters import UNFINISHED, actions

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.1
_STOP_SECONDS = 10.0
_TRIES = 3

UNEXPECTED = Metric("roost_actions_unexpected", "Attempts at actions that ended in an error of Roost itself.")

_UNFINISHED = "status IN (" + ", ".join(f"'{status}'" for status in UNFINISHED) + ")"
_OPEN = f"parent_id IS NULL AND {_UNFINISHED}"
"""As in the index that finds what is left to do."""

# `min` and `OFFSET 0` keep the planner from joining all that is unfinished: each candidate takes two look-ups.
_DUE = f"""
    (action.status = '{ActionStatus.READY}' AND coalesce(action.wake_at <= now(), true)
     OR action.status IN ('{ActionStatus.WAITING}', '{ActionStatus.WAITING_LIFECYCLE_COMPLETION}')
        AND action.wake_at <= now()
     OR action.status = '{ActionStatus.RUNNING}' AND (action.owner = :engine OR NOT EXISTS (
        SELECT 1 FROM services WHERE services.id = action.owner
        AND services.updated_at > now() - make_interval(secs => :dead_after))))
    AND action.id <> ALL(:in_hand)
    AND NOT coalesce((SELECT min(older.sequence) FROM actions AS older WHERE older.lock = action.lock
                      AND older.{_UNFINISHED}) < action.sequence, false)
    AND NOT EXISTS (SELECT 1 FROM actions AS step WHERE step.target = action.target AND step.parent_id <> action.id
                    AND step.{_UNFINISHED} OFFSET 0)
"""

_CANDIDATES = sa.text(
    f"""
    WITH RECURSIVE project (id) AS (
        (SELECT project_id FROM actions WHERE {_OPEN} ORDER BY project_id LIMIT 1)
        UNION ALL
        SELECT (SELECT project_id FROM actions WHERE {_OPEN} AND project_id > project.id ORDER BY project_id LIMIT 1)
        FROM project WHERE project.id IS NOT NULL
    )
    SELECT due.id, project.id AS project_id, due.sequence
    FROM project CROSS JOIN LATERAL (
        SELECT action.id, action.sequence FROM actions AS action
        WHERE action.{_OPEN.replace(" AND ", " AND action.")} AND action.project_id = project.id AND {_DUE}
        ORDER BY action.sequence LIMIT :free
    ) AS due
    ORDER BY due.sequence
    """
).bindparams(sa.bindparam("in_hand", type_=sa.ARRAY(sa.Text)))

_CLAIM = sa.text(
    f"""
    UPDATE actions SET attempt = attempt + 1, status = '{ActionStatus.RUNNING}', owner = :engine, wake_at = NULL,
        status_reason = 'The action is being processed.', start_time = coalesce(start_time, now()), updated_at = now()
    WHERE id IN (
        SELECT action.id FROM actions AS action WHERE action.id = ANY(:ids) AND {_DUE} FOR UPDATE SKIP LOCKED
    )
    RETURNING actions.*, extract(epoch FROM clock_timestamp() - start_time) AS since_start
    """
).bindparams(sa.bindparam("in_hand", type_=sa.ARRAY(sa.Text)), sa.bindparam("ids", type_=sa.ARRAY(sa.Text)))


@dataclass(frozen=True, slots=True)
class Candidate:
    """An action that is due."""

    id: str
    project_id: str


def shares(due: Sequence[Candidate], held: Mapping[str, int], free: int) -> list[str]:
    """Which of the actions that are due to begin, oldest first: the project that holds the fewest comes first, and one
    that holds as many as are still free waits."""
    waiting: dict[str, list[str]] = {}
    for candidate in due:
        waiting.setdefault(candidate.project_id, []).append(candidate.id)
    holds, chosen = Counter(held), list[str]()
    while waiting:
        project = min(waiting, key=lambda each: holds[each])
        if holds[project] >= free - len(chosen):
            break
        chosen.append(waiting[project].pop(0))
        holds[project] += 1
        if not waiting[project]:
            del waiting[project]
    return chosen


async def choose(connection: AsyncConnection, engine: Engine, in_hand: Mapping[str, str], free: int) -> list[str]:
    """The ids of actions that are due, as many as there is room for. `in_hand` has the projects of those under way, by
    id."""
    rows = await connection.execute(_CANDIDATES, {**_given(engine, in_hand), "free": free})
    return shares([Candidate(row.id, row.project_id) for row in rows], Counter(in_hand.values()), free)


async def claim(
    connection: AsyncConnection, engine: Engine, in_hand: Mapping[str, str], ids: Sequence[str]
) -> tuple[list[Work], list[tuple[str, str]]]:
    """Take up those of these actions that are still due. Also the ids of actions whose rows cannot be read, and why."""
    works, unreadable = [], []
    for row in (await connection.execute(_CLAIM, {**_given(engine, in_hand), "ids": ids})).mappings():
        try:
            columns = ActionRow(*(row[name] for name in ActionRow._fields))
            works.append(Work.of(engine, columns, float(row["since_start"])))
        except (MalformedData, ValueError) as error:
            unreadable.append((row["id"], str(error)))
    await events.record(connection, [work.event("start") for work in works if work.attempt == 1])
    return works, unreadable


def _given(engine: Engine, in_hand: Mapping[str, str]) -> dict[str, Any]:
    return {"engine": engine.id, "in_hand": list(in_hand), "dead_after": engine.settings.dead_after}


async def fail(connection: AsyncConnection, action_id: str, reason: str) -> None:
    """End an action that cannot be carried on, with nothing but its status and the reason."""
    values = {"status": ActionStatus.FAILED, "status_reason": reason, "end_time": sa.func.clock_timestamp()}
    mine = sa.or_(actions.c.id == action_id, actions.c.parent_id == action_id)
    unended = mine & actions.c.status.in_(UNFINISHED)
    await connection.execute(actions.update().where(unended).values(**values, owner=None, control=None, wake_at=None))


class Worker:
    """Claims actions and carries them out, several at a time, until it is cancelled."""

    def __init__(self, engine: Engine, carry_out: Callable[[Work], Awaitable[None]]) -> None:
        self._engine = engine
        self._carry_out = carry_out
        self._in_hand: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._errors: Counter[str] = Counter()

    @property
    def in_hand(self) -> Collection[str]:
        """The ids of the actions that are under way."""
        return self._in_hand.keys()

    async def run(self) -> None:
        """Work until cancelled; then what is under way gets a few seconds to end."""
        try:
            while True:
                self._changed.clear()
                try:
                    more = await self._begin()
                except SQLAlchemyError as error:
                    logger.warning("could not look for actions, trying again", extra={"error": str(error)})
                    more = False
                if not more:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_POLL_SECONDS):
                            await self._changed.wait()
        finally:
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=_STOP_SECONDS)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _begin(self) -> bool:
        """Begin what there is room for; whether that was anything."""
        free = self._engine.settings.concurrency - len(self._in_hand)
        if free <= 0:
            return False
        # Mostly nothing is due: to find that out takes one round trip.
        async with self._engine.database.autocommit() as connection:
            ids = await choose(connection, self._engine, self._in_hand, free)
        if not ids:
            return False
        async with self._engine.database.begin() as connection:
            works, unreadable = await claim(connection, self._engine, self._in_hand, ids)
            for action_id, reason in unreadable:
                logger.error("an action cannot be read", extra={"action": action_id, "reason": reason})
                await fail(connection, action_id, f"The action cannot be carried on: {reason}")
        for work in works:
            self._in_hand[work.id] = work.owner.project_id
            task = asyncio.create_task(self._work_on(work))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return bool(works)

    async def _work_on(self, work: Work) -> None:
        try:
            await self._carry_out(work)
            self._errors.pop(work.id, None)
        except OperationalError as error:
            # The database is gone, or another transaction won: the rows say what is left to do.
            logger.warning("an action is interrupted", extra={"action": work.id, "error": str(error)})
        except Exception as error:
            await self._unexpected(work, error)
        finally:
            del self._in_hand[work.id]
            self._changed.set()

    async def _unexpected(self, work: Work, error: Exception) -> None:
        """An error that the action did not foresee ends it after a few tries."""
        UNEXPECTED.inc()
        self._errors[work.id] += 1
        logger.exception("an action failed unexpectedly", extra={"action": work.id})
        if self._errors[work.id] < _TRIES:
            await asyncio.sleep(_POLL_SECONDS)
            return
        del self._errors[work.id]
        reason = f"{work.label} failed unexpectedly: {type(error).__name__}: {error}"
        try:
            async with work.write() as connection:
                await fail(connection, work.id, reason)
        except Exception:
            logger.exception("an action could not be ended", extra={"action": work.id})
