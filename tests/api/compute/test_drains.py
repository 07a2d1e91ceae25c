"""Drains: hosts take no new servers, and the engine moves those that they have; paused, stopped and refused."""

from typing import Any

from roost.compute.scheduling import lifecycle
from tests.api.compute.conftest import Compute
from tests.api.compute.test_explanations import boot, make_group
from tests.api.compute.test_plans import RACK, VERSION, hosts_of, rack_of
from tests.api.compute.test_repairs import violations, work


async def crowd(compute: Compute, number: int = 2) -> tuple[str, list[str]]:
    """A host with servers in no group, and one of a group; its name, and they."""
    group = await make_group(compute, RACK)
    first = (await boot(compute, group))[0]
    host = first["OS-EXT-SRV-ATTR:host"]
    image = first["image"]["id"]
    server = {"name": "s", "flavorRef": "1", "imageRef": image, "networks": "none", "host": host}
    for _ in range(number):
        body = {"server": server}
        assert (await compute.api.post("/compute/v2.1/servers", body, version="2.90")).status_code == 202
    await lifecycle.finish(compute.api.services.database)
    listed = await compute.get(f"/servers?host={host}&all_tenants=1")
    return host, [each["id"] for each in listed["servers"]]


async def drain(compute: Compute, scope: str, identifier: str, **budget: int) -> dict[str, Any]:
    body = {"drain": {"scope": scope, "identifier": identifier, **budget}}
    return dict((await compute.post("/os-drains", body, version=VERSION))["drain"])


async def shown(compute: Compute, drain_id: str) -> dict[str, Any]:
    return dict((await compute.get(f"/os-drains/{drain_id}", version=VERSION))["drain"])


async def service(compute: Compute, host: str) -> dict[str, Any]:
    (found,) = (await compute.get(f"/os-services?host={host}", version=VERSION))["services"]
    return dict(found)


async def test_a_host_is_drained_by_the_engine_in_groups_or_not(compute: Compute) -> None:
    host, servers = await crowd(compute)
    begun = await drain(compute, "host", host, max_parallel=2)
    assert (begun["status"], begun["scope"], begun["identifier"], len(begun["moves"])) == ("running", "host", host, 3)
    assert (await service(compute, host))["status"] == "disabled"
    await work(compute, finish=False)
    assert sorted(move["state"] for move in (await shown(compute, begun["id"]))["moves"]) == [
        "running", "running", "waiting"
    ]  # fmt: skip
    await work(compute, 4)
    ended = await shown(compute, begun["id"])
    assert (ended["status"], ended["sentence"]) == ("done", "3 of 3 moves done.")
    moved = {move["server_id"]: move["target"]["host"] for move in ended["moves"]}
    assert await hosts_of(compute, servers) == [moved[each] for each in servers]
    assert host not in moved.values()


async def test_a_rack_is_drained_without_breaking_a_rule(compute: Compute) -> None:
    group = await make_group(compute, RACK)
    await boot(compute, group, 3)
    first = (await compute.get(f"/os-server-groups/{group}", version=VERSION))["server_group"]["members"][0]
    (host,) = await hosts_of(compute, [first])
    rack = host.rpartition("-")[0]
    begun = await drain(compute, "rack", await rack_of(compute, host))
    await work(compute, 4)
    assert (await shown(compute, begun["id"]))["status"] == "done"
    assert not (await hosts_of(compute, [first]))[0].startswith(rack)
    assert await violations(compute, group) == []
    states = {(await service(compute, f"{rack}-host{number}"))["status"] for number in range(1, 5)}
    assert states == {"disabled"}


async def test_a_paused_drain_begins_no_move_until_it_goes_on(compute: Compute) -> None:
    host, _ = await crowd(compute)
    begun = await drain(compute, "host", host)
    path = f"/os-drains/{begun['id']}"
    assert (await compute.put(path, {"drain": {"paused": True}}, version=VERSION))["drain"]["paused"]
    await work(compute, 3)
    assert {move["state"] for move in (await shown(compute, begun["id"]))["moves"]} == {"waiting"}
    await compute.put(path, {"drain": {"paused": False}}, version=VERSION)
    await work(compute, 6)
    assert (await shown(compute, begun["id"]))["status"] == "done"
    status, message = await compute.refusal("PUT", path, {"drain": {"paused": True}}, version=VERSION)
    assert (status, message) == (409, f"Drain {begun['id']} has ended.")


async def test_a_stopped_drain_leaves_the_others_and_the_host_disabled(compute: Compute) -> None:
    host, _ = await crowd(compute)
    begun = await drain(compute, "host", host)
    await work(compute, finish=False)
    await compute.delete(f"/os-drains/{begun['id']}", version=VERSION)
    await work(compute, 3)
    ended = await shown(compute, begun["id"])
    assert (ended["status"], ended["reason"]) == ("stopped", "Stopped after 1 of 3 moves.")
    assert (await service(compute, host))["status"] == "disabled"


async def test_a_place_is_drained_once_at_a_time_and_found_by_its_name(compute: Compute) -> None:
    host, _ = await crowd(compute, 1)
    begun = await drain(compute, "host", host)
    body = {"drain": {"scope": "host", "identifier": host}}
    status, message = await compute.refusal("POST", "/os-drains", body, version=VERSION)
    assert (status, message) == (409, f"host {host} is being drained already; stop that drain, or wait.")
    listed = (await compute.get(f"/os-drains?scope=host&identifier={host}", version=VERSION))["drains"]
    assert [each["id"] for each in listed] == [begun["id"]]
    assert (await compute.get("/os-drains?scope=host&identifier=other", version=VERSION))["drains"] == []


async def test_an_empty_host_is_drained_at_once_and_keeps_the_reason_it_has(compute: Compute) -> None:
    host = "zone1-rack1-host1"
    values = {"status": "disabled", "disabled_reason": "a new fan"}
    path = f"/os-services/{(await service(compute, host))['id']}"
    await compute.put(path, values, version=VERSION)
    done = await drain(compute, "host", host)
    assert (done["status"], done["reason"]) == ("done", "There was nothing to move.")
    assert (await service(compute, host))["disabled_reason"] == "a new fan"


async def test_what_is_not_there_and_whoever_is_no_operator_is_refused(compute: Compute) -> None:
    for scope, identifier, status in (("host", "nowhere", 400), ("rack", "nowhere", 404), ("galaxy", "1", 400)):
        body = {"drain": {"scope": scope, "identifier": identifier}}
        assert (await compute.refusal("POST", "/os-drains", body, version=VERSION))[0] == status
    body = {"drain": {"scope": "host", "identifier": "zone1-rack1-host1"}}
    assert (await compute.refusal("POST", "/os-drains", body, version=VERSION, cloud="roost"))[0] == 403
    assert (await compute.refusal("GET", "/os-drains", version=VERSION, cloud="roost"))[0] == 403
    assert (await compute.refusal("GET", "/os-drains/unknown", version=VERSION))[0] == 404
    assert (await service(compute, "zone1-rack1-host1"))["status"] == "enabled"
    assert (await compute.get("/os-drains", version=VERSION))["drains"] == []
