"""Projects, users, domains, roles and grants: read by those they concern, changed by admins."""

from typing import Any

import pytest

from tests.api.identity.test_tokens import DEFAULT, TOKENS, by_password, message, project
from tests.conftest import PASSWORDS, Api

V3 = "/identity/v3"
FORBIDDEN = "You are not authorized to perform the requested action: identity:{}."


async def ids(api: Api, what: str) -> dict[str, str]:
    """The id of each project, user or role by its name."""
    return {row["name"]: row["id"] for row in (await api.get(f"{V3}/{what}")).json()[what]}


async def test_an_admin_lists_projects_all_or_by_name(api: Api) -> None:
    answer = await api.get(f"{V3}/projects")
    assert [row["name"] for row in answer.json()["projects"]] == ["admin", "alt", "demo"]
    assert answer.json()["links"] == {"next": None, "self": "http://roost.test/identity/v3/projects", "previous": None}
    (demo,) = (await api.get(f"{V3}/projects", params={"name": "demo"})).json()["projects"]
    assert demo == {
        "id": demo["id"],
        "name": "demo",
        "domain_id": "default",
        "parent_id": "default",
        "description": "",
        "enabled": True,
        "is_domain": False,
        "tags": [],
        "options": {},
        "links": {"self": f"http://roost.test/identity/v3/projects/{demo['id']}"},
    }
    assert (await api.get(f"{V3}/projects", params={"name": "nowhere"})).json()["projects"] == []
    assert (await api.get(f"{V3}/projects", params={"enabled": "False"})).json()["projects"] == []
    assert (await api.get(f"{V3}/projects/{demo['id']}")).json() == {"project": demo}


@pytest.mark.parametrize(
    ("path", "kind"), [("projects", "project"), ("users", "user"), ("roles", "role"), ("domains", "domain")]
)
async def test_a_name_is_not_an_id(api: Api, path: str, kind: str) -> None:
    answer = await api.get(f"{V3}/{path}/demo")
    assert await message(answer) == (404, f"Could not find {kind}: demo.")


async def test_a_user_reads_its_own_project_and_itself_and_nothing_else(api: Api) -> None:
    projects, users = await ids(api, "projects"), await ids(api, "users")
    for path in (f"projects/{projects['demo']}", f"users/{users['demo']}", f"users/{users['demo']}/projects"):
        assert (await api.get(f"{V3}/{path}", cloud="roost")).status_code == 200
    for path, rule in (
        ("projects", "list_projects"),
        (f"projects/{projects['alt']}", "get_project"),
        ("projects/unknown", "get_project"),
        ("users", "list_users"),
        (f"users/{users['alt']}", "get_user"),
        ("users/unknown", "get_user"),
        (f"users/{users['alt']}/projects", "list_user_projects"),
        ("roles", "list_roles"),
        ("domains", "list_domains"),
    ):
        answer = await api.get(f"{V3}/{path}", cloud="roost")
        assert await message(answer) == (403, FORBIDDEN.format(rule))


async def test_the_projects_one_may_sign_in_for_are_ones_own(api: Api) -> None:
    answer = await api.get(f"{V3}/auth/projects", cloud="roost")
    assert [row["name"] for row in answer.json()["projects"]] == ["demo"]


async def test_the_catalogue_is_that_of_the_token(api: Api) -> None:
    signed_in = await api.post(TOKENS, by_password(scope=project()), cloud=None)
    answer = await api.get(f"{V3}/auth/catalog", cloud="roost")
    assert answer.json()["catalog"] == signed_in.json()["token"]["catalog"]
    unscoped = (await api.post(TOKENS, by_password(), cloud=None)).headers["X-Subject-Token"]
    answer = await api.get(f"{V3}/auth/catalog", cloud=None, headers={"X-Auth-Token": unscoped})
    assert await message(answer) == (403, "A project-scoped token is required to produce a service catalog.")


