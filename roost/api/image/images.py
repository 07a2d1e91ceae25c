"""Images: made, described, listed and deleted."""

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

from roost.api.fields import FieldTable, ShownField, always, column
from roost.api.permissions import ADMIN, MEMBER, READER, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import (
    DIGITS,
    INTEGER,
    NULLABLE_STRING,
    STRING,
    TRUTH,
    UUID,
    Schema,
    Validator,
    array,
    nova_sentence,
    thing,
)
from roost.compute.inventory import image_search, images
from roost.compute.inventory.images import MOST, ImageMember, ImageValues, StoredImage, Viewer
from roost.errors import Conflict, Forbidden, Invalid, NotFound, TooLarge

routes = Table(prefix="/v2")

RULES = (
    Permission("get_image", READER, "Show an image."),
    Permission("get_images", READER, "List images."),
    Permission("add_image", MEMBER, "Make an image."),
    Permission("modify_image", MEMBER, "Change what is said about an image, its tags included."),
    Permission("delete_image", MEMBER, "Delete an image."),
    Permission("publicize_image", ADMIN, "Let all projects see an image."),
    Permission("communitize_image", MEMBER, "Let all projects that know of an image use it."),
    Permission("deactivate", MEMBER, "Keep an image from being used for a while."),
    Permission("reactivate", MEMBER, "Let a deactivated image be used again."),
)

VISIBILITIES = ("public", "private", "shared", "community")
CONTAINER_FORMATS = (None, "ami", "ari", "aki", "bare", "ovf", "ova", "docker", "compressed")
DISK_FORMATS = (None, "ami", "ari", "aki", "vhd", "vhdx", "vmdk", "raw", "qcow2", "vdi", "iso", "ploop")
_NUMBER: Schema = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
_TAG: Schema = {"type": "string", "minLength": 1, "maxLength": 255}
_NAME: Schema = {"type": ["string", "null"], "maxLength": 255}
GIVEN: Mapping[str, Schema] = {
    "name": _NAME,
    "visibility": {"type": "string", "enum": [*VISIBILITIES]},
    "container_format": {"type": ["string", "null"], "enum": [*CONTAINER_FORMATS]},
    "disk_format": {"type": ["string", "null"], "enum": [*DISK_FORMATS]},
    "min_disk": _NUMBER,
    "min_ram": _NUMBER,
    "protected": TRUTH,
    "os_hidden": TRUTH,
    "tags": array(_TAG, maxItems=MOST),
    "owner": {"type": ["string", "null"], "maxLength": 255},
}
"""What people say about an image."""
_COLUMNS = {"min_disk": "min_disk_gb", "min_ram": "min_memory_mb", "os_hidden": "hidden", "owner": "project_id"}
READ_ONLY = (
    *("status", "size", "virtual_size", "checksum", "os_hash_algo", "os_hash_value", "created_at", "updated_at"),
    *("self", "file", "schema", "direct_url", "locations", "stores"),
)
_PROPERTY: Schema = {"type": "string", "maxLength": 65535}


