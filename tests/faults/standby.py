"""A second PostgreSQL that has everything that the first one has committed."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import psycopg

from roost.store.embedded import EmbeddedPostgres, binaries

REPLICATION = {"wal_level": "replica", "max_wal_senders": "4", "hot_standby": "on"}


def standby(primary: EmbeddedPostgres, folder: Path) -> EmbeddedPostgres:
    """A copy that follows the primary; from now on a commit waits until the copy has it on its disk."""
    found = binaries()
    assert found is not None
    copy = EmbeddedPostgres(folder / "copy", REPLICATION)
    copy.folder.mkdir()
    target = folder / "copied"
    # Without --checkpoint=fast it would wait minutes for a checkpoint that the primary spreads out.
    where = ["-h", str(primary._sockets), "-U", "roost", "-D", str(target)]
    subprocess.run([str(found / "pg_basebackup"), *where, "-R", "--checkpoint=fast"], check=True)
    owner = primary._data.stat()
    shutil.copytree(target, copy._data)
    for path in (copy._data, *copy._data.rglob("*")):
        os.chown(path, owner.st_uid, owner.st_gid)
    copy._data.chmod(0o700)
    line = f"primary_conninfo = 'host={primary._sockets} user=roost application_name=copy'\n"
    with (copy._data / "postgresql.auto.conf").open("a") as written:
        written.write(line)
    # It answers, but it makes no database of its own.
    copy._make_database = lambda: None  # type: ignore[method-assign]
    copy.start()
    with psycopg.connect(primary.url, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'copy'")
        connection.execute("SELECT pg_reload_conf()")
        for _ in range(100):
            row = connection.execute("SELECT sync_state FROM pg_stat_replication").fetchone()
            if row is not None and row[0] == "sync":
                return copy
            time.sleep(0.1)
    raise TimeoutError("the standby did not follow")
