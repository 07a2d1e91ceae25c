"""Roost in front of a Nova over HTTP: here the Nova is a served Roost, which speaks the same API. tests/lab asks a real
one."""

import asyncio
import uuid
from collections.abc import Collection, Sequence
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from roost.clouds.nova import Nova, is_stricter, nearest_policy
from roost.compute.fronting import reservations
from roost.compute.fronting.choice import COLUMNS, FAILED_BUILDS
from roost.compute.fronting.mirror import NovaHost
from roost.compute.inventory import images
from roost.placement.rules import Rule
from roost.store.tables.compute import hosts
from tests.clouds.conftest import NEWEST, Cloud, Person, through
from tests.clouds.fault_proxy import Cut, FaultProxy
from tests.conftest import Served


@pytest.mark.parametrize("path", ["/servers", "/os-server-groups"])
async def test_a_roost_in_novas_place_in_the_catalogue_says_so_instead_of_asking_itself(
    cloud: Cloud, served: Served, path: str
) -> None:
    in_front = cloud.tenant.front
    async with FaultProxy(str(in_front.base_url), in_front._transport).running() as proxy:
        nova, cloud.front.nova = cloud.front.nova, through(proxy, served)
        body = {"server_group": {"name": "g", "policies": ["affinity"]}}
        answer = await cloud.tenant.ask("POST", path, body, version="2.1002")
        cloud.front.nova.close()
        cloud.front.nova = nova
    assert answer.status_code == 409, answer.text
    assert "set compute_endpoint_override to Nova's own address" in answer.json()["conflictingRequest"]["message"]
    asked = [path for _, path in proxy.seen if not path.endswith("/v2.1")]  # what openstacksdk looks up is not Roost's
    assert len(asked) == 1, "the first request that comes back is the last"


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


class WithPlacement:
    """A connection to a cloud that has Placement, which offers some hosts."""

    def __init__(self, connection: Any, offered: Any) -> None:
        self.connection = connection
        answer = SimpleNamespace(status_code=200, json=lambda: {"provider_summaries": offered})
        self.placement = SimpleNamespace(get=lambda path, **_: answer)

    def has_service(self, name: str) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)


async def test_a_host_that_placement_does_not_offer_is_full_and_has_a_size(cloud: Cloud) -> None:
    listed = await cloud.operator.ask("GET", "/os-hypervisors/detail", version="2.87", straight=True)
    first, second, *_ = listed.json()["hypervisors"]
    room = {"capacity": 640, "used": 3}
    nova = cloud.front.nova
    nova._connected = WithPlacement(nova._connected, {first["id"]: {"resources": {"VCPU": room, "MEMORY_MB": room}}})
    await cloud.front.follow()
    async with cloud.front.database.begin() as connection:
        rows = {row.name: row for row in await connection.execute(sa.select(hosts))}
    for shown, used, size in ((first, 3, 640), (second, second["vcpus"], second["vcpus"])):
        row = rows[shown["service"]["host"]]
        assert (row.vcpus_used, row.vcpus) == (used, size)


