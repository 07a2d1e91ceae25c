"""Clusters: create, list, change and delete them, and act on them."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

from roost.api.budgets import RouteKind
from roost.api.clustering import fields, shapes
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
from roost.api.clustering.paths import follow
from roost.api.clustering.shapes import Shape
from roost.api.fields import ShownField
from roost.api.permissions import MEMBER, READER, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import ANY, NULL, STRING, UUID, Schema, array, thing
from roost.api.versions import CLUSTERING, Version
from roost.clusters import clusters, lookup, nodes
from roost.clusters.clusters import RequestContext
from roost.clusters.errors import BadRequest
from roost.clusters.records import CLUSTER_DETAILS, ClusterDetails, NodeRecord
from roost.clusters.sizes import ADJUSTMENTS, CHANGE_IN_PERCENTAGE, EXACT_CAPACITY
from roost.clusters.states import ActionName, ClusterStatus
from roost.errors import Invalid
from roost.turns import spread

_ACT = "clusters:action"

RULES = (
    Permission("clusters:index", READER, "List clusters."),
    Permission("clusters:create", MEMBER, "Create a cluster."),
    Permission("clusters:get", READER, "Show a cluster."),
    Permission("clusters:update", MEMBER, "Change a cluster."),
    Permission("clusters:delete", MEMBER, "Delete a cluster."),
    Permission(_ACT, MEMBER, "Have something done to a cluster."),
    Permission("clusters:operation", MEMBER, "Have an operation done to the nodes of a cluster."),
    Permission("clusters:collect", READER, "Collect an attribute of the nodes of a cluster."),
)
routes = Table("/v1/clusters", context=request_context)

_LISTING = Listing(
    CLUSTER_DETAILS,
    sorts=("name", "status", "init_at", "created_at", "updated_at"),
    default_sort="init_at",
    filters={"name": text, "status": one_of(ClusterStatus)},
    quote_unknown=True,
)


_SHAPE = Shape(
    ClusterDetails, ShownField("status", {"enum": list(ClusterStatus)}, attrgetter("status")), hides=("next_index",)
)
_CLUSTER = _SHAPE.schema()
_ONE = thing({"cluster": _CLUSTER})


async def _shown(request: RequestContext, cluster_id: str) -> dict[str, Any]:
    return {"cluster": _SHAPE.show(await lookup.by_id(request.connection, CLUSTER_DETAILS, cluster_id))}


# The collection


@routes.get("", rule="clusters:index", response=thing({"clusters": array(_CLUSTER)}))
async def index(call: Call) -> Reply:
    """The clusters of the project."""
    page = _LISTING.read(call)
    async with call.services.database.autocommit() as connection:
        found = await _LISTING.records(connection, call, page)
    return {"clusters": await spread(_SHAPE.show, found)}


def _sizes(most: int | None) -> Mapping[str, BodyField]:
    return {"min_size": BodyField(fields.as_integer(0, most)), "max_size": BodyField(fields.as_integer(-1, most))}


def _create(most: int | None) -> Mapping[str, BodyField]:
    return {
        "name": BodyField(fields.as_name, required=True),
        "profile_id": BodyField(fields.as_text, required=True),
        "desired_capacity": BodyField(fields.as_integer(0)),
        **_sizes(most),
        "timeout": BodyField(fields.as_integer(0)),
        "metadata": BodyField(fields.as_map),
        "config": BodyField(fields.as_map),
    }


_UPDATE = {
    "name": BodyField(fields.as_name),
    "profile_id": BodyField(fields.as_text),
    "metadata": BodyField(fields.as_map),
    "timeout": BodyField(fields.as_integer(0)),
    "profile_only": BodyField(fields.as_boolean),
    "config": BodyField(fields.as_map),
}


@routes.post(
    "", rule="clusters:create", status=202, described=fields.enveloped("cluster", _create(None)), response=_ONE
)
async def create(call: Call, request: RequestContext) -> Reply:
    """Make a cluster."""
    known = _create(call.services.settings.clusters.max_nodes)
    given = fields.read(known, fields.envelope(call.body, "cluster"))
    cluster, action_id = await clusters.create(request, given)
    return accepted(call, action_id, await _shown(request, cluster.id))


@routes.get("/{cluster_id}", rule="clusters:get", response=_ONE)
async def show(call: Call, request: RequestContext) -> Reply:
    """One cluster."""
    cluster = await lookup.find(request.connection, CLUSTER_DETAILS, call.path["cluster_id"], call.caller)
    return {"cluster": _SHAPE.show(cluster)}


@routes.patch(
    "/{cluster_id}", rule="clusters:update", status=202, described=fields.enveloped("cluster", _UPDATE), response=_ONE
)
async def update(call: Call, request: RequestContext) -> Reply:
    """Change a cluster."""
    given = fields.read(_UPDATE, fields.envelope(call.body, "cluster", change=True))
    for field, since in (("profile_only", Version(1, 6)), ("config", Version(1, 7))):
        if call.version < since:
            given.pop(field, None)
    cluster, action_id = await clusters.update(request, call.path["cluster_id"], given)
    return accepted(call, action_id, await _shown(request, cluster.id))


def forced(call: Call) -> bool:
    """Whether a deletion is by force, which it can be since 1.8."""
    if call.version < Version(1, 8):
        return False
    if isinstance(call.body, dict) and call.body.get("force") is not None:
        return fields.as_boolean("force", call.body["force"])
    return "force" in call.query and boolean("force", call.query["force"])


@routes.delete("/{cluster_id}", rule="clusters:delete", status=202, response=NULL)
async def delete(call: Call, request: RequestContext) -> Reply:
    """Delete a cluster with its nodes."""
    return accepted(call, await clusters.delete(request, call.path["cluster_id"], force=forced(call)), None)


# Actions: one key says which


@dataclass(frozen=True, slots=True)
class _Action:
    do: Callable[[Call, RequestContext, Mapping[str, Any]], Awaitable[str]]
    read: Callable[[Call, Any], Mapping[str, Any]]
    since: Version = CLUSTERING.oldest


def _map(call: Call, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadRequest("The data provided is not a map")
    return value


def _fields(known: Mapping[str, BodyField]) -> Callable[[Call, Any], Mapping[str, Any]]:
    return lambda call, value: fields.read(known, _map(call, value))


def _node_list(field: str, value: Any) -> list[str]:
    items = value if isinstance(value, list) else list(str(value))
    if not items:
        raise BadRequest(f"Value for '{field}' must have at least 1 item(s).")
    if len(set(map(str, items))) != len(items):
        raise BadRequest(f"Items for '{field}' must be unique")
    return [str(item) for item in items]


_NODES = fields.Reader(_node_list, array(STRING, minItems=1, uniqueItems=True))


def _some_nodes(more: Mapping[str, BodyField]) -> Callable[[Call, Any], Mapping[str, Any]]:
    def read(call: Call, value: Any) -> Mapping[str, Any]:
        given = dict(_map(call, value))
        if not given.get("nodes"):
            raise BadRequest("Value for 'nodes' must have at least 1 item(s).")
        return fields.read({"nodes": BodyField(_NODES, required=True), **more}, given)

    return read


def _pairs(call: Call, value: Any) -> Mapping[str, Any]:
    # Clients send the pairs either alone or under 'nodes'.
    given = _map(call, value)
    pairs = given.get("nodes", given)
    if not isinstance(pairs, dict) or not pairs:
        raise BadRequest("The data provided is not a map")
    for old, new in pairs.items():
        if new is None:
            raise BadRequest(f"Field `nodes[{old}]' cannot be None")
    if len(set(map(str, pairs.values()))) != len(pairs):
        raise BadRequest("Map contains duplicated values")
    return {"nodes": {str(old): str(new) for old, new in pairs.items()}}


def _resize(call: Call, value: Any) -> Mapping[str, Any]:
    known = {
        "adjustment_type": BodyField(fields.one_of(*ADJUSTMENTS)),
        "number": BodyField(fields.as_number),
        **_sizes(call.services.settings.clusters.max_nodes),
        "min_step": BodyField(fields.as_integer(0)),
        "strict": BodyField(fields.as_boolean),
    }
    given = fields.read(known, _map(call, value))
    kind, number = given.get("adjustment_type"), given.get("number")
    if kind is not None and number is None:
        raise BadRequest("Missing number value for size adjustment.")
    if number is not None and kind is None:
        raise BadRequest("Missing adjustment_type value for size adjustment.")
    if number is not None and kind == EXACT_CAPACITY and number < 0:
        raise BadRequest("The 'number' must be non-negative integer for adjustment type 'EXACT_CAPACITY'.")
    if kind != CHANGE_IN_PERCENTAGE:
        given.pop("min_step", None)
    if not set(given) - {"strict"}:
        raise BadRequest("Not enough parameters to do resize action.")
    least, most = given.get("min_size"), given.get("max_size")
    if least is not None and most is not None and 0 < most < least:
        raise BadRequest(f"The specified min_size ({least}) is greater than the specified max_size ({most}).")
    return given


_COUNT = _fields({"count": BodyField(fields.as_integer(0))})


def _scale(action: ActionName) -> Callable[[Call, RequestContext, Mapping[str, Any]], Awaitable[str]]:
    async def do(call: Call, request: RequestContext, given: Mapping[str, Any]) -> str:
        return await clusters.scale(request, call.path["cluster_id"], action, given.get("count"))

    return do


async def _do_resize(call: Call, request: RequestContext, given: Mapping[str, Any]) -> str:
    return await clusters.resize(request, call.path["cluster_id"], given)


async def _add(call: Call, request: RequestContext, given: Mapping[str, Any]) -> str:
    return await clusters.add_nodes(request, call.path["cluster_id"], given["nodes"])


async def _del(call: Call, request: RequestContext, given: Mapping[str, Any]) -> str:
    destroy = given.get("destroy_after_deletion") if call.version >= Version(1, 4) else None
    return await clusters.del_nodes(request, call.path["cluster_id"], given["nodes"], destroy)


async def _replace(call: Call, request: RequestContext, given: Mapping[str, Any]) -> str:
    return await clusters.replace_nodes(request, call.path["cluster_id"], given["nodes"])


async def _attach(call: Call, request: RequestContext, given: Mapping[str, Any]) -> str:
    enabled = given.get("enabled", True)
    return await clusters.attach_policy(request, call.path["cluster_id"], given["policy_id"], enabled)


async def _detach(call: Call, request: RequestContext, given: Mapping[str, Any]) -> str:
    action = ActionName.CLUSTER_DETACH_POLICY
    return await clusters.change_policy(request, call.path["cluster_id"], action, given["policy_id"])


async def _change(call: Call, request: RequestContext, given: Mapping[str, Any]) -> str:
    more = {"enabled": given["enabled"]} if "enabled" in given else {}
    action = ActionName.CLUSTER_UPDATE_POLICY
    return await clusters.change_policy(request, call.path["cluster_id"], action, given["policy_id"], **more)


async def _check(call: Call, request: RequestContext, given: Mapping[str, Any]) -> str:
    return await clusters.check(request, call.path["cluster_id"], given)


async def _recover(call: Call, request: RequestContext, given: Mapping[str, Any]) -> str:
    return await clusters.recover(request, call.path["cluster_id"], given)


async def _complete(call: Call, request: RequestContext, given: Mapping[str, Any]) -> str:
    return await clusters.complete_lifecycle(request, call.path["cluster_id"], given["lifecycle_action_token"])


async def _forget(call: Call, request: RequestContext, given: Mapping[str, Any]) -> str:
    return await clusters.delete(request, call.path["cluster_id"], force=given.get("force", False))


_POLICY = {"policy_id": BodyField(fields.as_text, required=True)}
_ENABLED = {**_POLICY, "enabled": BodyField(fields.as_boolean)}
_DESTROY = {"destroy_after_deletion": BodyField(fields.as_boolean)}
_TOKEN = {"lifecycle_action_token": BodyField(fields.as_text, required=True)}

_ACTIONS: Mapping[str, _Action] = {
    "add_nodes": _Action(_add, _some_nodes({})),
    "del_nodes": _Action(_del, _some_nodes(_DESTROY)),
    "replace_nodes": _Action(_replace, _pairs, Version(1, 3)),
    "scale_out": _Action(_scale(ActionName.CLUSTER_SCALE_OUT), _COUNT),
    "scale_in": _Action(_scale(ActionName.CLUSTER_SCALE_IN), _COUNT),
    "resize": _Action(_do_resize, _resize),
    "check": _Action(_check, _map),
    "recover": _Action(_recover, _map),
    "policy_attach": _Action(_attach, _fields(_ENABLED)),
    "policy_detach": _Action(_detach, _fields(_POLICY)),
    "policy_update": _Action(_change, _fields(_ENABLED)),
    "complete_lifecycle": _Action(_complete, _fields(_TOKEN), Version(1, 9)),
}
# A deletion is asked for by DELETE; here it can only be rehearsed.
_DELETE = _Action(_forget, _fields({"force": BodyField(fields.as_boolean)}))


ONE_KEY: Schema = {"type": "object", "minProperties": 1, "maxProperties": 1}
"""What is to be done, with what it takes."""


@routes.post(
    "/{cluster_id}/actions",
    rule=_ACT,
    status=202,
    described={**ONE_KEY, "properties": {name: {"type": ["object", "null"]} for name in (*_ACTIONS, "delete")}},
    response=shapes.STARTED,
    also={200: REHEARSED},
)
async def act(call: Call, request: RequestContext) -> Reply:
    """Have something done to a cluster; with `dry_run`, only say what it would come to."""
    rehearsal = is_rehearsal(call)
    known = {**_ACTIONS, "delete": _DELETE} if rehearsal else _ACTIONS
    name, value = fields.single(call.body, "action", tuple(known), end="")
    action = known[name]
    if call.version < action.since:
        raise unsupported(call.version)
    if action is _DELETE:
        call.permit("clusters:delete")
    given = action.read(call, {} if value is None else value)
    accept = partial(action.do, call, request, given)
    if rehearsal:
        return await rehearse(call, request, accept)
    return started(call, await accept(), request.warnings)


def unsupported(version: Version) -> Invalid:
    """The message for a method that a version does not have."""
    return MethodVersionNotFound(f"API version '{version}' is not supported on this method.")


class MethodVersionNotFound(Invalid):
    """The method exists, but not in this version."""


@routes.post(
    "/{cluster_id}/ops", since="1.4", rule="clusters:operation", status=202, described=ONE_KEY, response=shapes.STARTED
)
async def operate(call: Call, request: RequestContext) -> Reply:
    """Have one of the profile's operations done to the nodes of a cluster."""
    name, value = fields.single(call.body, "operation", ())
    given = fields.as_map(name, value or {})
    enveloped = bool(set(given) & {"params", "filters"})
    params = fields.as_map("params", given.get("params") or {}) if enveloped else given
    filters = fields.as_map("filters", given.get("filters") or {}) if enveloped else {}
    return started(call, await clusters.operate(request, call.path["cluster_id"], name, params, filters))


# Attributes of nodes

_ATTRIBUTES = Shape(NodeRecord, names={})


@routes.get("/{cluster_id}/attrs", since="1.2", rule="clusters:collect")
async def collect_nothing(call: Call) -> Reply:
    """A path is needed."""
    raise BadRequest("Required path attribute is missing.")


@routes.get(
    "/{cluster_id}/attrs/{path}",
    since="1.2",
    rule="clusters:collect",
    kind=RouteKind.CLOUD,
    response=thing({"cluster_attributes": array(thing({"id": UUID, "value": ANY}))}),
)
async def collect(call: Call, request: RequestContext) -> Reply:
    """One attribute of every node, by its path."""
    path = call.path["path"]
    if path == "None":
        raise BadRequest("Required path attribute is missing.")
    cluster = await request.find(call.path["cluster_id"], lock=False)
    members = await nodes.members(request, cluster.id)
    details = await nodes.details(request, cloud_of(call), members) if path.split(".")[0] == "details" else {}
    found = []
    for node in members:
        attributes = {**_ATTRIBUTES.show(node), "details": dict(details.get(node.id, {}))}
        found += [{"id": node.id, "value": value} for value in follow(path, attributes)]
    return {"cluster_attributes": found}
