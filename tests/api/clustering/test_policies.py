"""Policies over HTTP: what clients send, what they get, and the words of every refusal."""

from typing import Any

import pytest
from sqlalchemy import text

from tests.conftest import Api, without_names

PATH = "/clustering/v1/policies"
SPEC: dict[str, Any] = {
    "type": "senlin.policy.scaling",
    "version": "1.0",
    "properties": {
        "event": "CLUSTER_SCALE_IN",
        "adjustment": {"type": "CHANGE_IN_CAPACITY", "number": 1, "min_step": 1, "best_effort": True},
    },
}
BOGUS = {**SPEC, "properties": {**SPEC["properties"], "bogus": "foo"}}
UNKNOWN = {**SPEC, "type": "senlin.policy.bogus"}
GONE = "5591416f-4646-46c2-83b4-231e72aa4bfe"


async def create(api: Api, name: str = "mine", spec: Any = SPEC, **more: Any) -> dict[str, Any]:
    answer = await api.post(PATH, {"policy": {"name": name, "spec": spec}}, **more)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()["policy"]
    return found


async def test_a_policy_is_made_shown_renamed_and_deleted(api: Api) -> None:
    made = await create(api)
    assert sorted(made) == sorted(
        ["id", "name", "type", "spec", "data", "user", "project", "domain", "created_at", "updated_at"]
    )
    assert (made["name"], made["type"], made["spec"], made["data"]) == ("mine", "senlin.policy.scaling-1.0", SPEC, {})
    assert made["updated_at"] is None
    for identity in (made["id"], "mine", made["id"][:8]):
        assert (await api.get(f"{PATH}/{identity}")).json() == {"policy": made}
    renamed = await api.patch(f"{PATH}/mine", {"policy": {"name": "ours"}})
    assert renamed.status_code == 200
    assert renamed.json()["policy"]["name"] == "ours"
    assert renamed.json()["policy"]["updated_at"] is not None
    gone = await api.delete(f"{PATH}/ours")
    assert (gone.status_code, gone.content) == (204, b"")
    assert (await api.get(f"{PATH}/ours")).status_code == 404


async def test_a_spec_is_validated_without_making_a_policy(api: Api) -> None:
    answer = await api.post(f"{PATH}/validate", {"policy": {"spec": {**SPEC, "version": 1.0}}}, version="1.2")
    assert answer.status_code == 200
    found = answer.json()["policy"]
    assert (found["id"], found["name"], found["type"]) == (None, "validated_policy", "senlin.policy.scaling-1.0")
    assert (await api.get(PATH)).json() == {"policies": []}
    older = await api.post(f"{PATH}/validate", {"policy": {"spec": SPEC}}, version="1.1")
    assert older.status_code == 400
    assert older.json()["error"]["message"] == "API version '1.1' is not supported on this method."


async def test_lists_are_filtered_sorted_and_paged(api: Api) -> None:
    for name in ("b", "a", "c"):
        await create(api, name)
    await create(api, "d", {"type": "senlin.policy.deletion", "version": "1.1", "properties": {}})

    async def names(query: str) -> list[str]:
        answer = await api.get(f"{PATH}?{query}")
        assert answer.status_code == 200, answer.text
        return [each["name"] for each in answer.json()["policies"]]

    assert await names("") == ["b", "a", "c", "d"]
    assert await names("sort=name:desc") == ["d", "c", "b", "a"]
    assert await names("name=a&name=b&sort=name") == ["a", "b"]
    assert await names("type=senlin.policy.deletion-1.1&global_project=False") == ["d"]
    first = (await api.get(f"{PATH}?sort=name&limit=2")).json()["policies"]
    assert [each["name"] for each in first] == ["a", "b"]
    assert await names(f"sort=name&limit=2&marker={first[-1]['id']}") == ["c", "d"]


async def test_each_project_has_its_own(api: Api) -> None:
    await create(api, cloud="roost-admin")
    assert (await api.get(PATH, cloud="roost")).json() == {"policies": []}
    assert (await api.get(f"{PATH}/mine", cloud="roost")).status_code == 404
    assert (await api.delete(f"{PATH}/mine", cloud="roost")).status_code == 404
    await create(api, "theirs", cloud="roost")
    everywhere = (await api.get(f"{PATH}?global_project=True&sort=name")).json()["policies"]
    assert [each["name"] for each in everywhere] == ["mine", "theirs"]


async def test_a_policy_that_is_attached_stays(api: Api) -> None:
    made = await create(api)
    async with api.services.database.begin() as connection:
        values = {"p": made["project"], "policy": made["id"]}
        for statement in (
            "INSERT INTO profiles (id, name, type, user_id, project_id) VALUES ('p', 'p', 'x-1.0', 'u', :p)",
            "INSERT INTO clusters (id, name, profile_id, timeout, status, user_id, project_id)"
            " VALUES ('c', 'c', 'p', 1, 'ACTIVE', 'u', :p)",
            "INSERT INTO cluster_policies (id, cluster_id, policy_id, enabled, priority)"
            " VALUES ('b', 'c', :policy, true, 100)",
        ):
            await connection.execute(text(statement), values)
    answer = await api.delete(f"{PATH}/{made['id']}")
    assert answer.status_code == 409
    message = f"The policy '{made['id']}' cannot be deleted: still attached to some clusters."
    assert answer.json()["error"] == {"code": 409, "message": message, "type": "ResourceInUse"}


