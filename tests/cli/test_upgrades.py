"""A release replaces another while both serve: first the schema, then one process after the other."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

import roost
from roost.compute.inventory import images
from roost.identity import tokens
from roost.store import schema
from roost.store.database import Database
from tests.cli.test_processes import free_port, running, wait_for
from tests.compute import truth

ADDS = """
from alembic import op
import sqlalchemy as sa
from roost.store import online
revision, down_revision = "{revision}", "{before}"
def upgrade():
    op.add_column("servers", sa.Column("note", sa.Text, nullable=False, server_default=""))
    online.create_index("ix_servers_note", "servers", "note")
"""
REMOVES = """
from alembic import op
revision, down_revision, unused_since = "{revision}", "{before}", "0.2.0"
def upgrade():
    op.drop_column("servers", "note")
"""


def later_release(folder: Path, version: str, *migrations: str) -> Path:
    """This program as a later release might be: the same, with further migrations."""
    package = folder / version / "roost"
    shutil.copytree(Path(roost.__file__).parent, package)
    (package / "__init__.py").write_text(f'__version__ = "{version}"\n')
    newest = int(schema.expected())
    for number, text in enumerate(migrations, newest + 1):
        text = text.format(revision=f"{number:04}", before=f"{number - 1:04}")
        (package / "store" / "migrations" / "versions" / f"{number:04}_later.py").write_text(text)
    return package.parent


def command(url: str, release: Path, *arguments: str) -> "subprocess.Popen[str]":
    """A command of a later release."""
    environment = {**os.environ, "ROOST_DATABASE_URL": url, "PYTHONPATH": str(release)}
    words = [sys.executable, "-m", "roost", *arguments]
    return subprocess.Popen(words, cwd=release, env=environment, stdout=subprocess.PIPE, text=True)


@dataclass
class Traffic:
    """Clients that never stop asking: what they were answered, and whether it was always a success."""

    port: int
    token: str
    boots: int = 0
    failures: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def ask(self, method: str, path: str, body: Any = None, port: int | None = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{port or self.port}/compute/v2.1{path}",
            None if body is None else json.dumps(body).encode(),
            {
                "X-Auth-Token": self.token,
                "Content-Type": "application/json",
                "OpenStack-API-Version": "compute 2.1003",
            },
            method=method,
        )
        with urllib.request.urlopen(request, timeout=100) as answer:
            return json.load(answer) if answer.status != 204 else None

    def boot(self, port: int | None = None) -> str:
        server = {"name": "s", "flavorRef": "1", "imageRef": images.USUAL[0].id, "networks": "none"}
        return str(self.ask("POST", "/servers", {"server": server}, port)["server"]["id"])

    def go_on(self) -> None:
        while not self.stop.is_set():
            try:
                made = self.boot()
                self.ask("GET", "/servers/detail?limit=5")
                self.ask("DELETE", f"/servers/{made}")
                self.boots += 1
            except OSError as error:
                self.failures.append(str(error))

    def until(self, holds: Callable[[], bool]) -> None:
        patience = time.monotonic() + 120
        while not holds():
            assert not self.failures
            assert time.monotonic() < patience
            time.sleep(0.05)


@contextmanager
def traffic(port: int, token: str, clients: int = 2) -> Iterator[Traffic]:
    asked = Traffic(port, token)
    threads = [threading.Thread(target=asked.go_on) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield asked
    finally:
        asked.stop.set()
        for thread in threads:
            thread.join()


async def test_old_and_new_processes_share_a_database_while_its_schema_changes_and_no_request_fails(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    next_release = later_release(tmp_path, "0.2.0", ADDS)
    one_after = later_release(tmp_path, "0.3.0", ADDS, REMOVES)
    async with database.begin() as connection:
        query = (
            "SELECT u.id, r.project_id FROM users u JOIN role_assignments r ON r.user_id = u.id WHERE u.name = 'demo'"
        )
        user = (await connection.exec_driver_sql(query)).one()
        token = await tokens.issue(connection, user.id, user.project_id, ("password",), tokens.expiry(3600))
        unlimited = "INSERT INTO quota_classes SELECT 'default', unnest(ARRAY['instances', 'cores', 'ram']), -1"
        await connection.exec_driver_sql(unlimited)

    old, new = free_port(), free_port()
    readiness = "http://127.0.0.1:{}/readiness"
    with running("api", database_url, "--listen", f"127.0.0.1:{old}"), running("engine", database_url):
        wait_for(readiness.format(old))
        with traffic(old, token) as clients, psycopg.connect(database_url) as slow:
            waiting = (
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                "AND wait_event_type = 'Lock' AND query LIKE 'ALTER TABLE servers ADD%%'"
            )
            # A long transaction keeps the migration from the table; it must not keep the others from it meanwhile.
            slow.execute("SELECT count(*) FROM servers")
            upgrade = command(database_url, next_release, "db", "upgrade")
            with psycopg.connect(database_url, autocommit=True) as watcher:
                clients.until(lambda: watcher.execute(waiting).fetchone() == (1,))
            booted = clients.boots
            clients.until(lambda: clients.boots > booted + 10)
            assert upgrade.poll() is None
            slow.commit()
            assert upgrade.wait(120) == 0
            booted = clients.boots
            clients.until(lambda: clients.boots > booted + 3)

            status = schema.status(database_url)
            assert status.current is not None
            assert status.current > status.expected
            assert status
            serving = command(database_url, next_release, "api", "--listen", f"127.0.0.1:{new}")
            try:
                wait_for(readiness.format(new))
                wait_for(readiness.format(old))
                made = clients.boot(port=new)
                assert clients.ask("GET", f"/servers/{made}", port=old)["server"]["id"] == made
                assert clients.ask("GET", f"/servers/{clients.boot(port=old)}", port=new)

                # Two releases later: what 0.2.0 has not used since is gone, and this release no longer goes with it.
                assert command(database_url, one_after, "db", "upgrade").wait(120) == 0
                wait_for(readiness.format(new))
                wait_for(readiness.format(old), 503)
            finally:
                serving.terminate()
                assert serving.wait(30) == 0
        assert clients.failures == []
    status = schema.status(database_url)
    assert status.problem == (
        f"The schema is at {status.current} and serves Roost 0.2.0 or newer, this is {roost.__version__}: "
        "install a newer Roost"
    )
    await truth.settle(database)
    await truth.check(database)
