"""Profile types, and what can be done to their nodes."""

from roost.api.clustering import plugin_types
from roost.api.clustering.shapes import OBJECT
from roost.api.permissions import READER, Permission
from roost.api.routes import Call, Reply
from roost.api.schemas import STRING, by_name, thing
from roost.clusters import plugins
from roost.clusters.errors import BadRequest, ResourceNotFound
from roost.clusters.plugins import Plugins

RULES = (
    *plugin_types.rules("profile"),
    Permission("profile_types:ops", READER, "List the operations of a profile type."),
)
routes = plugin_types.table("profile", lambda known: known.profiles, Plugins.profile)

_OPERATIONS = by_name(thing({"description": STRING, "parameters": OBJECT}))


@routes.get("/{profile_type}/ops", since="1.4", rule="profile_types:ops", response=thing({"operations": _OPERATIONS}))
async def operations(call: Call) -> Reply:
    """What can be done to nodes of a profile type."""
    try:
        kind = plugins.load(call.services.settings).profile(call.path["profile_type"])
    except ResourceNotFound as error:
        raise BadRequest(error.message) from None
    return {"operations": {name: operation.describe() for name, operation in kind.OPERATIONS.items()}}
