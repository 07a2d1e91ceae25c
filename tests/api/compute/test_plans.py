"""Plans: what is said would happen, what then happens, and when it is refused."""

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa

from roost.compute.answers import plans
from roost.compute.moves import repair_steps
from roost.compute.scheduling import lifecycle
from tests.api.compute.conftest import Compute
from tests.api.compute.test_explanations import boot, make_group
from tests.compute.cloud import Cloud

VERSION = "2.1003"
RACK = {"name": "anti-affinity", "scope": "rack"}


async def plan(compute: Compute, group: str, cloud: str = "roost", **change: Any) -> dict[str, Any]:
    path = f"/os-server-groups/{group}/plan"
    return dict((await compute.post(path, {"plan": change}, version=VERSION, cloud=cloud))["plan"])


async def refused(compute: Compute, group: str, cloud: str = "roost", **change: Any) -> Any:
    response = await compute.api.post(
        f"/compute/v2.1/os-server-groups/{group}/plan", {"plan": change}, version=VERSION, cloud=cloud
    )
    return response.status_code, next(iter(response.json().values()))


async def members(compute: Compute, group: str) -> list[str]:
    shown = await compute.get(f"/os-server-groups/{group}", version=VERSION)
    return list(shown["server_group"]["members"])


async def hosts_of(compute: Compute, server_ids: list[str]) -> list[str]:
    shown = [await compute.api.get(f"/compute/v2.1/servers/{each}", version="2.90") for each in server_ids]
    return [each.json()["server"]["OS-EXT-SRV-ATTR:host"] for each in shown]


async def rack_of(compute: Compute, host: str) -> str:
    aggregates = (await compute.get("/os-aggregates"))["aggregates"]
    return next(str(each["id"]) for each in aggregates if "rack" in each["name"] and host in each["hosts"])


CREATE = {"flavorRef": "1", "count": 3}


async def test_servers_come_where_the_plan_said(compute: Compute) -> None:
    group = await make_group(compute, RACK)
    planned = await plan(compute, group, "roost-admin", create=CREATE)
    assert planned["sentence"] == "3 servers would be placed, no rules would be broken."
    assert await members(compute, group) == []
    applied = await plan(compute, group, "roost-admin", create=CREATE, generation=planned["generation"])
    assert applied["applied"]
    made = [each["server_id"] for each in applied["placements"]]
    assert await members(compute, group) == made
    assert await hosts_of(compute, made) == [each["host"] for each in planned["placements"]]


async def test_a_tenant_sees_the_racks_of_a_plan_and_no_host(compute: Compute) -> None:
    group = await make_group(compute, RACK)
    planned = await plan(compute, group, create=CREATE)
    assert len({each["placements"]["rack"] for each in planned["placements"]}) == 3
    assert all("host" not in each for each in planned["placements"])


async def test_a_plan_is_refused_once_a_host_it_names_is_gone(compute: Compute) -> None:
    group = await make_group(compute, RACK)
    planned = await plan(compute, group, "roost-admin", create=CREATE)
    services = (await compute.get("/os-services", version="2.53"))["services"]
    (service,) = [each["id"] for each in services if each["host"] == planned["placements"][0]["host"]]
    await compute.put(f"/os-services/{service}", {"status": "disabled"}, version="2.53")
    status, fault = await refused(compute, group, "roost-admin", create=CREATE, generation=planned["generation"])
    assert status == 409
    assert fault["message"] == "The plan no longer holds: other placements. Plan again."
    assert fault["difference"]["planned"]["placements"] != fault["difference"]["now"]["placements"]
    assert await members(compute, group) == []


