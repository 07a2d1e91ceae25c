"""Profiles over HTTP: what clients send, what they get, and the words of every refusal."""

from typing import Any

import pytest
from sqlalchemy import text

from tests.conftest import Api, without_names

PATH = "/clustering/v1/profiles"
SPEC: dict[str, Any] = {
    "type": "os.nova.server",
    "version": "1.0",
    "properties": {"flavor": "1", "name": "new-server-test", "networks": [{"network": "private"}]},
}
STACK = {"type": "os.heat.stack", "version": "1.0", "properties": {"template": {"heat_template_version": "2014"}}}
BOGUS = {**SPEC, "properties": {**SPEC["properties"], "bogus": "foo"}}
UNKNOWN = {**SPEC, "type": "senlin.profile.bogus"}
GONE = "b6e7911d-5f65-4ec6-a08b-b88809fe2b9e"


async def create(api: Api, name: str = "mine", spec: Any = SPEC, **more: Any) -> dict[str, Any]:
    answer = await api.post(PATH, {"profile": {"name": name, "spec": spec, **more}})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()["profile"]
    return found


async def test_a_profile_is_made_shown_changed_and_deleted(api: Api) -> None:
    made = await create(api, metadata={"k": "v"})
    assert sorted(made) == sorted(
        ["id", "name", "type", "spec", "metadata", "user", "project", "domain", "created_at", "updated_at"]
    )
    assert (made["type"], made["spec"], made["metadata"]) == ("os.nova.server-1.0", SPEC, {"k": "v"})
    assert (await api.get(f"{PATH}/{made['id'][:7]}")).json() == {"profile": made}
    changed = await api.patch(f"{PATH}/mine", {"profile": {"name": "ours", "metadata": {"a": "b"}}})
    assert changed.status_code == 200
    assert (changed.json()["profile"]["name"], changed.json()["profile"]["metadata"]) == ("ours", {"a": "b"})
    assert (await api.delete(f"{PATH}/ours")).status_code == 204
    assert (await api.get(PATH)).json() == {"profiles": []}


async def test_types_that_are_known_but_not_supported_can_be_kept(api: Api) -> None:
    assert (await create(api, "stack", STACK))["type"] == "os.heat.stack-1.0"


async def test_a_spec_is_validated_without_making_a_profile(api: Api) -> None:
    found = (await api.post(f"{PATH}/validate", {"profile": {"spec": SPEC}}, version="1.2")).json()["profile"]
    assert (found["id"], found["name"], found["metadata"]) == (None, "validated_profile", None)
    assert (await api.get(PATH)).json() == {"profiles": []}


async def test_a_profile_that_is_used_stays(api: Api) -> None:
    made = await create(api)
    columns = "id, name, profile_id, status, user_id, project_id"
    insert = f"INSERT INTO nodes ({columns}) VALUES ('n', 'n', :id, 'ACTIVE', 'u', :p)"
    async with api.services.database.begin() as connection:
        await connection.execute(text(insert), {"id": made["id"], "p": made["project"]})
    answer = await api.delete(f"{PATH}/{made['id']}")
    assert answer.status_code == 409
    message = f"The profile '{made['id']}' cannot be deleted: still referenced by some clusters and/or nodes."
    assert answer.json()["error"]["message"] == message


async def test_a_change_that_changes_nothing_is_refused(api: Api) -> None:
    made = await create(api)
    for change in ({}, {"name": "mine"}, {"name": None}):
        answer = await api.patch(f"{PATH}/{made['id']}", {"profile": change})
        assert answer.status_code == 400
        assert answer.json()["error"]["message"] == "No property needs an update."


