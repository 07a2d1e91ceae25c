"""Webhooks: the secret in the address is enough to trigger what the receiver is for."""

from functools import partial

from starlette.responses import Response

from roost.api.clustering import fields, shapes
from roost.api.clustering.handling import request_context, started
from roost.api.clustering.receivers import permit
from roost.api.routes import Call, Reply, Table
from roost.clusters import receivers
from roost.clusters.clusters import RequestContext
from roost.clusters.errors import BadRequest

routes = Table("/v1/webhooks", context=request_context)


@routes.post("/{webhook_id}/trigger", public=True, status=202, response=shapes.STARTED, also={204: None})
async def trigger(call: Call, request: RequestContext) -> Reply:
    """Do what the webhook is for. What the address and the body say more becomes the action's inputs. The answer is 204
    where the body is an alert of another status than the webhook acts on."""
    if "V" not in call.query:
        raise BadRequest("V query parameter is required in webhook trigger URL")
    body = fields.as_map("params", call.body) if call.body is not None else {}
    if call.query["V"] == "1":
        body = fields.as_map("params", body.get("params") or {})
    named = {key: value for key, value in call.query.items() if key not in ("V", "token")}
    identifier, secret = call.path["webhook_id"], call.query.get("token", "")
    action_id = await receivers.trigger(request, identifier, secret, named, body, partial(permit, call))
    return Response(status_code=204) if action_id is None else started(call, action_id)
