"""Application credentials: for one project, with no more than its user has, and no more than its rules name."""

import asyncio
from typing import Any

import pytest

from roost.identity import application_credentials
from tests.api.identity.test_projects_users_and_roles import V3, ids
from tests.api.identity.test_tokens import TOKENS, message
from tests.conftest import Api


async def make(api: Api, cloud: str = "roost", **more: Any) -> dict[str, Any]:
    """One of a user's own."""
    user_id = await own(api, cloud)
    body = {"application_credential": {"name": "ci", **more}}
    answer = await api.post(f"{V3}/users/{user_id}/application_credentials", body, cloud=cloud)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()["application_credential"]
    return made


async def own(api: Api, cloud: str = "roost") -> str:
    """The id of the user of a cloud."""
    subject = await api.token(cloud)
    answer = await api.get(TOKENS, cloud=cloud, headers={"X-Subject-Token": subject})
    return str(answer.json()["token"]["user"]["id"])


def by_credential(given: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A request to sign in with one."""
    named = {key: given[key] for key in ("id", "secret")}
    return {"auth": {"identity": {"methods": ["application_credential"], "application_credential": named}, **more}}


async def test_it_signs_in_for_its_project_with_the_roles_of_its_user(api: Api) -> None:
    made = await make(api, description="for CI")
    answer = await api.post(TOKENS, by_credential(made), cloud=None)
    assert answer.status_code == 201, answer.text
    token = answer.json()["token"]
    assert (token["project"]["name"], token["methods"]) == ("demo", ["application_credential"])
    assert [role["name"] for role in token["roles"]] == ["member", "reader"]
    assert token["application_credential"] == {"id": made["id"], "name": "ci", "restricted": True}
    mine = {"cloud": None, "headers": {"X-Auth-Token": answer.headers["X-Subject-Token"]}}
    assert (await api.get("/compute/v2.1/servers", **mine)).status_code == 200
    by_name = {"name": "ci", "user": {"name": "demo", "domain": {"id": "default"}}, "secret": made["secret"]}
    request = {"auth": {"identity": {"methods": ["application_credential"], "application_credential": by_name}}}
    assert (await api.post(TOKENS, request, cloud=None)).status_code == 201


async def test_the_secret_is_shown_once_and_kept_by_nobody(api: Api) -> None:
    made = await make(api, secret="chosen by the user")
    assert made["secret"] == "chosen by the user"
    path = f"{V3}/users/{await own(api)}/application_credentials"
    assert "secret" not in (await api.get(f"{path}/{made['id']}", cloud="roost")).json()["application_credential"]
    assert [row["name"] for row in (await api.get(path, cloud="roost")).json()["application_credentials"]] == ["ci"]
    again = await api.post(path, {"application_credential": {"name": "ci"}}, cloud="roost")
    assert (await message(again))[0] == 409


@pytest.mark.parametrize("wrong", [{"secret": "wrong"}, {"id": "0" * 32}])
async def test_a_wrong_one_is_refused_as_a_wrong_password_is(api: Api, wrong: dict[str, str]) -> None:
    answer = await api.post(TOKENS, by_credential({**await make(api), **wrong}), cloud=None)
    assert await message(answer) == (401, "The request you have made requires authentication.")


async def test_it_ends_with_its_role_its_user_its_time_and_itself(api: Api) -> None:
    made = await make(api)
    answer = await api.post(TOKENS, by_credential(made), cloud=None)
    mine = {"cloud": None, "headers": {"X-Auth-Token": answer.headers["X-Subject-Token"]}}
    user_id, users = await own(api), await ids(api, "users")
    assert users["demo"] == user_id
    await api.patch(f"{V3}/users/{user_id}", {"user": {"enabled": False}})
    assert (await api.post(TOKENS, by_credential(made), cloud=None)).status_code == 401
    assert (await api.get("/compute/v2.1/servers", **mine)).status_code == 401
    await api.patch(f"{V3}/users/{user_id}", {"user": {"enabled": True}})
    answer = await api.post(TOKENS, by_credential(made), cloud=None)
    mine = {"cloud": None, "headers": {"X-Auth-Token": answer.headers["X-Subject-Token"]}}
    gone = await api.delete(f"{V3}/users/{user_id}/application_credentials/{made['id']}")
    assert gone.status_code == 204
    assert (await api.get("/compute/v2.1/servers", **mine)).status_code == 401
    assert (await api.post(TOKENS, by_credential(made), cloud=None)).status_code == 401


async def test_it_has_no_more_than_its_user_asked_for_and_makes_no_others(api: Api) -> None:
    made = await make(api, roles=[{"name": "reader"}])
    answer = await api.post(TOKENS, by_credential(made), cloud=None)
    assert [role["name"] for role in answer.json()["token"]["roles"]] == ["reader"]
    mine = {"cloud": None, "headers": {"X-Auth-Token": answer.headers["X-Subject-Token"]}}
    path = f"{V3}/users/{await own(api)}/application_credentials"
    for request in ({"name": "another"}, {"name": "admin", "roles": [{"name": "admin"}]}):
        refused = await api.post(path, {"application_credential": request}, **mine)
        assert refused.status_code == 403
    refused = await api.post(
        path, {"application_credential": {"name": "x", "roles": [{"name": "admin"}]}}, cloud="roost"
    )
    assert await message(refused) == (400, "The role admin is not one that the token has.")
    refused = await api.post(path, {"application_credential": {"name": "x", "expires_at": "2020-01-01"}}, cloud="roost")
    assert (await message(refused))[0] == 400
    # Nor is its token a way to another scope.
    other = {"identity": {"methods": ["token"], "token": {"id": answer.headers["X-Subject-Token"]}}}
    assert (await api.post(TOKENS, {"auth": other}, cloud=None)).status_code == 401
    scoped = by_credential(made, scope={"project": {"name": "demo", "domain": {"id": "default"}}})
    assert (await api.post(TOKENS, scoped, cloud=None)).status_code == 401


async def test_access_rules_are_all_that_it_is_good_for(api: Api) -> None:
    rules = [
        {"service": "compute", "method": "GET", "path": "/v2.1/servers"},
        {"service": "compute", "method": "GET", "path": "/v2.1/servers/*"},
    ]
    made = await make(api, access_rules=rules)
    answer = await api.post(TOKENS, by_credential(made), cloud=None)
    secret = answer.headers["X-Subject-Token"]
    mine = {"cloud": None, "headers": {"X-Auth-Token": secret}}
    assert (await api.get("/compute/v2.1/servers", **mine)).status_code == 200
    assert (await api.get("/compute/v2.1/servers/detail", **mine)).status_code == 200
    assert (await api.get("/compute/v2.1/servers/x/metadata", **mine)).status_code == 401
    assert (await api.post("/compute/v2.1/servers", {}, **mine)).status_code == 401
    assert (await api.get("/compute/v2.1/flavors", **mine)).status_code == 401
    assert (await api.get("/image/v2/images", **mine)).status_code == 401
    path = f"{V3}/users/{await own(api)}/access_rules"
    kept = (await api.get(path, cloud="roost")).json()["access_rules"]
    assert {row["path"] for row in kept} == {rule["path"] for rule in rules}
    assert (await message(await api.delete(f"{path}/{kept[0]['id']}", cloud="roost")))[0] == 409
    await api.delete(f"{V3}/users/{await own(api)}/application_credentials/{made['id']}", cloud="roost")
    assert (await api.delete(f"{path}/{kept[0]['id']}", cloud="roost")).status_code == 204
    assert (await message(await api.get(f"{path}/{kept[0]['id']}", cloud="roost")))[0] == 404


async def test_they_are_each_users_own(api: Api) -> None:
    made, path = await make(api), f"{V3}/users/{await own(api)}/application_credentials"
    for cloud in ("roost-alt", "roost-manager"):
        for answer in (
            await api.get(path, cloud=cloud),
            await api.get(f"{path}/{made['id']}", cloud=cloud),
            await api.delete(f"{path}/{made['id']}", cloud=cloud),
            await api.post(path, {"application_credential": {"name": "x"}}, cloud=cloud),
        ):
            assert (await message(answer))[0] == 403
    theirs = f"{V3}/users/{await own(api, 'roost-alt')}/application_credentials/{made['id']}"
    assert (await message(await api.get(theirs, cloud="roost-alt")))[0] == 404


async def test_secrets_cannot_be_guessed_in_masses(api: Api) -> None:
    """Neither of one that there is, by its id or its name, nor of one that there is not; passwords go on."""
    made = await make(api)
    named = {"name": "ci", "user": {"name": "demo", "domain": {"id": "default"}}, "secret": "wrong"}
    by_name = {"auth": {"identity": {"methods": ["application_credential"], "application_credential": named}}}
    guesses = [by_credential({**made, "secret": "wrong"})] * 5 + [by_name] * 5
    for guess in guesses:
        assert (await api.post(TOKENS, guess, cloud=None)).status_code == 401
    for guess in (guesses[0], by_name, by_credential(made)):
        refused = await api.post(TOKENS, guess, cloud=None)
        assert refused.status_code == 429
        assert 0 < int(refused.headers["Retry-After"]) <= 301
    for expected in [401] * 10 + [429]:
        answer = await api.post(TOKENS, by_credential({"id": "0" * 32, "secret": "x"}), cloud=None)
        assert answer.status_code == expected
    other = await make(api, name="other")
    for _ in range(3):
        for _ in range(9):
            await api.post(TOKENS, by_credential({**other, "secret": "wrong"}), cloud=None)
        assert (await api.post(TOKENS, by_credential(other), cloud=None)).status_code == 201


async def test_a_user_has_so_many_and_no_more(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application_credentials, "_MOST", 3)
    path = f"{V3}/users/{await own(api)}/application_credentials"
    bodies = [{"application_credential": {"name": f"ci{number}"}} for number in range(6)]
    made = await asyncio.gather(*(api.post(path, body, cloud="roost") for body in bodies))
    assert sorted(answer.status_code for answer in made) == [201] * 3 + [403] * 3
    rules = [{"service": "compute", "method": "GET", "path": f"/{number}"} for number in range(101)]
    many = {"application_credential": {"name": "x", "access_rules": rules}}
    assert (await api.post(path, many, cloud="roost")).status_code == 400
