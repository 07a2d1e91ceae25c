"""Connections to PostgreSQL: pools, short transactions with deadlines, and a listener for changes."""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

import prometheus_client
import psycopg
import sqlalchemy as sa
from psycopg.abc import PQGen
from psycopg.errors import Diagnostic
from psycopg.types.string import TextLoader
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from roost import traces
from roost.store.addresses import KEEPALIVES, Address

logger = logging.getLogger(__name__)

STATEMENTS = prometheus_client.Counter("roost_statements", "Statements that were sent to PostgreSQL.")

T = TypeVar("T")

Connection: TypeAlias = AsyncConnection
"""What statements are run on."""

_POOL_SECONDS = 5.0
"""How long to wait for a connection that others use."""
_ANSWER_SECONDS = 2.0
"""Beyond the server's own limit on a statement: a server that has not answered by then is considered broken."""
_CANCEL_SECONDS = 1.0
_ROWS_AT_A_TIME = 15
_LISTENING_SECONDS = 5.0
"""How often a listener asks whether its server is still there, and may be written to."""

# A serialization failure or a deadlock: nothing was done, and the same again may well succeed.
_TRY_AGAIN = {"40001", "40P01"}
# Timeouts of idle sessions and of transactions, and a server that has become a standby: psycopg has them as internal
# errors, and they too are over in a moment.
_UNAVAILABLE = {"25P03", "25P04", "25006", "57P05"}


@dataclass(frozen=True, slots=True)
class Limits:
    """How long the server lets one kind of work take, in seconds, before it ends it."""

    statement: float = 15
    lock: float = 10
    """Waiting for a lock."""
    idle: float = 4
    """Silence in the middle of a transaction, after which the session is ended."""


class GuardedConnection(psycopg.AsyncConnection[Any]):
    """A connection that gives up on a server that does not answer, and reports a commit that was not replicated as
    failed."""

    answer_seconds: float | None = None
    _unreplicated = False
    _cancelled = False
    _doubt: asyncio.TimerHandle | None = None

    async def wait(self, gen: PQGen[T], *arguments: Any, **named: Any) -> T:
        """Wait for an answer, no longer than `answer_seconds`."""
        patience = self.answer_seconds
        timer = asyncio.get_running_loop().call_later(patience, self.abandon) if patience else None
        try:
            result = await super().wait(gen, *arguments, **named)
        except psycopg.OperationalError:
            if self._cancelled:
                raise asyncio.CancelledError from None
            raise
        except psycopg.InternalError as error:
            # Not an error of the server: what it sent when it went away makes no sense. A commit may have happened.
            if error.sqlstate is None:
                raise psycopg.OperationalError(str(error)) from error
            raise
        finally:
            for each in (timer, self._doubt):
                if each is not None:
                    each.cancel()
            self._cancelled, self._doubt = False, None
        if self._unreplicated:
            self._unreplicated = False
            raise psycopg.OperationalError("the transaction is committed here, but may not be on the standby")
        return result

    async def cancel_safe(self, *, timeout: float = 30.0) -> None:
        """Cancel what the server is doing; give up on a server that does not even accept that, or does not hear it: it
        ignores what comes before the statement does. It ends a statement soon after its client has gone."""
        self._cancelled = True
        try:
            await super().cancel_safe(timeout=min(timeout, _CANCEL_SECONDS))
        except Exception:
            self.abandon()
            raise
        self._doubt = asyncio.get_running_loop().call_later(_CANCEL_SECONDS, self.abandon)

    def abandon(self) -> None:
        """End the connection from this side. A task that waits for an answer gets an error."""
        with suppress(OSError, psycopg.OperationalError), socket.socket(fileno=os.dup(self.pgconn.socket)) as own:
            own.shutdown(socket.SHUT_RDWR)

    def notice(self, diagnostic: Diagnostic) -> None:
        """PostgreSQL ends an interrupted wait for a standby with a warning only, as if it had succeeded."""
        if diagnostic.source_function == "SyncRepWaitForLSN":
            self._unreplicated = True


class PatientCursor(psycopg.AsyncCursor[Any]):
    """Reads the rows of a long answer piece by piece, and lets others be served in between."""

    async def fetchall(self) -> list[Any]:
        """All rows that are left."""
        rows: list[Any] = []
        while piece := await self.fetchmany(_ROWS_AT_A_TIME):
            rows += piece
            if len(piece) < _ROWS_AT_A_TIME:
                break
            await asyncio.sleep(0)
        return rows