async def test_there_is_one_domain(api: Api) -> None:
    (domain,) = (await api.get(f"{V3}/domains", params={"name": "Default"})).json()["domains"]
    assert (domain["id"], domain["name"], domain["enabled"]) == ("default", "Default", True)
    assert (await api.get(f"{V3}/domains", params={"name": "other"})).json()["domains"] == []
    assert (await api.get(f"{V3}/domains/default", cloud="roost")).json() == {"domain": domain}


async def test_roles_are_found_by_name_and_their_ids_are_those_in_tokens(api: Api) -> None:
    (member,) = (await api.get(f"{V3}/roles", params={"name": "member"})).json()["roles"]
    token = (await api.post(TOKENS, by_password(scope=project()), cloud=None)).json()["token"]
    assert {"id": member["id"], "name": "member"} in token["roles"]
    assert list(await ids(api, "roles")) == ["admin", "manager", "member", "reader", "service"]
    assert (await api.get(f"{V3}/roles/{member['id']}")).json() == {"role": member}


async def test_an_admin_makes_a_user_and_a_project_and_brings_them_together(api: Api) -> None:
    made = await api.post(f"{V3}/projects", {"project": {"name": "engines", "domain_id": "default"}})
    assert made.status_code == 201
    project_id = made.json()["project"]["id"]
    made = await api.post(
        f"{V3}/users", {"user": {"name": "ada", "password": "lovelace", "domain_id": "default", "email": "a@b"}}
    )
    assert made.status_code == 201
    assert "lovelace" not in made.text
    user_id = made.json()["user"]["id"]
    ada = {"name": "ada", "domain": DEFAULT, "password": "lovelace"}
    request = by_password(ada, project("engines"))
    assert (await api.post(TOKENS, request, cloud=None)).status_code == 401

    member = (await ids(api, "roles"))["member"]
    grant = f"{V3}/projects/{project_id}/users/{user_id}/roles/{member}"
    missing = (
        f"Could not find role assignment with role: {member}, user or group: {user_id}, "
        f"project, domain, or system: {project_id}."
    )
    assert await message(await api.get(grant)) == (404, missing)
    for _ in range(2):
        answer = await api.put(grant)
        assert (answer.status_code, answer.content) == (204, b"")
    assert (await api.request("HEAD", grant)).status_code == 204
    granted = (await api.get(f"{V3}/projects/{project_id}/users/{user_id}/roles")).json()["roles"]
    assert [role["name"] for role in granted] == ["member"]
    signed_in = await api.post(TOKENS, request, cloud=None)
    assert signed_in.status_code == 201
    headers = {"X-Auth-Token": signed_in.headers["X-Subject-Token"]}
    own = f"{V3}/projects/{project_id}"
    assert (await api.get(own, cloud=None, headers=headers)).status_code == 200

    assert (await api.delete(grant)).status_code == 204
    assert await message(await api.delete(grant)) == (404, missing)
    assert (await api.get(own, cloud=None, headers=headers)).status_code == 401
    assert (await api.delete(f"{V3}/users/{user_id}")).status_code == 204
    assert (await api.delete(own)).status_code == 204
    assert (await api.delete(own)).status_code == 404
    assert (await api.post(TOKENS, request, cloud=None)).status_code == 401


async def test_a_new_password_or_state_ends_the_users_tokens(api: Api) -> None:
    user = f"{V3}/users/{(await ids(api, 'users'))['demo']}"
    for change in ({"password": "new"}, {"enabled": False}):
        await api.patch(user, {"user": {"enabled": True, "password": PASSWORDS["demo"]}})
        secret = (await api.post(TOKENS, by_password(scope=project()), cloud=None)).headers["X-Subject-Token"]
        assert (await api.patch(user, {"user": change})).status_code == 200
        answer = await api.get("/image/v2/images", cloud=None, headers={"X-Auth-Token": secret})
        assert answer.status_code == 401


