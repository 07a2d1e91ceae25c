"""The map of the fleet and the feed of its changes: all for the operator, a project's own for everybody else."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from roost.api.compute import fleet
from roost.api.compute.fleet import routes
from tests.api.compute.conftest import Compute
from tests.compute.cloud import NEWEST, Cloud
from tests.conftest import Api


async def seen(compute: Compute, query: str = "", cloud: str = "roost-admin") -> dict[str, Any]:
    body: dict[str, Any] = await compute.get(f"/os-fleet{query}", version=NEWEST, cloud=cloud)
    return dict(body["fleet"])


def tiles(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {tile["name"]: tile for tile in found["aggregates"]}


def marks(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [server for tile in found["aggregates"] for host in tile["hosts"] or () for server in host["servers"]]


async def test_the_operator_sees_every_rack_with_its_counts_and_no_hosts(compute: Compute, cloud: Cloud) -> None:
    server = await cloud.boot()
    host = await cloud.host(server)
    found = await seen(compute, "?scope=rack")
    assert (found["scope"], found["all"], len(found["aggregates"])) == ("rack", True, 12)
    assert {tile["zone"] for tile in found["aggregates"]} == {"zone1", "zone2", "zone3"}
    assert all(tile["hosts"] is None and tile["host_count"] == 4 for tile in found["aggregates"])
    assert host is not None
    full = tiles(found)[host.rpartition("-")[0]]
    assert full["servers"] == 1
    assert 0 < full["load"] < 1
    assert sum(tile["servers"] for tile in found["aggregates"]) == 1


async def test_zones_are_the_division_if_none_is_named(compute: Compute) -> None:
    found = await seen(compute)
    assert found["scopes"] == [{"name": name, "named": True} for name in ("availability_zone", "rack", "switch")]
    named = {scope["name"]: scope["named"] for scope in (await seen(compute, "", "roost"))["scopes"]}
    assert named == {"availability_zone": True, "rack": False, "switch": False}
    assert [(tile["id"], tile["zone"], tile["host_count"]) for tile in found["aggregates"]] == [
        (zone, zone, 16) for zone in ("zone1", "zone2", "zone3")
    ]


async def test_aggregates_are_opened_one_by_one_or_all(compute: Compute, cloud: Cloud) -> None:
    group = await cloud.group("anti-affinity")
    server = await cloud.boot(group=group)
    await cloud.change_host("zone1-rack1-host1", enabled=False, disabled_reason="a fan")
    racks = tiles(await seen(compute, "?scope=rack"))
    one = tiles(await seen(compute, f"?scope=rack&open={racks['zone1-rack1']['id']}"))
    assert [host["name"] for host in one["zone1-rack1"]["hosts"]] == [f"zone1-rack1-host{n}" for n in range(1, 5)]
    assert (one["zone1-rack1"]["hosts"][0]["enabled"], one["zone1-rack1"]["hosts"][0]["reason"]) == (False, "a fan")
    assert one["zone1-rack1"]["disabled"] == 1
    assert one["zone1-rack2"]["hosts"] is None
    every = await seen(compute, "?scope=rack&open=all")
    (mark,) = marks(every)
    assert (mark["id"], mark["server_group_id"], mark["state"], mark["violates"]) == (server, group, "active", False)
    assert [each["id"] for each in every["groups"]] == [group]


async def test_only_some_are_answered_if_asked_for(compute: Compute) -> None:
    wanted = [tile["id"] for tile in (await seen(compute, "?scope=rack"))["aggregates"]][2:4]
    found = await seen(compute, f"?scope=rack&only={wanted[0]}&only={wanted[1]}")
    assert [tile["id"] for tile in found["aggregates"]] == wanted


async def test_the_members_of_a_group_are_counted(compute: Compute, cloud: Cloud) -> None:
    group = await cloud.group("anti-affinity:rack")
    for _ in range(3):
        await cloud.boot(group=group)
    await cloud.boot()
    found = await seen(compute, f"?scope=rack&group={group}")
    assert sorted(tile["members"] for tile in found["aggregates"])[-4:] == [0, 1, 1, 1]
    holding = {tile["id"] for tile in found["aggregates"] if tile["members"]}
    alone = await seen(compute, f"?scope=rack&group={group}&members=1")
    assert {tile["id"] for tile in alone["aggregates"]} == holding
    (other,) = [tile["id"] for tile in found["aggregates"] if not tile["members"]][:1]
    both = await seen(compute, f"?scope=rack&group={group}&members=1&only={other}")
    assert {tile["id"] for tile in both["aggregates"]} == {*holding, other}


async def test_a_broken_rule_shows_where_it_is_and_goes_when_it_is_mended(compute: Compute, cloud: Cloud) -> None:
    group = await cloud.group("anti-affinity:rack")
    first, second = await cloud.boot(group=group), await cloud.boot(group=group)
    assert (await seen(compute, "?scope=rack"))["violation_count"] == 0
    await forced(cloud, group, second, await cloud.host(first))
    found = await seen(compute, "?scope=rack&open=all")
    (violation,) = found["violations"]
    assert (violation["breach"], violation["server_group_id"]) == ("too_many", group)
    assert set(violation["members"]) == {first, second}
    (glowing,) = [tile for tile in found["aggregates"] if tile["violations"]]
    assert found["violating"] == [{"zone": glowing["zone"], "id": glowing["id"], "violations": 1}]
    assert {mark["id"] for mark in marks(found) if mark["violates"]} == {first, second}
    await cloud.delete(second)
    found = await seen(compute, "?scope=rack&open=all")
    assert (found["violations"], found["violating"]) == ([], [])


async def forced(cloud: Cloud, group: str, server: str, host: str | None) -> None:
    """Put a server where its group's rules do not want it: they bind the scheduler, and members only."""
    for verb in ("remove_instance", "add_instance"):
        body = {verb: {"instance_id": server}}
        assert (await cloud.ask("POST", f"/os-server-groups/{group}/action", json=body)).is_success
        if verb == "remove_instance":
            await cloud.done(server, "os-migrateLive", {"host": host, "block_migration": "auto"})


