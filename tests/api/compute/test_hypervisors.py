"""Hypervisors, from version to version."""

import json
from typing import Any

import sqlalchemy as sa

from roost.store.database import Database
from roost.store.tables.compute import hosts
from roost.store.tables.servers import servers
from tests.api.compute.conftest import Compute

HOST = "zone1-rack1-host1"
PATH = "/os-hypervisors"
SERVER = "11111111-2222-3333-4444-555555555555"


async def hosting(database: Database) -> None:
    """Let the first host hold a server."""
    async with database.begin() as connection:
        row: dict[str, Any] = {"id": SERVER, "project_id": "p", "user_id": "u", "name": "s", "hostname": "s"}
        row |= {"flavor": {}, "reservation_id": "r", "vm_state": "active", "host_id": 1}
        await connection.execute(servers.insert().values(row))
        used = {"servers": 1, "vcpus_used": 2, "memory_mb_used": 512, "disk_gb_used": 20}
        await connection.execute(hosts.update().where(hosts.c.id == 1).values(used))


async def uuids(compute: Compute) -> list[str]:
    """The ids of all hypervisors, as they are from 2.53 on."""
    return [item["id"] for item in (await compute.get(PATH, version="2.53"))["hypervisors"]]


async def test_the_brief_list_has_four_keys(compute: Compute) -> None:
    listed = (await compute.get(PATH))["hypervisors"]
    assert len(listed) == 48
    assert listed[0] == {"id": 1, "hypervisor_hostname": HOST, "state": "up", "status": "enabled"}


async def test_details_change_with_the_versions(compute: Compute, database: Database) -> None:
    await hosting(database)
    oldest = (await compute.get(f"{PATH}/1"))["hypervisor"]
    assert json.loads(oldest.pop("cpu_info"))["arch"] == "x86_64"
    service = {"id": 1, "host": HOST, "disabled_reason": None}
    assert oldest == {
        "id": 1,
        "hypervisor_hostname": HOST,
        "state": "up",
        "status": "enabled",
        "hypervisor_type": "roost",
        "hypervisor_version": 1000,
        "host_ip": "10.0.0.1",
        "service": service,
        "vcpus": 64,
        "vcpus_used": 2,
        "memory_mb": 262_144,
        "memory_mb_used": 512,
        "free_ram_mb": 261_632,
        "local_gb": 2000,
        "local_gb_used": 20,
        "free_disk_gb": 1980,
        "disk_available_least": 1980,
        "current_workload": 0,
        "running_vms": 1,
    }
    assert (await compute.get(f"{PATH}/detail", version="2.28"))["hypervisors"][0]["cpu_info"]["arch"] == "x86_64"
    first = (await compute.get(f"{PATH}/detail", version="2.53"))["hypervisors"][0]
    assert len(first["id"]) == len(first["service"]["id"]) == 36
    newest = (await compute.get(f"{PATH}/{first['id']}", version="2.88"))["hypervisor"]
    assert newest == {
        "id": first["id"],
        "hypervisor_hostname": HOST,
        "state": "up",
        "status": "enabled",
        "hypervisor_type": "roost",
        "hypervisor_version": 1000,
        "host_ip": "10.0.0.1",
        "service": {"id": first["service"]["id"], "host": HOST, "disabled_reason": None},
        "uptime": None,
    }


async def test_servers_are_shown_when_asked_for(compute: Compute, database: Database) -> None:
    await hosting(database)
    on_it = [{"name": "instance-00000001", "uuid": SERVER}]
    for path in (PATH, f"{PATH}/detail"):
        before = (await compute.get(f"{path}?with_servers=true", version="2.53"))["hypervisors"]
        assert before[0]["servers"] == on_it
        assert "servers" not in before[1]
        after = (await compute.get(f"{path}?with_servers=1", version="2.75"))["hypervisors"]
        assert (after[0]["servers"], after[1]["servers"]) == (on_it, [])
        assert "servers" not in (await compute.get(path, version="2.75"))["hypervisors"][0]
    one = (await compute.get(f"{PATH}/{before[0]['id']}?with_servers=yes", version="2.88"))["hypervisor"]
    assert one["servers"] == on_it
    old = (await compute.get(f"{PATH}/zone1-rack1/servers"))["hypervisors"]
    assert old[0]["servers"] == on_it
    assert "servers" not in old[1]


async def test_hypervisors_are_found_by_a_part_of_their_names(compute: Compute) -> None:
    old = await compute.get(f"{PATH}/rack2-host3/search")
    new = await compute.get(f"{PATH}?hypervisor_hostname_pattern=rack2-host3", version="2.53")
    for answer in (old, new):
        names = [item["hypervisor_hostname"] for item in answer["hypervisors"]]
        assert names == [f"zone{number}-rack2-host3" for number in (1, 2, 3)]


async def test_pages_follow_each_other_to_the_end(compute: Compute) -> None:
    for version in ("2.33", "2.53", "2.88"):
        path, seen = f"{PATH}?limit=20", []
        for _ in range(3):
            page = await compute.get(path, version=version)
            seen += [item["id"] for item in page["hypervisors"]]
            if "hypervisors_links" in page:
                path = page["hypervisors_links"][0]["href"].partition("/v2.1")[2]
        assert len(set(seen)) == len(seen) == 48
        assert "hypervisors_links" not in page
    assert (await compute.get(f"{PATH}?limit=0", version="2.53")) == {"hypervisors": []}


