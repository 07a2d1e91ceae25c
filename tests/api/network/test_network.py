"""Networks, ports and security groups: servers hold them, deleting gives them back, and others do not see them."""

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest

from roost.network.addresses import PRIVATE, PRIVATE_SUBNET
from tests.compute.cloud import Cloud
from tests.conftest import Api

V2 = "/network/v2.0"
NOBODYS = "00000000-0000-4000-8000-00000000dead"


async def make(api: Api, plural: str, cloud: str = "roost", **values: Any) -> dict[str, Any]:
    """Make something as a tenant."""
    singular = plural[:-1].replace("-", "_")
    answer = await api.post(f"{V2}/{plural}", {singular: values}, cloud=cloud)
    assert answer.status_code == 201, answer.text
    body: dict[str, Any] = answer.json()[singular]
    return body


async def listed(api: Api, plural: str, cloud: str = "roost", **query: str) -> list[dict[str, Any]]:
    """What a tenant sees."""
    answer = await api.get(f"{V2}/{plural}", cloud=cloud, params=query)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()[plural.replace("-", "_")]
    return found


def refusal(answer: httpx.Response) -> tuple[int, str]:
    """The status and the message of a refusal, in Neutron's form."""
    error = answer.json()["NeutronError"]
    assert error.keys() == {"type", "message", "detail"}
    return answer.status_code, error["message"]


async def network(api: Api, cidr: str = "192.168.7.0/29", cloud: str = "roost") -> dict[str, Any]:
    """A network with a subnet."""
    made = await make(api, "networks", cloud, name="mine")
    await make(api, "subnets", cloud, network_id=made["id"], ip_version=4, cidr=cidr)
    return made


async def addresses(cloud: Cloud, server_id: str) -> dict[str, list[str]]:
    """What a server shows."""
    shown = (await cloud.show(server_id))["addresses"]
    return {name: [each["addr"] for each in entries] for name, entries in shown.items()}


async def test_private_and_public_are_always_there_and_stay(api: Api) -> None:
    found = {row["name"]: row for row in await listed(api, "networks")}
    assert {name: row["router:external"] for name, row in found.items()} == {"private": False, "public": True}
    for row in found.values():
        answer = await api.delete(f"{V2}/networks/{row['id']}")
        assert answer.status_code == 409


async def test_services_of_networks_have_no_providers(api: Api) -> None:
    assert await listed(api, "service-providers", service_type="VPN") == []


async def test_a_server_that_names_no_network_has_a_port_as_long_as_it_lives(api: Api, cloud: Cloud) -> None:
    server = await cloud.boot(networks="auto")
    (port,) = await listed(api, "ports", device_id=server)
    assert (await addresses(cloud, server)) == {"private": [port["fixed_ips"][0]["ip_address"]]}
    assert (port["network_id"], port["status"], port["device_owner"]) == (PRIVATE, "ACTIVE", "compute:nova")
    await cloud.delete(server)
    assert await listed(api, "ports") == []


async def test_addresses_are_unique_however_many_ask_at_once(api: Api, cloud: Cloud) -> None:
    await cloud.quota(instances=-1, cores=-1, ram=-1)
    answers = await asyncio.gather(*(cloud.create(networks="auto", min_count=5) for _ in range(8)))
    assert {answer.status_code for answer in answers} == {202}
    held = [port["fixed_ips"][0]["ip_address"] for port in await listed(api, "ports")]
    assert (len(held), len(set(held))) == (40, 40)
    mine = await network(api)
    made = await asyncio.gather(
        *(api.post(f"{V2}/ports", {"port": {"network_id": mine["id"]}}, cloud="roost") for _ in range(7))
    )
    # A /29 has eight addresses: one is the network's, one the broadcast's, one the gateway's.
    assert sorted(answer.status_code for answer in made) == [201] * 5 + [409] * 2
    taken = [answer.json()["port"]["fixed_ips"][0]["ip_address"] for answer in made if answer.status_code == 201]
    assert len(set(taken)) == 5


async def test_a_server_gets_what_it_names_and_gives_it_back(api: Api, cloud: Cloud) -> None:
    mine = await network(api)
    group = await make(api, "security-groups", name="web")
    own = await make(api, "ports", network_id=mine["id"], name="kept")
    server = await cloud.boot(networks=[{"uuid": mine["id"]}, {"port": own["id"]}], security_groups=[{"name": "web"}])
    ports = await listed(api, "ports", device_id=server)
    assert {port["network_id"] for port in ports} == {mine["id"]}
    made = next(port for port in ports if port["id"] != own["id"])
    assert made["security_groups"] == [group["id"]]
    assert len((await addresses(cloud, server))["mine"]) == 2
    in_use = await cloud.create(networks=[{"port": own["id"]}])
    assert in_use.status_code == 409
    assert refusal(await api.delete(f"{V2}/networks/{mine['id']}", cloud="roost"))[0] == 409
    assert refusal(await api.delete(f"{V2}/security-groups/{group['id']}", cloud="roost"))[0] == 409
    await cloud.delete(server)
    (left,) = await listed(api, "ports")
    assert (left["id"], left["device_id"], left["device_owner"]) == (own["id"], "", "")


