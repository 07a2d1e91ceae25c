"""A Senlin database, which Senlin 16 itself made: a stored copy in SQLite, or a new one in a MariaDB.

`senlin_maker.py` makes it. Where `ROOST_SENLIN` names a Python with Senlin and `ROOST_MARIADB` a folder with MariaDB,
both are used; otherwise the copy is.
"""

import contextlib
import getpass
import os
import secrets
import socket
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql
import pytest
import sqlalchemy as sa

DUMP = Path(__file__).with_name("senlin-16.sql")
MAKER = Path(__file__).with_name("senlin_maker.py")


@dataclass(frozen=True)
class SenlinStore:
    """A database of the test's own."""

    url: str

    def ask(self, statement: str, *values: Any) -> list[Any]:
        """Read or change it, as Senlin would."""
        engine = sa.create_engine(self.url)
        with contextlib.closing(engine.raw_connection()) as connection:
            mark = "?" if engine.dialect.name == "sqlite" else "%s"
            cursor = connection.cursor()
            cursor.execute(statement.replace("?", mark), values)
            names = [column[0] for column in cursor.description or ()]
            found = [dict(zip(names, row, strict=True)) for row in (cursor.fetchall() if names else ())]
            connection.commit()
        engine.dispose()
        return found

    def id(self, table: str, name: str) -> str:
        """The id of what is called so."""
        return str(self.ask(f"SELECT id FROM {table} WHERE name = ?", name)[0]["id"])

    def content(self) -> dict[str, list[Any]]:
        """All of it, to see whether it was changed."""
        return {name: self.ask(f"SELECT * FROM {name} ORDER BY 1") for name in self.tables()}

    def tables(self) -> list[str]:
        engine = sa.create_engine(self.url)
        try:
            return sa.inspect(engine).get_table_names()
        finally:
            engine.dispose()


@pytest.fixture(scope="session")
def mariadb(folders: Path) -> Iterator[str | None]:
    """Where a MariaDB answers in which Senlin has made a database called `senlin`; None if there is none."""
    if "ROOST_MARIADB" not in os.environ:
        yield None
        return
    root = Path(os.environ["ROOST_MARIADB"]).resolve()
    libraries = ":".join(map(str, [*root.glob("usr/lib/*-linux-gnu"), *root.glob("lib/*-linux-gnu")]))
    environment = {**os.environ, "LD_LIBRARY_PATH": libraries}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder, share = folders / "mariadb", root / "usr" / "share" / "mysql"
    options = [f"--basedir={root}/usr", f"--datadir={folder}", f"--user={getpass.getuser()}"]
    options += [f"--lc-messages-dir={share}", f"--character-sets-dir={share}/charsets"]
    make = [f"{root}/usr/bin/mariadb-install-db", "--no-defaults", "--auth-root-authentication-method=normal", *options]
    subprocess.run(make, env=environment, check=True, capture_output=True)
    server = [f"{root}/usr/sbin/mariadbd", "--no-defaults", *options, f"--port={port}", "--bind-address=127.0.0.1"]
    server += [f"--socket={folder}/own.sock", f"--plugin-dir={root}/usr/lib/mysql/plugin", "--skip-name-resolve"]
    with (folders / "mariadb.log").open("wb") as log:
        process = subprocess.Popen(server, env=environment, stdout=log, stderr=log)
    try:
        url = f"mysql+pymysql://root@127.0.0.1:{port}"
        _await(url, process)
        SenlinStore(f"{url}/mysql").ask("CREATE DATABASE senlin CHARACTER SET utf8mb3")
        subprocess.run([os.environ["ROOST_SENLIN"], "-W", "ignore", MAKER, f"{url}/senlin"], check=True)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def _await(url: str, process: "subprocess.Popen[bytes]") -> None:
    for _ in range(300):
        try:
            SenlinStore(f"{url}/mysql").ask("SELECT 1")
            return
        except pymysql.err.OperationalError:
            assert process.poll() is None, "MariaDB did not start"
            time.sleep(0.1)
    raise AssertionError("MariaDB does not answer")


def load(folder: Path) -> str:
    """Put the stored copy into a file; its address."""
    with sqlite3.connect(folder / "senlin.db") as connection:
        connection.executescript(DUMP.read_text())
    return f"sqlite:///{folder}/senlin.db"


@pytest.fixture
def senlin(tmp_path: Path, mariadb: str | None) -> Iterator[SenlinStore]:
    if mariadb is None:
        yield SenlinStore(load(tmp_path))
        return
    made, name = SenlinStore(f"{mariadb}/senlin"), f"senlin_{secrets.token_hex(4)}"
    made.ask(f"CREATE DATABASE {name}")
    for table in made.tables():
        made.ask(f"CREATE TABLE {name}.{table} LIKE senlin.{table}")
        made.ask(f"INSERT INTO {name}.{table} SELECT * FROM senlin.{table}")
    yield SenlinStore(f"{mariadb}/{name}")
    made.ask(f"DROP DATABASE {name}")
