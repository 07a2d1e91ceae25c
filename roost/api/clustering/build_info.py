"""The version of this program."""

import roost
from roost.api.permissions import READER, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import STRING, thing

RULES = (Permission("build_info:build_info", READER, "Show which version runs."),)
routes = Table("/v1/build-info")

_REVISION = thing({"revision": STRING})
_INFO = thing({"api": _REVISION, "engine": _REVISION})


@routes.get("", rule="build_info:build_info", response=thing({"build_info": _INFO}))
async def show(call: Call) -> Reply:
    """The version of the API and of the engine, which are one."""
    revision = {"revision": roost.__version__}
    return {"build_info": {"api": revision, "engine": revision}}
