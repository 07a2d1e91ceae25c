"""Ports, as Neutron shows them."""

from collections.abc import Sequence
from typing import Any

from roost.api.network.networks import find_network
from roost.api.network.nouns import DESCRIBED, FIXED, MOST, TEXT, Noun, Values
from roost.api.routes import Call, Connection
from roost.api.schemas import STRING, TRUTH, Schema, array, thing
from roost.errors import Conflict, Invalid
from roost.network import networks, security, stored

_MAC: Schema = {"type": "string", "pattern": "^([0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}$"}


async def _make_port(call: Call, connection: Connection, values: Values) -> Any:
    network = await find_network(call, connection, values.pop("network_id"), own=False)
    fixed = values.pop("fixed_ips", None)
    values.pop("binding:vnic_type", None)
    if values.get("device_id") or values.get("device_owner", "").startswith("compute:"):
        raise Invalid("A port is plugged into a server by the compute API.")
    # Those of the pool for servers begin like this, and are theirs.
    if values.get("mac_address", "").lower().startswith("fa:16:3e:") and int(values["mac_address"][9:11], 16) >= 128:
        raise Conflict(f"Unable to complete operation for network {network.id}. The mac address is in use.")
    return await networks.add_port(connection, network, values, fixed)


async def _change_port(call: Call, connection: Connection, row: Any, values: Values) -> None:
    changes = dict(values)
    fixed = changes.pop("fixed_ips", None)
    if fixed is not None:
        if row.device_id:
            raise Conflict(f"Port {row.id} is plugged into a server, and keeps its addresses.")
        await networks.place(connection, row, fixed)
    if changes.get("security_groups") is not None:
        await networks.check_groups(connection, row.project_id, changes["security_groups"])
    for key in ("device_id", "device_owner"):
        if changes.get(key, getattr(row, key)) != getattr(row, key):
            raise Invalid("A port is plugged into a server, and out of it, by the compute API.")
    await stored.PORTS.change(connection, row.id, changes)


async def _more_of_ports(connection: Connection, found: Sequence[Any]) -> dict[str, Values]:
    held = await networks.addresses_of(connection, [row.id for row in found])
    owners = {row.project_id for row in found if row.security_groups is None}
    defaults = {owner: (await security.default_group(connection, owner)).id for owner in sorted(owners)}
    return {
        row.id: {
            "status": "ACTIVE" if row.device_id else "DOWN",
            "fixed_ips": held.get(row.id, []),
            "security_groups": row.security_groups if row.security_groups is not None else [defaults[row.project_id]],
            "binding:vnic_type": "normal",
            "qos_policy_id": None,
        }
        for row in found
    }


_OF_PORT: dict[str, Schema] = {
    **DESCRIBED,
    "admin_state_up": TRUTH,
    "port_security_enabled": TRUTH,
    "security_groups": {"type": ["array", "null"], "items": STRING, "maxItems": MOST},
    "fixed_ips": FIXED,
    "device_id": TEXT,
    "device_owner": TEXT,
    "allowed_address_pairs": array(thing({"ip_address": TEXT}, {"mac_address": _MAC}), maxItems=MOST),
    "extra_dhcp_opts": array(
        thing({"opt_name": TEXT, "opt_value": {**TEXT, "type": ["string", "null"]}}, {"ip_version": {"enum": [4, 6]}}),
        maxItems=MOST,
    ),
}
PORTS = Noun(
    *("port", "ports", "Port", stored.PORTS),
    makeable={**_OF_PORT, "network_id": STRING, "mac_address": _MAC, "binding:vnic_type": {"enum": ["normal"]}},
    changeable=_OF_PORT,
    required=("network_id",),
    make=_make_port,
    change=_change_port,
    remove=networks.delete_port,
    shows_default_group=True,
    more=_more_of_ports,
)
