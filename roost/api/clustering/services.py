"""Services: the engines that carry out actions."""

from operator import attrgetter

from roost.api.clustering.shapes import Shape
from roost.api.fields import ShownField
from roost.api.permissions import ADMIN, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import array, thing
from roost.clusters import services
from roost.clusters.services import EngineService

RULES = (Permission("services:index", ADMIN, "List engines."),)
routes = Table("/v1/services")

_SHAPE = Shape(
    EngineService,
    ShownField("status", {"enum": ["enabled", "disabled"]}, attrgetter("status")),
    ShownField("state", {"enum": ["up", "down"]}, attrgetter("state")),
)


@routes.get("", rule="services:index", response=thing({"services": array(_SHAPE.schema())}))
async def index(call: Call, connection: Connection) -> Reply:
    """All engines, with whether they are alive."""
    known = await services.list_all(connection, call.services.settings.clusters.dead_after)
    return {"services": [_SHAPE.show(each) for each in known]}