@pytest.mark.parametrize(
    "named",
    [
        {"networks": [{"uuid": NOBODYS}]},
        {"networks": [{"port": NOBODYS}]},
        {"networks": [{"uuid": PRIVATE, "fixed_ip": "192.0.2.1"}]},
        {"security_groups": [{"name": "nobody's"}]},
        {"block_device_mapping_v2": [{"uuid": NOBODYS, "source_type": "volume", "boot_index": 0}]},
        {"block_device_mapping_v2": [{"source_type": "image", "destination_type": "volume", "boot_index": 0}]},
    ],
)
async def test_what_is_not_there_is_refused_and_leaves_nothing(api: Api, cloud: Cloud, named: dict[str, Any]) -> None:
    answer = await cloud.create(**{"networks": "auto", **named})
    assert answer.status_code == 400, answer.text
    assert (await cloud.ask("GET", "/servers")).json()["servers"] == []
    assert await listed(api, "ports") == []


async def test_what_is_refused_later_gives_back_what_was_reserved(api: Api, cloud: Cloud) -> None:
    mine = await network(api)
    answer = await cloud.create(networks=[{"uuid": mine["id"]}], flavorRef="no such flavor")
    assert answer.status_code == 400
    assert await listed(api, "ports") == []


async def test_another_projects_network_does_not_exist(api: Api, cloud: Cloud) -> None:
    theirs = await network(api, cloud="roost-alt")
    group = await make(api, "security-groups", "roost-alt", name="theirs")
    assert theirs["id"] not in {row["id"] for row in await listed(api, "networks")}
    answer = await api.get(f"{V2}/networks/{theirs['id']}", cloud="roost")
    assert refusal(answer) == (404, f"Network {theirs['id']} could not be found.")
    assert (await cloud.create(networks=[{"uuid": theirs["id"]}])).status_code == 400
    assert (await cloud.create(networks="auto", security_groups=[{"name": group["id"]}])).status_code == 400
    answer = await api.post(f"{V2}/ports", {"port": {"network_id": theirs["id"]}}, cloud="roost")
    assert refusal(answer)[0] == 404
    shared = {"network": {"name": "all", "shared": True}}
    assert refusal(await api.post(f"{V2}/networks", shared, cloud="roost"))[0] == 403
    own = {"network": {"name": "x", "project_id": theirs["project_id"]}}
    assert refusal(await api.post(f"{V2}/networks", own, cloud="roost"))[0] == 403


async def test_every_project_has_a_default_security_group(api: Api) -> None:
    (default,) = await listed(api, "security-groups")
    assert (default["name"], len(default["security_group_rules"])) == ("default", 4)
    assert refusal(await api.delete(f"{V2}/security-groups/{default['id']}", cloud="roost"))[0] == 409
    rule = {"security_group_id": default["id"], "direction": "ingress", "protocol": "tcp"}
    made = await make(api, "security-group-rules", **rule, port_range_min=22, port_range_max=22)
    again = {"security_group_rule": {**rule, "port_range_min": 22, "port_range_max": 22}}
    assert refusal(await api.post(f"{V2}/security-group-rules", again, cloud="roost"))[0] == 409
    assert (await api.delete(f"{V2}/security-group-rules/{made['id']}", cloud="roost")).status_code == 204


async def walked(api: Api, plural: str, **query: str) -> list[list[str]]:
    """The names on each page, along the links."""
    pages, path = [], f"{V2}/{plural}"
    answer = await api.get(path, cloud="roost", params=query)
    while True:
        body = answer.json()
        pages.append([each["name"] for each in body[plural]])
        if f"{plural}_links" not in body:
            return pages
        ((rel, href),) = [(link["rel"], link["href"]) for link in body[f"{plural}_links"]]
        assert rel == "next"
        answer = await api.get(href.removeprefix("http://roost.test"), cloud="roost")


