"""What most handlers begin and end with: a transaction, and an answer that names the action."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from starlette.responses import JSONResponse

from roost.api.clustering import shapes
from roost.api.clustering.lists import boolean
from roost.api.compute.server_groups import permit_rules
from roost.api.routes import Call
from roost.api.schemas import NULLABLE_STRING, STRING, Schema, array, by_name, thing
from roost.clouds.base import Cloud
from roost.clusters import plugins
from roost.clusters.actions import rehearsals
from roost.clusters.actions.journal import Journal
from roost.clusters.actions.work import Engine
from roost.clusters.clusters import RequestContext
from roost.clusters.ids import new_id

_COUNTED: Schema = {"type": "integer", "minimum": 0}
_REHEARSAL = thing(
    {
        "action": STRING,
        "accepted": {"type": "boolean"},
        "sentence": STRING,
        "refusal": NULLABLE_STRING,
        "policies": array(
            thing({"policy": STRING, "type": STRING, "decision": shapes.OBJECT, "refusal": NULLABLE_STRING})
        ),
        "steps": array(thing({"action": STRING, "node": STRING}, {"placement": shapes.OBJECT, "operation": STRING})),
        "size": thing({"now": _COUNTED, "then": _COUNTED}),
        "distribution": by_name(by_name(_COUNTED)),
    }
)
REHEARSED = thing({"dry_run": _REHEARSAL, "warnings": array(STRING)})
"""The answer to a request with `dry_run`."""


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
    """Accepted, with the action as the whole answer, unless there are warnings."""
    return accepted(call, action_id, {"action": action_id, **({"warnings": list(warnings)} if warnings else {})})


def is_rehearsal(call: Call) -> bool:
    """Whether a request only asks what it would come to."""
    return "dry_run" in call.query and boolean("dry_run", call.query["dry_run"])


async def rehearse(call: Call, request: RequestContext, accept: Callable[[], Awaitable[str]]) -> JSONResponse:
    """Say what an action would come to: it is accepted as always, planned, and taken back."""
    services = call.services
    engine = Engine(
        new_id(),
        services.database,
        services.settings.clusters,
        request.plugins,
        services.clouds,
        Journal(services.database),
    )
    async with request.connection.begin_nested() as savepoint:
        rehearsal = await rehearsals.rehearse(engine, request.connection, await accept())
        await savepoint.rollback()
    return JSONResponse({"dry_run": rehearsal.to_json(), "warnings": list(request.warnings)})
