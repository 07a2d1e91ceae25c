"""Networks and subnets, as Neutron shows them."""

from collections.abc import Sequence
from typing import Any

from roost.api.network.nouns import DESCRIBED, MOST, TEXT, Noun, Values
from roost.api.routes import Call, Connection
from roost.api.schemas import NULLABLE_STRING, STRING, TRUTH, Schema, array, thing
from roost.errors import Forbidden
from roost.network import networks, stored


async def _make_network(call: Call, connection: Connection, values: Values) -> Any:
    values = _external(values)
    networks.refuse_shared(values, call.caller.is_admin)
    return await stored.NETWORKS.add(connection, values)


async def _change_network(call: Call, connection: Connection, row: Any, values: Values) -> None:
    changes = _external(values)
    networks.refuse_shared(changes, call.caller.is_admin)
    await stored.NETWORKS.change(connection, row.id, changes)


def _external(values: Values) -> Values:
    renamed = {key: value for key, value in values.items() if key != "router:external"}
    return {**renamed, "external": values["router:external"]} if "router:external" in values else renamed


async def _more_of_networks(connection: Connection, found: Sequence[Any]) -> dict[str, Values]:
    by_network = await stored.subnets_of(connection, [row.id for row in found])
    return {
        row.id: {
            "status": "ACTIVE",
            "subnets": by_network.get(row.id, []),
            "router:external": row.external,
            "is_default": False,
            "availability_zones": [],
            "availability_zone_hints": [],
            "ipv4_address_scope": None,
            "ipv6_address_scope": None,
        }
        for row in found
    }


_OF_NETWORK: dict[str, Schema] = {
    **DESCRIBED,
    **dict.fromkeys(("admin_state_up", "shared", "router:external", "port_security_enabled"), TRUTH),
    "mtu": {"type": "integer", "minimum": 68, "maximum": 65535},
    "dns_domain": TEXT,
    "is_default": {"const": False},
}
NETWORKS = Noun(
    *("network", "networks", "Network", stored.NETWORKS),
    makeable={**_OF_NETWORK, "availability_zone_hints": array(STRING, maxItems=0)},
    changeable=_OF_NETWORK,
    required=(),
    make=_make_network,
    change=_change_network,
    remove=networks.delete_network,
    more=_more_of_networks,
)

# Subnets


async def find_network(call: Call, connection: Connection, network_id: str, *, own: bool) -> Any:
    network = await NETWORKS.find(call, connection, network_id)
    if own and network.project_id != call.caller.project_id and not call.caller.is_admin:
        raise Forbidden("Only the owner of a network divides it.")
    return network


async def _make_subnet(call: Call, connection: Connection, values: Values) -> Any:
    network = await find_network(call, connection, values["network_id"], own=True)
    return await networks.add_subnet(connection, network, networks.subnet_values(values))


async def _change_subnet(call: Call, connection: Connection, row: Any, values: Values) -> None:
    kept = {"cidr": row.cidr, "ip_version": row.ip_version, "gateway_ip": row.gateway_ip}
    pools = {"allocation_pools": values.get("allocation_pools", row.allocation_pools)}
    checked = networks.subnet_values({**kept, **pools, **values})
    await stored.SUBNETS.change(connection, row.id, {key: checked[key] for key in values})


async def _more_of_subnets(connection: Connection, found: Sequence[Any]) -> dict[str, Values]:
    nothing = {"ipv6_address_mode": None, "ipv6_ra_mode": None, "segment_id": None, "subnetpool_id": None}
    return {row.id: nothing for row in found}


_OF_SUBNET: dict[str, Schema] = {
    **DESCRIBED,
    "gateway_ip": NULLABLE_STRING,
    "enable_dhcp": TRUTH,
    "allocation_pools": array(thing({"start": STRING, "end": STRING}), maxItems=MOST),
    "dns_nameservers": {"type": ["array", "null"], "items": TEXT, "maxItems": MOST},
    "host_routes": {
        "type": ["array", "null"],
        "items": thing({"destination": TEXT, "nexthop": TEXT}),
        "maxItems": MOST,
    },
    "service_types": array(TEXT, maxItems=MOST),
}
SUBNETS = Noun(
    *("subnet", "subnets", "Subnet", stored.SUBNETS),
    makeable={**_OF_SUBNET, "network_id": STRING, "ip_version": {"enum": [4, 6]}, "cidr": STRING},
    changeable=_OF_SUBNET,
    required=("network_id", "ip_version", "cidr"),
    make=_make_subnet,
    change=_change_subnet,
    remove=networks.delete_subnet,
    more=_more_of_subnets,
)
