"""Search among images in Glance's words: `visibility=all&size_min=1&name=in:a,b&sort=name:asc`."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.inventory import images
from roost.compute.inventory.images import STATUSES, StoredImage, Viewer
from roost.errors import Invalid
from roost.store.pages import PageRequest, SortKey
from roost.store.tables.compute import images as table
from roost.store.uuids import is_uuid

Asked = Sequence[tuple[str, str]]
"""The keys and values of a query, in order; a key may come more than once."""

_SORTABLE = {
    **{name: table.c[name] for name in ("name", "status", "container_format", "disk_format", "size", "created_at")},
    "id": table.c.id,
    "updated_at": sa.func.coalesce(table.c.updated_at, table.c.created_at),
}
_EQUAL = {
    **{name: table.c[name] for name in ("name", "status", "container_format", "disk_format", "checksum")},
    "owner": table.c.project_id,
    "os_hash_value": table.c.sha512,
}
_MOMENTS = {"created_at": _SORTABLE["created_at"], "updated_at": _SORTABLE["updated_at"]}
_COMPARE = {"gt": "__gt__", "gte": "__ge__", "lt": "__lt__", "lte": "__le__", "eq": "__eq__", "neq": "__ne__"}
_OTHERS = frozenset(
    {"limit", "marker", "sort", "sort_key", "sort_dir", "visibility", "member_status", "id", "tag", "os_hidden"}
    | {"protected", "size_min", "size_max", "min_ram", "min_disk"}
)


async def search(connection: AsyncConnection, viewer: Viewer, asked: Asked, page: PageRequest) -> list[StoredImage]:
    """The images that the viewer sees and that the query asks for, a page at a time."""
    wanted = dict(asked).get("member_status", "accepted")
    statuses = STATUSES if wanted == "all" else (wanted,)
    conditions = _conditions(viewer, asked)
    return await images.index(connection, viewer, *conditions, statuses=statuses, keys=_order(asked), page=page)


def _conditions(viewer: Viewer, asked: Asked) -> list[sa.ColumnElement[bool]]:
    query: Mapping[str, str] = dict(asked)
    found = []
    visibility = query.get("visibility")
    if visibility is None:
        found.append(sa.or_(table.c.visibility != "community", table.c.project_id == viewer.project_id))
    elif visibility != "all":
        found.append(table.c.visibility == visibility)
    found.append(table.c.hidden == (query.get("os_hidden", "").lower() == "true"))
    if "protected" in query:
        found.append(table.c.protected == (query["protected"].lower() == "true"))
    if "id" in query:
        found.append(table.c.id.in_(filter(is_uuid, _words(query["id"]))))
    tags = [value for key, value in asked if key == "tag"]
    if tags:
        found.append(table.c.tags.contains(tags))
    if query.get("size_min"):
        found.append(table.c.size >= int(query["size_min"]))
    if query.get("size_max"):
        found.append(table.c.size <= int(query["size_max"]))
    for key, value in query.items():
        if key in _EQUAL:
            found.append(_EQUAL[key].in_(_words(value)))
        elif key in _MOMENTS:
            found.append(_compared(key, value))
        elif key not in _OTHERS:
            found.append(table.c.properties[key].astext == value)
    return found


def _words(value: str) -> list[str]:
    """One word, or those of a list: `in:a,b,"c,d"`."""
    if not value.startswith("in:"):
        return [value]
    return [quoted or plain for quoted, plain in re.findall(r'"([^"]*)"|([^,"]+)', value.removeprefix("in:"))]


def _compared(key: str, value: str) -> sa.ColumnElement[bool]:
    operator, colon, text = value.partition(":")
    if not colon or operator not in _COMPARE:
        operator, text = "eq", value
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Invalid(f"Invalid time '{text}' for {key}: write it as 2026-11-15T08:00:00Z.") from None
    compared: sa.ColumnElement[bool] = getattr(sa.func.date_trunc("second", _MOMENTS[key]), _COMPARE[operator])(moment)
    return compared


def _order(asked: Asked) -> Sequence[SortKey]:
    """As asked for: `sort=name:asc,size`, or `sort_key` and `sort_dir`; the newest first by default."""
    wanted = [part.partition(":")[::2] for part in dict(asked).get("sort", "").split(",") if part]
    if not wanted:
        keys = [value for key, value in asked if key == "sort_key"]
        directions = [value for key, value in asked if key == "sort_dir"] or ["desc"]
        wanted = [(key, directions[min(place, len(directions) - 1)]) for place, key in enumerate(keys)]
    for key, direction in wanted:
        if key not in _SORTABLE or direction not in ("", "asc", "desc"):
            raise Invalid(f"Unable to sort by '{key}:{direction}': use {', '.join(sorted(_SORTABLE))} and asc or desc.")
    return [SortKey(_SORTABLE[key], direction != "asc") for key, direction in wanted or (("created_at", "desc"),)]
