"""External events: what a network service reports to compute about ports. Ports are always up here, so there is nothing
to do; events of other services are refused."""

from typing import Any

from starlette.responses import JSONResponse

from roost.api.permissions import ADMIN, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import INTEGER, STRING, UUID, Schema, array, thing
from roost.compute.scheduling import servers
from roost.errors import NotFound

_RULE = "os_compute_api:os-server-external-events:create"

RULES = (Permission(_RULE, ADMIN, "Tell compute what happened to a server's ports."),)

routes = Table(prefix="/v2.1")

_OF_PORTS = ("network-changed", "network-vif-plugged", "network-vif-unplugged", "network-vif-deleted")
_OTHERS = ("volume-extended", "power-update", "accelerator-request-bound", "volume-reimaged")
_EVENT: dict[str, Schema] = {"name": {"enum": [*_OF_PORTS, *_OTHERS]}, "server_uuid": UUID}
_MORE: dict[str, Schema] = {"status": {"enum": ["failed", "completed", "in-progress"]}, "tag": STRING}
_ANSWER = thing({"events": array(thing({**_EVENT, "code": INTEGER, "status": STRING}, _MORE))})


@routes.post(
    "/os-server-external-events",
    rule=_RULE,
    body=thing({"events": array(thing(_EVENT, _MORE), minItems=1, maxItems=1000)}),
    response=_ANSWER,
    also={207: _ANSWER},
)
async def create(call: Call, connection: Connection) -> Reply:
    """Note events: each is answered with its own code, and all with 200, 207 or 404."""
    events = call.body["events"]
    there = await _known(connection, [event["server_uuid"] for event in events])
    answers = [_answer(event, event["server_uuid"].lower() in there) for event in events]
    codes = {answer["code"] for answer in answers}
    if codes == {404}:
        raise NotFound("No instances found for any event")
    return JSONResponse({"events": answers}, 200 if codes == {200} else 207)


async def _known(connection: Connection, server_ids: list[str]) -> set[str]:
    return {server.id for server in await servers.index(connection, servers.Filters(ids=tuple(set(server_ids))))}


def _answer(event: dict[str, Any], is_there: bool) -> dict[str, Any]:
    code = 404 if not is_there else 200 if event["name"] in _OF_PORTS else 400
    status = event.get("status", "completed") if code == 200 else "failed"
    return {**event, "status": status, "code": code}
