"""What versions of the clustering API there are, and its OpenAPI document for any one of them."""

from typing import Any

from starlette.responses import JSONResponse

from roost.api import openapi
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import array, thing, version_document
from roost.api.versions import CLUSTERING

routes = Table()

_DOCUMENT = version_document("updated", "min_version", "max_version")


def _document(base: str) -> dict[str, Any]:
    return {
        "id": "1.0",
        "status": "CURRENT",
        "updated": "2016-01-18T00:00:00Z",
        "min_version": str(CLUSTERING.oldest),
        "max_version": str(CLUSTERING.newest),
        "media-types": [{"base": "application/json", "type": "application/vnd.openstack.clustering-v1+json"}],
        "links": [
            {"rel": "self", "href": f"{base}/v1"},
            {"rel": "help", "href": "https://docs.openstack.org/api-ref/clustering"},
        ],
    }


@routes.get("/", public=True, status=300, response=thing({"versions": array(_DOCUMENT)}))
async def index(call: Call) -> Reply:
    """The one major version. Clients expect 300 here, and the self link to be absolute."""
    return JSONResponse({"versions": [_document(call.base)]}, 300)


@routes.get("/v1", public=True, response=thing({"version": _DOCUMENT}))
async def show(call: Call) -> Reply:
    """The one major version, with its range of microversions."""
    return {"version": _document(call.base)}


@routes.get("/openapi.json", public=True, response=openapi.DOCUMENT)
async def describe(call: Call) -> Reply:
    """The OpenAPI document of one microversion: `?version=1.5`, by default the newest."""
    from roost.api.clustering import CLUSTERING_API

    return openapi.answer(CLUSTERING_API, call)
