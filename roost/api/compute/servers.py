"""Servers: boot, list, show, rename and delete them."""

import base64
import binascii
import ipaddress
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

from roost import logs
from roost.api import schemas
from roost.api.compute import server_view
from roost.api.compute.server_view import Companions
from roost.api.compute.views import links, next_page
from roost.api.permissions import ADMIN, MEMBER, READER, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import BOOLEAN, NAME, POSITIVE_INTEGER, STRING, Schema, array, boolean, thing
from roost.api.versions import Version
from roost.compute.scheduling import deleted, servers
from roost.compute.scheduling.request import CreateRequest, NewServer, named_servers
from roost.compute.scheduling.servers import Actor, Filters, Server
from roost.errors import Forbidden, Invalid, NotFound
from roost.network import attachments
from roost.network.attachments import ReservedPorts
from roost.store.database import briefly
from roost.store.patterns import is_plain
from roost.turns import spread
from roost.volume import block_devices
from roost.volume.block_devices import BlockDevices
from roost.volume.volumes import VolumeOwner

_RULE = "os_compute_api:servers:"
_FORCED_HOST = _RULE + "create:forced_host"
_REQUESTED_HOST = "compute:servers:create:requested_destination"
_ALL_TENANTS = _RULE + "index:get_all_tenants"

RULES = (
    Permission(_RULE + "create", MEMBER, "Boot servers."),
    Permission(_FORCED_HOST, ADMIN, "Boot a server on a host given as zone:host."),
    Permission(_REQUESTED_HOST, ADMIN, "Boot a server on a host given by its name."),
    Permission(_RULE + "index", READER, "List servers."),
    Permission(_RULE + "detail", READER, "List servers with details."),
    Permission(_ALL_TENANTS, ADMIN, "List servers of all projects."),
    Permission(_RULE + "show", READER, "Show a server."),
    Permission(server_view.HOST_STATUS, ADMIN, "See the state of a server's host."),
    Permission(server_view.EXTENDED, ADMIN, "See on which host a server is."),
    Permission(_RULE + "update", MEMBER, "Rename or describe a server."),
    Permission(_RULE + "delete", MEMBER, "Delete a server."),
)

routes = Table(prefix="/v2.1")

