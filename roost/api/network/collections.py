"""Networks, subnets, ports, security groups and their rules: one table of nouns, and the five verbs of each.

A project sees what is its own and what is shared; what it does not see does not exist for it.
"""

import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, UUID
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.api.permissions import MEMBER, READER, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import NULLABLE_STRING, STRING, TRUTH, Schema, array, thing
from roost.errors import Conflict, Forbidden, Invalid, NotFound
from roost.network import floating, networks, routers, security
from roost.store import pages, rows
from roost.store.pages import PageRequest, SortKey, UnknownMarker
from roost.store.tables import network as tables
from roost.store.uuids import is_uuid
from roost.turns import spread

routes = Table(prefix="/v2.0")

Values = dict[str, Any]
Viewer = Callable[[AsyncConnection, Sequence[Any]], Awaitable[dict[str, Values]]]
"""What else is shown of rows, by their ids."""

_TEXT: Schema = {"type": "string", "maxLength": 255}
_OWNER: dict[str, Schema] = {"project_id": STRING, "tenant_id": STRING}
_DESCRIBED: dict[str, Schema] = {"name": _TEXT, "description": _TEXT}
_RANGE: Schema = {"type": ["integer", "null"], "minimum": 0, "maximum": 65535}
_MOST = 50
"""Tags, addresses, routes and the like of one thing: what a list shows of each stays small."""
_FIXED: Schema = array(thing({}, {"subnet_id": STRING, "ip_address": STRING}), maxItems=_MOST)
_MAC: Schema = {"type": "string", "pattern": "^([0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}$"}


