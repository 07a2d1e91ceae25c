"""Servers over HTTP: every way to ask for one, every way to list them, and what is refused."""

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa

from roost.store import patterns
from roost.store.tables.compute import flavors, images
from tests.compute.cloud import IMAGE, NEWEST, Cloud
from tests.conftest import without_names

ABSENT = "5bbcc3c4-1da2-4437-a48a-66f15b1b13f9"


async def test_a_server_is_made_booted_and_shown_without_its_host(cloud: Cloud) -> None:
    await cloud.boots_take_a_moment()
    response = await cloud.create(name="web", metadata={"tier": "front"}, description="d", tags=["a", "a", "b"])
    made = response.json()["server"]
    assert response.headers["Location"] == f"http://roost.test/compute/v2.1/servers/{made['id']}"
    assert set(made) == {"id", "links", "OS-DCF:diskConfig", "security_groups", "adminPass"}
    assert (await cloud.show(made["id"]))["status"] == "BUILD"
    await cloud.settle()
    shown = await cloud.show(made["id"], cloud="roost")
    assert (shown["status"], shown["name"], shown["metadata"]) == ("ACTIVE", "web", {"tier": "front"})
    assert (shown["description"], shown["tags"]) == ("d", ["a", "b"])
    assert (shown["OS-EXT-STS:vm_state"], shown["OS-EXT-STS:task_state"]) == ("active", None)
    host = await cloud.host(made["id"])
    assert host is not None
    for path in (f"/servers/{made['id']}", "/servers/detail", f"/servers/{made['id']}/os-instance-actions"):
        assert host not in (await cloud.ask("GET", path)).text
    await cloud.check()


@pytest.mark.parametrize("key", ["os:scheduler_hints", "OS-SCH-HNT:scheduler_hints"])
async def test_hints_come_under_either_key_as_a_string_or_a_list(cloud: Cloud, key: str) -> None:
    group = await cloud.group("anti-affinity")
    first = await cloud.boot(group=group)
    server = {"name": "s", "flavorRef": "1", "imageRef": IMAGE, "networks": "none"}
    for hints in ({"group": [group]}, {"group": group.upper()}, {"different_host": first}, {"different_host": [first]}):
        response = await cloud.ask("POST", "/servers", json={"server": server, key: hints})
        assert response.status_code == 202, response.text
        assert await cloud.host(response.json()["server"]["id"]) != await cloud.host(first)
    for near in (first, [first]):
        response = await cloud.ask("POST", "/servers", json={"server": server, key: {"same_host": near}})
        assert await cloud.host(response.json()["server"]["id"]) == await cloud.host(first)
    await cloud.check()


async def test_hints_are_kept_as_lists_and_unknown_ones_are_kept_too(cloud: Cloud) -> None:
    group = await cloud.group("soft-affinity")
    server = await cloud.boot(group=group, hints={"colour": {"a": 1}, "different_host": [ABSENT]})
    shown = await cloud.show(server)
    assert shown["scheduler_hints"] == {"group": [group], "different_host": [ABSENT], "colour": ["{'a': 1}"]}
    assert shown["server_groups"] == [group]
    assert "server_groups" not in await cloud.show(server, version="2.70")
    assert (await cloud.ask("DELETE", f"/os-server-groups/{group}")).status_code == 204
    shown = await cloud.show(server)
    assert (shown["server_groups"], "group" in shown["scheduler_hints"]) == ([], False)
    await cloud.check()


async def test_a_same_host_hint_for_a_server_that_is_not_there_finds_no_host(cloud: Cloud) -> None:
    foreign = await cloud.boot(cloud="roost-alt")
    for near in (ABSENT, "a name", foreign):
        server = await cloud.boot(hints={"same_host": near})
        assert (await cloud.show(server))["fault"]["message"] == (
            "No valid host was found. No place for 1 server: 48 hosts do not hold the servers to be with."
        )
    await cloud.check()


