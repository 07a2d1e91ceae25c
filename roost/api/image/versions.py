"""What versions of the image API there are, and what an image looks like to clients that ask."""

from starlette.responses import JSONResponse

from roost.api.routes import Call, Reply, Table
from roost.api.schemas import NULLABLE_STRING, STRING, TRUTH, Schema, array, thing, version_document

routes = Table()

_VERSIONS = thing({"versions": array(version_document())})
_READ_ONLY = {"readOnly": True}
_PROPERTIES: dict[str, Schema] = {
    **{key: {**STRING, **_READ_ONLY} for key in ("status", "created_at", "updated_at", "self", "file", "schema")},
    "id": STRING,
    "name": NULLABLE_STRING,
    "visibility": {"type": "string", "enum": ["public", "private", "shared", "community"]},
    "container_format": {"type": ["string", "null"], "enum": [None, "bare"]},
    "disk_format": {"type": ["string", "null"], "enum": [None, "qcow2"]},
    "owner": NULLABLE_STRING,
    "checksum": {**NULLABLE_STRING, **_READ_ONLY},
    "size": {"type": ["integer", "null"], **_READ_ONLY},
    "min_disk": {"type": "integer"},
    "min_ram": {"type": "integer"},
    "protected": TRUTH,
    "tags": array(STRING),
}
_IMAGE: Schema = {"name": "image", "properties": _PROPERTIES, "additionalProperties": STRING}
_IMAGES: Schema = {
    "name": "images",
    "properties": {"images": {"type": "array", "items": _IMAGE}, "first": STRING, "next": STRING, "schema": STRING},
}
_SCHEMA: Schema = {"type": "object"}


@routes.get("/", public=True, status=300, response=_VERSIONS)
@routes.get("/versions", public=True, status=300, response=_VERSIONS)
async def index(call: Call) -> Reply:
    """The one version that the reads belong to."""
    links = [{"rel": "self", "href": f"{call.base}/v2/"}]
    return JSONResponse({"versions": [{"id": "v2.0", "status": "CURRENT", "links": links}]}, 300)


@routes.get("/v2/schemas/image", rule="get_image", response=_SCHEMA)
async def show_image(call: Call) -> Reply:
    """What an image looks like."""
    return _IMAGE


@routes.get("/v2/schemas/images", rule="get_images", response=_SCHEMA)
async def show_images(call: Call) -> Reply:
    """What a list of images looks like."""
    return _IMAGES
