"""Block devices: which volumes a server has, and under which names.

Volumes are reserved under the id of a server to be, before it is made; a trigger on `servers` gives them back, or
deletes them, with the server.
"""

import re
import string
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from oslo_utils import strutils
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.errors import Conflict, Invalid, NotFound
from roost.store import rows
from roost.store.database import Database
from roost.store.tables.volume import volumes as table
from roost.store.uuids import is_uuid
from roost.volume import volumes
from roost.volume.volumes import VolumeOwner, VolumeRequest

_WRONG = "Block Device Mapping is Invalid: "
_BOOT_SEQUENCE = f"{_WRONG}Boot sequence for the instance and image/block device mapping combination is not valid."
_MOST = 26
"""Devices of one server: /dev/vda to /dev/vdz."""
_DEVICE = re.compile(r"/dev/x?[a-z]?d?[a-z]+[0-9]*")
_DETACHED: Mapping[str, Any] = {
    **dict.fromkeys(("server_id", "device", "attachment_id", "attached_at", "tag")),
    **dict.fromkeys(("delete_on_termination", "root", "of_server"), False),
}


@dataclass(frozen=True, slots=True)
class BlockDevice:
    """A volume that a server is to have: an existing one, or one to be made from an image, a snapshot or nothing."""

    source: str
    source_id: str | None
    size: int | None
    root: bool
    device: str | None
    delete_on_termination: bool
    volume_type: str | None
    tag: str | None


@dataclass(frozen=True, slots=True)
class BlockDevices:
    """The block devices of a request: the image on a local disk, if there is one, and the volumes."""

    image_id: str | None
    volumes: tuple[BlockDevice, ...]

    @classmethod
    def read(cls, image_id: str | None, asked: Sequence[Mapping[str, Any]]) -> "BlockDevices":
        """Read `block_device_mapping_v2`; raises `Invalid` for what cannot be given."""
        found: list[BlockDevice] = []
        local = image_id
        for device in asked:
            source = device.get("source_type")
            to = device.get("destination_type") or ("volume" if source in ("volume", "snapshot") else "local")
            if to == "volume":
                found.append(_volume(device))
            elif source == "image" and _index(device) == 0:
                if image_id not in (None, device.get("uuid")):
                    raise Invalid(_BOOT_SEQUENCE)
                local = str(device.get("uuid"))
            elif source == "image":
                raise Invalid(f"{_WRONG}only the boot disk is made from an image.")
            elif source == "blank":
                raise Invalid(f"{_WRONG}further local disks are those of the flavor.")
            else:
                raise Invalid(f"{_WRONG}a {source} is not put on a local disk.")
        if len([each for each in found if each.root]) + (local is not None) != 1:
            raise Invalid(_BOOT_SEQUENCE)
        if len(found) >= _MOST:
            raise Invalid(f"{_WRONG}a server has at most {_MOST} disks.")
        return cls(local, tuple(found))


def _index(device: Mapping[str, Any]) -> int | None:
    index = device.get("boot_index")
    return None if index in (None, "None") else int(index)


def _volume(device: Mapping[str, Any]) -> BlockDevice:
    source, source_id = str(device.get("source_type")), device.get("uuid") or None
    if source != "blank" and not is_uuid(source_id):
        raise Invalid(f"{_WRONG}failed to get {source} {source_id}.")
    size = int(device["volume_size"]) if device.get("volume_size") else None
    if size is None and source in ("blank", "image"):
        raise Invalid(f"{_WRONG}Blank volumes and those of images need to have a non-zero size.")
    if size is not None and not 1 <= size <= volumes.LARGEST:
        raise Invalid(f"{_WRONG}a volume cannot have {size} GB.")
    return BlockDevice(
        source,
        source_id,
        size,
        _index(device) == 0,
        _device(device["device_name"]) if device.get("device_name") else None,
        strutils.bool_from_string(device.get("delete_on_termination", False)),
        device.get("volume_type"),
        device.get("tag"),
    )


def _device(name: str) -> str:
    whole = name if name.startswith("/") else f"/dev/{name}"
    if not _DEVICE.fullmatch(whole):
        raise Invalid(f"The supplied device path ({name}) is invalid.")
    return whole


async def reserve(
    database: Database, owner: VolumeOwner, wanted: Sequence[BlockDevice], server_ids: Sequence[str]
) -> None:
    """Give servers that are being made their volumes, all of them or none."""
    if not wanted:
        return
    if len(server_ids) > 1 and any(device.source == "volume" for device in wanted):
        raise Invalid(f"{_WRONG}a volume that exists can be given to one server only.")
    # In one order, so that two requests for the same volumes do not wait for each other; what is made comes last.
    ordered = sorted(wanted, key=lambda device: (device.source != "volume", device.source_id or ""))
    async with database.begin() as connection:
        for server_id in server_ids:
            names = _names(wanted)
            for device in ordered:
                try:
                    volume = await _ready(connection, owner, device)
                except NotFound as error:
                    raise Invalid(_WRONG + error.message) from None
                if device.root and not volume.bootable:
                    raise Invalid(f"{_WRONG}Block Device {volume.id} is not bootable.")
                values = {"delete_on_termination": device.delete_on_termination, "tag": device.tag}
                values |= {"root": device.root, "of_server": device.source != "volume"}
                await _bind(connection, volume, server_id, names[device], **values)