MISSING = "'{}' is a required property"
EXTRA = "Additional properties are not allowed ('boo' was unexpected)"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("POST", "", {"policy": {"name": "bar"}}, 400, MISSING.format("spec")),
        ("POST", "", {"policy": {"spec": SPEC}}, 400, MISSING.format("name")),
        ("POST", "", {"policy": {"name": "bar", "spec": {}, "boo": "foo"}}, 400, EXTRA),
        ("POST", "", {"policy": {"name": "x y", "spec": SPEC}}, 400, None),
        ("POST", "", {"policy": {"name": "bar", "spec": "text"}}, 400, None),
        (
            "POST",
            "",
            {"policy": {"name": "bar", "spec": {}}},
            400,
            "The 'type' key is missing from the provided spec map.",
        ),
        (
            "POST",
            "",
            {"policy": {"name": "bar", "spec": UNKNOWN}},
            404,
            "The policy_type 'senlin.policy.bogus-1.0' could not be found.",
        ),
        (
            "POST",
            "",
            {"policy": {"name": "bar", "spec": {**SPEC, "version": "9.9"}}},
            404,
            "The policy_type 'senlin.policy.scaling-9.9' could not be found.",
        ),
        ("POST", "", {"policy": {"name": "bar", "spec": BOGUS}}, 400, "Unrecognizable spec item 'bogus'"),
        ("POST", "", {}, 400, "Request body missing 'policy' key."),
        ("POST", "/validate", {}, 400, "Request body missing 'policy' key."),
        ("POST", "/validate", {"policy": {}}, 400, MISSING.format("spec")),
        ("POST", "/validate", {"policy": {"spec": BOGUS}}, 400, "Unrecognizable spec item 'bogus'"),
        (
            "POST",
            "/validate",
            {"policy": {"spec": UNKNOWN}},
            404,
            "The policy_type 'senlin.policy.bogus-1.0' could not be found.",
        ),
        ("GET", f"/{GONE}", None, 404, f"The policy '{GONE}' could not be found."),
        ("DELETE", f"/{GONE}", None, 404, f"The policy '{GONE}' could not be found."),
        ("PATCH", f"/{GONE}", {"policy": {"name": "n"}}, 404, f"The policy '{GONE}' could not be found."),
        ("PATCH", f"/{GONE}", {"policy": {"name": "n", "boo": 1}}, 400, EXTRA),
        ("PATCH", "/x", {}, 400, "Malformed request data, missing 'policy' key in request body."),
        ("PATCH", "/x", {"policy": {}}, 400, MISSING.format("name")),
        ("PATCH", "/x", {"policy": {"name": "n", "spec": SPEC}}, 400, None),
        ("GET", "?boo=foo", None, 400, "Invalid parameter boo"),
        ("GET", "?limit=not-int", None, 400, "The value for limit must be an integer: 'not-int'."),
        ("GET", "?global_project=not-bool", None, 400, "Invalid value 'not-bool' specified for 'global_project'"),
        ("GET", "?sort=bad-sort", None, 400, "Unsupported sort key 'bad-sort' for 'sort'."),
        ("GET", "?marker=bad-marker", None, 400, "The value for marker is not a valid UUID: 'bad-marker'."),
    ],
)
async def test_refusals(api: Api, method: str, path: str, body: Any, status: int, message: str | None) -> None:
    answer = await api.request(method, PATH + path, json=body, version="1.14")
    assert answer.status_code == status, answer.text
    if message is not None:
        assert without_names(answer.json()["error"]["message"]) == message
    assert (await api.get(PATH)).json() == {"policies": []}


async def test_a_name_that_several_have_is_not_enough(api: Api) -> None:
    for _ in range(2):
        await create(api, "p-01")
    message = "Multiple results found matching the query criteria 'p-01'. Please be more specific."
    for answer in (await api.get(f"{PATH}/p-01"), await api.delete(f"{PATH}/p-01")):
        assert answer.status_code == 400
        assert answer.json()["error"]["message"] == message


async def test_only_an_administrator_sees_all_projects(api: Api) -> None:
    answer = await api.get(f"{PATH}?global_project=True", cloud="roost")
    assert answer.status_code == 403
    assert answer.json()["error"]["message"] == "You are not authorized to complete this operation."


async def test_what_the_cloud_does_not_have_is_refused(api: Api) -> None:
    spec = {"type": "senlin.policy.zone_placement", "version": "1.0", "properties": {"zones": [{"name": "mars"}]}}
    answer = await api.post(PATH, {"policy": {"name": "z", "spec": spec}})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == "The specified name '['mars']' could not be found."
    assert answer.json()["error"]["type"] == "InvalidSpec"
    validated = await api.post(f"{PATH}/validate", {"policy": {"spec": spec}}, version="1.2")
    assert (validated.status_code, validated.json()) == (400, answer.json())
