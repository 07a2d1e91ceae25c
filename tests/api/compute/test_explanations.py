"""Explanations: what tenants and operators learn of a decision, made or only asked about."""

from typing import Any

from roost.compute.scheduling import lifecycle
from tests.api.compute.conftest import Compute
from tests.compute.cloud import Cloud

VERSION = "2.1003"
RACKS_IN_A_ZONE = 4
HOSTS = 48


async def make_group(compute: Compute, *policies: dict[str, Any], cloud: str = "roost") -> str:
    body = {"server_group": {"name": "g", "policies": list(policies)}}
    return str((await compute.post("/os-server-groups", body, version=VERSION, cloud=cloud))["server_group"]["id"])


async def boot(compute: Compute, group: str | None = None, count: int = 1, **more: Any) -> list[dict[str, Any]]:
    image = (await compute.api.get("/image/v2/images")).json()["images"][0]["id"]
    server = {"name": "s", "flavorRef": "1", "imageRef": image, "networks": "none", "min_count": count, **more}
    hints = {"os:scheduler_hints": {"group": group}} if group else {}
    response = await compute.api.post(
        "/compute/v2.1/servers", {"server": server, **hints}, cloud="roost", version="2.90"
    )
    assert response.status_code == 202, response.text
    await lifecycle.finish(compute.api.services.database)
    listed = await compute.api.get("/compute/v2.1/servers/detail?all_tenants=1", version="2.90")
    return [each for each in listed.json()["servers"] if each["name"].startswith("s")]


async def explanation(compute: Compute, server: dict[str, Any], cloud: str) -> dict[str, Any]:
    path = f"/servers/{server['id']}/explanation"
    return dict((await compute.get(path, version=VERSION, cloud=cloud))["explanation"])


async def asked(compute: Compute, group: str, cloud: str = "roost", **question: Any) -> dict[str, Any]:
    body = {"explain": {"flavorRef": "1", **question}}
    answer = await compute.post(f"/os-server-groups/{group}/explain", body, version=VERSION, cloud=cloud)
    return dict(answer["explanation"])


async def test_a_placed_server_says_why_there_and_who_came_next(compute: Compute) -> None:
    group = await make_group(compute, {"name": "soft-anti-affinity", "scope": "rack"})
    *_, server = await boot(compute, group)
    explained = await explanation(compute, server, "roost-admin")
    assert explained["verdict"] == "placed"
    assert (explained["hosts"], explained["candidates"], explained["refused"]) == (HOSTS, None, [])
    (chosen,) = explained["chosen"]
    assert chosen["host"] == server["OS-EXT-SRV-ATTR:host"]
    assert chosen["shares"] == [
        {
            "policy": "soft-anti-affinity:rack",
            "value": 0,
            "sentence": "its rack held no members ('soft-anti-affinity:rack')",
        }
    ]
    assert len(explained["runners_up"]) == 3
    assert explained["sentence"] == (
        f"Of 48 hosts, host {chosen['host']} came first: its rack held no members "
        "('soft-anti-affinity:rack'), 100 % of it was free."
    )


async def test_a_tenant_sees_rules_and_scopes_and_no_host(compute: Compute) -> None:
    group = await make_group(compute, {"name": "soft-anti-affinity", "scope": "rack"})
    (server,) = await boot(compute, group)
    real = await explanation(compute, server, "roost-admin")
    explained = await explanation(compute, server, "roost")
    names = {real["chosen"][0]["host"], *(each["host"] for each in real["runners_up"])}
    assert not any(name in str(explained) for name in names)
    assert "headroom" not in explained["chosen"][0]
    assert set(explained["chosen"][0]["placements"]) == {"rack"}
    assert explained["chosen"][0]["placements"] != real["chosen"][0]["placements"]
    assert explained["chosen"][0]["shares"] == real["chosen"][0]["shares"]


async def test_each_server_of_a_request_keeps_its_own_host(compute: Compute) -> None:
    group = await make_group(compute, {"name": "anti-affinity", "scope": "rack"})
    servers = await boot(compute, group, 3)
    for server in servers:
        explained = await explanation(compute, server, "roost-admin")
        assert [each["host"] for each in explained["chosen"]] == [server["OS-EXT-SRV-ATTR:host"]]


async def test_a_refused_server_says_what_would_help(compute: Compute) -> None:
    group = await make_group(compute, {"name": "anti-affinity", "scope": "rack"})
    server = (await boot(compute, group, RACKS_IN_A_ZONE + 1, availability_zone="zone1"))[0]
    assert server["status"] == "ERROR"
    explained = await explanation(compute, server, "roost")
    assert explained["sentence"] == (
        "No place for 5 servers: 32 hosts are outside the availability zone; 16 hosts pass every check, too few for "
        "all servers together."
    )
    assert explained["advice"] == "A limit of 2 per rack, or 1 more rack, or asking for 4 servers, would help."
    assert [(each["change"], each["by"]) for each in explained["help"]] == [
        ("raise_limit", "tenant"),
        ("add_aggregates", "operator"),
        ("ask_for_fewer", "tenant"),
    ]


