"""Histories of concurrent clients on one group, recorded as they see them, while faults go on."""

import asyncio
import random
import time
from dataclasses import replace
from typing import Any

from tests.faults.clients import Clients, server_body
from tests.faults.clients import Operation as Request
from tests.faults.linearizability import FOREVER, NOWHERE, Operation

ZONE, HOSTS = "lab", 3
"""Where the group's members may be, and how many hosts that is."""
CLIENTS, EACH = 4, 10
GONE_SECONDS = 240.0
_GROUPS = "/compute/v2.1/os-server-groups"
_SERVERS = "/compute/v2.1/servers"


class Recorder:
    """Clients that do things to one group, and write down when they asked and what came back."""

    def __init__(self, clients: Clients, seed: int) -> None:
        self.clients = clients
        self.dice = random.Random(seed)
        self.history: list[Operation] = []
        self.known: list[str] = []
        """Servers that were made, and not asked to be deleted."""
        self.unanswered: list[tuple[str, float]] = []
        """The names of servers that may or may not have been made, and when they were asked for."""

    async def record(self) -> None:
        """Let several clients work at once on a new group."""
        name = self.clients.fresh_name("g")
        body = {"server_group": {"name": name, "policies": [{"name": "anti-affinity"}]}}
        made = await self._until_answered("create group", "POST", _GROUPS, body, name=name)
        self.group = str(made.answer["server_group"]["id"])
        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(self._live())

    async def _live(self) -> None:
        for _ in range(EACH):
            await self.dice.choice([self._create, self._create, self._read, self._read, self._change, self._delete])()
            await asyncio.sleep(self.dice.uniform(0, 0.05))

    async def _until_answered(self, kind: str, method: str, path: str, body: Any = None, **about: Any) -> Request:
        while True:
            request = await self.clients.answer(kind, method, path, body, **about)
            if not request.unknown:
                return request
            await asyncio.sleep(0.1)

    async def _create(self) -> None:
        name = self.clients.fresh_name("s")
        body = server_body(name, "1", self.group, ZONE, 1)
        request = await self.clients.answer("create server", "POST", _SERVERS, body, name=name)
        if request.unknown:
            self.unanswered.append((name, request.asked_at))
        elif request.accepted:
            server = str(request.answer["server"]["id"])
            shown = await self._until_answered("show server", "GET", f"{_SERVERS}/{server}")
            host = shown.answer["server"]["OS-EXT-SRV-ATTR:host"] or NOWHERE
            self.history.append(Operation("create", request.asked_at, request.answered_at, server, host))
            self.known.append(server)

    async def _read(self) -> None:
        request = await self.clients.answer("show group", "GET", f"{_GROUPS}/{self.group}")
        if request.accepted:
            seen = frozenset(request.answer["server_group"]["members"])
            self.history.append(Operation("read", request.asked_at, request.answered_at, seen=seen))

    async def _change(self) -> None:
        if not self.known:
            return
        server, kind = self.dice.choice(self.known), self.dice.choice(["add", "remove"])
        body = {f"{kind}_instance": {"instance_id": server}}
        request = await self.clients.answer(
            f"{kind} member", "POST", f"{_GROUPS}/{self.group}/action", body, subject=self.group
        )
        operation = Operation(kind, request.asked_at, request.answered_at, server, refused=not request.accepted)
        self.history.append(replace(operation, ended=FOREVER, refused=False) if request.unknown else operation)

    async def _delete(self) -> None:
        """A deletion has ended when the server is not found any more: the answer says only that it will be."""
        if not self.known:
            return
        server = self.known.pop(self.dice.randrange(len(self.known)))
        request = await self.clients.answer("delete server", "DELETE", f"{_SERVERS}/{server}", subject=server)
        if request.unknown:
            self.history.append(Operation("delete", request.asked_at, FOREVER, server))
            return
        until = time.monotonic() + GONE_SECONDS
        while (await self._until_answered("show server", "GET", f"{_SERVERS}/{server}")).status != 404:
            assert time.monotonic() < until, f"server {server} does not go"
            await asyncio.sleep(0.05)
        self.history.append(Operation("delete", request.asked_at, time.monotonic(), server))

    def resolve(self) -> list[Operation]:
        """The history, once everything is at rest, with those creations of which only their servers tell."""
        with self.clients.deployment.sql() as connection:
            query = "SELECT s.id::text, h.name FROM servers s LEFT JOIN hosts h ON h.id = s.host_id WHERE s.name = %s"
            for name, begun in self.unanswered:
                for server, host in connection.execute(query, (name,)):
                    self.history.append(Operation("create", begun, FOREVER, server, host or NOWHERE))
        return self.history