async def test_groups_do_not_wait_for_a_nova_that_takes_long_to_list_its_hosts(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a server that boots in a group of which Roost has not heard yet would end in ERROR."""
    begun, answered = asyncio.Event(), asyncio.Event()
    hosts = await cloud.front.nova.hosts()

    async def slowly(nova: Nova) -> list[NovaHost]:
        begun.set()
        await answered.wait()
        return hosts

    body = {"server_group": {"name": "native", "policy": "affinity"}}
    made = await cloud.tenant.ask("POST", "/os-server-groups", body, version="2.64", straight=True)
    with monkeypatch.context() as patched:
        patched.setattr(Nova, "hosts", slowly)
        following = asyncio.create_task(cloud.front.follow_inventory())
        await begun.wait()
        async with asyncio.timeout(5):
            offered = [host.name for host in hosts]
            group, server = made.json()["server_group"]["id"], str(uuid.uuid4())
            assert set(await choice_of(cloud, group, server, offered=offered)) <= set(offered)
            assert await cloud.tenant.group("anti-affinity:rack")
        assert not following.done()
        answered.set()
        await following


async def test_the_rest_is_relayed_in_a_version_that_is_spoken_behind(cloud: Cloud) -> None:
    answer = await cloud.tenant.ask("GET", "/flavors", version="2.61")
    assert answer.headers["OpenStack-API-Version"] == "compute 2.61"
    straight = await cloud.tenant.ask("GET", "/flavors", version="2.61", straight=True)
    assert answer.text.replace("http://front.test", str(straight.url).partition("/compute")[0]) == straight.text
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


def planned(count: int = 3, **more: str) -> dict[str, Any]:
    return {"flavorRef": "1", "imageRef": images.USUAL[0].id, "count": count, "name": "web", **more}


async def test_a_planned_creation_is_applied_in_nova_for_the_places_that_were_planned(cloud: Cloud) -> None:
    """The Nova here has no plug-in: what its scheduler would ask is asked by the test."""
    group = await cloud.tenant.group("anti-affinity:availability_zone")
    path = f"/os-server-groups/{group}/plan"
    plan = (await cloud.tenant.ask("POST", path, {"plan": {"create": planned()}})).json()["plan"]
    assert plan["sentence"] == "3 servers would be placed, no rules would be broken."
    assert len({each["placements"]["availability_zone"] for each in plan["placements"]}) == 3
    order = {"plan": {"create": planned(), "generation": plan["generation"]}}
    applied = (await cloud.tenant.ask("POST", path, order)).json()["plan"]
    assert applied["applied"]
    assert applied["sentence"] == "3 servers placed, 0 rules broken."
    where = [(each["name"], each["placements"]) for each in applied["placements"]]
    assert where == [(each["name"], each["placements"]) for each in plan["placements"]]
    async with cloud.front.database.begin() as connection:
        held = (await reservations.show(connection, group)).held
    assert len(held) == 3
    for each in applied["placements"]:
        shown = (await cloud.tenant.ask("GET", f"/servers/{each['server_id']}", version="2.87")).json()["server"]
        assert shown["name"] == each["name"]
        hints = await hints_behind(cloud, each["server_id"])
        assert hints["group"] == group
        place = held[hints["roost_place"]]
        assert await choice_of(cloud, group, each["server_id"], hints["roost_place"]) == [place.host]
    async with cloud.front.database.begin() as connection:
        members = (await reservations.show(connection, group)).members
    assert sorted(members) == sorted(each["server_id"] for each in applied["placements"])
    assert (await cloud.tenant.ask("POST", path, order)).status_code == 409, "a plan is applied once"


async def test_a_planned_creation_that_nova_refuses_leaves_nothing(cloud: Cloud) -> None:
    group = await cloud.tenant.group("anti-affinity")
    path = f"/os-server-groups/{group}/plan"
    wrong = planned(2, imageRef="00000000-0000-4000-8000-00000000dead")
    plan = (await cloud.tenant.ask("POST", path, {"plan": {"create": wrong}})).json()["plan"]
    refused = await cloud.tenant.ask("POST", path, {"plan": {"create": wrong, "generation": plan["generation"]}})
    assert refused.status_code == 400, refused.text
    assert "image" in refused.json()["badRequest"]["message"].lower()
    assert (await cloud.tenant.ask("GET", "/servers", version="2.87")).json()["servers"] == []
    async with cloud.front.database.begin() as connection:
        assert (await reservations.show(connection, group)).held == {}
    unknown = {"plan": {"create": {"flavorRef": "no-such-flavor", "count": 1}}}
    assert (await cloud.tenant.ask("POST", path, unknown)).status_code == 400


async def apply_through(cloud: Cloud, served: Served, *faults: tuple[str, str, Cut, int]) -> tuple[str, httpx.Response]:
    """Apply a plan for three servers while some requests to Nova go wrong; its group and the answer."""
    group = await cloud.tenant.group("anti-affinity:availability_zone")
    path = f"/os-server-groups/{group}/plan"
    plan = (await cloud.tenant.ask("POST", path, {"plan": {"create": planned()}})).json()["plan"]
    order = {"plan": {"create": planned(), "generation": plan["generation"]}}
    async with FaultProxy(served.url).running() as proxy:
        for fault in faults:
            proxy.fail(*fault)
        nova, cloud.front.nova = cloud.front.nova, through(proxy, served)
        answer = await cloud.tenant.ask("POST", path, order)
        cloud.front.nova.close()
        cloud.front.nova = nova
    return group, answer


async def servers_behind(cloud: Cloud) -> dict[str, str]:
    listed = await cloud.tenant.ask("GET", "/servers", version="2.87", straight=True)
    return {server["id"]: server["name"] for server in listed.json()["servers"]}


async def test_servers_of_a_plan_whose_creation_nova_did_not_answer_are_found(cloud: Cloud, served: Served) -> None:
    group, answer = await apply_through(cloud, served, ("POST", "/servers$", Cut.AFTER, 2))
    assert answer.status_code == 200, answer.text
    made = {each["server_id"]: each["name"] for each in answer.json()["plan"]["placements"]}
    assert made == await servers_behind(cloud), "each once"
    async with cloud.front.database.begin() as connection:
        held = (await reservations.show(connection, group)).held
    for server in made:
        token = (await hints_behind(cloud, server))["roost_place"]
        assert await choice_of(cloud, group, server, token) == [held[token].host]


async def test_a_plan_whose_creation_never_reached_nova_leaves_nothing(
    cloud: Cloud, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roost.clouds.front._LOOKS", (0.0, 0.1))
    group, answer = await apply_through(cloud, served, ("POST", "/servers$", Cut.BEFORE, 1))
    assert answer.status_code == 503, answer.text
    assert "Nova does not answer" in answer.json()["serviceUnavailable"]["message"]
    await gone(cloud)
    async with cloud.front.database.begin() as connection:
        assert (await reservations.show(connection, group)).held == {}
    path = f"/os-server-groups/{group}/plan"
    again = (await cloud.tenant.ask("POST", path, {"plan": {"create": planned()}})).json()["plan"]
    order = {"plan": {"create": planned(), "generation": again["generation"]}}
    assert (await cloud.tenant.ask("POST", path, order)).json()["plan"]["applied"], "a new plan has the places"


async def test_servers_that_nova_makes_after_their_plan_failed_are_deleted(
    cloud: Cloud, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing comes back from Nova: neither that it made the servers, nor their list, nor that it would delete them."""
    monkeypatch.setattr("roost.clouds.front._LOOKS", (0.0,))
    lost = [("POST", "/servers$", Cut.AFTER, 3), ("GET", "/servers/detail", Cut.BEFORE, 100)]
    kept = await cloud.tenant.boot()
    _, answer = await apply_through(cloud, served, *lost, ("DELETE", "/servers/", Cut.BEFORE, 100))
    assert answer.status_code == 503, answer.text
    assert len(await servers_behind(cloud)) == 4
    await cloud.front.follow()
    await gone(cloud, but={kept})


async def gone(cloud: Cloud, but: Collection[str] = ()) -> None:
    for _ in range(300):
        if (await servers_behind(cloud)).keys() <= set(but):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(await servers_behind(cloud))


async def test_a_planned_creation_that_no_longer_holds_is_refused(cloud: Cloud) -> None:
    group = await cloud.tenant.group("anti-affinity:availability_zone")
    path = f"/os-server-groups/{group}/plan"
    plan = (await cloud.tenant.ask("POST", path, {"plan": {"create": planned()}})).json()["plan"]
    await cloud.host(await cloud.tenant.boot(group))
    await cloud.front.follow()
    answer = await cloud.tenant.ask("POST", path, {"plan": {"create": planned(), "generation": plan["generation"]}})
    assert answer.status_code == 409, answer.text
    assert "The plan no longer holds" in answer.json()["conflictingRequest"]["message"]
    assert len((await cloud.tenant.ask("GET", "/servers", version="2.87")).json()["servers"]) == 1


async def hints_behind(cloud: Cloud, server: str) -> dict[str, str]:
    """The hints that Nova was given with a server."""
    shown = await cloud.operator.ask("GET", f"/servers/{server}", version="2.100", straight=True)
    return {key: value for key, [value] in shown.json()["server"]["scheduler_hints"].items()}


async def choice_of(
    cloud: Cloud, group: str, server: str, token: str = "", offered: Sequence[str] | None = None
) -> list[str]:
    """What Roost answers the plug-in about a server, with every host of the cloud to choose from."""
    hosts = offered or [host.name for host in await cloud.front.nova.hosts()]
    room = {name: [0.0 if name == FAILED_BUILDS or name.endswith("used") else 100.0] * len(hosts) for name in COLUMNS}
    wanted = {"instance_id": server, "group_id": group, "project_id": "p", "user_id": "u", "token": token}
    asked = {**wanted, "resources": {"vcpus": 1, "memory_mb": 1, "disk_gb": 1}, "hosts": {"names": hosts, **room}}
    headers = {"X-Auth-Token": cloud.operator.token}
    answer = await cloud.operator.front.post("/scheduler/choices", json={"choice": asked}, headers=headers)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["choice"]["hosts"])


