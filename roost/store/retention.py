"""What is forgotten: actions, events and repairs that ended long ago, and notifications that will never be sent.

It goes in small batches, each its own transaction that skips what others hold, so nothing waits for it and any
number of engines may do it at once. Indexes by the end of things make a look that finds nothing cost next to nothing.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from prometheus_client import Counter as Metric

from roost.store.database import Database
from roost.store.tables.answers import repairs
from roost.store.tables.clusters import actions, events, unfinished
from roost.store.tables.history import happenings, samples
from roost.store.tables.servers import deleted_servers, outbox

PURGED = Metric("roost_purged_rows", "Rows that were forgotten because of their age, by table.", ["table"])

_BATCH = 500


async def purge(database: Database, days: int, *, notifications: bool) -> Counter[str]:
    """Forget what ended more than so many days ago; how many rows of which table.

    Notifications are only forgotten in deployments that no longer send any: elsewhere each one is sent, however
    late."""
    purged: Counter[str] = Counter()
    for table, forget in batches(datetime.now(UTC) - timedelta(days=days), notifications=notifications):
        gone = _BATCH
        while gone == _BATCH:
            async with database.begin() as connection:
                gone = (await connection.execute(forget)).rowcount
            purged[table] += gone
            PURGED.labels(table).inc(gone)
    return purged


def batches(before: datetime, *, notifications: bool) -> Iterator[tuple[str, sa.Delete]]:
    """For each table, what removes the oldest of its rows that ended before then."""
    # An action takes its steps with it, a repair its moves.
    top_level = sa.and_(actions.c.parent_id.is_(None), sa.not_(unfinished))
    yield _oldest(actions, actions.c.end_time, before, top_level)
    yield _oldest(events, events.c.timestamp, before)
    yield _oldest(happenings, happenings.c.at, before)
    yield _oldest(samples, samples.c.at, before)
    yield _oldest(repairs, repairs.c.updated_at, before, sa.text("status IN ('stopped', 'done', 'failed')"))
    yield _oldest(deleted_servers, deleted_servers.c.deleted_at, before)
    if notifications:
        yield _oldest(outbox, outbox.c.created_at, before)


def _oldest(
    table: sa.Table, ended: sa.Column[Any], before: datetime, *conditions: sa.ColumnElement[bool] | sa.TextClause
) -> tuple[str, sa.Delete]:
    key = sa.tuple_(*table.primary_key)
    batch = sa.select(*table.primary_key).where(ended < before, *conditions).order_by(ended).limit(_BATCH)
    return table.name, table.delete().where(key.in_(batch.with_for_update(skip_locked=True)))
