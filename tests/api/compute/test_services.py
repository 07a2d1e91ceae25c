"""Compute services: listed, changed in the old way and the new, and deleted."""

from typing import Any

from roost.store.database import Database
from roost.store.tables.compute import hosts
from tests.api.compute.conftest import Compute

HOST = "zone1-rack1-host1"
PATH = "/os-services"
NOWHERE = "00000000-0000-0000-0000-000000000000"


async def service(compute: Compute, version: str = "2.53") -> dict[str, Any]:
    """The service of the first host."""
    (found,) = (await compute.get(f"{PATH}?host={HOST}&binary=nova-compute", version=version))["services"]
    assert found.pop("updated_at")
    return dict(found)


async def test_services_are_listed_from_version_to_version(compute: Compute) -> None:
    oldest = {
        "id": 1,
        "binary": "nova-compute",
        "host": HOST,
        "zone": "zone1",
        "status": "enabled",
        "state": "up",
        "disabled_reason": None,
    }
    assert await service(compute, "2.1") == oldest
    assert await service(compute, "2.11") == {**oldest, "forced_down": False}
    newest = await service(compute, "2.75")
    assert len(newest["id"]) == 36
    assert newest == {**oldest, "forced_down": False, "id": newest["id"]}
    assert len((await compute.get(PATH))["services"]) == 48
    assert (await compute.get(f"{PATH}?binary=nova-scheduler"))["services"] == []
    assert (await compute.get(f"{PATH}?host=none&foo=1", version="2.74"))["services"] == []


async def test_services_are_changed_in_the_old_way(compute: Compute) -> None:
    named = {"host": HOST, "binary": "nova-compute"}
    for action, more, answer, after in (
        ("disable", {}, {"status": "disabled"}, ("disabled", None)),
        ("enable", {}, {"status": "enabled"}, ("enabled", None)),
        (
            "disable-log-reason",
            {"disabled_reason": "x"},
            {"status": "disabled", "disabled_reason": "x"},
            ("disabled", "x"),
        ),
        ("enable", {}, {"status": "enabled"}, ("enabled", None)),
    ):
        assert await compute.put(f"{PATH}/{action}", {**named, **more}) == {"service": {**named, **answer}}
        now = await service(compute)
        assert (now["status"], now["disabled_reason"]) == after
    for down in (True, False):
        answer = await compute.put(f"{PATH}/force-down", {**named, "forced_down": down}, version="2.11")
        assert answer == {"service": {**named, "forced_down": down}}
        assert (await service(compute))["state"] == ("down" if down else "up")


async def test_services_are_changed_in_the_new_way(compute: Compute) -> None:
    path = f"{PATH}/{(await service(compute))['id']}"
    for body, changed in (
        ({"status": "disabled", "disabled_reason": "x"}, {"status": "disabled", "disabled_reason": "x"}),
        ({"forced_down": "true"}, {"forced_down": True, "state": "down", "status": "disabled"}),
        ({"status": "enabled", "forced_down": False}, {"status": "enabled", "state": "up", "disabled_reason": None}),
    ):
        answer = (await compute.put(path, body, version="2.53"))["service"]
        assert changed.items() <= answer.items()
        assert changed.items() <= (await service(compute)).items()


async def test_a_deleted_service_takes_its_host_along(compute: Compute, database: Database) -> None:
    identifier = (await service(compute))["id"]
    async with database.begin() as connection:
        await connection.execute(hosts.update().where(hosts.c.id.in_([1, 2])).values(servers=1))
    assert await compute.refusal("DELETE", f"{PATH}/{identifier}", version="2.53") == (
        409,
        "Unable to delete compute service that is hosting instances. Migrate or delete the instances first.",
    )
    async with database.begin() as connection:
        await connection.execute(hosts.update().values(servers=0))
    await compute.delete(f"{PATH}/{identifier}", version="2.53")
    await compute.delete(f"{PATH}/2")
    names = [item["hypervisor_hostname"] for item in (await compute.get("/os-hypervisors"))["hypervisors"]]
    assert names[0] == "zone1-rack1-host3"
    for aggregate in (await compute.get("/os-aggregates"))["aggregates"]:
        assert HOST not in aggregate["hosts"]


NAMED = {"host": HOST, "binary": "nova-compute"}
REFUSALS: list[tuple[str, str, str, Any, tuple[int, str]]] = [
    ("PUT", "/dance", "2.1", NAMED, (404, "Unknown action")),
    ("PUT", "/force-down", "2.10", NAMED, (404, "Unknown action")),
    ("PUT", "/disable-log-reason", "2.1", NAMED, (400, "Missing disabled reason field")),
    ("PUT", "/force-down", "2.11", NAMED, (400, "Missing forced_down field")),
    ("PUT", "/enable", "2.1", {**NAMED, "host": "none"}, (404, "Host 'none' is not mapped to any cell")),
    (
        "PUT",
        "/enable",
        "2.1",
        {**NAMED, "binary": "nova-scheduler"},
        (400, "Updating a nova-scheduler service is not supported. Only nova-compute services can be updated."),
    ),
    ("PUT", "/enable", "2.1", {"host": HOST}, (400, "'binary' is a required property")),
    (
        "PUT",
        "/enable",
        "2.10",
        {**NAMED, "forced_down": True},
        (400, "Additional properties are not allowed ('forced_down' was unexpected)"),
    ),
    ("PUT", "/enable", "2.53", {"status": "enabled"}, (400, "Invalid uuid enable")),
    ("PUT", f"/{NOWHERE}", "2.53", {"status": "enabled"}, (404, f"Service {NOWHERE} could not be found.")),
    (
        "PUT",
        f"/{NOWHERE}",
        "2.53",
        {},
        (400, "No updates were requested. Fields 'status' or 'forced_down' should be specified."),
    ),
    (
        "PUT",
        f"/{NOWHERE}",
        "2.53",
        {"status": "enabled", "disabled_reason": "x"},
        (400, "Specifying 'disabled_reason' with status 'enabled' is invalid."),
    ),
    (
        "PUT",
        f"/{NOWHERE}",
        "2.53",
        {"status": "on"},
        (400, "Invalid input for field/attribute status. Value: on. 'on' is not one of ['enabled', 'disabled']"),
    ),
    ("DELETE", f"/{NOWHERE}", "2.53", None, (404, f"Service {NOWHERE} not found.")),
    ("DELETE", "/x", "2.53", None, (400, "Invalid uuid x")),
    ("DELETE", "/x", "2.1", None, (400, "Invalid input received: id must be an integer")),
    ("DELETE", "/99", "2.1", None, (404, "Service 99 not found.")),
    ("DELETE", "/99999999999", "2.1", None, (404, "Service 99999999999 not found.")),
    ("GET", "?foo=1", "2.75", None, (400, "Additional properties are not allowed ('foo' was unexpected)")),
]


async def test_bad_requests_are_refused_in_novas_words(compute: Compute) -> None:
    for method, path, version, body, expected in REFUSALS:
        assert await compute.refusal(method, PATH + path, body, version=version) == expected


async def test_only_the_operator_may(compute: Compute) -> None:
    for method, path, body, rule in (
        ("GET", "", None, "list"),
        ("PUT", "/enable", NAMED, "update"),
        ("DELETE", "/1", None, "delete"),
    ):
        expected = (403, f"Policy doesn't allow os_compute_api:os-services:{rule} to be performed.")
        assert await compute.refusal(method, PATH + path, body, cloud="roost") == expected
