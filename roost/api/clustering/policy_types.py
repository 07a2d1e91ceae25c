"""Policy types: which there are, what their specs may say, and since when they are supported."""

from typing import Any

from roost.api.permissions import READER, Rule
from roost.api.routes import Call, Reply, Table
from roost.api.versions import Version
from roost.clusters import plugins, spec

RULES = (
    Rule("policy_types:index", READER, "List policy types."),
    Rule("policy_types:get", READER, "Show a policy type and the schema of its specs."),
)
routes = Table("/v1/policy-types")

WITH_STATUS = Version(1, 5)
"""Since then, types are listed with their support status, and their version is apart from their name."""


def listed(name: str, kind: Any, version: Version) -> dict[str, Any]:
    """A policy or profile type as one of a list."""
    if version < WITH_STATUS:
        return {"name": name}
    plain, _, number = name.rpartition("-")
    return {"name": plain, "version": number, "support_status": {number: list(kind.VERSIONS[number])}}


def shown(name: str, kind: Any, version: Version) -> dict[str, Any]:
    """A policy or profile type with the schema of its specs."""
    number = name.rpartition("-")[2]
    text = {"name": name, "schema": spec.describe(kind.schema(number), number)}
    if version >= WITH_STATUS:
        text["support_status"] = {number: list(kind.VERSIONS[number])}
    return text


@routes.get("", rule="policy_types:index")
async def index(call: Call) -> Reply:
    """All policy types."""
    known = plugins.load(call.services.settings).policies
    return {"policy_types": [listed(name, kind, call.version) for name, kind in known.items()]}


@routes.get("/{policy_type}", rule="policy_types:get")
async def show(call: Call) -> Reply:
    """One policy type."""
    name = call.path["policy_type"]
    kind = plugins.load(call.services.settings).policy(name)
    return {"policy_type": shown(name, kind, call.version)}
