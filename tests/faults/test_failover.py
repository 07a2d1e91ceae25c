"""The primary dies while clients create servers and a cluster grows; the standby takes over.

One URL names both machines, in libpq's own form. The drills of `make soak` have more faults; this one is the shortest
form of a failover, with PostgreSQL's own replication.
"""

import json
import os
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from roost import config
from roost.cli import bootstrap
from roost.compute.inventory import images
from roost.store import schema
from roost.store.embedded import EmbeddedPostgres
from tests.cli.test_processes import free_port, running, wait_for
from tests.faults import recount
from tests.faults.standby import REPLICATION, standby

PASSWORD = "failover"
UNLIMITED = "[quota]\ninstances = -1\ncores = -1\nram = -1\n"


@dataclass
class Clients:
    """Clients that create one server after another, each with a name of its own, at whichever API answers."""

    ports: list[int]
    token: str = ""
    stop: threading.Event = field(default_factory=threading.Event)
    acknowledged: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    answered: list[tuple[float, int]] = field(default_factory=list)

    def ask(self, method: str, path: str, body: Any, port: int) -> Any:
        headers = {"X-Auth-Token": self.token, "Content-Type": "application/json"}
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}{path}",
            None if body is None else json.dumps(body).encode(),
            {**headers, "OpenStack-API-Version": "compute 2.1003"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            self.token = self.token or answer.headers["X-Subject-Token"]
            return json.load(answer)

    def sign_in(self) -> None:
        user = {"name": "demo", "password": PASSWORD, "domain": {"id": "default"}}
        identity = {"methods": ["password"], "password": {"user": user}}
        scope = {"project": {"name": "demo", "domain": {"id": "default"}}}
        body = {"auth": {"identity": identity, "scope": scope}}
        self.ask("POST", "/identity/v3/auth/tokens", body, self.ports[0])

    def go_on(self, client: int) -> None:
        number = 0
        while not self.stop.is_set():
            number += 1
            name = f"c{client}-{number}"
            server = {"name": name, "flavorRef": "1", "imageRef": images.USUAL[0].id, "networks": "none"}
            self.asked.append(name)
            try:
                made = self.ask("POST", "/compute/v2.1/servers", {"server": server}, self.ports[number % 2])
                self.acknowledged.append(made["server"]["id"])
                self.answered.append((time.monotonic(), 202))
            except urllib.error.HTTPError as error:
                self.answered.append((time.monotonic(), error.code))
                time.sleep(0.2)
            except OSError:
                time.sleep(0.2)

    @contextmanager
    def creating(self) -> Iterator[None]:
        threads = [threading.Thread(target=self.go_on, args=(client,)) for client in range(4)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stop.set()
            for thread in threads:
                thread.join()

    def grow_a_cluster(self) -> str:
        """Ask for a cluster of ten; the id of the action."""
        properties = {"flavor": "1", "image": images.USUAL[0].name}
        spec = {"type": "os.nova.server", "version": "1.0", "properties": properties}
        port = self.ports[0]
        profile = self.ask("POST", "/clustering/v1/profiles", {"profile": {"name": "p", "spec": spec}}, port)["profile"]
        body = {"cluster": {"name": "grown", "profile_id": profile["id"], "desired_capacity": 10}}
        self.ask("POST", "/clustering/v1/clusters", body, port)
        found = self.ask("GET", "/clustering/v1/actions?action=CLUSTER_CREATE", None, port)["actions"]
        return str(found[0]["id"])


@pytest.mark.skipif("ROOST_FAILOVER" not in os.environ, reason="takes minutes: make failover-test")
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
        clients = Clients(ports)
        clients.sign_in()
        with clients.creating():
            while len(clients.acknowledged) < 20:
                time.sleep(0.05)
            action = clients.grow_a_cluster()
            assert primary._process is not None
            primary._process.kill()
            lost_at = time.monotonic()
            with psycopg.connect(copy.url, autocommit=True) as connection:
                assert connection.execute("SELECT pg_promote()").fetchone() == (True,)
            until = lost_at + 120
            while not [at for at, status in clients.answered if status == 202 and at > lost_at + 1]:
                assert time.monotonic() < until, "no server is created after the failover"
                time.sleep(0.05)
            again = len(clients.acknowledged)
            while len(clients.acknowledged) < again + 20:
                assert time.monotonic() < until
                time.sleep(0.05)
        while (truth := recount.Truth.read(copy.url)) and (left := list(recount.unrest(truth))):
            assert time.monotonic() < until, left
            time.sleep(0.2)
        names = Counter(row["name"] for row in truth["servers"])
        stored = {str(row["id"]) for row in truth["servers"]}
        assert [each for each in clients.acknowledged if each not in stored] == []
        assert [name for name in clients.asked if names[name] > 1] == []
        assert {status for _, status in clients.answered} <= {202, 503}
        ended = {str(row["id"]): row["status"] for row in truth["actions"]}
        assert ended[action] == "SUCCEEDED"
        assert [row["status"] for row in truth["nodes"]] == ["ACTIVE"] * 10
        assert list(recount.everything(truth)) == []
