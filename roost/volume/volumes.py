"""Volumes and snapshots: made from something or empty, grown and deleted, within what a project may have."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.inventory import images, quotas
from roost.compute.inventory.images import Viewer
from roost.errors import Invalid, NotFound, OverQuota
from roost.store import rows
from roost.store.locks import hold
from roost.store.tables.volume import volume_snapshots, volume_type_projects, volume_types, volumes
from roost.store.uuids import is_uuid

ZONE = "nova"
"""The one zone of volumes: every host reaches them."""
QUOTAS: Mapping[str, int] = {
    "volumes": 10,
    "snapshots": 10,
    "gigabytes": 1000,
    "per_volume_gigabytes": -1,
    # Not served: these do not exist here.
    "backups": 0,
    "backup_gigabytes": 0,
    "groups": 0,
}
"""What a project may have of each, unless an admin has set other quotas."""
LARGEST = 2**31 - 1
DEFAULT_TYPE = "__DEFAULT__"


@dataclass(frozen=True, slots=True)
class VolumeOwner:
    """For whom volumes are made and found: a user in a project; admins see those of all projects."""

    project_id: str
    user_id: str
    is_admin: bool = False

    def sees(self, table: sa.Table) -> sa.ColumnElement[bool]:
        """Which volumes or snapshots exist for it."""
        return sa.true() if self.is_admin else table.c.project_id == self.project_id

    def sees_type(self) -> sa.ColumnElement[bool]:
        """Which volume types exist for it."""
        if self.is_admin:
            return sa.true()
        granted = sa.select(volume_type_projects.c.volume_type_id).where(
            volume_type_projects.c.project_id == self.project_id
        )
        return sa.or_(volume_types.c.is_public, volume_types.c.id.in_(granted))


@dataclass(frozen=True, slots=True)
class VolumeRequest:
    """A volume that is asked for: empty, or with the data of at most one of an image, a snapshot and a volume."""

    size: int | None = None
    name: str = ""
    description: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    volume_type: str | None = None
    image_id: str | None = None
    snapshot_id: str | None = None
    source_volid: str | None = None


WITH_TYPE = sa.select(volumes, volume_types.c.name.label("type_name")).join(volume_types)
"""Volumes with the names of their types."""


async def find(connection: AsyncConnection, owner: VolumeOwner, volume_id: str, *, lock: bool = False) -> Any:
    """A volume that the owner sees."""
    query = WITH_TYPE.where(volumes.c.id == volume_id, owner.sees(volumes))
    if lock:
        query = query.with_for_update(of=volumes)
    row = (await connection.execute(query)).one_or_none() if is_uuid(volume_id) else None
    if row is None:
        raise NotFound(f"Volume {volume_id} could not be found.")
    return row


async def find_snapshot(connection: AsyncConnection, owner: VolumeOwner, snapshot_id: str) -> Any:
    """A snapshot that the owner sees."""
    query = sa.select(volume_snapshots).where(volume_snapshots.c.id == snapshot_id, owner.sees(volume_snapshots))
    row = (await connection.execute(query)).one_or_none() if is_uuid(snapshot_id) else None
    if row is None:
        raise NotFound(f"Snapshot {snapshot_id} could not be found.")
    return row


async def find_type(connection: AsyncConnection, owner: VolumeOwner, name_or_id: str) -> Any:
    """A volume type that the owner may use."""
    which = volume_types.c.id == name_or_id if is_uuid(name_or_id) else volume_types.c.name == name_or_id
    row = (await connection.execute(sa.select(volume_types).where(which, owner.sees_type()))).one_or_none()
    if row is None:
        raise NotFound(f"Volume type {name_or_id} could not be found.")
    return row


async def create(connection: AsyncConnection, owner: VolumeOwner, asked: VolumeRequest, **more: Any) -> str:
    """Make a volume within the quotas of its project; its id. `more` are values of its row."""
    origin = await _origin(connection, owner, asked)
    taken, least = origin.pop("size", None), origin.pop("least", 1)
    size = asked.size or taken
    if not size:
        raise Invalid("Invalid input received: a volume needs a size of at least 1 GB.")
    if size < least:
        raise Invalid(f"Invalid input received: Volume size {size}GB cannot be smaller than its source's {least}GB.")
    of_source = origin.pop("volume_type_id", DEFAULT_TYPE)
    volume_type = await find_type(connection, owner, asked.volume_type or of_source)
    await keep_within(connection, owner.project_id, volumes=1, gigabytes=size)
    values = {
        "project_id": owner.project_id,
        "user_id": owner.user_id,
        "name": asked.name,
        "description": asked.description,
        "metadata": dict(asked.metadata),
        "size": size,
        "volume_type_id": volume_type.id,
        **origin,
        **more,
    }
    return str((await rows.add(connection, volumes, values)).id)


async def _origin(connection: AsyncConnection, owner: VolumeOwner, asked: VolumeRequest) -> dict[str, Any]:
    """What a volume takes over from what it is made of: `size` unless another is asked for, and at `least` this one."""
    if sum(each is not None for each in (asked.image_id, asked.snapshot_id, asked.source_volid)) > 1:
        raise Invalid("Invalid input received: a volume is made of one image, one snapshot or one volume.")
    if asked.image_id is not None:
        image = await images.usable(connection, Viewer(owner.project_id, owner.is_admin), asked.image_id)
        if image is None:
            raise Invalid("Invalid image identifier or unable to access requested image.")
        least = max(image.min_disk_gb, -(-(image.size or 0) // 2**30), 1)
        return {"least": least, "bootable": True, "image_metadata": _said(image)}
    if asked.snapshot_id is not None:
        snapshot = await find_snapshot(connection, owner, asked.snapshot_id)
        taken = {"size": snapshot.size, "least": snapshot.size, "snapshot_id": snapshot.id}
        return {**taken, "bootable": snapshot.bootable, "image_metadata": snapshot.image_metadata}
    if asked.source_volid is not None:
        source = await find(connection, owner, asked.source_volid)
        taken = {"size": source.size, "least": source.size, "source_volid": source.id}
        kind = {"volume_type_id": source.volume_type_id}
        return {**taken, **kind, "bootable": source.bootable, "image_metadata": source.image_metadata}
    return {}


def _said(image: Any) -> dict[str, str]:
    said = {"image_id": image.id, "image_name": image.name, "size": image.size}
    return {
        key: str(value)
        for key, value in {**said, "min_disk": image.min_disk_gb, "min_ram": image.min_memory_mb}.items()
        if value is not None
    }


async def extend(connection: AsyncConnection, volume: Any, size: int) -> None:
    """Make a locked volume larger."""
    if size <= volume.size:
        raise Invalid(
            "Invalid input received: New size for extend must be greater than current size. "
            f"(current: {volume.size}, extended: {size})."
        )
    await keep_within(connection, volume.project_id, gigabytes=size - volume.size, largest=size)
    await rows.change(connection, volumes, {"size": size}, id=volume.id)


async def delete(connection: AsyncConnection, volume: Any) -> None:
    """Delete a locked volume that no server has, and of which there are no snapshots."""
    if volume.server_id is not None:
        raise Invalid(f"Invalid volume: Volume {volume.id} is attached to a server and cannot be deleted.")
    refusal = Invalid(f"Invalid volume: Volume {volume.id} has snapshots and cannot be deleted.")
    await rows.remove(connection, volumes, refusal, id=volume.id)


async def delete_snapshots(connection: AsyncConnection, **equal: Any) -> None:
    """Delete the snapshots with these values; volumes that were made of them stay."""
    await rows.remove(connection, volume_snapshots, **equal)


async def create_snapshot(
    connection: AsyncConnection, owner: VolumeOwner, volume: Any, values: Mapping[str, Any]
) -> Any:
    """Make a snapshot of a locked volume, within the quotas of the project."""
    await keep_within(connection, volume.project_id, snapshots=1, gigabytes=volume.size)
    taken = {key: getattr(volume, key) for key in ("project_id", "size", "bootable", "image_metadata")}
    row = {"volume_id": volume.id, "user_id": owner.user_id, **taken, **values}
    return await rows.add(connection, volume_snapshots, row)


# Quotas


async def limits(connection: AsyncConnection, project_id: str) -> dict[str, int]:
    """What a project may have."""
    found = await quotas.limits(connection, QUOTAS, project_id)
    return {name: found[name] for name in QUOTAS}


async def used(connection: AsyncConnection, project_id: str) -> dict[str, int]:
    """What a project has; snapshots take up gigabytes too."""
    row = (await connection.execute(_USED, {"project_id": project_id})).one()
    return {**dict.fromkeys(QUOTAS, 0), **row._mapping}


_USED = sa.text("""
    SELECT v.number AS volumes, s.number AS snapshots, CAST(v.size + s.size AS bigint) AS gigabytes
    FROM (SELECT count(*) AS number, coalesce(sum(size), 0) AS size FROM volumes WHERE project_id = :project_id) AS v,
        (SELECT count(*) AS number, coalesce(sum(size), 0) AS size FROM volume_snapshots
         WHERE project_id = :project_id) AS s