async def test_zones_and_hosts_can_be_asked_for(cloud: Cloud) -> None:
    await cloud.quota("admin", instances=-1)
    hosts = await cloud.hosts(48)
    in_zone2 = next(host for host in hosts if host.startswith("zone2"))
    server = await cloud.boot(availability_zone="zone2")
    shown = await cloud.show(server)
    assert shown["OS-EXT-AZ:availability_zone"] == shown["pinned_availability_zone"] == "zone2"
    destinations: list[dict[str, Any]] = [
        {"availability_zone": f"zone2:{in_zone2}"},
        {"availability_zone": f"zone2:{in_zone2}:{in_zone2}"},
        {"availability_zone": f"zone2::{in_zone2}"},
        {"availability_zone": f":{in_zone2}"},
        {"host": in_zone2},
        {"hypervisor_hostname": in_zone2},
        {"host": in_zone2, "hypervisor_hostname": in_zone2},
        {"host": in_zone2, "availability_zone": "zone2"},
    ]
    for wanted in destinations:
        server = await cloud.boot(cloud="roost-admin", **wanted)
        assert await cloud.host(server) == in_zone2, wanted
    for zone in ("zone1:missing", f"zone1:{in_zone2}", f"zone2:{in_zone2}:other"):
        server = await cloud.boot(cloud="roost-admin", availability_zone=zone)
        assert (await cloud.show(server))["fault"]["message"].startswith("No valid host was found."), zone
    await cloud.check()


async def test_a_host_asked_for_is_known_to_a_process_that_has_just_started(cloud: Cloud) -> None:
    name = "zone1-rack1-host1"
    response = await cloud.create(cloud="roost-admin", host=name)
    assert response.status_code == 202, response.text


async def test_rules_bind_where_a_host_is_asked_for(cloud: Cloud) -> None:
    group = await cloud.group("anti-affinity", cloud="roost-admin")
    first = await cloud.boot(group=group, cloud="roost-admin")
    host = await cloud.host(first)
    for wanted in ({"host": host}, {"availability_zone": f":{host}"}):
        server = await cloud.boot(group=group, cloud="roost-admin", **wanted)
        fault = (await cloud.show(server))["fault"]["message"]
        assert fault.endswith("1 host holds as many members as 'anti-affinity' allows."), fault
    await cloud.check()


@pytest.mark.parametrize(
    ("policy", "number", "placed"), [("anti-affinity", 48, True), ("anti-affinity", 49, False), ("affinity", 50, True)]
)
async def test_several_servers_are_placed_as_a_whole_or_not_at_all(
    cloud: Cloud, policy: str, number: int, placed: bool
) -> None:
    await cloud.quota(instances=-1, cores=-1, ram=-1, server_group_members=-1)
    group = await cloud.group(policy)
    await cloud.boot(group=group, min_count=number)
    servers = (await cloud.ask("GET", "/servers/detail", cloud="roost-admin", params={"all_tenants": 1})).json()
    assert {server["status"] for server in servers["servers"]} == ({"ACTIVE"} if placed else {"ERROR"})
    assert {server["name"] for server in servers["servers"]} == {f"server-{n + 1}" for n in range(number)}
    assert len({server["OS-EXT-SRV-ATTR:host"] for server in servers["servers"]}) == (
        1 if policy == "affinity" or not placed else number
    )
    assert await cloud.usage() == (number, number, 512 * number)
    await cloud.check()


async def test_fewer_than_all_are_made_where_not_all_find_a_place(cloud: Cloud) -> None:
    await cloud.hosts(3)
    group = await cloud.group("anti-affinity")
    response = await cloud.create(hints={"group": group}, min_count=2, max_count=8, return_reservation_id=True)
    reservation = response.json()["reservation_id"]
    await cloud.settle()
    listed = (await cloud.ask("GET", "/servers/detail", params={"reservation_id": reservation})).json()["servers"]
    assert [server["status"] for server in listed] == ["ACTIVE"] * 3
    response = await cloud.create(hints={"group": group}, min_count=2, max_count=5, return_reservation_id=True)
    listed = (
        await cloud.ask("GET", "/servers/detail", params={"reservation_id": response.json()["reservation_id"]})
    ).json()["servers"]
    assert [server["status"] for server in listed] == ["ERROR"] * 2
    assert await cloud.usage() == (5, 5, 5 * 512)
    await cloud.check()


