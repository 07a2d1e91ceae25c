"""A Senlin database, read and never written.

Roost's tables have the columns of Senlin's, some under other names; a row is read as the row that Roost would store.
Senlin 9 to 16 have the same columns. Those with Senlin's own secrets (contexts, actors, trusts) are not read.
"""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine.interfaces import Dialect

from roost.errors import Invalid, Unavailable
from roost.store.tables import clusters as tables

_SENLINS_WORDS = {"user_id": "user", "project_id": "project", "domain_id": "domain", "metadata": "meta_data"}
_UNFINISHED = ("INIT", "READY", "WAITING", "RUNNING", "WAITING_LIFECYCLE_COMPLETION", "SUSPENDED")
_DEAD_AFTER = timedelta(seconds=132)
"""How long Senlin itself waits for a heartbeat before it considers an engine dead."""
_PORTION = 2000

SenlinRow = dict[str, Any]
"""A row with the columns of Roost's table."""


class _JsonText(sa.types.TypeDecorator[Any]):
    """A map that Senlin keeps as JSON in a text; anything else is an empty one."""

    impl = sa.Text
    cache_ok = True

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        found = json.loads(value or "null")
        return found if isinstance(found, dict) else {}


class _UtcTime(sa.types.TypeDecorator[datetime]):
    """Senlin's times are UTC, without saying so."""

    impl = sa.DateTime
    cache_ok = True

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return value and value.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SenlinData:
    """What a Senlin database holds, events and past actions aside."""

    profiles: list[SenlinRow]
    policies: list[SenlinRow]
    clusters: list[SenlinRow]
    nodes: list[SenlinRow]
    bindings: list[SenlinRow]
    receivers: list[SenlinRow]
    watched: frozenset[str]
    """The clusters whose health Senlin watches."""
    busy: Mapping[str, tuple[str, ...]]
    """The clusters and nodes that Senlin is at work on, by id, and what it is doing to them."""
    alive: tuple[str, ...]
    """Senlin's processes that gave a sign of life lately."""


@contextmanager
def opened(url: str) -> Iterator[sa.Connection]:
    """A connection in one read-only transaction, which sees the database as it is at its beginning."""
    engine = _engine(url)
    shown = engine.url.render_as_string(hide_password=True)
    try:
        with engine.connect() as connection:
            if engine.dialect.name == "mysql":
                connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                connection.exec_driver_sql("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
            yield connection
    except sa.exc.ProgrammingError as error:
        raise Invalid(f"{shown} is not a database of Senlin 9 to 16: {error.orig}") from error
    except sa.exc.DBAPIError as error:
        raise Unavailable(f"{shown} cannot be read: {error.orig}") from error
    finally:
        engine.dispose()


def _engine(url: str) -> sa.Engine:
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError:
        raise Invalid("--from is not a database address: write mysql+pymysql://USER:PASSWORD@HOST/senlin.") from None
    if parsed.drivername == "sqlite":
        path = f"file:{parsed.database}?mode=ro"
        return sa.create_engine(parsed, creator=lambda: sqlite3.connect(path, uri=True))
    if parsed.get_backend_name() != "mysql":
        raise Invalid(f"A Senlin database is in MySQL or MariaDB, not in {parsed.drivername}: use mysql+pymysql://...")
    try:
        return sa.create_engine(parsed.set(drivername="mysql+pymysql"), hide_parameters=True)
    except ImportError:
        raise Unavailable("pymysql is not installed: pip install 'roost[senlin]'") from None


def read(connection: sa.Connection) -> SenlinData:
    """All that can be taken over, and what prevents it."""
    return SenlinData(
        profiles=_rows(connection, "profile", tables.profiles),
        policies=_rows(connection, "policy", tables.policies),
        clusters=_rows(connection, "cluster", tables.clusters),
        nodes=_rows(connection, "node", tables.nodes),
        bindings=_rows(connection, "cluster_policy", tables.cluster_policies, without=("created_at",)),
        receivers=_rows(connection, "receiver", tables.receivers, without=("secret", "actor")),
        watched=frozenset(connection.scalars(_select("health_registry", "cluster_id"))),
        busy=_busy(connection),
        alive=_alive(connection),
    )


def events(connection: sa.Connection, since: datetime) -> Iterator[list[SenlinRow]]:
    """The events since then, oldest first, some at a time."""
    query = _query("event", tables.events, without=("domain_id",))
    query = query.where(sa.column("timestamp") >= since.replace(tzinfo=None)).order_by(sa.column("timestamp"))
    found = connection.execution_options(yield_per=_PORTION).execute(query)
    for portion in found.mappings().partitions():
        yield [dict(row) for row in portion]


def _rows(connection: sa.Connection, name: str, table: sa.Table, without: Iterable[str] = ()) -> list[SenlinRow]:
    query = _query(name, table, without).order_by(sa.column("id"))
    return [dict(row) for row in connection.execute(query).mappings()]


def _query(name: str, table: sa.Table, without: Iterable[str]) -> sa.Select[Any]:
    columns = [column for column in table.c if column.name not in without]
    named = [
        sa.column(_SENLINS_WORDS.get(column.name, column.name), _kind(column)).label(column.name) for column in columns
    ]
    return sa.select(*named).select_from(sa.table(name))


def _kind(column: sa.Column[Any]) -> sa.types.TypeEngine[Any]:
    kinds: Mapping[type, sa.types.TypeEngine[Any]] = {JSONB: _JsonText(), sa.DateTime: _UtcTime()}
    return kinds.get(type(column.type), column.type)


def _select(table: str, *columns: str) -> sa.Select[Any]:
    named: list[sa.ColumnElement[Any]] = [sa.column(name) for name in columns]
    return sa.select(*named).select_from(sa.table(table))


def _busy(connection: sa.Connection) -> Mapping[str, tuple[str, ...]]:
    """What is at work on which cluster or node: actions that have not ended, and locks of whatever action."""
    found: dict[str, list[str]] = defaultdict(list)
    named: set[str] = set()
    query = _select("action", "id", "action", "target", "status").where(sa.column("status").in_(_UNFINISHED))
    for row in connection.execute(query.order_by(sa.column("id"))):
        found[row.target].append(f"{row.action} {row.id} is {row.status}")
        named.add(row.id)
    for table, target, column in (("cluster_lock", "cluster_id", "action_ids"), ("node_lock", "node_id", "action_id")):
        for row in connection.execute(_select(table, target, column)):
            holders = json.loads(row[1] or "[]") if column == "action_ids" else [row[1]]
            found[row[0]] += [f"action {holder} holds its lock" for holder in holders if holder not in named]
    return {target: tuple(reasons) for target, reasons in found.items() if reasons}


def _alive(connection: sa.Connection) -> tuple[str, ...]:
    query = _select("service", "host", "binary").add_columns(sa.column("updated_at", _UtcTime()))
    limit = datetime.now(UTC) - _DEAD_AFTER
    rows = connection.execute(query.order_by(sa.column("host")))
    return tuple(f"{row.binary} on {row.host}" for row in rows if row.updated_at and row.updated_at > limit)
