"""Routers and their interfaces, as Neutron shows them."""

from collections.abc import Sequence
from typing import Any

from roost.api.network.networks import NETWORKS, SUBNETS
from roost.api.network.nouns import DESCRIBED, FIXED, MOST, TEXT, Noun, Values
from roost.api.network.ports import PORTS
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import STRING, TRUTH, Schema, array, thing
from roost.errors import Invalid
from roost.network import networks, routers, stored

routes = Table(prefix="/v2.0")


async def _make_router(call: Call, connection: Connection, values: Values) -> Any:
    gateway = values.pop("external_gateway_info", None)
    row = await stored.ROUTERS.add(connection, _routed(values))
    await _lead(call, connection, row, gateway)
    return await ROUTERS.find(call, connection, row.id)


async def _change_router(call: Call, connection: Connection, row: Any, values: Values) -> None:
    if "external_gateway_info" in values:
        await _lead(call, connection, row, values.pop("external_gateway_info"))
    await stored.ROUTERS.change(connection, row.id, _routed(values))


def _routed(values: Values) -> Values:
    return {key: value for key, value in values.items() if key not in _NEITHER}


async def _lead(call: Call, connection: Connection, row: Any, gateway: Values | None) -> None:
    said = gateway or {}
    network = await NETWORKS.find(call, connection, said["network_id"]) if said else None
    snat = said.get("enable_snat", True)
    await routers.set_gateway(connection, row, network, said.get("external_fixed_ips"), snat=snat)


async def _more_of_routers(connection: Connection, found: Sequence[Any]) -> dict[str, Values]:
    held = await routers.gateways(connection, [row.id for row in found])
    return {
        row.id: {
            "status": "ACTIVE",
            "external_gateway_info": {
                "network_id": row.gateway_network_id,
                "enable_snat": row.enable_snat,
                "external_fixed_ips": held.get(row.id, []),
            }
            if row.gateway_network_id
            else None,
            **dict.fromkeys(_NEITHER, False),
            "availability_zones": [],
            "availability_zone_hints": [],
            "flavor_id": None,
        }
        for row in found
    }


_NEITHER = ("distributed", "ha")
"""What routers of several machines are."""
_OF_ROUTER: dict[str, Schema] = {
    **DESCRIBED,
    "admin_state_up": TRUTH,
    "external_gateway_info": {
        **thing({}, {"network_id": STRING, "enable_snat": TRUTH, "external_fixed_ips": FIXED}),
        "type": ["object", "null"],
        "dependentRequired": {"external_fixed_ips": ["network_id"], "enable_snat": ["network_id"]},
    },
    "routes": array(thing({"destination": TEXT, "nexthop": TEXT}), maxItems=MOST),
    **{key: {"const": False} for key in _NEITHER},
}
ROUTERS = Noun(
    *("router", "routers", "Router", stored.ROUTERS),
    makeable={**_OF_ROUTER, "availability_zone_hints": array(STRING, maxItems=0)},
    changeable=_OF_ROUTER,
    required=(),
    make=_make_router,
    change=_change_router,
    remove=routers.delete,
    more=_more_of_routers,
)

_INTERFACE = thing(
    dict.fromkeys(("id", "tenant_id", "project_id", "port_id", "network_id", "subnet_id"), STRING)
    | {"subnet_ids": array(STRING)}
)
_ONE_OF: Schema = {**thing({}, {"subnet_id": STRING, "port_id": STRING}), "minProperties": 1, "maxProperties": 1}


@routes.put(
    "/routers/{router_id}/add_router_interface", rule="update_router", owned=True, body=_ONE_OF, response=_INTERFACE
)
async def add_interface(call: Call, connection: Connection) -> Reply:
    """Connect a router to a subnet, or by a port."""
    router = await ROUTERS.owned(call, connection, "update")
    if "port_id" in call.body:
        port = await routers.add_port(connection, router, await PORTS.find(call, connection, call.body["port_id"]))
    else:
        subnet = await SUBNETS.find(call, connection, call.body["subnet_id"])
        network = await NETWORKS.find(call, connection, subnet.network_id)
        port = await routers.add_interface(connection, router, subnet, network)
    held = (await networks.addresses_of(connection, [port.id])).get(port.id)
    if not held:
        raise Invalid(f"Port {port.id} has no address on a subnet.")
    return _interface(router, port, held[0]["subnet_id"])


@routes.put(
    "/routers/{router_id}/remove_router_interface", rule="update_router", owned=True, body=_ONE_OF, response=_INTERFACE
)
async def remove_interface(call: Call, connection: Connection) -> Reply:
    """Disconnect a router from a subnet, or from a port, which is deleted."""
    router = await ROUTERS.owned(call, connection, "update")
    port, subnet_id = await routers.remove_interface(connection, router, call.body)
    return _interface(router, port, subnet_id)


def _interface(router: Any, port: Any, subnet_id: str) -> Values:
    owner = {"tenant_id": router.project_id, "project_id": router.project_id}
    where = {"port_id": port.id, "network_id": port.network_id, "subnet_id": subnet_id, "subnet_ids": [subnet_id]}
    return {"id": router.id, **owner, **where}