METADATA: Schema = {
    "type": "object",
    "patternProperties": {"^[a-zA-Z0-9-_:. ]{1,255}$": {"type": "string", "maxLength": 255}},
    "additionalProperties": False,
}
_HOSTNAME: Schema = {"type": "string", "minLength": 1, "maxLength": 63, "pattern": "^[a-zA-Z0-9][a-zA-Z0-9-]*$"}
_FULL_HOSTNAME: Schema = {"type": "string", "minLength": 2, "maxLength": 255, "pattern": "^[a-zA-Z0-9][a-zA-Z0-9-.]*$"}
_ZONE: Schema = {"anyOf": [NAME, {"type": "null"}]}
DESCRIPTION: Schema = {
    "type": ["string", "null"],
    "minLength": 0,
    "maxLength": 255,
    "pattern": r"^[^\x00-\x08\x0b\x0c\x0e-\x1f]*$",
}
TAG: Schema = {"type": "string", "minLength": 1, "maxLength": 60, "pattern": "^[^,/]*$"}
_TAGS: Schema = array(TAG, maxItems=50)
_NETWORKS: Schema = array(
    thing({}, {"uuid": schemas.UUID, "port": {"type": ["string", "null"]}, "fixed_ip": STRING, "tag": STRING})
)
_BLOCK_DEVICE = thing(
    {},
    {
        "uuid": {"type": ["string", "null"], "maxLength": 255},
        "source_type": {"enum": ["volume", "image", "snapshot", "blank"]},
        "destination_type": {"enum": ["local", "volume"]},
        "boot_index": {"type": ["integer", "string", "null"], "pattern": "^(-?[0-9]{1,9}|None)$"},
        "volume_size": {**POSITIVE_INTEGER, "type": ["integer", "string", "null"], "maximum": 2**31 - 1},
        "delete_on_termination": BOOLEAN,
        "device_name": {"type": ["string", "null"], "maxLength": 255},
        "volume_type": {"type": ["string", "null"], "maxLength": 255},
        "tag": TAG,
        **{key: {"type": ["string", "null"], "maxLength": 255} for key in ("device_type", "disk_bus", "guest_format")},
    },
)
_HINTS: Schema = {
    "type": "object",
    "properties": {
        "group": {"anyOf": [schemas.UUID, array(schemas.UUID)]},
        "different_host": {"anyOf": [schemas.UUID, array(schemas.UUID)]},
        "same_host": {"type": ["string", "array"], "items": STRING},
        "build_near_host_ip": STRING,
        "cidr": {"type": "string", "pattern": "^/[0-9a-f.:]+$"},
    },
}
_CREATE: dict[str, Schema] = {
    "imageRef": {"anyOf": [schemas.UUID, {"type": "string", "maxLength": 0}]},
    "adminPass": STRING,
    "metadata": METADATA,
    "networks": _NETWORKS,
    "OS-DCF:diskConfig": {"type": "string", "enum": ["AUTO", "MANUAL"]},
    "accessIPv4": STRING,
    "accessIPv6": STRING,
    "availability_zone": NAME,
    "block_device_mapping": array({"type": "object"}),
    "block_device_mapping_v2": array(_BLOCK_DEVICE),
    "config_drive": BOOLEAN,
    "key_name": NAME,
    "min_count": POSITIVE_INTEGER,
    "max_count": POSITIVE_INTEGER,
    "return_reservation_id": BOOLEAN,
    "security_groups": array(thing({}, {"name": STRING})),
    "user_data": {"type": "string", "maxLength": 65535},
    "personality": array({"type": "object"}),
}
_LATER: tuple[tuple[str, dict[str, Schema]], ...] = (
    ("2.19", {"description": DESCRIPTION}),
    ("2.37", {"networks": {"anyOf": [{"enum": ["none", "auto"]}, _NETWORKS]}}),
    ("2.52", {"tags": _TAGS}),
    ("2.63", {"trusted_image_certificates": {"type": ["array", "null"], "items": STRING}}),
    ("2.74", {"host": NAME, "hypervisor_hostname": NAME}),
    ("2.90", {"hostname": _HOSTNAME}),
    ("2.94", {"hostname": _FULL_HOSTNAME}),
)
_MOST_AT_ONCE = 1000


def _create_schema(properties: Mapping[str, Schema], required_networks: bool) -> Schema:
    required: dict[str, Schema] = {"name": NAME, "flavorRef": {"type": ["string", "integer"], "minLength": 1}}
    optional = dict(properties)
    if required_networks:
        required["networks"] = optional.pop("networks")
    return thing(
        {"server": thing(required, optional)}, {"os:scheduler_hints": _HINTS, "OS-SCH-HNT:scheduler_hints": _HINTS}
    )


def _declare_create() -> None:
    """One row for each version that takes something new."""
    properties = dict(_CREATE)
    steps = [("2.1", {}), *_LATER]
    for place, (since, more) in enumerate(steps):
        properties |= more
        major, minor = (int(part) for part in steps[place + 1][0].split(".")) if place + 1 < len(steps) else (0, 0)
        routes.post(
            "/servers",
            since=since,
            until=f"{major}.{minor - 1}" if major else None,
            rule=_RULE + "create",
            body=_create_schema(properties, required_networks=Version.parse(since) >= Version(2, 37)),
            response=server_view.CREATED,
            status=202,
        )(create)