""")


async def keep_within(
    connection: AsyncConnection,
    project_id: str,
    *,
    volumes: int = 0,
    snapshots: int = 0,
    gigabytes: int = 0,
    largest: int | None = None,
) -> None:
    """Raise `OverQuota` if a project may not have so much more, with a volume of `largest` GB; others who want more
    wait until this transaction ends."""
    await hold(connection, f"volumes of {project_id}")
    allowed, have = await limits(connection, project_id), await used(connection, project_id)
    for name, more in (("volumes", volumes), ("snapshots", snapshots)):
        if more and 0 <= allowed[name] < have[name] + more:
            raise OverQuota(f"Maximum number of {name} allowed ({allowed[name]}) exceeded for quota '{name}'.")
    if 0 <= allowed["gigabytes"] < have["gigabytes"] + gigabytes:
        raise OverQuota(
            f"Requested volume or snapshot exceeds allowed gigabytes quota. Requested {gigabytes}G, quota is "
            f"{allowed['gigabytes']}G and {have['gigabytes']}G has been consumed."
        )
    most, size = allowed["per_volume_gigabytes"], gigabytes if largest is None else largest
    if 0 <= most < size and not snapshots:
        raise OverQuota(f"Requested volume size {size}G is larger than maximum allowed limit {most}G.")
