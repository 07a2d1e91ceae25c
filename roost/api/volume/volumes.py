"""Volumes and snapshots: two nouns with the same lists and the same metadata."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from roost.api.fields import FieldTable, ShownField, always, column
from roost.api.permissions import ADMIN, MEMBER, READER, Permission
from roost.api.routes import Call, Connection, Reply, Table
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
    full: FieldTable[Any]
    brief: FieldTable[Any]
    linked: bool
    """Whether its address is shown."""

    @property
    def plural(self) -> str:
        """What a list of them is called."""
        return f"{self.singular}s"

    @property
    def path(self) -> str:
        """The path of one."""
        return f"/{self.plural}/{{{self.singular}_id}}"

    def rule(self, verb: str) -> str:
        """The permission for doing this."""
        return f"volume:{verb}_{self.singular}" if self.singular == "snapshot" else f"volume:{verb}"

    def view(self, call: Call, row: Any, *, brief: bool = False) -> dict[str, Any]:
        """One as clients see it."""
        shown = (self.brief if brief else self.full).show(row, call.version)
        return {**shown, "links": _links(call, row)} if self.linked else shown

    def schema(self, version: Version, *, brief: bool = False) -> Schema:
        """What one looks like."""
        return (self.brief if brief else self.full).schema(version, **({"links": _LINKS} if self.linked else {}))

    def one(self, version: Version) -> Schema:
        """What an answer with one of them is."""
        return thing({self.singular: self.schema(version)})

    async def owned(self, call: Call, connection: Connection, verb: str) -> Any:
        """The one of this path, if the caller may do this to it."""
        row = await self.kind.find(connection, owner(call), call.path[f"{self.singular}_id"])
        call.permit(self.rule(verb), project_id=row.project_id)
        return row


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")


_ATTACHMENT = FieldTable[Any](
    column("id", STRING),
    column("volume_id", STRING, "id"),
    column("attachment_id", STRING),
    column("server_id", STRING),
    column("device", STRING),
    ShownField("attached_at", NULLABLE_STRING, lambda row: _moment(row.attached_at)),
    always("host_name", None),
)
_ALL: tuple[ShownField[Any], ...] = (
    column("id", STRING),
    column("name", STRING),
    column("description", NULLABLE_STRING),
    column("size", INTEGER),
    column("metadata", by_name(STRING)),
    ShownField("created_at", NULLABLE_STRING, lambda row: _moment(row.created_at)),
    ShownField("updated_at", NULLABLE_STRING, lambda row: _moment(row.updated_at)),
    always("consumes_quota", True, since=Version(3, 65)),
)
_VOLUME = FieldTable[Any](
    *_ALL,
    ShownField("status", STRING, lambda row: "available" if row.server_id is None else "in-use"),
    ShownField(
        "attachments",
        array(_ATTACHMENT.schema()),
        lambda row: [] if row.server_id is None else [_ATTACHMENT.show(row)],
    ),
    column("user_id", STRING),
    column("snapshot_id", NULLABLE_STRING),
    column("source_volid", NULLABLE_STRING),
    always("availability_zone", ZONE),
    ShownField("bootable", STRING, lambda row: str(row.bootable).lower()),
    column("volume_type", STRING, "type_name"),
    *(always(name, False) for name in ("encrypted", "multiattach")),
    *(always(name, None) for name in ("consistencygroup_id", "replication_status", "migration_status")),
    column("os-vol-tenant-attr:tenant_id", STRING, "project_id"),
    ShownField(
        "volume_image_metadata",
        by_name(STRING),
        lambda row: row.image_metadata,
        when=lambda row: bool(row.image_metadata),
    ),
    always("group_id", None, since=Version(3, 13)),
    always("service_uuid", None, since=Version(3, 48)),
    always("shared_targets", False, since=Version(3, 48)),
    column("volume_type_id", STRING, since=Version(3, 63)),
)
_BRIEF_SNAPSHOT = FieldTable[Any](
    *_ALL,
    column("volume_id", STRING),
    always("status", "available"),
    always("group_snapshot_id", None, since=Version(3, 14)),
    column("user_id", STRING, since=Version(3, 41)),
)
_SNAPSHOT = FieldTable[Any](
    *_BRIEF_SNAPSHOT.fields,
    always("os-extended-snapshot-attributes:progress", "100%"),
    column("os-extended-snapshot-attributes:project_id", STRING, "project_id"),
)


def _links(call: Call, row: Any) -> list[dict[str, str]]:
    places = (("self", f"{call.base}/v3"), ("bookmark", call.base))
    return [{"rel": rel, "href": f"{place}/volumes/{row.id}"} for rel, place in places]


_BRIEF = FieldTable[Any](column("id", STRING), column("name", STRING))
VOLUMES = VolumeNoun("volume", stored.VOLUMES, _VOLUME, _BRIEF, linked=True)
SNAPSHOTS = VolumeNoun("snapshot", stored.SNAPSHOTS, _SNAPSHOT, _BRIEF_SNAPSHOT, linked=False)
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
    def declare(path: str, *, brief: bool) -> None:
        def answer(version: Version) -> Schema:
            return thing({noun.plural: array(noun.schema(version, brief=brief))}, {f"{noun.plural}_links": _LINKS})

        @routes.get(path, rule=noun.rule("get"), query=_QUERY, response=answer)
        async def index(call: Call) -> Reply:
            """List those of the project, page by page; `all_tenants` lists those of all projects."""
            page = PageRequest(call.page.limit, call.page.marker, int(call.query.get("offset") or 0))
            project_id, asked, sorts = _whose(call), _asked(call), _sorts(call)
            async with call.services.database.autocommit() as connection:
                found = await noun.kind.index(connection, project_id, asked, sorts, page)
            body: dict[str, Any] = {noun.plural: await spread(lambda row: noun.view(call, row, brief=brief), found)}
            if found and len(found) == page.limit:
                body[f"{noun.plural}_links"] = [{"rel": "next", "href": call.following(found[-1].id)}]
            return body

    declare(f"/{noun.plural}", brief=True)
    declare(f"/{noun.plural}/detail", brief=False)


def _whose(call: Call) -> str | None:
    """The project whose things are listed; None for those of all."""
    if not call.flag("all_tenants"):
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
    changes = thing({noun.singular: thing({}, {"name": _TEXT, "description": _TEXT, "metadata": _METADATA})})

    @routes.get(noun.path, rule=noun.rule("get"), owned=True, response=noun.one)
    async def show(call: Call, connection: Connection) -> Reply:
        """Show one."""
        return {noun.singular: noun.view(call, await noun.owned(call, connection, "get"))}

    @routes.put(noun.path, rule=noun.rule("update"), owned=True, body=changes, response=noun.one)
    async def update(call: Call, connection: Connection) -> Reply:
        """Rename or describe one."""
        asked = call.body[noun.singular]
        values = {**asked, "name": asked["name"] or ""} if "name" in asked else asked
        row = await noun.owned(call, connection, "update")
        await noun.kind.change(connection, row, values)
        return {noun.singular: noun.view(call, await noun.kind.find(connection, owner(call), row.id))}


def _metadata(noun: VolumeNoun) -> None:
    path, body, entry = f"{noun.path}/metadata", thing({"metadata": _METADATA}), thing({"meta": _METADATA})

    async def change(call: Call, edit: Callable[[dict[str, str]], dict[str, str]]) -> dict[str, str]:
        async with call.services.database.begin() as connection:
            row = await noun.owned(call, connection, "update")
            return await noun.kind.edit_metadata(connection, row, lambda before: _bounded(noun, edit(before)))

    @routes.get(path, rule=noun.rule("get"), owned=True, response=body)
    async def show(call: Call, connection: Connection) -> Reply:
        """The metadata of one."""
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
    async def show_one(call: Call, connection: Connection) -> Reply:
        """One item of the metadata."""
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
    async def remove_one(call: Call) -> None:
        """Remove one item of the metadata."""
        key = call.path["key"]
        await change(call, lambda before: {name: before[name] for name in before if _item(before, key) and name != key})


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
    "/volumes", rule=VOLUMES.rule("create"), body=thing({"volume": _NEW_VOLUME}), response=VOLUMES.one, status=202
)
async def create(call: Call, connection: Connection) -> Reply:
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
    made = await volumes.create(connection, owner(call), request)
    return {"volume": VOLUMES.view(call, await volumes.find(connection, owner(call), made))}


async def _locked(call: Call, connection: Connection, verb: str) -> Any:
    row = await VOLUMES.owned(call, connection, verb)
    return await volumes.find(connection, owner(call), row.id, lock=True)


@routes.delete("/volumes/{volume_id}", rule=VOLUMES.rule("delete"), owned=True, status=202)
async def delete(call: Call, connection: Connection) -> None:
    """Delete a volume that no server has; with `cascade`, its snapshots too."""
    row = await _locked(call, connection, "delete")
    if call.flag("cascade"):
        await volumes.delete_snapshots(connection, volume_id=row.id)
    await volumes.delete(connection, row)


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
async def act(call: Call, connection: Connection) -> None:
    """Make a volume larger, bootable or of another type, or delete it; servers get their volumes by the compute API."""
    ((action, said),) = call.body.items()
    row = await _locked(call, connection, {"os-extend": "extend", "os-force_delete": "delete"}.get(action, "update"))
    if action == "os-extend":
        await volumes.extend(connection, row, int(said["new_size"]))
    elif action == "os-set_bootable":
        await stored.VOLUMES.change(connection, row, {"bootable": said["bootable"]})
    elif action == "os-retype":
        kind = await volumes.find_type(connection, owner(call), said["new_type"])
        await stored.VOLUMES.change(connection, row, {"volume_type_id": kind.id})
    else:
        await volumes.delete(connection, row)


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
    response=SNAPSHOTS.one,
    status=202,
)
async def create_snapshot(call: Call, connection: Connection) -> Reply:
    """Keep a volume as it is now; one that a server has, from version 3.66 on or by force."""
    asked = call.body["snapshot"]
    forced = call.version >= Version(3, 66) or str(asked.get("force")).lower() == "true"
    said = {"name": asked.get("name") or "", "description": asked.get("description")}
    volume = await volumes.find(connection, owner(call), asked["volume_id"], lock=True)
    call.permit(SNAPSHOTS.rule("create"), project_id=volume.project_id)
    if volume.server_id is not None and not forced:
        raise Invalid(f"Invalid volume: Volume {volume.id} status must be available, but current status is: in-use.")
    values = {**said, "metadata": asked.get("metadata") or {}}
    return {"snapshot": SNAPSHOTS.view(call, await volumes.create_snapshot(connection, owner(call), volume, values))}


@routes.delete("/snapshots/{snapshot_id}", rule=SNAPSHOTS.rule("delete"), owned=True, status=202)
async def delete_snapshot(call: Call, connection: Connection) -> None:
    """Delete a snapshot; volumes that were made of it stay."""
    row = await SNAPSHOTS.owned(call, connection, "delete")
    await volumes.delete_snapshots(connection, id=row.id)


_BACKUPS = thing({"backups": {"const": []}})


@routes.get("/backups", rule=VOLUMES.rule("get"), response=_BACKUPS)
@routes.get("/backups/detail", rule=VOLUMES.rule("get"), response=_BACKUPS)
async def index_backups(call: Call) -> Reply:
    """The backups of volumes: there are none. Who clears a project looks for them first."""
    return {"backups": []}
