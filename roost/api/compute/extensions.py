"""Extensions: a notion of old; everything has long been part of the API, and the list is empty."""

from roost.api.permissions import ANYONE, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import thing

routes = Table(prefix="/v2.1")

RULES = (Permission("os_compute_api:extensions", ANYONE, "List extensions."),)


@routes.get("/extensions", rule="os_compute_api:extensions", response=thing({"extensions": {"const": []}}))
async def index(call: Call) -> Reply:
    """List extensions: there are none."""
    return {"extensions": []}
