"""The OpenAPI document of every version is valid, and says exactly what is served."""

from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from roost.api import openapi
from roost.api.app import APIS
from roost.api.clustering import CLUSTERING_API
from roost.api.compute import COMPUTE_API
from roost.api.frame import Api as Frame
from roost.api.versions import Version
from tests.conftest import Api


def changes(api: Frame) -> list[Version]:
    """Every version in which the table of an API differs from the one before, and the newest."""
    negotiation = api.negotiation
    if negotiation is None:
        return [Version(0, 0)]
    starts = {route.since for route in api.table.routes}
    starts |= {Version(route.until.major, route.until.minor + 1) for route in api.table.routes if route.until}
    return sorted(
        {version for version in starts if negotiation.serves(version)} | {negotiation.oldest, negotiation.newest}
    )


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_the_document_of_every_version_that_changes_something_is_valid(api: Frame) -> None:
    seen: set[str] = set()
    for version in changes(api):
        document = openapi.document(api, version, "http://roost.test")
        for path, methods in document["paths"].items():
            # What is as it was before need not be looked at again.
            said = {
                method: f"{method} {path} {operation['responses']} {operation.get('requestBody')}"
                for method, operation in methods.items()
            }
            document["paths"][path] = {method: methods[method] for method, words in said.items() if words not in seen}
            seen.update(said.values())
        OpenAPIV31SpecValidator(document).validate()


async def described(api: Api, **query: str) -> dict[str, Any]:
    answer = await api.get("/compute/openapi.json", cloud=None, params=query)
    assert answer.status_code == 200
    body: dict[str, Any] = answer.json()
    return body


async def test_it_is_served_without_a_token_for_the_version_asked_for(api: Api) -> None:
    for version in ("2.1", "2.64", "2.104", "2.1003"):
        document = await described(api, version=version)
        OpenAPIV31SpecValidator(document).validate()
        assert document["info"]["title"] == f"Roost compute API, microversion {version}"
        assert document["servers"] == [{"url": "http://roost.test/compute"}]
    assert (await described(api))["info"]["title"].endswith("2.1003")


async def test_it_says_what_is_served_in_that_version_and_nothing_else(api: Api) -> None:
    for version in (Version(2, 1), Version(2, 64), Version(2, 1003)):
        paths = (await described(api, version=str(version)))["paths"]
        said = {(method.upper(), path) for path, methods in paths.items() for method in methods}
        served = {(route.method, route.path or "/") for route in COMPUTE_API.table.routes if route.serves(version)}
        assert said == served


async def test_operations_have_names_of_their_own(api: Api) -> None:
    paths = (await described(api))["paths"]
    names = [operation["operationId"] for methods in paths.values() for operation in methods.values()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("version", "status", "name", "message"),
    [
        (
            "2.999",
            406,
            "computeFault",
            "Version 2.999 is not supported by the API. Minimum is 2.1 and maximum is 2.1003.",
        ),
        ("x", 400, "badRequest", "API Version String x is of invalid format. Must be of format MajorNum.MinorNum."),
    ],
)
async def test_a_version_that_there_is_not_is_refused(
    api: Api, version: str, status: int, name: str, message: str
) -> None:
    answer = await api.get("/compute/openapi.json", cloud=None, params={"version": version})
    assert answer.json() == {name: {"code": status, "message": message}}


def test_from_what_a_request_makes_links_lead_to_whatever_takes_its_id() -> None:
    paths = openapi.document(CLUSTERING_API, Version(1, 14), "http://roost.test")["paths"]
    links = paths["/v1/clusters"]["post"]["responses"]["202"]["links"]
    led = {name for path, methods in paths.items() if "{cluster_id}" in path for name in map(_name, methods.values())}
    assert set(links) == led
    assert len(led) > 5
    assert all(link["operationId"] == name for name, link in links.items())
    assert {str(link["parameters"]) for link in links.values()} == {
        "{'cluster_id': '$response.body#/cluster/id'}",
    }
    started = paths["/v1/clusters/{cluster_id}/actions"]["post"]["responses"]["202"]["links"]
    assert started["actions_show_get_v1_actions_action_id"]["parameters"] == {"action_id": "$response.body#/action"}
    assert "links" not in paths["/v1/policies/validate"]["post"]["responses"]["200"], "it makes nothing"


def test_links_keep_what_a_path_has_said_already() -> None:
    paths = openapi.document(COMPUTE_API, Version(2, 1003), "http://roost.test")["paths"]
    made = paths["/v2.1/os-server-groups/{server_group_id}/repairs"]["post"]["responses"]["200"]["links"]
    assert [link["parameters"] for link in made.values()] == 3 * [
        {"server_group_id": "$request.path.server_group_id", "repair_id": "$response.body#/repair/id"}
    ]


def _name(operation: dict[str, Any]) -> str:
    return str(operation["operationId"])


async def test_the_clustering_api_describes_itself_too(api: Api) -> None:
    answer = await api.get("/clustering/openapi.json", cloud=None, params={"version": "1.5"})
    assert answer.json()["info"]["title"] == "Roost clustering API, microversion 1.5"
    refused = await api.get("/clustering/openapi.json", cloud=None, params={"version": "1.15"})
    assert refused.status_code == 406
    assert refused.json()["error"]["message"].startswith("Version '1.15' is not supported by the API.")
