"""Profile types: which there are, what their specs may say, and what can be done to their nodes."""

from roost.api.clustering.policy_types import listed, listed_as, shown, shown_as
from roost.api.clustering.shapes import OBJECT
from roost.api.permissions import READER, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import STRING, by_name, thing
from roost.clusters import plugins
from roost.clusters.errors import BadRequest, ResourceNotFound

RULES = (
    Permission("profile_types:index", READER, "List profile types."),
    Permission("profile_types:get", READER, "Show a profile type and the schema of its specs."),
    Permission("profile_types:ops", READER, "List the operations of a profile type."),
)
routes = Table("/v1/profile-types")

_OPERATIONS = by_name(thing({"description": STRING, "parameters": OBJECT}))


@routes.get("", rule="profile_types:index", response=listed_as("profile_types"))
async def index(call: Call) -> Reply:
    """All profile types."""
    known = plugins.load(call.services.settings).profiles
    return {"profile_types": [listed(name, kind, call.version) for name, kind in known.items()]}


@routes.get("/{profile_type}", rule="profile_types:get", response=shown_as("profile_type"))
async def show(call: Call) -> Reply:
    """One profile type."""
    name = call.path["profile_type"]
    kind = plugins.load(call.services.settings).profile(name)
    return {"profile_type": shown(name, kind, call.version)}


@routes.get("/{profile_type}/ops", since="1.4", rule="profile_types:ops", response=thing({"operations": _OPERATIONS}))
async def operations(call: Call) -> Reply:
    """What can be done to nodes of a profile type."""
    try:
        kind = plugins.load(call.services.settings).profile(call.path["profile_type"])
    except ResourceNotFound as error:
        raise BadRequest(error.message) from None
    return {"operations": {name: operation.describe() for name, operation in kind.OPERATIONS.items()}}
