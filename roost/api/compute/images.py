"""Images, as Nova passed them on from Glance before 2.36: for clients that still look for them here."""

from datetime import datetime
from typing import Any, NamedTuple

from roost.api.compute.views import LINKS, PAGE, links, next_page, open_query
from roost.api.fields import FieldTable, ShownField, column
from roost.api.permissions import READER, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import INTEGER, STRING, by_name
from roost.compute.inventory import images
from roost.compute.inventory.images import StoredImage, Viewer
from roost.errors import NotFound

routes = Table(prefix="/v2.1/images")

_RULE = "os_compute_api:images"
RULES = (Permission(_RULE, READER, "Show images, as before 2.36."),)

_STATUSES = {"active": "ACTIVE", "queued": "SAVING", "deactivated": "ACTIVE"}


class ImageAnswer(NamedTuple):
    """What an answer about one image is made from."""

    call: Call
    row: StoredImage


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


_BRIEF = FieldTable[ImageAnswer](
    column("id", STRING, "row.id"),
    column("name", STRING, "row.name"),
    ShownField("links", LINKS, lambda of: links(of.call, "images", of.row.id)),
)
_FULL = FieldTable[ImageAnswer](
    *_BRIEF.fields,
    ShownField("status", STRING, lambda of: _STATUSES[of.row.status]),
    ShownField("progress", INTEGER, lambda of: 25 if of.row.status == "queued" else 100),
    ShownField("created", STRING, lambda of: _moment(of.row.created_at)),
    ShownField("updated", STRING, lambda of: _moment(of.row.updated_at or of.row.created_at)),
    column("minDisk", INTEGER, "row.min_disk_gb"),
    column("minRam", INTEGER, "row.min_memory_mb"),
    column("OS-EXT-IMG-SIZE:size", INTEGER, "row.size"),
    column("metadata", by_name(STRING), "row.properties"),
)


def _viewer(call: Call) -> Viewer:
    return Viewer(call.caller.project_id, call.caller.is_admin)


def _declare(path: str, table: FieldTable[ImageAnswer]) -> None:
    answer = table.many("images", images_links={})

    @routes.get(path, until="2.35", rule=_RULE, query=open_query(**PAGE), response=answer)
    async def index(call: Call, connection: Connection) -> Reply:
        """List images."""
        found = await images.index(connection, _viewer(call), page=call.page)
        body: dict[str, Any] = {"images": [table.show(ImageAnswer(call, row)) for row in found]}
        following = next_page(call, body["images"], "id") if "limit" in call.query else []
        return {**body, "images_links": following} if following else body


_declare("", _BRIEF)
_declare("/detail", _FULL)


@routes.get("/{image_id}", until="2.35", rule=_RULE, response=_FULL.one("image"))
async def show(call: Call, connection: Connection) -> Reply:
    """Show an image."""
    try:
        row = await images.find(connection, _viewer(call), call.path["image_id"])
    except NotFound:
        raise NotFound(f"Image {call.path['image_id']} could not be found.") from None
    return {"image": _FULL.show(ImageAnswer(call, row))}
