"""What servers are plugged into: their addresses, ports and security groups."""

from typing import Any, NamedTuple

from roost.api.compute.servers import owned
from roost.api.fields import FieldTable, ShownField, always, column
from roost.api.permissions import MEMBER, READER, Permission
from roost.api.routes import Call, Connection, Reply, Table
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
_RULE = FieldTable[Any](
    column("id", STRING),
    column("parent_group_id", STRING, "security_group_id"),
    column("ip_protocol", NULLABLE_STRING, "protocol"),
    column("from_port", _NUMBER, "port_range_min"),
    column("to_port", _NUMBER, "port_range_max"),
    ShownField(
        "ip_range", {"type": "object"}, lambda rule: {"cidr": rule.remote_ip_prefix} if rule.remote_ip_prefix else {}
    ),
    ShownField("group", {"type": "object"}, lambda rule: {"id": rule.remote_group_id} if rule.remote_group_id else {}),
)


class SecurityGroupAnswer(NamedTuple):
    """A security group, and those of its rules that let something in."""

    group: Any
    rules: list[Any]


_GROUP = FieldTable[SecurityGroupAnswer](
    column("id", STRING, "group.id"),
    column("name", STRING, "group.name"),
    column("description", STRING, "group.description"),
    column("tenant_id", STRING, "group.project_id"),
    ShownField("rules", array(_RULE.schema()), lambda of: [_RULE.show(rule) for rule in of.rules]),
)


@routes.get("/os-security-groups", rule=_GROUPS, owned=True, response=_GROUP.many("security_groups"))
async def index_groups(call: Call, connection: Connection) -> Reply:
    """The security groups of a server."""
    server = await owned(call, connection, _GROUPS)
    found = await attachments.groups_of(connection, server)
    rules = await security.rules_of(connection, [group.id for group in found])
    return {
        "security_groups": [
            _GROUP.show(
                SecurityGroupAnswer(group, [each for each in rules.get(group.id, ()) if each.direction == "ingress"])
            )
            for group in found
        ]
    }


class PortAnswer(NamedTuple):
    """A port with its addresses."""

    port: Any
    fixed_ips: list[dict[str, Any]]


_PORT = FieldTable[PortAnswer](
    column("port_id", STRING, "port.id"),
    column("net_id", STRING, "port.network_id"),
    column("mac_addr", STRING, "port.mac_address"),
    always("port_state", "ACTIVE"),
    column("fixed_ips", array(thing({"subnet_id": STRING, "ip_address": STRING}))),
    always("tag", None, since=Version(2, 70)),
)
_ONE = _PORT.one("interfaceAttachment")


@routes.get("/os-interface", rule=_PORTS + "list", owned=True, response=_PORT.many("interfaceAttachments"))
async def index(call: Call, connection: Connection) -> Reply:
    """The ports of a server."""
    server = await owned(call, connection, _PORTS + "list")
    found = await attachments.ports_of(connection, server.id)
    return {"interfaceAttachments": await _views(call, connection, found)}


@routes.get("/os-interface/{port_id}", rule=_PORTS + "show", owned=True, response=_ONE)
async def show(call: Call, connection: Connection) -> Reply:
    """A port of a server."""
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
    response=_ONE,
)
async def create(call: Call, connection: Connection) -> Reply:
    """Plug a server into a port: a given one, or a new one on a network."""
    asked = call.body.get("interfaceAttachment") or {}
    if "net_id" in asked and "port_id" in asked:
        raise Invalid("Must not input both network_id and port_id")
    if "fixed_ips" in asked and "net_id" not in asked:
        raise Invalid("Must input network_id when request IP address")
    if "tag" in asked:
        raise Invalid("Ports have no tags that a server's guest could read in this cloud.")
    server = await owned(call, connection, _PORTS + "create", lock=True)
    wanted = {"port": asked.get("port_id"), "uuid": asked.get("net_id")}
    port = await attachments.plug(connection, server, wanted, asked.get("fixed_ips"))
    found = [each for each in await attachments.ports_of(connection, server.id) if each.id == port.id]
    return {"interfaceAttachment": (await _views(call, connection, found))[0]}


@routes.delete("/os-interface/{port_id}", rule=_PORTS + "delete", owned=True, status=202)
async def delete(call: Call, connection: Connection) -> None:
    """Unplug a server from a port; one that was made for it is gone."""
    server = await owned(call, connection, _PORTS + "delete", lock=True)
    await networks.unplug(connection, await _port(call, connection, server))


async def _port(call: Call, connection: Connection, server: Any) -> Any:
    port_id = call.path["port_id"]
    for port in await attachments.ports_of(connection, server.id):
        if port.id == port_id:
            return port
    raise NotFound(f"Instance {server.id} does not have a port with id {port_id}")


async def _views(call: Call, connection: Connection, found: Any) -> list[dict[str, Any]]:
    held = await networks.addresses_of(connection, [port.id for port in found])
    return [_PORT.show(PortAnswer(port, held.get(port.id, [])), call.version) for port in found]


_ADDRESSES = by_name(array(thing({"addr": STRING, "version": {"enum": [4, 6]}})))


@routes.get("/ips", rule=_IPS + "index", owned=True, response=thing({"addresses": _ADDRESSES}))
async def index_addresses(call: Call, connection: Connection) -> Reply:
    """The addresses of a server, by network."""
    server = await owned(call, connection, _IPS + "index")
    return {"addresses": _addresses(server)}


@routes.get("/ips/{network}", rule=_IPS + "show", owned=True, response=_ADDRESSES)
async def show_addresses(call: Call, connection: Connection) -> Reply:
    """The addresses of a server on one network."""
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
