"""Volumes and snapshots: two nouns with the same lists and the same metadata."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from roost.api.permissions import ADMIN, MEMBER, READER, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import INTEGER, NULLABLE_STRING, STRING, TRUTH, UUID, Schema, array, by_name, thing
from roost.api.versions import Version
from roost.api.volume.types import owner
from roost.errors import Invalid, NotFound
from roost.store.pages import PageRequest
from roost.turns import spread
from roost.volume import stored, volumes
from roost.volume.stored import StoredKind
from roost.volume.volumes import ZONE, VolumeRequest

routes = Table(prefix="/v3")

_TEXT: Schema = {"type": ["string", "null"], "maxLength": 255}
_METADATA: Schema = by_name(
    {"type": "string", "maxLength": 255}, maxProperties=128, propertyNames={"minLength": 1, "maxLength": 255}
)
_SIZE: Schema = {"type": ["integer", "string"], "pattern": "^[0-9]{1,9}$", "minimum": 1, "maximum": volumes.LARGEST}
_NUMBER: Schema = {"type": "string", "pattern": "^[0-9]{1,9}$"}
_QUERY: Schema = {"type": "object", "properties": {"limit": _NUMBER, "offset": _NUMBER}}
_LINKS = array(thing({"rel": STRING, "href": STRING}))
_NULL: Schema = {"type": "null"}


@dataclass(frozen=True, slots=True)
class VolumeNoun:
    """Volumes or snapshots: what one is called, how it is kept, and how it is shown."""

    singular: str
    kind: StoredKind
    view: Callable[[Call, Any], dict[str, Any]]
    shape: Schema
    brief: Callable[[Call, Any], dict[str, Any]]

    @property
    def plural(self) -> str:
        """What a list of them is called."""
        return f"{self.singular}s"

    @property
    def one(self) -> str:
        """The path of one."""
        return f"/{self.plural}/{{{self.singular}_id}}"

    def rule(self, verb: str) -> str:
        """The permission for doing this."""
        return f"volume:{verb}_{self.singular}" if self.singular == "snapshot" else f"volume:{verb}"

    async def owned(self, call: Call, connection: AsyncConnection, verb: str) -> Any:
        """The one of this path, if the caller may do this to it."""
        row = await self.kind.find(connection, owner(call), call.path[f"{self.singular}_id"])
        call.permit(self.rule(verb), project_id=row.project_id)
        return row


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")


def _links(call: Call, row: Any) -> list[dict[str, str]]:
    return [{"rel": rel, "href": f"{call.base}/{part}volumes/{row.id}"} for rel, part in _RELATIONS]


_RELATIONS = (("self", "v3/"), ("bookmark", ""))
_ATTACHMENT = thing(
    dict.fromkeys(("id", "volume_id", "attachment_id", "server_id", "device"), STRING)
    | dict.fromkeys(("attached_at", "host_name"), NULLABLE_STRING)
)
_SINCE: Mapping[str, tuple[Version, Schema, Callable[[Any], Any]]] = {
    "group_id": (Version(3, 13), _NULL, lambda row: None),
    "service_uuid": (Version(3, 48), _NULL, lambda row: None),
    "shared_targets": (Version(3, 48), TRUTH, lambda row: False),
    "volume_type_id": (Version(3, 63), STRING, lambda row: row.volume_type_id),
    "consumes_quota": (Version(3, 65), TRUTH, lambda row: True),
}
"""What later versions show of a volume."""
_VOLUME = thing(
    {
        **dict.fromkeys(("id", "name", "status", "availability_zone", "user_id", "volume_type", "bootable"), STRING),
        **dict.fromkeys(("description", "created_at", "updated_at", "snapshot_id", "source_volid"), NULLABLE_STRING),
        **dict.fromkeys(("encrypted", "multiattach"), TRUTH),
        **dict.fromkeys(("consistencygroup_id", "replication_status", "migration_status"), _NULL),
        "size": INTEGER,
        "metadata": by_name(STRING),
        "attachments": array(_ATTACHMENT),
        "links": _LINKS,
        "os-vol-tenant-attr:tenant_id": STRING,
    },
    {"volume_image_metadata": by_name(STRING), **{name: shape for name, (_, shape, _) in _SINCE.items()}},
)


def _volume(call: Call, row: Any) -> dict[str, Any]:
    kept = ("id", "name", "description", "size", "metadata", "user_id", "snapshot_id", "source_volid")
    attachment = {
        **{"id": row.id, "volume_id": row.id, "attachment_id": row.attachment_id, "server_id": row.server_id},
        **{"device": row.device, "attached_at": _moment(row.attached_at), "host_name": None},
    }
    return {
        **{key: getattr(row, key) for key in kept},
        "status": "available" if row.server_id is None else "in-use",
        "attachments": [] if row.server_id is None else [attachment],
        "availability_zone": ZONE,
        "bootable": str(row.bootable).lower(),
        "volume_type": row.type_name,
        "created_at": _moment(row.created_at),
        "updated_at": _moment(row.updated_at),
        **dict.fromkeys(("encrypted", "multiattach"), False),
        **dict.fromkeys(("consistencygroup_id", "replication_status", "migration_status")),
        "links": _links(call, row),
        "os-vol-tenant-attr:tenant_id": row.project_id,
        **({"volume_image_metadata": row.image_metadata} if row.image_metadata else {}),
        **{name: value(row) for name, (since, _, value) in _SINCE.items() if call.version >= since},
    }


_SNAPSHOT = thing(
    {
        **dict.fromkeys(("id", "name", "volume_id", "status"), STRING),
        **dict.fromkeys(("description", "created_at", "updated_at"), NULLABLE_STRING),
        "size": INTEGER,
        "metadata": by_name(STRING),
        "os-extended-snapshot-attributes:progress": STRING,
        "os-extended-snapshot-attributes:project_id": STRING,
    },
    {"user_id": STRING, "group_snapshot_id": _NULL, "consumes_quota": TRUTH},
)


def _snapshot(call: Call, row: Any) -> dict[str, Any]:
    later = {"group_snapshot_id": (Version(3, 14), None), "user_id": (Version(3, 41), row.user_id)}
    later["consumes_quota"] = (Version(3, 65), True)
    return {
        **{key: getattr(row, key) for key in ("id", "name", "description", "volume_id", "size", "metadata")},
        "status": "available",
        "created_at": _moment(row.created_at),
        "updated_at": _moment(row.updated_at),
        "os-extended-snapshot-attributes:progress": "100%",
        "os-extended-snapshot-attributes:project_id": row.project_id,
        **{name: value for name, (since, value) in later.items() if call.version >= since},
    }


def _brief_snapshot(call: Call, row: Any) -> dict[str, Any]:
    hidden = "os-extended-snapshot-attributes:"
    return {key: value for key, value in _snapshot(call, row).items() if not key.startswith(hidden)}


def _brief_volume(call: Call, row: Any) -> dict[str, Any]:
    return {"id": row.id, "name": row.name, "links": _links(call, row)}


VOLUMES = VolumeNoun("volume", stored.VOLUMES, _volume, _VOLUME, _brief_volume)
SNAPSHOTS = VolumeNoun("snapshot", stored.SNAPSHOTS, _snapshot, _SNAPSHOT, _brief_snapshot)
NOUNS = (VOLUMES, SNAPSHOTS)

RULES = (
    *(
        Permission(noun.rule(verb), READER if verb == "get" else MEMBER, f"{word} {noun.plural}.")
        for noun in NOUNS
        for verb, word in (("get", "See"), ("create", "Make"), ("update", "Change"), ("delete", "Delete"))
    ),
    Permission("volume:get_all", ADMIN, "List the volumes and snapshots of all projects."),
    Permission("volume:extend", MEMBER, "Make volumes larger."),
)

# Lists


def _lists(noun: VolumeNoun) -> None:
    linked = {f"{noun.plural}_links": _LINKS}

    def declare(path: str, view: Callable[[Call, Any], dict[str, Any]], shape: Schema) -> None:
        @routes.get(path, rule=noun.rule("get"), query=_QUERY, response=thing({noun.plural: array(shape)}, linked))
        async def index(call: Call) -> Reply:
            """List those of the project, page by page; `all_tenants` lists those of all projects."""
            page = PageRequest(call.page.limit, call.page.marker, int(call.query.get("offset") or 0))
            project_id, asked, sorts = _whose(call), _asked(call), _sorts(call)
            async with call.services.database.autocommit() as connection:
                found = await noun.kind.index(connection, project_id, asked, sorts, page)
            body: dict[str, Any] = {noun.plural: await spread(lambda row: view(call, row), found)}
            if found and len(found) == page.limit:
                body[f"{noun.plural}_links"] = [{"rel": "next", "href": call.following(found[-1].id)}]
            return body

    brief = {name: shape for name, shape in noun.shape["properties"].items() if not name.startswith("os-ext")}
    shape = thing({}, brief)
    declare(f"/{noun.plural}", noun.brief, shape)
    declare(f"/{noun.plural}/detail", noun.view, noun.shape)


def _whose(call: Call) -> str | None:
    """The project whose things are listed; None for those of all."""
    if call.query.get("all_tenants", "").lower() not in ("1", "true"):
        return call.caller.project_id
    call.permit("volume:get_all")
    return call.query.get("project_id")


def _asked(call: Call) -> dict[str, Any]:
    if "metadata" not in call.query:
        return dict(call.query)
    return {**call.query, "metadata": _dictionary(call.query["metadata"])}


def _dictionary(text: str) -> dict[str, str]:
    """A dictionary as JSON, or as Python prints it."""
    try:
        found = json.loads(text.replace("'", '"'))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Invalid(f"Invalid filter: metadata must be a dictionary, and is {text}.")
    return {str(key): str(value) for key, value in found.items()}


def _sorts(call: Call) -> list[tuple[str, bool]]:
    asked = [part.partition(":")[::2] for part in call.query.get("sort", "").split(",") if part]
    if "sort_key" in call.query:
        asked = [(call.query["sort_key"], call.query.get("sort_dir", "desc"))]
    for key, way in asked:
        if key not in stored.SORTS or way not in ("", "asc", "desc"):
            raise Invalid(f"Invalid input received: Sort key or direction supplied is invalid: {key}:{way}.")
    return [(key, way != "asc") for key, way in asked]


# One of them


def _verbs(noun: VolumeNoun) -> None:
    shape = thing({noun.singular: noun.shape})
    changes = thing({noun.singular: thing({}, {"name": _TEXT, "description": _TEXT, "metadata": _METADATA})})

    @routes.get(noun.one, rule=noun.rule("get"), owned=True, response=shape)
    async def show(call: Call) -> Reply:
        """Show one."""
        async with call.services.database.autocommit() as connection:
            return {noun.singular: noun.view(call, await noun.owned(call, connection, "get"))}

    @routes.put(noun.one, rule=noun.rule("update"), owned=True, body=changes, response=shape)
    async def update(call: Call) -> Reply:
        """Rename or describe one."""
        asked = call.body[noun.singular]
        values = {**asked, "name": asked["name"] or ""} if "name" in asked else asked
        async with call.services.database.begin() as connection:
            row = await noun.owned(call, connection, "update")
            await noun.kind.change(connection, row, values)
            return {noun.singular: noun.view(call, await noun.kind.find(connection, owner(call), row.id))}


def _metadata(noun: VolumeNoun) -> None:
    path, body, entry = f"{noun.one}/metadata", thing({"metadata": _METADATA}), thing({"meta": _METADATA})

    async def change(call: Call, edit: Callable[[dict[str, str]], dict[str, str]]) -> dict[str, str]:
        async with call.services.database.begin() as connection:
            row = await noun.owned(call, connection, "update")
            return await noun.kind.edit_metadata(connection, row, lambda before: _bounded(noun, edit(before)))

    @routes.get(path, rule=noun.rule("get"), owned=True, response=body)
    async def show(call: Call) -> Reply:
        """The metadata of one."""
        async with call.services.database.autocommit() as connection:
            return {"metadata": (await noun.owned(call, connection, "get")).metadata}

    @routes.post(path, rule=noun.rule("update"), owned=True, body=body, response=body)
    async def add(call: Call) -> Reply:
        """Set some metadata."""
        return {"metadata": await change(call, lambda before: {**before, **call.body["metadata"]})}

    @routes.put(path, rule=noun.rule("update"), owned=True, body=body, response=body)
    async def replace(call: Call) -> Reply:
        """Give it this metadata and no other."""
        return {"metadata": await change(call, lambda before: dict(call.body["metadata"]))}

    @routes.get(f"{path}/{{key}}", rule=noun.rule("get"), owned=True, response=entry)
    async def show_one(call: Call) -> Reply:
        """One item of the metadata."""
        async with call.services.database.autocommit() as connection:
            held = (await noun.owned(call, connection, "get")).metadata
        return {"meta": {call.path["key"]: _item(held, call.path["key"])}}

    @routes.put(f"{path}/{{key}}", rule=noun.rule("update"), owned=True, body=entry, response=entry)
    async def set_one(call: Call) -> Reply:
        """Set one item of the metadata."""
        if list(call.body["meta"]) != [call.path["key"]]:
            raise Invalid("Request body and URI mismatch")
        await change(call, lambda before: {**before, **call.body["meta"]})
        return {"meta": call.body["meta"]}

    @routes.delete(f"{path}/{{key}}", rule=noun.rule("update"), owned=True)
    async def remove_one(call: Call) -> Reply:
        """Remove one item of the metadata."""
        key = call.path["key"]
        await change(call, lambda before: {name: before[name] for name in before if _item(before, key) and name != key})
        return None


def _bounded(noun: VolumeNoun, metadata: dict[str, str]) -> dict[str, str]:
    if len(metadata) > _METADATA["maxProperties"]:
        raise Invalid(f"A {noun.singular} has at most {_METADATA['maxProperties']} metadata items.")
    return metadata


def _item(held: Mapping[str, str], key: str) -> str:
    if key not in held:
        raise NotFound(f"Metadata item {key} was not found.")
    return held[key]


for _noun in NOUNS:
    _lists(_noun)
    _verbs(_noun)
    _metadata(_noun)

# What volumes and snapshots are made of, and how they end

_REFERENCE: Schema = {"anyOf": [UUID, _NULL]}
_NEW_VOLUME = thing(
    {},
    {
        **dict.fromkeys(("name", "description", "volume_type"), _TEXT),
        **dict.fromkeys(("imageRef", "snapshot_id", "source_volid"), _REFERENCE),
        "size": {"anyOf": [_SIZE, _NULL]},
        "availability_zone": {"enum": [ZONE, "", None]},
        "metadata": {"anyOf": [_METADATA, _NULL]},
        "multiattach": {"enum": [False, None]},
        **dict.fromkeys(("consistencygroup_id", "group_id", "backup_id"), _NULL),
    },
)


@routes.post(
    "/volumes",
    rule=VOLUMES.rule("create"),
    body=thing({"volume": _NEW_VOLUME}),
    response=thing({"volume": _VOLUME}),
    status=202,
)
async def create(call: Call) -> Reply:
    """Make a volume: empty, or of an image, a snapshot or another volume."""
    asked = call.body["volume"]
    request = VolumeRequest(
        size=int(asked["size"]) if asked.get("size") else None,
        name=asked.get("name") or "",
        description=asked.get("description"),
        metadata=asked.get("metadata") or {},
        volume_type=asked.get("volume_type"),
        image_id=asked.get("imageRef"),
        snapshot_id=asked.get("snapshot_id"),
        source_volid=asked.get("source_volid"),
    )
    async with call.services.database.begin() as connection:
        made = await volumes.create(connection, owner(call), request)
        return {"volume": _volume(call, await volumes.find(connection, owner(call), made))}


async def _locked(call: Call, connection: AsyncConnection, verb: str) -> Any:
    row = await VOLUMES.owned(call, connection, verb)
    return await volumes.find(connection, owner(call), row.id, lock=True)


@routes.delete("/volumes/{volume_id}", rule=VOLUMES.rule("delete"), owned=True, status=202)
async def delete(call: Call) -> Reply:
    """Delete a volume that no server has; with `cascade`, its snapshots too."""
    async with call.services.database.begin() as connection:
        row = await _locked(call, connection, "delete")
        if call.query.get("cascade", "").lower() == "true":
            await volumes.delete_snapshots(connection, volume_id=row.id)
        await volumes.delete(connection, row)
    return None


_ACTIONS: dict[str, Schema] = {
    "os-extend": thing({"new_size": _SIZE}),
    "os-set_bootable": thing({"bootable": TRUTH}),
    "os-retype": thing({"new_type": {"type": "string", "maxLength": 255}}, {"migration_policy": {"enum": ["never"]}}),
    "os-force_delete": {"type": ["object", "null"]},
}


@routes.post(
    "/volumes/{volume_id}/action",
    rule=VOLUMES.rule("update"),
    owned=True,
    body={**thing({}, _ACTIONS), "minProperties": 1, "maxProperties": 1},
    status=202,
)
async def act(call: Call) -> Reply:
    """Make a volume larger, bootable or of another type, or delete it; servers get their volumes by the compute API."""
    ((action, said),) = call.body.items()
    async with call.services.database.begin() as connection:
        row = await _locked(
            call, connection, {"os-extend": "extend", "os-force_delete": "delete"}.get(action, "update")
        )
        if action == "os-extend":
            await volumes.extend(connection, row, int(said["new_size"]))
        elif action == "os-set_bootable":
            await stored.VOLUMES.change(connection, row, {"bootable": said["bootable"]})
        elif action == "os-retype":
            kind = await volumes.find_type(connection, owner(call), said["new_type"])
            await stored.VOLUMES.change(connection, row, {"volume_type_id": kind.id})
        else:
            await volumes.delete(connection, row)
    return None


@routes.post(
    "/snapshots",
    rule=SNAPSHOTS.rule("create"),
    body=thing(
        {
            "snapshot": thing(
                {"volume_id": UUID},
                {"name": _TEXT, "description": _TEXT, "metadata": {"anyOf": [_METADATA, _NULL]}}
                | {"force": {"type": ["boolean", "string", "null"]}},
            )
        }
    ),
    response=thing({"snapshot": _SNAPSHOT}),
    status=202,
)
async def create_snapshot(call: Call) -> Reply:
    """Keep a volume as it is now; one that a server has, from version 3.66 on or by force."""
    asked = call.body["snapshot"]
    forced = call.version >= Version(3, 66) or str(asked.get("force")).lower() == "true"
    said = {"name": asked.get("name") or "", "description": asked.get("description")}
    async with call.services.database.begin() as connection:
        volume = await volumes.find(connection, owner(call), asked["volume_id"], lock=True)
        call.permit(SNAPSHOTS.rule("create"), project_id=volume.project_id)
        if volume.server_id is not None and not forced:
            raise Invalid(
                f"Invalid volume: Volume {volume.id} status must be available, but current status is: in-use."
            )
        values = {**said, "metadata": asked.get("metadata") or {}}
        return {"snapshot": _snapshot(call, await volumes.create_snapshot(connection, owner(call), volume, values))}


@routes.delete("/snapshots/{snapshot_id}", rule=SNAPSHOTS.rule("delete"), owned=True, status=202)
async def delete_snapshot(call: Call) -> Reply:
    """Delete a snapshot; volumes that were made of it stay."""
    async with call.services.database.begin() as connection:
        row = await SNAPSHOTS.owned(call, connection, "delete")
        await volumes.delete_snapshots(connection, id=row.id)
    return None


_BACKUPS = thing({"backups": {"const": []}})


@routes.get("/backups", rule=VOLUMES.rule("get"), response=_BACKUPS)
@routes.get("/backups/detail", rule=VOLUMES.rule("get"), response=_BACKUPS)
async def index_backups(call: Call) -> Reply:
    """The backups of volumes: there are none. Who clears a project looks for them first."""
    return {"backups": []}
