"""Policies on real clusters, through the API and a working engine: what is asserted is where the servers are."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import sqlalchemy as sa

from roost.store.tables.compute import hosts
from roost.store.tables.servers import servers
from tests.clusters.house import House, clustering

ZONES: dict[str, Any] = {"zones": [{"name": "zone1"}, {"name": "zone2"}, {"name": "zone3"}]}


@pytest.fixture
async def house(database_url: str) -> AsyncIterator[House]:
    """A clustering service with one engine, on three zones of sixteen hosts."""
    async with clustering(database_url, clusters__health_interval_min=1) as made:
        yield made


async def where(house: House) -> list[tuple[str, str, str | None]]:
    """Of every server its zone, its host and its server group, as the cloud has them."""
    query = sa.select(hosts.c.availability_zone, hosts.c.name, sa.cast(servers.c.group_id, sa.Text)).join(
        hosts, hosts.c.id == servers.c.host_id
    )
    async with house.database.begin() as connection:
        return [(row[0], row[1], row[2]) for row in (await connection.execute(query)).all()]


async def zones(house: House) -> dict[str, int]:
    return dict(Counter(zone for zone, _, _ in await where(house)))


async def attach(house: House, cluster: Mapping[str, Any], kind: str, version: str = "1.0", **spec: Any) -> None:
    policy = await house.policy(f"senlin.policy.{kind}", version, **spec)
    action = await house.act(cluster, "policy_attach", {"policy_id": policy["id"]})
    assert action["status"] == "SUCCEEDED", action["status_reason"]


async def binding(house: House, cluster: Mapping[str, Any]) -> dict[str, Any]:
    [bound] = await house.get(f"/clusters/{cluster['id']}/policies")
    data: dict[str, Any] = bound["data"]
    return data


async def groups(house: House) -> list[dict[str, Any]]:
    answer = await house.api.get("/compute/v2.1/os-server-groups", cloud="roost")
    found: list[dict[str, Any]] = answer.json()["server_groups"]
    return found


async def test_zones_are_filled_evenly_and_scaling_in_keeps_the_balance(house: House) -> None:
    cluster = await house.cluster(0)
    await attach(house, cluster, "zone_placement", **ZONES)
    await house.act(cluster, "scale_out", {"count": 7})
    assert sorted((await zones(house)).values()) == [2, 2, 3]
    await house.act(cluster, "scale_in", {"count": 3})
    assert sorted((await zones(house)).values()) == [1, 1, 2]
    await house.act(cluster, "resize", {"adjustment_type": "EXACT_CAPACITY", "number": 9})
    assert await zones(house) == {"zone1": 3, "zone2": 3, "zone3": 3}


async def test_policies_govern_a_cluster_from_its_first_node_on(house: House) -> None:
    spread = await house.policy("senlin.policy.zone_placement", **ZONES)
    near = await house.policy("senlin.policy.affinity")
    config = {"cluster.policies": [spread["name"], near["id"]]}
    cluster = await house.cluster(6, config=config)
    found = await where(house)
    assert Counter(zone for zone, _, _ in found) == {"zone1": 2, "zone2": 2, "zone3": 2}
    assert len({host for _, host, _ in found}) == 6
    [group] = await groups(house)
    assert {member for _, _, member in found} == {group["id"]}
    bound = await house.get(f"/clusters/{cluster['id']}/policies")
    assert {each["policy_id"] for each in bound} == {spread["id"], near["id"]}


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("nobody", "The specified policy 'nobody' could not be found."),
        (7, "The 'cluster.policies' of a cluster's config is a list of policies: '7'."),
    ],
)
async def test_a_cluster_is_not_made_under_policies_that_cannot_be(house: House, named: Any, message: str) -> None:
    profile = await house.profile()
    body = {"name": "c", "profile_id": profile["id"], "config": {"cluster.policies": named}}
    answer = await house.post("/clusters", {"cluster": body})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == message
    assert await house.get("/clusters") == []


async def test_a_single_node_goes_where_it_is_needed_unless_its_profile_says_where(house: House) -> None:
    profile = await house.profile()
    cluster = await house.cluster(0, profile=profile)
    await attach(house, cluster, "zone_placement", **ZONES)
    for _ in range(3):
        await house.node(cluster_id=cluster["id"], profile_id=profile["id"])
    assert await zones(house) == {"zone1": 1, "zone2": 1, "zone3": 1}
    pinned = await house.profile(availability_zone="zone2")
    await house.node(cluster_id=cluster["id"], profile_id=pinned["id"])
    assert await zones(house) == {"zone1": 1, "zone2": 2, "zone3": 1}


async def test_affinity_makes_a_group_gives_it_to_every_server_and_deletes_it(house: House) -> None:
    cluster = await house.cluster(0)
    await attach(house, cluster, "affinity")
    [group] = await groups(house)
    assert await binding(house, cluster) == {
        "AffinityPolicy": {"version": 1.0, "data": {"servergroup_id": group["id"], "inherited_group": False}}
    }
    action = await house.act(cluster, "scale_out", {"count": 2})
    assert action["data"]["placement"] == {"count": 2, "placements": [{"servergroup": group["id"]}] * 2}
    await house.node(cluster_id=cluster["id"], profile_id=cluster["profile_id"])
    found = await where(house)
    assert {member for _, _, member in found} == {group["id"]}
    assert len({host for _, host, _ in found}) == 3

    [bound] = await house.get(f"/clusters/{cluster['id']}/policies")
    await house.act(cluster, "policy_detach", {"policy_id": bound["policy_id"]})
    assert await groups(house) == []


async def test_affinity_inherits_the_group_of_the_profile_and_leaves_it(house: House) -> None:
    body = {"server_group": {"name": "mine", "policies": ["soft-anti-affinity"]}}
    made = await house.api.post("/compute/v2.1/os-server-groups", body, cloud="roost", version="2.15")
    group = made.json()["server_group"]["id"]
    cluster = await house.cluster(0, profile=await house.profile(scheduler_hints={"group": group}))
    await attach(house, cluster, "affinity", servergroup={"policies": "soft-anti-affinity"})
    assert await binding(house, cluster) == {
        "AffinityPolicy": {"version": 1.0, "data": {"servergroup_id": group, "inherited_group": True}}
    }
    await house.act(cluster, "scale_out", {"count": 2})
    assert {member for _, _, member in await where(house)} == {group}
    [bound] = await house.get(f"/clusters/{cluster['id']}/policies")
    await house.act(cluster, "policy_detach", {"policy_id": bound["policy_id"]})
    assert [each["id"] for each in await groups(house)] == [group]


async def test_scopes_spread_a_cluster_over_racks_on_one_switch(house: House) -> None:
    cluster = await house.cluster(0)
    rules = [{"name": "anti-affinity", "scope": "rack"}, {"name": "affinity", "scope": "switch"}]
    await attach(house, cluster, "affinity", "1.1", servergroup={"policies": rules})
    await house.act(cluster, "scale_out", {"count": 2})
    racks = {host.rpartition("-")[0] for _, host, _ in await where(house)}
    assert len(racks) == 2
    assert len({(rack.split("-")[0], (int(rack[-1]) - 1) // 2) for rack in racks}) == 1


async def test_each_server_gets_its_zone_and_its_group(house: House) -> None:
    cluster = await house.cluster(0)
    await attach(house, cluster, "affinity")
    await attach(house, cluster, "zone_placement", **ZONES)
    await house.act(cluster, "scale_out", {"count": 6})
    found = await where(house)
    assert Counter(zone for zone, _, _ in found) == {"zone1": 2, "zone2": 2, "zone3": 2}
    assert len({host for _, host, _ in found}) == 6
    assert len({member for _, _, member in found}) == 1


async def test_the_oldest_of_each_zone_go(house: House) -> None:
    cluster = await house.cluster(0)
    await attach(house, cluster, "zone_placement", **ZONES)
    await attach(house, cluster, "deletion", criteria="OLDEST_FIRST")
    for _ in range(2):
        await house.act(cluster, "scale_out", {"count": 3})
    before = await house.members(cluster)
    await house.act(cluster, "scale_in", {"count": 3})
    assert [node["id"] for node in await house.members(cluster)] == [node["id"] for node in before[3:]]
    assert await zones(house) == {"zone1": 1, "zone2": 1, "zone3": 1}


async def test_a_scaling_policy_decides_how_far_and_how_soon(house: House) -> None:
    cluster = await house.cluster(1, max_size=9)
    adjustment = {"number": 2, "cooldown": 60}
    await attach(house, cluster, "scaling", event="CLUSTER_SCALE_OUT", adjustment=adjustment)
    assert (await house.act(cluster, "scale_out"))["status"] == "SUCCEEDED"
    assert len(await house.servers()) == 3
    answer = await house.post(f"/clusters/{cluster['id']}/actions", {"scale_out": {}})
    if answer.status_code == 202:
        reason = (await house.done(answer))["status_reason"]
    else:
        assert answer.status_code == 409
        reason = answer.json()["error"]["message"]
    assert "cooldown" in reason
    assert len(await house.servers()) == 3


async def test_a_cluster_that_has_drifted_is_moved_back_within_the_budget(house: House) -> None:
    cluster = await house.cluster(4, profile=await house.profile(availability_zone="zone1"))
    await house.done(
        await house.call(
            "PATCH",
            f"/clusters/{cluster['id']}",
            {"cluster": {"profile_id": (await house.profile())["id"], "profile_only": True}},
        )
    )
    spread: dict[str, Any] = {"zones": [{"name": "zone1"}, {"name": "zone2"}], "rebalance": True, "rebalance_budget": 1}
    await attach(house, cluster, "zone_placement", "1.1", **spread)
    assert await zones(house) == {"zone1": 4}
    action = await house.act(cluster, "recover")
    assert action["status"] == "SUCCEEDED", action["status_reason"]
    assert await zones(house) == {"zone1": 3, "zone2": 1}
    await house.act(cluster, "resize", {"adjustment_type": "EXACT_CAPACITY", "number": 4})
    assert await zones(house) == {"zone1": 2, "zone2": 2}
    await house.act(cluster, "recover")
    assert await zones(house) == {"zone1": 2, "zone2": 2}
    now = await house.show(cluster)
    assert (now["desired_capacity"], len(now["nodes"]), now["status"]) == (4, 4, "ACTIVE")


async def test_a_move_that_cannot_be_made_leaves_the_old_node(house: House) -> None:
    cluster = await house.cluster(2, profile=await house.profile(availability_zone="zone1"))
    other = await house.profile()
    change = {"cluster": {"profile_id": other["id"], "profile_only": True}}
    await house.done(await house.call("PATCH", f"/clusters/{cluster['id']}", change))
    spread: dict[str, Any] = {"zones": [{"name": "zone1"}, {"name": "zone2"}], "rebalance": True}
    await attach(house, cluster, "zone_placement", "1.1", **spread)
    house.faults.refuse = lambda request: "no room"
    await house.act(cluster, "recover")
    assert await zones(house) == {"zone1": 2}
    assert len((await house.show(cluster))["nodes"]) == 2


async def test_a_node_that_falls_ill_is_found_and_recovered(house: House) -> None:
    cluster = await house.cluster(2)
    lost = (await house.members(cluster))[0]
    detection = {"interval": 1, "node_update_timeout": 0, "detection_modes": [{"type": "NODE_STATUS_POLLING"}]}
    recovery = {"actions": [{"name": "RECREATE"}]}
    await attach(house, cluster, "health", "1.1", detection=detection, recovery=recovery)
    await house.api.delete(f"/compute/v2.1/servers/{lost['physical_id']}", cloud="roost")
    found = await house.until(
        f"/nodes/{lost['id']}",
        lambda node: node["status"] == "ACTIVE" and node["physical_id"] != lost["physical_id"],
    )
    assert found["physical_id"] in await house.servers()
    assert len(await house.servers()) == 2


async def test_a_node_that_is_only_rebooted_stays_where_it_is(house: House) -> None:
    cluster = await house.cluster(3, profile=await house.profile(availability_zone="zone1"))
    await attach(house, cluster, "zone_placement", zones=[{"name": "zone1", "weight": 1}, {"name": "zone2"}])
    detection = {"detection_modes": [{"type": "NODE_STATUS_POLLING"}]}
    recovery = {"actions": [{"name": "REBOOT", "params": {"type": "SOFT"}}]}
    await attach(house, cluster, "health", "1.1", detection=detection, recovery=recovery)
    ill = (await house.members(cluster))[0]
    async with house.database.begin() as connection:
        await connection.execute(sa.text("UPDATE nodes SET status = 'ERROR' WHERE id = :id"), {"id": ill["id"]})
    assert (await house.act(cluster, "recover"))["status"] == "SUCCEEDED"
    now = (await house.members(cluster))[0]
    assert now["physical_id"] == ill["physical_id"]
    assert now["data"]["placement"]["zone"] == "zone1"
    assert await zones(house) == {"zone1": 3}


async def test_members_of_the_pool_are_the_servers_of_the_cluster(house: House) -> None:
    cluster = await house.cluster(2)
    pool: dict[str, Any] = {
        "pool": {"subnet": "private-subnet", "protocol_port": 8080},
        "vip": {"subnet": "private-subnet"},
    }
    await attach(house, cluster, "loadbalance", "1.3", **pool)

    async def behind() -> set[str]:
        async with house.database.begin() as connection:
            rows = await connection.execute(sa.text("SELECT server_id FROM load_balancer_members"))
            return {str(row[0]) for row in rows}

    assert await behind() == await house.servers()
    await house.act(cluster, "scale_out", {"count": 2})
    assert await behind() == await house.servers()
    await house.act(cluster, "scale_in", {"count": 3})
    assert await behind() == await house.servers()
    assert all(node["data"]["lb_member"] for node in await house.members(cluster))
    assert (await house.show(cluster))["data"]["loadbalancers"]
    [bound] = await house.get(f"/clusters/{cluster['id']}/policies")
    await house.act(cluster, "policy_detach", {"policy_id": bound["policy_id"]})
    assert await behind() == set()
    assert "loadbalancers" not in (await house.show(cluster))["data"]


async def test_contradictions_are_found_when_a_policy_is_attached(house: House) -> None:
    cluster = await house.cluster(0)
    await attach(house, cluster, "zone_placement", **ZONES)

    async def try_to_attach(policies: str) -> Any:
        near = await house.policy("senlin.policy.affinity", servergroup={"policies": policies})
        body = {"policy_attach": {"policy_id": near["id"]}}
        return await house.post(f"/clusters/{cluster['id']}/actions", body)

    refused = await try_to_attach("affinity")
    assert refused.status_code == 400
    assert "keeps all servers on one host, and policy" in refused.json()["error"]["message"]
    warned = await try_to_attach("soft-affinity")
    assert warned.status_code == 202
    assert "prefers all servers on one host, and policy" in warned.json()["warnings"][0]
    assert (await house.done(warned))["status"] == "SUCCEEDED"


async def test_the_reason_of_a_policy_reaches_the_user(house: House) -> None:
    cluster = await house.cluster(0)
    await attach(house, cluster, "zone_placement", "1.1", zones=[{"name": "zone1", "cap": 1}])
    action = await house.act(cluster, "scale_out", {"count": 2})
    assert action["status"] == "FAILED"
    assert action["status_reason"].endswith("There is no feasible plan to handle all nodes.")
    assert action["data"]["status"] == "ERROR"
    assert await house.servers() == set()