async def create(call: Call) -> Reply:
    """Boot one or several servers; where they go is decided before this answers."""
    devices = _devices(call.body["server"])
    # What is refused for another reason leaves nothing reserved.
    asked = _boot(call, devices.image_id)
    bound = [new.id for new in asked.servers] if devices.volumes else []
    reserved = await _reserve(call, len(asked.servers))
    made = 0
    try:
        owner = VolumeOwner(call.caller.project_id or "", call.caller.user_id)
        await block_devices.reserve(call.services.database, owner, devices.volumes, bound)
        call.leave()  # the scheduler takes turns, and claims for many requests at once
        booted = await call.services.scheduler.create(_equipped(asked, reserved))
        made = len(booted.server_ids)
    finally:
        if made < len(asked.servers):
            await attachments.release(call.services.database, reserved)
            await block_devices.release(call.services.database, bound)
    if boolean(call.body["server"].get("return_reservation_id", False)):
        return {"reservation_id": booted.reservation_id}
    first = booted.server_ids[0]
    body = {
        "server": {
            "id": first,
            "links": links(call, "servers", first),
            "OS-DCF:diskConfig": call.body["server"].get("OS-DCF:diskConfig", "MANUAL"),
            "security_groups": call.body["server"].get("security_groups") or [{"name": "default"}],
            "adminPass": call.body["server"].get("adminPass") or secrets.token_urlsafe(9),
        }
    }
    call.answer_headers["Location"] = f"{call.base}/v2.1/servers/{first}"
    return body


def _boot(call: Call, image_id: str | None) -> CreateRequest:
    """What a request means."""
    body = call.body["server"]
    hints = call.body.get("os:scheduler_hints") or call.body.get("OS-SCH-HNT:scheduler_hints") or {}
    least, most = _counts(body)
    zone, target, must_exist = _destination(call, body)
    assert call.caller.project_id is not None
    return CreateRequest(
        project_id=call.caller.project_id,
        user_id=call.caller.user_id,
        request_id=logs.request_id.get(),
        servers=tuple(
            NewServer(
                name=body["name"] if most == 1 else f"{body['name']}-{number + 1}",
                metadata=body.get("metadata", {}),
                hostname=body.get("hostname") if most == 1 else None,
            )
            for number in range(most)
        ),
        least=least,
        flavor_id=str(body["flavorRef"]).rpartition("/")[2],
        image_id=image_id,
        key_name=body.get("key_name"),
        user_data=_user_data(body),
        description=body.get("description"),
        config_drive=boolean(body.get("config_drive", False)),
        tags=tuple(dict.fromkeys(body.get("tags", ()))),
        zone=zone,
        target=target,
        target_must_exist=must_exist,
        hints=hints,
        group_id=_group(hints),
        same_host=named_servers(hints, "same_host"),
        different_host=named_servers(hints, "different_host") or (),
        may_see_all=call.caller.is_admin,
    )


def _equipped(asked: CreateRequest, reserved: ReservedPorts) -> CreateRequest:
    """The request with the addresses that its servers have on networks."""
    if not any(reserved.addresses):
        return asked
    given = zip(asked.servers, reserved.addresses, strict=True)
    return replace(asked, servers=tuple(replace(new, addresses=addresses) for new, addresses in given))


def _counts(body: Mapping[str, Any]) -> tuple[int, int]:
    least = int(body.get("min_count", 1))
    most = int(body.get("max_count", least))
    for name, count in (("min_count", least), ("max_count", most)):
        if count < 1:
            raise Invalid(f"{name} must be >= 1")
    if least > most:
        raise Invalid("min_count must be <= max_count")
    if most > _MOST_AT_ONCE:
        raise Invalid(f"At most {_MOST_AT_ONCE} servers can be asked for at once.")
    if most > 1 and body.get("hostname"):
        raise Invalid("A hostname cannot be given when several servers are booted.")
    return least, most