READ_BY_THE_DASHBOARD = (
    *("/os-fleet", "/os-troubles", "/os-history?limit=20", "/os-search?q=gro", "/flavors"),
    *("/os-policy-scopes", "/os-lists/groups?limit=50", "/os-lists/servers?limit=50"),
    *("/os-server-groups/{group}", "/os-server-groups/{group}/audit", "/os-server-groups/{group}/repairs"),
    *("/servers/{server}", "/os-lists/servers?group_id={group}&limit=1000", "/os-lists/servers?q={server}"),
    *(
        "/os-lists/servers?id={server}",
        "/os-lists/servers?group_id={group}&status=ERROR",
        "/os-exports/servers?format=csv",
    ),
)
"""What its pages ask for when they are opened; operators see more."""
READ_BY_OPERATORS = (
    "/os-lists/hosts?limit=50",
    "/os-lists/projects?limit=50",
    "/os-services?host={host}",
    *("/os-lists/aggregates?limit=50", "/os-drains", "/os-figures?hours=6"),
    *("/os-lists/hosts?name={host}", "/os-lists/servers?host={host}", "/os-quota-sets/{project}/detail"),
    "/os-lists/projects?id={project}",
)


async def test_every_page_of_the_dashboard_opens_in_front_of_nova(cloud: Cloud) -> None:
    page = await cloud.tenant.front.get("/", headers={"Accept": "text/html"}, follow_redirects=True)
    assert (page.status_code, page.headers["content-type"].partition(";")[0]) == (200, "text/html")
    group = await cloud.tenant.group("anti-affinity:rack")
    server = await cloud.tenant.boot(group)
    shown = (await cloud.tenant.ask("GET", f"/servers/{server}")).json()["server"]
    names = {"group": group, "server": server, "host": await cloud.host(server), "project": shown["tenant_id"]}
    await cloud.front.follow()
    for person, paths in (
        (cloud.tenant, READ_BY_THE_DASHBOARD),
        (cloud.operator, (*READ_BY_THE_DASHBOARD, *READ_BY_OPERATORS)),
    ):
        answers = {path: await person.ask("GET", path.format_map(names)) for path in paths}
        assert {path: answer.text for path, answer in answers.items() if answer.status_code != 200} == {}
    listed = (await cloud.tenant.ask("GET", f"/os-lists/servers?group_id={group}&limit=1000")).json()
    assert server in str(listed)


