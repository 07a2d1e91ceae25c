"""Host aggregates: every verb, every refusal, and the promises about zones and scopes."""

import asyncio
import re
from typing import Any

import sqlalchemy as sa

from roost.compute.inventory.images import USUAL
from roost.store.database import Database
from roost.store.tables.compute import fleet_changes, hosts
from tests.api.compute.conftest import Compute

HOST, OTHER = "zone1-rack1-host1", "zone2-rack1-host1"
TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}$")


async def made(compute: Compute, name: str, zone: str | None = None, *members: str, **metadata: str) -> int:
    """The id of a new aggregate with these hosts and metadata."""
    body = {"aggregate": {"name": name, **({"availability_zone": zone} if zone else {})}}
    number: int = (await compute.post("/os-aggregates", body))["aggregate"]["id"]
    if metadata:
        await act(compute, number, "set_metadata", metadata=metadata)
    for host in members:
        await act(compute, number, "add_host", host=host)
    return number


async def act(compute: Compute, number: int, action: str, **values: Any) -> dict[str, Any]:
    """The aggregate after an action."""
    answer = await compute.post(f"/os-aggregates/{number}/action", {action: values})
    found: dict[str, Any] = answer["aggregate"]
    return found


async def refused(compute: Compute, number: int, action: str, **values: Any) -> tuple[int, str]:
    """How an action is refused."""
    return await compute.refusal("POST", f"/os-aggregates/{number}/action", {action: values})


async def free_of_zones(compute: Compute, *names: str) -> None:
    """Take hosts out of the zone that the topology put them in."""
    for aggregate in (await compute.get("/os-aggregates"))["aggregates"]:
        for name in set(names) & set(aggregate["hosts"]):
            if aggregate["availability_zone"]:
                await act(compute, aggregate["id"], "remove_host", host=name)


async def occupied(database: Database, name: str, servers: int) -> None:
    """Let a host hold servers."""
    async with database.begin() as connection:
        await connection.execute(hosts.update().where(hosts.c.name == name).values(servers=servers))


async def test_a_new_aggregate_is_answered_without_hosts_and_metadata(compute: Compute) -> None:
    body = {"aggregate": {"name": "a", "availability_zone": "z"}}
    answer = (await compute.post("/os-aggregates", body, version="2.41"))["aggregate"]
    assert TIME.match(answer.pop("created_at"))
    assert len(answer.pop("uuid")) == 36
    number = answer.pop("id")
    assert answer == {
        "name": "a",
        "availability_zone": "z",
        "updated_at": None,
        "deleted": False,
        "deleted_at": None,
    }
    shown = (await compute.get(f"/os-aggregates/{number}"))["aggregate"]
    assert "uuid" not in shown
    assert (shown["hosts"], shown["metadata"]) == ([], {"availability_zone": "z"})


async def test_the_topology_is_seen_as_aggregates(compute: Compute) -> None:
    listed = {item["name"]: item for item in (await compute.get("/os-aggregates", version="2.102"))["aggregates"]}
    assert listed["zone1"]["metadata"] == {"availability_zone": "zone1"}
    assert len(listed["zone1"]["hosts"]) == 16
    assert listed["zone1-rack1"]["metadata"] == {"policy_scope": "rack"}
    assert listed["zone1-rack1"]["hosts"] == [f"zone1-rack1-host{number}" for number in (1, 2, 3, 4)]
    assert listed["zone1-switch1"]["metadata"] == {"policy_scope": "switch"}


async def test_an_aggregate_gets_another_name_and_zone(compute: Compute) -> None:
    number = await made(compute, "a")
    body = {"aggregate": {"name": " b ", "availability_zone": "z"}}
    answer = (await compute.put(f"/os-aggregates/{number}", body))["aggregate"]
    assert (answer["name"], answer["availability_zone"]) == ("b", "z")
    assert TIME.match(answer["updated_at"])


async def test_metadata_are_merged_and_null_removes_a_key(compute: Compute) -> None:
    number = await made(compute, "a", None, a="1", b="2")
    answer = await act(compute, number, "set_metadata", metadata={"a": None, "b": "3", "c": "4", "gone": None})
    assert answer["metadata"] == {"b": "3", "c": "4"}


