"""What versions of the image API there are, and what its things look like to clients that ask."""

from starlette.responses import JSONResponse

from roost.api.image import metadefs
from roost.api.image.images import GIVEN
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import NULLABLE_STRING, STRING, TRUTH, Schema, array, thing, version_document

routes = Table()

_VERSIONS = thing({"versions": array(version_document())})
_READ_ONLY = {"readOnly": True}
_PROPERTIES: dict[str, Schema] = {
    **{key: {**STRING, **_READ_ONLY} for key in ("status", "created_at", "updated_at", "self", "file", "schema")},
    **{key: {**NULLABLE_STRING, **_READ_ONLY} for key in ("checksum", "os_hash_algo", "os_hash_value")},
    **{key: {"type": ["integer", "null"], **_READ_ONLY} for key in ("size", "virtual_size")},
    **{key: {**TRUTH, **schema} for key, schema in GIVEN.items() if key in ("protected", "os_hidden")},
    **{key: schema for key, schema in GIVEN.items() if key not in ("protected", "os_hidden")},
    "id": STRING,
}
_MEMBER: Schema = {
    "name": "member",
    "properties": {
        **dict.fromkeys(("created_at", "image_id", "member_id", "schema", "updated_at"), STRING),
        "status": {"type": "string", "enum": ["pending", "accepted", "rejected"]},
    },
}
_IMAGE: Schema = {"name": "image", "properties": _PROPERTIES, "additionalProperties": STRING}
_PAGES = {**dict.fromkeys(("first", "next", "schema"), STRING)}
_DOCUMENTS: dict[str, Schema] = {
    "image": _IMAGE,
    "images": {"name": "images", "properties": {"images": {"type": "array", "items": _IMAGE}, **_PAGES}},
    "member": _MEMBER,
    "members": {
        "name": "members",
        "properties": {"members": {"type": "array", "items": _MEMBER}, "schema": STRING},
    },
    **{f"metadefs/{name}": document for name, document in metadefs.DOCUMENTS.items()},
}
_SCHEMA: Schema = {"type": "object"}


@routes.get("/", public=True, status=300, response=_VERSIONS)
@routes.get("/versions", public=True, status=300, response=_VERSIONS)
async def index(call: Call) -> Reply:
    """The versions that are served: as many as their parts ask for."""
    links = [{"rel": "self", "href": f"{call.base}/v2/"}]
    versions = [
        {"id": f"v2.{minor}", "status": "CURRENT" if minor == _NEWEST else "SUPPORTED", "links": links}
        for minor in range(_NEWEST, -1, -1)
    ]
    return JSONResponse({"versions": versions}, 300)


_NEWEST = 7
"""With hidden images and the hash of their data."""


def _document(name: str) -> None:
    @routes.get(f"/v2/schemas/{name}", rule="get_image", response=_SCHEMA)
    async def show(call: Call) -> Reply:
        """What it looks like, as a JSON schema."""
        return _DOCUMENTS[name]


for _name in _DOCUMENTS:
    _document(_name)

_IMPORT = thing({"import-methods": thing({"description": STRING, "type": STRING, "value": array(STRING)})})


@routes.get("/v2/info/import", rule="get_image", response=_IMPORT)
async def show_import(call: Call) -> Reply:
    """How images can be imported: not at all, they are uploaded."""
    return {"import-methods": {"description": "Import methods available.", "type": "array", "value": []}}
