"""Receivers: made, listed, changed, deleted and notified."""

from functools import partial
from operator import attrgetter
from typing import Any
from urllib.parse import urlencode

from starlette.responses import Response

from roost.api.clustering import fields
from roost.api.clustering.fields import BodyField
from roost.api.clustering.handling import request_context
from roost.api.clustering.lists import Listing, one_of, text
from roost.api.clustering.shapes import Shape
from roost.api.fields import ShownField
from roost.api.permissions import MEMBER, READER, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import STRING, Schema, array, thing
from roost.api.versions import Version
from roost.clusters import receivers
from roost.clusters.clusters import RequestContext
from roost.clusters.errors import BadRequest
from roost.clusters.records import RECEIVERS, ReceiverRecord
from roost.clusters.states import ActionName
from roost.errors import Forbidden
from roost.identity.tokens import Caller
from roost.turns import spread

_NOTIFY = "receivers:notify"

RULES = (
    Permission("receivers:index", READER, "List receivers."),
    Permission("receivers:create", MEMBER, "Create a receiver."),
    Permission("receivers:get", READER, "Show a receiver."),
    Permission("receivers:update", MEMBER, "Change a receiver."),
    Permission("receivers:delete", MEMBER, "Delete a receiver."),
    Permission(_NOTIFY, MEMBER, "Notify a receiver."),
)
routes = Table("/v1/receivers", context=request_context)

_LISTING = Listing(
    RECEIVERS,
    sorts=("name", "type", "action", "cluster_id", "created_at", "user"),
    default_sort="name",
    filters={
        "name": text,
        "type": one_of(receivers.TYPES),
        "cluster_id": text,
        "action": one_of(receivers.ACTIONS),
        "user": text,
    },
    columns={"user": "user_id"},
)
_CREATE = {
    "name": BodyField(fields.as_name, required=True),
    "type": BodyField(fields.one_of(*receivers.TYPES), required=True),
    "cluster_id": BodyField(fields.as_text),
    "action": BodyField(fields.as_text),
    "actor": BodyField(fields.as_map),
    "params": BodyField(fields.as_map),
}
_UPDATE = {"name": BodyField(fields.as_name), "action": BodyField(fields.as_text), "params": BodyField(fields.as_map)}
_MESSAGE: Schema = {
    "type": "object",
    "properties": {"cluster": STRING, "action": {"enum": list(receivers.ACTIONS)}, "params": {"type": "object"}},
}


def permit(call: Call, caller: Caller, action: str) -> None:
    """Raise `Forbidden` unless the caller may have this action done to a cluster without a receiver."""
    rule = "clusters:delete" if action == ActionName.CLUSTER_DELETE else "clusters:action"
    if not call.services.permissions.allows(rule, caller, {"project_id": caller.project_id}):
        raise Forbidden(call.forbidden.format(rule=rule))


def _view(call: Call, receiver: ReceiverRecord, secret: str | None = None) -> dict[str, Any]:
    return {**_SHAPE.show(receiver), "channel": _channel(call, receiver, secret)}


def _channel(call: Call, row: ReceiverRecord, secret: str | None) -> dict[str, Any]:
    """How to reach a receiver. The secret is shown once, to its maker: only a digest of it is stored."""
    if row.type == "message":
        return {"queue_name": f"senlin-receiver-{row.id}"}
    query: dict[str, Any] = {"V": 2}
    if secret is not None:
        query["token"] = secret
    query |= {key: row.params[key] for key in sorted(row.params)}
    return {"alarm_url": f"{call.base}/v1/webhooks/{row.id}/trigger?{urlencode(query)}"}


_CHANNEL: Schema = {"oneOf": [thing({"queue_name": STRING}), thing({"alarm_url": STRING})]}
_SHAPE = Shape(
    ReceiverRecord,
    ShownField("type", {"enum": list(receivers.TYPES)}, attrgetter("type")),
    ShownField("channel", _CHANNEL, attrgetter("channel")),
    hides=("secret",),
)
_RECEIVER = _SHAPE.schema()
_ONE = thing({"receiver": _RECEIVER})


@routes.get("", rule="receivers:index", response=thing({"receivers": array(_RECEIVER)}))
async def index(call: Call, request: RequestContext) -> Reply:
    """The receivers of the project."""
    page = _LISTING.read(call)
    if "user" in page.filters and call.version < Version(1, 4):
        raise BadRequest("Invalid parameter user")
    return {"receivers": await spread(partial(_view, call), await _LISTING.records(request.connection, call, page))}


@routes.post("", rule="receivers:create", status=201, described=fields.enveloped("receiver", _CREATE), response=_ONE)
async def create(call: Call, request: RequestContext) -> Reply:
    """Make a receiver."""
    given = fields.read(_CREATE, fields.envelope(call.body, "receiver"))
    if given.get("action"):
        permit(call, call.caller, given["action"])
    return {"receiver": _view(call, *await receivers.create(request, given))}


@routes.get("/{receiver_id}", rule="receivers:get", response=_ONE)
async def show(call: Call, request: RequestContext) -> Reply:
    """One receiver."""
    return {"receiver": _view(call, await receivers.find(request, call.path["receiver_id"]))}


@routes.patch("/{receiver_id}", rule="receivers:update", described=fields.enveloped("receiver", _UPDATE), response=_ONE)
async def update(call: Call, request: RequestContext) -> Reply:
    """Change a receiver."""
    given = fields.read(_UPDATE, fields.envelope(call.body, "receiver", change=True))
    if given.get("action"):
        permit(call, call.caller, given["action"])
    return {"receiver": _view(call, await receivers.update(request, call.path["receiver_id"], given))}


@routes.delete("/{receiver_id}", rule="receivers:delete", status=204)
async def delete(call: Call, request: RequestContext) -> Reply:
    """Forget a receiver."""
    await receivers.delete(request, call.path["receiver_id"])
    return Response(status_code=204)


@routes.post("/{receiver_id}/notify", rule=_NOTIFY, status=204, described=_MESSAGE)
async def notify(call: Call, request: RequestContext) -> Reply:
    """Give a message to a message receiver."""
    message = fields.as_map("message", call.body) if call.body is not None else {}
    await receivers.notify(request, call.path["receiver_id"], message, partial(permit, call))
    return Response(status_code=204)
