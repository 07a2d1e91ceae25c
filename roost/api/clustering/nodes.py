"""Nodes: create, list, change, delete and adopt them, and act on them."""

from collections.abc import Mapping
from functools import partial
from operator import attrgetter
from typing import Any

from roost.api.budgets import RouteKind
from roost.api.clustering import fields, shapes
from roost.api.clustering.clusters import ONE_KEY, forced
from roost.api.clustering.fields import BodyField
from roost.api.clustering.handling import (
    REHEARSED,
    accepted,
    cloud_of,
    is_rehearsal,
    rehearse,
    request_context,
    started,
)
from roost.api.clustering.lists import Listing, boolean, one_of, text
from roost.api.clustering.shapes import Shape
from roost.api.fields import ShownField
from roost.api.permissions import MEMBER, READER, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import NULL, STRING, thing
from roost.api.versions import Version
from roost.clusters import lookup, nodes
from roost.clusters.clusters import RequestContext
from roost.clusters.errors import BadRequest, ResourceNotFound
from roost.clusters.records import CLUSTERS, NODE_DETAILS, NodeDetails
from roost.clusters.states import NodeStatus
from roost.turns import spread

RULES = (
    Permission("nodes:index", READER, "List nodes."),
    Permission("nodes:create", MEMBER, "Create a node."),
    Permission("nodes:adopt", MEMBER, "Make a node of a server that exists."),
    Permission("nodes:adopt_preview", MEMBER, "See what profile a server that exists would have."),
    Permission("nodes:get", READER, "Show a node."),
    Permission("nodes:update", MEMBER, "Change a node."),
    Permission("nodes:delete", MEMBER, "Delete a node."),
    Permission("nodes:action", MEMBER, "Have something done to a node."),
    Permission("nodes:operation", MEMBER, "Have an operation done to a node."),
)
routes = Table("/v1/nodes", context=request_context)

_LISTING = Listing(
    NODE_DETAILS,
    sorts=("index", "name", "status", "init_at", "created_at", "updated_at"),
    default_sort="init_at",
    filters={"cluster_id": text, "name": text, "status": one_of(NodeStatus)},
)
_CREATE = {
    "name": BodyField(fields.as_name, required=True),
    "profile_id": BodyField(fields.as_text, required=True),
    "cluster_id": BodyField(fields.as_text),
    "role": BodyField(fields.as_text),
    "metadata": BodyField(fields.as_map),
}
_UPDATE = {
    "name": BodyField(fields.as_name),
    "profile_id": BodyField(fields.as_text),
    "role": BodyField(fields.as_text),
    "metadata": BodyField(fields.as_map),
    "tainted": BodyField(fields.as_boolean),
}
_PREVIEW = {
    "identity": BodyField(fields.as_text, required=True),
    "type": BodyField(fields.as_text, required=True),
    "overrides": BodyField(fields.as_map),
    "snapshot": BodyField(fields.as_boolean),
}
_ADOPT = {
    **_PREVIEW,
    "name": BodyField(fields.as_name),
    "role": BodyField(fields.as_text),
    "metadata": BodyField(fields.as_map),
}


_SPEC = thing({"type": STRING, "version": STRING, "properties": shapes.OBJECT})
_SHAPE = Shape(
    NodeDetails,
    ShownField("cluster_id", STRING, lambda node: node.cluster_id or ""),
    ShownField("status", {"enum": list(NodeStatus)}, attrgetter("status")),
    since={"tainted": Version(1, 13)},
)
_ONE = _SHAPE.one("node")


async def _shown(call: Call, request: RequestContext, node_id: str) -> dict[str, Any]:
    return {"node": _SHAPE.show(await lookup.by_id(request.connection, NODE_DETAILS, node_id), call.version)}


@routes.get("", rule="nodes:index", response=_SHAPE.many("nodes"))
async def index(call: Call) -> Reply:
    """The nodes of the project."""
    page = _LISTING.read(call)
    async with call.services.database.autocommit() as connection:
        if "cluster_id" in page.filters:
            given = page.filters["cluster_id"][-1]
            try:
                cluster = await lookup.find(connection, CLUSTERS, given, call.caller)
            except ResourceNotFound:
                raise BadRequest(f"Cannot find the given cluster: {given}.") from None
            page.filters["cluster_id"][:] = [cluster.id]
        found = await _LISTING.records(connection, call, page)
    return {"nodes": await spread(partial(_SHAPE.show, version=call.version), found)}