async def test_what_would_help_is_what_would_help_now(compute: Compute) -> None:
    group = await make_group(compute, {"name": "anti-affinity", "scope": "rack"})
    server = (await boot(compute, group, RACKS_IN_A_ZONE + 1, availability_zone="zone1"))[0]
    policies = [{"name": "anti-affinity", "scope": "rack", "rules": {"max_server_per_aggregate": 2}}]
    body = {"server_group": {"policies": policies}}
    await compute.post(f"/os-server-groups/{group}", body, version=VERSION, cloud="roost")
    explained = await explanation(compute, server, "roost")
    assert explained["verdict"] == "refused"
    assert explained["help"] == []


async def test_a_request_that_is_only_asked_about_makes_nothing(compute: Compute) -> None:
    group = await make_group(compute, {"name": "anti-affinity", "scope": "rack"})
    await Cloud(compute.api).quota(instances=-1)
    explained = await asked(compute, group, count=12)
    assert explained["verdict"] == "placed"
    assert len(explained["chosen"]) == 12
    assert len({each["placements"]["rack"] for each in explained["chosen"]}) == 12
    refused = await asked(compute, group, count=13)
    assert refused["verdict"] == "refused"
    group_now = await compute.get(f"/os-server-groups/{group}", version=VERSION, cloud="roost")
    assert group_now["server_group"]["members"] == []


async def composed(compute: Compute, policies: list[dict[str, Any]], cloud: str = "roost", **question: Any) -> Any:
    body = {"explain": {"flavorRef": "1", "policies": policies, **question}}
    return await compute.ask("POST", "/os-server-groups/explain", json=body, version=VERSION, cloud=cloud)


async def test_rules_are_tried_before_there_is_a_group(compute: Compute) -> None:
    zones = [{"name": "anti-affinity", "scope": "availability_zone"}]
    fits = (await composed(compute, zones, count=3)).json()["explanation"]
    assert (fits["verdict"], len(fits["chosen"])) == ("placed", 3)
    assert not any("host" in each for each in fits["chosen"])
    refused = (await composed(compute, zones, count=4)).json()["explanation"]
    assert refused["verdict"] == "refused"
    assert refused["help"]
    assert (await compute.get("/os-server-groups", version=VERSION))["server_groups"] == []


async def test_rules_that_cannot_be_are_refused_as_when_a_group_is_made(compute: Compute) -> None:
    nowhere = await composed(compute, [{"name": "affinity", "scope": "galaxy"}])
    assert nowhere.status_code == 400
    both = [{"name": "affinity", "scope": "rack"}, {"name": "anti-affinity", "scope": "rack"}]
    assert (await composed(compute, both)).status_code == 400
    assert (await composed(compute, [{"name": "affinity"}], count=1000)).status_code == 403


async def test_a_tenant_does_not_learn_how_much_room_a_host_has(compute: Compute) -> None:
    """With a member on the host, "asking for 63 would help" became 62 when a stranger's server came there."""
    cloud = Cloud(compute.api)
    group = await make_group(compute, {"name": "affinity"})
    await boot(compute, group)
    question = {"explain": {"flavorRef": "1", "count": 11}}
    path = f"/os-server-groups/{group}/explain"
    refused = await compute.ask("POST", path, json=question, version=VERSION, cloud="roost")
    assert (refused.status_code, refused.json()["forbidden"]["message"]) == (
        403,
        "Quota exceeded for instances: Requested 11, but already used 1 of 10 instances",
    )
    await cloud.quota(instances=-1, cores=-1, ram=-1)
    for who, exact in (("roost", False), ("roost-admin", True)):
        explained = await asked(compute, group, cloud=who, count=1000)
        (fewer,) = [each for each in explained["help"] if each["change"] == "ask_for_fewer"]
        assert str(fewer["amount"]) in fewer["sentence"]
        assert exact or fewer["amount"].bit_count() == 1


async def test_each_rule_says_how_many_hosts_it_removed(compute: Compute) -> None:
    group = await make_group(compute, {"name": "anti-affinity", "scope": "rack"})
    await boot(compute, group)
    explained = await asked(compute, group, availability_zone="zone1")
    assert [(each["reason"], each["policy"]) for each in explained["refused"]] == [
        ("outside_zone", None),
        ("scope_full", "anti-affinity:rack"),
    ][: len(explained["refused"])]
    assert explained["refused"][0]["sentence"] == "32 hosts are outside the availability zone"


async def test_hosts_to_enable_or_to_free_are_named_to_operators_only(compute: Compute) -> None:
    group = await make_group(compute, {"name": "affinity"})
    (server,) = await boot(compute, group)
    host = server["OS-EXT-SRV-ATTR:host"]
    services = (await compute.get("/os-services", version="2.53"))["services"]
    (service,) = [each["id"] for each in services if each["host"] == host]
    await compute.put(f"/os-services/{service}", {"status": "disabled"}, version="2.53")
    explained = await asked(compute, group)
    assert explained["advice"] == "Enabling 1 host would help."
    assert host not in str(explained)
    assert (await asked(compute, group, cloud="roost-admin"))["advice"] == f"Enabling {host} would help."


