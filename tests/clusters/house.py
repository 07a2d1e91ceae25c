"""A whole clustering service in this process, with an engine that works and a cloud that can be made to fail."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from roost import config
from roost.api.app import App, make_services
from roost.api.auth import RoostAuthenticator
from roost.clouds.base import CloudError, CloudServer, ServerOutcome, ServerRequest
from roost.clouds.embedded import EmbeddedCloud, EmbeddedClouds
from roost.clusters import engine as cluster_engine
from roost.compute.scheduling import lifecycle
from roost.compute.scheduling.scheduler import Scheduler
from roost.config import Settings
from roost.store.database import Database
from roost.store.rounds import Rounds
from roost.store.tables.servers import servers
from tests.conftest import Api

ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")
PROPERTIES = {"flavor": "1", "image": "cirros-0.6.2-x86_64-disk"}
UNLIMITED = {f"quota__{name}": -1 for name in ("instances", "cores", "ram", "server_groups", "server_group_members")}


@dataclass
class Faults:
    """What goes wrong in the cloud, and when."""

    refuse: Callable[[ServerRequest], str | None] = lambda request: None
    silent: int = 0
    """How many more times the cloud does not answer at all."""
    before_create: Callable[[], Any] | None = None
    after_create: Callable[[], Any] | None = None
    after_lookup: Callable[[], Any] | None = None
    """Once it was looked up which servers nodes have."""
    keep: set[str] = field(default_factory=set)
    """Servers that cannot be deleted."""


class FaultyCloud(EmbeddedCloud):
    """The embedded cloud, with faults."""

    async def create_servers(self, requests: Sequence[ServerRequest]) -> list[ServerOutcome]:
        faults = _FAULTS[id(self.database)]
        await _pause(faults.before_create)
        if faults.silent > 0:
            faults.silent -= 1
            raise CloudError("nobody there")
        reasons = {request.node_id: faults.refuse(request) for request in requests}
        made = await EmbeddedCloud.create_servers(self, [one for one in requests if reasons[one.node_id] is None])
        outcomes = {outcome.node_id: outcome for outcome in made}
        await _pause(faults.after_create)
        return [outcomes.get(one.node_id) or ServerOutcome(one.node_id, None, reasons[one.node_id]) for one in requests]

    async def find_servers(self, node_ids: Sequence[str]) -> dict[str, CloudServer]:
        found = await EmbeddedCloud.find_servers(self, node_ids)
        await _pause(_FAULTS[id(self.database)].after_lookup)
        return found

    async def delete_servers(self, server_ids: Sequence[str], *, force: bool = False) -> dict[str, str]:
        kept = [server_id for server_id in server_ids if server_id in _FAULTS[id(self.database)].keep]
        rest = [server_id for server_id in server_ids if server_id not in kept]
        answer = await EmbeddedCloud.delete_servers(self, rest, force=force)
        return {**answer, **dict.fromkeys(kept, "The server does not go away.")}


_FAULTS: dict[int, Faults] = {}


async def _pause(hook: Callable[[], Any] | None) -> None:
    if hook is not None:
        await hook()


@dataclass(frozen=True)
class FaultyClouds(EmbeddedClouds):
    """The embedded clouds, with faults."""

    def of(self, project_id: str, user_id: str, *, privileged: bool = False) -> EmbeddedCloud:
        shared = (self.database, self.settings, self.scheduler, self.addresses, self.lookups)
        return FaultyCloud(*shared, project_id, user_id, privileged)


@dataclass
class House:
    """The service, and the few things that tests do with it."""

    api: Api
    settings: Settings
    database: Database
    faults: Faults
    names: "itertools.count[int]" = field(default_factory=itertools.count)

    async def call(
        self, method: str, path: str, body: Any = None, *, version: str = "1.14", cloud: str = "roost", **more: Any
    ) -> httpx.Response:
        """One request to the clustering API."""
        return await self.api.request(method, f"/clustering/v1{path}", json=body, version=version, cloud=cloud, **more)

    async def get(self, path: str, **more: Any) -> Any:
        """What a GET answers, inside its envelope."""
        answer = await self.call("GET", path, **more)
        assert answer.status_code == 200, answer.text
        return next(iter(answer.json().values()))

    async def post(self, path: str, body: Any = None, **more: Any) -> httpx.Response:
        return await self.call("POST", path, body, **more)

    async def done(self, answer: httpx.Response, seconds: float = 60.0) -> dict[str, Any]:
        """The action that a request started, once it has ended."""
        assert answer.status_code == 202, answer.text
        return await self.ended(answer.headers["location"].rpartition("/")[2], seconds)

    async def ended(self, action_id: str, seconds: float = 60.0) -> dict[str, Any]:
        """An action, once it has ended."""
        path = f"/actions/{action_id}"
        action: dict[str, Any] = await self.until(path, lambda found: found["status"] in ENDED, seconds)
        return action

    async def until(self, path: str, true: Callable[[Any], bool], seconds: float = 60.0, **more: Any) -> Any:
        """What an address shows, once that is so."""
        async with asyncio.timeout(seconds):
            while True:
                found = await self.get(path, **more)
                if true(found):
                    return found
                await asyncio.sleep(0.02)

    async def act(self, cluster: Mapping[str, Any], name: str, params: Any = None, **more: Any) -> dict[str, Any]:
        """Have something done to a cluster, and wait for its end."""
        body = {name: {} if params is None else params}
        return await self.done(await self.post(f"/clusters/{cluster['id']}/actions", body, **more))

    async def profile(self, name: str | None = None, **properties: Any) -> dict[str, Any]:
        """A profile of servers."""
        spec = {"type": "os.nova.server", "version": "1.0", "properties": {**PROPERTIES, **properties}}
        body = {"profile": {"name": name or f"profile-{next(self.names)}", "spec": spec}}
        answer = await self.post("/profiles", body)
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()["profile"]
        return made

    async def policy(self, kind: str, version: str = "1.0", **properties: Any) -> dict[str, Any]:
        """A policy."""
        spec = {"type": kind, "version": version, "properties": properties}
        answer = await self.post("/policies", {"policy": {"name": f"policy-{next(self.names)}", "spec": spec}})
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()["policy"]
        return made

    async def cluster(self, size: int = 0, *, profile: Mapping[str, Any] | None = None, **given: Any) -> dict[str, Any]:
        """A cluster of that many nodes."""
        profile = profile or await self.profile()
        body = {"name": f"cluster-{next(self.names)}", "profile_id": profile["id"], "desired_capacity": size, **given}
        answer = await self.post("/clusters", {"cluster": body})
        assert (await self.done(answer))["status"] == "SUCCEEDED"
        return await self.show(answer.json()["cluster"])

    async def show(self, cluster: Mapping[str, Any]) -> dict[str, Any]:
        """The cluster as it is now."""
        shown: dict[str, Any] = await self.get(f"/clusters/{cluster['id']}")
        return shown

    async def members(self, cluster: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Its nodes."""
        nodes: list[dict[str, Any]] = await self.get(f"/nodes?cluster_id={cluster['id']}&sort=index")
        return nodes

    async def node(self, **given: Any) -> dict[str, Any]:
        """A node in no cluster, or in the one that is given."""
        profile_id = given.pop("profile_id", None) or (await self.profile())["id"]
        body = {"name": f"node-{next(self.names)}", "profile_id": profile_id, **given}
        answer = await self.post("/nodes", {"node": body})
        await self.done(answer)
        node: dict[str, Any] = await self.get(f"/nodes/{answer.json()['node']['id']}")
        return node

    async def servers(self) -> set[str]:
        """The ids of all servers that the cloud has, whatever our own tables say."""
        async with self.database.begin() as connection:
            return {str(found) for found in (await connection.execute(sa.select(servers.c.id))).scalars()}

    async def lose(self, server_id: str) -> None:
        """Delete a server behind the back of its node."""
        answer = await self.api.request("DELETE", f"/compute/v2.1/servers/{server_id}", cloud="roost")
        assert answer.status_code == 204, answer.text
        for _ in range(1200):
            if server_id not in await self.servers():
                return
            await asyncio.sleep(0.05)
        raise AssertionError("the server is still there")


