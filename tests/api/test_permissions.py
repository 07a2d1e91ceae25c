"""Who may do what, and how the operator changes it."""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from oslo_policy import policy

from roost import config
from roost.api import permissions
from roost.api.app import App, default_rules, make_services
from roost.api.auth import RoostAuthenticator
from roost.api.permissions import ADMIN, MANAGER, MEMBER, READER, Permissions
from roost.identity.tokens import Caller
from roost.store.database import Database
from tests.compute.cloud import NEWEST, Cloud
from tests.conftest import Api

CHECKS = {"reader": READER, "member": MEMBER, "manager": MANAGER, "admin": ADMIN}


def caller(role: str, project_id: str | None = "mine") -> Caller:
    below = ("admin", "manager", "member", "reader")
    return Caller("me", "me", project_id, project_id, below[below.index(role) :] if role else ())


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
    policies = {"identity:list_projects": "role:reader", "get_images": "!"}
    headers = {"X-Auth-Token": await api.token("roost-reader")}
    async with obeying(policies, database, tmp_path) as http:
        assert (await http.get("/identity/v3/projects", headers=headers)).status_code == 200
        assert (await http.get("/image/v2/images", headers=headers)).status_code == 403
    assert (await api.get("/identity/v3/projects", cloud="roost-reader")).status_code == 403


@asynccontextmanager
async def obeying(policies: Mapping[str, str], database: Database, folder: Path) -> AsyncIterator[httpx.AsyncClient]:
    """The APIs under an operator's policy.yaml."""
    (folder / "policy.yaml").write_text("".join(f'"{rule}": "{check}"\n' for rule, check in policies.items()))
    (folder / "roost.conf").write_text(f"[oslo_policy]\npolicy_file = {folder / 'policy.yaml'}\n")
    loaded = config.with_database(config.load(folder / "roost.conf"), database.address.conninfo())
    app = App(make_services(loaded, database), RoostAuthenticator(database, 0))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://roost.test") as http:
        yield http


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
    async with obeying({USE: check}, database, tmp_path) as http:

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


async def test_a_cluster_gets_no_server_group_that_its_owner_could_not_make(
    api: Api, database: Database, tmp_path: Path
) -> None:
    headers = {"X-Auth-Token": await api.token("roost")}
    image = (await api.get("/image/v2/images", cloud="roost")).json()["images"][0]["id"]
    server = {"type": "os.nova.server", "version": "1.0", "properties": {"flavor": "1", "image": image}}
    async with obeying({USE: "role:admin or not 'rack':%(scope)s"}, database, tmp_path) as http:

        async def post(path: str, **body: Any) -> httpx.Response:
            return await http.post(f"/clustering/v1/{path}", json=body, headers=headers)

        async def policy(scope: str) -> str:
            rule = {"name": "affinity", "scope": scope}
            properties = {"servergroup": {"policies": [rule]}}
            spec = {"type": "senlin.policy.affinity", "version": "1.1", "properties": properties}
            return str((await post("policies", policy={"name": scope, "spec": spec})).json()["policy"]["id"])

        profile = (await post("profiles", profile={"name": "p", "spec": server})).json()["profile"]["id"]
        wanted = {"name": "c", "profile_id": profile, "desired_capacity": 0}
        rack, switch = await policy("rack"), await policy("switch")
        made = await post("clusters", cluster=wanted)
        cluster = f"clusters/{made.json()['cluster']['id']}/actions"
        for answer in (
            await post(cluster, policy_attach={"policy_id": rack}),
            await post(cluster, policy_attach={"policy_id": "rack", "enabled": False}),
            await post(cluster + "?dry_run=true", policy_attach={"policy_id": rack}),
            await post("clusters", cluster={**wanted, "name": "d", "config": {"cluster.policies": ["rack"]}}),
        ):
            assert answer.status_code == 403, answer.text
            assert USE in answer.json()["error"]["message"]
        allowed = await post("clusters", cluster={**wanted, "name": "e", "config": {"cluster.policies": [switch]}})
        assert allowed.status_code == 202, allowed.text
        listed = (await http.get("/clustering/v1/clusters", headers=headers)).json()["clusters"]
        assert sorted(each["name"] for each in listed) == ["c", "e"]


REAL, ALL = "os_compute_api:os-server-groups:explain:real", "os_compute_api:os-fleet:all"


@pytest.mark.parametrize(
    ("policies", "real"),
    [({}, False), ({ALL: "role:member"}, False), ({REAL: "role:member"}, True)],
    ids=["default", "all without names", "names"],
)
async def test_real_names_are_one_decision_for_audit_map_plan_explanation_and_repair(
    api: Api, database: Database, tmp_path: Path, policies: dict[str, str], real: bool
) -> None:
    group = await Cloud(api).group("affinity:rack", "soft-anti-affinity")
    server = await Cloud(api).boot(group=group)
    host = await Cloud(api).host(server)
    headers = {"X-Auth-Token": await api.token("roost"), "OpenStack-API-Version": f"compute {NEWEST}"}
    create = {"flavorRef": "1", "count": 1}
    async with obeying(policies, database, tmp_path) as http:
        for method, path, body in (
            ("GET", f"os-server-groups/{group}/audit", None),
            ("GET", "os-fleet?scope=rack", None),
            ("GET", f"servers/{server}/explanation", None),
            ("POST", f"os-server-groups/{group}/plan", {"plan": {"create": create}}),
            ("POST", f"os-server-groups/{group}/plan", {"plan": {"lose": {"scope": "host", "identifier": host}}}),
        ):
            answer = await http.request(method, f"/compute/v2.1/{path}", headers=headers, json=body)
            named = re.search("zone[0-9]-rack[0-9]-host[0-9]", answer.text) is not None
            asked = host is not None and host in str(body) and not real
            assert named == (real or asked), answer.text
