"""The scheduler API: who may use it, and what it takes and gives."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

import httpx
import pytest

from roost import config
from roost.api.app import App, make_services
from roost.api.auth import RoostAuthenticator
from roost.clouds.server_groups import EmbeddedGroups
from roost.compute.fronting.choice import COLUMNS
from roost.store.database import Database
from roost.store.tables.servers import servers
from tests.conftest import Api

UNKNOWN = "00000000-0000-4000-8000-000000000000"


@asynccontextmanager
async def served_in_front(database: Database, database_url: str) -> AsyncIterator[Api]:
    """The API as it is in front of a Nova that is not asked anything here."""
    settings = config.with_database(config.load(clusters__cloud="openstack"), database_url)
    services = replace(make_services(settings, database), front=None, groups=EmbeddedGroups(database, settings))
    transport = httpx.ASGITransport(app=App(services, RoostAuthenticator(database, 0)), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://roost.test") as http:
        yield Api(services, http, {})


@pytest.fixture
async def front(database: Database, database_url: str) -> AsyncIterator[Api]:
    """The API as it is in front of a Nova."""
    async with served_in_front(database, database_url) as made:
        yield made


async def make_group(api: Api) -> str:
    body = {"server_group": {"name": "g", "policies": [{"name": "anti-affinity"}]}}
    response = await api.post("/compute/v2.1/os-server-groups", body, cloud="roost", version="2.1003")
    return str(response.json()["server_group"]["id"])


def wanted(group: str | None, *hosts: str, **changes: Any) -> dict[str, Any]:
    columns = {name: [4.0] * len(hosts) for name in COLUMNS}
    asked = {
        "instance_id": str(uuid4()),
        "group_id": group,
        "project_id": "demo",
        "user_id": "user",
        "resources": {"vcpus": 1, "memory_mb": 512, "disk_gb": 1},
        "hosts": {"names": hosts, **columns},
    }
    return {"choice": asked | changes}


async def test_a_place_is_chosen_and_reserved(api: Api, front: Api) -> None:
    group = await make_group(api)
    first = await front.post("/scheduler/choices", wanted(group, "zone1-rack1-host1"))
    assert first.json()["choice"] == {"hosts": ["zone1-rack1-host1"], "weights": [0.0]}
    second = await front.post("/scheduler/choices", wanted(group, "zone1-rack1-host1"))
    assert second.json()["choice"] == {"hosts": [], "weights": []}


@pytest.mark.parametrize("group", [None, UNKNOWN, "unheard-of"])
async def test_what_no_group_binds_is_not_there(front: Api, group: str | None) -> None:
    assert (await front.post("/scheduler/choices", wanted(group, "zone1-rack1-host1"))).status_code == 404


async def test_servers_that_nova_does_not_know_to_be_members_are_listed(api: Api, front: Api) -> None:
    assert (await front.get("/scheduler/adopted")).json() == {"adopted": []}
    group, instance = await make_group(api), str(uuid4())
    await front.post("/scheduler/choices", wanted(group, "zone1-rack1-host1", instance_id=instance))
    assert (await front.get("/scheduler/adopted")).json() == {"adopted": []}, "Nova has named the group itself"
    async with front.services.database.begin() as connection:
        await connection.execute(servers.update().values(hints={}))
    assert (await front.get("/scheduler/adopted")).json() == {"adopted": [instance]}


async def test_tenants_may_not(front: Api) -> None:
    assert (await front.get("/scheduler/adopted", cloud="roost")).status_code == 403
    assert (await front.get("/scheduler/adopted", cloud=None)).status_code == 401
    assert (await front.post("/scheduler/choices", wanted(UNKNOWN), cloud="roost")).status_code == 403


@pytest.mark.parametrize("column", [[], ["four"], [None], [[4]], [float("nan")]])
async def test_columns_that_are_no_numbers_are_refused(api: Api, front: Api, column: list[Any]) -> None:
    body = wanted(await make_group(api), "zone1-rack1-host1")
    body["choice"]["hosts"]["vcpus_used"] = column
    kind = {"Content-Type": "application/json"}
    answer = await front.request("POST", "/scheduler/choices", content=json.dumps(body), headers=kind)
    assert answer.status_code == 400, answer.text


async def test_a_host_that_roost_does_not_know_takes_nobody(api: Api, front: Api) -> None:
    answer = await front.post("/scheduler/choices", wanted(await make_group(api), "nowhere"))
    assert answer.json()["choice"]["hosts"] == []


async def test_without_a_nova_behind_it_there_is_no_such_api(api: Api) -> None:
    assert (await api.get("/scheduler/adopted")).status_code == 404
