"""Who vouches for a token: Roost's own identity, or a Keystone (here: another Roost, over HTTP)."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from roost import config
from roost.api.app import App, make_services
from roost.api.auth import KeystoneAuthenticator, RoostAuthenticator
from roost.errors import Invalid, Unauthorized, Unavailable
from roost.identity import tokens
from roost.store.database import Database
from tests.api.identity.test_tokens import by_password
from tests.conftest import Api, Served

REFUSAL = "The request you have made requires authentication."
SILENT = "Keystone does not answer; try again in a moment."


async def test_a_request_without_a_valid_token_is_refused_in_each_apis_own_form(api: Api) -> None:
    for path, body in (
        ("/compute/v2.1/os-hypervisors", {"unauthorized": {"code": 401, "message": REFUSAL}}),
        ("/image/v2/images", {"error": {"code": 401, "title": "Unauthorized", "message": REFUSAL}}),
        ("/identity/v3/projects", {"error": {"code": 401, "title": "Unauthorized", "message": REFUSAL}}),
    ):
        for headers in ({}, {"X-Auth-Token": ""}, {"X-Auth-Token": "forged"}, {"X-Auth-Token": b"\xff\xfe"}):
            answer = await api.get(path, cloud=None, headers=headers)
            assert answer.status_code == 401
            assert answer.json() == body
            assert answer.headers["WWW-Authenticate"] == 'Keystone uri="http://roost.test/identity"'


async def test_an_expired_token_is_refused_also_where_it_was_remembered(api: Api, database: Database) -> None:
    caller = await RoostAuthenticator(database, 0).authenticate(await api.token("roost"))
    async with database.begin() as connection:
        secret = await tokens.issue(connection, caller.user_id, caller.project_id, ("password",), tokens.expiry(1))
    remembering = RoostAuthenticator(database, 3600)
    assert (await remembering.authenticate(secret)) == caller
    await asyncio.sleep(1.1)
    with pytest.raises(Unauthorized):
        await remembering.authenticate(secret)


async def test_a_revocation_is_heard_by_every_process_that_remembers_the_token(api: Api, database: Database) -> None:
    remembering = RoostAuthenticator(database, 3600)
    listening = asyncio.create_task(database.listen(tokens.REVOCATIONS, remembering.forget))
    try:
        secrets = [await api.token("roost"), await api.token("roost-alt")]
        for secret in secrets:
            await remembering.authenticate(secret)
        await api.delete("/identity/v3/auth/tokens", headers={"X-Subject-Token": secrets[0]})
        user = (await remembering.authenticate(secrets[1])).user_id
        await api.patch(f"/identity/v3/users/{user}", {"user": {"enabled": False}})
        for secret in secrets:
            assert await _refused_soon(remembering, secret)
    finally:
        listening.cancel()


async def _refused_soon(authenticator: RoostAuthenticator, secret: str) -> bool:
    until = time.monotonic() + 5
    while time.monotonic() < until:
        try:
            await authenticator.authenticate(secret)
        except Unauthorized:
            return True
        await asyncio.sleep(0.02)
    return False


# Against a Keystone


def keystone_config(folder: Path, url: str, password: str, **more: str) -> Path:
    """A configuration file as an operator would write it."""
    options = {
        "auth_type": "password",
        "auth_url": f"{url}/identity",
        "username": "admin",
        "password": password,
        "project_name": "admin",
        "user_domain_id": "default",
        "project_domain_id": "default",
        "token_cache_time": "-1",
        "http_request_max_retries": "0",
        **more,
    }
    lines = ["[auth]", "strategy = keystone", "[keystone_authtoken]", *(f"{k} = {v}" for k, v in options.items())]
    file = folder / "roost.conf"
    file.write_text("\n".join(lines))
    return file


@asynccontextmanager
async def app_with(file: Path, database: Database) -> AsyncIterator[httpx.AsyncClient]:
    """An API whose tokens are checked as the file says."""
    settings = config.with_database(config.load(file), database.address.conninfo())
    app = App(make_services(settings, database), KeystoneAuthenticator(settings))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://roost.test") as http:
        yield http


def password_of(served: Served, cloud: str) -> str:
    """What `roost serve` wrote into its clouds.yaml."""
    return str(yaml.safe_load(served.clouds.read_text())["clouds"][cloud]["auth"]["password"])


async def sign_in(served: Served, cloud: str, scope: Any) -> str:
    """A token of the served identity."""
    auth = yaml.safe_load(served.clouds.read_text())["clouds"][cloud]["auth"]
    person = {"name": auth["username"], "password": auth["password"], "domain": {"id": "default"}}
    async with httpx.AsyncClient() as http:
        answer = await http.post(f"{served.url}/identity/v3/auth/tokens", json=by_password(person, scope))
    return answer.headers["X-Subject-Token"]


def of_project(name: str) -> dict[str, Any]:
    return {"project": {"name": name, "domain": {"id": "default"}}}


async def test_a_token_of_keystone_is_good_until_it_is_revoked_there(
    served: Served, database: Database, tmp_path: Path
) -> None:
    file = keystone_config(tmp_path, served.url, password_of(served, "roost-admin"))
    async with app_with(file, database) as http:
        secret = await sign_in(served, "roost", of_project("demo"))
        headers = {"X-Auth-Token": secret}
        assert (await http.get("/image/v2/images", headers=headers)).status_code == 200
        other = await http.get(f"/compute/v2.1/{'0' * 32}/flavors", headers=headers)
        assert other.status_code in (400, 404)

        async with httpx.AsyncClient() as keystone:
            both = {"X-Auth-Token": secret, "X-Subject-Token": secret}
            revoked = await keystone.delete(f"{served.url}/identity/v3/auth/tokens", headers=both)
        assert revoked.status_code == 204
        refused = await http.get("/image/v2/images", headers=headers)
        assert refused.status_code == 401
        assert refused.json()["error"]["message"] == REFUSAL
        assert refused.headers["WWW-Authenticate"] == f'Keystone uri="{served.url}/identity"'


async def test_a_token_of_a_service_beside_a_users_must_be_good_too(
    api: Api, served: Served, database: Database, tmp_path: Path
) -> None:
    own = {"X-Auth-Token": await api.token("roost")}
    for service, status in ((await api.token("roost-admin"), 200), ("forged", 401)):
        answer = await api.get("/image/v2/images", cloud=None, headers={**own, "X-Service-Token": service})
        assert answer.status_code == status
    roles = {"service_token_roles": "admin", "service_token_roles_required": "true"}
    file = keystone_config(tmp_path, served.url, password_of(served, "roost-admin"), **roles)
    authenticator = KeystoneAuthenticator(config.load(file))
    secret = await sign_in(served, "roost", of_project("demo"))
    assert await authenticator.authenticate(secret, await sign_in(served, "roost-admin", of_project("admin")))
    for service in ("forged", "with\nnewline", secret):
        with pytest.raises(Unauthorized, match=REFUSAL):
            await authenticator.authenticate(secret, service)


async def test_keystones_word_on_the_user_the_project_and_the_roles_is_taken(
    served: Served, database: Database, tmp_path: Path
) -> None:
    file = keystone_config(tmp_path, served.url, password_of(served, "roost-admin"))
    authenticator = KeystoneAuthenticator(config.load(file))
    caller = await authenticator.authenticate(await sign_in(served, "roost", of_project("demo")))
    assert (caller.user_name, caller.project_name, caller.roles) == ("demo", "demo", ("member", "reader"))
    caller = await authenticator.authenticate(await sign_in(served, "roost-admin", {"system": {"all": True}}))
    assert caller.system
    assert caller.is_admin
    assert caller.project_id is None
    caller = await authenticator.authenticate(await sign_in(served, "roost", "unscoped"))
    assert (caller.project_id, caller.roles, caller.system) == (None, (), False)


async def test_forged_and_expired_tokens_are_refused(served: Served, tmp_path: Path) -> None:
    file = keystone_config(tmp_path, served.url, password_of(served, "roost-admin"))
    authenticator = KeystoneAuthenticator(config.load(file))
    for forged in ("forged", "x" * 5000, "\xff\xfe", "with\nnewline"):
        with pytest.raises(Unauthorized, match=REFUSAL):
            await authenticator.authenticate(forged)


async def test_a_remembered_token_is_refused_once_it_has_expired(served: Served, tmp_path: Path) -> None:
    file = keystone_config(tmp_path, served.url, password_of(served, "roost-admin"), token_cache_time="300")
    authenticator = KeystoneAuthenticator(config.load(file))
    secret = await sign_in(served, "roost", of_project("demo"))
    postgres = f"postgresql://roost@/roost?host={served.folder / 'run'}"
    database = Database(postgres)
    try:
        async with database.begin() as connection:
            token = await tokens.find(connection, secret)
            assert token is not None
            expiring = await tokens.issue(
                connection, token.caller.user_id, token.caller.project_id, ("password",), tokens.expiry(5)
            )
    finally:
        await database.close()
    assert (await authenticator.authenticate(expiring)).user_name == "demo"
    await asyncio.sleep(5.1)
    with pytest.raises(Unauthorized):
        await authenticator.authenticate(expiring)


async def test_roosts_own_identity_is_not_served_beside_a_keystone(
    served: Served, database: Database, tmp_path: Path
) -> None:
    file = keystone_config(tmp_path, served.url, password_of(served, "roost-admin"))
    async with app_with(file, database) as http:
        assert (await http.get("/identity/v3")).status_code == 404
        assert (await http.post("/identity/v3/auth/tokens", json={})).status_code == 404
        assert (await http.get("/compute/v2.1")).status_code == 200


async def test_a_keystone_that_does_not_answer_is_503(database: Database, tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        file = keystone_config(tmp_path, f"http://127.0.0.1:{unused.getsockname()[1]}", "x")
        async with app_with(file, database) as http:
            answer = await http.get("/compute/v2.1/os-hypervisors", headers={"X-Auth-Token": "x"})
    assert answer.status_code == 503
    assert answer.json() == {"serviceUnavailable": {"code": 503, "message": SILENT}}
    assert answer.headers["Retry-After"] == "1"


async def test_a_roost_that_keystone_does_not_know_cannot_check_tokens(
    served: Served, database: Database, tmp_path: Path
) -> None:
    file = keystone_config(tmp_path, served.url, "wrong")
    async with app_with(file, database) as http:
        secret = await sign_in(served, "roost", of_project("demo"))
        answer = await http.get("/image/v2/images", headers={"X-Auth-Token": secret})
    assert answer.status_code == 503


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "[keystone_authtoken] has no auth_type: it says how Roost signs in to check tokens."),
        ("auth_type = nonsense", "[keystone_authtoken] cannot be used: The plugin nonsense could not be found"),
        ("auth_type = password", "[keystone_authtoken] cannot be used: Auth plugin requires parameters"),
    ],
)
def test_a_section_that_cannot_be_used_is_said_at_the_start(tmp_path: Path, options: str, message: str) -> None:
    file = tmp_path / "roost.conf"
    file.write_text(f"[auth]\nstrategy = keystone\n[keystone_authtoken]\n{options}\n")
    with pytest.raises(Invalid) as caught:
        KeystoneAuthenticator(config.load(file))
    assert caught.value.message.startswith(message)


async def test_keystone_is_asked_whether_there_is_a_project(served: Served, database: Database, tmp_path: Path) -> None:
    file = keystone_config(tmp_path, served.url, password_of(served, "roost-admin"))
    keystone = KeystoneAuthenticator(config.with_database(config.load(file), database.address.conninfo()))
    secret = await sign_in(served, "roost-admin", of_project("admin"))
    project = (await keystone.authenticate(secret)).project_id or ""
    assert await keystone.has_project(secret, project)
    assert not await keystone.has_project(secret, "admin")
    keystone.sign_in_at = "http://127.0.0.1:1/identity"
    with pytest.raises(Unavailable):
        await keystone.has_project(secret, project)
