"""What an action would come to: what each policy decides and what follows, while nothing happens."""

from typing import Any

from tests.clusters.house import House

ZONES = {
    "type": "senlin.policy.zone_placement",
    "version": "1.0",
    "properties": {"zones": [{"name": "zone1", "weight": 100}, {"name": "zone2", "weight": 200}]},
}
SCALING = {
    "type": "senlin.policy.scaling",
    "version": "1.0",
    "properties": {"event": "CLUSTER_SCALE_OUT", "adjustment": {"type": "CHANGE_IN_CAPACITY", "number": 3}},
}


async def attach(house: House, cluster: dict[str, Any], spec: dict[str, Any]) -> None:
    name = spec["type"].rpartition(".")[2]
    made = (await house.post("/policies", {"policy": {"name": name, "spec": spec}})).json()["policy"]
    await house.act(cluster, "policy_attach", {"policy_id": made["id"], "enabled": True})


async def rehearse(house: House, cluster: dict[str, Any], action: dict[str, Any]) -> dict[str, Any]:
    answer = await house.post(f"/clusters/{cluster['id']}/actions?dry_run=true", action)
    assert answer.status_code == 200, answer.text
    return dict(answer.json()["dry_run"])


async def test_a_rehearsal_tells_what_each_policy_decides_and_does_nothing(house: House) -> None:
    cluster = await house.cluster(desired_capacity=0)
    await attach(house, cluster, ZONES)
    await attach(house, cluster, SCALING)
    told = await rehearse(house, cluster, {"scale_out": {}})
    assert told["sentence"] == ("CLUSTER_SCALE_OUT would do 3 NODE_CREATE; the cluster would go from 0 to 3 nodes.")
    assert [each["type"] for each in told["policies"]] == [
        "senlin.policy.scaling-1.0",
        "senlin.policy.zone_placement-1.0",
    ]
    assert told["policies"][0]["decision"]["creation"]["count"] == 3
    assert told["distribution"]["zone"] == {"zone1": 1, "zone2": 2}
    assert sorted(step["placement"]["zone"] for step in told["steps"]) == ["zone1", "zone2", "zone2"]
    now = await house.get(f"/clusters/{cluster['id']}")
    assert (len(now["nodes"]), now["status"]) == (0, "ACTIVE")
    assert all(each["action"] != "CLUSTER_SCALE_OUT" for each in await house.get("/actions"))


async def test_what_was_rehearsed_is_what_then_happens(house: House) -> None:
    cluster = await house.cluster(desired_capacity=0)
    await attach(house, cluster, ZONES)
    told = await rehearse(house, cluster, {"scale_out": {"count": 6}})
    assert (await house.act(cluster, "scale_out", {"count": 6}))["status"] == "SUCCEEDED"
    nodes = await house.get(f"/nodes?cluster_id={cluster['id']}")
    zones = [node["data"]["placement"]["zone"] for node in nodes]
    assert {zone: zones.count(zone) for zone in set(zones)} == told["distribution"]["zone"]


async def test_a_refusal_is_told_with_its_reason(house: House) -> None:
    cluster = await house.cluster(desired_capacity=1, max_size=2)
    told = await rehearse(house, cluster, {"scale_out": {"count": 5}})
    assert not told["accepted"]
    assert "max_size" in told["refusal"]
    assert told["sentence"].startswith("CLUSTER_SCALE_OUT would be refused: ")


async def test_policies_that_come_and_go_are_rehearsed_with_what_speaks_against_them(house: House) -> None:
    cluster = await house.cluster(desired_capacity=0)
    await attach(house, cluster, ZONES)
    [attached] = await house.get(f"/clusters/{cluster['id']}/policies")
    told = await rehearse(house, cluster, {"policy_detach": {"policy_id": attached["policy_id"]}})
    assert told["accepted"]
    assert told["sentence"].startswith("CLUSTER_DETACH_POLICY would do nothing to nodes")
    other = (await house.post("/policies", {"policy": {"name": "other", "spec": ZONES}})).json()["policy"]
    body = {"policy_attach": {"policy_id": other["id"]}}
    refused = await house.post(f"/clusters/{cluster['id']}/actions?dry_run=true", body)
    assert refused.status_code == 400
    assert "Only one instance of policy type" in refused.text
    assert [each["policy_id"] for each in await house.get(f"/clusters/{cluster['id']}/policies")] == [
        attached["policy_id"]
    ]
