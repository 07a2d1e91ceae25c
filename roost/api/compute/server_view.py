"""A server as clients see it, in every version from 2.1 on."""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from roost.api.compute.views import links, timestamp
from roost.api.routes import Call
from roost.api.versions import Version
from roost.compute.inventory.hosts import DEFAULT_ZONE
from roost.compute.scheduling import servers
from roost.compute.scheduling.servers import Server

EXTENDED = "os_compute_api:os-extended-server-attributes"
HOST_STATUS = "os_compute_api:servers:show:host_status"


def brief(call: Call, server: Server, secured: Sequence[str] = ()) -> dict[str, Any]:
    """A server in a list without details."""
    return {"id": server.id, "name": server.name, "links": links(call, "servers", server.id)}


def detailed(
    call: Call, server: Server, secured: Sequence[str] = (), groups: list[str] | None = None
) -> dict[str, Any]:
    """A server in full, with the names of the security groups of its ports; its server groups only where one server is
    shown, since 2.71."""
    version = call.version
    view = {
        **brief(call, server),
        **_basics(call, server),
        **({"security_groups": [{"name": name} for name in secured]} if secured else {}),
        **_states(server),
        "OS-EXT-AZ:availability_zone": zone(server),
    }
    if call.may(EXTENDED, project_id=server.project_id):
        view |= _extended(server, version)
    if version >= Version(2, 9):
        view["locked"] = server.locked
    if version >= Version(2, 16) and call.may(HOST_STATUS, project_id=server.project_id):
        view["host_status"] = _host_status(server)
    if version >= Version(2, 19):
        view["description"] = server.description
    if version >= Version(2, 26):
        view["tags"] = server.tags
    if version >= Version(2, 63):
        view["trusted_image_certificates"] = None
    if version >= Version(2, 71) and groups is not None:
        view["server_groups"] = groups
    if version >= Version(2, 73):
        view["locked_reason"] = server.locked_reason
    if version >= Version(2, 90):
        view["OS-EXT-SRV-ATTR:hostname"] = server.hostname
    if version >= Version(2, 96):
        view["pinned_availability_zone"] = server.zone
    if version >= Version(2, 100):
        view["scheduler_hints"] = _hints(server)
    if version >= Version(2, 1003):
        view["partition"] = server.partition if server.group_id else None
    return view


def updated(call: Call, server: Server, secured: Sequence[str], groups: list[str]) -> dict[str, Any]:
    """A server after a change of its name or description: without what only a look at it shows."""
    view = detailed(call, server, secured, groups)
    hidden = ["key_name", "security_groups", "os-extended-volumes:volumes_attached", "config_drive"]
    hidden += [key for key in view if key.startswith(("OS-EXT-", "OS-SRV-USG"))]
    if call.version >= Version(2, 75):
        return view
    for key in [*hidden, "host_status"]:
        view.pop(key, None)
    view["addresses"] = {
        network: [{"addr": address["addr"], "version": address["version"]} for address in addresses]
        for network, addresses in server.addresses.items()
    }
    return view


def rebuilt(call: Call, server: Server, secured: Sequence[str], groups: list[str], password: str) -> dict[str, Any]:
    """A server that is being rebuilt: as after any change, with what it is rebuilt from."""
    view = {**updated(call, server, secured, groups), "adminPass": password}
    if call.version >= Version(2, 54):
        view["key_name"] = server.key_name
    if call.version >= Version(2, 57):
        view.pop("OS-EXT-SRV-ATTR:user_data", None)
        view["user_data"] = server.user_data
    return view


