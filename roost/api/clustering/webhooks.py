"""Webhooks: whoever knows the address may trigger what it is for."""

from functools import partial

from roost.api.clustering import fields, shapes
from roost.api.clustering.handling import request_context, started
from roost.api.clustering.receivers import permit
from roost.api.routes import Call, Reply, Table
from roost.clusters import receivers
from roost.clusters.errors import BadRequest

routes = Table("/v1/webhooks")


@routes.post("/{webhook_id}/trigger", public=True, status=202, response=shapes.STARTED)
async def trigger(call: Call) -> Reply:
    """Do what the webhook is for. What the address and the body say more becomes the action's inputs."""
    if "V" not in call.query:
        raise BadRequest("V query parameter is required in webhook trigger URL")
    body = fields.as_map("params", call.body) if call.body is not None else {}
    if call.query["V"] == "1":
        body = fields.as_map("params", body.get("params") or {})
    named = {key: value for key, value in call.query.items() if key not in ("V", "token")}
    async with request_context(call) as request:
        identifier, secret = call.path["webhook_id"], call.query.get("token", "")
        return started(
            call, await receivers.trigger(request, identifier, secret, {**named, **body}, partial(permit, call))
        )
