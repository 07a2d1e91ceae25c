"""Images, as Nova passed them on from Glance before 2.36: for clients that still look for them here."""

from collections.abc import Callable
from typing import Any

from roost.api.compute.views import LINKS, PAGE, links, next_page, open_query
from roost.api.permissions import READER, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import INTEGER, STRING, Schema, array, by_name, thing
from roost.compute.inventory import images
from roost.compute.inventory.images import Viewer
from roost.errors import NotFound

routes = Table(prefix="/v2.1/images")

_RULE = "os_compute_api:images"
RULES = (Permission(_RULE, READER, "Show images, as before 2.36."),)

_BRIEF: dict[str, Schema] = {"id": STRING, "name": STRING, "links": LINKS}
_SIZE = "OS-EXT-IMG-SIZE:size"
_IMAGE = thing(
    {
        **_BRIEF,
        **dict.fromkeys(("status", "created", "updated"), STRING),
        **dict.fromkeys(("progress", "minDisk", "minRam", _SIZE), INTEGER),
        "metadata": by_name(STRING),
    }
)
_STATUSES = {"active": "ACTIVE", "queued": "SAVING", "deactivated": "ACTIVE"}


def _brief(call: Call, row: Any) -> dict[str, Any]:
    return {"id": row.id, "name": row.name, "links": links(call, "images", row.id)}


def _detailed(call: Call, row: Any) -> dict[str, Any]:
    return {
        **_brief(call, row),
        "status": _STATUSES[row.status],
        "progress": 25 if row.status == "queued" else 100,
        "created": f"{row.created_at:%Y-%m-%dT%H:%M:%SZ}",
        "updated": f"{row.updated_at or row.created_at:%Y-%m-%dT%H:%M:%SZ}",
        "minDisk": row.min_disk_gb,
        "minRam": row.min_memory_mb,
        _SIZE: row.size,
        "metadata": row.properties,
    }


def _viewer(call: Call) -> Viewer:
    return Viewer(call.caller.project_id, call.caller.is_admin)


def _declare(path: str, view: Callable[[Call, Any], dict[str, Any]], shape: Schema) -> None:
    answer = thing({"images": array(shape)}, {"images_links": {}})

    @routes.get(path, until="2.35", rule=_RULE, query=open_query(**PAGE), response=answer)
    async def index(call: Call) -> Reply:
        """List images."""
        async with call.services.database.autocommit() as connection:
            found = await images.index(connection, _viewer(call), page=call.page)
        body: dict[str, Any] = {"images": [view(call, row) for row in found]}
        following = next_page(call, body["images"], "id") if "limit" in call.query else []
        return {**body, "images_links": following} if following else body


_declare("", _brief, thing(_BRIEF))
_declare("/detail", _detailed, _IMAGE)


@routes.get("/{image_id}", until="2.35", rule=_RULE, response=thing({"image": _IMAGE}))
async def show(call: Call) -> Reply:
    """Show an image."""
    async with call.services.database.autocommit() as connection:
        try:
            row = await images.find(connection, _viewer(call), call.path["image_id"])
        except NotFound:
            raise NotFound(f"Image {call.path['image_id']} could not be found.") from None
    return {"image": _detailed(call, row)}
