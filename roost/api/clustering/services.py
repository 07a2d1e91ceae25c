"""Services: the engines that carry out actions."""

from roost.api.clustering.moments import moment
from roost.api.permissions import ADMIN, Rule
from roost.api.routes import Call, Reply, Table
from roost.clusters import services

RULES = (Rule("services:index", ADMIN, "List engines."),)
routes = Table("/v1/services")


@routes.get("", rule="services:index")
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
