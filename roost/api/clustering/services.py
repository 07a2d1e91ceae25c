"""Services: the engines that carry out actions."""

from roost.api.clustering import shapes
from roost.api.clustering.moments import moment
from roost.api.permissions import ADMIN, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import Schema, array, thing
from roost.clusters import services
from roost.store.tables import clusters as tables

RULES = (Permission("services:index", ADMIN, "List engines."),)
routes = Table("/v1/services")

_STATUS: Schema = {"enum": ["enabled", "disabled"]}
_STATE: Schema = {"enum": ["up", "down"]}
_SERVICE = thing(shapes.of(tables.services, hides=("disabled", "created_at"), status=_STATUS, state=_STATE))


@routes.get("", rule="services:index", response=thing({"services": array(_SERVICE)}))
async def index(call: Call) -> Reply:
    """All engines, with whether they give signs of life."""
    async with call.services.database.begin() as connection:
        known = await services.list_all(connection, call.services.settings.clusters.dead_after)
    keys = ("id", "host", "binary", "topic", "disabled_reason", "status", "state")
    return {
        "services": [
            {**{key: service[key] for key in keys}, "updated_at": moment(service["updated_at"])} for service in known
        ]
    }
