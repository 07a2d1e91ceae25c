"""A server as clients see it, in every version from 2.1 on: one table of fields makes answers and schemas."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any

from roost.api.compute.views import LINKS, links, timestamp
from roost.api.routes import Call, Connection
from roost.api.schemas import INTEGER, NULL, NULLABLE_STRING, STRING, TRUTH, UUID, Schema, array, by_name, thing
from roost.api.versions import Version
from roost.compute.inventory.hosts import DEFAULT_ZONE
from roost.compute.scheduling import servers
from roost.compute.scheduling.servers import Server
from roost.network import attachments
from roost.volume import block_devices

EXTENDED = "os_compute_api:os-extended-server-attributes"
HOST_STATUS = "os_compute_api:servers:show:host_status"

_WHOLE_UPDATES = Version(2, 75)
"""Since when the answer to a change is the same as to a show."""


@dataclass(frozen=True, slots=True)
class Companions:
    """What other services keep of a server."""

    secured: Sequence[str] = ()
    """The names of the security groups of its ports."""
    volumes: Sequence[Any] = ()


ALONE = Companions()


async def companions(connection: Connection, found: Sequence[Server]) -> dict[str, Companions]:
    """What other services keep of servers, by server."""
    secured = await attachments.group_names(connection, found)
    volumes = await block_devices.attached(connection, [server.id for server in found])
    return {each.id: Companions(secured.get(each.id, ()), volumes.get(each.id, ())) for each in found}


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """What an answer about one server is made from."""

    call: Call
    server: Server
    of: Companions
    groups: list[str] | None
    """Its server groups; None in lists, which do not show them."""


@dataclass(frozen=True, slots=True)
class ServerField:
    """One field of a server."""

    name: str
    schema: Schema | Callable[[Version], Schema]
    value: Callable[[ServerAnswer], Any]
    since: str = "2.1"
    until: str = "2.9999"
    rule: str | None = None
    """The permission to see it."""
    when: Callable[[ServerAnswer], Any] | None = None
    """Whether this server has it, where not all do."""
    looked: bool | None = None
    """True: only a look at a server shows it, and since 2.75 a change. False: only a change before 2.75."""
    listed: bool = True

    def described(self, version: Version) -> Schema:
        """Its schema in a version."""
        return self.schema(version) if callable(self.schema) else self.schema


def _attribute(name: str, schema: Schema, value: Callable[[ServerAnswer], Any], **more: Any) -> ServerField:
    return ServerField(f"OS-EXT-SRV-ATTR:{name}", schema, value, looked=True, **more)


def _looked(
    name: str, schema: Schema | Callable[[Version], Schema], value: Callable[[ServerAnswer], Any], **more: Any
) -> ServerField:
    return ServerField(name, schema, value, looked=True, **more)


def _image_schema(version: Version) -> Schema:
    properties = {"properties": thing({})} if version >= Version(2, 98) else {}
    return {"oneOf": [{"const": ""}, thing({"id": STRING, "links": _BOOKMARK, **properties})]}


def _flavor_schema(version: Version) -> Schema:
    if version < Version(2, 47):
        return thing({"id": STRING, "links": _BOOKMARK})
    numbers = dict.fromkeys(("vcpus", "ram", "disk", "ephemeral", "swap"), INTEGER)
    return thing({**numbers, "original_name": STRING, "extra_specs": by_name(STRING)})


def _image(of: ServerAnswer) -> dict[str, Any] | str:
    if of.server.image_id is None:
        return ""
    bookmark = {"rel": "bookmark", "href": f"{of.call.base}/images/{of.server.image_id}"}
    properties: dict[str, Any] = {"properties": {}} if of.call.version >= Version(2, 98) else {}
    return {"id": of.server.image_id, "links": [bookmark], **properties}


def _flavor(of: ServerAnswer) -> dict[str, Any]:
    flavor = of.server.flavor
    if of.call.version < Version(2, 47):
        return {"id": flavor.id, "links": [{"rel": "bookmark", "href": f"{of.call.base}/flavors/{flavor.id}"}]}
    return {
        "vcpus": flavor.vcpus,
        "ram": flavor.memory_mb,
        "disk": flavor.root_gb,
        "ephemeral": flavor.ephemeral_gb,
        "swap": flavor.swap_mb,
        "original_name": flavor.name,
        "extra_specs": flavor.extra_specs,
    }


_TERMINATION = Version(2, 3)


def _volumes_schema(version: Version) -> Schema:
    return array(thing({"id": STRING, **({"delete_on_termination": TRUTH} if version >= _TERMINATION else {})}))


def _volumes(of: ServerAnswer) -> list[dict[str, Any]]:
    ends = of.call.version >= _TERMINATION
    return [
        {"id": each.id, **({"delete_on_termination": each.delete_on_termination} if ends else {})}
        for each in of.of.volumes
    ]


def _status(of: ServerAnswer) -> str:
    return servers.status(of.server.vm_state, of.server.task_state)


def _plain_addresses(of: ServerAnswer) -> dict[str, Any]:
    return {
        network: [{"addr": each["addr"], "version": each["version"]} for each in addresses]
        for network, addresses in of.server.addresses.items()
    }


def _fault(of: ServerAnswer) -> dict[str, Any]:
    fault = of.server.fault
    assert fault is not None
    created = _whole_seconds(datetime.fromisoformat(fault["created"]))
    return {"code": fault["code"], "created": created, "message": fault["message"]}


def _host_status(of: ServerAnswer) -> str:
    if of.server.host is None:
        return ""
    if of.server.host_down:
        return "DOWN"
    return "UP" if of.server.host_enabled else "MAINTENANCE"


def _hints(of: ServerAnswer) -> dict[str, Any]:
    """As lists of strings; the group as it is now, not as it was asked for."""
    hints = {
        key: [str(each) for each in value] if isinstance(value, list) else [str(value)]
        for key, value in of.server.hints.items()
        if key != "group"
    }
    return {**hints, "group": [of.server.group_id]} if of.server.group_id else hints


def _whole_seconds(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def host_id(server: Server) -> str:
    """Shows a tenant whether two of its servers share a host, and nothing more."""
    if server.host is None:
        return ""
    return hashlib.sha224((server.project_id + server.host).encode()).hexdigest()


def zone(server: Server) -> str:
    """The zone that a server is in; where it is on no host, the one that it asked for."""
    if server.host is None:
        return server.zone or ""
    return server.host_zone or DEFAULT_ZONE


_PROGRESSING = ("ACTIVE", "BUILD", "REBUILD", "RESIZE", "VERIFY_RESIZE", "MIGRATING")
_BOOKMARK = array(thing({"href": STRING, "rel": {"const": "bookmark"}}))
_ADDRESS = {"addr": STRING, "version": {"enum": [4, 6]}}
_WHOLE_ADDRESS = {**_ADDRESS, "OS-EXT-IPS:type": STRING, "OS-EXT-IPS-MAC:mac_addr": STRING}
_SECURITY_GROUPS = array(thing({"name": STRING}))
_HOST_STATUSES: Schema = {"enum": ["UP", "DOWN", "MAINTENANCE", ""]}
_FAULT = thing({"code": INTEGER, "created": STRING, "message": STRING})
_OPERATORS: dict[str, Any] = {"rule": EXTENDED}
_OPERATORS_LATER: dict[str, Any] = {"rule": EXTENDED, "since": "2.3"}

_BRIEF = (
    ServerField("id", UUID, lambda of: of.server.id),
    ServerField("name", STRING, lambda of: of.server.name),
    ServerField("links", LINKS, lambda of: links(of.call, "servers", of.server.id)),
)
FIELDS = (
    *_BRIEF,
    ServerField("status", STRING, _status),
    ServerField("tenant_id", STRING, lambda of: of.server.project_id),
    ServerField("user_id", STRING, lambda of: of.server.user_id),
    ServerField("metadata", by_name(STRING), lambda of: of.server.metadata),
    ServerField("hostId", STRING, lambda of: host_id(of.server)),
    ServerField("image", _image_schema, _image),
    ServerField("flavor", _flavor_schema, _flavor),
    ServerField("created", STRING, lambda of: _whole_seconds(of.server.created_at)),
    ServerField("updated", STRING, lambda of: _whole_seconds(of.server.updated_at or of.server.created_at)),
    _looked("addresses", by_name(array(thing(_WHOLE_ADDRESS))), lambda of: of.server.addresses),
    ServerField("addresses", by_name(array(thing(_ADDRESS))), _plain_addresses, looked=False),
    ServerField("accessIPv4", STRING, lambda of: ""),
    ServerField("accessIPv6", STRING, lambda of: ""),
    ServerField("OS-DCF:diskConfig", STRING, lambda of: "MANUAL"),
    ServerField("progress", INTEGER, lambda of: 0, when=lambda of: _status(of) in _PROGRESSING),
    ServerField("fault", _FAULT, _fault, when=lambda of: of.server.fault and of.server.vm_state == "error"),
    _looked("config_drive", STRING, lambda of: "True" if of.server.config_drive else ""),
    _looked("key_name", NULLABLE_STRING, lambda of: of.server.key_name),
    _looked("security_groups", _SECURITY_GROUPS, lambda of: [{"name": name} for name in of.of.secured],
            when=lambda of: of.of.secured),
    _looked("os-extended-volumes:volumes_attached", _volumes_schema, _volumes),
    _looked("OS-EXT-AZ:availability_zone", STRING, lambda of: zone(of.server)),
    _looked("OS-EXT-STS:task_state", NULLABLE_STRING, lambda of: of.server.task_state),
    _looked("OS-EXT-STS:vm_state", STRING, lambda of: of.server.vm_state),
    _looked("OS-EXT-STS:power_state", INTEGER, lambda of: of.server.power_state),
    _looked("OS-SRV-USG:launched_at", NULLABLE_STRING, lambda of: timestamp(of.server.launched_at)),
    _looked("OS-SRV-USG:terminated_at", NULLABLE_STRING,
            lambda of: timestamp(of.server.updated_at) if of.server.vm_state == "deleted" else None),
    _attribute("host", NULLABLE_STRING, lambda of: of.server.host, **_OPERATORS),
    _attribute("hypervisor_hostname", NULLABLE_STRING, lambda of: of.server.host, **_OPERATORS),
    _attribute("instance_name", NULLABLE_STRING, lambda of: f"instance-{of.server.number:08x}", **_OPERATORS),
    _attribute("hostname", NULLABLE_STRING, lambda of: of.server.hostname, **_OPERATORS_LATER, until="2.89"),
    _attribute("root_device_name", NULLABLE_STRING, lambda of: "/dev/vda", **_OPERATORS_LATER),
    _attribute("user_data", NULLABLE_STRING, lambda of: of.server.user_data, **_OPERATORS_LATER),
    _attribute("kernel_id", STRING, lambda of: "", **_OPERATORS_LATER),
    _attribute("ramdisk_id", STRING, lambda of: "", **_OPERATORS_LATER),
    _attribute("reservation_id", STRING, lambda of: of.server.reservation_id, **_OPERATORS_LATER),
    _attribute("launch_index", INTEGER, lambda of: of.server.launch_index, **_OPERATORS_LATER),
    ServerField("locked", TRUTH, lambda of: of.server.locked, since="2.9"),
    _looked("host_status", _HOST_STATUSES, _host_status, since="2.16", rule=HOST_STATUS),
    ServerField("description", NULLABLE_STRING, lambda of: of.server.description, since="2.19"),
    ServerField("tags", array(STRING), lambda of: of.server.tags, since="2.26"),
    ServerField("trusted_image_certificates", NULL, lambda of: None, since="2.63"),
    ServerField("server_groups", array(UUID), lambda of: of.groups, since="2.71", listed=False),
    ServerField("locked_reason", NULLABLE_STRING, lambda of: of.server.locked_reason, since="2.73"),
    _attribute("hostname", STRING, lambda of: of.server.hostname, since="2.90"),
    ServerField("pinned_availability_zone", NULLABLE_STRING, lambda of: of.server.zone, since="2.96"),
    ServerField("scheduler_hints", by_name(array(STRING)), _hints, since="2.100"),
    ServerField("partition", {"type": ["integer", "null"]},
                lambda of: of.server.partition if of.server.group_id else None, since="2.1003"),
)  # fmt: skip


@cache
def _known(version: Version, looked: bool, listed: bool) -> tuple[ServerField, ...]:
    """The fields that a version shows."""
    return tuple(
        each
        for each in FIELDS
        if Version.parse(each.since) <= version <= Version.parse(each.until)
        and each.looked in (None, looked)
        and (each.listed or not listed)
    )


# Answers


def brief(call: Call, server: Server, of: Companions = ALONE) -> dict[str, Any]:
    """A server in a list without details."""
    answer = ServerAnswer(call, server, of, None)
    return {each.name: each.value(answer) for each in _BRIEF}


def detailed(
    call: Call, server: Server, of: Companions = ALONE, groups: list[str] | None = None, *, looked: bool = True
) -> dict[str, Any]:
    """A server in full, with what other services keep of it."""
    answer = ServerAnswer(call, server, of, groups)
    permitted = {None, *(rule for rule in (EXTENDED, HOST_STATUS) if call.may(rule, project_id=server.project_id))}
    return {
        each.name: each.value(answer)
        for each in _known(call.version, looked, groups is None)
        if each.rule in permitted and (each.when is None or each.when(answer))
    }


def updated(call: Call, server: Server, of: Companions, groups: list[str]) -> dict[str, Any]:
    """A server after a change of its name or description."""
    return detailed(call, server, of, groups, looked=call.version >= _WHOLE_UPDATES)


def rebuilt(call: Call, server: Server, of: Companions, groups: list[str], password: str) -> dict[str, Any]:
    """A server that is being rebuilt: as after any change, with what it is rebuilt from."""
    view = {**updated(call, server, of, groups), "adminPass": password}
    if call.version >= Version(2, 54):
        view["key_name"] = server.key_name
    if call.version >= Version(2, 57):
        view.pop("OS-EXT-SRV-ATTR:user_data", None)
        view["user_data"] = server.user_data
    return view


# Their schemas

_BOOTED = {"id": UUID, "links": LINKS, "OS-DCF:diskConfig": STRING, "adminPass": STRING}
CREATED: Schema = {
    "oneOf": [
        thing({"reservation_id": STRING}),
        thing({"server": thing({**_BOOTED, "security_groups": _SECURITY_GROUPS})}),
    ]
}
_LISTED = {each.name: each.described(Version(2, 1)) for each in _BRIEF}
LISTED = thing({"servers": array(thing(_LISTED))}, {"servers_links": LINKS})


def detailed_schema(version: Version) -> Schema:
    """A list of servers with details."""
    return thing({"servers": array(_schema(version, listed=True))}, {"servers_links": LINKS})


def shown_schema(version: Version, *, looked: bool = True) -> Schema:
    """One server."""
    return thing({"server": _schema(version, looked=looked)})


def updated_schema(version: Version) -> Schema:
    """One server, after a change of its name or description."""
    return shown_schema(version, looked=version >= _WHOLE_UPDATES)


def _schema(version: Version, *, looked: bool = True, listed: bool = False) -> Schema:
    required: dict[str, Schema] = {}
    optional: dict[str, Schema] = {}
    for each in _known(version, looked, listed):
        (required if each.rule is None and each.when is None else optional)[each.name] = each.described(version)
    return thing(required, optional)