async def test_a_request_over_the_quota_makes_nothing(cloud: Cloud) -> None:
    await cloud.boot(flavorRef="2")
    await cloud.quota(instances=4, cores=3, ram=4096)
    rows: list[tuple[dict[str, Any], str]] = [
        ({"min_count": 4}, "cores, instances: Requested 4, 4, but already used 1, 1 of 3, 4 cores, instances"),
        ({"min_count": 2, "flavorRef": "2"}, "ram: Requested 4096, but already used 2048 of 4096 ram"),
        ({"max_count": 3}, "cores: Requested 3, but already used 1 of 3 cores"),
    ]
    for wanted, message in rows:
        response = await cloud.create(**wanted)
        assert response.status_code == 403
        assert response.json()["forbidden"]["message"] == f"Quota exceeded for {message}"
        assert await cloud.usage() == (1, 1, 2048)
    await cloud.check()


async def test_quotas_are_exact_however_many_ask_at_once(cloud: Cloud) -> None:
    await cloud.quota(instances=7)
    responses = await asyncio.gather(*(cloud.create(min_count=1 + n % 2) for n in range(12)))
    await cloud.settle()
    accepted = sum(1 + n % 2 for n, response in enumerate(responses) if response.status_code == 202)
    assert {response.status_code for response in responses} == {202, 403}
    assert accepted in (6, 7)
    assert (await cloud.usage())[0] == accepted
    await cloud.check()


async def test_a_group_has_room_for_so_many_servers_of_a_user(cloud: Cloud) -> None:
    await cloud.quota(server_group_members=3)
    group = await cloud.group("soft-anti-affinity")
    first = await cloud.boot(group=group)
    too_many = (403, "Quota exceeded, too many servers in group")
    response = await cloud.create(hints={"group": group}, min_count=3)
    assert (response.status_code, response.json()["forbidden"]["message"]) == too_many
    responses = await asyncio.gather(*(cloud.create(hints={"group": group}) for _ in range(4)))
    assert sorted(response.status_code for response in responses) == [202, 202, 403, 403]
    # Another user of the project has room of its own, and so has this one once a member is gone.
    assert (await cloud.create(hints={"group": group}, cloud="roost-manager")).status_code == 202
    await cloud.settle()
    await cloud.delete(first)
    assert (await cloud.create(hints={"group": group})).status_code == 202
    members = (await cloud.ask("GET", f"/os-server-groups/{group}")).json()["server_group"]["members"]
    assert len(members) == 4
    await cloud.settle()
    await cloud.check()


async def test_a_server_without_a_host_says_why_and_explains(cloud: Cloud) -> None:
    await cloud.hosts(2)
    group = await cloud.group("anti-affinity", {"name": "anti-affinity", "scope": "rack", "rules": {}})
    await cloud.boot(group=group)
    server = await cloud.boot(group=group)
    shown = await cloud.show(server, cloud="roost")
    sentence = (
        "No place for 1 server: 46 hosts are down or disabled; 1 host holds as many members as "
        "'anti-affinity' allows; 1 host is in a rack with as many members as 'anti-affinity:rack' allows."
    )
    assert shown["fault"] == {
        "code": 500,
        "created": shown["fault"]["created"],
        "message": f"No valid host was found. {sentence}",
    }
    why = (await cloud.ask("GET", f"/servers/{server}/explanation")).json()["explanation"]
    assert (why["verdict"], why["sentence"], why["hosts"], why["candidates"]) == ("refused", sentence, 48, 0)
    assert [(each["reason"], each["hosts"], each["policy"], each["scope"]) for each in why["refused"]] == [
        ("disabled", 46, None, None),
        ("scope_full", 1, "anti-affinity", "host"),
        ("scope_full", 1, "anti-affinity:rack", "rack"),
    ]
    assert (await cloud.ask("GET", f"/servers/{server}/explanation", version="2.1002")).status_code == 404
    assert (await cloud.ask("GET", f"/servers/{server}/explanation", cloud="roost-alt")).status_code == 404
    assert await cloud.history(server) == [("create", "Error")]
    await cloud.check()


