"""Roost in front of a Nova over HTTP: here the Nova is a served Roost, which speaks the same API. tests/lab asks a real
one."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from roost import config
from roost.api.app import App, make_services
from roost.clouds.front import Front
from roost.clouds.nova import Nova, is_stricter, nearest_policy
from roost.compute import images
from roost.errors import Unauthorized
from roost.identity.tokens import Caller
from roost.placement.rules import Rule
from roost.store.database import Database
from tests.clouds.fault_proxy import FaultProxy
from tests.conftest import Served

NEWEST = "2.1003"


@dataclass
class Keystone:
    """Asks the identity of the Nova behind whose a token is."""

    url: str
    sign_in_at: str | None = None

    async def authenticate(self, secret: str, service: str | None = None) -> Caller:
        async with httpx.AsyncClient() as http:
            headers = {"X-Auth-Token": secret, "X-Subject-Token": secret}
            answer = await http.get(f"{self.url}/identity/v3/auth/tokens", headers=headers)
        if answer.status_code != 200:
            raise Unauthorized("no")
        token = answer.json()["token"]
        roles = tuple(role["name"] for role in token["roles"])
        user, project = token["user"], token["project"]
        return Caller(user["id"], user["name"], project["id"], project["name"], roles)


@dataclass
class Person:
    """Somebody with a token of the Nova behind, who may ask it too."""

    front: httpx.AsyncClient
    nova: httpx.AsyncClient
    token: str

    async def ask(
        self, method: str, path: str, body: Any = None, *, version: str = NEWEST, straight: bool = False
    ) -> Any:
        """One request to the compute API in front, or straight to the Nova behind."""
        http = self.nova if straight else self.front
        headers = {"X-Auth-Token": self.token, "OpenStack-API-Version": f"compute {version}"}
        return await http.request(method, f"/compute/v2.1{path}", json=body, headers=headers)

    async def group(self, *policies: str) -> str:
        """A group, made in front."""
        body = {"server_group": {"name": "group", "policies": list(policies)}}
        answer = await self.ask("POST", "/os-server-groups", body, version="2.1002")
        assert answer.status_code == 200, answer.text
        return str(answer.json()["server_group"]["id"])

    async def boot(self, group: str | None = None) -> str:
        """A server, asked for in front."""
        server = {"name": "s", "flavorRef": "1", "imageRef": images.USUAL[0].id, "networks": "none"}
        hints = {"os:scheduler_hints": {"group": group}} if group else {}
        answer = await self.ask("POST", "/servers", {"server": server, **hints}, version="2.87")
        assert answer.status_code == 202, answer.text
        return str(answer.json()["server"]["id"])


@dataclass
class Cloud:
    """A Roost in front of a Nova, and two who use it."""

    front: Front
    tenant: Person
    operator: Person


@pytest.fixture
async def cloud(
    served: Served, database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Cloud]:
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(served.clouds))
    told = config.load(clusters__cloud="openstack", clusters__os_cloud="roost-admin")
    services = make_services(config.with_database(told, database_url), database)
    assert services.front is not None
    await services.front.follow()
    app = App(services, Keystone(served.url))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        httpx.AsyncClient(transport=transport, base_url="http://front.test") as front,
        httpx.AsyncClient(base_url=served.url) as nova,
    ):
        people = [Person(front, nova, await sign_in(served, name)) for name in ("roost", "roost-admin")]
        made = Cloud(services.front, *people)
        yield made
        await clean_up(made)
    services.front.nova.close()


async def sign_in(served: Served, cloud: str) -> str:
    auth = yaml.safe_load(served.clouds.read_text())["clouds"][cloud]["auth"]
    user = {"name": auth["username"], "password": auth["password"], "domain": {"id": "default"}}
    scope = {"project": {"name": auth["project_name"], "domain": {"id": "default"}}}
    body = {"auth": {"identity": {"methods": ["password"], "password": {"user": user}}, "scope": scope}}
    async with httpx.AsyncClient() as http:
        answer = await http.post(f"{served.url}/identity/v3/auth/tokens", json=body)
    return str(answer.headers["X-Subject-Token"])


async def clean_up(cloud: Cloud) -> None:
    for server in (await cloud.tenant.ask("GET", "/servers", version="2.87", straight=True)).json()["servers"]:
        await cloud.tenant.ask("DELETE", f"/servers/{server['id']}", version="2.87", straight=True)
    listed = await cloud.tenant.ask("GET", "/os-server-groups", version="2.87", straight=True)
    for group in listed.json()["server_groups"]:
        await cloud.tenant.ask("DELETE", f"/os-server-groups/{group['id']}", version="2.87", straight=True)


@pytest.mark.parametrize("path", ["/servers", "/os-server-groups"])
async def test_a_roost_in_novas_place_in_the_catalogue_says_so_instead_of_asking_itself(
    cloud: Cloud, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    in_front = cloud.tenant.front
    async with FaultProxy(str(in_front.base_url), in_front._transport).running() as proxy:
        clouds = yaml.safe_load(served.clouds.read_text())
        clouds["clouds"]["roost-admin"]["compute_endpoint_override"] = f"{proxy.url}/compute/v2.1"
        (tmp_path / "clouds.yaml").write_text(yaml.safe_dump(clouds))
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "clouds.yaml"))
        nova, cloud.front.nova = cloud.front.nova, Nova("roost-admin")
        body = {"server_group": {"name": "g", "policies": ["affinity"]}}
        answer = await cloud.tenant.ask("POST", path, body, version="2.1002")
        cloud.front.nova.close()
        cloud.front.nova = nova
    assert answer.status_code == 409, answer.text
    assert "set compute_endpoint_override to Nova's own address" in answer.json()["conflictingRequest"]["message"]
    assert proxy.count("POST", path) == 1


async def test_a_group_has_the_id_of_the_one_underneath(cloud: Cloud) -> None:
    group = await cloud.tenant.group("anti-affinity:rack")
    underneath = await cloud.tenant.ask("GET", f"/os-server-groups/{group}", version="2.64", straight=True)
    assert underneath.json()["server_group"]["policy"] == "anti-affinity"
    shown = (await cloud.tenant.ask("GET", f"/os-server-groups/{group}")).json()["server_group"]
    assert [policy["scope"] for policy in shown["policies"]] == ["rack"]
    assert (await cloud.tenant.ask("DELETE", f"/os-server-groups/{group}")).status_code == 204
    gone = await cloud.tenant.ask("GET", f"/os-server-groups/{group}", version="2.64", straight=True)
    assert gone.status_code == 404


async def test_what_is_refused_in_front_leaves_nothing_behind(cloud: Cloud) -> None:
    body = {"server_group": {"name": "g", "policies": ["affinity:nowhere"]}}
    assert (await cloud.tenant.ask("POST", "/os-server-groups", body, version="2.1002")).status_code == 400
    listed = await cloud.tenant.ask("GET", "/os-server-groups", version="2.64", straight=True)
    assert listed.json()["server_groups"] == []


async def test_members_and_where_they_are_come_from_behind(cloud: Cloud) -> None:
    group = await cloud.tenant.group("anti-affinity")
    server = await cloud.tenant.boot(group)
    await cloud.front.follow()
    shown = (await cloud.tenant.ask("GET", f"/os-server-groups/{group}")).json()["server_group"]
    assert shown["members"] == [server]
    audit = (await cloud.tenant.ask("GET", f"/os-server-groups/{group}/audit")).json()["server_group_policy_audit"]
    [placed] = audit["members"]
    assert placed["placements"]["host"]
    await cloud.tenant.ask("DELETE", f"/servers/{server}")
    for _ in range(600):
        if (await cloud.tenant.ask("GET", f"/servers/{server}")).status_code == 404:
            break
        await asyncio.sleep(0.1)
    await cloud.front.read_group(group)
    shown = (await cloud.tenant.ask("GET", f"/os-server-groups/{group}")).json()["server_group"]
    assert shown["members"] == []


async def test_a_server_that_is_in_no_group_can_be_added(cloud: Cloud) -> None:
    server, group = await cloud.tenant.boot(), await cloud.tenant.group("anti-affinity:rack")
    path = f"/os-server-groups/{group}/action"
    added = await cloud.tenant.ask("POST", path, {"add_instance": {"instance_id": server}})
    assert added.json()["server_group"]["members"] == [server]
    await cloud.front.follow()
    shown = (await cloud.tenant.ask("GET", f"/os-server-groups/{group}")).json()["server_group"]
    assert shown["members"] == [server], "though the group underneath does not have it"
    unknown = "00000000-0000-4000-8000-000000000000"
    assert (await cloud.tenant.ask("POST", path, {"add_instance": {"instance_id": unknown}})).status_code == 404


async def test_policies_that_the_group_underneath_forbids_are_refused(cloud: Cloud) -> None:
    group = await cloud.tenant.group("anti-affinity")
    weaker = {"server_group": {"policies": ["soft-anti-affinity"]}}
    answer = await cloud.tenant.ask("POST", f"/os-server-groups/{group}", weaker, version="2.1002")
    assert answer.status_code == 409, answer.text
    stricter = {"server_group": {"policies": ["anti-affinity:rack"]}}
    answer = await cloud.tenant.ask("POST", f"/os-server-groups/{group}", stricter, version="2.1002")
    assert answer.status_code == 200


async def test_groups_made_behind_are_taken_over(cloud: Cloud) -> None:
    body = {"server_group": {"name": "native", "policy": "affinity"}}
    made = await cloud.tenant.ask("POST", "/os-server-groups", body, version="2.64", straight=True)
    group = made.json()["server_group"]["id"]
    await cloud.front.follow()
    shown = (await cloud.tenant.ask("GET", f"/os-server-groups/{group}")).json()["server_group"]
    assert [policy["name"] for policy in shown["policies"]] == ["affinity"]
    await cloud.tenant.ask("DELETE", f"/os-server-groups/{group}", version="2.64", straight=True)
    await cloud.front.follow()
    assert (await cloud.tenant.ask("GET", f"/os-server-groups/{group}")).status_code == 404


async def test_the_rest_is_relayed_in_a_version_that_is_spoken_behind(cloud: Cloud) -> None:
    answer = await cloud.tenant.ask("GET", "/flavors", version="2.61")
    assert answer.headers["OpenStack-API-Version"] == "compute 2.61"
    assert answer.json() == (await cloud.tenant.ask("GET", "/flavors", version="2.61", straight=True)).json()
    assert (await cloud.tenant.ask("GET", "/flavors", version=NEWEST)).status_code == 200
    missing = await cloud.tenant.ask("GET", "/servers/no-such-server", version="2.61")
    assert missing.status_code == 404
    assert "itemNotFound" in missing.json()
    strangers = Person(cloud.tenant.front, cloud.tenant.nova, "no token")
    assert (await strangers.ask("GET", "/flavors", version="2.61")).status_code == 401
    assert (await strangers.ask("GET", "/os-server-groups", version="2.61")).status_code == 401


async def test_aggregates_changed_in_front_count_at_once(cloud: Cloud) -> None:
    made = await cloud.operator.ask("POST", "/os-aggregates", {"aggregate": {"name": "feed"}}, version="2.87")
    path = f"/os-aggregates/{made.json()['aggregate']['id']}"
    # The Nova behind is a Roost here, which knows only scopes that were made.
    scope = {"policy_scope": {"name": "power_feed"}}
    behind = (await cloud.operator.ask("POST", "/os-policy-scopes", scope, straight=True)).json()["policy_scope"]
    tagged = {"set_metadata": {"metadata": {"policy_scope": "power_feed"}}}
    assert (await cloud.operator.ask("POST", f"{path}/action", tagged, version="2.87")).status_code == 200
    listed = (await cloud.operator.ask("GET", "/os-policy-scopes")).json()["policy_scopes"]
    [found] = [each for each in listed if each["name"] == "power_feed"]
    assert [each["name"] for each in found["aggregates"]] == ["feed"]
    removed = {"remove_aggregate": {"aggregate_id": found["aggregates"][0]["aggregate_id"]}}
    assert (await cloud.operator.ask("POST", f"/os-policy-scopes/{found['id']}/action", removed)).status_code == 200
    metadata = (await cloud.operator.ask("GET", path, version="2.87", straight=True)).json()["aggregate"]["metadata"]
    assert metadata == {}
    await cloud.operator.ask("DELETE", path, version="2.87")
    await cloud.operator.ask("DELETE", f"/os-policy-scopes/{behind['id']}", straight=True)


async def test_explanations_use_the_flavors_behind(cloud: Cloud) -> None:
    group = await cloud.tenant.group("anti-affinity:availability_zone")
    for count, verdict in ((3, "placed"), (4, "refused")):
        asked = {"explain": {"flavorRef": "1", "count": count}}
        answer = await cloud.tenant.ask("POST", f"/os-server-groups/{group}/explain", asked)
        assert answer.json()["explanation"]["verdict"] == verdict


async def test_a_nova_that_does_not_answer_is_said_so(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roost.clouds.nova._root", lambda connection: "http://127.0.0.1:9")
    answer = await cloud.tenant.ask("GET", "/flavors", version="2.61")
    assert answer.status_code == 503
    assert "Nova does not answer" in answer.json()["serviceUnavailable"]["message"]


@pytest.mark.parametrize(
    ("rules", "policy", "limits"),
    [
        (["anti-affinity"], "anti-affinity", {}),
        (["soft-affinity", "anti-affinity:rack"], "anti-affinity", {}),
        (["affinity"], "affinity", {}),
        (["affinity:rack"], "soft-affinity", {}),
        (["affinity:rack:12"], "soft-affinity", {}),
        (["anti-affinity:rack:12"], "soft-anti-affinity", {}),
        (["soft-anti-affinity:rack", "affinity:switch"], "soft-anti-affinity", {}),
    ],
)
def test_the_nearest_policy_is_never_stricter(rules: list[str], policy: str, limits: dict[str, int]) -> None:
    parsed = [Rule.parse(rule) for rule in rules]
    assert nearest_policy(parsed) == (policy, limits)
    assert not is_stricter(Rule.parse(policy, limits), parsed)


def test_the_smallest_limit_of_any_scope_holds_for_hosts() -> None:
    rules = [
        Rule.parse("anti-affinity", {"max_server_per_host": 5}),
        Rule.parse("anti-affinity:rack", {"max_server_per_aggregate": 3}),
    ]
    assert nearest_policy(rules) == ("anti-affinity", {"max_server_per_host": 3})
    assert is_stricter(Rule.parse("anti-affinity", {"max_server_per_host": 2}), rules)
