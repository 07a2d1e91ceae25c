"""What the answers about servers look like, in every version from 2.1 on."""

from roost.api.compute.views import LINKS
from roost.api.schemas import INTEGER, NULL, NULLABLE_STRING, STRING, TRUTH, UUID, Schema, array, by_name, thing
from roost.api.versions import Version

_PART = array(thing({"href": STRING, "rel": {"const": "bookmark"}}))

_BRIEF = {"id": UUID, "name": STRING, "links": LINKS}
_ADDRESS = {"addr": STRING, "version": {"enum": [4, 6]}}
_MORE_OF_AN_ADDRESS = {"OS-EXT-IPS:type": STRING, "OS-EXT-IPS-MAC:mac_addr": STRING}
_ALWAYS: dict[str, Schema] = {
    **_BRIEF,
    **dict.fromkeys(("status", "tenant_id", "user_id", "hostId", "created", "updated"), STRING),
    **dict.fromkeys(("accessIPv4", "accessIPv6", "OS-DCF:diskConfig"), STRING),
    "metadata": by_name(STRING),
}
_LOOKED_AT: dict[str, Schema] = {
    "config_drive": STRING,
    "key_name": NULLABLE_STRING,
    "os-extended-volumes:volumes_attached": array(thing({})),
    "OS-EXT-AZ:availability_zone": STRING,
    "OS-EXT-STS:task_state": NULLABLE_STRING,
    "OS-EXT-STS:vm_state": STRING,
    "OS-EXT-STS:power_state": INTEGER,
    "OS-SRV-USG:launched_at": NULLABLE_STRING,
    "OS-SRV-USG:terminated_at": NULLABLE_STRING,
}
"""What only a look at a server shows; since 2.75, a change of it too."""
_SECURITY = {"security_groups": array(thing({"name": STRING}))}
_SOMETIMES: dict[str, Schema] = {
    "progress": INTEGER,
    "fault": thing({"code": INTEGER, "created": STRING, "message": STRING}),
}
_ATTRIBUTE = "OS-EXT-SRV-ATTR:"
_OPERATORS: tuple[tuple[str, dict[str, Schema]], ...] = (
    ("2.1", {_ATTRIBUTE + name: NULLABLE_STRING for name in ("host", "hypervisor_hostname", "instance_name")}),
    ("2.3", {_ATTRIBUTE + name: NULLABLE_STRING for name in ("hostname", "root_device_name", "user_data")}),
    ("2.3", {_ATTRIBUTE + name: STRING for name in ("kernel_id", "ramdisk_id", "reservation_id")}),
    ("2.3", {_ATTRIBUTE + "launch_index": INTEGER}),
    ("2.16", {"host_status": {"enum": ["UP", "DOWN", "MAINTENANCE", ""]}}),
)
_SINCE: tuple[tuple[str, dict[str, Schema]], ...] = (
    ("2.9", {"locked": TRUTH}),
    ("2.19", {"description": NULLABLE_STRING}),
    ("2.26", {"tags": array(STRING)}),
    ("2.63", {"trusted_image_certificates": NULL}),
    ("2.73", {"locked_reason": NULLABLE_STRING}),
    ("2.96", {"pinned_availability_zone": NULLABLE_STRING}),
    ("2.100", {"scheduler_hints": by_name(array(STRING))}),
    ("2.1003", {"partition": {"type": ["integer", "null"]}}),
)
_HOSTNAME = {_ATTRIBUTE + "hostname": STRING}

_TOLD_ONCE = {"OS-DCF:diskConfig": STRING, "adminPass": STRING}

CREATED: Schema = {
    "oneOf": [
        thing({"reservation_id": STRING}),
        thing(
            {
                "server": thing(
                    {"id": UUID, "links": LINKS, "OS-DCF:diskConfig": STRING, "adminPass": STRING, **_SECURITY}
                )
            }
        ),
    ]
}
LISTED = thing({"servers": array(thing(_BRIEF))}, {"servers_links": LINKS})


def detailed(version: Version) -> Schema:
    """A list of servers with details."""
    return thing({"servers": array(_looked_at(version, grouped=False))}, {"servers_links": LINKS})


def shown(version: Version) -> Schema:
    """One server."""
    return thing({"server": _looked_at(version, grouped=True)})


def updated(version: Version) -> Schema:
    """One server, after a change of its name or description."""
    if version >= Version(2, 75):
        return shown(version)
    return thing({"server": thing(_common(version, grouped=True, address=thing(_ADDRESS)), _SOMETIMES)})


def _looked_at(version: Version, *, grouped: bool) -> Schema:
    address = thing({**_ADDRESS, **_MORE_OF_AN_ADDRESS})
    required = {**_common(version, grouped=grouped, address=address), **_LOOKED_AT}
    required |= _HOSTNAME if version >= Version(2, 90) else {}
    optional = {name: schema for name, schema in _known(_OPERATORS, version).items() if name not in required}
    return thing(required, {**optional, **_SOMETIMES, **_SECURITY})


def _common(version: Version, *, grouped: bool, address: Schema) -> dict[str, Schema]:
    groups = {"server_groups": array(UUID)} if grouped and version >= Version(2, 71) else {}
    return {
        **_ALWAYS,
        "image": {"oneOf": [{"const": ""}, _image(version)]},
        "flavor": _flavor(version),
        "addresses": by_name(array(address)),
        **_known(_SINCE, version),
        **groups,
    }


def _known(steps: tuple[tuple[str, dict[str, Schema]], ...], version: Version) -> dict[str, Schema]:
    return {name: schema for since, some in steps if version >= Version.parse(since) for name, schema in some.items()}


def _image(version: Version) -> Schema:
    return thing({"id": STRING, "links": _PART, **({"properties": thing({})} if version >= Version(2, 98) else {})})


def _flavor(version: Version) -> Schema:
    if version < Version(2, 47):
        return thing({"id": STRING, "links": _PART})
    numbers = dict.fromkeys(("vcpus", "ram", "disk", "ephemeral", "swap"), INTEGER)
    return thing({**numbers, "original_name": STRING, "extra_specs": by_name(STRING)})