BAD_REQUESTS: list[tuple[dict[str, Any], dict[str, Any] | None, int, str]] = [
    ({"flavorRef": "99"}, None, 400, "Flavor 99 could not be found."),
    ({"imageRef": ABSENT}, None, 400, "Can not find requested image"),
    ({"imageRef": ""}, None, 400, "Invalid image: An image must be given as imageRef."),
    ({"key_name": "none"}, None, 400, "Invalid key_name provided."),
    ({"availability_zone": "nowhere"}, None, 400, "The requested availability zone is not available"),
    ({"availability_zone": "a:b:c:d"}, None, 400, "Invalid input received: Unable to parse availability_zone"),
    (
        {"availability_zone": "zone1:zone1-rack1-host1"},
        None,
        403,
        "Policy doesn't allow os_compute_api:servers:create:forced_host to be performed.",
    ),
    (
        {"host": "zone1-rack1-host1"},
        None,
        403,
        "Policy doesn't allow compute:servers:create:requested_destination to be performed.",
    ),
    ({"min_count": 3, "max_count": 2}, None, 400, "min_count must be <= max_count"),
    (
        {"min_count": 0},
        None,
        400,
        "Invalid input for field/attribute min_count. Value: 0. 0 is less than the minimum of 1",
    ),
    ({"user_data": "not base 64!"}, None, 400, "User data needs to be valid base 64."),
    ({}, {"group": ABSENT}, 400, f"Instance group {ABSENT} could not be found."),
    (
        {},
        {"group": "a name"},
        400,
        "Invalid input for field/attribute group. Value: a name. 'a name' is not valid under any of the given schemas: "
        "'a name' is not a 'uuid', and 'a name' is not of type 'array'",
    ),
    ({}, {"group": [ABSENT, ABSENT]}, 400, "A server can be in one group: give one 'group' hint."),
    ({"metadata": {f"key{n}": "" for n in range(129)}}, None, 403, "Maximum number of metadata items exceeds 128"),
    (
        {"name": " x"},
        None,
        400,
        "An invalid 'name' value was provided. The name must be: printable characters. Can not start or end with "
        "whitespace.",
    ),
    (
        {"colour": "red"},
        None,
        400,
        "Invalid input for field/attribute server. Value: {server}. Additional properties are not allowed ('colour' "
        "was unexpected)",
    ),
    ({"hostname": "guest", "min_count": 2}, None, 400, "A hostname cannot be given when several servers are booted."),
    ({"max_count": 1001}, None, 400, "At most 1000 servers can be asked for at once."),
    (
        {"networks": [{"fixed_ip": "300.1.1.1"}]},
        None,
        400,
        "Fixed IP address (300.1.1.1) is not a valid IP address.",
    ),
]


async def test_what_cannot_be_made_is_refused_in_plain_words_and_changes_nothing(cloud: Cloud) -> None:
    for wanted, hints, status, message in BAD_REQUESTS:
        response = await cloud.create(hints=hints, **wanted)
        ((_, fault),) = response.json().items()
        body = {"name": "server", "flavorRef": "1", "imageRef": IMAGE, "networks": "none", **wanted}
        said = without_names(fault["message"])
        assert (response.status_code, said) == (status, message.replace("{server}", str(body))), wanted
    foreign = await cloud.group("affinity", cloud="roost-alt")
    response = await cloud.create(hints={"group": foreign})
    assert response.json()["badRequest"]["message"] == f"Instance group {foreign} could not be found."
    assert await cloud.usage() == (0, 0, 0)
    assert (await cloud.ask("GET", "/servers")).json() == {"servers": []}
    await cloud.check()


async def test_what_only_an_administrator_may_ask_is_checked_for_them_too(cloud: Cloud) -> None:
    both = (
        "One mechanism with host and/or hypervisor_hostname and another mechanism with zone:host:node are mutually "
        "exclusive."
    )
    rows: list[tuple[dict[str, Any], str]] = [
        ({"host": "missing"}, "Compute host missing could not be found."),
        ({"host": "zone1-rack1-host1", "hypervisor_hostname": "other"}, "Compute host other could not be found."),
        ({"host": "zone1-rack1-host1", "availability_zone": "zone1:zone1-rack1-host1"}, both),
    ]
    for wanted, message in rows:
        response = await cloud.create(cloud="roost-admin", **wanted)
        assert (response.status_code, response.json()["badRequest"]["message"]) == (400, message)


