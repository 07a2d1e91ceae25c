"""What servers are plugged into: their addresses, ports and security groups."""

from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from roost.api.compute.servers import owned
from roost.api.permissions import MEMBER, READER, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import NULLABLE_STRING, STRING, Schema, array, by_name, thing
from roost.api.versions import Version
from roost.errors import Invalid, NotFound
from roost.network import attachments, networks, security

_GROUPS = "os_compute_api:os-security-groups:list"
_PORTS = "os_compute_api:os-attach-interfaces:"
_IPS = "os_compute_api:ips:"

RULES = (
    Permission(_GROUPS, READER, "List the security groups of a server."),
    Permission(_PORTS + "list", READER, "List the ports of a server."),
    Permission(_PORTS + "show", READER, "Show a port of a server."),
    Permission(_PORTS + "create", MEMBER, "Plug a server into another port."),
    Permission(_PORTS + "delete", MEMBER, "Unplug a server from a port."),
    Permission(_IPS + "index", READER, "List the addresses of a server."),
    Permission(_IPS + "show", READER, "List the addresses of a server on one network."),
)

routes = Table(prefix="/v2.1/servers/{server_id}")

_NUMBER: Schema = {"type": ["integer", "null"]}
_RULE = thing(
    {
        **dict.fromkeys(("id", "parent_group_id"), STRING),
        "ip_protocol": NULLABLE_STRING,
        **dict.fromkeys(("from_port", "to_port"), _NUMBER),
        "ip_range": {"type": "object"},
        "group": {"type": "object"},
    }
)
_GROUP = thing({**dict.fromkeys(("id", "name", "description", "tenant_id"), STRING), "rules": array(_RULE)})


@routes.get("/os-security-groups", rule=_GROUPS, owned=True, response=thing({"security_groups": array(_GROUP)}))
async def index_groups(call: Call) -> Reply:
    """The security groups of a server."""
    async with call.services.database.autocommit() as connection:
        server = await owned(call, connection, _GROUPS)
        found = await attachments.groups_of(connection, server)
        rules = await security.rules_of(connection, [group.id for group in found])
    return {
        "security_groups": [
            {
                "id": group.id,
                "name": group.name,
                "description": group.description,
                "tenant_id": group.project_id,
                "rules": [_rule(rule) for rule in rules.get(group.id, ()) if rule.direction == "ingress"],
            }
            for group in found
        ]
    }


def _rule(rule: Any) -> dict[str, Any]:
    return {
        "id": rule.id,
        "parent_group_id": rule.security_group_id,
        "ip_protocol": rule.protocol,
        "from_port": rule.port_range_min,
        "to_port": rule.port_range_max,
        "ip_range": {"cidr": rule.remote_ip_prefix} if rule.remote_ip_prefix else {},
        "group": {"id": rule.remote_group_id} if rule.remote_group_id else {},
    }


_FIXED = thing({"subnet_id": STRING, "ip_address": STRING})
_PORT: dict[str, Schema] = {
    **dict.fromkeys(("port_id", "net_id", "mac_addr", "port_state"), STRING),
    "fixed_ips": array(_FIXED),
}


def _port_shape(version: Version) -> Schema:
    return thing({**_PORT, "tag": NULLABLE_STRING} if version >= Version(2, 70) else _PORT)


def _one(version: Version) -> Schema:
    return thing({"interfaceAttachment": _port_shape(version)})


@routes.get(
    "/os-interface",
    rule=_PORTS + "list",
    owned=True,
    response=lambda version: thing({"interfaceAttachments": array(_port_shape(version))}),
)
async def index(call: Call) -> Reply:
    """The ports of a server."""
    async with call.services.database.autocommit() as connection:
        server = await owned(call, connection, _PORTS + "list")
        found = await attachments.ports_of(connection, server.id)
        return {"interfaceAttachments": await _views(call, connection, found)}