async def test_a_user_changes_its_own_password(api: Api) -> None:
    path = f"{V3}/users/{(await ids(api, 'users'))['demo']}/password"
    secret = await api.token("roost")
    change = {"user": {"original_password": PASSWORDS["demo"], "password": "new"}}
    wrong = {"user": {"original_password": "wrong", "password": "new"}}
    assert (await api.post(path, wrong, cloud=None)).status_code == 401
    assert (await api.post(path, change, cloud=None)).status_code == 204
    assert (await api.post(path, change, cloud=None)).status_code == 401
    assert (await api.get("/image/v2/images", cloud=None, headers={"X-Auth-Token": secret})).status_code == 401
    person = {"name": "demo", "domain": DEFAULT, "password": "new"}
    assert (await api.post(TOKENS, by_password(person), cloud=None)).status_code == 201


async def test_a_project_is_renamed_described_and_disabled(api: Api) -> None:
    path = f"{V3}/projects/{(await ids(api, 'projects'))['demo']}"
    await api.token("roost")
    changed = await api.patch(path, {"project": {"name": "shown", "description": "for guests", "enabled": False}})
    assert changed.status_code == 200
    body = changed.json()["project"]
    assert (body["name"], body["description"], body["enabled"]) == ("shown", "for guests", False)
    assert (await api.get(path, cloud="roost")).status_code == 401
    assert (await api.patch(path, {"project": {"description": None}})).json()["project"]["description"] == ""


@pytest.mark.parametrize(
    ("method", "path", "rule"),
    [
        ("POST", "projects", "create_project"),
        ("PATCH", "projects/x", "update_project"),
        ("DELETE", "projects/x", "delete_project"),
        ("POST", "users", "create_user"),
        ("PATCH", "users/x", "update_user"),
        ("DELETE", "users/x", "delete_user"),
        ("PUT", "projects/x/users/x/roles/x", "create_grant"),
        ("DELETE", "projects/x/users/x/roles/x", "revoke_grant"),
    ],
)
async def test_only_admins_change_anything(api: Api, method: str, path: str, rule: str) -> None:
    answer = await api.request(method, f"{V3}/{path}", cloud="roost-manager", json={})
    assert await message(answer) == (403, FORBIDDEN.format(rule))


@pytest.mark.parametrize(
    ("path", "body", "status", "expected"),
    [
        ("projects", {"project": {"name": "demo"}}, 409, "Conflict occurred attempting to store project - "),
        ("users", {"user": {"name": "demo"}}, 409, "Conflict occurred attempting to store user - Duplicate entry "),
        ("users", {"user": {}}, 400, "Invalid input for field 'user': 'name' is a required property"),
        ("users", {"user": {"name": ""}}, 400, "Invalid input for field 'user/name': '' should be non-empty"),
        ("users", {"user": {"name": "x", "enabled": "no"}}, 400, "Invalid input for field 'user/enabled': 'no' is not"),
        ("users", {"user": {"name": "x", "domain_id": "other"}}, 404, "Could not find domain: other."),
        ("projects", {"project": {"name": "x" * 65}}, 400, "Invalid input for field 'project/name': "),
        ("users", {"user": {"name": "zero \0"}}, 400, "Malformed request body"),
    ],
)
async def test_what_cannot_be_made_is_refused(api: Api, path: str, body: Any, status: int, expected: str) -> None:
    code, words = await message(await api.post(f"{V3}/{path}", body))
    assert code == status
    assert words.startswith(expected)


async def test_a_name_taken_by_another_cannot_be_changed_to(api: Api) -> None:
    for path, kind in (("users", "user"), ("projects", "project")):
        answer = await api.patch(f"{V3}/{path}/{(await ids(api, path))['demo']}", {kind: {"name": "alt"}})
        assert answer.status_code == 409


async def test_a_method_that_a_path_does_not_have_is_405(api: Api) -> None:
    answer = await api.put(f"{V3}/projects")
    assert await message(answer) == (405, "The method is not allowed for the requested URL.")
    assert answer.headers["Allow"] == "GET, POST"
    assert await message(await api.get(f"{V3}/unknown")) == (404, "The resource could not be found.")