async def test_an_image_may_be_too_large_for_a_flavor_and_a_flavor_private(cloud: Cloud) -> None:
    async with cloud.database.begin() as connection:
        await connection.execute(images.update().where(images.c.id == IMAGE).values(min_memory_mb=1024))
        await connection.execute(flavors.update().where(flavors.c.id == "5").values(is_public=False))
    for wanted, message in (
        ({"flavorRef": "1"}, "Flavor's memory is too small for requested image."),
        ({"flavorRef": "5"}, "Flavor 5 could not be found."),
    ):
        response = await cloud.create(**wanted)  # type: ignore[arg-type]
        assert (response.status_code, response.json()["badRequest"]["message"]) == (400, message)
    assert (await cloud.create(flavorRef="5", cloud="roost-admin")).status_code == 202


async def test_versions_take_what_they_know(cloud: Cloud) -> None:
    for version, properties, known in (
        ("2.18", {"description": "d"}, False),
        ("2.19", {"description": "d"}, True),
        ("2.36", {"networks": "none"}, False),
        ("2.37", {"networks": "auto"}, True),
        ("2.51", {"tags": ["a"]}, False),
        ("2.52", {"tags": ["a"]}, True),
        ("2.73", {"host": "zone1-rack1-host1"}, False),
        ("2.74", {"host": "zone1-rack1-host1"}, True),
        ("2.89", {"hostname": "guest"}, False),
        ("2.90", {"hostname": "guest"}, True),
    ):
        server = {"name": "s", "flavorRef": "1", "imageRef": IMAGE, **properties}
        if known and version >= "2.37":
            server.setdefault("networks", "none")
        response = await cloud.ask("POST", "/servers", json={"server": server}, version=version, cloud="roost-admin")
        assert response.status_code == (202 if known else 400), (version, properties, response.text)


async def test_another_tenants_server_is_not_there(cloud: Cloud) -> None:
    server = await cloud.boot()
    missing = (404, f"Instance {server} could not be found.")
    for method, path, body in (
        ("GET", "", None),
        ("PUT", "", {"server": {"name": "x"}}),
        ("DELETE", "", None),
        ("POST", "/action", {"os-stop": None}),
        ("GET", "/metadata", None),
        ("GET", "/os-instance-actions", None),
        ("GET", "/explanation", None),
    ):
        assert await cloud.refusal(method, f"/servers/{server}{path}", body, cloud="roost-alt") == missing
    status, message = await cloud.refusal("GET", "/servers", params={"marker": server}, cloud="roost-alt")
    assert (status, message) == (400, f"marker [{server}] not found")
    response = await cloud.ask("GET", "/servers", params={"all_tenants": "1"}, cloud="roost-alt")
    assert response.status_code == 403
    for name in ("a-name", "5bbcc3c4"):
        assert (await cloud.ask("GET", f"/servers/{name}")).status_code == 404


async def test_readers_read_members_change_and_administrators_see_all(cloud: Cloud) -> None:
    server = await cloud.boot()
    assert (await cloud.ask("GET", f"/servers/{server}", cloud="roost-reader")).status_code == 200
    forbidden = "Policy doesn't allow os_compute_api:servers:{} to be performed."
    for method, path, body, rule in (
        ("POST", "/servers", {"server": {}}, "create"),
        ("PUT", f"/servers/{server}", {"server": {"name": "x"}}, "update"),
        ("DELETE", f"/servers/{server}", None, "delete"),
        ("POST", f"/servers/{server}/action", {"os-stop": None}, "stop"),
    ):
        assert await cloud.refusal(method, path, body, cloud="roost-reader") == (403, forbidden.format(rule))
    assert "OS-EXT-SRV-ATTR:host" not in await cloud.show(server, cloud="roost")
    assert "OS-EXT-SRV-ATTR:host" in await cloud.show(server)
    assert (await cloud.ask("GET", "/servers", cloud="roost-admin")).json() == {"servers": []}
    everybody = await cloud.ask("GET", "/servers", cloud="roost-admin", params={"all_tenants": "True"})
    assert [each["id"] for each in everybody.json()["servers"]] == [server]