def moment(moment: datetime) -> str:
    """A time as this API writes it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


CREATED: ShownField[StoredImage | ImageMember] = ShownField("created_at", STRING, lambda row: moment(row.created_at))
UPDATED: ShownField[StoredImage | ImageMember] = ShownField(
    "updated_at", STRING, lambda row: moment(row.updated_at or row.created_at)
)
_FIELDS = FieldTable[StoredImage](
    column("id", UUID),
    ShownField("name", NULLABLE_STRING, lambda row: row.name or None),
    column("status", {"enum": ["queued", "active", "deactivated"]}),
    column("visibility", STRING),
    column("container_format", NULLABLE_STRING),
    column("disk_format", NULLABLE_STRING),
    ShownField("size", {"type": ["integer", "null"]}, lambda row: None if row.status == "queued" else row.size),
    always("virtual_size", None),
    column("min_disk", INTEGER, "min_disk_gb"),
    column("min_ram", INTEGER, "min_memory_mb"),
    column("protected", TRUTH),
    column("os_hidden", TRUTH, "hidden"),
    ShownField("tags", array(STRING), lambda row: list(row.tags)),
    column("owner", NULLABLE_STRING, "project_id"),
    column("checksum", NULLABLE_STRING),
    ShownField("os_hash_algo", NULLABLE_STRING, lambda row: "sha512" if row.sha512 else None),
    column("os_hash_value", NULLABLE_STRING, "sha512"),
    CREATED,
    UPDATED,
    ShownField("self", STRING, lambda row: f"/v2/images/{row.id}"),
    ShownField("file", STRING, lambda row: f"/v2/images/{row.id}/file"),
    always("schema", "/v2/schemas/image"),
)
IMAGE = {**_FIELDS.schema(), "additionalProperties": STRING}


def viewer(call: Call) -> Viewer:
    """The caller, as one who looks at images."""
    return Viewer(call.caller.project_id, call.caller.is_admin)


async def owned(call: Call, connection: Connection, rule: str, *, lock: bool = True) -> StoredImage:
    """The image of this path, if the caller may change it."""
    image = await images.find(connection, viewer(call), call.path["image_id"], lock=lock)
    if not viewer(call).owns(image):
        raise Forbidden(f"You are not permitted to change image {image.id}: it belongs to another project.")
    call.permit(rule, project_id=image.project_id)
    return image


def view(row: StoredImage) -> dict[str, Any]:
    """An image as clients see it, with the properties that its makers gave it."""
    return {**row.properties, **_FIELDS.show(row)}


# Lists

_QUERY: Schema = {
    "type": "object",
    "properties": {
        **{key: {**DIGITS, "maxLength": 18} for key in ("limit", "size_min", "size_max")},
        "sort_dir": {"type": "string", "pattern": "^(asc|desc)(,(asc|desc))*$"},
        "visibility": {"enum": [*VISIBILITIES, "all"]},
        "member_status": {"enum": ["pending", "accepted", "rejected", "all"]},
        **{key: {"enum": ["true", "false", "True", "False"]} for key in ("protected", "os_hidden")},
    },
}
_IMAGES = thing({"images": array(IMAGE), "first": STRING, "schema": STRING}, {"next": STRING})


@routes.get("/images", rule="get_images", query=_QUERY, response=_IMAGES)
async def index(call: Call, connection: Connection) -> Reply:
    """List the images that the caller sees: shared ones once they are accepted, community ones when asked for."""
    found = await image_search.search(connection, viewer(call), call.queries, call.page)
    body = {"images": [view(row) for row in found], "first": "/v2/images", "schema": "/v2/schemas/images"}
    if found and "limit" in call.query and len(found) == call.page.limit:
        body["next"] = "/v2/images" + call.following(found[-1].id).removeprefix(call.url)
    return body


@routes.get("/images/{image_id}", rule="get_image", response=IMAGE)
async def show(call: Call, connection: Connection) -> Reply:
    """Show one image."""
    return view(await images.find(connection, viewer(call), call.path["image_id"]))


# Making, changing and deleting

_NEW: Schema = {"type": "object", "properties": {**GIVEN, "id": UUID}}


@routes.post("/images", rule="add_image", body=_NEW, response=IMAGE, status=201)
async def create(call: Call, connection: Connection) -> Reply:
    """Make an image that waits for its data."""
    body = dict(call.body)
    identifier = str(body.pop("id", None) or uuid.uuid4()).lower()
    defaults = {"visibility": "shared", "container_format": None, "disk_format": None, "name": None}
    values = _values(call, {"owner": call.caller.project_id, **defaults, **body}, {})
    values |= {"id": identifier, "status": "queued"}
    row = await images.create(connection, values, call.services.settings.images.project_images)
    call.answer_headers["Location"] = f"{call.base}/v2/images/{row.id}"
    return view(row)


def _values(call: Call, said: Mapping[str, Any], properties: Mapping[str, str]) -> ImageValues:
    """The columns that hold what is said; `properties` are those that the image has already."""
    for name, value in said.items():
        if name in READ_ONLY:
            raise Forbidden(f"Attribute '{name}' is read-only.")
        if name not in GIVEN and not (isinstance(value, str) and len(value) <= _PROPERTY["maxLength"] and name):
            raise Invalid(f"Property '{name}' must be text of at most {_PROPERTY['maxLength']} characters.")
    visibility = said.get("visibility")
    if visibility == "public":
        call.permit("publicize_image")
    if visibility == "community":
        call.permit("communitize_image")
    if said.get("owner") not in (None, call.caller.project_id) and not call.caller.is_admin:
        raise Forbidden("You are not permitted to create images owned by another project.")
    values = {_COLUMNS.get(name, name): value for name, value in said.items() if name in GIVEN}
    if "name" in values:
        values["name"] = values["name"] or ""
    if "tags" in values:
        values["tags"] = list(dict.fromkeys(values["tags"]))
    more = {name: value for name, value in said.items() if name not in GIVEN}
    if len({**properties, **more}) > MOST:
        raise TooLarge(f"An image can have {MOST} properties.")
    return cast(ImageValues, {**values, "properties": {**properties, **more}})


_OPERATION: Schema = {
    "type": "object",
    "properties": {"op": {"enum": ["add", "replace", "remove"]}, "path": {"type": "string", "pattern": "^/[^/]+$"}},
    "required": ["op", "path"],
}
_PATCHED = {name: Validator(thing({name: schema})) for name, schema in GIVEN.items()}


@routes.patch(
    "/images/{image_id}", rule="modify_image", owned=True, body=array(_OPERATION, maxItems=4 * MOST), response=IMAGE
)
async def update(call: Call, connection: Connection) -> Reply:
    """Change what is said about an image: a JSON patch of its attributes."""
    image = await owned(call, connection, "modify_image")
    said: dict[str, Any] = {}
    properties = dict(image.properties)
    for operation in call.body:
        name = operation["path"].removeprefix("/").replace("~1", "/").replace("~0", "~")
        _apply(operation, name, said, properties)
    values = _values(call, said, properties)
    return view(await images.change(connection, image, values))


def _apply(operation: Mapping[str, Any], name: str, said: dict[str, Any], properties: dict[str, str]) -> None:
    known = name in GIVEN or name in properties or name in said
    if name in (*READ_ONLY, "id"):
        raise Forbidden(f"Attribute '{name}' is read-only.")
    if operation["op"] != "add" and not known:
        raise Conflict(f"Property {name} does not exist.")
    if operation["op"] == "remove":
        if name in GIVEN:
            raise Forbidden(f"Property {name} may not be removed.")
        properties.pop(name, None)
        said.pop(name, None)
        return
    if "value" not in operation:
        raise Invalid(f"Operation '{operation['op']}' requires a member named 'value'.")
    if name in GIVEN:
        _PATCHED[name].check_body({name: operation["value"]}, nova_sentence)
    said[name] = operation["value"]


@routes.post("/images/{image_id}/actions/deactivate", rule="deactivate", owned=True, status=204)
async def deactivate(call: Call) -> None:
    """Keep an image from being used or downloaded."""
    await _set_status(call, "deactivate", "deactivated")


@routes.post("/images/{image_id}/actions/reactivate", rule="reactivate", owned=True, status=204)
async def reactivate(call: Call) -> None:
    """Let an image be used again."""
    await _set_status(call, "reactivate", "active")


async def _set_status(call: Call, rule: str, status: str) -> None:
    async with call.services.database.begin() as connection:
        image = await owned(call, connection, rule)
        if image.status == "queued":
            raise Forbidden(f"Not allowed to {rule} image in status 'queued'")
        await images.change(connection, image, {"status": status})


@routes.put("/images/{image_id}/tags/{tag}", rule="modify_image", owned=True, status=204)
async def add_tag(call: Call, connection: Connection) -> None:
    """Give an image a tag."""
    tag = call.path["tag"]
    image = await owned(call, connection, "modify_image")
    if tag not in image.tags:
        if len(tag) > _TAG["maxLength"]:
            raise Invalid(f"A tag has at most {_TAG['maxLength']} characters.")
        if len(image.tags) >= MOST:
            raise TooLarge(f"An image can have {MOST} tags.")
        await images.change(connection, image, {"tags": [*image.tags, tag]})


@routes.delete("/images/{image_id}/tags/{tag}", rule="modify_image", owned=True, status=204)
async def remove_tag(call: Call, connection: Connection) -> None:
    """Take a tag off an image."""
    tag = call.path["tag"]
    image = await owned(call, connection, "modify_image")
    if tag not in image.tags:
        raise NotFound(f"Could not find tag {tag} for image {image.id}")
    await images.change(connection, image, {"tags": [each for each in image.tags if each != tag]})


@routes.delete("/images/{image_id}", rule="delete_image", owned=True, status=204)
async def delete(call: Call) -> None:
    """Delete an image, and its data."""
    async with call.services.database.begin() as connection:
        image = await owned(call, connection, "delete_image")
        await images.delete(connection, image)
    call.services.image_files.remove(image.id)
