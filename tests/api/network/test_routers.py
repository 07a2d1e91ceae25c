"""Routers: led to an external network, connected to subnets, and kept from those who do not own them."""

from typing import Any

from tests.api.network.test_floating import public
from tests.api.network.test_network import V2, make, network
from tests.conftest import Api


async def change(api: Api, router: str, verb: str = "", *, cloud: str = "roost", **values: Any) -> Any:
    body = values if verb else {"router": values}
    return await api.put(f"{V2}/routers/{router}{verb and '/' + verb}", body, cloud=cloud)


async def test_a_router_has_a_gateway_and_interfaces(api: Api) -> None:
    outside, inside = await public(api), await network(api)
    (subnet,) = (await api.get(f"{V2}/networks/{inside['id']}", cloud="roost")).json()["network"]["subnets"]
    made = await make(api, "routers", name="r", external_gateway_info={"network_id": outside, "enable_snat": False})
    gateway = made["external_gateway_info"]
    assert (gateway["network_id"], len(gateway["external_fixed_ips"])) == (outside, 1)
    assert gateway["enable_snat"] is False
    added = await change(api, made["id"], "add_router_interface", subnet_id=subnet)
    assert (added.status_code, added.json()["subnet_id"]) == (200, subnet)
    held = (await api.get(f"{V2}/ports/{added.json()['port_id']}", cloud="roost")).json()["port"]
    assert (held["device_owner"], held["fixed_ips"][0]["ip_address"]) == ("network:router_interface", "192.168.7.1")
    assert (await change(api, made["id"], "add_router_interface", subnet_id=subnet)).status_code == 409
    assert (await api.delete(f"{V2}/ports/{held['id']}", cloud="roost")).status_code == 409
    assert (await api.delete(f"{V2}/routers/{made['id']}", cloud="roost")).status_code == 409
    assert (await change(api, made["id"], "remove_router_interface", subnet_id=subnet)).status_code == 200
    assert (await change(api, made["id"], "remove_router_interface", subnet_id=subnet)).status_code == 404
    port = await make(api, "ports", network_id=inside["id"])
    by_port = await change(api, made["id"], "add_router_interface", port_id=port["id"])
    assert by_port.json()["port_id"] == port["id"]
    assert (await change(api, made["id"], "add_router_interface", port_id=port["id"])).status_code == 409
    assert (await change(api, made["id"], "remove_router_interface", port_id=port["id"])).status_code == 200
    routes = [{"destination": "10.1.0.0/16", "nexthop": "192.168.7.2"}]
    changed = await change(api, made["id"], name="s", external_gateway_info=None, routes=routes)
    shown = changed.json()["router"]
    assert (shown["name"], shown["external_gateway_info"], shown["routes"]) == ("s", None, routes)
    assert (await api.delete(f"{V2}/routers/{made['id']}", cloud="roost")).status_code == 204


async def test_what_a_router_cannot_be_is_refused(api: Api) -> None:
    inside = await network(api)
    (subnet,) = (await api.get(f"{V2}/networks/{inside['id']}", cloud="roost")).json()["network"]["subnets"]
    unknown = "00000000-0000-4000-8000-000000000000"
    for values, status in (
        ({"external_gateway_info": {"network_id": inside["id"]}}, 400),
        ({"external_gateway_info": {"network_id": unknown}}, 404),
        ({"external_gateway_info": {"enable_snat": True}}, 400),
        ({"distributed": True}, 400),
        ({"flavor_id": "x"}, 400),
    ):
        answer = await api.post(f"{V2}/routers", {"router": values}, cloud="roost")
        assert answer.status_code == status, (values, answer.text)
    mine = await make(api, "routers", name="mine")
    theirs = await make(api, "routers", "roost-alt", name="theirs")
    assert (await change(api, mine["id"], "add_router_interface", subnet_id=unknown)).status_code == 404
    assert (await change(api, mine["id"], "add_router_interface")).status_code == 400
    stolen = await change(api, theirs["id"], "add_router_interface", cloud="roost-alt", subnet_id=subnet)
    assert stolen.status_code == 404
    assert (await change(api, mine["id"], cloud="roost-alt", name="x")).status_code == 404
    assert (await api.delete(f"{V2}/routers/{mine['id']}", cloud="roost-alt")).status_code == 404
