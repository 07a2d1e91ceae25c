"""Signing in, as keystoneauth does it, and what becomes of the token."""

import asyncio
import logging
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from roost import config
from roost.api.app import App, make_services
from roost.api.auth import RoostAuthenticator
from roost.identity import tokens
from roost.store.database import Database
from tests.conftest import PASSWORDS, Api

TOKENS = "/identity/v3/auth/tokens"
DEFAULT = {"id": "default"}
REFUSED = {
    "error": {"code": 401, "title": "Unauthorized", "message": "The request you have made requires authentication."}
}


def by_password(user: dict[str, Any] | None = None, scope: Any = None, **more: Any) -> dict[str, Any]:
    """A request to sign in: as `demo` for `demo`, unless the arguments say otherwise."""
    person = user or {"name": "demo", "domain": DEFAULT, "password": PASSWORDS["demo"]}
    auth: dict[str, Any] = {"identity": {"methods": ["password"], "password": {"user": person}}, **more}
    return {"auth": auth | ({"scope": scope} if scope is not None else {})}


def by_token(secret: str, scope: Any = None) -> dict[str, Any]:
    """A request for another token."""
    auth: dict[str, Any] = {"identity": {"methods": ["token"], "token": {"id": secret}}}
    return {"auth": auth | ({"scope": scope} if scope is not None else {})}


def project(name: str = "demo") -> dict[str, Any]:
    """A project's scope, by name."""
    return {"project": {"name": name, "domain": {"name": "Default"}}}


async def sign_in(api: Api, body: dict[str, Any], **more: Any) -> tuple[str, dict[str, Any]]:
    """The secret and the token of a request that must succeed."""
    answer = await api.post(TOKENS, body, cloud=None, **more)
    assert answer.status_code == 201, answer.text
    return answer.headers["X-Subject-Token"], answer.json()["token"]


async def message(answer: httpx.Response) -> tuple[int, str]:
    """The status and the message of a refusal, in Keystone's form."""
    error = answer.json()["error"]
    assert error.keys() == {"code", "title", "message"}
    assert error["code"] == answer.status_code
    return error["code"], error["message"]


async def test_a_password_gives_a_token_for_a_project(api: Api) -> None:
    secret, token = await sign_in(api, by_password(scope=project()))
    assert len(secret) == 43
    assert token["methods"] == ["password"]
    assert token["user"]["name"] == "demo"
    assert token["user"]["domain"] == {"id": "default", "name": "Default"}
    assert token["project"]["name"] == "demo"
    assert token["is_domain"] is False
    assert [role["name"] for role in token["roles"]] == ["member", "reader"]
    assert len(token["audit_ids"]) == 1
    assert token["expires_at"] > token["issued_at"]
    assert (await api.get("/compute/v2.1/flavors", cloud=None, headers={"X-Auth-Token": secret})).status_code != 401


async def test_the_catalogue_names_each_api_where_every_client_looks_for_it(api: Api) -> None:
    _, token = await sign_in(api, by_password(scope=project()))
    urls = {
        (service["type"], endpoint["interface"]): endpoint["url"]
        for service in token["catalog"]
        for endpoint in service["endpoints"]
    }
    paths = {"identity": "/identity", "compute": "/compute/v2.1", "clustering": "/clustering", "image": "/image"}
    paths |= {"network": "/network", "block-storage": "/volume/v3", "volumev3": "/volume/v3"}
    assert urls == {
        (kind, interface): f"http://roost.test{path}"
        for kind, path in paths.items()
        for interface in ("public", "internal", "admin")
    }
    endpoints = [endpoint for service in token["catalog"] for endpoint in service["endpoints"]]
    assert {(endpoint["region"], endpoint["region_id"]) for endpoint in endpoints} == {("RegionOne", "RegionOne")}
    assert len({endpoint["id"] for endpoint in endpoints}) == len(endpoints)
    _, again = await sign_in(api, by_password(scope=project()))
    assert again["catalog"] == token["catalog"]


