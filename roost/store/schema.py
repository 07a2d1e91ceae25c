"""The schema's versions: bring a database up to date while others use it, or check whether it fits this program.

A migration only adds, and only what programs that do not know it can live with. So the schema may be newer than a
program, and old and new processes may share a database while an upgrade goes on. What no program needs any more is
removed by a migration of a later release, which says since which release it is unused (`unused_since`). The database
remembers the newest of these, as the comment on the table `alembic_version`: programs of earlier releases cannot work
with it.
"""

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.exc import OperationalError

from roost import __version__
from roost.errors import Unavailable
from roost.store import online
from roost.store.addresses import Address
from roost.store.database import application_name
from roost.store.locks import AdvisoryLock

_TURN_SECONDS = 0.2

# A migration that does not get its tables at once gives up, and is tried again.
_PAUSE_SECONDS = 1.0
_TRIES = 100


@dataclass(frozen=True, slots=True)
class Status:
    """Which revision a database has and which programs it serves; which revision this program needs."""

    current: str | None
    oldest: str
    """The first release whose programs work with it."""
    expected: str

    @property
    def problem(self) -> str | None:
        """Why the schema and this program do not fit together, and what to do; None if they do."""
        if self.current is None or self.current < self.expected:
            return f"The schema is at {self.current or 'nothing'}, this program needs {self.expected}: roost db upgrade"
        if release(__version__) < release(self.oldest):
            return (
                f"The schema is at {self.current} and serves Roost {self.oldest} or newer, this is {__version__}: "
                "install a newer Roost"
            )
        return None

    def __bool__(self) -> bool:
        return self.problem is None


def upgrade(url: str, to: str = "head", tell: Callable[[str], None] = lambda _: None) -> None:
    """Apply every migration that the database does not have yet, up to the given revision; others may go on using it.
    `tell` is called with each.

    A database that is newer than this program is left as it is; it must serve this program."""
    with connect(url) as connection:
        take_turn(connection)
        before = read(connection)
        if before.current is not None and before.current > before.expected:
            if before.problem:
                raise Unavailable(before.problem)
            return
        connection.execute(online.GIVE_UP_EARLY)
        connection.commit()
        _migrate(connection, to, tell)


def _migrate(connection: sa.Connection, to: str, tell: Callable[[str], None]) -> None:
    config = _config()
    config.attributes.update(connection=connection, tell=tell)
    for _ in range(_TRIES):
        try:
            command.upgrade(config, to)
            connection.commit()
            return
        except OperationalError as error:
            if not isinstance(error.orig, psycopg.errors.LockNotAvailable):
                raise
            connection.rollback()
            time.sleep(_PAUSE_SECONDS)
    raise Unavailable(
        f"The schema is at {read(connection).current}: the next migration could not lock its tables, because a long "
        "transaction uses them (see pg_stat_activity). Nothing is half done: try again."
    )


def take_turn(connection: sa.Connection) -> None:
    """Wait for the turn to change the schema, and keep it until the connection is closed.

    It polls: a session that waits inside the database would hold up the building of indexes."""
    take = sa.text("SELECT pg_try_advisory_lock(:key)")
    while not connection.scalar(take, {"key": int(AdvisoryLock.SCHEMA)}):
        connection.rollback()
        time.sleep(_TURN_SECONDS)
    connection.commit()


def status(url: str) -> Status:
    """Compare the database with what this program needs."""
    with connect(url) as connection:
        return read(connection)


def read(connection: sa.Connection) -> Status:
    """The same, on a connection that is there already."""
    needed = expected()  # reads every migration the first time: no transaction waits for that
    current = MigrationContext.configure(connection).get_current_revision()
    oldest = connection.scalar(sa.text("SELECT obj_description(to_regclass('alembic_version'))"))
    return Status(current, oldest or "0", needed)


@functools.cache
def expected() -> str:
    """The revision that this program needs."""
    head = scripts().get_current_head()
    if head is None:
        raise RuntimeError("this installation of Roost has no migrations")
    return head


def scripts() -> ScriptDirectory:
    """The migrations that this program knows."""
    return ScriptDirectory.from_config(_config())


def release(version: str) -> tuple[int, ...]:
    """A release as something that can be compared."""
    return tuple(int(number) for number in version.split("."))


@contextmanager
def connect(url: str) -> Iterator[sa.Connection]:
    """A connection to the database, without limits on what it does; raises an error with a readable message
    if the address is malformed or nothing answers."""
    parameters = Address.parse(url).connecting(application_name("roost", "schema"))
    engine = sa.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(**parameters))
    try:
        with engine.connect() as connection:
            yield connection
    except OperationalError as error:
        raise Unavailable(f"The database does not answer: {str(error.orig).splitlines()[0]}") from error
    finally:
        engine.dispose()


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    return config
