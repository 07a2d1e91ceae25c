"""Who may do what, and how the operator changes it."""

from pathlib import Path

import httpx
import pytest
from oslo_policy import policy

from roost import config
from roost.api import permissions
from roost.api.app import App, default_rules, make_services
from roost.api.auth import RoostAuthenticator
from roost.api.permissions import ADMIN, MANAGER, MEMBER, READER, Permissions
from roost.identity.roles import with_implied
from roost.identity.tokens import Caller
from roost.store.database import Database
from tests.conftest import Api

CHECKS = {"reader": READER, "member": MEMBER, "manager": MANAGER, "admin": ADMIN}


def caller(role: str, project_id: str | None = "mine") -> Caller:
    return Caller("me", "me", project_id, project_id, with_implied([role] if role else []))


@pytest.mark.parametrize("role", ["", "reader", "member", "manager", "admin"])
def test_each_persona_may_what_the_ones_below_it_may_and_no_more(role: str) -> None:
    rules = [policy.RuleDefault(name, check) for name, check in CHECKS.items()]
    permitted = Permissions(config.load(), [*permissions.documented([], {}), *rules])
    order = ["reader", "member", "manager", "admin"]
    expected = order[: order.index(role) + 1] if role else []
    assert [name for name in order if permitted.allows(name, caller(role), {})] == expected
    # In another's project only an admin may anything.
    elsewhere = [name for name in order if permitted.allows(name, caller(role), {"project_id": "theirs"})]
    assert elsewhere == (order if role == "admin" else [])


def test_who_has_no_project_owns_nothing_that_has_none() -> None:
    permitted = Permissions(config.load(), [*permissions.documented([], {}), policy.RuleDefault("read", READER)])
    assert not permitted.allows("read", caller("", None), {})
    assert not permitted.allows("read", caller("", None), {"project_id": None})


def test_every_rule_that_a_route_names_is_declared_and_says_what_it_guards() -> None:
    rules = {rule.name: rule for rule in default_rules()}
    from roost.api.app import all_routes

    for _, route in all_routes():
        if route.rule is not None:
            rule = rules[route.rule]
            assert rule.description
            assert isinstance(rule, policy.DocumentedRuleDefault)
            assert any(operation["method"] == route.method for operation in rule.operations)


async def test_the_operators_policy_file_is_obeyed(api: Api, database: Database, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text('"identity:list_projects": "role:reader"\n"get_images": "!"\n')
    (tmp_path / "roost.conf").write_text(f"[oslo_policy]\npolicy_file = {tmp_path / 'policy.yaml'}\n")
    loaded = config.with_database(config.load(tmp_path / "roost.conf"), database.address.conninfo())
    app = App(make_services(loaded, database), RoostAuthenticator(database, 0))
    headers = {"X-Auth-Token": await api.token("roost-reader")}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://roost.test") as http:
        assert (await http.get("/identity/v3/projects", headers=headers)).status_code == 200
        assert (await http.get("/image/v2/images", headers=headers)).status_code == 403
    assert (await api.get("/identity/v3/projects", cloud="roost-reader")).status_code == 403


USE = "os_compute_api:os-server-groups:use_policy"


@pytest.mark.parametrize(
    ("check", "allowed", "refused"),
    [
        ("role:admin or not 'rack':%(scope)s", ["affinity:switch"], ["affinity:rack"]),
        ("role:admin or 'False':%(targeted)s", ["affinity:rack"], ["affinity:availability_zone:zone1"]),
        ("role:admin or '1':%(policies)s", ["affinity:rack"], ["affinity:rack", "anti-affinity"]),
    ],
)
async def test_scopes_targets_and_several_policies_can_be_kept_for_some(
    api: Api, database: Database, tmp_path: Path, check: str, allowed: list[str], refused: list[str]
) -> None:
    (tmp_path / "policy.yaml").write_text(f'"{USE}": "{check}"\n')
    (tmp_path / "roost.conf").write_text(f"[oslo_policy]\npolicy_file = {tmp_path / 'policy.yaml'}\n")
    loaded = config.with_database(config.load(tmp_path / "roost.conf"), database.address.conninfo())
    app = App(make_services(loaded, database), RoostAuthenticator(database, 0))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://roost.test") as http:

        async def ask(cloud: str, policies: list[str], path: str = "", **more: str) -> httpx.Response:
            headers = {"X-Auth-Token": await api.token(cloud), "OpenStack-API-Version": "compute 2.1002"}
            body = {"server_group": {**more, "policies": policies}}
            return await http.post(f"/compute/v2.1/os-server-groups{path}", json=body, headers=headers)

        made = await ask("roost", allowed, name="g")
        assert made.status_code == 200
        for answer in (
            await ask("roost", refused, name="g"),
            await ask("roost", refused, f"/{made.json()['server_group']['id']}"),
        ):
            assert answer.status_code == 403
            assert answer.json()["forbidden"]["message"].startswith(f"Policy doesn't allow {USE} to be performed: ")
        assert (await ask("roost-admin", refused, name="g")).status_code == 200
