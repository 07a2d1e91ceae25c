"""The schema's versions: bring a database up to date, or say where it stands."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, OperationalError

from roost.errors import Invalid, Unavailable

# Only one process upgrades at a time; the others wait for it here.
_UPGRADE_LOCK = 7_266_011


@dataclass(frozen=True, slots=True)
class Status:
    """Which revision a database has, and which this program expects."""

    current: str | None
    expected: str

    def __bool__(self) -> bool:
        return self.current == self.expected


def upgrade(url: str) -> None:
    """Apply every migration that the database does not have yet."""
    config = _config()
    with _connection(url) as connection:
        connection.execute(sa.text("SELECT pg_advisory_lock(:key)"), {"key": _UPGRADE_LOCK})
        connection.commit()
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        connection.commit()


def status(url: str) -> Status:
    """Compare the database with what this program expects."""
    with _connection(url) as connection:
        current = MigrationContext.configure(connection).get_current_revision()
    return Status(current, expected())


@functools.cache
def expected() -> str:
    """The revision that this program needs."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    if head is None:
        raise RuntimeError("this installation of Roost has no migrations")
    return head


@contextmanager
def _connection(url: str) -> Iterator[sa.Connection]:
    try:
        engine = sa.create_engine(make_url(url).set(drivername="postgresql+psycopg"))
    except ArgumentError:
        raise Invalid(
            "The address of the database cannot be read: write postgresql://user:password@host/name."
        ) from None
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
