"""Policy types: which there are, what their specs may say, and since when they are supported."""

from collections.abc import Callable
from typing import Any

from roost.api.clustering.shapes import OBJECT
from roost.api.permissions import READER, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import STRING, Schema, array, by_name, since, thing
from roost.api.versions import Version
from roost.clusters import plugins, spec

RULES = (
    Permission("policy_types:index", READER, "List policy types."),
    Permission("policy_types:get", READER, "Show a policy type and the schema of its specs."),
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


_STATUS = by_name(array(by_name(STRING), minItems=1), minProperties=1, maxProperties=1)
_SINCE = {"version": WITH_STATUS, "support_status": WITH_STATUS}
_LISTED = {"name": STRING, "version": STRING, "support_status": _STATUS}
_SHOWN = {"name": STRING, "schema": OBJECT, "support_status": _STATUS}


def listed_as(key: str) -> Callable[[Version], Schema]:
    """What a list of types looks like."""
    return lambda version: thing({key: array(since(version, _SINCE, _LISTED))})


def shown_as(key: str) -> Callable[[Version], Schema]:
    """What one type looks like."""
    return lambda version: thing({key: since(version, _SINCE, _SHOWN)})


@routes.get("", rule="policy_types:index", response=listed_as("policy_types"))
async def index(call: Call) -> Reply:
    """All policy types."""
    known = plugins.load(call.services.settings).policies
    return {"policy_types": [listed(name, kind, call.version) for name, kind in known.items()]}


@routes.get("/{policy_type}", rule="policy_types:get", response=shown_as("policy_type"))
async def show(call: Call) -> Reply:
    """One policy type."""
    name = call.path["policy_type"]
    kind = plugins.load(call.services.settings).policy(name)
    return {"policy_type": shown(name, kind, call.version)}
