"""The clients: every request is written down with what came of it, so that it can be held against the ground truth."""

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.compute.cloud import IMAGE
from tests.conftest import PASSWORDS
from tests.faults.deployment import Deployment

ANSWER_SECONDS = 180.0
"""Within which a request must be answered, or its connection end, whatever goes wrong."""
PROJECTS = {"admin": "admin", "demo": "demo"}
UNKNOWN = (0, 503)
"""The request may or may not have been carried out: no answer, or one that says so."""
NO_ANSWER = 0
PROFILE = {
    "type": "os.nova.server",
    "version": "1.0",
    "properties": {"flavor": "1", "image": "cirros-0.6.2-x86_64-disk"},
}
"""What the nodes of all clusters are."""


@dataclass
class Operation:
    """One request and its answer."""

    kind: str
    method: str
    path: str
    body: Any
    name: str | None = None
    """What the thing is called that is to be made: no two requests use the same name."""
    subject: str | None = None
    """The id of the thing that the request is about."""
    asked_at: float = field(default_factory=time.monotonic)
    answered_at: float = float("inf")
    status: int = NO_ANSWER
    answer: Any = None
    location: str | None = None

    @property
    def accepted(self) -> bool:
        return 200 <= self.status < 300

    @property
    def unknown(self) -> bool:
        return self.status in UNKNOWN

    @property
    def action_id(self) -> str | None:
        """The action that the request started."""
        begun = self.location or ""
        return begun.rpartition("/")[2] if self.accepted and "/actions/" in begun else None

    def __str__(self) -> str:
        return f"{self.kind} {self.name or self.subject or ''}: {self.method} {self.path} -> {self.status}"


class Clients:
    """Clients of a deployment, signed in to its projects; each request goes to one of the API processes."""

    def __init__(self, deployment: Deployment, seed: int) -> None:
        self.deployment = deployment
        self.dice = random.Random(seed)
        self.history: list[Operation] = []
        self.hung: list[Operation] = []
        self.kinds: Counter[str] = Counter()
        self.statuses: Counter[int] = Counter()
        self._numbers = itertools.count(1)
        self._under_way: set[Future[Operation]] = set()
        self._tokens: dict[str, str] = {}
        self._http = deployment.await_(self._open())
        for project in PROJECTS:
            self._tokens[project] = deployment.await_(self._sign_in(project))

    async def _open(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(timeout=ANSWER_SECONDS, limits=httpx.Limits(max_connections=64))

    def close(self) -> None:
        self.deployment.await_(self._http.aclose())

    async def _sign_in(self, project: str) -> str:
        identity = {"user": {"name": project, "domain": {"id": "default"}, "password": PASSWORDS[project]}}
        scope = {"project": {"name": project, "domain": {"id": "default"}}}
        body = {"auth": {"identity": {"methods": ["password"], "password": identity}, "scope": scope}}
        while True:
            answer = await self._http.post(f"{self._address()}/identity/v3/auth/tokens", json=body)
            if answer.status_code != 503:  # on a machine that is busy with other things
                return answer.headers["X-Subject-Token"]
            await asyncio.sleep(1)

    def _address(self) -> str:
        """One of the API processes, as a load balancer would choose it: of those that take requests, if any do."""
        serving = [api for api in self.deployment.apis if api.serves]
        front = self.dice.choice(serving or self.deployment.apis).front
        assert front is not None
        return f"http://127.0.0.1:{front.port}"

    def token(self, project: str) -> str:
        """What the clients of a project show to be let in."""
        return self._tokens[project]

    def fresh_name(self, prefix: str) -> str:
        """A name that nothing else has."""
        return f"{prefix}{next(self._numbers)}x"

    def ask(self, kind: str, method: str, path: str, body: Any = None, *, project: str = "admin", **about: Any) -> None:
        """Send a request, and do not wait for the answer."""
        operation = Operation(kind, method, path, body, **about)
        self.history.append(operation)
        future = asyncio.run_coroutine_threadsafe(self._send(operation, self._address(), project), self.deployment.loop)
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)

    async def answer(self, kind: str, method: str, path: str, body: Any = None, **about: Any) -> Operation:
        """Send a request and wait for the answer, on the loop of the clients."""
        operation = Operation(kind, method, path, body, **about)
        self.history.append(operation)
        return await self._send(operation, self._address(), "admin")

    def ask_and_wait(self, kind: str, method: str, path: str, body: Any = None, **more: Any) -> Operation:
        """Send a request and wait for the answer."""
        self.ask(kind, method, path, body, **more)
        operation = self.history[-1]
        self.wait()
        return operation

    def wait(self) -> None:
        """Wait until every request is answered."""
        wait(list(self._under_way), ANSWER_SECONDS * 2)

    @property
    def under_way(self) -> int:
        """How many requests wait for their answer."""
        return len(self._under_way)

    async def _send(self, operation: Operation, address: str, project: str) -> Operation:
        headers = {"X-Auth-Token": self._tokens[project]}
        if operation.path.startswith("/compute"):
            headers["OpenStack-API-Version"] = "compute 2.1003"
        else:
            headers["OpenStack-API-Version"] = "clustering 1.14"
        try:
            answer = await self._http.request(
                operation.method, address + operation.path, json=operation.body, headers=headers
            )
        except httpx.TimeoutException:
            self.hung.append(operation)
        except httpx.TransportError:
            pass  # the process or the connection went away
        else:
            operation.status = answer.status_code
            operation.location = answer.headers.get("location")
            operation.answer = answer.json() if answer.content else None
            if answer.status_code == 503 and "retry-after" not in answer.headers:
                operation.status = 500  # a refusal to be repeated must say when
        operation.answered_at = time.monotonic()
        self.kinds[operation.kind] += 1
        self.statuses[operation.status] += 1
        return operation

    def forget(self) -> None:
        """Forget the requests of which nothing is left, once they were held against the ground truth."""
        self.history = [operation for operation in self.history if operation.kind.endswith((" scope", " aggregate"))]

    # What is known to exist, as far as the answers say

    def of(self, kind: str) -> list[Operation]:
        """The requests of a kind, in their order."""
        return [operation for operation in self.history if operation.kind == kind]

    def made(self, kind: str, *path: str) -> list[str]:
        """The ids of what such requests have made, and no request was to delete."""
        doomed = {operation.subject for operation in self.history if operation.kind == f"delete {kind}"}
        found = (_inside(operation.answer, path) for operation in self.of(f"create {kind}") if operation.accepted)
        return [str(each) for each in found if each not in doomed]

    def servers(self) -> list[str]:
        """The servers that were made one at a time."""
        return self.made("server", "server", "id")

    def groups(self) -> list[str]:
        """The server groups."""
        return self.made("group", "server_group", "id")

    def clusters(self) -> list[str]:
        """The clusters."""
        return self.made("cluster", "cluster", "id")

    def nodes(self) -> list[str]:
        """The nodes that were made one by one."""
        return self.made("node", "node", "id")


def server_body(name: str, flavor: str, group: str | None, zone: str | None, count: int) -> dict[str, Any]:
    """A request for servers."""
    wanted: dict[str, Any] = {"name": name, "flavorRef": flavor, "imageRef": IMAGE, "networks": "none"}
    if zone is not None:
        wanted["availability_zone"] = zone
    if count > 1:
        wanted |= {"min_count": 1, "max_count": count, "return_reservation_id": True}
    return {"server": wanted, **({"os:scheduler_hints": {"group": group}} if group else {})}


def _inside(answer: Any, path: Iterable[str]) -> Any:
    for key in path:
        answer = answer[key]
    return answer
