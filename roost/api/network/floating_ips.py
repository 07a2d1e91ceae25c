"""Floating addresses, as Neutron shows them."""

from collections.abc import Sequence
from typing import Any

from roost.api.network.networks import NETWORKS
from roost.api.network.nouns import TEXT, Noun, Values
from roost.api.network.ports import PORTS
from roost.api.routes import Call, Connection
from roost.api.schemas import NULLABLE_STRING, STRING, Schema
from roost.network import floating, stored


async def _make_floating(call: Call, connection: Connection, values: Values) -> Any:
    pointed = _pointed(values)
    network = await NETWORKS.find(call, connection, values["floating_network_id"])
    row = await floating.create(connection, network, values)
    if pointed:
        await _point(call, connection, row, pointed)
    return await FLOATING.find(call, connection, row.id)


async def _change_floating(call: Call, connection: Connection, row: Any, values: Values) -> None:
    pointed = _pointed(values)
    if "port_id" in pointed:
        await _point(call, connection, row, pointed)
    await stored.FLOATING_IPS.change(connection, row.id, values)


def _pointed(values: Values) -> Values:
    """Take out what says where a floating address points."""
    return {key: values.pop(key) for key in ("port_id", "fixed_ip_address") if key in values}


async def _point(call: Call, connection: Connection, row: Any, pointed: Values) -> None:
    port = None
    if pointed.get("port_id") is not None:
        port = await PORTS.find(call, connection, pointed["port_id"])
        if port.project_id != row.project_id:
            raise PORTS.missing(pointed["port_id"])
    await floating.point(connection, row, port, pointed.get("fixed_ip_address"))


async def _more_of_floating(connection: Connection, found: Sequence[Any]) -> dict[str, Values]:
    ids = [row.port_id for row in found if row.port_id]
    held = await stored.ports_by_id(connection, ids)
    shown = ("name", "network_id", "mac_address", "admin_state_up", "device_id", "device_owner")
    details = {
        port.id: {**{key: getattr(port, key) for key in shown}, "status": "ACTIVE" if port.device_id else "DOWN"}
        for port in held.values()
    }
    return {
        row.id: {
            "status": "ACTIVE" if row.port_id else "DOWN",
            "fixed_ip_address": row.fixed_ip_address if row.port_id else None,
            "router_id": None,
            "qos_policy_id": None,
            "port_details": details.get(row.port_id),
        }
        for row in found
    }


_POINTED: dict[str, Schema] = {
    **dict.fromkeys(("port_id", "fixed_ip_address"), NULLABLE_STRING),
    "description": TEXT,
}
FLOATING = Noun(
    *("floatingip", "floatingips", "Floating IP", stored.FLOATING_IPS),
    makeable={**_POINTED, "floating_network_id": STRING, "floating_ip_address": STRING},
    changeable=_POINTED,
    required=("floating_network_id",),
    make=_make_floating,
    change=_change_floating,
    remove=floating.delete,
    more=_more_of_floating,
)