def _destination(call: Call, body: Mapping[str, Any]) -> tuple[str | None, str | None, bool]:
    """The zone and the host asked for: `zone`, `zone:host`, `zone:host:node`, or `host` and `hypervisor_hostname`; and
    whether the host must exist, which the last form asks."""
    zone, *forced = body.get("availability_zone", "").split(":")
    if len(forced) > 2:
        raise Invalid("Invalid input received: Unable to parse availability_zone")
    named = [body[key] for key in ("host", "hypervisor_hostname") if key in body]
    if any(forced) and named:
        raise Invalid(
            "One mechanism with host and/or hypervisor_hostname and another mechanism with zone:host:node are mutually "
            "exclusive."
        )
    if any(forced):
        call.permit(_FORCED_HOST)
        # A host has one node, of its own name.
        wanted = {part for part in forced if part}
        return zone or None, wanted.pop() if len(wanted) == 1 else "no such host and node", False
    if named:
        call.permit(_REQUESTED_HOST)
        if named[-1] != named[0]:
            raise Invalid(f"Compute host {named[-1]} could not be found.")
        return zone or None, named[0], True
    return zone or None, None, False


def _devices(body: Mapping[str, Any]) -> BlockDevices:
    """The image or the volume to boot from, and the further volumes."""
    if body.get("block_device_mapping"):
        raise Invalid("Block Device Mapping is Invalid: name volumes in block_device_mapping_v2.")
    asked = body.get("block_device_mapping_v2", ())
    if not body.get("imageRef") and not asked:
        raise Invalid("Invalid image: An image must be given as imageRef.")
    return BlockDevices.read(body.get("imageRef") or None, asked)


def _user_data(body: Mapping[str, Any]) -> str | None:
    user_data: str | None = body.get("user_data")
    if user_data is not None:
        try:
            base64.b64decode(user_data, validate=True)
        except (binascii.Error, ValueError):
            raise Invalid("User data needs to be valid base 64.") from None
    return user_data


async def _reserve(call: Call, count: int) -> ReservedPorts:
    """The addresses of the servers on the networks, and with the security groups, that were named."""
    body = call.body["server"]
    groups = [each["name"] for each in body.get("security_groups", ()) if "name" in each] or None
    for each in body["networks"] if isinstance(body.get("networks"), list) else ():
        if "fixed_ip" in each:
            try:
                ipaddress.ip_address(each["fixed_ip"])
            except ValueError:
                raise Invalid(f"Fixed IP address ({each['fixed_ip']}) is not a valid IP address.") from None
    project_id = call.caller.project_id or ""
    return await attachments.reserve(call.services.addresses, project_id, body.get("networks"), groups, count)


def _group(hints: Mapping[str, Any]) -> str | None:
    group = hints.get("group")
    if isinstance(group, list):
        if len(group) > 1:
            raise Invalid("A server can be in one group: give one 'group' hint.")
        group = group[0] if group else None
    return None if group is None else str(group).lower()


# Listing

_QUERY: Schema = {
    "type": "object",
    "properties": {
        "limit": {"type": "string", "pattern": "^[0-9]+$", "maxLength": schemas.MOST_DIGITS},
        "marker": STRING,
        "sort_dir": {"type": "string", "enum": ["asc", "desc"]},
    },
}


@routes.get("/servers", rule=_RULE + "index", query=_QUERY, response=server_view.LISTED)
async def index(call: Call) -> Reply:
    """List servers: their ids and names."""
    return await _list(call, server_view.brief)


@routes.get("/servers/detail", rule=_RULE + "detail", query=_QUERY, response=server_view.detailed_schema)
async def detail(call: Call) -> Reply:
    """List servers with details."""
    return await _list(call, server_view.detailed)