async def test_statistics_add_up_the_enabled_hosts(compute: Compute, database: Database) -> None:
    await hosting(database)
    (service,) = (await compute.get("/os-services?host=zone3-rack1-host1", version="2.53"))["services"]
    await compute.put(f"/os-services/{service['id']}", {"status": "disabled"}, version="2.53")
    total = (await compute.get(f"{PATH}/statistics", version="2.87"))["hypervisor_statistics"]
    assert (total["count"], total["vcpus"], total["vcpus_used"], total["running_vms"]) == (47, 47 * 64, 2, 1)
    assert total["free_ram_mb"] == 47 * 262_144 - 512


async def test_uptime_is_told_until_2_87(compute: Compute) -> None:
    first = (await uuids(compute))[0]
    assert " up 0 days, " in (await compute.get(f"{PATH}/1/uptime"))["hypervisor"]["uptime"]
    assert " up 0 days, " in (await compute.get(f"{PATH}/{first}/uptime", version="2.87"))["hypervisor"]["uptime"]
    (service,) = (await compute.get(f"/os-services?host={HOST}", version="2.53"))["services"]
    await compute.put(f"/os-services/{service['id']}", {"forced_down": True}, version="2.53")
    assert await compute.refusal("GET", f"{PATH}/1/uptime") == (
        400,
        f"Compute service of {HOST} is unavailable at this time.",
    )
    assert (await compute.get(PATH))["hypervisors"][0]["state"] == "down"


NOWHERE = "00000000-0000-0000-0000-000000000000"
GONE = (404, "The resource could not be found.")
REFUSALS = [
    ("/99", "2.1", (404, "Hypervisor with ID '99' could not be found.")),
    ("/99999999999", "2.1", (404, "Hypervisor with ID '99999999999' could not be found.")),
    (f"/{HOST}", "2.1", (404, f"Hypervisor with ID '{HOST}' could not be found.")),
    (f"/{HOST}", "2.53", (400, f"Invalid uuid {HOST}")),
    (f"/{NOWHERE}", "2.53", (404, f"Hypervisor with ID '{NOWHERE}' could not be found.")),
    (f"/{NOWHERE}/uptime", "2.53", (404, f"Hypervisor with ID '{NOWHERE}' could not be found.")),
    ("/zzz/search", "2.1", (404, "No hypervisor matching 'zzz' could be found.")),
    ("/zzz/servers", "2.1", (404, "No hypervisor matching 'zzz' could be found.")),
    ("?hypervisor_hostname_pattern=zzz", "2.53", (404, "No hypervisor matching 'zzz' could be found.")),
    ("?hypervisor_hostname_pattern=_one", "2.53", (404, "No hypervisor matching '_one' could be found.")),
    (
        "/detail?hypervisor_hostname_pattern=host&limit=1",
        "2.53",
        (400, "Paging over hypervisors with the hypervisor_hostname_pattern query parameter is not supported."),
    ),
    (
        "?limit=abc",
        "2.33",
        (400, "Invalid input for query parameters limit. Value: abc. 'abc' does not match '^[0-9]*$'"),
    ),
    ("?limit=-1", "2.53", (400, "Invalid input for query parameters limit. Value: -1. '-1' does not match '^[0-9]*$'")),
    ("?marker=99", "2.33", (400, "marker [99] not found")),
    (f"?marker={NOWHERE}", "2.53", (400, f"marker [{NOWHERE}] not found")),
    ("?marker=x", "2.53", (400, "marker [x] not found")),
    ("?foo=1", "2.53", (400, "Additional properties are not allowed ('foo' was unexpected)")),
    ("/statistics", "2.88", GONE),
    (f"/{NOWHERE}/uptime", "2.88", GONE),
    ("/zone/search", "2.53", GONE),
    ("/zone/servers", "2.53", GONE),
]


async def test_bad_requests_are_refused_in_novas_words(compute: Compute) -> None:
    for path, version, expected in REFUSALS:
        assert await compute.refusal("GET", PATH + path, version=version) == expected
    status, message = await compute.refusal("GET", f"{PATH}?with_servers=maybe", version="2.53")
    assert (status, message[:74]) == (
        400,
        "Invalid input for query parameters with_servers. Value: maybe. 'maybe' is ",
    )


async def test_only_the_operator_may(compute: Compute) -> None:
    for path, rule in (
        ("", "list"),
        ("/detail", "list-detail"),
        ("/1", "show"),
        ("/1/uptime", "uptime"),
        ("/zone/search", "search"),
        ("/zone/servers", "servers"),
        ("/statistics", "statistics"),
    ):
        expected = (403, f"Policy doesn't allow os_compute_api:os-hypervisors:{rule} to be performed.")
        assert await compute.refusal("GET", PATH + path, cloud="roost") == expected


async def test_lists_take_as_many_statements_for_many_rows_as_for_few(compute: Compute) -> None:
    statements: list[str] = []
    engine = compute.api.services.database._engine.sync_engine

    def count(*arguments: Any) -> None:
        statements.append(arguments[2])

    async def asked(path: str, version: str) -> int:
        statements.clear()
        await compute.get(path, version=version)
        return len(statements)

    await compute.get("/extensions")
    sa.event.listen(engine, "before_cursor_execute", count)
    try:
        for path, few, many, version in (
            (f"{PATH}/detail?with_servers=true", "&limit=1", "", "2.75"),
            ("/os-services", f"?host={HOST}", "", "2.69"),
            ("/flavors/detail", "?limit=1", "", "2.61"),
        ):
            assert await asked(path + few, version) == await asked(path + many, version) <= 5
        before = await asked("/os-aggregates", "2.81")
        await compute.post("/os-aggregates", {"aggregate": {"name": "one more"}})
        assert await asked("/os-aggregates", "2.81") == before <= 6
        assert await asked("/os-availability-zone/detail", "2.1") <= 4
    finally:
        sa.event.remove(engine, "before_cursor_execute", count)
