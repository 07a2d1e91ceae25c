"""What most handlers begin and end with: a transaction to ask in, and an answer that names the action."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from starlette.responses import JSONResponse

from roost.api.compute.server_groups import permit_rules
from roost.api.routes import Call
from roost.clouds.base import Cloud
from roost.clusters import plugins
from roost.clusters.clusters import RequestContext


@asynccontextmanager
async def request_context(call: Call) -> AsyncIterator[RequestContext]:
    """A transaction in the caller's name."""
    settings = call.services.settings
    async with call.services.database.begin() as connection:
        permit = partial(permit_rules, call)
        yield RequestContext(connection, call.caller, settings.clusters, plugins.load(settings), permit)


def cloud_of(call: Call) -> Cloud:
    """The cloud as the caller sees it."""
    caller = call.caller
    return call.services.clouds.of(caller.project_id or "", caller.user_id, privileged=caller.is_admin)


def accepted(call: Call, action_id: str, body: Any) -> JSONResponse:
    """Accepted: the address of the action that will do it."""
    return JSONResponse(body, 202, headers={"Location": f"{call.base}/v1/actions/{action_id}"})


def started(call: Call, action_id: str, warnings: Sequence[str] = ()) -> JSONResponse:
    """Accepted, with the action as the whole answer, unless there is something to be warned of."""
    return accepted(call, action_id, {"action": action_id, **({"warnings": list(warnings)} if warnings else {})})