def _names(wanted: Sequence[BlockDevice]) -> dict[BlockDevice, str]:
    """The name of each device: the one asked for, or the first that is left; the boot disk's is /dev/vda."""
    asked = [device.device for device in wanted if device.device and not device.root]
    free = [name for name in _USUAL[1:] if name not in asked]
    if len(set(asked)) < len(asked) or _USUAL[0] in asked:
        raise Invalid(f"{_WRONG}two devices have the same name.")
    return {device: _USUAL[0] if device.root else device.device or free.pop(0) for device in wanted}


_USUAL = tuple(f"/dev/vd{letter}" for letter in string.ascii_lowercase)


async def _ready(connection: AsyncConnection, owner: VolumeOwner, device: BlockDevice) -> Any:
    """The volume of a device, locked; made, unless it is there."""
    volume_id = device.source_id or ""
    if device.source != "volume":
        asked = VolumeRequest(
            device.size,
            volume_type=device.volume_type,
            image_id=device.source_id if device.source == "image" else None,
            snapshot_id=device.source_id if device.source == "snapshot" else None,
        )
        volume_id = await volumes.create(connection, owner, asked)
    return await volumes.find(connection, owner, volume_id, lock=True)


async def _bind(connection: AsyncConnection, volume: Any, server_id: str, device: str, **values: Any) -> None:
    if volume.server_id is not None:
        raise Invalid(f"Invalid volume: Volume {volume.id} status must be available or downloading to reserve.")
    attached = {
        "server_id": server_id,
        "device": device,
        "attachment_id": str(uuid.uuid4()),
        "attached_at": sa.func.now(),
    }
    taken = Conflict(f"The supplied device path ({device}) is in use.")
    await rows.change(connection, table, {**attached, **values}, taken, id=volume.id)


async def release(database: Database, server_ids: Sequence[str]) -> None:
    """Give back what was reserved for those of these servers that were not made."""
    if not server_ids:
        return
    async with database.begin() as connection:
        await _release(connection, table.c.server_id.in_(server_ids))


async def forget_pending(connection: AsyncConnection) -> None:
    """Give back what was reserved by processes that ended before they made the server."""
    since = sa.func.now() - sa.text("interval '10 minutes'")
    await _release(connection, table.c.server_id.is_not(None) & (table.c.attached_at < since))


async def _release(connection: AsyncConnection, which: sa.ColumnElement[bool]) -> None:
    missing = sa.and_(which, sa.text("NOT EXISTS (SELECT FROM servers WHERE servers.id = volumes.server_id)"))
    await connection.execute(table.delete().where(missing, table.c.of_server))
    await connection.execute(table.update().where(missing).values(**_DETACHED))


# What an existing server has


async def attached(connection: AsyncConnection, server_ids: Sequence[str]) -> dict[str, list[Any]]:
    """The volumes of servers, by server, in the order of their devices."""
    found: dict[str, list[Any]] = {}
    # One array: with a parameter for each server, the statement of a page would be long, and slow to parse.
    theirs = table.c.server_id == sa.any_(sa.literal(list(server_ids), sa.ARRAY(table.c.server_id.type)))
    query = sa.select(table).where(theirs).order_by(table.c.device)
    for row in await connection.execute(query) if server_ids else ():
        found.setdefault(row.server_id, []).append(row)
    return found


async def attach(
    connection: AsyncConnection, server: Any, owner: VolumeOwner, volume_id: str, device: str | None, **values: Any
) -> Any:
    """Attach another volume of its project to a locked server."""
    volume = await volumes.find(connection, owner, volume_id, lock=True)
    if volume.project_id != server.project_id:
        raise NotFound(f"Volume {volume_id} could not be found.")
    held = (await attached(connection, [server.id])).get(server.id, [])
    used = {_USUAL[0], *(each.device for each in held)}
    free = next((name for name in _USUAL if name not in used), None)
    if free is None:
        raise Invalid(f"The server has {_MOST} disks already, which is as many as it may have.")
    name = free if device is None else _device(device)
    if name == _USUAL[0]:
        raise Conflict(f"The supplied device path ({name}) is in use.")
    await _bind(connection, volume, server.id, name, **values)
    return await find(connection, server, volume_id)


async def find(connection: AsyncConnection, server: Any, volume_id: str) -> Any:
    """A volume that a server has."""
    held = await rows.find(connection, table, id=volume_id, server_id=server.id) if is_uuid(volume_id) else None
    if held is None:
        raise NotFound(f"Instance {server.id} is not attached to volume {volume_id}")
    return held


async def change(connection: AsyncConnection, held: Any, delete_on_termination: bool) -> None:
    """Set whether an attached volume is deleted with its server."""
    await rows.change(connection, table, {"delete_on_termination": delete_on_termination}, id=held.id)


async def detach(connection: AsyncConnection, held: Any) -> None:
    """Take a volume from its server."""
    await rows.change(connection, table, _DETACHED, id=held.id)