async def test_a_plan_survives_what_does_not_matter(compute: Compute) -> None:
    group = await make_group(compute, RACK)
    planned = await plan(compute, group, "roost-admin", create=CREATE)
    taken = {each["host"] for each in planned["placements"]}
    racks = {await rack_of(compute, host) for host in taken}
    services = (await compute.get("/os-services", version="2.53"))["services"]
    computes = [each for each in services if each["binary"] == "nova-compute"]
    other, *_ = [each for each in computes if await rack_of(compute, each["host"]) not in racks]
    await compute.put(f"/os-services/{other['id']}", {"status": "disabled"}, version="2.53")
    applied = await plan(compute, group, "roost-admin", create=CREATE, generation=planned["generation"])
    assert applied["applied"]


async def test_a_plan_without_a_place_says_why_and_cannot_be_applied(compute: Compute) -> None:
    group = await make_group(compute, RACK)
    asked = {"flavorRef": "1", "count": 13}
    await Cloud(compute.api).quota(instances=-1)
    planned = await plan(compute, group, create=asked)
    assert planned["sentence"] == "There is no place for these servers; see the explanation."
    assert planned["explanation"]["verdict"] == "refused"
    status, fault = await refused(compute, group, create=asked, generation=planned["generation"])
    assert (status, fault["message"]) == (409, "The plan has no place for these servers; there is nothing to apply.")


async def test_new_policies_are_planned_with_what_they_would_break(compute: Compute) -> None:
    group = await make_group(compute, RACK)
    await boot(compute, group, 2)
    change: dict[str, Any] = {"policies": [{"name": "affinity", "scope": "rack"}]}
    planned = await plan(compute, group, **change)
    (violation,) = planned["violations"]
    assert violation["message"] == "1 member is apart from the rack that holds most, against 'affinity:rack'"
    shown = await compute.get(f"/os-server-groups/{group}", version=VERSION)
    assert shown["server_group"]["policies"][0]["name"] == "anti-affinity"
    await plan(compute, group, **change, generation=planned["generation"])
    shown = await compute.get(f"/os-server-groups/{group}", version=VERSION)
    assert shown["server_group"]["policies"][0]["name"] == "affinity"


async def test_a_plan_separates_what_it_breaks_from_what_was_broken_and_what_it_mends(compute: Compute) -> None:
    group = await make_group(compute, {"name": "soft-anti-affinity", "scope": "rack"})
    first, second, third, loose = [each["id"] for each in await boot(compute, group, 4)]
    leaving = {"remove_instance": {"instance_id": loose}}
    await compute.post(f"/os-server-groups/{group}/action", leaving, version=VERSION)
    apart: dict[str, Any] = {"policies": [{"name": "affinity", "scope": "rack"}, {"name": "soft-affinity"}]}
    broken = await plan(compute, group, **apart)
    assert broken["sentence"] == "1 rule would be broken."
    assert (len(broken["violations"]), broken["broken_before"], broken["mended"]) == (1, [], [])
    applied = await plan(compute, group, **apart, generation=broken["generation"])
    assert applied["sentence"] == "1 rule broken."

    left = await plan(compute, group, remove_servers=[first])
    assert left["sentence"] == "No rules would be broken, 1 would stay broken."
    assert (left["violations"], left["mended"]) == ([], [])
    (still,) = left["broken_before"]
    assert still["message"] == "1 member is apart from the rack that holds most, against 'affinity:rack'"

    further = await plan(compute, group, add_servers=[loose])
    assert further["sentence"] == "1 rule would be broken."
    assert [each["excess"] for each in further["violations"]] == [3]
    mending = await plan(compute, group, remove_servers=[first, second])
    assert mending["sentence"] == "No rules would be broken, 1 would be mended."
    (mended,) = mending["mended"]
    assert (mended["breach"], mended["excess"]) == ("apart", 2)
    assert set(mended["members"]) < {first, second, third}
    applied = await plan(compute, group, remove_servers=[first, second], generation=mending["generation"])
    assert applied["sentence"] == "0 rules broken, 1 mended."