@routes.post("", rule="nodes:create", status=202, described=fields.enveloped("node", _CREATE), response=_ONE)
async def create(call: Call, request: RequestContext) -> Reply:
    """Make a node."""
    given = fields.read(_CREATE, fields.envelope(call.body, "node"))
    node, action_id = await nodes.create(request, given)
    return accepted(call, action_id, await _shown(call, request, node.id))


@routes.post("/adopt", since="1.7", rule="nodes:adopt", described=fields.described(_ADOPT), response=_ONE)
async def adopt(call: Call, request: RequestContext) -> Reply:
    """Make a node of a server that exists."""
    given = fields.read(_ADOPT, fields.as_map("node", call.body))
    node = await nodes.adopt(request, cloud_of(call), given)
    return await _shown(call, request, node.id)


@routes.post(
    "/adopt-preview",
    since="1.7",
    rule="nodes:adopt_preview",
    described=fields.described(_PREVIEW),
    response=thing({"node_profile": thing({"node_preview": _SPEC})}),
)
async def preview(call: Call, request: RequestContext) -> Reply:
    """What profile a server that exists would have."""
    given = fields.read(_PREVIEW, fields.as_map("node", call.body))
    return {"node_profile": {"node_preview": await nodes.preview(request, cloud_of(call), given)}}


@routes.get(
    "/{node_id}",
    rule="nodes:get",
    kind=RouteKind.CLOUD,
    response=lambda version: thing({"node": _SHAPE.schema(version, details=shapes.OBJECT)}),
)
async def show(call: Call, request: RequestContext) -> Reply:
    """One node; with `show_details`, also what the cloud shows of it."""
    detailed = "show_details" in call.query and boolean("show_details", call.query["show_details"])
    node = await lookup.find(request.connection, NODE_DETAILS, call.path["node_id"], call.caller)
    shown = _SHAPE.show(node, call.version)
    if detailed:
        shown["details"] = dict((await nodes.details(request, cloud_of(call), [node])).get(node.id, {}))
    return {"node": shown}


@routes.patch("/{node_id}", rule="nodes:update", status=202, described=fields.enveloped("node", _UPDATE), response=_ONE)
async def update(call: Call, request: RequestContext) -> Reply:
    """Change a node."""
    given = fields.read(_UPDATE, fields.envelope(call.body, "node", change=True))
    if call.version < Version(1, 13):
        given.pop("tainted", None)
    node, action_id = await nodes.update(request, call.path["node_id"], given)
    return accepted(call, action_id, await _shown(call, request, node.id))


@routes.delete("/{node_id}", rule="nodes:delete", status=202, response=NULL)
async def delete(call: Call, request: RequestContext) -> Reply:
    """Delete a node."""
    return accepted(call, await nodes.delete(request, call.path["node_id"], force=forced(call)), None)


@routes.post(
    "/{node_id}/actions",
    rule="nodes:action",
    status=202,
    described=ONE_KEY,
    response=shapes.STARTED,
    also={200: REHEARSED},
)
async def act(call: Call, request: RequestContext) -> Reply:
    """Have a node checked or recovered; with `dry_run`, only say what that, or its deletion, would come to."""
    rehearsal = is_rehearsal(call)
    name, value = fields.single(call.body, "action", ("check", "recover", *(["delete"] if rehearsal else [])))
    if value is not None and not isinstance(value, dict):
        raise BadRequest("The params provided is not a map.")
    given: Mapping[str, Any] = value or {}
    identity = call.path["node_id"]
    if name == "delete":
        call.permit("nodes:delete")
    accept = {
        "check": partial(nodes.check, request, identity, given),
        "recover": partial(nodes.recover, request, identity, given),
        "delete": partial(nodes.delete, request, identity, force=False),
    }[name]
    return await rehearse(call, request, accept) if rehearsal else started(call, await accept())


@routes.post(
    "/{node_id}/ops", since="1.4", rule="nodes:operation", status=202, described=ONE_KEY, response=shapes.STARTED
)
async def operate(call: Call, request: RequestContext) -> Reply:
    """Have one of the profile's operations done."""
    name, value = fields.single(call.body, "operation", ())
    params = fields.as_map(name, value or {})
    return started(call, await nodes.operate(request, call.path["node_id"], name, params))