async def _list(call: Call, view: Callable[[Call, Server, Companions], dict[str, Any]]) -> Reply:
    filters, database = _filters(call), call.services.database
    pattern = filters.name is not None and not is_plain(filters.name)
    async with database.begin() if pattern else database.autocommit() as connection:
        if pattern:
            await briefly(connection)
        rows = await _found(call, connection, filters)
        of = await server_view.companions(connection, rows) if view is server_view.detailed else {}
    shown = await spread(lambda row: view(call, row, of.get(row.id, server_view.ALONE)), rows)
    body: dict[str, Any] = {"servers": shown}
    following = next_page(call, body["servers"], "id") if "limit" in call.query else []
    if following:
        body["servers_links"] = following
    return body


async def _found(call: Call, connection: Connection, filters: Filters) -> Sequence[Server]:
    """The servers of a page. Deleted ones are listed to operators who ask for them, and to callers who ask what changed
    since: after those that are there."""
    asked = "deleted" in call.query and call.caller.is_admin
    gone = _truth(call.query["deleted"], "deleted") if asked else False
    marker, limit = call.page.marker, call.page.limit or 0
    if gone:
        return await deleted.index(connection, filters, limit, marker)
    if filters.changed_since is None or asked:
        return await servers.index(connection, filters)
    if marker is not None and await deleted.exists(connection, marker):
        return await deleted.index(connection, filters, limit, marker)
    rows = await servers.index(connection, filters)
    if len(rows) < limit and not _narrowed(filters):
        rows = [*rows, *await deleted.index(connection, filters, limit - len(rows), None)]
    return rows


def _narrowed(filters: Filters) -> bool:
    """Whether the list is limited by something that deleted servers no longer have."""
    return bool(filters.statuses or filters.vm_states or filters.host or filters.zone or filters.tags)


def _filters(call: Call) -> Filters:
    """What the query asks for."""
    query, values = call.query, call.queries
    everybody = "all_tenants" in query and _truth(query["all_tenants"] or "1", "all_tenants")
    if everybody:
        call.permit(_ALL_TENANTS)
    project = query.get("project_id") or query.get("tenant_id")
    if not everybody:
        project = call.caller.project_id
    admin = call.caller.is_admin

    def tags(key: str) -> tuple[str, ...]:
        return tuple(filter(None, query.get(key, "").split(","))) if call.version >= Version(2, 26) else ()

    return Filters(
        project_id=project,
        user_id=query.get("user_id") if admin else None,
        ids=tuple(value for key, value in values if key == "uuid"),
        name=query.get("name"),
        statuses=tuple(value for key, value in values if key == "status"),
        vm_states=tuple(value.lower() for key, value in values if key == "vm_state"),
        host=(query.get("host") or query.get("hypervisor_hostname")) if admin else None,
        zone=query.get("availability_zone") if admin else None,
        flavor_id=query.get("flavor", "").rpartition("/")[2] or None,
        image_id=query.get("image", "").rpartition("/")[2] or None,
        reservation_id=query.get("reservation_id"),
        changed_since=_time(query.get("changes-since")),
        changed_before=_time(query.get("changes-before")) if call.version >= Version(2, 66) else None,
        locked=_truth(query["locked"], "locked") if "locked" in query and call.version >= Version(2, 73) else None,
        tags=tags("tags"),
        any_tags=tags("tags-any"),
        not_tags=tags("not-tags"),
        not_any_tags=tags("not-tags-any"),
        page=call.page,
        sorts=_sorts(call),
    )


def _truth(text: str, name: str) -> bool:
    if text not in BOOLEAN["enum"]:
        raise Invalid(f"Invalid input for query parameters {name}. Value: {text}. It is not a boolean.")
    return boolean(text)