@asynccontextmanager
async def working_engine(settings: Settings, database: Database) -> AsyncIterator[None]:
    """An engine in this process, on a cloud that can be made to fail."""
    scheduler = Scheduler(database, settings)
    clouds = FaultyClouds(database, settings, scheduler)
    rounds = Rounds(database)
    tasks = [
        asyncio.create_task(cluster_engine.run(settings, database, clouds, rounds)),
        asyncio.create_task(lifecycle.run(database, rounds)),
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await rounds.close()


@asynccontextmanager
async def clustering(database_url: str, *, engine: bool = True, **overrides: Any) -> AsyncIterator[House]:
    """The service on its own database."""
    quick = {"clusters__heartbeat": 0.2, "clusters__dead_after": 1.0}
    settings = config.with_database(config.load(**{**UNLIMITED, **quick, **overrides}), database_url)
    database = Database(database_url)
    services = make_services(settings, database)
    faults = _FAULTS[id(database)] = Faults()
    clouds = FaultyClouds(database, settings, services.scheduler)
    app = App(replace(services, clouds=clouds), RoostAuthenticator(database, 60))
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://roost.test") as http:
            house = House(Api(services, http, {}), settings, database, faults)
            if not engine:
                yield house
                return
            async with working_engine(settings, database):
                yield house
    finally:
        await database.close()


@pytest.fixture
async def house(database_url: str) -> AsyncIterator[House]:
    """A clustering service with one engine."""
    async with clustering(database_url) as made:
        yield made