async def test_filters_choose_servers(cloud: Cloud) -> None:
    web = await cloud.boot(name="web-1", availability_zone="zone1", flavorRef="1", tags=["a", "b"])
    db = await cloud.boot(name="db.1", availability_zone="zone2", flavorRef="2")
    await cloud.done(db, "os-stop")
    await cloud.done(db, "lock")
    host = await cloud.host(web)
    for query, found in (
        ({"name": "web"}, [web]),
        ({"tags": "a,b"}, [web]),
        ({"tags": "a,c"}, []),
        ({"tags-any": "c,b"}, [web]),
        ({"not-tags": "a,b"}, [db]),
        ({"not-tags": "a,c"}, [db, web]),
        ({"not-tags-any": "c,b"}, [db]),
        ({"name": "^(web|db)"}, [db, web]),
        ({"name": "1$"}, [db, web]),
        ({"name": "."}, [db, web]),
        ({"name": "^db.1"}, [db]),
        ({"name": "%"}, []),
        ({"status": "active"}, [web]),
        ({"status": "SHUTOFF"}, [db]),
        ({"status": "WRONG"}, []),
        ({"vm_state": "stopped"}, [db]),
        ({"flavor": "2"}, [db]),
        ({"flavor": "http://x/flavors/1"}, [web]),
        ({"image": IMAGE}, [db, web]),
        ({"locked": "true"}, [db]),
        ({"uuid": web}, [web]),
        ({"host": host}, [web]),
        ({"availability_zone": "zone2"}, [db]),
        ({"changes-since": "2100-01-01T00:00:00Z"}, []),
        ({"changes-before": "2100-01-01T00:00:00Z"}, [db, web]),
        ({"deleted": "True"}, []),
        ({"project_id": await cloud.project("alt")}, []),
        ({"unknown": "x"}, [db, web]),
    ):
        params = {"all_tenants": "1", **query}
        response = await cloud.ask("GET", "/servers", cloud="roost-admin", params=params)
        assert [each["id"] for each in response.json()["servers"]] == found, query
    for query, message in (
        ({"name": "*"}, f"Invalid regular expression '*': use {patterns.ALLOWED}."),
        ({"name": "[z-a]+"}, "Invalid regular expression '[z-a]+' for name."),
        (
            {"limit": "x"},
            "Invalid input for query parameters limit. Value: x. 'x' does not match '^[0-9]+$'",
        ),
        ({"limit": "-1"}, "Invalid input for query parameters limit. Value: -1. '-1' does not match '^[0-9]+$'"),
        ({"changes-since": "yesterday"}, "Invalid time 'yesterday': write it as 2026-11-15T08:00:00Z."),
        ({"marker": ABSENT}, f"marker [{ABSENT}] not found"),
        (
            {"sort_dir": "up"},
            "Invalid input for query parameters sort_dir. Value: up. 'up' is not one of ['asc', 'desc']",
        ),
    ):
        assert await cloud.refusal("GET", "/servers", params=query) == (400, message)
    # For a tenant there are no hosts to filter by, nor to sort by: the order would tell of their names.
    assert len((await cloud.ask("GET", "/servers", params={"host": host})).json()["servers"]) == 2
    by_host = {"sort_key": "host", "all_tenants": "1"}
    refused = (403, "Only administrators can sort servers by host")
    assert await cloud.refusal("GET", "/servers", params={"sort_key": "host"}) == refused
    assert len((await cloud.ask("GET", "/servers", params=by_host, cloud="roost-admin")).json()["servers"]) == 2


async def test_pages_hold_every_server_once_in_any_order(cloud: Cloud) -> None:
    await cloud.boot(min_count=3, name="b")
    await cloud.boot(min_count=2, name="a")
    await cloud.hosts(0)
    await cloud.boot(name="nowhere")
    everything = (await cloud.ask("GET", "/servers", version="2.1")).json()["servers"]
    for order in (
        {},
        {"sort_key": "display_name", "sort_dir": "asc"},
        {"sort_key": "availability_zone", "sort_dir": "asc"},
        {"sort_key": "launched_at", "sort_dir": "desc"},
        {"sort_key": "key_name"},
        {"sort_key": ["vm_state", "display_name"], "sort_dir": ["asc", "desc"]},
    ):
        whole = [each["id"] for each in (await cloud.ask("GET", "/servers", params=order)).json()["servers"]]
        assert sorted(whole) == sorted(each["id"] for each in everything)
        paged: list[str] = []
        path, params = "/servers", {**order, "limit": "2"}
        while path:
            body = (await cloud.ask("GET", path, params=params)).json()
            paged += [each["id"] for each in body["servers"]]
            following = body.get("servers_links", [{"href": ""}])[0]["href"]
            path, params = following.partition("/compute/v2.1")[2], None  # type: ignore[assignment]
        assert paged == whole, order
    assert (await cloud.ask("GET", "/servers", params={"limit": "0"})).json()["servers"] == []


