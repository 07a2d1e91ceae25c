"""Images, as the clients look them up before they boot a server and when they show one."""

from typing import Any

import sqlalchemy as sa

from roost.api.permissions import READER, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import DIGITS, INTEGER, NULL, STRING, UUID, Schema, array, thing
from roost.compute.inventory import images

routes = Table(prefix="/v2")

RULES = (Permission("get_image", READER, "Show an image."), Permission("get_images", READER, "List images."))


def _view(row: sa.Row[Any]) -> dict[str, Any]:
    created = row.created_at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "id": row.id,
        "name": row.name,
        "status": "active",
        "visibility": "public",
        "container_format": "bare",
        "disk_format": "qcow2",
        "size": row.size,
        "min_disk": row.min_disk_gb,
        "min_ram": row.min_memory_mb,
        "protected": False,
        "tags": [],
        "owner": None,
        "checksum": None,
        "created_at": created,
        "updated_at": created,
        "self": f"/v2/images/{row.id}",
        "file": f"/v2/images/{row.id}/file",
        "schema": "/v2/schemas/image",
    }


_QUERY: Schema = {"type": "object", "properties": {"limit": {**DIGITS, "maxLength": 18}}}
_IMAGE = thing(
    {
        "id": UUID,
        "name": STRING,
        "status": {"const": "active"},
        **dict.fromkeys(("visibility", "container_format", "disk_format", "created_at", "updated_at"), STRING),
        **dict.fromkeys(("size", "min_disk", "min_ram"), INTEGER),
        "protected": {"const": False},
        "tags": array(STRING),
        **dict.fromkeys(("owner", "checksum"), NULL),
        **dict.fromkeys(("self", "file", "schema"), STRING),
    }
)
_IMAGES = thing({"images": array(_IMAGE), "first": STRING, "schema": STRING})


@routes.get("/images", rule="get_images", query=_QUERY, response=_IMAGES)
async def index(call: Call) -> Reply:
    """List images, by name or of certain ids (`id=in:A,B`)."""
    wanted = call.query.get("id")
    async with call.services.database.begin() as connection:
        rows = await images.index(
            connection,
            name=call.query.get("name"),
            ids=wanted.removeprefix("in:").split(",") if wanted else None,
            page=call.page,
        )
    return {"images": [_view(row) for row in rows], "first": "/v2/images", "schema": "/v2/schemas/images"}


@routes.get("/images/{image_id}", rule="get_image", response=_IMAGE)
async def show(call: Call) -> Reply:
    """Show one image."""
    async with call.services.database.begin() as connection:
        return _view(await images.show(connection, call.path["image_id"]))
