"""An OpenAPI 3.1 document for one version of an API, made from its route table: it cannot say what is not served."""

import re
from collections.abc import Iterable
from typing import Any

from roost import __version__
from roost.api import schemas
from roost.api.frame import Api
from roost.api.routes import Call, Route
from roost.api.schemas import Schema
from roost.api.versions import Version
from roost.errors import NotAcceptable

DOCUMENT: Schema = {"type": "object", "required": ["openapi", "info", "paths"]}
"""What a document looks like."""


def document(api: Api, version: Version, base: str) -> dict[str, Any]:
    """Describe every route that is served in `version`."""
    paths: dict[str, dict[str, Any]] = {}
    served: dict[tuple[str, str], Route] = {}
    for route in api.table.routes:
        if route.serves(version):
            # Of two rows for one version the first answers, so the first is described.
            served.setdefault((route.method, route.path), route)
    for route in served.values():
        operation = _operation(api, route, version)
        links = _links(route, version, served.values())
        if links:
            operation["responses"][str(route.status)]["links"] = links
        paths.setdefault(route.path or "/", {})[route.method.lower()] = operation
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


def answer(api: Api, call: Call) -> dict[str, Any]:
    """The document that a request asks for: `?version=2.64`, by default that of the newest version."""
    assert api.negotiation is not None
    version = Version.parse(call.query.get("version", str(api.negotiation.newest)))
    if not api.negotiation.serves(version):
        raise NotAcceptable(api.negotiation.unsupported(version))
    return document(api, version, call.base)


def _operation(api: Api, route: Route, version: Version) -> dict[str, Any]:
    summary = (route.handler.__doc__ or route.handler.__name__).strip().splitlines()[0]
    operation: dict[str, Any] = {
        "operationId": _name(route),
        "tags": [_module(route)],
        "summary": summary,
        "parameters": [*_path_parameters(route), *_query_parameters(route), *_version_parameter(api, route, version)],
        "responses": _responses(route, version),
        "security": [] if route.public else [{"token": []}],
    }
    body = route.body.schema if route.body is not None else route.described
    if body is not None:
        operation["requestBody"] = {"required": True, "content": _json(body)}
    return operation


def _name(route: Route) -> str:
    slug = re.sub(r"\W+", "_", route.path).strip("_") or "root"
    return f"{_module(route)}_{route.handler.__name__}_{route.method.lower()}_{slug}"


def _module(route: Route) -> str:
    return route.handler.__module__.rpartition(".")[2]


def _variables(path: str) -> list[str]:
    return re.findall(r"{(\w+)}", path)


def _links(route: Route, version: Version, served: Iterable[Route]) -> dict[str, Any]:
    """Where one can go on with what a POST has made: to every route that takes its id."""
    made = _made(route, version) if route.method == "POST" else {}
    links = {}
    for other in served:
        taken = {name: made[name] for name in _variables(other.path) if name in made}
        if taken:
            here = {name: f"$request.path.{name}" for name in _variables(route.path) if name in _variables(other.path)}
            links[_name(other)] = {"operationId": _name(other), "parameters": {**here, **taken}}
    return links


def _made(route: Route, version: Version) -> dict[str, str]:
    """The variables of paths that an answer fills, with where in it each stands.

    Of `{"server": {"id": ...}}` that is `server_id`; of `{"action": ...}`, which is an id itself, `action_id`.
    """
    answer = route.answers(version)[route.status] or {}
    found = {}
    for shape in answer.get("oneOf", [answer]):
        for key, value in shape.get("properties", {}).items():
            if value.get("format") == "uuid":
                found[f"{key}_id"] = f"$response.body#/{key}"
            elif value.get("properties", {}).get("id", schemas.NULL) != schemas.NULL:
                found[f"{key}_id"] = f"$response.body#/{key}/id"
    return found


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [{"name": name, "in": "path", "required": True, "schema": schemas.STRING} for name in _variables(route.path)]


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