async def test_the_catalogue_names_the_operators_address_and_region(database: Database, database_url: str) -> None:
    loaded = config.load(api__public_url="https://cloud.example/", api__region="north")
    app = App(make_services(config.with_database(loaded, database_url), database), RoostAuthenticator(database, 0))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://roost.test") as http:
        token = (await http.post(TOKENS, json=by_password(scope=project()))).json()["token"]
    compute = next(service for service in token["catalog"] if service["type"] == "compute")
    assert compute["endpoints"][0]["url"] == "https://cloud.example/compute/v2.1"
    assert compute["endpoints"][0]["region"] == "north"


async def test_users_and_projects_are_named_by_id_or_by_name_and_domain(api: Api) -> None:
    _, token = await sign_in(api, by_password(scope=project()))
    by_id = {"id": token["user"]["id"], "password": PASSWORDS["demo"]}
    by_name = {"name": "demo", "domain": {"name": "Default"}, "password": PASSWORDS["demo"]}
    for person in (by_id, by_name):
        for scope in ({"project": {"id": token["project"]["id"]}}, project()):
            _, other = await sign_in(api, by_password(person, scope))
            assert other["project"] == token["project"]
            assert other["user"] == token["user"]


@pytest.mark.parametrize("scope", [None, "unscoped", {}])
async def test_an_unscoped_token_is_only_good_for_getting_another(api: Api, scope: Any) -> None:
    secret, token = await sign_in(api, by_password(scope=scope))
    assert not token.keys() & {"project", "roles", "catalog", "system"}
    refused = await api.get("/image/v2/images", cloud=None, headers={"X-Auth-Token": secret})
    assert refused.status_code == 403
    answer = await api.get("/identity/v3/auth/projects", cloud=None, headers={"X-Auth-Token": secret})
    assert [found["name"] for found in answer.json()["projects"]] == ["demo"]
    _, scoped = await sign_in(api, by_token(secret, project()))
    assert scoped["project"]["name"] == "demo"


async def test_an_admin_may_speak_for_the_system_and_others_may_not(api: Api) -> None:
    admin = {"name": "admin", "domain": DEFAULT, "password": PASSWORDS["admin"]}
    secret, token = await sign_in(api, by_password(admin, {"system": {"all": True}}))
    assert token["system"] == {"all": True}
    assert "project" not in token
    assert "admin" in [role["name"] for role in token["roles"]]
    assert len(token["catalog"]) == 7
    listed = await api.get("/identity/v3/projects", cloud=None, headers={"X-Auth-Token": secret})
    assert listed.status_code == 200
    refused = await api.post(TOKENS, by_password(scope={"system": {"all": True}}), cloud=None)
    assert refused.json() == REFUSED


@pytest.mark.parametrize("path", ["/compute/v2.1/servers", "/image/v2/images", "/clustering/v1/clusters"])
async def test_only_identity_answers_a_token_without_a_project(api: Api, path: str) -> None:
    admin = {"name": "admin", "domain": DEFAULT, "password": PASSWORDS["admin"]}
    for body in (by_password(admin, {"system": {"all": True}}), by_password(admin)):
        secret, _ = await sign_in(api, body)
        answer = await api.get(path, cloud=None, headers={"X-Auth-Token": secret})
        assert answer.status_code == 403
        assert "This needs a token that is scoped to a project." in answer.text


async def test_nocatalog_leaves_the_catalogue_out(api: Api) -> None:
    _, token = await sign_in(api, by_password(scope=project()), params={"nocatalog": ""})
    assert "catalog" not in token


WRONG = "not the password"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(by_password({"name": "demo", "domain": DEFAULT, "password": WRONG}), id="wrong password"),
        pytest.param(by_password({"name": "nobody", "domain": DEFAULT, "password": WRONG}), id="unknown user"),
        pytest.param(by_password({"id": "nobody", "password": WRONG}), id="unknown user id"),
        pytest.param(
            by_password({"name": "demo", "domain": {"id": "other"}, "password": PASSWORDS["demo"]}), id="other domain"
        ),
        pytest.param(by_password(scope=project("alt")), id="no role in the project"),
        pytest.param(by_password(scope=project("nowhere")), id="unknown project"),
        pytest.param(by_password(scope={"project": {"id": "nowhere"}}), id="unknown project id"),
        pytest.param(
            by_password(scope={"project": {"name": "demo", "domain": {"id": "other"}}}), id="project of another domain"
        ),
        pytest.param(by_password(scope={"domain": DEFAULT}), id="no role on the domain"),
    ],
)
async def test_whoever_may_not_sign_in_is_told_nothing_but_that(api: Api, body: dict[str, Any]) -> None:
    answer = await api.post(TOKENS, body, cloud=None)
    assert answer.status_code == 401
    assert answer.json() == REFUSED
    assert answer.headers["WWW-Authenticate"] == 'Keystone uri="http://roost.test/identity"'
    assert "X-Subject-Token" not in answer.headers