async def test_the_zone_and_the_scope_are_set_as_metadata(compute: Compute) -> None:
    await free_of_zones(compute, HOST)
    rack = next(item for item in (await compute.get("/os-aggregates"))["aggregates"] if item["name"] == "zone1-rack1")
    cleared = await act(compute, rack["id"], "set_metadata", metadata={"policy_scope": None})
    assert cleared["metadata"] == {}
    number = await made(compute, "a", None, HOST)
    answer = await act(
        compute, number, "set_metadata", metadata={"availability_zone": "z", "policy_scope": "rack", "k": "v"}
    )
    assert answer["metadata"] == {"availability_zone": "z", "policy_scope": "rack", "k": "v"}
    assert answer["availability_zone"] == "z"
    (service,) = (await compute.get(f"/os-services?host={HOST}"))["services"]
    assert service["zone"] == "z"


async def test_a_host_leaves_the_zone_with_its_aggregate(compute: Compute) -> None:
    await free_of_zones(compute, HOST)
    (service,) = (await compute.get(f"/os-services?host={HOST}"))["services"]
    assert service["zone"] == "nova"


async def test_two_aggregates_of_one_zone_may_share_a_host(compute: Compute) -> None:
    number = await made(compute, "a", "zone1", HOST)
    await act(compute, number, "remove_host", host=HOST)
    (service,) = (await compute.get(f"/os-services?host={HOST}"))["services"]
    assert service["zone"] == "zone1"


async def test_an_empty_aggregate_is_deleted(compute: Compute) -> None:
    number = await made(compute, "a", None, HOST)
    reason = f"Cannot remove host from aggregate {number}. Reason: Host aggregate is not empty."
    assert await compute.refusal("DELETE", f"/os-aggregates/{number}") == (400, reason)
    await act(compute, number, "remove_host", host=HOST)
    await compute.delete(f"/os-aggregates/{number}")
    missing = (404, f"Aggregate {number} could not be found.")
    assert await compute.refusal("GET", f"/os-aggregates/{number}") == missing
    assert await compute.refusal("DELETE", f"/os-aggregates/{number}") == missing
    assert await compute.refusal("PUT", f"/os-aggregates/{number}", {"aggregate": {"name": "b"}}) == missing
    assert await refused(compute, number, "add_host", host=HOST) == missing
    assert await refused(compute, number, "set_metadata", metadata={}) == missing


async def test_a_host_in_another_zone_is_refused(compute: Compute) -> None:
    number = await made(compute, "a", "z")
    reason = "One or more hosts already in availability zone(s) ['zone1']."
    expected = (409, f"Cannot add host to aggregate {number}. Reason: {reason}")
    assert await refused(compute, number, "add_host", host=HOST) == expected

    number = await made(compute, "b", None, HOST)
    put = await compute.refusal("PUT", f"/os-aggregates/{number}", {"aggregate": {"availability_zone": "z"}})
    assert put == (400, f"Cannot update aggregate {number}. Reason: {reason}")
    set_metadata = await refused(compute, number, "set_metadata", metadata={"availability_zone": "z"})
    assert set_metadata == (400, f"Cannot update metadata of aggregate {number}. Reason: {reason}")
    assert (await compute.get(f"/os-aggregates/{number}"))["aggregate"]["availability_zone"] is None


async def test_a_host_in_another_aggregate_of_the_scope_is_refused(compute: Compute) -> None:
    number = await made(compute, "a", None, policy_scope="rack")
    reason = "One or more hosts already in aggregate(s) ['zone1-rack1'] of the same policy scope."
    expected = (409, f"Cannot add host to aggregate {number}. Reason: {reason}")
    assert await refused(compute, number, "add_host", host=HOST) == expected

    number = await made(compute, "b", None, HOST)
    expected = (400, f"Cannot update metadata of aggregate {number}. Reason: {reason}")
    assert await refused(compute, number, "set_metadata", metadata={"policy_scope": "rack"}) == expected


async def test_a_host_that_holds_servers_does_not_change_its_zone(compute: Compute, database: Database) -> None:
    await free_of_zones(compute, OTHER)
    for name in (HOST, OTHER):
        await occupied(database, name, 3)
    number = await made(compute, "a", "z")
    status, message = await refused(compute, number, "add_host", host=OTHER)
    assert status == 409
    assert message.startswith(
        f"Cannot add host to aggregate {number}. Reason: The host cannot be added to the aggregate as the "
        "availability zone of the host would change from 'None' to 'z' but the host already has 3 instance(s)."
    )
    zone1 = next(item for item in (await compute.get("/os-aggregates"))["aggregates"] if item["name"] == "zone1")
    status, message = await refused(compute, zone1["id"], "remove_host", host=HOST)
    assert status == 409
    assert "would change from 'zone1' to 'None' but the host already has 3 instance(s)." in message
    body = {"aggregate": {"availability_zone": "z"}}
    assert await compute.refusal("PUT", f"/os-aggregates/{zone1['id']}", body) == (
        400,
        f"Cannot update aggregate {zone1['id']}. Reason: One or more hosts contain instances in this zone.",
    )


