"""The scheduler API: who may use it, and what it takes and gives."""

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
from roost.store.database import Database
from tests.conftest import Api

UNKNOWN = "00000000-0000-4000-8000-000000000000"


@asynccontextmanager
async def served_in_front(database: Database, database_url: str) -> AsyncIterator[Api]:
    """The API as it is in front of a Nova, of which nobody asks anything here."""
    settings = config.with_database(config.load(clusters__cloud="openstack"), database_url)
    services = replace(make_services(settings, database), front=None)
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


async def order(front: Api, group: str, **changes: Any) -> dict[str, Any]:
    known = (await front.get(f"/scheduler/groups/{group}")).json()["group"]
    topology = (await front.get("/scheduler/topology")).json()["topology"]
    wanted = {
        "instance_id": str(uuid4()),
        "project_id": "demo",
        "user_id": "user",
        "resources": {"vcpus": 1, "memory_mb": 512, "disk_gb": 1},
        "host": "zone1-rack1-host1",
        "version": known["version"],
        "generation": topology["generation"],
        "record": {},
    }
    return {"reservation": wanted | changes}


async def test_a_place_is_reserved_once(api: Api, front: Api) -> None:
    group = await make_group(api)
    wanted = await order(front, group)
    first = await front.post(f"/scheduler/groups/{group}/reservations", wanted)
    assert first.status_code == 200
    assert first.json()["reservation"]["hosts"] == ["zone1-rack1-host1"]
    second = await front.post(f"/scheduler/groups/{group}/reservations", await order(front, group, version=1))
    assert second.status_code == 409
    assert second.json()["group"]["members"] == {wanted["reservation"]["instance_id"]: ["zone1-rack1-host1"]}
    assert second.json()["group"]["version"] == first.json()["reservation"]["version"]


async def test_a_decision_on_hosts_that_have_changed_since_is_stale(api: Api, front: Api) -> None:
    group = await make_group(api)
    old = await order(front, group, generation=0)
    assert (await front.post(f"/scheduler/groups/{group}/reservations", old)).status_code == 409


async def test_only_what_changed_is_told_again(api: Api, front: Api) -> None:
    everything = (await front.get("/scheduler/topology")).json()["topology"]
    assert everything["complete"]
    assert len(everything["hosts"]) == 48
    since = everything["generation"]
    aggregate = await api.post("/compute/v2.1/os-aggregates", {"aggregate": {"name": "new"}}, version="2.1")
    number = aggregate.json()["aggregate"]["id"]
    body = {"add_host": {"host": "zone1-rack1-host1"}}
    await api.post(f"/compute/v2.1/os-aggregates/{number}/action", body, version="2.1")
    changed = (await front.get(f"/scheduler/topology?since={since}")).json()["topology"]
    assert not changed["complete"]
    assert list(changed["hosts"]) == ["zone1-rack1-host1"]
    assert changed["hosts"]["zone1-rack1-host1"]["availability_zone"] == "zone1"
    assert (await front.get(f"/scheduler/topology?since={10**9}")).json()["topology"]["complete"]


@pytest.mark.parametrize(
    ("path", "status"), [("/scheduler/groups/unheard-of", 404), (f"/scheduler/groups/{UNKNOWN}", 404)]
)
async def test_what_is_not_there(front: Api, path: str, status: int) -> None:
    assert (await front.get(path)).status_code == status


async def test_tenants_may_not(front: Api) -> None:
    for path in ("/scheduler/topology", f"/scheduler/groups/{uuid4()}"):
        assert (await front.get(path, cloud="roost")).status_code == 403
        assert (await front.get(path, cloud=None)).status_code == 401


async def test_a_host_that_is_not_there_is_refused(api: Api, front: Api) -> None:
    group = await make_group(api)
    response = await front.post(f"/scheduler/groups/{group}/reservations", await order(front, group, host="nowhere"))
    assert response.status_code == 400


async def test_without_a_nova_behind_it_there_is_no_such_api(api: Api) -> None:
    assert (await api.get("/scheduler/topology")).status_code == 404