class Database:
    """A pool of connections to one PostgreSQL database, for one kind of work."""

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 10,
        max_overflow: int = 20,
        limits: Limits | None = None,
        name: str = "roost",
        session_url: str | None = None,
    ) -> None:
        """With a `session_url`, sessions of `url` may be shared by a pooler: then nothing outlives a transaction on
        them, and what needs its own session has it there."""
        self.address = Address.parse(url)
        self.session_address = Address.parse(session_url or url)
        self._shared = session_url is not None
        self.limits = limits or Limits()
        self._name = name
        self._engine = create_async_engine(
            "postgresql+psycopg://",
            pool_size=pool_size,
            max_overflow=max_overflow,
            pool_pre_ping=False,
            pool_recycle=1800,
            pool_timeout=_POOL_SECONDS,
            pool_use_lifo=True,
            # What a statement was given may be a secret, and an error goes into the log.
            hide_parameters=True,
            connect_args={"async_creator_fn": self._connect, **self.address.connecting(application_name(name, "pool"))},
        )
        self._autocommit = self._engine.execution_options(isolation_level="AUTOCOMMIT")
        sa.event.listen(self._engine.sync_engine, "before_cursor_execute", _count)

    def like(self, limits: Limits, *, pool_size: int) -> "Database":
        """The same database, for another kind of work."""
        session_url = self.session_address.conninfo() if self._shared else None
        url = self.address.conninfo()
        return Database(
            url, pool_size=pool_size, max_overflow=0, limits=limits, name=self._name, session_url=session_url
        )

    async def _connect(self, conninfo: str, **how: Any) -> GuardedConnection:
        """Connect as SQLAlchemy wants it, with the limits of this kind of work."""
        connection = await GuardedConnection.connect(
            conninfo, autocommit=True, prepare_threshold=None if self._shared else 5, **how
        )
        try:
            connection.answer_seconds = self.limits.statement + _ANSWER_SECONDS
            connection.add_notice_handler(connection.notice)
            connection.cursor_factory = PatientCursor
            # Ids are texts everywhere: to make objects of them first takes as long as to read the row.
            connection.adapters.register_loader("uuid", TextLoader)
            if not self._shared:
                await connection.execute(_settings(self.limits, connection.info.server_version))
            await connection.set_autocommit(False)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def open(self, role: str) -> GuardedConnection:
        """A session outside the pool, on which each statement is a transaction."""
        how = self.session_address.connecting(application_name(self._name, role))
        connection = await GuardedConnection.connect(autocommit=True, **how)
        connection.answer_seconds = 2 * _LISTENING_SECONDS
        return connection

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncConnection]:
        """A transaction: committed at the end of the block, rolled back if it raises."""
        with traces.part("transaction"):
            async with self._engine.begin() as connection:
                if self._shared:
                    await connection.exec_driver_sql(_timeouts(self.limits, "SET LOCAL"))
                yield connection

    @asynccontextmanager
    async def autocommit(self) -> AsyncIterator[AsyncConnection]:
        """A connection on which each statement is a transaction: committed, in the same round trip, when it ends. To
        read, it sees as much as a transaction does, since that is READ COMMITTED, in two round trips fewer."""
        # The limits on a shared session hold for a transaction: there, all of the statements are one.
        with nullcontext() if self._shared else traces.part("transaction"):
            async with self.begin() if self._shared else self._autocommit.connect() as connection:
                yield connection

    @property
    def connections_in_use(self) -> int:
        """How many connections of the pool are in use."""
        pool = self._engine.pool
        assert isinstance(pool, sa.QueuePool)
        return pool.checkedout()

    async def listen(self, channel: str, received: Callable[[str], Awaitable[None]]) -> None:
        """Call `received` with each payload notified on `channel`; with '' after each (re)connection, since
        notifications sent in between are lost and the caller must assume that anything changed."""
        while True:
            try:
                async with await self.open(f"listen {channel}") as listener:
                    await self._hear(listener, channel, received)
            except psycopg.Error as error:
                logger.warning(
                    "lost the connection that listens for changes, trying again", extra={"error": str(error)}
                )
                await asyncio.sleep(1)

    async def _hear(
        self, listener: GuardedConnection, channel: str, received: Callable[[str], Awaitable[None]]
    ) -> None:
        await listener.execute(f'LISTEN "{channel}"')
        await received("")
        while True:
            async for notification in listener.notifies(timeout=_LISTENING_SECONDS):
                await received(notification.payload)
            # A server that hangs, or became a standby, keeps the connection open and sends nothing.
            (standby,) = await (await listener.execute("SELECT pg_is_in_recovery()")).fetchone() or (True,)
            if standby:
                raise psycopg.OperationalError("the server has become a standby")

    async def close(self) -> None:
        """Close all connections."""
        await self._engine.dispose()