async def test_racing_additions_to_two_zones_have_one_winner(compute: Compute) -> None:
    await free_of_zones(compute, HOST, OTHER)
    numbers = [await made(compute, f"race{number}", f"race{number}") for number in range(6)]
    for host in (HOST, OTHER):
        answers = await asyncio.gather(
            *(compute.ask("POST", f"/os-aggregates/{n}/action", json={"add_host": {"host": host}}) for n in numbers)
        )
        assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409, 409, 409]


async def test_racing_additions_to_one_scope_have_one_winner(compute: Compute) -> None:
    number = (await compute.get("/os-aggregates"))["aggregates"]
    rack = next(item["id"] for item in number if item["name"] == "zone1-rack1")
    await act(compute, rack, "remove_host", host=HOST)
    numbers = [await made(compute, f"race{number}", policy_scope="rack") for number in range(6)]
    answers = await asyncio.gather(
        *(compute.ask("POST", f"/os-aggregates/{n}/action", json={"add_host": {"host": HOST}}) for n in numbers)
    )
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409, 409, 409]


async def test_a_zone_set_while_a_host_is_added_leaves_the_host_in_one_zone(compute: Compute) -> None:
    await free_of_zones(compute, HOST)
    for turn in range(5):
        first = await made(compute, f"first{turn}", f"first{turn}")
        second = await made(compute, f"second{turn}", None, HOST)
        answers = await asyncio.gather(
            compute.ask("POST", f"/os-aggregates/{first}/action", json={"add_host": {"host": HOST}}),
            compute.ask("PUT", f"/os-aggregates/{second}", json={"aggregate": {"availability_zone": f"second{turn}"}}),
        )
        assert sorted(answer.status_code for answer in answers) in ([200, 400], [200, 409])
        await free_of_zones(compute, HOST)


async def test_every_change_of_a_host_is_noted_for_the_fleet(compute: Compute, database: Database) -> None:
    async def noted() -> list[tuple[int, list[int]]]:
        async with database.begin() as connection:
            rows = await connection.execute(sa.select(fleet_changes).order_by(fleet_changes.c.generation))
            return [(row.generation, row.host_ids) for row in rows]

    before = len(await noted())
    number = await made(compute, "a", None, HOST)
    await act(compute, number, "set_metadata", metadata={"k": "v"})
    await act(compute, number, "set_metadata", metadata={"availability_zone": "zone1"})
    await act(compute, number, "remove_host", host=HOST)
    (service,) = (await compute.get(f"/os-services?host={HOST}", version="2.53"))["services"]
    await compute.put(f"/os-services/{service['id']}", {"status": "disabled"}, version="2.53")
    after = await noted()
    assert after[before:] == [(generation, [1]) for generation in range(before + 1, before + 5)]