@routes.get("/os-interface/{port_id}", rule=_PORTS + "show", owned=True, response=_one)
async def show(call: Call) -> Reply:
    """A port of a server."""
    async with call.services.database.autocommit() as connection:
        port = await _port(call, connection, await owned(call, connection, _PORTS + "show"))
        return {"interfaceAttachment": (await _views(call, connection, [port]))[0]}


@routes.post(
    "/os-interface",
    rule=_PORTS + "create",
    owned=True,
    body=thing(
        {},
        {
            "interfaceAttachment": thing(
                {},
                {"net_id": STRING, "port_id": STRING, "tag": STRING}
                | {"fixed_ips": array(thing({"ip_address": STRING}), minItems=1, maxItems=1)},
            )
        },
    ),
    response=_one,
)
async def create(call: Call) -> Reply:
    """Plug a server into a port: a given one, or a new one on a network."""
    asked = call.body.get("interfaceAttachment") or {}
    if "net_id" in asked and "port_id" in asked:
        raise Invalid("Must not input both network_id and port_id")
    if "fixed_ips" in asked and "net_id" not in asked:
        raise Invalid("Must input network_id when request IP address")
    if "tag" in asked:
        raise Invalid("Ports have no tags that a server's guest could read in this cloud.")
    async with call.services.database.begin() as connection:
        server = await owned(call, connection, _PORTS + "create", lock=True)
        wanted = {"port": asked.get("port_id"), "uuid": asked.get("net_id")}
        port = await attachments.plug(connection, server, wanted, asked.get("fixed_ips"))
        found = [each for each in await attachments.ports_of(connection, server.id) if each.id == port.id]
        return {"interfaceAttachment": (await _views(call, connection, found))[0]}


@routes.delete("/os-interface/{port_id}", rule=_PORTS + "delete", owned=True, status=202)
async def delete(call: Call) -> Reply:
    """Unplug a server from a port; one that was made for it is gone."""
    async with call.services.database.begin() as connection:
        server = await owned(call, connection, _PORTS + "delete", lock=True)
        await networks.unplug(connection, await _port(call, connection, server))
    return None


async def _port(call: Call, connection: AsyncConnection, server: Any) -> Any:
    port_id = call.path["port_id"]
    for port in await attachments.ports_of(connection, server.id):
        if port.id == port_id:
            return port
    raise NotFound(f"Instance {server.id} does not have a port with id {port_id}")


async def _views(call: Call, connection: AsyncConnection, found: Any) -> list[dict[str, Any]]:
    held = await networks.addresses_of(connection, [port.id for port in found])
    return [
        {
            "port_id": port.id,
            "net_id": port.network_id,
            "mac_addr": port.mac_address,
            "port_state": "ACTIVE",
            "fixed_ips": held.get(port.id, []),
            **({"tag": None} if call.version >= Version(2, 70) else {}),
        }
        for port in found
    ]


_ADDRESSES = by_name(array(thing({"addr": STRING, "version": {"enum": [4, 6]}})))


@routes.get("/ips", rule=_IPS + "index", owned=True, response=thing({"addresses": _ADDRESSES}))
async def index_addresses(call: Call) -> Reply:
    """The addresses of a server, by network."""
    async with call.services.database.autocommit() as connection:
        server = await owned(call, connection, _IPS + "index")
    return {"addresses": _addresses(server)}


@routes.get("/ips/{network}", rule=_IPS + "show", owned=True, response=_ADDRESSES)
async def show_addresses(call: Call) -> Reply:
    """The addresses of a server on one network."""
    async with call.services.database.autocommit() as connection:
        found = _addresses(await owned(call, connection, _IPS + "show"))
    name = call.path["network"]
    if name not in found:
        raise NotFound(f"Instance is not a member of specified network {name}")
    return {name: found[name]}


def _addresses(server: Any) -> dict[str, list[dict[str, Any]]]:
    return {
        network: [{"addr": each["addr"], "version": each["version"]} for each in entries]
        for network, entries in server.addresses.items()
    }
