"""An OpenAPI 3.1 document for one version of an API, made from its route table: it cannot say what is not served."""

import re
from typing import Any

from roost import __version__
from roost.api.frame import Api
from roost.api.routes import Route
from roost.api.schemas import Schema
from roost.api.versions import Version


def document(api: Api, version: Version, base: str) -> dict[str, Any]:
    """Describe every route that is served in `version`."""
    paths: dict[str, dict[str, Any]] = {}
    for route in api.table.routes:
        if route.serves(version):
            # Of two rows for one version the first answers, so the first is described.
            paths.setdefault(route.path or "/", {}).setdefault(route.method.lower(), _operation(api, route, version))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": f"Roost {api.name} API, microversion {version}",
            "version": __version__,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": base}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "apiKey", "in": "header", "name": "X-Auth-Token"}},
            "schemas": {"Error": {"type": "object"}},
        },
    }


def _operation(api: Api, route: Route, version: Version) -> dict[str, Any]:
    summary = (route.handler.__doc__ or route.handler.__name__).strip().splitlines()[0]
    module = route.handler.__module__.rpartition(".")[2]
    operation: dict[str, Any] = {
        "operationId": f"{module}_{route.handler.__name__}_{route.method.lower()}_{_slug(route.path)}",
        "tags": [module],
        "summary": summary,
        "parameters": [*_path_parameters(route), *_query_parameters(route), *_version_parameter(api, route, version)],
        "responses": _responses(route, version),
        "security": [] if route.public else [{"token": []}],
    }
    body = route.body.schema if route.body is not None else route.described
    if body is not None:
        operation["requestBody"] = {"required": True, "content": _json(body)}
    return operation


def _slug(path: str) -> str:
    return re.sub(r"\W+", "_", path).strip("_") or "root"


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    names = re.findall(r"{(\w+)}", route.path)
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    properties = route.query.schema.get("properties", {}) if route.query else {}
    return [{"name": name, "in": "query", "schema": schema} for name, schema in properties.items()]


def _version_parameter(api: Api, route: Route, version: Version) -> list[dict[str, Any]]:
    if api.negotiation is None or route.public:
        return []
    schema = {"type": "string", "const": f"{api.negotiation.service} {version}"}
    return [{"name": "OpenStack-API-Version", "in": "header", "required": True, "schema": schema}]


def _responses(route: Route, version: Version) -> dict[str, Any]:
    done = {str(status): _done(schema) for status, schema in route.answers(version).items()}
    return {**done, "4XX": _error("The request was refused.")}


def _done(schema: Schema | None) -> dict[str, Any]:
    return {"description": "Done."} if schema is None else {"description": "Done.", "content": _json(schema)}


def _error(description: str) -> dict[str, Any]:
    return {"description": description, "content": _json({"$ref": "#/components/schemas/Error"})}


def _json(schema: Schema) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