async def test_a_host_that_changes_racks_can_break_a_rule(compute: Compute, cloud: Cloud, api: Api) -> None:
    group = await cloud.group("anti-affinity:rack")
    first, second = await cloud.boot(group=group), await cloud.boot(group=group)
    hosts = [await cloud.host(server) for server in (first, second)]
    racks = tiles(await seen(compute, "?scope=rack"))
    here, there = (racks[str(host).rpartition("-")[0]]["id"] for host in hosts)
    for rack, verb, host in ((there, "remove_host", hosts[1]), (here, "add_host", hosts[1])):
        answer = await api.post(f"/compute/v2.1/os-aggregates/{rack}/action", {verb: {"host": host}})
        assert answer.is_success, answer.text
    assert (await seen(compute, "?scope=rack"))["violation_count"] == 1


async def test_a_project_sees_its_own_servers_and_nothing_else(compute: Compute, cloud: Cloud) -> None:
    mine = {await cloud.boot(), await cloud.boot()}
    theirs = await cloud.boot(cloud="roost-alt", name="secret")
    found = await seen(compute, "?scope=rack", "roost")
    assert found["all"] is False
    assert {mark["id"] for mark in marks(found)} == mine
    assert all({"host_count", "load", "disabled"}.isdisjoint(tile) for tile in found["aggregates"])
    text = json.dumps(found)
    racks = {tile["id"] for tile in (await seen(compute, "?scope=rack"))["aggregates"]}
    assert racks.isdisjoint(tile["id"] for tile in found["aggregates"])
    assert [word for word in (theirs, "secret", "rack1", "host1", await cloud.project("alt")) if word in text] == []


async def test_what_a_project_may_not_name_is_called_differently_each_time(compute: Compute, cloud: Cloud) -> None:
    await cloud.boot()
    first, second = [(await seen(compute, "?scope=rack", "roost"))["aggregates"][0] for _ in range(2)]
    assert first["id"] != second["id"]
    assert first["hosts"][0]["name"] == second["hosts"][0]["name"]
    zones = (await seen(compute, "", "roost"))["aggregates"]
    assert zones[0]["name"] == first["zone"]


async def test_a_project_reads_its_broken_rules_in_its_own_words(compute: Compute, cloud: Cloud) -> None:
    group = await cloud.group("anti-affinity:rack")
    first, second = await cloud.boot(group=group), await cloud.boot(group=group)
    await forced(cloud, group, second, await cloud.host(first))
    found = await seen(compute, "?scope=rack", "roost")
    (violation,) = found["violations"]
    (glowing,) = [tile for tile in found["aggregates"] if tile["violations"]]
    assert violation["aggregate"] == glowing["id"]
    assert (await seen(compute, "?scope=rack", "roost-alt"))["violation_count"] == 0


@pytest.mark.parametrize("query", ["?scope=shelf", "?scope=host"])
async def test_there_is_no_map_by_what_is_no_scope(compute: Compute, query: str) -> None:
    status, _ = await compute.refusal("GET", f"/os-fleet{query}", version=NEWEST)
    assert status == 404


async def test_it_is_there_since_2_1003_and_for_those_who_sign_in(compute: Compute) -> None:
    assert (await compute.refusal("GET", "/os-fleet", version="2.1002"))[0] == 404
    assert (await compute.ask("GET", "/os-fleet", version=NEWEST, cloud=None)).status_code == 401


# The feed