def _time(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Invalid(f"Invalid time '{text}': write it as 2026-11-15T08:00:00Z.") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _sorts(call: Call) -> tuple[tuple[str, bool], ...]:
    keys = [value for key, value in call.queries if key == "sort_key"]
    directions = [value for key, value in call.queries if key == "sort_dir"]
    for key in keys:
        if key == "host" and not call.caller.is_admin:
            raise Forbidden("Only administrators can sort servers by host")
        if key not in servers.SORT_KEYS:
            raise Invalid(f"Unable to sort by '{key}': use one of {', '.join(servers.SORT_KEYS)}.")
    padded = directions + [directions[-1] if directions else "desc"] * (len(keys) - len(directions))
    return tuple((key, direction == "desc") for key, direction in zip(keys, padded, strict=False))


# One server


async def owned(call: Call, connection: Any, rule: str, *, lock: bool = False) -> Server:
    """The server of this path, if the caller may do this to it; another project's does not exist for it."""
    server_id = call.path["server_id"]
    server = await servers.find(connection, server_id, lock=lock)
    if server.project_id != call.caller.project_id and not call.caller.is_admin:
        raise NotFound(f"Instance {server_id} could not be found.")
    if not call.may(rule, project_id=server.project_id):
        raise Forbidden(f"Policy doesn't allow {rule} to be performed.")
    return server


def actor(call: Call) -> Actor:
    """On whose behalf this call changes a server."""
    return Actor(call.caller.user_id, call.caller.project_id or "", logs.request_id.get(), call.caller.is_admin)


@routes.get("/servers/{server_id}", rule=_RULE + "show", owned=True, response=server_view.shown_schema)
async def show(call: Call, connection: Connection) -> Reply:
    """Show one server."""
    server = await owned(call, connection, _RULE + "show")
    groups = await servers.groups_of(connection, server)
    of = await server_view.companions(connection, [server])
    return {"server": server_view.detailed(call, server, of[server.id], groups)}


def _update_body(**more: Schema) -> Schema:
    properties: dict[str, Schema] = {
        "name": NAME,
        "OS-DCF:diskConfig": {"type": "string", "enum": ["AUTO", "MANUAL"]},
        "accessIPv4": STRING,
        "accessIPv6": STRING,
    }
    return thing({"server": thing({}, {**properties, **more})})


async def update(call: Call, connection: Connection) -> Reply:
    """Rename or describe a server."""
    body = call.body["server"]
    given = {key: body[key] for key in ("name", "description", "hostname") if key in body}
    values = cast(servers.ServerValues, given)
    server = await owned(call, connection, _RULE + "update", lock=True)
    if "pinned_availability_zone" in body:
        values["zone"] = _pin(server, body["pinned_availability_zone"])
    await servers.update(connection, server.id, values)
    server = await servers.find(connection, server.id)
    groups = await servers.groups_of(connection, server)
    of = await server_view.companions(connection, [server])
    return {"server": server_view.updated(call, server, of[server.id], groups)}


def _pin(server: Server, zone: str | None) -> str | None:
    """The zone that a server is to stay in: the one that it is in, or none."""
    if zone is not None and zone != server_view.zone(server):
        raise Invalid(f"A server can be pinned to the availability zone that it is in, which is not '{zone}'.")
    return zone


for _since, _until, _more in (
    ("2.1", "2.18", {}),
    ("2.19", "2.89", {"description": DESCRIPTION}),
    ("2.90", "2.93", {"description": DESCRIPTION, "hostname": _HOSTNAME}),
    ("2.94", "2.103", {"description": DESCRIPTION, "hostname": _FULL_HOSTNAME}),
    ("2.104", None, {"description": DESCRIPTION, "hostname": _FULL_HOSTNAME, "pinned_availability_zone": _ZONE}),
):
    routes.put(
        "/servers/{server_id}",
        since=_since,
        until=_until,
        rule=_RULE + "update",
        owned=True,
        body=_update_body(**_more),
        response=server_view.updated_schema,
    )(update)


@routes.delete("/servers/{server_id}", rule=_RULE + "delete", owned=True, status=204)
async def delete(call: Call, connection: Connection) -> None:
    """Delete a server."""
    server = await owned(call, connection, _RULE + "delete", lock=True)
    await servers.delete(connection, server, actor(call))


_declare_create()
