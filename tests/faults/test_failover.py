"""The primary dies while clients create servers and a cluster grows; the standby takes over.

One URL names both machines, in libpq's own form. This is the shortest form of a failover, with PostgreSQL's own
replication; `make ha-test` has the long one, with Patroni.
"""

import time
from contextlib import ExitStack
from pathlib import Path

import psycopg

from roost import config
from roost.cli import bootstrap
from roost.store import schema
from roost.store.embedded import EmbeddedPostgres
from tests.cli.test_processes import free_port, running, wait_for
from tests.faults import recount
from tests.faults.standby import REPLICATION, standby
from tests.ha.clients import Clients

PASSWORD = "failover"
UNLIMITED = "[quota]\ninstances = -1\ncores = -1\nram = -1\n"


def test_what_was_acknowledged_is_there_once_after_a_failover(folders: Path) -> None:
    folder = folders / "failover"
    folder.mkdir()
    with ExitStack() as stack:
        primary = EmbeddedPostgres(folder / "primary", REPLICATION)
        primary.start()
        stack.callback(primary.stop)
        schema.upgrade(primary.url)
        (folder / "roost.conf").write_text(UNLIMITED)
        settings = config.with_database(config.load(folder / "roost.conf"), primary.url)
        bootstrap.fill(settings, {user.name: PASSWORD for user in bootstrap.USERS}, "small")
        with psycopg.connect(primary.url) as connection:
            connection.execute("CREATE TABLE rehearsal_witness (event text, group_id uuid, server_id uuid)")
        copy = standby(primary, folder)
        stack.callback(copy.stop)
        both = f"postgresql://roost@/roost?host={primary._sockets},{copy._sockets}&target_session_attrs=read-write"
        configured = ("--config", str(folder / "roost.conf"))
        ports = [free_port(), free_port()]
        for port in ports:
            stack.enter_context(running("api", both, *configured, "--listen", f"127.0.0.1:{port}"))
        stack.enter_context(running("engine", both, *configured))
        for port in ports:
            wait_for(f"http://127.0.0.1:{port}/readiness")
        clients = Clients([f"http://127.0.0.1:{port}" for port in ports], PASSWORD, "demo", number=4)
        clients.sign_in()
        until = time.monotonic() + 120

        def wait_for_creations() -> None:
            wanted = len(clients.created) + 20
            while len(clients.created) < wanted:
                assert time.monotonic() < until, "no servers are created"
                time.sleep(0.05)

        with clients.working():
            wait_for_creations()
            cluster = clients.grow_a_cluster(10)
            primary.kill()
            with psycopg.connect(copy.url, autocommit=True) as connection:
                assert connection.execute("SELECT pg_promote()").fetchone() == (True,)
            wait_for_creations()
        while (truth := recount.Truth.read(copy.url)) and (left := list(recount.unrest(truth))):
            assert time.monotonic() < until, left
            time.sleep(0.2)
        assert clients.lost(truth["servers"]) == []
        assert clients.doubled(truth["servers"]) == []
        assert set(clients.refused) <= {0, 503}
        assert [(str(row["id"]), row["status"]) for row in truth["clusters"]] == [(cluster, "ACTIVE")]
        assert [row["status"] for row in truth["nodes"]] == ["ACTIVE"] * 10
        assert list(recount.everything(truth)) == []
