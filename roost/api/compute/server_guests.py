"""What would run inside a server: its console, its diagnostics, its password, a snapshot of it, its rescue.

The hosts are simulated, so there is no guest: questions that need none are answered, and the others refused.
"""

import secrets
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from starlette.responses import JSONResponse, Response

from roost.api.compute.servers import actor, owned
from roost.api.permissions import ADMIN, MEMBER, READER, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import INTEGER, STRING, TRUTH, Schema, array, by_name, thing
from roost.api.versions import Version
from roost.compute.inventory import images
from roost.compute.inventory.images import ImageValues, StoredImage, Viewer
from roost.compute.scheduling import servers
from roost.compute.scheduling.servers import Server
from roost.compute.scheduling.steps import PAUSED, RUNNING, SHUTDOWN, SUSPENDED
from roost.errors import Conflict, Invalid

_CONSOLES = "os_compute_api:os-remote-consoles"
_DIAGNOSTICS = "os_compute_api:os-server-diagnostics"
_PASSWORD = "os_compute_api:os-server-password:"  # noqa: S105
_TOPOLOGY = "compute:server:topology:"

RULES = (
    Permission(_CONSOLES, MEMBER, "Get the address of a server's console."),
    Permission(_DIAGNOSTICS, ADMIN, "Show what a server uses of its host."),
    Permission(_PASSWORD + "show", READER, "Show the password that a server's guest has set."),
    Permission(_PASSWORD + "clear", MEMBER, "Forget the password that a server's guest has set."),
    Permission(_TOPOLOGY + "index", READER, "Show how a server lies on the NUMA nodes of its host."),
)

routes = Table(prefix="/v2.1/servers/{server_id}")


# Actions: `server_actions` has the table that they stand in


async def usable_image(connection: Connection, server: Server, image_id: str) -> StoredImage:
    """An image that the server can be rebuilt from, or `Invalid`."""
    image = await images.usable(connection, Viewer(server.project_id), image_id)
    if image is None:
        raise Invalid(f"Image {image_id} could not be found.")
    if image.min_memory_mb > server.flavor.memory_mb:
        raise Invalid("Flavor's memory is too small for requested image.")
    if server.flavor.root_gb and image.min_disk_gb > server.flavor.root_gb:
        raise Invalid("Flavor's disk is too small for requested image.")
    return image


async def rescue(call: Call, connection: Connection, server: Server, value: Any) -> Response:
    """Boot a server from another disk, so that its own can be mended."""
    wishes: Mapping[str, Any] = value or {}
    if "rescue_image_ref" in wishes:
        await usable_image(connection, server, wishes["rescue_image_ref"])
    await servers.change_state(connection, server, "rescue", actor(call))
    return JSONResponse({"adminPass": wishes.get("adminPass") or secrets.token_urlsafe(9)}, 200)


async def create_image(call: Call, connection: Connection, server: Server, value: Any) -> Response:
    """Make an image of a server: one that other servers can be made from, without data."""
    servers.check(server, "createImage", frozenset({"active", "stopped", "paused", "suspended"}), actor(call))
    base = None if server.image_id is None else await images.usable(connection, Viewer(None, True), server.image_id)
    properties = {
        **value.get("metadata", {}),
        "image_type": "snapshot",
        "instance_uuid": server.id,
        "user_id": server.user_id,
        **({"base_image_ref": server.image_id} if server.image_id else {}),
    }
    made: ImageValues = {
        "id": str(uuid.uuid4()),
        "name": value["name"],
        "project_id": server.project_id,
        "visibility": "private",
        "size": 0 if base is None else base.size,
        "min_disk_gb": server.flavor.root_gb,
        "properties": properties,
    }
    image = await images.create(connection, made, call.services.settings.images.project_images)
    await servers.record(connection, server.id, "createImage", actor(call), done=True)
    if call.version >= Version(2, 45):
        return JSONResponse({"image_id": image.id}, 202)
    return Response(status_code=202, headers={"Location": f"{_site(call)}/image/v2/images/{image.id}"})


async def console_output(call: Call, connection: Connection, server: Server, value: Any) -> Response:
    """What a server would have printed: its name, and that it is simulated."""
    _must_be_on_a_host(server)
    lines = [
        "[simulated] This server is on a simulated host: nothing runs in it.",
        f"[simulated] {server.hostname} was booted from {server.image_id or 'no image'}"
        + (f" at {server.launched_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC." if server.launched_at else "."),
        f"{server.hostname} login: ",
    ]
    length = value.get("length")
    asked = len(lines) if length is None else int(length)
    return JSONResponse({"output": "\n".join(lines if asked < 0 else lines[len(lines) - min(asked, len(lines)) :])})


async def trigger_crash_dump(call: Call, connection: Connection, server: Server, value: Any) -> None:
    """Have the guest dump its memory. No guest runs here, so only the history shows it."""
    servers.check(server, "trigger_crash_dump", frozenset({"active", "paused", "rescued", "error"}), actor(call))
    await servers.record(connection, server.id, "trigger_crash_dump", actor(call), done=True)


# Consoles

_TYPES: Mapping[str, tuple[str, ...]] = {
    "vnc": ("novnc", "xvpvnc"),
    "spice": ("spice-html5",),
    "rdp": ("rdp-html5",),
    "serial": ("serial",),
    "mks": ("webmks",),
}
CONSOLE_ACTIONS: Mapping[str, tuple[str, ...]] = {
    "os-getVNCConsole": _TYPES["vnc"],
    "os-getSPICEConsole": _TYPES["spice"],
    "os-getRDPConsole": _TYPES["rdp"],
    "os-getSerialConsole": _TYPES["serial"],
}
"""The types that each action knows; since 2.6 consoles have a path of their own."""


