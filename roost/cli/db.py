"""`roost db`: what an operator does to the database as a whole."""

import argparse
import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from roost import config
from roost.cli.progress import progress
from roost.compute.groups import notifications
from roost.config import Settings
from roost.errors import Invalid
from roost.store import backup, embedded, retention, schema
from roost.store.database import Database


def run(settings: Settings, options: argparse.Namespace) -> int:
    """Do one of them; the exit status."""
    if options.do == "restore":
        return _restore(settings, options.data, options.file, force=options.force)
    with _database(settings, options.data) as url:
        match options.do:
            case "upgrade":
                with progress("upgrading") as tell:
                    schema.upgrade(url, tell=tell)
                print(f"The schema is at {schema.status(url).current}.")
            case "status":
                return _status(url)
            case "backup":
                with progress("backing up") as tell:
                    made = backup.make(url, options.file, tell)
                size = options.file.stat().st_size
                print(f"{options.file}: schema {made.revision}, {size:,} bytes, sha256 of the dump {made.sha256}")
            case "purge":
                _purge(settings, url, settings.keep_days if options.days is None else options.days)
    return 0


@contextmanager
def _database(settings: Settings, folder: Path | None) -> Iterator[str]:
    """The address of the database: the one that is named, or the one in the folder of a `roost serve`."""
    if settings.database_url is None and folder is not None:
        with embedded.reach(folder) as url:
            yield url
    else:
        yield config.session_url(settings)


def _status(url: str) -> int:
    status = schema.status(url)
    if status.problem:
        print(status.problem)
        return 1
    newer = "" if status.current == status.expected else f", newer than {status.expected}, and serves this program"
    print(f"The schema is at {status.current}{newer or ': up to date'}.")
    return 0


def _purge(settings: Settings, url: str, days: int) -> None:
    if days < 1:
        raise Invalid("What ended is kept for at least a day: give --days 1 or more.")
    gone = asyncio.run(_forget(url, days, notifications=not notifications.wanted(settings)))
    print(f"Forgotten: {', '.join(f'{number} {table}' for table, number in gone.items())}.")


async def _forget(url: str, days: int, *, notifications: bool) -> Counter[str]:
    database = Database(url)
    try:
        return await retention.purge(database, days, notifications=notifications)
    finally:
        await database.close()


def _restore(settings: Settings, folder: Path | None, file: Path, *, force: bool) -> int:
    if settings.database_url is None and folder is not None:
        # Never beside a Roost that runs there: this refuses to start a second one.
        server = embedded.EmbeddedPostgres(folder)
        backup.check(file)
        try:
            server.start()
            with progress("restoring") as tell:
                manifest = backup.restore(server.url, file, force=force, tell=tell)
        finally:
            server.stop()
    else:
        with progress("restoring") as tell:
            manifest = backup.restore(config.session_url(settings), file, force=force, tell=tell)
    print(f"Restored from {file}, made at {manifest.made_at} by Roost {manifest.roost}; everybody must sign in again.")
    return 0
