"""Audits of everything: every group in which a rule is broken, as they are found; for operators.

The answer is a stream of lines, each a JSON object of its own, so the first arrives before the last is found, and
no side has to hold them all.
"""

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime
from itertools import groupby

from starlette.responses import StreamingResponse

from roost.api.budgets import RouteKind
from roost.api.compute import server_groups
from roost.api.compute.explanations import FIRST
from roost.api.permissions import ADMIN, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.compute.answers import audit
from roost.compute.answers.violations import BrokenRule, ViolationKey
from roost.compute.groups.identifiers import Identifiers
from roost.compute.inventory.scopes import Scope, load_scopes

routes = Table(prefix="/v2.1")

ALL = "os_compute_api:os-server-groups:audit:all_projects"

RULES = (Permission(ALL, ADMIN, "See which rules are broken in the server groups of all projects."),)


@routes.get("/os-server-groups/audit", since=FIRST, rule=ALL, kind=RouteKind.ANSWER)
async def index(call: Call, connection: Connection) -> Reply:
    """Stream a line for each group with broken rules: which, where, by which members, by how much, since when."""
    broken = await call.services.violations.now(connection)
    since, scopes = await audit.since(connection), await load_scopes(connection)
    real = server_groups.sees_real_names(call)
    return StreamingResponse(_lines(broken, since, scopes, real), media_type="application/x-ndjson")


async def _lines(
    broken: Iterable[BrokenRule], since: Mapping[ViolationKey, datetime], scopes: Mapping[str, Scope], real: bool
) -> AsyncIterator[str]:
    for (group_id, project_id), of_group in groupby(broken, key=lambda each: (each.group_id, each.project_id)):
        shown = Identifiers(scopes, project_id, real=real)
        views = [server_groups.violation_view(each.shown(shown), since.get(each.key)) for each in of_group]
        yield json.dumps({"server_group_id": group_id, "violations": views}) + "\n"