async def console(call: Call, connection: Connection, server: Server, value: Any) -> Response:
    """The address of a console, as clients asked for it before 2.6."""
    return JSONResponse({"console": {"type": value["type"], "url": _console(call, server, value["type"])}})


def _console(call: Call, server: Server, kind: str) -> str:
    """An address that says what it is: there is nothing to look at."""
    _must_be_on_a_host(server)
    return f"{_site(call)}/simulated-console/{kind}?server={server.id}"


def _site(call: Call) -> str:
    return call.base.removesuffix("/compute")


def _must_be_on_a_host(server: Server) -> None:
    if server.host_id is None:
        raise Conflict(f"Instance {server.id} is not ready")


_KINDS: Schema = {"enum": [kind for kinds in _TYPES.values() for kind in kinds]}
_CONSOLE = thing({"remote_console": thing(dict.fromkeys(("protocol", "type", "url"), STRING))})


@routes.post(
    "/remote-consoles",
    since="2.6",
    rule=_CONSOLES,
    owned=True,
    body=thing({"remote_console": thing({"protocol": {"enum": [*_TYPES]}, "type": _KINDS})}),
    response=_CONSOLE,
)
async def create_console(call: Call, connection: Connection) -> Reply:
    """The address of a console."""
    asked = call.body["remote_console"]
    if asked["type"] not in _TYPES[asked["protocol"]]:
        raise Invalid(f"Unavailable console type {asked['type']} of protocol {asked['protocol']}.")
    server = await owned(call, connection, _CONSOLES)
    return {"remote_console": {**asked, "url": _console(call, server, asked["type"])}}


# Diagnostics, topology, password

_POWER = {RUNNING: "running", PAUSED: "paused", SHUTDOWN: "shutdown", SUSPENDED: "suspended"}
_LIST = array(by_name({"type": ["integer", "string", "null"]}))
_FIGURES = {
    **dict.fromkeys(("state", "driver", "hypervisor", "hypervisor_os"), STRING),
    **dict.fromkeys(("uptime", "num_cpus", "num_disks", "num_nics"), INTEGER),
    "config_drive": TRUTH,
    "memory_details": thing({"maximum": INTEGER, "used": INTEGER}),
    **dict.fromkeys(("cpu_details", "disk_details", "nic_details"), _LIST),
}


def _diagnostics_shape(version: Version) -> Schema:
    return by_name(INTEGER) if version < Version(2, 48) else thing(_FIGURES)


@routes.get("/diagnostics", rule=_DIAGNOSTICS, owned=True, response=_diagnostics_shape)
async def diagnostics(call: Call, connection: Connection) -> Reply:
    """What a server uses of its host: all of its memory, and nothing else, since nothing runs in it."""
    server = await owned(call, connection, _DIAGNOSTICS)
    if server.vm_state not in ("active", "paused", "stopped", "suspended", "rescued", "resized"):
        raise Conflict(f"Cannot 'get_diagnostics' instance {server.id} while it is in vm_state {server.vm_state}")
    flavor, cards = server.flavor, [each for entries in server.addresses.values() for each in entries]
    if call.version < Version(2, 48):
        return {"memory": flavor.memory_mb * 1024, **{f"cpu{number}_time": 0 for number in range(flavor.vcpus)}}
    nothing = dict.fromkeys(("read_bytes", "read_requests", "write_bytes", "write_requests", "errors_count"), 0)
    silence = {f"{way}_{what}": 0 for way in ("rx", "tx") for what in ("octets", "errors", "drop", "packets", "rate")}
    since = server.launched_at or server.created_at
    return {
        "state": _POWER.get(server.power_state, "pending"),
        "driver": "libvirt",
        "hypervisor": "simulated",
        "hypervisor_os": "simulated",
        "uptime": int((datetime.now(UTC) - since).total_seconds()),
        "config_drive": server.config_drive,
        "num_cpus": flavor.vcpus,
        "num_disks": 1,
        "num_nics": len(cards),
        "memory_details": {"maximum": flavor.memory_mb, "used": flavor.memory_mb},
        "cpu_details": [{"id": number, "time": 0, "utilisation": 0} for number in range(flavor.vcpus)],
        "disk_details": [nothing],
        "nic_details": [{"mac_address": card["OS-EXT-IPS-MAC:mac_addr"], **silence} for card in cards],
    }


@routes.get(
    "/topology",
    since="2.78",
    rule=_TOPOLOGY + "index",
    owned=True,
    response=thing({"nodes": {"const": []}, "pagesize_kb": {"type": "null"}}),
)
async def topology(call: Call, connection: Connection) -> Reply:
    """How a server lies on NUMA nodes: simulated hosts have none."""
    await owned(call, connection, _TOPOLOGY + "index")
    return {"nodes": [], "pagesize_kb": None}


@routes.get("/os-server-password", rule=_PASSWORD + "show", owned=True, response=thing({"password": {"const": ""}}))
async def show_password(call: Call, connection: Connection) -> Reply:
    """The password that the guest has set: none."""
    await owned(call, connection, _PASSWORD + "show")
    return {"password": ""}


@routes.delete("/os-server-password", rule=_PASSWORD + "clear", owned=True, status=204)
async def clear_password(call: Call, connection: Connection) -> None:
    """Forget the password that the guest has set."""
    await owned(call, connection, _PASSWORD + "clear")
