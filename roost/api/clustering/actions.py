"""Actions: list, show, cancel, suspend and resume them."""

from datetime import datetime
from functools import partial
from operator import attrgetter

from starlette.responses import Response

from roost.api.clustering import fields, shapes
from roost.api.clustering.fields import BodyField
from roost.api.clustering.handling import request_context
from roost.api.clustering.lists import Listing, boolean, one_of, text
from roost.api.clustering.shapes import Shape
from roost.api.fields import ShownField
from roost.api.permissions import MEMBER, READER, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import Schema
from roost.api.versions import Version
from roost.clusters import lookup
from roost.clusters.actions import control
from roost.clusters.clusters import RequestContext
from roost.clusters.errors import BadRequest
from roost.clusters.records import ACTION_DETAILS, ACTIONS, ActionDetails
from roost.clusters.states import ActionName, ActionStatus
from roost.turns import spread

RULES = (
    Permission("actions:index", READER, "List actions."),
    Permission("actions:get", READER, "Show an action."),
    Permission("actions:update", MEMBER, "Cancel, suspend or resume an action."),
)
routes = Table("/v1/actions", context=request_context)

_LISTING = Listing(
    ACTION_DETAILS,
    sorts=("name", "target", "action", "created_at", "status"),
    default_sort="created_at",
    filters={
        "name": text,
        "target": text,
        "action": one_of(ActionName),
        "status": one_of(ActionStatus),
        "cluster_id": text,
    },
)


def _seconds(when: datetime | None) -> float | None:
    return None if when is None else when.timestamp()


_SECONDS: Schema = {"type": ["number", "null"]}
_SHAPE = Shape(
    ActionDetails,
    ShownField("start_time", _SECONDS, lambda action: _seconds(action.start_time)),
    ShownField("end_time", _SECONDS, lambda action: _seconds(action.end_time)),
    ShownField("status", {"enum": list(ActionStatus)}, attrgetter("status")),
    ShownField("inputs", shapes.OBJECT, lambda action: shapes.without_secrets(action.inputs)),
    since={"cluster_id": Version(1, 14)},
)


@routes.get("", rule="actions:index", response=_SHAPE.many("actions"))
async def index(call: Call) -> Reply:
    """The actions of the project."""
    page = _LISTING.read(call)
    if "cluster_id" in page.filters and call.version < Version(1, 14):
        raise BadRequest("Invalid parameter cluster_id")
    async with call.services.database.autocommit() as connection:
        found = await _LISTING.records(connection, call, page)
    return {"actions": await spread(partial(_SHAPE.show, version=call.version), found)}


@routes.get("/{action_id}", rule="actions:get", response=_SHAPE.one("action"))
async def show(call: Call, request: RequestContext) -> Reply:
    """One action."""
    found = await lookup.find(request.connection, ACTION_DETAILS, call.path["action_id"], call.caller)
    return {"action": _SHAPE.show(found, call.version)}


_UPDATE = {"status": BodyField(fields.as_text, required=True)}


@routes.patch(
    "/{action_id}", since="1.12", rule="actions:update", status=202, described=fields.enveloped("action", _UPDATE)
)
async def update(call: Call, request: RequestContext) -> Reply:
    """Cancel an action; with `force`, whatever is at it. Suspend it, or (READY) let it go on."""
    given = fields.read(_UPDATE, fields.envelope(call.body, "action", change=True))
    force = "force" in call.query and boolean("force", call.query["force"])
    found = await lookup.find(request.connection, ACTIONS, call.path["action_id"], call.caller, lock=True)
    await control.change_status(request.connection, found, given["status"], force=force)
    return Response(status_code=202, headers={"Location": f"{call.base}/v1/actions/{found.id}"})