@dataclass(frozen=True, slots=True)
class Noun:
    """One kind of thing: what it is called, what may be asked of it and changed, and what else becomes of it."""

    singular: str
    plural: str
    title: str
    table: sa.Table
    makeable: Mapping[str, Schema]
    changeable: Mapping[str, Schema]
    required: tuple[str, ...]
    make: Callable[[Call, AsyncConnection, Values], Awaitable[Any]]
    change: Callable[[Call, AsyncConnection, Any, Values], Awaitable[None]]
    remove: Callable[[AsyncConnection, Any], Awaitable[None]]
    more: Viewer
    shared: bool = False
    """Others may see one that says so."""

    @property
    def path(self) -> str:
        """Where they are."""
        return "/" + self.plural.replace("_", "-")

    @property
    def variable(self) -> str:
        """What a path calls one of them."""
        return f"{self.singular}_id"

    def missing(self, identifier: str) -> NotFound:
        """What to say of one that is not there."""
        return NotFound(f"{self.title} {identifier} could not be found.")

    def visible(self, call: Call) -> list[sa.ColumnElement[bool]]:
        """Which of them the caller sees."""
        if call.caller.is_admin:
            return []
        own = self.table.c.project_id == call.caller.project_id
        return [sa.or_(own, self.table.c.shared) if self.shared else self._own(own)]

    def _own(self, own: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
        if self.table is tables.subnets:
            shared = sa.select(tables.networks.c.id).where(tables.networks.c.shared)
            return sa.or_(own, self.table.c.network_id.in_(shared))
        return own

    async def find(self, call: Call, connection: AsyncConnection, identifier: str) -> Any:
        """One that the caller sees."""
        try:
            wanted = str(uuid.UUID(identifier))
        except ValueError:
            raise self.missing(identifier) from None
        query = sa.select(self.table).where(self.table.c.id == wanted, *self.visible(call))
        row = (await connection.execute(query)).one_or_none()
        if row is None:
            raise self.missing(identifier)
        return row

    async def owned(self, call: Call, connection: AsyncConnection, verb: str) -> Any:
        """One that the caller may change."""
        row = await self.find(call, connection, call.path[self.variable])
        call.permit(f"{verb}_{self.singular}", project_id=row.project_id)
        return row

    async def views(self, connection: AsyncConnection, found: Sequence[Any]) -> list[Values]:
        """As they are shown."""
        more = await self.more(connection, found)
        return await spread(lambda row: {**_basics(self.table, row), **more[row.id]}, found)


def _basics(table: sa.Table, row: Any) -> Values:
    hidden = ("of_server", "external", "gateway_network_id", "enable_snat")
    view = {column.name: getattr(row, column.name) for column in table.c if column.name not in hidden}
    moments = {key: _moment(view[key]) for key in ("created_at", "updated_at")}
    return {**view, **moments, "tenant_id": row.project_id, "revision_number": 1}


def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# Networks


async def _make_network(call: Call, connection: AsyncConnection, values: Values) -> Any:
    values = _external(values)
    networks.refuse_shared(values, call.caller.is_admin)
    return await rows.add(connection, tables.networks, values)


async def _change_network(call: Call, connection: AsyncConnection, row: Any, values: Values) -> None:
    changes = _external(values)
    networks.refuse_shared(changes, call.caller.is_admin)
    await _changed(connection, tables.networks, row, changes)


def _external(values: Values) -> Values:
    renamed = {key: value for key, value in values.items() if key != "router:external"}
    return {**renamed, "external": values["router:external"]} if "router:external" in values else renamed


async def _more_of_networks(connection: AsyncConnection, found: Sequence[Any]) -> dict[str, Values]:
    of = tables.subnets.c.network_id.in_([row.id for row in found])
    by_network: dict[str, list[str]] = {}
    for subnet in await connection.execute(sa.select(tables.subnets).where(of).order_by(tables.subnets.c.created_at)):
        by_network.setdefault(subnet.network_id, []).append(subnet.id)
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


# Subnets


async def _network(call: Call, connection: AsyncConnection, network_id: str, *, own: bool) -> Any:
    network = await NETWORKS.find(call, connection, network_id)
    if own and network.project_id != call.caller.project_id and not call.caller.is_admin:
        raise Forbidden("Only the owner of a network divides it.")
    return network


async def _make_subnet(call: Call, connection: AsyncConnection, values: Values) -> Any:
    network = await _network(call, connection, values["network_id"], own=True)
    return await networks.add_subnet(connection, network, networks.subnet_values(values))


async def _change_subnet(call: Call, connection: AsyncConnection, row: Any, values: Values) -> None:
    kept = {"cidr": row.cidr, "ip_version": row.ip_version, "gateway_ip": row.gateway_ip}
    pools = {"allocation_pools": values.get("allocation_pools", row.allocation_pools)}
    checked = networks.subnet_values({**kept, **pools, **values})
    await _changed(connection, tables.subnets, row, {key: checked[key] for key in values})


async def _more_of_subnets(connection: AsyncConnection, found: Sequence[Any]) -> dict[str, Values]:
    nothing = {"ipv6_address_mode": None, "ipv6_ra_mode": None, "segment_id": None, "subnetpool_id": None}
    return {row.id: nothing for row in found}


# Ports


async def _make_port(call: Call, connection: AsyncConnection, values: Values) -> Any:
    network = await _network(call, connection, values.pop("network_id"), own=False)
    fixed = values.pop("fixed_ips", None)
    values.pop("binding:vnic_type", None)
    if values.get("device_id") or values.get("device_owner", "").startswith("compute:"):
        raise Invalid("A port is plugged into a server by the compute API.")
    # Those of the pool for servers begin like this, and are theirs.
    if values.get("mac_address", "").lower().startswith("fa:16:3e:") and int(values["mac_address"][9:11], 16) >= 128:
        raise Conflict(f"Unable to complete operation for network {network.id}. The mac address is in use.")
    return await networks.add_port(connection, network, values, fixed)


async def _change_port(call: Call, connection: AsyncConnection, row: Any, values: Values) -> None:
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
    await _changed(connection, tables.ports, row, changes)


async def _more_of_ports(connection: AsyncConnection, found: Sequence[Any]) -> dict[str, Values]:
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


# Floating addresses


async def _make_floating(call: Call, connection: AsyncConnection, values: Values) -> Any:
    pointed = _pointed(values)
    network = await NETWORKS.find(call, connection, values["floating_network_id"])
    row = await floating.create(connection, network, values)
    if pointed:
        await _point(call, connection, row, pointed)
    return await rows.find(connection, tables.floating_ips, id=row.id)


async def _change_floating(call: Call, connection: AsyncConnection, row: Any, values: Values) -> None:
    pointed = _pointed(values)
    if "port_id" in pointed:
        await _point(call, connection, row, pointed)
    await _changed(connection, tables.floating_ips, row, values)


def _pointed(values: Values) -> Values:
    """Take out what says where a floating address points."""
    return {key: values.pop(key) for key in ("port_id", "fixed_ip_address") if key in values}


async def _point(call: Call, connection: AsyncConnection, row: Any, pointed: Values) -> None:
    port = None
    if pointed.get("port_id") is not None:
        port = await PORTS.find(call, connection, pointed["port_id"])
        if port.project_id != row.project_id:
            raise PORTS.missing(pointed["port_id"])
    await floating.point(connection, row, port, pointed.get("fixed_ip_address"))


async def _more_of_floating(connection: AsyncConnection, found: Sequence[Any]) -> dict[str, Values]:
    ids = [row.port_id for row in found if row.port_id]
    query = sa.select(tables.ports).where(tables.ports.c.id.in_(ids))
    held = {port.id: port for port in await connection.execute(query)} if ids else {}
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


# Routers


async def _make_router(call: Call, connection: AsyncConnection, values: Values) -> Any:
    gateway = values.pop("external_gateway_info", None)
    row = await rows.add(connection, tables.routers, _routed(values))
    await _lead(call, connection, row, gateway)
    return await rows.find(connection, tables.routers, id=row.id)


async def _change_router(call: Call, connection: AsyncConnection, row: Any, values: Values) -> None:
    if "external_gateway_info" in values:
        await _lead(call, connection, row, values.pop("external_gateway_info"))
    await _changed(connection, tables.routers, row, _routed(values))


def _routed(values: Values) -> Values:
    return {key: value for key, value in values.items() if key not in _NEITHER}


async def _lead(call: Call, connection: AsyncConnection, row: Any, gateway: Values | None) -> None:
    said = gateway or {}
    network = await NETWORKS.find(call, connection, said["network_id"]) if said else None
    snat = said.get("enable_snat", True)
    await routers.set_gateway(connection, row, network, said.get("external_fixed_ips"), snat=snat)


async def _more_of_routers(connection: AsyncConnection, found: Sequence[Any]) -> dict[str, Values]:
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


# Security groups


async def _make_group(call: Call, connection: AsyncConnection, values: Values) -> Any:
    return await security.create(connection, values)


async def _change_group(call: Call, connection: AsyncConnection, row: Any, values: Values) -> None:
    if row.name == "default" and values.get("name", row.name) != row.name:
        raise Conflict("Updating default security group not allowed.")
    await _changed(connection, tables.security_groups, row, values)


async def _more_of_groups(connection: AsyncConnection, found: Sequence[Any]) -> dict[str, Values]:
    by_group = await security.rules_of(connection, [row.id for row in found])
    every = [rule for rules in by_group.values() for rule in rules]
    shown = dict(zip((rule.id for rule in every), await RULES_OF_GROUPS.views(connection, every), strict=True))
    return {
        row.id: {"security_group_rules": [shown[rule.id] for rule in by_group.get(row.id, ())], "shared": False}
        for row in found
    }


async def _make_rule(call: Call, connection: AsyncConnection, values: Values) -> Any:
    group = await GROUPS.find(call, connection, values["security_group_id"])
    call.permit("create_security_group_rule", project_id=group.project_id)
    if values.get("remote_group_id") is not None:
        await GROUPS.find(call, connection, values["remote_group_id"])
    return await security.add_rule(connection, {**values, "project_id": group.project_id})


async def _change_rule(call: Call, connection: AsyncConnection, row: Any, values: Values) -> None:
    await _changed(connection, tables.security_group_rules, row, values)


async def _remove_rule(connection: AsyncConnection, row: Any) -> None:
    await rows.remove(connection, tables.security_group_rules, id=row.id)


async def _more_of_rules(connection: AsyncConnection, found: Sequence[Any]) -> dict[str, Values]:
    return {row.id: {"normalized_cidr": row.remote_ip_prefix, "remote_address_group_id": None} for row in found}


async def _changed(connection: AsyncConnection, table: sa.Table, row: Any, values: Values) -> None:
    await rows.change(connection, table, {**values, "updated_at": sa.func.now()}, id=row.id)


_OF_NETWORK: dict[str, Schema] = {
    **_DESCRIBED,
    **dict.fromkeys(("admin_state_up", "shared", "router:external", "port_security_enabled"), TRUTH),
    "mtu": {"type": "integer", "minimum": 68, "maximum": 65535},
    "dns_domain": _TEXT,
    "is_default": {"const": False},
}
NETWORKS = Noun(
    *("network", "networks", "Network", tables.networks),
    makeable={**_OF_NETWORK, "availability_zone_hints": array(STRING, maxItems=0)},
    changeable=_OF_NETWORK,
    required=(),
    make=_make_network,
    change=_change_network,
    remove=networks.delete_network,
    more=_more_of_networks,
    shared=True,
)
_OF_SUBNET: dict[str, Schema] = {
    **_DESCRIBED,
    "gateway_ip": NULLABLE_STRING,
    "enable_dhcp": TRUTH,
    "allocation_pools": array(thing({"start": STRING, "end": STRING}), maxItems=_MOST),
    "dns_nameservers": {"type": ["array", "null"], "items": _TEXT, "maxItems": _MOST},
    "host_routes": {
        "type": ["array", "null"],
        "items": thing({"destination": _TEXT, "nexthop": _TEXT}),
        "maxItems": _MOST,
    },
    "service_types": array(_TEXT, maxItems=_MOST),
}
SUBNETS = Noun(
    *("subnet", "subnets", "Subnet", tables.subnets),
    makeable={**_OF_SUBNET, "network_id": STRING, "ip_version": {"enum": [4, 6]}, "cidr": STRING},
    changeable=_OF_SUBNET,
    required=("network_id", "ip_version", "cidr"),
    make=_make_subnet,
    change=_change_subnet,
    remove=networks.delete_subnet,
    more=_more_of_subnets,
)
_OF_PORT: dict[str, Schema] = {
    **_DESCRIBED,
    "admin_state_up": TRUTH,
    "port_security_enabled": TRUTH,
    "security_groups": {"type": ["array", "null"], "items": STRING, "maxItems": _MOST},
    "fixed_ips": _FIXED,
    "device_id": _TEXT,
    "device_owner": _TEXT,
    "allowed_address_pairs": array(thing({"ip_address": _TEXT}, {"mac_address": _MAC}), maxItems=_MOST),
    "extra_dhcp_opts": array(
        thing(
            {"opt_name": _TEXT, "opt_value": {**_TEXT, "type": ["string", "null"]}}, {"ip_version": {"enum": [4, 6]}}
        ),
        maxItems=_MOST,
    ),
}
PORTS = Noun(
    *("port", "ports", "Port", tables.ports),
    makeable={**_OF_PORT, "network_id": STRING, "mac_address": _MAC, "binding:vnic_type": {"enum": ["normal"]}},
    changeable=_OF_PORT,
    required=("network_id",),
    make=_make_port,
    change=_change_port,
    remove=networks.delete_port,
    more=_more_of_ports,
)
GROUPS = Noun(
    *("security_group", "security_groups", "Security group", tables.security_groups),
    makeable={**_DESCRIBED, "stateful": TRUTH},
    changeable={**_DESCRIBED, "stateful": TRUTH},
    required=("name",),
    make=_make_group,
    change=_change_group,
    remove=security.delete,
    more=_more_of_groups,
)
RULES_OF_GROUPS = Noun(
    *("security_group_rule", "security_group_rules", "Security group rule", tables.security_group_rules),
    makeable={
        "security_group_id": STRING,
        "direction": {"enum": ["ingress", "egress"]},
        "ethertype": {"enum": ["IPv4", "IPv6"]},
        "protocol": {"type": ["string", "integer", "null"]},
        "port_range_min": _RANGE,
        "port_range_max": _RANGE,
        "remote_ip_prefix": NULLABLE_STRING,
        "remote_group_id": NULLABLE_STRING,
        "description": _TEXT,
    },
    changeable={"description": _TEXT},
    required=("security_group_id", "direction"),
    make=_make_rule,
    change=_change_rule,
    remove=_remove_rule,
    more=_more_of_rules,
)
_POINTED: dict[str, Schema] = {
    **dict.fromkeys(("port_id", "fixed_ip_address"), NULLABLE_STRING),
    "description": _TEXT,
}
FLOATING = Noun(
    *("floatingip", "floatingips", "Floating IP", tables.floating_ips),
    makeable={**_POINTED, "floating_network_id": STRING, "floating_ip_address": STRING},
    changeable=_POINTED,
    required=("floating_network_id",),
    make=_make_floating,
    change=_change_floating,
    remove=floating.delete,
    more=_more_of_floating,
)
_NEITHER = ("distributed", "ha")
"""What routers of several machines are."""
_OF_ROUTER: dict[str, Schema] = {
    **_DESCRIBED,
    "admin_state_up": TRUTH,
    "external_gateway_info": {
        **thing({}, {"network_id": STRING, "enable_snat": TRUTH, "external_fixed_ips": _FIXED}),
        "type": ["object", "null"],
        "dependentRequired": {"external_fixed_ips": ["network_id"], "enable_snat": ["network_id"]},
    },
    "routes": array(thing({"destination": _TEXT, "nexthop": _TEXT}), maxItems=_MOST),
    **{key: {"const": False} for key in _NEITHER},
}
ROUTERS = Noun(
    *("router", "routers", "Router", tables.routers),
    makeable={**_OF_ROUTER, "availability_zone_hints": array(STRING, maxItems=0)},
    changeable=_OF_ROUTER,
    required=(),
    make=_make_router,
    change=_change_router,
    remove=routers.delete,
    more=_more_of_routers,
)
NOUNS = (PORTS, SUBNETS, NETWORKS, RULES_OF_GROUPS, GROUPS, FLOATING, ROUTERS)

RULES = tuple(
    Permission(f"{verb}_{noun.singular}", READER if verb == "get" else MEMBER, f"{word} {noun.plural}.")
    for noun in NOUNS
    for verb, word in (("get", "See"), ("create", "Make"), ("update", "Change"), ("delete", "Delete"))
)

# Attributes depend on what of Neutron is served, and clients ask for what they want.
_SHAPE = thing({"id": STRING, "project_id": STRING}, additionalProperties=True)
_LISTED: Schema = {"type": "object"}


def _list(noun: Noun) -> None:
    links = f"{noun.plural}_links"
    shape = thing({noun.plural: array(_LISTED)}, {links: array(thing({"rel": STRING, "href": STRING}))})

    @routes.get(noun.path, rule=f"get_{noun.singular}", response=shape)
    async def index(call: Call) -> Reply:
        """List those that the caller sees, with the values asked for, page by page."""
        async with call.services.database.begin() as connection:
            if noun in (GROUPS, RULES_OF_GROUPS) and call.caller.project_id is not None:
                await security.default_group(connection, call.caller.project_id)
            views, more = await _read(noun, call, connection)
        following = {links: [{"rel": "next", "href": call.following(views[-1]["id"])}]} if more else {}
        return {noun.plural: _fields(call, views), **following}


async def _read(noun: Noun, call: Call, connection: AsyncConnection) -> tuple[list[Values], bool]:
    """A page, and whether there is more. What the database cannot filter is filtered here, batch by batch."""
    most = call.services.settings.max_limit
    asked = call.query.get("limit", "")
    if asked and not (asked.isascii() and asked.isdecimal()):
        raise Invalid(f"Invalid input for operation: '{asked}' is not a valid limit.")
    limit = (min(int(asked), most) if len(asked) < 10 and asked else most) or most  # as Neutron: 0 is no limit
    conditions, order, marker = _equal(noun, call), _order(noun, call), call.query.get("marker")
    left = {key for key, _ in call.queries} - {*_PAGING, "tenant_id", *_filtered(noun)}
    batch = most if left else limit + 1
    visible = sa.select(noun.table).where(*noun.visible(call))
    found: list[Values] = []
    while True:
        try:
            page = PageRequest(batch, marker)
            batch_rows = await pages.read(connection, visible, order, page, *conditions, named=noun.table.c.id)
        except UnknownMarker:
            raise Invalid(f"Invalid input for operation: Marker {marker} not found.") from None
        found += [view for view in await noun.views(connection, batch_rows) if _matches(call, view)]
        if len(found) > limit or len(batch_rows) < batch:
            return found[:limit], len(found) > limit
        marker = batch_rows[-1].id


_PAGING = ("fields", "limit", "marker", "sort_key", "sort_dir", "page_reverse")


def _filtered(noun: Noun) -> dict[str, sa.Column[Any]]:
    """The columns that the database looks into."""
    return {column.name: column for column in noun.table.c if isinstance(column.type, sa.Text | UUID)}


def _equal(noun: Noun, call: Call) -> list[sa.ColumnElement[bool]]:
    """What of the query the database can look for."""
    columns = _filtered(noun)
    asked: dict[str, list[str]] = {}
    for key, value in call.queries:
        key = "project_id" if key == "tenant_id" else key
        if key in columns:
            asked.setdefault(key, []).append(value)
    return [
        columns[key].in_(filter(is_uuid, values) if isinstance(columns[key].type, UUID) else values)
        for key, values in asked.items()
    ]


def _order(noun: Noun, call: Call) -> list[SortKey]:
    columns = {column.name: column for column in noun.table.c if not isinstance(column.type, ARRAY | JSONB)}
    columns |= {"tenant_id": columns["project_id"]}
    given, directions = _all(call, "sort_key"), _all(call, "sort_dir")
    for key in given:
        if key not in columns:
            raise Invalid(f"Invalid input for operation: '{key}' is an invalid attribute for sort_key.")
    directions += ["asc"] * (len(given) - len(directions))
    asked = [SortKey(columns[key], way == "desc") for key, way in zip(given, directions, strict=False)]
    return [*asked, SortKey(noun.table.c.created_at), SortKey(noun.table.c.id)]


def _matches(call: Call, view: Values) -> bool:
    asked: dict[str, list[str]] = {}
    for key, value in call.queries:
        if key not in _PAGING:
            asked.setdefault(key, []).append(value)
    return all(_has(view, key, values) for key, values in asked.items())


def _has(view: Values, key: str, values: list[str]) -> bool:
    if key == "fixed_ips":
        wanted = [value.partition("=")[::2] for value in values]
        return all(any(fixed.get(name) == text for fixed in view.get(key, ())) for name, text in wanted)
    if key in ("tags", "tags-any", "not-tags", "not-tags-any"):
        tags = {tag for value in values for tag in value.split(",")}
        held = set(view.get("tags", ()))
        return (bool(tags & held) if key.endswith("any") else tags <= held) != key.startswith("not")
    if key not in view:
        return True  # as Neutron: an attribute that nobody knows limits nothing
    held_value = view[key]
    if isinstance(held_value, list):
        return all(value in held_value for value in values)
    words = {"True": "true", "False": "false", "None": "none"}
    text = str(held_value)
    return any(value == text or value.lower() == words.get(text) for value in values)


def _fields(call: Call, views: list[Values]) -> list[Values]:
    """As much of each as the caller wants to see."""
    fields = [field for value in _all(call, "fields") for field in value.split(",")]
    return [{key: view[key] for key in fields if key in view} for view in views] if fields else views


def _all(call: Call, key: str) -> list[str]:
    return [value for name, value in call.queries if name == key]


def _verbs(noun: Noun) -> None:
    one, shape = f"{noun.path}/{{{noun.variable}}}", thing({noun.singular: _SHAPE})

    @routes.get(one, rule=f"get_{noun.singular}", response=thing({noun.singular: _LISTED}))
    async def show(call: Call) -> Reply:
        """Show one that the caller sees."""
        async with call.services.database.begin() as connection:
            views = await noun.views(connection, [await noun.find(call, connection, call.path[noun.variable])])
        return {noun.singular: _fields(call, views)[0]}

    new = thing({key: noun.makeable[key] for key in noun.required}, {**noun.makeable, **_OWNER})

    @routes.post(
        noun.path, rule=f"create_{noun.singular}", status=201, body=thing({noun.singular: new}), response=shape
    )
    async def create(call: Call) -> Reply:
        """Make one."""
        wanted = dict(call.body[noun.singular])
        owner = _owner(call, wanted)
        values = {key: value for key, value in wanted.items() if key not in ("availability_zone_hints", "is_default")}
        async with call.services.database.begin() as connection:
            await networks.keep_within(connection, owner, noun.singular)
            row = await noun.make(call, connection, {**_plain(noun, values), "project_id": owner})
            views = await noun.views(connection, [row])
        return {noun.singular: views[0]}

    changes = thing({}, {**noun.changeable, **_OWNER})

    @routes.put(one, rule=f"update_{noun.singular}", owned=True, body=thing({noun.singular: changes}), response=shape)
    async def update(call: Call) -> Reply:
        """Change one."""
        wanted = {key: value for key, value in call.body[noun.singular].items() if key not in (*_OWNER, "is_default")}
        async with call.services.database.begin() as connection:
            row = await noun.owned(call, connection, "update")
            await noun.change(call, connection, row, _plain(noun, wanted))
            views = await noun.views(connection, [await noun.find(call, connection, row.id)])
        return {noun.singular: views[0]}

    @routes.delete(one, rule=f"delete_{noun.singular}", owned=True, status=204)
    async def delete(call: Call) -> Reply:
        """Delete one."""
        async with call.services.database.begin() as connection:
            await noun.remove(connection, await noun.owned(call, connection, "delete"))
        return None


def _owner(call: Call, wanted: Values) -> str:
    asked = wanted.pop("project_id", None) or wanted.pop("tenant_id", None)
    wanted.pop("tenant_id", None)
    own = call.caller.project_id or ""
    if asked not in (None, own) and not call.caller.is_admin:
        raise Forbidden("Only administrators make things for other projects.")
    return asked or own


def _plain(noun: Noun, values: Values) -> Values:
    """Null means what is usual, where there is something usual."""
    keeps = (
        *("gateway_ip", "security_groups", "protocol", "port_range_min", "port_range_max", "port_id"),
        "external_gateway_info",
    )
    plain = {key: value for key, value in values.items() if value is not None or key in keeps}
    if plain.get("protocol") is not None:
        plain["protocol"] = str(plain["protocol"]).lower()
    return plain


def _tags(noun: Noun) -> None:
    path = f"{noun.path}/{{{noun.variable}}}/tags"
    shape = thing({"tags": array(STRING)})
    tag: Schema = {"type": "string", "minLength": 1, "maxLength": 255}

    async def _set(call: Call, change: Callable[[list[str]], list[str]]) -> list[str]:
        async with call.services.database.begin() as connection:
            row = await noun.owned(call, connection, "update")
            tags = list(dict.fromkeys(change(list(row.tags))))
            if len(tags) > _MOST or any(len(each) > 255 for each in tags):
                raise Invalid(f"At most {_MOST} tags of at most 255 characters can be kept.")
            await _changed(connection, noun.table, row, {"tags": tags})
        return tags

    @routes.get(path, rule=f"get_{noun.singular}", response=shape)
    async def index(call: Call) -> Reply:
        """The tags of one."""
        async with call.services.database.begin() as connection:
            return {"tags": list((await noun.find(call, connection, call.path[noun.variable])).tags)}

    @routes.put(path, rule=f"update_{noun.singular}", owned=True, body=thing({"tags": array(tag)}), response=shape)
    async def replace(call: Call) -> Reply:
        """Give it these tags and no others."""
        return {"tags": await _set(call, lambda _: call.body["tags"])}

    @routes.put(f"{path}/{{tag}}", rule=f"update_{noun.singular}", owned=True, status=201)
    async def add(call: Call) -> Reply:
        """Give it one tag more."""
        await _set(call, lambda tags: [*tags, call.path["tag"]])
        return None

    @routes.delete(f"{path}/{{tag}}", rule=f"update_{noun.singular}", owned=True, status=204)
    async def remove(call: Call) -> Reply:
        """Take a tag off."""
        await _set(call, partial(_without, tag=call.path["tag"]))
        return None

    @routes.delete(path, rule=f"update_{noun.singular}", owned=True, status=204)
    async def clear(call: Call) -> Reply:
        """Take all tags off."""
        await _set(call, lambda _: [])
        return None


def _without(tags: list[str], tag: str) -> list[str]:
    if tag not in tags:
        raise NotFound(f"Tag {tag} could not be found.")
    return [each for each in tags if each != tag]


for _noun in NOUNS:
    _list(_noun)
    _tags(_noun)
    _verbs(_noun)


_INTERFACE = thing(
    dict.fromkeys(("id", "tenant_id", "project_id", "port_id", "network_id", "subnet_id"), STRING)
    | {"subnet_ids": array(STRING)}
)
_ONE_OF: Schema = {**thing({}, {"subnet_id": STRING, "port_id": STRING}), "minProperties": 1, "maxProperties": 1}


@routes.put(
    "/routers/{router_id}/add_router_interface", rule="update_router", owned=True, body=_ONE_OF, response=_INTERFACE
)
async def add_interface(call: Call) -> Reply:
    """Connect a router to a subnet, or by a port."""
    async with call.services.database.begin() as connection:
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
async def remove_interface(call: Call) -> Reply:
    """Take a router off a subnet, or off a port, which is gone then."""
    async with call.services.database.begin() as connection:
        router = await ROUTERS.owned(call, connection, "update")
        port, subnet_id = await routers.remove_interface(connection, router, call.body)
    return _interface(router, port, subnet_id)


def _interface(router: Any, port: Any, subnet_id: str) -> Values:
    owner = {"tenant_id": router.project_id, "project_id": router.project_id}
    where = {"port_id": port.id, "network_id": port.network_id, "subnet_id": subnet_id, "subnet_ids": [subnet_id]}
    return {"id": router.id, **owner, **where}


_ZONE = thing(dict.fromkeys(("name", "resource", "state"), STRING))


@routes.get("/availability_zones", rule="get_network", response=thing({"availability_zones": array(_ZONE)}))
async def index_zones(call: Call) -> Reply:
    """The zones of networks: one, since all networks reach all hosts."""
    return {"availability_zones": [{"name": "nova", "resource": "network", "state": "available"}]}