def application_name(process: str, role: str) -> str:
    """How a connection shows in pg_stat_activity: which process, on which host, and for what."""
    return f"{process}@{socket.gethostname()[:24]}:{os.getpid()} {role}"[:63]


def _timeouts(limits: Limits, how: str) -> str:
    """Have PostgreSQL end what takes too long."""
    seconds = {
        "statement_timeout": limits.statement,
        "lock_timeout": limits.lock,
        "idle_in_transaction_session_timeout": limits.idle,
    }
    return "; ".join(f"{how} {name} = {round(value * 1000)}" for name, value in seconds.items())


def _settings(limits: Limits, server_version: int) -> str:
    """Have PostgreSQL end what takes too long, and the session if its peer is gone."""
    peer: dict[str, Any] = {
        name if name.startswith("tcp") else f"tcp_{name}": value for name, value in KEEPALIVES.items()
    }
    if server_version >= 140000:
        peer["client_connection_check_interval"] = 2000
    return "; ".join([_timeouts(limits, "SET"), *(f"SET {name} = {value}" for name, value in peer.items())])


def _count(*_: object) -> None:
    STATEMENTS.inc()


async def patient(connection: AsyncConnection) -> None:
    """Let this transaction be silent for longer: it waits for something outside, and holds nothing that others need."""
    await connection.execute(sa.text("SET LOCAL idle_in_transaction_session_timeout = '60s'"))


async def briefly(connection: AsyncConnection) -> None:
    """Have PostgreSQL end the statements of this transaction soon: how long they take is for a client to say."""
    await connection.execute(sa.text("SET LOCAL statement_timeout = '3s'"))


# It takes the same path as a write, including the standby that a commit waits for, and leaves no row behind.
_WRITE = sa.text(
    "SELECT current_setting('transaction_read_only') = 'off', pg_logical_emit_message(true, 'roost.readiness', '')"
)


async def can_write(connection: AsyncConnection) -> bool:
    """Check that a write goes through; raises what a failing write would raise."""
    return bool(await connection.scalar(_WRITE))


async def now(connection: AsyncConnection) -> datetime:
    """The time by the database's clock, which all processes share: those of machines differ and are changed."""
    moment: datetime = (await connection.execute(sa.select(sa.func.clock_timestamp()))).scalar_one()
    return moment


async def notify(connection: AsyncConnection, *messages: tuple[str, str]) -> None:
    """Send each (channel, payload) to every process that listens, when and only when this transaction commits."""
    if messages:
        await connection.execute(sa.select(*(sa.func.pg_notify(channel, payload) for channel, payload in messages)))


def violated(error: DBAPIError) -> str | None:
    """The name of the constraint that a statement violated, if that is what happened."""
    cause = error.orig
    return cause.diag.constraint_name if isinstance(cause, psycopg.errors.IntegrityError) else None


def worth_retrying(error: DBAPIError) -> bool:
    """Whether the transaction lost to another one; a retry may succeed."""
    return isinstance(error.orig, psycopg.Error) and error.orig.sqlstate in _TRY_AGAIN


def is_unavailable(error: BaseException) -> bool:
    """Whether the database does not answer, or not in time, and the same request may succeed in a moment."""
    if isinstance(error, (OperationalError, InterfaceError, PoolTimeout, psycopg.OperationalError)):
        return True
    cause = error.orig if isinstance(error, DBAPIError) else error
    return isinstance(cause, psycopg.Error) and cause.sqlstate in _UNAVAILABLE