async def test_how_much_is_to_be_freed_is_told_to_operators_only(compute: Compute) -> None:
    cloud = Cloud(compute.api)
    group = await make_group(compute, {"name": "affinity"})
    (server,) = await boot(compute, group)
    host = server["OS-EXT-SRV-ATTR:host"]
    await cloud.change_host(host, memory_mb=server["flavor"]["ram"])
    told = await asked(compute, group)
    assert told["advice"] == "Freeing capacity on one host would help."
    assert "MB" not in str(told["help"])
    (freeing,) = (await asked(compute, group, cloud="roost-admin"))["help"]
    assert "MB of memory" in freeing["sentence"]


async def test_a_tenant_reads_its_own_identifier_of_a_target(compute: Compute) -> None:
    scopes = (await compute.get("/os-policy-scopes", version=VERSION))["policy_scopes"]
    (rack,) = [scope for scope in scopes if scope["name"] == "rack"]
    changed = {"policy_scope": {"allow_identifiers": True, "obfuscate_identifiers": True}}
    await compute.post(f"/os-policy-scopes/{rack['id']}", changed, version=VERSION)
    mine = await compute.get(f"/os-policy-scopes/{rack['id']}", version=VERSION, cloud="roost")
    identifier = mine["policy_scope"]["aggregates"][0]["group_id"]
    group = await make_group(compute, {"name": "affinity", "scope": "rack", "identifier": identifier})
    explained = await asked(compute, group)
    assert explained["refused"][0]["policy"] == f"affinity:rack:{identifier}"
    assert explained["refused"][0]["sentence"] == (
        f"44 hosts are outside the rack that 'affinity:rack:{identifier}' names"
    )
    assert explained["chosen"][0]["placements"] == {"rack": identifier}


async def test_the_groups_and_servers_of_others_do_not_exist(compute: Compute) -> None:
    group = await make_group(compute, {"name": "affinity"}, cloud="roost-admin")
    body = {"explain": {"flavorRef": "1"}}
    status, _ = await compute.refusal(
        "POST", f"/os-server-groups/{group}/explain", body, version=VERSION, cloud="roost"
    )
    assert status == 404


async def test_a_resize_that_is_only_asked_about_is_decided_as_the_resize_is(cloud: Cloud) -> None:
    """On the one host with room for it, and by the rules of the group; nothing changes."""
    first, second = await cloud.hosts(2, vcpus=2, memory_mb=4096)
    group = await cloud.group("anti-affinity")
    one, two = await cloud.boot(group=group), await cloud.boot(group=group)
    before = [await cloud.host(each) for each in (one, two)]
    assert set(before) == {first, second}

    explained = await resize_asked(cloud, one, "2", "roost-admin")
    assert explained["verdict"] == "placed"
    assert [each["host"] for each in explained["chosen"]] == before[:1]
    refused = await resize_asked(cloud, one, "4")
    assert refused["verdict"] == "refused"
    assert {each["reason"] for each in refused["refused"]} == {"disabled", "too_few_vcpus"}
    assert "host" not in str(refused["chosen"])
    assert [await cloud.host(each) for each in (one, two)] == before
    assert (await cloud.show(one))["status"] == "ACTIVE"

    assert (await cloud.act(one, "resize", {"flavorRef": "4"})).status_code == 400
    await cloud.done(one, "resize", {"flavorRef": "2"})
    assert await cloud.host(one) == before[0]
    # It waits to be confirmed, and until then no other resize is possible, asked about or not.
    answer = await cloud.ask("POST", f"/servers/{one}/explain", json={"explain": {"flavorRef": "3"}})
    assert answer.status_code == 409


async def resize_asked(cloud: Cloud, server: str, flavor: str, who: str = "roost") -> dict[str, Any]:
    answer = await cloud.ask("POST", f"/servers/{server}/explain", json={"explain": {"flavorRef": flavor}}, cloud=who)
    assert answer.status_code == 200, answer.text
    return dict(answer.json()["explanation"])


async def test_a_resize_that_would_be_refused_is_refused_when_asked_about(cloud: Cloud) -> None:
    server = await cloud.boot()
    for flavor, status in (("1", 400), ("no-such", 400)):
        answer = await cloud.ask("POST", f"/servers/{server}/explain", json={"explain": {"flavorRef": flavor}})
        assert answer.status_code == status, answer.text
    await cloud.quota(cores=1)
    answer = await cloud.ask("POST", f"/servers/{server}/explain", json={"explain": {"flavorRef": "3"}})
    assert answer.status_code == 403
    assert "cores" in answer.text
    body = {"explain": {"flavorRef": "2"}}
    assert (await cloud.refusal("POST", f"/servers/{server}/explain", body, cloud="roost-alt"))[0] == 404


async def test_a_flavor_that_is_not_there_is_refused_in_words(compute: Compute) -> None:
    group = await make_group(compute, {"name": "affinity"})
    body = {"explain": {"flavorRef": "nosuch"}}
    refusal = await compute.refusal("POST", f"/os-server-groups/{group}/explain", body, version=VERSION, cloud="roost")
    assert refusal == (400, "Flavor nosuch could not be found.")