async def test_a_disabled_user_or_project_cannot_be_signed_in_for(api: Api) -> None:
    for table in ("users", "projects"):
        async with api.services.database.begin() as connection:
            await connection.execute(sa.text(f"UPDATE {table} SET enabled = (name != 'demo')"))
        assert (await api.post(TOKENS, by_password(scope=project()), cloud=None)).json() == REFUSED
        async with api.services.database.begin() as connection:
            await connection.execute(sa.text(f"UPDATE {table} SET enabled = true"))


MISSING = (
    "Expecting to find {} in {}. The server could not comply with the request since it is either malformed or "
    "otherwise incorrect. The client is assumed to be in error."
)


@pytest.mark.parametrize(
    ("body", "status", "expected"),
    [
        (None, 400, "None is not of type 'object'"),
        ({}, 400, "'auth' is a required property"),
        ({"auth": {}}, 400, "Invalid input for field 'auth': 'identity' is a required property"),
        ({"auth": {"identity": 3}}, 400, "Invalid input for field 'auth/identity': 3 is not of type 'object'"),
        (
            {"auth": {"identity": {"methods": []}}},
            400,
            "Invalid input for field 'auth/identity/methods': [] should be non-empty",
        ),
        ({"auth": {"identity": {"methods": ["password"]}}}, 400, MISSING.format("password", "identity")),
        (
            {"auth": {"identity": {"methods": ["totp"]}}},
            401,
            "Attempted to authenticate with an unsupported method.",
        ),
        (
            by_password({"name": "demo", "domain": DEFAULT}),
            400,
            "Invalid input for field 'auth/identity/password/user': 'password' is a required property",
        ),
        (by_password({"name": "demo", "password": "x"}), 400, MISSING.format("domain", "user")),
        (by_password({"password": "x"}), 400, MISSING.format("id or name", "user")),
        (by_password(scope={"project": {"name": "demo"}}), 400, MISSING.format("domain", "project")),
        (by_token("forged"), 404, "Failed to validate token"),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused_in_keystones_words(
    api: Api, body: Any, status: int, expected: str
) -> None:
    assert await message(await api.post(TOKENS, body, cloud=None)) == (status, expected)


async def test_a_token_made_from_a_token_ends_with_it_and_keeps_the_chain(api: Api) -> None:
    first_secret, first = await sign_in(api, by_password())
    second_secret, second = await sign_in(api, by_token(first_secret, project()))
    _, third = await sign_in(api, by_token(second_secret, project()))
    assert first["expires_at"] == second["expires_at"] == third["expires_at"]
    assert second["methods"] == third["methods"] == ["token", "password"]
    assert second["audit_ids"][1:] == third["audit_ids"][1:] == first["audit_ids"]
    assert len({token["audit_ids"][0] for token in (first, second, third)}) == 3


async def test_two_methods_must_speak_of_one_user(api: Api) -> None:
    secret, _ = await sign_in(api, by_password())
    other = {"name": "alt", "domain": DEFAULT, "password": PASSWORDS["alt"]}
    for person, status in ((None, 201), (other, 401)):
        body = by_password(person)
        body["auth"]["identity"] |= {"methods": ["password", "token"], "token": {"id": secret}}
        assert (await api.post(TOKENS, body, cloud=None)).status_code == status


async def test_a_token_can_be_looked_at_and_given_up_by_its_user(api: Api) -> None:
    secret, token = await sign_in(api, by_password(scope=project()))
    headers = {"X-Auth-Token": secret, "X-Subject-Token": secret}
    shown = await api.get(TOKENS, cloud=None, headers=headers)
    assert shown.status_code == 200
    assert shown.json() == {"token": token}
    assert shown.headers["X-Subject-Token"] == secret
    checked = await api.request("HEAD", TOKENS, cloud=None, headers=headers)
    assert checked.status_code == 200
    revoked = await api.delete(TOKENS, cloud=None, headers=headers)
    assert (revoked.status_code, revoked.content) == (204, b"")
    assert (await api.get(TOKENS, cloud=None, headers=headers)).json() == REFUSED


async def test_an_admin_may_look_at_and_revoke_any_token(api: Api) -> None:
    headers = {"X-Subject-Token": await api.token("roost")}
    assert (await api.get(TOKENS, headers=headers)).json()["token"]["user"]["name"] == "demo"
    assert (await api.delete(TOKENS, headers=headers)).status_code == 204
    assert await message(await api.get(TOKENS, headers=headers)) == (404, "Failed to validate token")


async def test_others_may_not(api: Api) -> None:
    headers = {"X-Subject-Token": await api.token("roost-alt")}
    words = "You are not authorized to perform the requested action: identity:{}."
    assert await message(await api.get(TOKENS, cloud="roost", headers=headers)) == (403, words.format("validate_token"))
    answer = await api.delete(TOKENS, cloud="roost", headers=headers)
    assert await message(answer) == (403, words.format("revoke_token"))


async def test_unknown_expired_and_missing_subjects_are_not_found(api: Api) -> None:
    async with api.services.database.begin() as connection:
        row = (await connection.execute(sa.text("SELECT id FROM users WHERE name = 'demo'"))).one()
        expired = await tokens.issue(connection, row.id, None, ("password",), tokens.expiry(-1))
    for subject in ("forged", expired):
        answer = await api.get(TOKENS, headers={"X-Subject-Token": subject})
        assert await message(answer) == (404, "Failed to validate token")
    assert await message(await api.get(TOKENS)) == (404, "No token in the request")


async def test_no_token_and_no_password_is_ever_logged(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret, _ = await sign_in(api, by_password(scope=project()))
    headers = {"X-Auth-Token": secret, "X-Subject-Token": secret}
    await api.get(TOKENS, cloud=None, headers=headers)
    await api.post(TOKENS, by_token(secret, project("alt")), cloud=None)
    await api.post(TOKENS, by_password({"name": PASSWORDS["demo"], "password": PASSWORDS["demo"]}), cloud=None)
    await api.delete(TOKENS, cloud=None, headers=headers)
    logged = "\n".join(f"{record.getMessage()} {vars(record)}" for record in caplog.records)
    assert "POST /identity/v3/auth/tokens" in logged
    assert secret not in logged
    assert PASSWORDS["demo"] not in logged


async def test_after_too_many_wrong_passwords_nobody_may_try_for_a_while(api: Api) -> None:
    wrong = by_password({"name": "demo", "domain": DEFAULT, "password": "wrong"})
    right = by_password({"name": "demo", "domain": DEFAULT, "password": PASSWORDS["demo"]})
    secret, token = await sign_in(api, right)
    for _ in range(api.services.settings.max_failures):
        assert (await api.post("/identity/v3/auth/tokens", wrong, cloud=None)).status_code == 401
    change = {"user": {"original_password": PASSWORDS["demo"], "password": "new"}}
    for path, body in (
        ("/identity/v3/auth/tokens", wrong),
        ("/identity/v3/auth/tokens", right),
        (f"/identity/v3/users/{token['user']['id']}/password", change),
    ):
        refused = await api.post(path, body, cloud=None)
        assert refused.status_code == 429
        seconds = int(refused.headers["Retry-After"])
        assert 0 < seconds <= api.services.settings.failure_seconds + 1
        error = refused.json()["error"]
        assert (error["code"], error["title"]) == (429, "Too Many Requests")
        assert error["message"] == (
            f"There were 10 failed attempts to sign in as this user. Try again in {seconds} seconds."
        )
    # A token that the user has, a user of the same name elsewhere, and everybody else go on as before.
    assert (
        await api.get("/identity/v3/auth/projects", cloud=None, headers={"X-Auth-Token": secret})
    ).status_code == 200
    elsewhere = by_password({"name": "demo", "domain": {"id": "other"}, "password": "wrong"})
    assert (await api.post("/identity/v3/auth/tokens", elsewhere, cloud=None)).status_code == 401
    await sign_in(api, by_password({"name": "admin", "domain": DEFAULT, "password": PASSWORDS["admin"]}))
    async with api.services.database.begin() as connection:
        await connection.execute(sa.text("UPDATE failed_sign_ins SET ends_at = now()"))
    await sign_in(api, right)


async def test_failures_elsewhere_do_not_count_for_the_user_here(api: Api) -> None:
    elsewhere = by_password({"name": "demo", "domain": {"id": "other"}, "password": "wrong"})
    for _ in range(api.services.settings.max_failures):
        assert (await api.post("/identity/v3/auth/tokens", elsewhere, cloud=None)).status_code == 401
    assert (await api.post("/identity/v3/auth/tokens", elsewhere, cloud=None)).status_code == 429
    await sign_in(api, by_password({"name": "demo", "domain": DEFAULT, "password": PASSWORDS["demo"]}))


async def test_a_new_password_from_an_administrator_ends_the_wait(api: Api) -> None:
    _, token = await sign_in(api, by_password())
    wrong = by_password({"name": "demo", "domain": DEFAULT, "password": "wrong"})
    for _ in range(api.services.settings.max_failures):
        await api.post(TOKENS, wrong, cloud=None)
    assert (await api.post(TOKENS, wrong, cloud=None)).status_code == 429
    user = f"/identity/v3/users/{token['user']['id']}"
    assert (await api.patch(user, {"user": {"name": "demo"}})).status_code == 200
    assert (await api.post(TOKENS, wrong, cloud=None)).status_code == 429
    assert (await api.patch(user, {"user": {"password": "another"}})).status_code == 200
    await sign_in(api, by_password({"name": "demo", "domain": DEFAULT, "password": "another"}))


async def test_a_sign_in_names_one_scope(api: Api) -> None:
    """A member of a project who named the system beside it got a token that speaks for the whole cloud."""
    for scope in (
        {**project(), "system": {"all": True}},
        {**project(), "domain": DEFAULT},
        {"domain": DEFAULT, "system": {"all": True}},
    ):
        answer = await api.http.post(TOKENS, json=by_password(scope=scope))
        assert answer.status_code == 400, answer.text


async def test_the_database_keeps_no_token_of_two_scopes(database: Database) -> None:
    async with database.begin() as connection:
        granted = await connection.execute(sa.text("SELECT user_id, project_id FROM role_assignments LIMIT 1"))
        user, project_id = granted.one()
    async with database.begin() as connection:
        with pytest.raises(sa.exc.IntegrityError, match="one_scope"):
            await tokens.issue(connection, user, project_id, ("password",), tokens.expiry(60), system=True)


async def test_a_sign_in_is_short(api: Api) -> None:
    """100,000 methods kept the event loop busy for half a second, and no sign-in was needed to send them."""
    body = by_password()
    body["auth"]["identity"]["methods"] = ["password"] * 17
    assert (await api.http.post(TOKENS, json=body)).status_code == 400
    body["auth"]["identity"]["methods"] = ["password"] * 100_000
    assert (await api.http.post(TOKENS, json=body)).status_code == 413


async def test_sign_ins_of_an_address_hold_one_connection_at_a_time(api: Api) -> None:
    """Each looked its user up at once: guesses held all connections, and everybody else waited for a new one."""
    body = by_password()
    body["auth"]["identity"]["password"]["user"]["password"] = "wrong"
    guesses = [asyncio.create_task(api.http.post(TOKENS, json=body)) for _ in range(8)]
    held = 0
    while not all(guess.done() for guess in guesses):
        held = max(held, api.services.database.connections_in_use)
        await asyncio.sleep(0)
    assert held == 1


async def test_an_address_that_signs_in_all_the_time_waits_and_others_do_not(api: Api) -> None:
    """Argon2 shared its threads with everything else, and one address could keep them all."""
    many = [api.http.post(TOKENS, json=by_password()) for _ in range(40)]
    statuses = [answer.status_code for answer in await asyncio.gather(*many)]
    assert set(statuses) == {201, 429}
    assert statuses.count(201) >= 16
    refused = await asyncio.gather(*(api.http.post(TOKENS, json=by_password()) for _ in range(20)))
    assert all("retry-after" in answer.headers for answer in refused if answer.status_code == 429)