async def test_a_limit_that_is_raised_mends_and_one_that_is_lowered_breaks_further(compute: Compute) -> None:
    group = await make_group(compute, {"name": "affinity", "scope": "rack"})
    await boot(compute, group, 4)

    def at_most(limit: int) -> dict[str, Any]:
        return {"policies": [{**RACK, "rules": {"max_server_per_aggregate": limit}}]}

    planned = await plan(compute, group, **at_most(2))
    await plan(compute, group, **at_most(2), generation=planned["generation"])
    less, some, enough = [await plan(compute, group, **at_most(limit)) for limit in (1, 3, 4)]
    assert [(each["excess"], less["broken_before"], less["mended"]) for each in less["violations"]] == [(3, [], [])]
    assert [(each["excess"], some["violations"], some["mended"]) for each in some["broken_before"]] == [(1, [], [])]
    assert [(each["excess"], enough["violations"]) for each in enough["mended"]] == [(2, [])]


async def test_a_loss_says_for_each_group_what_it_breaks_and_what_it_mends(compute: Compute) -> None:
    group = await make_group(compute, {"name": "soft-anti-affinity", "scope": "rack"})
    servers = await boot(compute, group, 2)
    together = {"server_group": {"policies": [{"name": "affinity", "scope": "rack"}]}}
    await compute.post(f"/os-server-groups/{group}", together, version=VERSION)
    body = {"plan": {"drain": {"scope": "host", "identifier": servers[1]["OS-EXT-SRV-ATTR:host"]}}}
    (found,) = (await compute.post("/os-server-groups/plan?all_projects=1", body, version=VERSION))["plan"]["groups"]
    assert found["violations"] == []
    assert [each["breach"] for each in found["mended"] + found["broken_before"]] == ["apart"]


async def test_a_plan_of_policies_is_refused_once_the_members_have_changed(compute: Compute) -> None:
    group = await make_group(compute, RACK)
    await boot(compute, group, 2)
    change: dict[str, Any] = {"policies": [{"name": "affinity", "scope": "rack"}]}
    planned = await plan(compute, group, **change)
    leaving = {"remove_instance": {"instance_id": (await members(compute, group))[0]}}
    await compute.api.post(f"/compute/v2.1/os-server-groups/{group}/action", leaving, version=VERSION)
    status, fault = await refused(compute, group, **change, generation=planned["generation"])
    assert (status, fault["message"]) == (
        409, "The plan no longer holds: violations: 1 then, 0 now. Plan again."
    )  # fmt: skip


async def test_members_are_planned_to_come_and_to_go(compute: Compute) -> None:
    group = await make_group(compute, {"name": "affinity", "scope": "rack"})
    (server,) = await boot(compute)
    added = await plan(compute, group, add_servers=[server["id"]])
    assert await members(compute, group) == []
    await plan(compute, group, add_servers=[server["id"]], generation=added["generation"])
    assert await members(compute, group) == [server["id"]]
    gone = await plan(compute, group, remove_servers=[server["id"]])
    await plan(compute, group, remove_servers=[server["id"]], generation=gone["generation"])
    assert await members(compute, group) == []


async def test_a_generation_is_good_for_its_own_change_only(compute: Compute) -> None:
    group = await make_group(compute, RACK)
    planned = await plan(compute, group, create=CREATE)
    status, fault = await refused(compute, group, create={**CREATE, "count": 4}, generation=planned["generation"])
    assert status == 409
    assert "is for another change; plan again." in fault["message"]
    status, fault = await refused(compute, group, create=CREATE, generation="1.2.999")
    assert (status, fault["message"]) == (409, "There is no plan of generation 1.2.999 for this group; plan again.")


async def test_a_plan_is_applied_once(compute: Compute) -> None:
    group = await make_group(compute, {"name": "soft-affinity"})
    planned = await plan(compute, group, create=CREATE)
    await plan(compute, group, create=CREATE, generation=planned["generation"])
    status, fault = await refused(compute, group, create=CREATE, generation=planned["generation"])
    assert (status, fault["message"]) == (
        409, f"There is no plan of generation {planned['generation']} for this group; plan again."
    )  # fmt: skip
    assert len(await members(compute, group)) == 3


