"""Connections to PostgreSQL: one pool a process, short transactions, and a listener for changes."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import prometheus_client
import psycopg
import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

logger = logging.getLogger(__name__)

STATEMENTS = prometheus_client.Counter("roost_statements", "Statements that were sent to PostgreSQL.")

_CONNECT_SECONDS = 5
_POOL_SECONDS = 5.0
"""For a connection that others use; who waits longer is told to come again."""
_IDLE_SECONDS = 4
"""How long a session may be silent in a transaction: a process that is frozen holds up others no longer than that."""
# A peer that has vanished without a word is noticed within half a minute: ours by us, and we by PostgreSQL, which lets
# go of what a session held that says nothing in the middle of a transaction.
_KEEPALIVES = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 30_000}

# A serialization failure or a deadlock: nothing was done, and the same again may well succeed.
_TRY_AGAIN = {"40001", "40P01"}

CONNECTING: dict[str, Any] = {"connect_timeout": _CONNECT_SECONDS, **_KEEPALIVES}
"""How every connection is made, also by those that are not in the pool."""


class Database:
    """A pool of connections to one PostgreSQL database."""

    def __init__(self, url: str, *, pool_size: int = 10, max_overflow: int = 20) -> None:
        self.url = make_url(url).set(drivername="postgresql+psycopg")
        self._engine = create_async_engine(
            self.url,
            pool_size=pool_size,
            max_overflow=max_overflow,
            pool_pre_ping=False,
            pool_recycle=1800,
            pool_timeout=_POOL_SECONDS,
            # What a statement was given may be a secret, and an error goes into the log.
            hide_parameters=True,
            connect_args=CONNECTING,
        )
        self._autocommit = self._engine.execution_options(isolation_level="AUTOCOMMIT")
        sa.event.listen(self._engine.sync_engine, "connect", _prepare)
        sa.event.listen(self._engine.sync_engine, "before_cursor_execute", _count)

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncConnection]:
        """A transaction: committed at the end of the block, rolled back if it raises."""
        async with self._engine.begin() as connection:
            yield connection

    @asynccontextmanager
    async def autocommit(self) -> AsyncIterator[AsyncConnection]:
        """A connection on which each statement is a transaction: committed, in the same round trip, when it ends."""
        async with self._autocommit.connect() as connection:
            yield connection

    @property
    def connections_in_use(self) -> int:
        """How many connections of the pool are out at this moment."""
        pool = self._engine.pool
        assert isinstance(pool, sa.QueuePool)
        return pool.checkedout()

    async def listen(self, channel: str, received: Callable[[str], Awaitable[None]]) -> None:
        """Call `received` with each payload notified on `channel`; with '' after each (re)connection, since
        notifications sent while nobody listened are lost and the caller must assume that anything changed."""
        dsn = self.url.set(drivername="postgresql").render_as_string(hide_password=False)
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(dsn, autocommit=True, **CONNECTING) as connection:
                    await connection.execute(f'LISTEN "{channel}"')
                    await received("")
                    async for notification in connection.notifies():
                        await received(notification.payload)
            except psycopg.OperationalError as error:
                logger.warning(
                    "lost the connection that listens for changes, trying again", extra={"error": str(error)}
                )
                await asyncio.sleep(1)

    async def close(self) -> None:
        """Close all connections."""
        await self._engine.dispose()


def _prepare(connection: Any, record: object) -> None:
    """Have PostgreSQL end this session if it stays silent in a transaction, or its peer is gone."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SET idle_in_transaction_session_timeout = '{_IDLE_SECONDS}s'; SET tcp_keepalives_idle = 10; "
            "SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3; SET tcp_user_timeout = 30000"
        )
    connection.commit()


def _count(*_: object) -> None:
    STATEMENTS.inc()


async def patient(connection: AsyncConnection) -> None:
    """Let this transaction be silent for longer: it waits for something outside, and holds nothing that others need."""
    await connection.execute(sa.text("SET LOCAL idle_in_transaction_session_timeout = '60s'"))


async def now(connection: AsyncConnection) -> datetime:
    """What time it is. Clocks of machines differ and are set; this is the one that all processes share."""
    moment: datetime = (await connection.execute(sa.select(sa.func.clock_timestamp()))).scalar_one()
    return moment


async def notify(connection: AsyncConnection, *messages: tuple[str, str]) -> None:
    """Send each (channel, payload) to every process that listens, when and only when this transaction commits."""
    if messages:
        await connection.execute(sa.select(*(sa.func.pg_notify(channel, payload) for channel, payload in messages)))


def violated(error: DBAPIError) -> str | None:
    """The name of the constraint that the database refused to break, if that is what happened."""
    cause = error.orig
    return cause.diag.constraint_name if isinstance(cause, psycopg.errors.IntegrityError) else None


def worth_retrying(error: DBAPIError) -> bool:
    """Whether the transaction lost to another one, so that the same again may succeed."""
    return isinstance(error.orig, psycopg.Error) and error.orig.sqlstate in _TRY_AGAIN