@asynccontextmanager
async def following(api: Api, cloud: str) -> AsyncIterator[AsyncIterator[tuple[str, Any]]]:
    """The events that somebody is sent, read as the application sends them."""
    call: asyncio.Queue[tuple[str, Any] | None] = asyncio.Queue()
    headers = [(b"x-auth-token", (await api.token(cloud)).encode()), (b"openstack-api-version", b"compute 2.1003")]
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/compute/v2.1/os-fleet/events",
        "query_string": b"scope=rack",
        "headers": headers,
        "scheme": "http",
        "server": ("roost.test", 80),
    }

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            assert message["status"] == 200
            assert dict(message["headers"])[b"content-type"].startswith(b"text/event-stream")
        for block in message.get("body", b"").decode().split("\n\n"):
            if block:
                name, data = block.split("\n")
                await call.put((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
        if message["type"] == "http.response.body" and not message.get("more_body"):
            await call.put(None)

    async def events() -> AsyncIterator[tuple[str, Any]]:
        while (event := await asyncio.wait_for(call.get(), 30)) is not None:
            yield event

    transport: Any = api.http._transport
    task = asyncio.create_task(transport.app(scope, receive, send))
    try:
        yield events()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def heard(events: AsyncIterator[tuple[str, Any]], key: str) -> Any:
    """The next change of a kind."""
    async for name, data in events:
        if name == "change" and key in data:
            return data[key]
    raise AssertionError("the feed ended")


async def begun(events: AsyncIterator[tuple[str, Any]]) -> None:
    """Past the first change, which says that anything may have changed before."""
    assert await anext(events) == ("hello", {})
    assert await heard(events, "aggregates") is None


async def test_a_new_server_is_told_by_the_rack_it_is_in(api: Api, compute: Compute, cloud: Cloud) -> None:
    async with following(api, "roost-admin") as events:
        await begun(events)
        server = await cloud.boot()
        changed = await heard(events, "aggregates")
    racks = tiles(await seen(compute, "?scope=rack"))
    assert changed == [racks[str(await cloud.host(server)).rpartition("-")[0]]["id"]]


async def test_groups_are_told_by_their_ids(api: Api, cloud: Cloud) -> None:
    async with following(api, "roost") as events:
        await begun(events)
        group = await cloud.group("anti-affinity")
        assert await heard(events, "groups") == [group]


async def test_a_project_is_told_of_its_own_and_by_no_real_name(api: Api, cloud: Cloud) -> None:
    async with following(api, "roost-alt") as events:
        await begun(events)
        await cloud.boot()
        await cloud.group("anti-affinity")
        await cloud.change_host("zone1-rack1-host1", enabled=False)
        mine = await cloud.group("affinity", cloud="roost-alt")
        assert (await anext(events)) == ("change", {"groups": [mine]})
        await cloud.boot(cloud="roost-alt")
        assert await heard(events, "aggregates") is None


async def test_a_host_that_is_disabled_is_told(api: Api, cloud: Cloud) -> None:
    async with following(api, "roost-admin") as events:
        await begun(events)
        await cloud.change_host("zone1-rack1-host1", enabled=False)
        assert await heard(events, "aggregates") is None


async def test_the_feed_ends_when_the_token_does(api: Api, cloud: Cloud) -> None:
    async with following(api, "roost") as events:
        await begun(events)
        token = api.tokens["roost"]
        await api.delete("/identity/v3/auth/tokens", headers={"X-Subject-Token": token}, cloud="roost-admin")
        del api.tokens["roost"]
        await cloud.group("anti-affinity")
        assert [event async for event in events][-1] == ("bye", {})


async def test_the_feed_ends_when_the_process_stops(api: Api) -> None:
    async with following(api, "roost") as events:
        await begun(events)
        api.services.watch.close()
        assert [event async for event in events] == [("bye", {})]


async def test_a_feed_is_counted_as_a_request_and_not_timed_as_one(api: Api) -> None:
    counted, timed = "roost_api_requests_total{", "roost_api_request_seconds_count{"
    before = await _metrics(api)
    async with following(api, "roost") as events:
        await begun(events)
        api.services.watch.close()
        assert [event async for event in events] == [("bye", {})]
    after = await _metrics(api)
    assert [line for line in after if line.startswith(counted)] != [line for line in before if line.startswith(counted)]
    assert [line for line in after if line.startswith(timed)] == [line for line in before if line.startswith(timed)]


async def _metrics(api: Api) -> list[str]:
    """The lines about the feed."""
    text = (await api.get("/metrics", cloud=None)).text
    return [line for line in text.splitlines() if 'route="/v2.1/os-fleet/events"' in line]


async def test_silence_is_broken_by_a_sign_of_life(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "_PATIENCE", 0.05)
    async with following(api, "roost") as events:
        await begun(events)
        assert await anext(events) == ("beat", {})


def test_the_feed_and_the_map_have_one_permission() -> None:
    assert {route.rule for route in routes.routes} == {fleet.INDEX}