async def test_a_rack_is_drained_by_a_repair(compute: Compute) -> None:
    group = await make_group(compute, RACK)
    servers = await boot(compute, group, 2)
    rack = await rack_of(compute, servers[0]["OS-EXT-SRV-ATTR:host"])
    change = {"drain": {"scope": "rack", "identifier": rack}}
    planned = await plan(compute, group, "roost-admin", **change)
    (move,) = planned["moves"]
    assert move["server_id"] == servers[0]["id"]
    assert move["source"]["rack"] == rack != move["target"]["rack"]
    assert (await refused(compute, group, "roost-manager", **change, generation=planned["generation"]))[0] in (400, 403)
    applied = await plan(compute, group, "roost-admin", **change, generation=planned["generation"])
    services = compute.api.services
    mover = repair_steps.EmbeddedMover(services.database, services.scheduler)
    for _ in range(4):
        await repair_steps.advance_all(services.database, mover)
        await lifecycle.finish(services.database)
    assert await hosts_of(compute, [move["server_id"]]) == [move["target"]["host"]]
    shown = await compute.get(f"/os-server-groups/{group}/repairs/{applied['repair_id']}", version=VERSION)
    assert shown["repair"]["status"] == "done"


async def test_the_loss_of_a_rack_is_a_question(compute: Compute) -> None:
    group = await make_group(compute, RACK)
    servers = await boot(compute, group, 2)
    rack = await rack_of(compute, servers[0]["OS-EXT-SRV-ATTR:host"])
    change = {"lose": {"scope": "rack", "identifier": rack}}
    planned = await plan(compute, group, "roost-admin", **change)
    assert planned["sentence"] == "1 server would move, no rules would be broken."
    status, fault = await refused(compute, group, "roost-admin", **change, generation=planned["generation"])
    assert (status, fault["message"]) == (
        400, "To lose an aggregate is a question, nothing that could be applied."
    )  # fmt: skip


async def test_members_bound_to_a_lost_rack_find_no_other_place(compute: Compute) -> None:
    group = await make_group(compute, {"name": "affinity", "scope": "rack"})
    servers = await boot(compute, group, 2)
    rack = await rack_of(compute, servers[0]["OS-EXT-SRV-ATTR:host"])
    planned = await plan(compute, group, "roost-admin", lose={"scope": "rack", "identifier": rack})
    assert [each["server_id"] for each in planned["stranded"]] == [each["id"] for each in reversed(servers)]
    assert "share no rack with the members, as 'affinity:rack' asks" in planned["stranded"][0]["sentence"]


async def test_a_loss_is_told_for_a_tenant_and_for_the_cloud(compute: Compute) -> None:
    group = await make_group(compute, RACK)
    servers = await boot(compute, group, 2)
    rack = await rack_of(compute, servers[0]["OS-EXT-SRV-ATTR:host"])
    body = {"plan": {"lose": {"scope": "rack", "identifier": rack}}}
    lost = (await compute.post("/os-server-groups/plan?all_projects=1", body, version=VERSION))["plan"]
    assert lost["sentence"] == ("1 server in 1 group would be affected: 1 would find another place, 0 would not.")
    assert [each["server_group_id"] for each in lost["groups"]] == [group]
    assert (await compute.post("/os-server-groups/plan", body, version=VERSION))["plan"]["groups"] == []
    status, _ = await compute.refusal(
        "POST", "/os-server-groups/plan?all_projects=1", body, version=VERSION, cloud="roost"
    )
    assert status == 403


