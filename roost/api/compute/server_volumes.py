"""The volumes that servers have."""

from typing import Any

from roost.api.compute.servers import actor, owned
from roost.api.fields import FieldTable, column
from roost.api.permissions import MEMBER, READER, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import BOOLEAN, NULLABLE_STRING, STRING, TRUTH, UUID, Schema, boolean, thing
from roost.api.versions import Version
from roost.compute.scheduling import servers
from roost.compute.scheduling.servers import Server
from roost.errors import Forbidden, Invalid
from roost.volume import block_devices
from roost.volume.volumes import VolumeOwner

_RULE = "os_compute_api:os-volumes-attachments:"
RULES = (
    Permission(_RULE + "index", READER, "List the volumes of a server."),
    Permission(_RULE + "show", READER, "Show a volume of a server."),
    Permission(_RULE + "create", MEMBER, "Attach a volume to a server."),
    Permission(_RULE + "update", MEMBER, "Say whether a volume is deleted with its server."),
    Permission(_RULE + "delete", MEMBER, "Detach a volume from a server."),
)

routes = Table(prefix="/v2.1/servers/{server_id}/os-volume_attachments")

_STATES = frozenset(
    {"active", "paused", "stopped", "suspended", "resized", "soft-delete", "shelved", "shelved_offloaded"}
)
_SHOWN = FieldTable[Any](
    column("id", STRING, until=Version(2, 88)),
    column("volumeId", STRING, "id"),
    column("serverId", STRING, "server_id"),
    column("device", STRING),
    column("tag", NULLABLE_STRING, since=Version(2, 70)),
    column("delete_on_termination", TRUTH, since=Version(2, 79)),
    column("attachment_id", STRING, since=Version(2, 89)),
    column("bdm_uuid", STRING, "attachment_id", since=Version(2, 89)),
)
_ONE = _SHOWN.one("volumeAttachment")


@routes.get("", rule=_RULE + "index", owned=True, response=_SHOWN.many("volumeAttachments"))
async def index(call: Call, connection: Connection) -> Reply:
    """The volumes of a server."""
    server = await owned(call, connection, _RULE + "index")
    held = (await block_devices.attached(connection, [server.id])).get(server.id, [])
    return {"volumeAttachments": [_SHOWN.show(each, call.version) for each in held]}


@routes.get("/{volume_id}", rule=_RULE + "show", owned=True, response=_ONE)
async def show(call: Call, connection: Connection) -> Reply:
    """A volume of a server."""
    server = await owned(call, connection, _RULE + "show")
    held = await block_devices.find(connection, server, call.path["volume_id"])
    return {"volumeAttachment": _SHOWN.show(held, call.version)}


_DEVICE: Schema = {"type": ["string", "null"], "minLength": 1, "maxLength": 255}
_TAG: Schema = {"type": "string", "minLength": 1, "maxLength": 60, "pattern": "^[^,/]*$"}
_ASKED: dict[str, Schema] = {"device": _DEVICE}


async def attach(call: Call, connection: Connection) -> Reply:
    """Attach a volume to a server."""
    asked = call.body["volumeAttachment"]
    more = {"tag": asked.get("tag"), "delete_on_termination": boolean(asked.get("delete_on_termination", False))}
    server = await owned(call, connection, _RULE + "create", lock=True)
    servers.check(server, "attach_volume", _STATES, actor(call))
    # An admin attaches a volume of the server's project.
    owner = VolumeOwner(server.project_id, call.caller.user_id)
    held = await block_devices.attach(connection, server, owner, asked["volumeId"], asked.get("device"), **more)
    await servers.record(connection, server.id, "attach_volume", actor(call), done=True)
    return {"volumeAttachment": _SHOWN.show(held, call.version)}


def _declare() -> None:
    """One row for each version that takes something new."""
    steps: tuple[tuple[str, str | None, dict[str, Schema]], ...] = (
        ("2.1", "2.48", {}),
        ("2.49", "2.78", {"tag": _TAG}),
        ("2.79", None, {"delete_on_termination": BOOLEAN}),
    )
    asked = dict(_ASKED)
    for since, until, more in steps:
        asked |= more
        body = thing({"volumeAttachment": thing({"volumeId": UUID}, dict(asked))})
        routes.post("", since=since, until=until, rule=_RULE + "create", owned=True, body=body, response=_ONE)(attach)


_declare()


async def _held(call: Call, connection: Connection, verb: str) -> tuple[Server, Any]:
    server = await owned(call, connection, _RULE + verb, lock=True)
    return server, await block_devices.find(connection, server, call.path["volume_id"])


@routes.put(
    "/{volume_id}",
    since="2.85",
    rule=_RULE + "update",
    owned=True,
    body=thing(
        {
            "volumeAttachment": thing(
                {"volumeId": UUID, "delete_on_termination": BOOLEAN},
                {"id": UUID, "serverId": UUID} | {"device": _DEVICE, "tag": NULLABLE_STRING},
            )
        }
    ),
    status=202,
)
async def update(call: Call, connection: Connection) -> None:
    """Say whether a volume is deleted with its server; volumes are not swapped."""
    asked = call.body["volumeAttachment"]
    _, held = await _held(call, connection, "update")
    if asked["volumeId"] != held.id or asked.get("device", held.device) != held.device:
        raise Invalid("Volumes are not swapped, and keep their device, in this cloud.")
    await block_devices.change(connection, held, boolean(asked["delete_on_termination"]))


@routes.delete("/{volume_id}", rule=_RULE + "delete", owned=True, status=202)
async def detach(call: Call, connection: Connection) -> None:
    """Detach a volume from a server, unless the server boots from it."""
    server, held = await _held(call, connection, "delete")
    servers.check(server, "detach_volume", _STATES, actor(call))
    if held.root:
        raise Forbidden("Cannot detach a root device volume")
    await block_devices.detach(connection, held)
    await servers.record(connection, server.id, "detach_volume", actor(call), done=True)