async def test_planned_policies_and_members_meet_the_refusals_of_the_change_itself(cloud: Cloud) -> None:
    server, group = await cloud.tenant.boot(), await cloud.tenant.group("anti-affinity")
    path = f"/os-server-groups/{group}/plan"
    weaker = {"plan": {"policies": [{"name": "soft-anti-affinity"}]}}
    refused = await cloud.tenant.ask("POST", path, weaker)
    assert refused.status_code == 409
    assert "make a new group" in refused.json()["conflictingRequest"]["message"]
    unknown = {"plan": {"add_servers": ["00000000-0000-4000-8000-000000000000"]}}
    assert (await cloud.tenant.ask("POST", path, unknown)).status_code == 404
    for change in ({"add_servers": [server]}, {"policies": [{"name": "anti-affinity", "scope": "rack"}]}):
        before = (await cloud.tenant.ask("GET", f"/os-server-groups/{group}")).json()
        planned = (await cloud.tenant.ask("POST", path, {"plan": change})).json()["plan"]
        assert not planned["applied"]
        assert (await cloud.tenant.ask("GET", f"/os-server-groups/{group}")).json() == before
        order = {"plan": {**change, "generation": planned["generation"]}}
        assert (await cloud.tenant.ask("POST", path, order)).json()["plan"]["applied"]
    shown = (await cloud.tenant.ask("GET", f"/os-server-groups/{group}")).json()["server_group"]
    assert (shown["members"], [policy["scope"] for policy in shown["policies"]]) == ([server], ["rack"])


async def test_the_loss_of_an_aggregate_is_looked_at_for_a_group_a_project_and_the_cloud(cloud: Cloud) -> None:
    group = await cloud.tenant.group("anti-affinity:availability_zone")
    alone, *members = [await cloud.tenant.boot(each) for each in (None, group, group)]
    hosts = [await cloud.host(member) for member in members]
    await cloud.front.follow()
    lost = {"plan": {"lose": {"scope": "host", "identifier": hosts[0]}}}
    planned = (await cloud.operator.ask("POST", f"/os-server-groups/{group}/plan", lost)).json()["plan"]
    assert [move["server_id"] for move in planned["moves"]] == members[:1]
    everywhere = (await cloud.operator.ask("POST", "/os-server-groups/plan?all_projects=1", lost)).json()["plan"]
    assert [(each["server_group_id"], each["affected"]) for each in everywhere["groups"]] == [(group, 1)]
    own = {"plan": {"lose": {"scope": "availability_zone", "identifier": "zone1"}}}
    assert (await cloud.tenant.ask("POST", "/os-server-groups/plan", own)).status_code == 200
    assert (await cloud.tenant.ask("POST", "/os-server-groups/plan?all_projects=1", own)).status_code == 403
    added = {"plan": {"add_servers": [alone]}}
    assert (await cloud.tenant.ask("POST", f"/os-server-groups/{group}/plan", added)).status_code == 200
    lost = {"plan": {"lose": {"scope": "host", "identifier": await cloud.host(alone)}}}
    everywhere = (await cloud.operator.ask("POST", "/os-server-groups/plan?all_projects=1", lost)).json()["plan"]
    assert None not in [each["server_group_id"] for each in everywhere["groups"]], "who is in no group is not followed"


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