@pytest.mark.parametrize(
    ("aggregate", "status", "sentence"),
    [
        ({"scope": "rack", "identifier": "1"}, 400, "The policy scope 'rack' does not allow identifiers."),
        (
            {"scope": "nosuch", "identifier": "1"},
            400,
            "There is no policy scope 'nosuch': availability_zone, host, rack,",
        ),
        ({"scope": "host", "identifier": "x"}, 400, "There is no host 'x' that you could name."),
        ({"scope": "availability_zone", "identifier": "x"}, 404, "The policy scope 'availability_zone' has no 'x'."),
    ],
)
async def test_a_tenant_loses_only_what_it_may_name(
    compute: Compute, aggregate: dict[str, str], status: int, sentence: str
) -> None:
    body = {"plan": {"lose": aggregate}}
    refused, said = await compute.refusal("POST", "/os-server-groups/plan", body, version=VERSION, cloud="roost")
    assert refused == status
    assert said.startswith(sentence)


async def test_a_zone_can_be_lost_by_a_tenant(compute: Compute) -> None:
    group = await make_group(compute, {"name": "soft-anti-affinity"})
    await boot(compute, group, availability_zone="zone1")
    planned = await plan(compute, group, lose={"scope": "availability_zone", "identifier": "zone1"})
    (lost,) = planned["stranded"]
    assert lost["sentence"].startswith("No place for 1 server: ")


async def test_a_plan_applied_twice_numbers_the_servers_on(compute: Compute) -> None:
    group = await make_group(compute, {"name": "soft-anti-affinity"})
    create = {"flavorRef": "1", "count": 2, "name": "db"}
    for expected in (["db-1", "db-2"], ["db-3", "db-4"]):
        planned = await plan(compute, group, create=create)
        assert [each["name"] for each in planned["placements"]] == expected
        await plan(compute, group, create=create, generation=planned["generation"])
    names = {each["name"] for each in (await compute.get("/servers", version=VERSION, cloud="roost"))["servers"]}
    assert names == {"db-1", "db-2", "db-3", "db-4"}


async def test_a_plan_beyond_the_quota_is_refused_as_the_servers_would_be(compute: Compute) -> None:
    group = await make_group(compute, {"name": "soft-anti-affinity"})
    await boot(compute, group)
    asked = {"flavorRef": "1", "count": 10}
    for path, body in (("plan", {"plan": {"create": asked}}), ("explain", {"explain": asked})):
        status, sentence = await compute.refusal(
            "POST", f"/os-server-groups/{group}/{path}", body, version=VERSION, cloud="roost"
        )
        assert status == 403
        assert sentence == "Quota exceeded for instances: Requested 10, but already used 1 of 10 instances"


async def test_only_the_latest_plans_of_a_group_are_kept(compute: Compute) -> None:
    group = await make_group(compute, RACK)
    first = await plan(compute, group, create=CREATE)
    for _ in range(20):
        last = await plan(compute, group, create=CREATE)
    status, fault = await refused(compute, group, create=CREATE, generation=first["generation"])
    assert (status, fault["message"][:16]) == (409, "There is no plan")
    assert (await plan(compute, group, create=CREATE, generation=last["generation"]))["applied"]


async def test_a_drain_is_decided_without_a_lock_and_again_if_the_group_has_changed(
    compute: Compute, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = await make_group(compute, {"name": "soft-anti-affinity", "scope": "rack"})
    servers = await boot(compute, group, 2)
    change = {"drain": {"scope": "host", "identifier": servers[0]["OS-EXT-SRV-ATTR:host"]}}
    planned = await plan(compute, group, "roost-admin", **change)
    database, decided = compute.api.services.database, 0
    whole = plans._displaced

    async def meanwhile(*given: Any) -> Any:
        nonlocal decided
        outcome = await whole(*given)
        decided += 1
        if decided == 1:  # the group is free to be changed
            async with asyncio.timeout(10), database.begin() as connection:
                await connection.execute(sa.text("UPDATE server_groups SET version = version + 1"))
        return outcome

    monkeypatch.setattr(plans, "_displaced", meanwhile)
    applied = await plan(compute, group, "roost-admin", **change, generation=planned["generation"])
    assert (decided, applied["applied"], applied["moves"]) == (2, True, planned["moves"])
