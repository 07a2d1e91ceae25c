"""What versions of the identity API there are."""

from typing import Any

from starlette.responses import JSONResponse

from roost.api.routes import Call, Reply, Table
from roost.api.schemas import array, thing, version_document

routes = Table()

_DOCUMENT = version_document("updated")


def _document(base: str) -> dict[str, Any]:
    return {
        "id": "v3.14",
        "status": "stable",
        "updated": "2020-04-07T00:00:00Z",
        "links": [{"rel": "self", "href": f"{base}/v3/"}],
        "media-types": [{"base": "application/json", "type": "application/vnd.openstack.identity-v3+json"}],
    }


@routes.get("/", public=True, status=300, response=thing({"versions": thing({"values": array(_DOCUMENT)})}))
async def index(call: Call) -> Reply:
    """The one major version."""
    return JSONResponse({"versions": {"values": [_document(call.base)]}}, 300)


@routes.get("/v3", public=True, response=thing({"version": _DOCUMENT}))
async def show(call: Call) -> Reply:
    """The one major version."""
    return {"version": _document(call.base)}
