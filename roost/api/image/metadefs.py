"""Metadata definitions: namespaces of objects, properties and tags that describe what images and others may say.

Admins write them, and all projects read those that are public. They have no effect on images or servers.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from roost.api.image.images import moment, viewer
from roost.api.permissions import ADMIN, READER, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import DIGITS, STRING, TRUTH, Schema, array, thing
from roost.compute.inventory import metadefs
from roost.compute.inventory.metadefs import MOST, MetadefNamespace, NamespaceValues
from roost.errors import Conflict, NotFound

routes = Table(prefix="/v2/metadefs")

_GET, _MODIFY = "get_metadef_namespace", "modify_metadef_namespace"
RULES = (
    Permission(_GET, READER, "Show metadata definitions."),
    Permission(_MODIFY, ADMIN, "Write metadata definitions."),
)

_NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 80}
_TEXT: Schema = {"type": ["string", "null"], "maxLength": 500}
_GIVEN: dict[str, Schema] = {
    "display_name": {**_TEXT, "maxLength": 80},
    "description": _TEXT,
    "visibility": {"enum": ["public", "private"]},
    "protected": TRUTH,
    "owner": {"type": "string", "minLength": 1, "maxLength": 255},
}
_ASSOCIATION = thing({"name": _NAME}, {"prefix": _TEXT, "properties_target": _TEXT})
_NAMESPACE: Schema = {"type": "object", "required": ["namespace", "visibility", "protected", "owner"]}
_SHOWN: Schema = {"type": "object", "required": ["name"]}


@dataclass(frozen=True, slots=True)
class DefinitionKind:
    """One kind of thing that a namespace has: where it is kept and shown, and what one may say."""

    column: str
    singular: str
    shown: str
    body: Schema

    def view(self, held: dict[str, Any]) -> Any:
        """All of them, as a list shows them."""
        return held if self.column == "properties" else [held[name] for name in sorted(held)]


_SIZES = {key: {"type": "integer"} for key in ("minLength", "maxLength", "minItems", "maxItems")}
_PROPERTY = thing(
    {"name": _NAME, "title": _NAME, "type": {"enum": ["array", "boolean", "integer", "number", "object", "string"]}},
    {
        **dict.fromkeys(("description", "pattern"), _TEXT),
        **dict.fromkeys(("readonly", "uniqueItems", "additionalItems"), TRUTH),
        **{key: {"type": ["number", "null"]} for key in ("minimum", "maximum")},
        **_SIZES,
        **{key: array({}, maxItems=MOST) for key in ("enum", "operators", "required")},
        "items": {"type": "object"},
        "default": {},
    },
)
_OBJECT = thing(
    {"name": _NAME},
    {"description": _TEXT, "required": array(_NAME, maxItems=MOST), "properties": {"type": "object"}},
)
OBJECTS = DefinitionKind("objects", "object", "objects", _OBJECT)
PROPERTIES = DefinitionKind("properties", "property", "properties", _PROPERTY)
TAGS = DefinitionKind("tags", "tag", "tags", thing({"name": _NAME}))
TYPES = DefinitionKind("resource_types", "resource type", "resource_type_associations", _ASSOCIATION)
KINDS = (OBJECTS, PROPERTIES, TAGS, TYPES)


def _view(row: MetadefNamespace) -> dict[str, Any]:
    own = ("namespace", "display_name", "description", "visibility", "protected")
    said = {key: getattr(row, key) for key in own if getattr(row, key) is not None}
    moments = {"created_at": moment(row.created_at), "updated_at": moment(row.updated_at or row.created_at)}
    path = f"/v2/metadefs/namespaces/{row.namespace}"
    links = {"self": path, "schema": "/v2/schemas/metadefs/namespace"}
    held = {kind.shown: kind.view(getattr(row, kind.column)) for kind in KINDS if getattr(row, kind.column)}
    return {**said, "owner": row.project_id, **moments, **links, **held}


async def _find(call: Call, connection: Connection, *, lock: bool = False) -> MetadefNamespace:
    return await metadefs.find(connection, viewer(call), call.path["namespace"], lock=lock)


_QUERY: Schema = {"type": "object", "properties": {"limit": {**DIGITS, "maxLength": 9}}}


@routes.get(
    "/namespaces",
    rule=_GET,
    query=_QUERY,
    response=thing({"namespaces": array(_NAMESPACE), "first": STRING, "schema": STRING}, {"next": STRING}),
)
async def index(call: Call, connection: Connection) -> Reply:
    """The namespaces that the caller sees, by name, page by page."""
    page = call.page
    found = await metadefs.index(connection, viewer(call), call.query.get("visibility"), page)
    base = "/v2/metadefs/namespaces"
    more = len(found) == page.limit and found
    following = {"next": f"{base}?{call.following(found[-1].namespace).partition('?')[2]}"} if more else {}
    body = {"namespaces": [_view(row) for row in found], "first": base, "schema": "/v2/schemas/metadefs/namespaces"}
    return {**body, **following}


@routes.post("/namespaces", rule=_MODIFY, status=201, body=thing({"namespace": _NAME}, _GIVEN), response=_NAMESPACE)
async def create(call: Call, connection: Connection) -> Reply:
    """Add a namespace."""
    return _view(await metadefs.add(connection, {"project_id": call.caller.project_id or "", **_row(call)}))


def _row(call: Call) -> NamespaceValues:
    values = {"project_id" if key == "owner" else key: value for key, value in call.body.items()}
    return cast(NamespaceValues, values)


@routes.get("/namespaces/{namespace}", rule=_GET, response=_NAMESPACE)
async def show(call: Call, connection: Connection) -> Reply:
    """A namespace with all that it has."""
    return _view(await _find(call, connection))


@routes.put("/namespaces/{namespace}", rule=_MODIFY, body=thing({"namespace": _NAME}, _GIVEN), response=_NAMESPACE)
async def update(call: Call, connection: Connection) -> Reply:
    """Rename or describe a namespace."""
    row = await _find(call, connection, lock=True)
    return _view(await metadefs.change(connection, row, _row(call)))


@routes.delete("/namespaces/{namespace}", rule=_MODIFY, status=204)
async def delete(call: Call, connection: Connection) -> None:
    """Delete a namespace with all that it has, unless it is protected."""
    await metadefs.delete(connection, await _find(call, connection, lock=True))


# What a namespace has


def _missing(kind: DefinitionKind, call: Call) -> NotFound:
    name, namespace = call.path["name"], call.path["namespace"]
    return NotFound(f"The metadata definition {kind.singular} with name={name} was not found in namespace={namespace}.")


def _dated(body: dict[str, Any], before: dict[str, Any] | None = None) -> dict[str, Any]:
    now = moment(datetime.now(UTC))
    return {**body, "created_at": (before or {}).get("created_at", now), "updated_at": now}


def _declare(kind: DefinitionKind) -> None:
    path = f"/namespaces/{{namespace}}/{kind.column}"
    listed: Schema = {"type": "object"} if kind is PROPERTIES else array(_SHOWN)

    @routes.get(path, rule=_GET, response=thing({kind.shown: listed}, {"schema": STRING}))
    async def index(call: Call, connection: Connection) -> Reply:
        """All of a namespace."""
        return {kind.shown: kind.view(getattr(await _find(call, connection), kind.column))}

    async def add(call: Call, body: dict[str, Any]) -> dict[str, Any]:
        async with call.services.database.begin() as connection:
            row = await _find(call, connection, lock=True)
            held: dict[str, dict[str, Any]] = dict(getattr(row, kind.column))
            if body["name"] in held:
                raise Conflict(f"A metadata definition {kind.singular} with name={body['name']} already exists.")
            held[body["name"]] = _dated(body)
            await metadefs.keep(connection, row, kind.column, held)
        return held[body["name"]]

    if kind is TAGS:
        _declare_tags(path)

        @routes.post(path + "/{name}", rule=_MODIFY, status=201, response=_SHOWN)
        async def create_named(call: Call) -> Reply:
            """Add one by its name."""
            return await add(call, {"name": call.path["name"][: _NAME["maxLength"]]})
    else:

        @routes.post(path, rule=_MODIFY, status=201, body=kind.body, response=_SHOWN)
        async def create(call: Call) -> Reply:
            """Add one."""
            return await add(call, call.body)

    if kind is not TYPES:
        _declare_one(kind, path)

    @routes.delete(path + "/{name}", rule=_MODIFY, status=204)
    async def remove(call: Call, connection: Connection) -> None:
        """Delete one."""
        row = await _find(call, connection, lock=True)
        metadefs.check_unprotected(row)
        held: dict[str, dict[str, Any]] = dict(getattr(row, kind.column))
        if held.pop(call.path["name"], None) is None:
            raise _missing(kind, call)
        await metadefs.keep(connection, row, kind.column, held)


def _declare_one(kind: DefinitionKind, path: str) -> None:
    @routes.get(path + "/{name}", rule=_GET, response=_SHOWN)
    async def show(call: Call, connection: Connection) -> Reply:
        """One of a namespace."""
        held: dict[str, dict[str, Any]] = getattr(await _find(call, connection), kind.column)
        if call.path["name"] not in held:
            raise _missing(kind, call)
        return held[call.path["name"]]

    @routes.put(path + "/{name}", rule=_MODIFY, body=kind.body, response=_SHOWN)
    async def update(call: Call, connection: Connection) -> Reply:
        """Replace one, and rename it."""
        row = await _find(call, connection, lock=True)
        held: dict[str, dict[str, Any]] = dict(getattr(row, kind.column))
        before = held.pop(call.path["name"], None)
        if before is None:
            raise _missing(kind, call)
        if call.body["name"] in held:
            raise Conflict(f"A metadata definition {kind.singular} with that name already exists.")
        held[call.body["name"]] = _dated(call.body, before)
        await metadefs.keep(connection, row, kind.column, held)
        return held[call.body["name"]]

    @routes.delete(path, rule=_MODIFY, status=204)
    async def clear(call: Call, connection: Connection) -> None:
        """Delete all of a namespace."""
        row = await _find(call, connection, lock=True)
        metadefs.check_unprotected(row)
        await metadefs.keep(connection, row, kind.column, {})


def _declare_tags(path: str) -> None:
    shape = thing({"tags": array(thing({"name": _NAME}), maxItems=MOST)})

    @routes.post(path, rule=_MODIFY, status=201, body=shape, response=shape)
    async def replace(call: Call, connection: Connection) -> Reply:
        """Give a namespace these tags and no others; with `X-OpenStack-Append`, these too."""
        append = call.headers.get("x-openstack-append", "").lower() == "true"
        row = await _find(call, connection, lock=True)
        kept = dict(row.tags) if append else {}
        await metadefs.keep(
            connection, row, TAGS.column, {tag["name"]: _dated(tag) for tag in call.body["tags"]} | kept
        )
        return {"tags": call.body["tags"]}


for _kind in KINDS:
    _declare(_kind)


@routes.get("/resource_types", rule=_GET, response=thing({"resource_types": array(thing({"name": STRING}))}))
async def index_types(call: Call, connection: Connection) -> Reply:
    """The resource types of all namespaces that the caller sees."""
    found = await metadefs.resource_types(connection, viewer(call))
    return {"resource_types": [{"name": name} for name in found]}


DOCUMENTS: dict[str, Schema] = {
    "namespace": {"name": "namespace", "properties": {"namespace": _NAME, **_GIVEN}, "required": ["namespace"]},
    **{kind.singular.replace(" ", "_"): {"name": kind.singular.replace(" ", "_"), **kind.body} for kind in KINDS},
}
"""The JSON schema of each, for clients."""
DOCUMENTS |= {
    plural: {"name": plural, "properties": {plural: {"type": "array", "items": DOCUMENTS[singular]}}}
    for plural, singular in (
        *(("namespaces", "namespace"), ("objects", "object"), ("properties", "property"), ("tags", "tag")),
        ("resource_types", "resource_type"),
    )
}
