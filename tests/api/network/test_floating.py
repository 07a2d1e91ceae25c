"""Floating addresses: taken from the external network, put in front of a server's port, and given back."""

from typing import Any

from tests.compute.cloud import Cloud
from tests.conftest import Api

PATH = "/network/v2.0/floatingips"


async def public(api: Api) -> str:
    found = (await api.get("/network/v2.0/networks?router:external=true", cloud="roost")).json()["networks"]
    return str(found[0]["id"])


async def make(api: Api, *, cloud: str = "roost", **values: Any) -> Any:
    answer = await api.post(PATH, {"floatingip": {"floating_network_id": await public(api), **values}}, cloud=cloud)
    assert answer.status_code == 201, answer.text
    return answer.json()["floatingip"]


async def port_of(api: Api, server: str) -> Any:
    return (await api.get(f"/network/v2.0/ports?device_id={server}", cloud="roost")).json()["ports"][0]


def floating(shown: dict[str, Any]) -> list[str]:
    return [
        each["addr"]
        for entries in shown["addresses"].values()
        for each in entries
        if each["OS-EXT-IPS:type"] == "floating"
    ]


async def test_a_floating_address_stands_in_front_of_a_server(api: Api, cloud: Cloud) -> None:
    server = await cloud.boot(networks="auto")
    port = await port_of(api, server)
    made = await make(api, port_id=port["id"])
    assert (made["status"], made["fixed_ip_address"]) == ("ACTIVE", port["fixed_ips"][0]["ip_address"])
    assert made["port_details"]["device_id"] == server
    shown = await cloud.show(server)
    assert floating(shown) == [made["floating_ip_address"]]
    assert len(shown["addresses"]["private"]) == 2
    path = f"{PATH}/{made['id']}"
    loose = (await api.put(path, {"floatingip": {"port_id": None}}, cloud="roost")).json()["floatingip"]
    assert (loose["status"], loose["port_id"], loose["fixed_ip_address"]) == ("DOWN", None, None)
    assert floating(await cloud.show(server)) == []
    await api.put(path, {"floatingip": {"port_id": port["id"]}}, cloud="roost")
    assert floating(await cloud.show(server)) == [made["floating_ip_address"]]
    second = await make(api)
    taken = await api.put(f"{PATH}/{second['id']}", {"floatingip": {"port_id": port["id"]}}, cloud="roost")
    assert taken.status_code == 409
    await cloud.ask("DELETE", f"/servers/{server}")
    await cloud.settle()
    left = (await api.get(path, cloud="roost")).json()["floatingip"]
    assert (left["status"], left["port_id"], left["fixed_ip_address"]) == ("DOWN", None, None)
    assert (await api.delete(path, cloud="roost")).status_code == 204
    again = await make(api, floating_ip_address=made["floating_ip_address"])
    assert again["floating_ip_address"] == made["floating_ip_address"]


async def test_a_floating_address_that_is_deleted_is_no_longer_shown(api: Api, cloud: Cloud) -> None:
    server = await cloud.boot(networks="auto")
    made = await make(api, port_id=(await port_of(api, server))["id"])
    assert (await api.delete(f"{PATH}/{made['id']}", cloud="roost")).status_code == 204
    shown = await cloud.show(server)
    assert (floating(shown), len(shown["addresses"]["private"])) == ([], 1)


async def test_what_cannot_be_is_refused(api: Api, cloud: Cloud) -> None:
    server = await cloud.boot(networks="auto")
    port = await port_of(api, server)
    outside = await public(api)
    private = next(
        each["id"]
        for each in (await api.get("/network/v2.0/networks", cloud="roost")).json()["networks"]
        if each["name"] == "private"
    )
    unknown = "00000000-0000-4000-8000-000000000000"
    for values, status in (
        ({"floating_network_id": private}, 400),
        ({"floating_network_id": unknown}, 404),
        ({"floating_network_id": outside, "port_id": unknown}, 404),
        ({"floating_network_id": outside, "port_id": port["id"], "fixed_ip_address": "10.255.255.1"}, 400),
        ({"floating_network_id": outside, "fixed_ip_address": "10.255.255.1"}, 400),
        ({"floating_network_id": outside, "floating_ip_address": "10.0.0.1"}, 400),
        ({}, 400),
    ):
        answer = await api.post(PATH, {"floatingip": values}, cloud="roost")
        assert answer.status_code == status, (values, answer.text)
    theirs = await api.post(
        PATH, {"floatingip": {"floating_network_id": outside, "port_id": port["id"]}}, cloud="roost-alt"
    )
    assert theirs.status_code == 404
    made = await make(api)
    assert (await api.get(f"{PATH}/{made['id']}", cloud="roost-alt")).status_code == 404
    assert (await api.delete(f"{PATH}/{made['id']}", cloud="roost-alt")).status_code == 404
    assert (await api.get(PATH, cloud="roost-alt")).json()["floatingips"] == []
    same = {"floating_network_id": outside, "floating_ip_address": made["floating_ip_address"]}
    assert (await api.post(PATH, {"floatingip": same}, cloud="roost-alt")).status_code == 409


async def test_a_project_takes_so_many_and_no_more(api: Api) -> None:
    project = (await make(api))["project_id"]
    quotas = f"/network/v2.0/quotas/{project}"
    assert (await api.put(quotas, {"quota": {"floatingip": 0, "check_limit": True}})).status_code == 400
    assert (await api.put(quotas, {"quota": {"floatingip": 2, "check_limit": True}})).status_code == 200
    await make(api)
    over = await api.post(PATH, {"floatingip": {"floating_network_id": await public(api)}}, cloud="roost")
    assert (over.status_code, over.json()["NeutronError"]["message"]) == (
        409,
        "Quota exceeded for resources: ['floatingip'].",
    )
