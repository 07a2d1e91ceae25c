"""What versions of the compute API there are, and its OpenAPI document for any one of them."""

from typing import Any

from roost.api import openapi
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import array, thing, version_document
from roost.api.versions import COMPUTE

routes = Table()

_DOCUMENT = version_document("version", "min_version", "updated")
_ONE = thing({"version": _DOCUMENT})


def _document(base: str, identifier: str) -> dict[str, Any]:
    current = identifier == "v2.1"
    return {
        "id": identifier,
        "status": "CURRENT" if current else "DEPRECATED",
        "version": str(COMPUTE.newest) if current else "",
        "min_version": str(COMPUTE.oldest) if current else "",
        "updated": "2013-07-23T11:33:21Z" if current else "2011-01-21T11:33:21Z",
        "links": [{"rel": "self", "href": f"{base}/{'v2.1' if current else 'v2'}/"}],
    }


def _detailed(base: str, identifier: str) -> dict[str, Any]:
    document = _document(base, identifier)
    document["links"].append({"rel": "describedby", "type": "text/html", "href": f"{base}/openapi.json"})
    kind = f"application/vnd.openstack.compute+json;version={identifier[1:]}"
    document["media-types"] = [{"base": "application/json", "type": kind}]
    return document


@routes.get("/", public=True, response=thing({"versions": array(_DOCUMENT)}))
async def index(call: Call) -> Reply:
    """All major versions; v2.0 is listed, as Nova lists it, and answers as v2.1 does."""
    return {"versions": [_document(call.base, "v2.0"), _document(call.base, "v2.1")]}


@routes.get("/v2.1", public=True, response=_ONE)
async def show(call: Call) -> Reply:
    """The current major version, with its range of microversions."""
    return {"version": _detailed(call.base, "v2.1")}


@routes.get("/v2", public=True, response=_ONE)
async def show_legacy(call: Call) -> Reply:
    """The legacy major version."""
    return {"version": _detailed(call.base, "v2.0")}


@routes.get("/openapi.json", public=True, response=openapi.DOCUMENT)
async def describe(call: Call) -> Reply:
    """The OpenAPI document of one microversion: `?version=2.64`, by default the newest."""
    from roost.api.compute import COMPUTE_API

    return openapi.answer(COMPUTE_API, call)