async def test_a_server_is_renamed_and_described(cloud: Cloud) -> None:
    server = await cloud.boot(name="old")
    body = {"server": {"name": "new", "description": None, "hostname": "guest"}}
    response = await cloud.ask("PUT", f"/servers/{server}", json=body)
    assert response.json()["server"]["name"] == "new"
    assert (await cloud.show(server))["OS-EXT-SRV-ATTR:hostname"] == "guest"
    assert (await cloud.ask("PUT", f"/servers/{server}", json={"server": {}})).status_code == 200
    for zone, status in (("zone9", 400), (None, 200)):
        body = {"server": {"pinned_availability_zone": zone}}
        assert (await cloud.ask("PUT", f"/servers/{server}", json=body)).status_code == status
    here = (await cloud.show(server))["OS-EXT-AZ:availability_zone"]
    response = await cloud.ask("PUT", f"/servers/{server}", json={"server": {"pinned_availability_zone": here}})
    assert response.json()["server"]["pinned_availability_zone"] == here
    assert (
        await cloud.ask("PUT", f"/servers/{server}", json={"server": {"description": ""}}, version="2.18")
    ).status_code == 400


async def test_a_server_can_be_deleted_whatever_happens_with_it(cloud: Cloud) -> None:
    await cloud.hosts(4)
    await cloud.quota(instances=-1, cores=-1, ram=-1)
    stages: list[list[tuple[str, Any, bool]]] = [
        [],
        [("os-stop", None, False)],
        [("os-stop", None, True)],
        [("pause", None, True)],
        [("resize", {"flavorRef": "3"}, False)],
        [("resize", {"flavorRef": "3"}, True)],
        [("resize", {"flavorRef": "3"}, True), ("revertResize", None, True)],
        [("migrate", None, False)],
        [("migrate", None, True)],
        [("os-migrateLive", {"host": None, "block_migration": "auto"}, False)],
        [("shelve", None, False)],
        [("shelve", None, True)],
        [("shelve", None, True), ("unshelve", None, False)],
        [("rebuild", {"imageRef": IMAGE}, False)],
        [("resize", {"flavorRef": "3"}, True), ("os-resetState", {"state": "error"}, True)],
        [("resize", {"flavorRef": "3"}, False), ("os-resetState", {"state": "active"}, False), ("migrate", None, True)],
    ]
    group = await cloud.group("soft-anti-affinity")
    await cloud.quota(server_group_members=-1)
    for stage in stages:
        server = await cloud.boot(group=group)
        for action, value, finished in stage:
            response = await cloud.act(server, action, value)
            assert response.is_success, (stage, response.text)
            if finished:
                await cloud.settle()
        await cloud.delete(server, cloud="roost")
        assert (await cloud.ask("GET", f"/servers/{server}")).status_code == 404
        assert await cloud.usage() == (0, 0, 0), stage
        await cloud.check()
    await cloud.boots_take_a_moment()
    building = await cloud.boot(settle=False)
    await cloud.delete(building)
    await cloud.check()


async def test_a_locked_server_is_deleted_by_administrators_only(cloud: Cloud) -> None:
    server = await cloud.boot()
    await cloud.done(server, "lock", {"locked_reason": "mine"}, cloud="roost")
    assert (await cloud.show(server))["locked_reason"] == "mine"
    assert await cloud.refusal("DELETE", f"/servers/{server}") == (409, f"Instance {server} is locked")
    await cloud.delete(server)
    await cloud.check()


async def test_servers_of_one_request_have_addresses_of_their_own(cloud: Cloud) -> None:
    await cloud.boot(min_count=3, networks="auto")
    listed = (await cloud.ask("GET", "/servers/detail", version=NEWEST)).json()["servers"]
    assert len({server["addresses"]["private"][0]["addr"] for server in listed}) == 3


async def test_the_database_has_one_row_a_server_and_no_more(cloud: Cloud) -> None:
    await cloud.boot(min_count=2)
    async with cloud.database.begin() as connection:
        counts = [
            (await connection.execute(sa.text(f"SELECT count(*) FROM {table}"))).scalar_one()
            for table in ("servers", "claims", "instance_actions")
        ]
    assert counts == [2, 2, 2]