def _basics(call: Call, server: Server) -> dict[str, Any]:
    view: dict[str, Any] = {
        "status": servers.status(server),
        "tenant_id": server.project_id,
        "user_id": server.user_id,
        "metadata": server.metadata,
        "hostId": host_id(server),
        "image": _image(call, server),
        "flavor": _flavor(call, server),
        "created": _whole_seconds(server.created_at),
        "updated": _whole_seconds(server.updated_at or server.created_at),
        "addresses": server.addresses,
        "accessIPv4": "",
        "accessIPv6": "",
        "OS-DCF:diskConfig": "MANUAL",
        "config_drive": "True" if server.config_drive else "",
        "key_name": server.key_name,
        "os-extended-volumes:volumes_attached": [],
        "OS-SRV-USG:launched_at": timestamp(server.launched_at),
        "OS-SRV-USG:terminated_at": timestamp(server.updated_at) if server.vm_state == "deleted" else None,
    }
    if servers.status(server) in ("ACTIVE", "BUILD", "REBUILD", "RESIZE", "VERIFY_RESIZE", "MIGRATING"):
        view["progress"] = 0
    if server.fault is not None and server.vm_state == "error":
        view["fault"] = {
            "code": server.fault["code"],
            "created": _whole_seconds(datetime.fromisoformat(server.fault["created"])),
            "message": server.fault["message"],
        }
    return view


def _states(server: Server) -> dict[str, Any]:
    return {
        "OS-EXT-STS:task_state": server.task_state,
        "OS-EXT-STS:vm_state": server.vm_state,
        "OS-EXT-STS:power_state": server.power_state,
    }


def host_id(server: Server) -> str:
    """What tells a tenant whether two of its servers share a host, and nothing more."""
    if server.host is None:
        return ""
    return hashlib.sha224((server.project_id + server.host).encode()).hexdigest()


def zone(server: Server) -> str:
    """The zone that a server is in; where it is on no host, the one that it asked for."""
    if server.host is None:
        return server.zone or ""
    return server.host_zone or DEFAULT_ZONE


def _extended(server: Server, version: Version) -> dict[str, Any]:
    view: dict[str, Any] = {
        "OS-EXT-SRV-ATTR:host": server.host,
        "OS-EXT-SRV-ATTR:hypervisor_hostname": server.host,
        "OS-EXT-SRV-ATTR:instance_name": f"instance-{server.number:08x}",
    }
    if version >= Version(2, 3):
        view |= {
            "OS-EXT-SRV-ATTR:hostname": server.hostname,
            "OS-EXT-SRV-ATTR:kernel_id": "",
            "OS-EXT-SRV-ATTR:launch_index": server.launch_index,
            "OS-EXT-SRV-ATTR:ramdisk_id": "",
            "OS-EXT-SRV-ATTR:reservation_id": server.reservation_id,
            "OS-EXT-SRV-ATTR:root_device_name": "/dev/vda",
            "OS-EXT-SRV-ATTR:user_data": server.user_data,
        }
    return view


def _host_status(server: Server) -> str:
    if server.host is None:
        return ""
    if server.host_down:
        return "DOWN"
    return "UP" if server.host_enabled else "MAINTENANCE"


def _image(call: Call, server: Server) -> dict[str, Any] | str:
    if server.image_id is None:
        return ""
    view: dict[str, Any] = {
        "id": server.image_id,
        "links": [{"rel": "bookmark", "href": f"{call.base}/images/{server.image_id}"}],
    }
    if call.version >= Version(2, 98):
        view["properties"] = {}
    return view


def _flavor(call: Call, server: Server) -> dict[str, Any]:
    flavor = server.flavor
    if call.version < Version(2, 47):
        bookmark = {"rel": "bookmark", "href": f"{call.base}/flavors/{flavor.id}"}
        return {"id": flavor.id, "links": [bookmark]}
    return {
        "vcpus": flavor.vcpus,
        "ram": flavor.memory_mb,
        "disk": flavor.root_gb,
        "ephemeral": flavor.ephemeral_gb,
        "swap": flavor.swap_mb,
        "original_name": flavor.name,
        "extra_specs": flavor.extra_specs,
    }


def _hints(server: Server) -> dict[str, Any]:
    """As lists of strings; the group as it is now, not as it was asked for."""
    hints = {
        key: [str(each) for each in value] if isinstance(value, list) else [str(value)]
        for key, value in server.hints.items()
        if key != "group"
    }
    return {**hints, "group": [server.group_id]} if server.group_id else hints


def _whole_seconds(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