MISSING = "'{}' is a required property"
EXTRA = "Additional properties are not allowed ('boo' was unexpected)"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("POST", "", {"profile": {"name": "bar"}}, 400, MISSING.format("spec")),
        ("POST", "", {"profile": {"spec": SPEC}}, 400, MISSING.format("name")),
        ("POST", "", {"profile": {"name": "bar", "spec": {}, "boo": "foo"}}, 400, EXTRA),
        (
            "POST",
            "",
            {"profile": {"name": "bar", "spec": UNKNOWN}},
            404,
            "The profile_type 'senlin.profile.bogus-1.0' could not be found.",
        ),
        (
            "POST",
            "",
            {"profile": {"name": "bar", "spec": BOGUS}},
            400,
            "Failed in creating profile bar: Unrecognizable spec item 'bogus'",
        ),
        ("POST", "", {}, 400, "Request body missing 'profile' key."),
        ("POST", "/validate", {}, 400, "Request body missing 'profile' key."),
        ("POST", "/validate", {"profile": {}}, 400, MISSING.format("spec")),
        ("POST", "/validate", {"profile": {"spec": BOGUS}}, 400, "Unrecognizable spec item 'bogus'"),
        (
            "POST",
            "/validate",
            {"profile": {"spec": UNKNOWN}},
            404,
            "The profile_type 'senlin.profile.bogus-1.0' could not be found.",
        ),
        ("GET", f"/{GONE}", None, 404, f"The profile '{GONE}' could not be found."),
        ("DELETE", f"/{GONE}", None, 404, f"The profile '{GONE}' could not be found."),
        ("PATCH", f"/{GONE}", {"profile": {"name": "n"}}, 404, f"The profile '{GONE}' could not be found."),
        ("PATCH", f"/{GONE}", {}, 400, "Malformed request data, missing 'profile' key in request body."),
        (
            "PATCH",
            f"/{GONE}",
            {"profile": {"spec": SPEC}},
            400,
            "Additional properties are not allowed ('spec' was unexpected)",
        ),
        ("GET", "?bogus=foo", None, 400, "Invalid parameter bogus"),
        ("GET", "?limit=not-int", None, 400, "The value for limit must be an integer: 'not-int'."),
        ("GET", "?global_project=not-bool", None, 400, "Invalid value 'not-bool' specified for 'global_project'"),
        ("GET", "?sort=bad-sort", None, 400, "Unsupported sort key 'bad-sort' for 'sort'."),
        ("GET", "?marker=bad-marker", None, 400, "The value for marker is not a valid UUID: 'bad-marker'."),
    ],
)
async def test_refusals(api: Api, method: str, path: str, body: Any, status: int, message: str) -> None:
    answer = await api.request(method, PATH + path, json=body, version="1.14")
    assert answer.status_code == status, answer.text
    assert without_names(answer.json()["error"]["message"]) == message
    assert (await api.get(PATH)).json() == {"profiles": []}


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"flavor": "mars"}, "The specified flavor 'mars' could not be found."),
        ({"image": "mars"}, "The specified image 'mars' could not be found."),
        ({"key_name": "mars"}, "The specified key_name 'mars' could not be found."),
        ({"availability_zone": "mars"}, "The specified availability_zone 'mars' could not be found."),
        ({"networks": [{"network": "mars"}]}, "The specified network mars could not be found."),
        ({"networks": [{}]}, "One of 'port' and 'network' must be provided"),
    ],
)
async def test_what_the_cloud_does_not_have_is_refused(api: Api, properties: dict[str, Any], message: str) -> None:
    spec = {**SPEC, "properties": {**SPEC["properties"], **properties}}
    answer = await api.post(PATH, {"profile": {"name": "bar", "spec": spec}})
    assert answer.status_code == 400
    assert answer.json()["error"] == {
        "code": 400,
        "message": f"Failed in creating profile bar: {message}",
        "type": "InvalidSpec",
    }


async def test_only_an_administrator_sees_all_projects(api: Api) -> None:
    answer = await api.get(f"{PATH}?global_project=True", cloud="roost")
    assert answer.status_code == 403
    assert answer.json()["error"]["message"] == "You are not authorized to complete this operation."
