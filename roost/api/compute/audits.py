"""Audits of everything: every group in which a rule is broken, as they are found; for operators.

The answer is a stream of lines, each a JSON object of its own, so that the first is there before the last is found and
nobody has to hold them all.
"""

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import datetime
from itertools import groupby

from starlette.responses import StreamingResponse

from roost.api.compute import server_groups
from roost.api.compute.explanations import FIRST
from roost.api.compute.views import timestamp
from roost.api.permissions import ADMIN, Permission
from roost.api.routes import Call, Reply, Table
from roost.compute.answers import drift
from roost.compute.answers.drift import DriftedRule, Key

routes = Table(prefix="/v2.1")

ALL = "os_compute_api:os-server-groups:audit:all_projects"

RULES = (Permission(ALL, ADMIN, "See which rules are broken in the server groups of all projects."),)


@routes.get("/os-server-groups/audit", since=FIRST, rule=ALL)
async def index(call: Call) -> Reply:
    """Stream a line for every group in which a rule is broken: which, where, by whom, by how much, since when."""
    async with call.services.database.begin() as connection:
        found = await drift.find_all(connection, call.services.scheduler.live)
        since = await drift.since(connection)
    return StreamingResponse(_lines(found, since), media_type="application/x-ndjson")


async def _lines(found: Iterator[DriftedRule], since: Mapping[Key, datetime]) -> AsyncIterator[str]:
    for group_id, broken in groupby(found, key=lambda each: each.group_id):
        line = {"server_group_id": group_id, "violations": [_view(each, since.get(each.key)) for each in broken]}
        yield json.dumps(line) + "\n"


def _view(broken: DriftedRule, since: datetime | None) -> dict[str, object]:
    violation = broken.violation
    return {
        "breach": violation.breach,
        "policy": server_groups.rule_view(violation.rule),
        "aggregate": broken.aggregate,
        "members": list(violation.members),
        "excess": violation.excess,
        "message": str(violation),
        "since": timestamp(since),
    }
