"""Ports that Roost makes in Neutron for servers whose profile asks for more than Nova makes by itself: a subnet, a kind
of port, security groups of the port, a floating address.

A port is named after its node and its place among the node's networks, and so is the description of a floating address:
what was made before is found again, and what a node leaves behind is found when it goes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from roost.clouds.base import OF_PORTS, CloudRefused, ServerRequest, port_mark

_OF_NEW_PORTS = ("vnic_type", "security_groups", "subnet")


def plugs(connection: Any, project_id: str, request: ServerRequest) -> list[dict[str, Any]]:
    """The networks of a server as Nova takes them. Raises `CloudRefused` for what the project does not have."""
    return [
        _plug(connection, project_id, request, wanted, port_mark(request.node_id, place))
        for place, wanted in enumerate(request.networks)
    ]


def check(connection: Any, project_id: str, wanted: Mapping[str, Any]) -> None:
    """Raise `CloudRefused` for a network that no server of the project can be plugged into in this way."""
    _port(connection, project_id, wanted, ())
    _floating_network(connection, wanted)
    _floating_address(connection, project_id, wanted)


def release(connection: Any, project_id: str, node_ids: Sequence[str], others: Sequence[str]) -> None:
    """Delete the floating addresses and ports that were made for nodes, and others of the project with these ids."""
    begins = tuple(port_mark(node_id, "") for node_id in node_ids)
    for address in list(connection.network.ips(project_id=project_id)) if _has_floating(connection) else ():
        if (address.description or "").startswith(begins) or address.id in others:
            connection.network.delete_ip(address, ignore_missing=True)
    for port in list(connection.network.ports(project_id=project_id)):
        if (port.name or "").startswith(begins) or port.id in others:
            connection.network.delete_port(port, ignore_missing=True)


def _has_floating(connection: Any) -> bool:
    """Whether Neutron has routers, and with them floating addresses."""
    return connection.network.find_extension("router") is not None


def _plug(
    connection: Any, project_id: str, request: ServerRequest, wanted: Mapping[str, Any], mark: str
) -> dict[str, Any]:
    if not wanted.keys() & set(OF_PORTS):
        return dict(wanted)
    network = connection.network
    attributes = _port(connection, project_id, wanted, request.security_groups)
    if wanted.get("port"):
        port_id = str(wanted["port"])
    else:
        there = next(iter(network.ports(project_id=project_id, name=mark)), None)
        port_id = (there or network.create_port(name=mark, project_id=project_id, **attributes)).id
    _expose(connection, project_id, wanted, port_id, mark)
    return {"port": port_id}


def _port(connection: Any, project_id: str, wanted: Mapping[str, Any], of_server: Sequence[str]) -> dict[str, Any]:
    """The request to Neutron, with names looked up among the project's own."""
    if wanted.get("port"):
        if given := [key for key in _OF_NEW_PORTS if wanted.get(key)]:
            raise CloudRefused(f"A port that exists has its own {given[0]}: leave it out, or name a network instead.")
        return {}
    attributes: dict[str, Any] = {"network_id": wanted["uuid"]}
    place = {"ip_address": wanted.get("fixed_ip"), "subnet_id": _subnet(connection, wanted)}
    if place := {key: value for key, value in place.items() if value}:
        attributes["fixed_ips"] = [place]
    if wanted.get("vnic_type"):
        attributes["binding:vnic_type"] = wanted["vnic_type"]
    if groups := wanted.get("security_groups") or of_server:
        own = list(connection.network.security_groups(project_id=project_id))
        attributes["security_groups"] = [_only("security group", name, own) for name in groups]
    return attributes


def _subnet(connection: Any, wanted: Mapping[str, Any]) -> str | None:
    if not wanted.get("subnet"):
        return None
    return _only("subnet", wanted["subnet"], list(connection.network.subnets(network_id=wanted["uuid"])))


def _only(noun: str, name: str, among: Sequence[Any]) -> str:
    found = [each.id for each in among if name in (each.id, each.name)]
    if not found:
        raise CloudRefused(f"The specified {noun} '{name}' could not be found.")
    if len(found) > 1:
        raise CloudRefused(f"There are several {noun}s called '{name}': use an id.")
    return str(found[0])


def _expose(connection: Any, project_id: str, wanted: Mapping[str, Any], port_id: str, mark: str) -> None:
    """Put a floating address in front of a port: one that the project has, or a new one."""
    network = connection.network
    address = _floating_address(connection, project_id, wanted)
    if address is not None:
        if address.port_id not in (None, port_id):
            raise CloudRefused(f"The floating IP address {address.floating_ip_address} is in use.")
        network.update_ip(address, port_id=port_id)
        return
    outside = _floating_network(connection, wanted)
    if outside is not None and not list(network.ips(port_id=port_id)):
        network.create_ip(floating_network_id=outside, port_id=port_id, project_id=project_id, description=mark)


def _floating_address(connection: Any, project_id: str, wanted: Mapping[str, Any]) -> Any | None:
    """A given address must be one that the project has: it cannot choose which new ones it gets."""
    given = wanted.get("floating_ip")
    if not given:
        return None
    _must_float(connection)
    found = next(iter(connection.network.ips(project_id=project_id, floating_ip_address=given)), None)
    if found is None:
        raise CloudRefused(f"The project has no floating IP address {given}: allocate it first.")
    return found


def _floating_network(connection: Any, wanted: Mapping[str, Any]) -> str | None:
    name = wanted.get("floating_network")
    if not name:
        return None
    _must_float(connection)
    found = connection.network.find_network(name)
    if found is None or not found.is_router_external:
        raise CloudRefused(f"The specified floating network '{name}' could not be found.")
    return str(found.id)


def _must_float(connection: Any) -> None:
    if not _has_floating(connection):
        raise CloudRefused("This cloud has no floating IP addresses.")