async def test_lists_come_in_pages_of_no_more_than_the_limit(api: Api) -> None:
    mine = await network(api)
    for name in ("c", "a", "d", "b", "e"):
        await make(api, "ports", network_id=mine["id"], name=name)
    of_mine = {"network_id": mine["id"]}
    assert await walked(api, "ports", **of_mine) == [["c", "a", "d", "b", "e"]]
    assert await walked(api, "ports", limit="2", **of_mine) == [["c", "a"], ["d", "b"], ["e"]]
    assert await walked(api, "ports", limit="2", sort_key="name", **of_mine) == [["a", "b"], ["c", "d"], ["e"]]
    backwards = {"sort_key": "name", "sort_dir": "desc", "limit": "4", **of_mine}
    assert await walked(api, "ports", **backwards) == [["e", "d", "c", "b"], ["a"]]
    # What only the view shows is filtered too, and the pages stay full.
    assert await walked(api, "ports", limit="2", status="DOWN", **of_mine) == [["c", "a"], ["d", "b"], ["e"]]
    object.__setattr__(api.services, "settings", replace(api.services.settings, max_limit=2))
    for limit in ("", "0", "5", str(2**63), "9" * 5000):
        assert await walked(api, "ports", limit=limit, **of_mine) == [["c", "a"], ["d", "b"], ["e"]]
    assert await walked(api, "ports", status="DOWN", **of_mine) == [["c", "a"], ["d", "b"], ["e"]]
    assert await walked(api, "ports", network_id="none", limit="1") == [[]]


@pytest.mark.parametrize(
    "query",
    [{"limit": "-1"}, {"limit": "\N{SUPERSCRIPT TWO}"}, {"marker": NOBODYS}, {"marker": "x"}, {"sort_key": "tags"}],
)
async def test_a_page_that_cannot_be_is_refused(api: Api, query: dict[str, str]) -> None:
    answer = await api.get(f"{V2}/networks", cloud="roost", params=query)
    assert refusal(answer)[0] == 400


async def test_what_a_list_shows_of_one_thing_stays_small(api: Api) -> None:
    mine = await network(api)
    path = f"{V2}/networks/{mine['id']}/tags"
    tags = [str(number) for number in range(50)]
    assert (await api.put(path, {"tags": tags}, cloud="roost")).status_code == 200
    assert (await api.put(f"{path}/0", cloud="roost")).status_code == 201
    assert refusal(await api.put(f"{path}/50", cloud="roost"))[0] == 400
    assert refusal(await api.put(path, {"tags": [*tags, "more"]}, cloud="roost"))[0] == 400
    pairs = [{"ip_address": "10.0.0.1", "x": "x" * 100_000}]
    wanted = {"network_id": mine["id"], "allowed_address_pairs": pairs}
    assert refusal(await api.post(f"{V2}/ports", {"port": wanted}, cloud="roost"))[0] == 400


async def test_quotas_bound_what_a_project_makes(api: Api, cloud: Cloud) -> None:
    demo = await cloud.project()
    assert (await api.put(f"{V2}/quotas/{demo}", {"quota": {"network": 1}}, cloud="roost")).status_code == 403
    await api.put(f"{V2}/quotas/{demo}", {"quota": {"network": 1}})
    await make(api, "networks", name="one")
    answer = await api.post(f"{V2}/networks", {"network": {"name": "two"}}, cloud="roost")
    assert refusal(answer) == (409, "Quota exceeded for resources: ['network'].")
    details = (await api.get(f"{V2}/quotas/{demo}/details", cloud="roost")).json()["quota"]["network"]
    assert details == {"limit": 1, "used": 1, "reserved": 0}


@pytest.mark.parametrize(
    "values",
    [
        {"cidr": "not a range"},
        {"cidr": "192.168.1.0/24", "ip_version": 6},
        {"cidr": "192.168.1.0/24", "gateway_ip": "192.168.2.1"},
        {"cidr": "192.168.1.0/24", "allocation_pools": [{"start": "192.168.1.9", "end": "192.168.1.2"}]},
    ],
)
async def test_a_subnet_that_cannot_be_is_refused(api: Api, values: dict[str, Any]) -> None:
    made = await make(api, "networks", name="n")
    body = {"subnet": {"network_id": made["id"], "ip_version": 4, **values}}
    assert refusal(await api.post(f"{V2}/subnets", body, cloud="roost"))[0] == 400


async def test_ranges_do_not_overlap_and_an_address_is_given_once(api: Api) -> None:
    mine = await network(api)
    body = {"subnet": {"network_id": mine["id"], "ip_version": 4, "cidr": "192.168.0.0/16"}}
    assert refusal(await api.post(f"{V2}/subnets", body, cloud="roost"))[0] == 400
    fixed = [{"subnet_id": PRIVATE_SUBNET, "ip_address": "10.0.0.9"}]
    await make(api, "ports", network_id=PRIVATE, fixed_ips=fixed)
    again = {"port": {"network_id": PRIVATE, "fixed_ips": fixed}}
    assert refusal(await api.post(f"{V2}/ports", again, cloud="roost-alt"))[0] == 409
