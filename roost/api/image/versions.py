"""What versions of the image API there are."""

from starlette.responses import JSONResponse

from roost.api.routes import Call, Reply, Table
from roost.api.schemas import array, thing, version_document

routes = Table()


@routes.get("/", public=True, status=300, response=thing({"versions": array(version_document())}))
async def index(call: Call) -> Reply:
    """The one version that the three reads belong to."""
    links = [{"rel": "self", "href": f"{call.base}/v2/"}]
    return JSONResponse({"versions": [{"id": "v2.0", "status": "CURRENT", "links": links}]}, 300)