REFUSALS: list[tuple[str, str, Any, tuple[int, str]]] = [
    ("GET", "/9999", None, (404, "Aggregate 9999 could not be found.")),
    ("GET", "/-1", None, (404, "Aggregate -1 could not be found.")),
    ("GET", "/99999999999", None, (404, "Aggregate 99999999999 could not be found.")),
    ("GET", "/zone1", None, (400, "Invalid input received: id must be an integer")),
    ("DELETE", "/zone1", None, (400, "Invalid input received: id must be an integer")),
    ("GET", "?a=1", None, (400, "Additional properties are not allowed ('a' was unexpected)")),
    ("POST", "", {"aggregate": {"name": "zone1"}}, (409, "Aggregate zone1 already exists.")),
    ("PUT", "/1", {"aggregate": {"name": "zone2"}}, (409, "Aggregate zone2 already exists.")),
    ("POST", "", {}, (400, "'aggregate' is a required property")),
    (
        "POST",
        "",
        {"aggregate": {"name": "a", "availability_zone": "a:b"}},
        (
            400,
            "Invalid input for field/attribute availability_zone. Value: a:b. 'a:b' is not valid under any of the "
            "given schemas: 'a:b' does not match '^[^:]*$', and 'a:b' is not of type 'null'",
        ),
    ),
    (
        "POST",
        "",
        {"aggregate": {"name": "a", "colour": "red"}},
        (
            400,
            "Invalid input for field/attribute aggregate. Value: {'name': 'a', 'colour': 'red'}. Additional "
            "properties are not allowed ('colour' was unexpected)",
        ),
    ),
    (
        "POST",
        "",
        {"aggregate": {"name": " a"}},
        (
            400,
            "An invalid 'name' value was provided. The name must be: printable characters. Can not start or end "
            "with whitespace.",
        ),
    ),
    (
        "PUT",
        "/1",
        {"aggregate": {"availability_zone": None}},
        (
            400,
            "Cannot update aggregate 1. Reason: Aggregate zone1 does not support empty named availability zone.",
        ),
    ),
    (
        "POST",
        "/1/action",
        {"set_metadata": {"metadata": {"availability_zone": None}}},
        (
            400,
            "Cannot update metadata of aggregate 1. Reason: Aggregate zone1 does not support empty named "
            "availability zone.",
        ),
    ),
    (
        "POST",
        "/1/action",
        {"set_metadata": {"metadata": {"policy_scope": "room"}}},
        (400, "Policy scope room could not be found."),
    ),
    (
        "POST",
        "/1/action",
        {"set_metadata": {"metadata": {"k": 1}}},
        (400, "Invalid input for field/attribute k. Value: 1. 1 is not of type 'string', 'null'"),
    ),
    ("POST", "/1/action", {"add_host": {"host": "none"}}, (404, "Compute host none could not be found.")),
    ("POST", "/1/action", {"add_host": {"host": HOST}}, (409, f"Aggregate 1 already has host {HOST}.")),
    ("POST", "/1/action", {"remove_host": {"host": OTHER}}, (404, f"Cannot remove host {OTHER} in aggregate 1")),
    ("POST", "/99/action", {"remove_host": {"host": HOST}}, (404, f"Cannot remove host {HOST} in aggregate 99")),
    ("POST", "/1/action", {"dance": {}}, (400, "There is no such action: dance")),
    ("POST", "/1/action", {}, (400, "Malformed request body")),
    (
        "POST",
        "/1/action",
        {"add_host": {"host": HOST}, "remove_host": {"host": HOST}},
        (400, "Malformed request body: too many body keys"),
    ),
]


async def test_bad_requests_are_refused_in_novas_words(compute: Compute) -> None:
    for method, path, body, expected in REFUSALS:
        assert await compute.refusal(method, f"/os-aggregates{path}", body, version="2.102") == expected


GUARDED: list[tuple[str, str, Any, str]] = [
    ("GET", "", None, "index"),
    ("GET", "/1", None, "show"),
    ("POST", "", {"aggregate": {"name": "a"}}, "create"),
    ("PUT", "/1", {"aggregate": {"name": "a"}}, "update"),
    ("DELETE", "/1", None, "delete"),
    ("POST", "/1/action", {"add_host": {"host": HOST}}, "add_host"),
    ("POST", "/1/action", {"remove_host": {"host": HOST}}, "remove_host"),
    ("POST", "/1/action", {"set_metadata": {"metadata": {}}}, "set_metadata"),
]


async def test_only_the_operator_may(compute: Compute) -> None:
    for method, path, body, rule in GUARDED:
        expected = (403, f"Policy doesn't allow os_compute_api:os-aggregates:{rule} to be performed.")
        assert await compute.refusal(method, f"/os-aggregates{path}", body, cloud="roost") == expected


async def test_images_are_cached_from_2_81_on(compute: Compute) -> None:
    path, image = "/os-aggregates/1/images", {"id": USUAL[0].id}
    await compute.post(path, {"cache": [image]}, version="2.81")
    assert await compute.refusal("POST", path, {"cache": [image]}, version="2.80") == (
        404,
        "The resource could not be found.",
    )
    assert await compute.refusal("POST", path, {"cache": [image, image]}, version="2.81") == (
        400,
        "Duplicate images in request",
    )
    unknown = "00000000-0000-0000-0000-000000000000"
    assert await compute.refusal("POST", path, {"cache": [{"id": unknown}]}, version="2.81") == (
        400,
        f"Image {unknown} could not be found.",
    )
