"""Actions: listed, shown, and cancelled."""

from datetime import datetime
from functools import partial
from typing import Any

import sqlalchemy as sa
from starlette.responses import Response

from roost.api.clustering import fields, shapes
from roost.api.clustering.fields import BodyField
from roost.api.clustering.handling import request_context
from roost.api.clustering.lists import Listing, boolean, one_of, text
from roost.api.clustering.moments import moment
from roost.api.permissions import MEMBER, READER, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import Schema, array, since, thing
from roost.api.versions import Version
from roost.clusters import lookup
from roost.clusters.actions import control
from roost.clusters.errors import BadRequest
from roost.clusters.states import ActionName, ActionStatus
from roost.store.tables.clusters import UNFINISHED, actions, unfinished
from roost.turns import spread

RULES = (
    Permission("actions:index", READER, "List actions."),
    Permission("actions:get", READER, "Show an action."),
    Permission("actions:update", MEMBER, "Cancel, suspend or resume an action."),
)
routes = Table("/v1/actions")

_LISTING = Listing(
    actions,
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


def _query() -> sa.Select[Any]:
    """Actions with those that they wait for, and those that wait for them: only while they do."""
    child, parent = actions.alias("child"), actions.alias("parent")
    waits_for = (
        sa.select(sa.func.array_agg(child.c.id))
        .where(child.c.parent_id == actions.c.id, child.c.status.in_(UNFINISHED))
        .scalar_subquery()
    )
    waited_for = (
        sa.select(sa.func.array_agg(parent.c.id))
        .where(parent.c.id == actions.c.parent_id, unfinished)
        .scalar_subquery()
    )
    return sa.select(actions, waits_for.label("depends_on"), waited_for.label("depended_by"))


def _view(row: sa.Row[Any], version: Version) -> dict[str, Any]:
    shown = {
        "id": row.id,
        "name": row.name,
        "target": row.target,
        "action": row.action,
        "cause": row.cause,
        "owner": row.owner,
        "interval": row.interval,
        "start_time": _seconds(row.start_time),
        "end_time": _seconds(row.end_time),
        "timeout": row.timeout,
        "status": row.status,
        "status_reason": row.status_reason,
        "inputs": shapes.without_secrets(row.inputs),
        "outputs": row.outputs,
        "depends_on": row.depends_on or [],
        "depended_by": row.depended_by or [],
        "data": row.data,
        "user": row.user_id,
        "project": row.project_id,
        "domain": row.domain_id,
        "created_at": moment(row.created_at),
        "updated_at": moment(row.updated_at),
    }
    return {**shown, "cluster_id": row.cluster_id} if version >= Version(1, 14) else shown


_SECONDS: Schema = {"type": ["number", "null"]}
_INSIDE = ("sequence", "lock", "parent_id", "part", "attempt", "wake_at", "control", "is_admin", "plan", "trace")
_ACTION = shapes.of(
    actions,
    hides=_INSIDE,
    start_time=_SECONDS,
    end_time=_SECONDS,
    status={"enum": list(ActionStatus)},
    depends_on=shapes.IDS,
    depended_by=shapes.IDS,
)


def _shape(version: Version) -> Schema:
    return since(version, {"cluster_id": Version(1, 14)}, _ACTION)


def _seconds(when: datetime | None) -> float | None:
    return None if when is None else when.timestamp()


@routes.get("", rule="actions:index", response=lambda version: thing({"actions": array(_shape(version))}))
async def index(call: Call) -> Reply:
    """The actions of the project."""
    page = _LISTING.read(call)
    if "cluster_id" in page.filters and call.version < Version(1, 14):
        raise BadRequest("Invalid parameter cluster_id")
    async with call.services.database.begin() as connection:
        rows = await _LISTING.rows(connection, call, page, query=_query())
    return {"actions": await spread(partial(_view, version=call.version), rows)}


@routes.get("/{action_id}", rule="actions:get", response=lambda version: thing({"action": _shape(version)}))
async def show(call: Call) -> Reply:
    """One action."""
    async with call.services.database.begin() as connection:
        found = await lookup.find(connection, actions, "action", call.path["action_id"], call.caller)
        row = (await connection.execute(_query().where(actions.c.id == found.id))).one()
    return {"action": _view(row, call.version)}


_UPDATE = {"status": BodyField(fields.as_text, required=True)}


@routes.patch(
    "/{action_id}",
    since="1.12",
    rule="actions:update",
    status=202,
    described=fields.enveloped("action", _UPDATE),
)
async def update(call: Call) -> Reply:
    """Cancel an action; with `force`, whatever is at it. Suspend it, or (READY) let it go on."""
    given = fields.read(_UPDATE, fields.envelope(call.body, "action", change=True))
    force = "force" in call.query and boolean("force", call.query["force"])
    async with request_context(call) as request:
        found = await lookup.find(request.connection, actions, "action", call.path["action_id"], call.caller, lock=True)
        await control.change_status(request.connection, found, given["status"], force=force)
    return Response(status_code=202, headers={"Location": f"{call.base}/v1/actions/{found.id}"})
