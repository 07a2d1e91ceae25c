"""Tokens cannot be made, changed, kept alive or chosen by others, and nothing secret is written into the log."""

import asyncio
import io
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from roost import logs
from roost.api.app import all_routes
from roost.config import Settings
from roost.identity import tokens, users
from roost.identity.roles import ROLES
from tests.conftest import PASSWORDS, Api
from tests.security import probes

TOKENS = "/identity/v3/auth/tokens"
OWN = "/identity/v3/auth/projects"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Without the limit on requests that have no valid token: these tests make more than one address may."""
    return replace(settings, address_rate=0)


def _by_password(user: str = "demo", password: str | None = None) -> dict[str, Any]:
    given = {"name": user, "domain": {"id": "default"}, "password": password or PASSWORDS[user]}
    scope = {"project": {"name": "demo", "domain": {"id": "default"}}}
    return {"auth": {"identity": {"methods": ["password"], "password": {"user": given}}, "scope": scope}}


def _by_token(token: str) -> dict[str, Any]:
    return {"auth": {"identity": {"methods": ["token"], "token": {"id": token}}}}


async def _signed_in(api: Api) -> str:
    answer = await api.post(TOKENS, _by_password(), cloud=None)
    assert answer.status_code == 201
    return str(answer.headers["x-subject-token"])


async def _works(api: Api, token: str) -> bool:
    return (await api.get(OWN, cloud=None, headers={"X-Auth-Token": token})).status_code == 200


async def test_every_route_that_is_not_for_everybody_wants_a_token(api: Api) -> None:
    things = dict.fromkeys((name for api_, route in all_routes() for name in probes.variables(route.path)), "x")
    things |= dict.fromkeys(("server_group_id", "quota_class", "queue_id", "file", "compute_alias"), "x")
    for frame, route in all_routes():
        if route.public or frame.name == "scheduler":
            continue
        version = probes.newest(frame, route)
        path = probes.address(frame, route, things)
        for sent in ({}, {"X-Auth-Token": ""}, {"X-Auth-Token": "forged"}):
            headers = {**sent, "OpenStack-API-Version": f"{frame.name} {version}"}
            answer = await api.request(route.method, path, cloud=None, headers=headers)
            assert answer.status_code == 401, (route.method, path, answer.text)


async def test_a_token_that_is_changed_anywhere_is_none(api: Api) -> None:
    token = await _signed_in(api)
    assert await _works(api, token)
    others = [token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :] for place in range(0, 43, 6)]
    others += [token[:-1], token + "A", token.swapcase(), tokens.digest(token).hex(), f" {token}x", token * 2]
    for other in others:
        assert not await _works(api, other)
    assert len(set(token)) > 15
    assert len(token) == 43


async def test_a_token_cannot_be_brought_along(api: Api) -> None:
    chosen = secrets.token_urlsafe(32)
    headers = {"X-Subject-Token": chosen, "X-Auth-Token": chosen}
    answer = await api.post(TOKENS, {**_by_password(), "token": {"id": chosen}}, cloud=None, headers=headers)
    assert answer.status_code in (201, 400)
    assert answer.headers.get("x-subject-token") != chosen
    assert not await _works(api, chosen)
    first, second = await _signed_in(api), await _signed_in(api)
    assert first != second


async def test_a_token_ends_with_its_time_and_so_do_those_made_from_it(api: Api) -> None:
    token = await _signed_in(api)
    made = await api.post(TOKENS, _by_token(token), cloud=None)
    own = (await api.get(TOKENS, cloud=None, headers={"X-Auth-Token": token, "X-Subject-Token": token})).json()
    assert made.json()["token"]["expires_at"] == own["token"]["expires_at"]
    async with api.services.database.begin() as connection:
        await connection.execute(sa.text("UPDATE tokens SET expires_at = now() - interval '1 second'"))
    assert not await _works(api, token)
    assert not await _works(api, made.headers["x-subject-token"])
    assert (await api.post(TOKENS, _by_token(token), cloud=None)).status_code == 404


async def _password(api: Api, user: str) -> None:
    body = {"user": {"original_password": PASSWORDS["demo"], "password": "another"}}
    assert (await api.post(f"/identity/v3/users/{user}/password", body, cloud=None)).status_code == 204


async def _reset(api: Api, user: str) -> None:
    assert (await api.patch(f"/identity/v3/users/{user}", {"user": {"password": "x"}})).status_code == 200


async def _disable(api: Api, user: str) -> None:
    assert (await api.patch(f"/identity/v3/users/{user}", {"user": {"enabled": False}})).status_code == 200


async def _delete(api: Api, user: str) -> None:
    assert (await api.delete(f"/identity/v3/users/{user}")).status_code == 204


async def _withdraw(api: Api, user: str) -> None:
    role = next(role for role in ROLES if role.name == "member")
    projects = (await api.get("/identity/v3/projects", params={"name": "demo"})).json()["projects"]
    path = f"/identity/v3/projects/{projects[0]['id']}/users/{user}/roles/{role.id}"
    assert (await api.delete(path)).status_code == 204


async def _close(api: Api, user: str) -> None:
    projects = (await api.get("/identity/v3/projects", params={"name": "demo"})).json()["projects"]
    path = f"/identity/v3/projects/{projects[0]['id']}"
    assert (await api.patch(path, {"project": {"enabled": False}})).status_code == 200


@pytest.mark.parametrize("end", [_password, _reset, _disable, _delete, _withdraw, _close])
async def test_whatever_ends_a_users_rights_ends_its_tokens(api: Api, end: Any) -> None:
    token = await _signed_in(api)
    made = (await api.post(TOKENS, _by_token(token), cloud=None)).headers["x-subject-token"]
    async with api.services.database.begin() as connection:
        (user,) = await users.index(connection, name="demo")
    await end(api, user.id)
    assert not await _works(api, token)
    if end not in (_withdraw, _close):  # What is made without a project is for none.
        assert not await _works(api, made)


@asynccontextmanager
async def _revoking(api: Api, token: str) -> AsyncIterator[None]:
    """A revocation that is not committed until the end of the block."""
    async with api.services.database.begin() as connection:
        await tokens.revoke(connection, token)
        yield


async def test_no_token_is_made_from_one_that_is_being_revoked(api: Api) -> None:
    token = await _signed_in(api)
    async with _revoking(api, token):
        asked = asyncio.create_task(api.post(TOKENS, _by_token(token), cloud=None))
        done, _ = await asyncio.wait([asked], timeout=1)
        assert not done
    answer = await asked
    assert answer.status_code in (401, 404)
    async with api.services.database.begin() as connection:
        assert await connection.scalar(sa.text("SELECT count(*) FROM tokens WHERE audit_ids[2] IS NOT NULL")) == 0


async def test_passwords_are_kept_as_argon2id_with_salt_and_work(api: Api) -> None:
    async with api.services.database.begin() as connection:
        kept = [row.password_hash for row in await users.index(connection)]
    # No less than OWASP advises: 19 MiB and two passes.
    assert all(each.startswith("$argon2id$v=19$m=19456,t=2,p=1$") for each in kept)
    assert len(set(kept)) == len(kept)
    async with api.services.database.begin() as connection:
        digests = list(await connection.scalars(sa.text("SELECT digest FROM tokens")))
    assert all(len(digest) == 32 for digest in digests)


async def test_nothing_secret_is_logged_whatever_fails(api: Api) -> None:
    heard = io.StringIO()
    root, handler = logging.getLogger(), logging.StreamHandler(heard)
    handler.setFormatter(logs._Json())
    handler.addFilter(lambda record: not record.name.startswith("http"))  # The client in this process tells on itself.
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        token = await _signed_in(api)
        password = secrets.token_urlsafe(12)
        await api.post(TOKENS, _by_password(password=password), cloud=None)
        await api.post("/identity/v3/users", {"user": {"name": "n" * 300, "password": password}})
        await api.post("/identity/v3/users", {"user": {"name": "demo", "password": password}})
        await api.post("/identity/v3/users", {"user": {"name": "demo", "password": {"nested": password}}})
        server = {"name": "a", "flavorRef": "1", "adminPass": password, "user_data": password}
        await api.post("/compute/v2.1/servers", {"server": server}, cloud="roost")
        await api.request("POST", f"/clustering/v1/webhooks/x/trigger?V=2&token={password}", cloud=None)
        await api.get(OWN, cloud=None, headers={"X-Auth-Token": token})
        async with api.services.database.begin() as connection:
            with pytest.raises(sa.exc.DBAPIError) as failed:
                await connection.execute(sa.text("SELECT CAST(:secret AS integer)"), {"secret": password})
        logging.getLogger("roost.test").error("it failed", exc_info=failed.value.with_traceback(None))
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    written = heard.getvalue()
    assert "it failed" in written
    assert token not in written
    # PostgreSQL itself quotes the value of a failed cast in its message; what Roost adds must not.
    assert password not in written.replace(f'integer: \\"{password}\\"', "")
