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
    rehearsed = await rehearse(house, cluster, {"scale_out": {}})
    assert rehearsed["sentence"] == (
        "CLUSTER_SCALE_OUT would do 3 NODE_CREATE; the cluster would go from 0 to 3 nodes."
    )
    assert [each["type"] for each in rehearsed["policies"]] == [
        "senlin.policy.scaling-1.0",
        "senlin.policy.zone_placement-1.0",
    ]
    assert rehearsed["policies"][0]["decision"]["creation"]["count"] == 3
    assert rehearsed["distribution"]["zone"] == {"zone1": 1, "zone2": 2}
    assert sorted(step["placement"]["zone"] for step in rehearsed["steps"]) == ["zone1", "zone2", "zone2"]
    now = await house.get(f"/clusters/{cluster['id']}")
    assert (len(now["nodes"]), now["status"]) == (0, "ACTIVE")
    assert all(each["action"] != "CLUSTER_SCALE_OUT" for each in await house.get("/actions"))


async def test_what_was_rehearsed_is_what_then_happens(house: House) -> None:
    cluster = await house.cluster(desired_capacity=0)
    await attach(house, cluster, ZONES)
    rehearsed = await rehearse(house, cluster, {"scale_out": {"count": 6}})
    assert (await house.act(cluster, "scale_out", {"count": 6}))["status"] == "SUCCEEDED"
    nodes = await house.get(f"/nodes?cluster_id={cluster['id']}")
    zones = [node["data"]["placement"]["zone"] for node in nodes]
    assert {zone: zones.count(zone) for zone in set(zones)} == rehearsed["distribution"]["zone"]


async def test_a_refusal_is_told_with_its_reason(house: House) -> None:
    cluster = await house.cluster(desired_capacity=1, max_size=2)
    rehearsed = await rehearse(house, cluster, {"scale_out": {"count": 5}})
    assert not rehearsed["accepted"]
    assert "max_size" in rehearsed["refusal"]
    assert rehearsed["sentence"].startswith("CLUSTER_SCALE_OUT would be refused: ")


async def test_policies_that_come_and_go_are_rehearsed_with_what_speaks_against_them(house: House) -> None:
    cluster = await house.cluster(desired_capacity=0)
    await attach(house, cluster, ZONES)
    [attached] = await house.get(f"/clusters/{cluster['id']}/policies")
    rehearsed = await rehearse(house, cluster, {"policy_detach": {"policy_id": attached["policy_id"]}})
    assert rehearsed["accepted"]
    assert rehearsed["sentence"].startswith("CLUSTER_DETACH_POLICY would do nothing to nodes")
    other = (await house.post("/policies", {"policy": {"name": "other", "spec": ZONES}})).json()["policy"]
    body = {"policy_attach": {"policy_id": other["id"]}}
    refused = await house.post(f"/clusters/{cluster['id']}/actions?dry_run=true", body)
    assert refused.status_code == 400
    assert "Only one instance of policy type" in refused.text
    assert [each["policy_id"] for each in await house.get(f"/clusters/{cluster['id']}/policies")] == [
        attached["policy_id"]
    ]


HEALTH = {
    "type": "senlin.policy.health",
    "version": "1.2",
    "properties": {
        "detection": {"detection_modes": [{"type": "NODE_STATUS_POLLING"}], "interval": 60},
        "recovery": {"actions": [{"name": "REBOOT"}]},
    },
}


async def test_the_deletion_of_a_cluster_is_rehearsed_and_deletes_nothing(house: House) -> None:
    cluster = await house.cluster(desired_capacity=2)
    rehearsed = await rehearse(house, cluster, {"delete": {}})
    assert rehearsed["sentence"] == "CLUSTER_DELETE would do 2 NODE_DELETE; then the cluster would be gone."
    members = [node["name"] for node in await house.get(f"/nodes?cluster_id={cluster['id']}")]
    assert sorted(step["node"] for step in rehearsed["steps"]) == sorted(members)
    assert (rehearsed["size"], len(members)) == ({"now": 2, "then": 0}, 2)
    asked = await house.post(f"/clusters/{cluster['id']}/actions", {"delete": {}})
    assert (asked.status_code, "Unrecognized action 'delete'" in asked.text) == (400, True)


async def test_what_is_done_to_a_node_is_rehearsed_with_what_its_policies_decide(house: House) -> None:
    cluster = await house.cluster(desired_capacity=2, min_size=0)
    await attach(house, cluster, HEALTH)
    [node, _] = await house.get(f"/nodes?cluster_id={cluster['id']}")
    path = f"/nodes/{node['id']}/actions?dry_run=true"
    names = ("check", "recover", "delete")
    rehearsed = {name: (await house.post(path, {name: {}})).json()["dry_run"] for name in names}
    kept = "; the cluster would go from 2 to 2 nodes."
    assert rehearsed["check"]["sentence"] == f"NODE_CHECK would do 1 NODE_CHECK{kept}"
    assert rehearsed["recover"]["sentence"] == f"NODE_RECOVER would do 1 NODE_RECOVER{kept}"
    step = {"action": "NODE_RECOVER", "node": node["name"], "operation": "REBOOT"}
    assert rehearsed["recover"]["steps"] == [step]
    assert [each["policy"] for each in rehearsed["recover"]["policies"]] == ["health"]
    assert rehearsed["delete"]["size"] == {"now": 2, "then": 1}
    assert len(await house.get(f"/nodes?cluster_id={cluster['id']}")) == 2
    assert not {each["action"] for each in await house.get("/actions")} & {"NODE_CHECK", "NODE_RECOVER", "NODE_DELETE"}


async def test_a_node_without_a_cluster_is_rehearsed_too(house: House) -> None:
    node = await house.node(name="single")
    rehearsed = (await house.post(f"/nodes/{node['id']}/actions?dry_run=1", {"recover": {}})).json()["dry_run"]
    assert rehearsed["sentence"] == "NODE_RECOVER would do 1 NODE_RECOVER."
    assert rehearsed["steps"] == [{"action": "NODE_RECOVER", "node": "single", "operation": "RECREATE"}]
    refused = await house.post("/nodes/none/actions?dry_run=1", {"check": {}})
    assert refused.status_code == 404
