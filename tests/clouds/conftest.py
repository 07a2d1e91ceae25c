"""A Roost in front of a Nova, which is a served Roost here: it speaks the same API. tests/lab has a real one."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import yaml

from roost import config
from roost.api.app import App, make_services
from roost.clouds.front import Front
from roost.clouds.nova import Nova
from roost.compute.inventory import images
from roost.errors import Unauthorized
from roost.identity.tokens import Caller
from roost.store.database import Database
from tests.clouds.fault_proxy import FaultProxy
from tests.conftest import Served

NEWEST = "2.1003"


@dataclass
class Keystone:
    """Asks the identity of the Nova behind whose a token is."""

    url: str
    sign_in_at: str | None = None

    async def authenticate(self, secret: str, service: str | None = None, address: str = "") -> Caller:
        async with httpx.AsyncClient() as http:
            headers = {"X-Auth-Token": secret, "X-Subject-Token": secret}
            answer = await http.get(f"{self.url}/identity/v3/auth/tokens", headers=headers)
        if answer.status_code != 200:
            raise Unauthorized("no")
        token = answer.json()["token"]
        roles = tuple(role["name"] for role in token["roles"])
        user, project = token["user"], token["project"]
        return Caller(user["id"], user["name"], project["id"], project["name"], roles)

    async def has_project(self, secret: str, project_id: str) -> bool:
        async with httpx.AsyncClient() as http:
            answer = await http.get(f"{self.url}/identity/v3/projects/{project_id}", headers={"X-Auth-Token": secret})
        return answer.status_code == 200


@dataclass
class Person:
    """Somebody with a token of the Nova behind, who may ask it too."""

    front: httpx.AsyncClient
    nova: httpx.AsyncClient
    token: str

    async def ask(
        self, method: str, path: str, body: Any = None, *, version: str = NEWEST, straight: bool = False
    ) -> Any:
        """One request to the compute API in front, or straight to the Nova behind."""
        http = self.nova if straight else self.front
        headers = {"X-Auth-Token": self.token, "OpenStack-API-Version": f"compute {version}"}
        return await http.request(method, f"/compute/v2.1{path}", json=body, headers=headers)

    async def group(self, *policies: str) -> str:
        """A group, made in front."""
        body = {"server_group": {"name": "group", "policies": list(policies)}}
        answer = await self.ask("POST", "/os-server-groups", body, version="2.1002")
        assert answer.status_code == 200, answer.text
        return str(answer.json()["server_group"]["id"])

    async def boot(self, group: str | None = None) -> str:
        """A server, asked for in front."""
        server = {"name": "s", "flavorRef": "1", "imageRef": images.USUAL[0].id, "networks": "none"}
        hints = {"os:scheduler_hints": {"group": group}} if group else {}
        answer = await self.ask("POST", "/servers", {"server": server, **hints}, version="2.87")
        assert answer.status_code == 202, answer.text
        return str(answer.json()["server"]["id"])


@dataclass
class Cloud:
    """A Roost in front of a Nova, and two who use it."""

    front: Front
    tenant: Person
    operator: Person

    async def host(self, server: str) -> str:
        """Where a server is behind, once it is at rest there."""
        for _ in range(600):
            answer = await self.operator.ask("GET", f"/servers/{server}", version="2.87", straight=True)
            row = answer.json()["server"]
            if row["status"] in ("ACTIVE", "SHUTOFF") and row["OS-EXT-STS:task_state"] is None:
                return str(row["OS-EXT-SRV-ATTR:host"])
            await asyncio.sleep(0.1)
        raise AssertionError(row)

    async def move(self, server: str, host: str) -> None:
        """Move a server behind, past Roost and its rules."""
        moved = {"os-migrateLive": {"host": host, "block_migration": "auto"}}
        answer = await self.operator.ask("POST", f"/servers/{server}/action", moved, version="2.87", straight=True)
        assert answer.status_code == 202, answer.text
        assert await self.host(server) == host


@pytest.fixture
async def cloud(
    served: Served, database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Cloud]:
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(served.clouds))
    loaded = config.load(clusters__cloud="openstack", clusters__os_cloud="roost-admin")
    services = make_services(config.with_database(loaded, database_url), database)
    assert services.front is not None
    await services.front.follow()
    app = App(services, Keystone(served.url))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        httpx.AsyncClient(transport=transport, base_url="http://front.test") as front,
        httpx.AsyncClient(base_url=served.url) as nova,
    ):
        people = [Person(front, nova, await sign_in(served, name)) for name in ("roost", "roost-admin")]
        made = Cloud(services.front, *people)
        yield made
        await clean_up(made)
    services.front.nova.close()


async def sign_in(served: Served, cloud: str) -> str:
    auth = yaml.safe_load(served.clouds.read_text())["clouds"][cloud]["auth"]
    user = {"name": auth["username"], "password": auth["password"], "domain": {"id": "default"}}
    scope = {"project": {"name": auth["project_name"], "domain": {"id": "default"}}}
    body = {"auth": {"identity": {"methods": ["password"], "password": {"user": user}}, "scope": scope}}
    async with httpx.AsyncClient() as http:
        answer = await http.post(f"{served.url}/identity/v3/auth/tokens", json=body)
    return str(answer.headers["X-Subject-Token"])


async def clean_up(cloud: Cloud) -> None:
    for server in (await cloud.tenant.ask("GET", "/servers", version="2.87", straight=True)).json()["servers"]:
        await cloud.tenant.ask("DELETE", f"/servers/{server['id']}", version="2.87", straight=True)
    listed = await cloud.tenant.ask("GET", "/os-server-groups", version="2.87", straight=True)
    for group in listed.json()["server_groups"]:
        await cloud.tenant.ask("DELETE", f"/os-server-groups/{group['id']}", version="2.87", straight=True)


def through(proxy: FaultProxy, served: Served) -> Nova:
    """The Nova as Roost's user finds it behind a proxy."""
    entry = yaml.safe_load(served.clouds.read_text())["clouds"]["roost-admin"]
    own = {"load_yaml_config": False, "load_envvars": False}
    return Nova(None, {**own, **entry, "compute_endpoint_override": f"{proxy.url}/compute/v2.1"})
