"""Clusters: every verb, and what is left when something fails."""

from typing import Any

import pytest

from tests.clusters.house import House


async def test_a_cluster_gets_the_nodes_it_should_have(house: House) -> None:
    cluster = await house.cluster(3, min_size=1, max_size=5)
    assert cluster["status"] == "ACTIVE"
    assert cluster["status_reason"].endswith("equal or above desired_capacity (3).")
    members = await house.members(cluster)
    assert [node["index"] for node in members] == [1, 2, 3]
    assert {node["physical_id"] for node in members} == await house.servers()
    assert all(node["data"]["placement"]["zone"] for node in members)


async def test_scaling_out_and_in_changes_the_size_and_tells_which_nodes(house: House) -> None:
    cluster = await house.cluster(2)
    out = await house.act(cluster, "scale_out", {"count": "3"})
    assert (out["status"], len(out["outputs"]["nodes_added"])) == ("SUCCEEDED", 3)
    assert (out["outputs"]["nodes_done"], out["outputs"]["nodes_total"]) == (3, 3)
    assert (await house.show(cluster))["desired_capacity"] == 5
    back = await house.act(cluster, "scale_in", {"count": 4})
    assert len(back["outputs"]["nodes_removed"]) == 4
    now = await house.show(cluster)
    assert (now["desired_capacity"], len(now["nodes"]), len(await house.servers())) == (1, 1, 1)


async def test_scaling_beyond_the_bounds_fails_and_changes_nothing(house: House) -> None:
    cluster = await house.cluster(2, min_size=1, max_size=3)
    action = await house.act(cluster, "scale_out", {"count": 5})
    assert action["status"] == "FAILED"
    assert action["status_reason"] == "The target capacity (7) is greater than the cluster's max_size (3)."
    now = await house.show(cluster)
    assert (now["desired_capacity"], len(now["nodes"]), now["status"]) == (2, 2, "ACTIVE")


ADJUSTMENTS = [
    ({"adjustment_type": "EXACT_CAPACITY", "number": 4}, 4),
    ({"adjustment_type": "CHANGE_IN_CAPACITY", "number": -1}, 1),
    ({"adjustment_type": "CHANGE_IN_PERCENTAGE", "number": 50.0, "min_step": 2}, 4),
    ({"adjustment_type": "CHANGE_IN_CAPACITY", "number": 10, "strict": False}, 5),
]


@pytest.mark.parametrize(("params", "expected"), ADJUSTMENTS)
async def test_a_resize_leads_to_the_size_asked_for(house: House, params: dict[str, Any], expected: int) -> None:
    cluster = await house.cluster(2, max_size=5)
    assert (await house.act(cluster, "resize", params))["status"] == "SUCCEEDED"
    now = await house.show(cluster)
    assert (now["desired_capacity"], len(now["nodes"])) == (expected, expected)


async def test_a_resize_sets_new_bounds(house: House) -> None:
    cluster = await house.cluster(2)
    await house.act(cluster, "resize", {"min_size": 1, "max_size": 9})
    now = await house.show(cluster)
    assert (now["min_size"], now["max_size"], now["desired_capacity"]) == (1, 9, 2)


async def test_a_scale_out_that_fails_leaves_the_capacity_as_it_was(house: House) -> None:
    cluster = await house.cluster(2)
    house.faults.refuse = lambda request: "No valid host was found."
    action = await house.act(cluster, "scale_out", {"count": 2})
    assert action["status"] == "FAILED"
    assert "No valid host was found." in action["status_reason"]
    now = await house.show(cluster)
    assert (now["desired_capacity"], len(now["nodes"]), now["status"]) == (2, 2, "ACTIVE")
    assert len(await house.servers()) == 2


async def test_a_failure_on_some_nodes_leaves_the_others_and_says_which_and_why(house: House) -> None:
    cluster = await house.cluster(1)
    house.faults.refuse = lambda request: "It is full." if int(request.metadata["cluster_node_index"]) % 2 else None
    action = await house.act(cluster, "scale_out", {"count": 4})
    assert action["status"] == "FAILED"
    assert len(action["outputs"]["nodes_added"]) == 2
    assert set(action["outputs"]["nodes_failed"].values()) == {"It is full."}
    now = await house.show(cluster)
    assert (now["desired_capacity"], len(now["nodes"]), len(await house.servers())) == (3, 3, 3)
    failures = await house.get(f"/events?cluster_id={cluster['id']}&level=ERROR")
    assert sum(event["status_reason"] == "It is full." for event in failures) == 2


async def test_a_cluster_that_could_not_be_made_whole_keeps_what_it_should_be(house: House) -> None:
    profile = await house.profile()
    house.faults.refuse = lambda request: "It is full." if request.metadata["cluster_node_index"] == "2" else None
    body = {"cluster": {"name": "half", "profile_id": profile["id"], "desired_capacity": 2}}
    answer = await house.post("/clusters", body)
    assert (await house.done(answer))["status"] == "FAILED"
    cluster = await house.show(answer.json()["cluster"])
    assert (cluster["status"], cluster["desired_capacity"]) == ("WARNING", 2)
    assert [node["status"] for node in await house.members(cluster)] == ["ACTIVE", "ERROR"]
    house.faults.refuse = lambda request: None
    assert (await house.act(cluster, "recover"))["status"] == "SUCCEEDED"
    assert (await house.show(cluster))["status"] == "ACTIVE"
    assert len(await house.servers()) == 2


async def test_a_cloud_that_does_not_answer_for_a_moment_is_asked_again(house: House) -> None:
    house.faults.silent = 2
    cluster = await house.cluster(2)
    assert len(cluster["nodes"]) == len(await house.servers()) == 2


async def test_deleting_a_cluster_deletes_its_servers(house: House) -> None:
    cluster = await house.cluster(3)
    assert (await house.done(await house.call("DELETE", f"/clusters/{cluster['id']}")))["status"] == "SUCCEEDED"
    assert (await house.call("GET", f"/clusters/{cluster['id']}")).status_code == 404
    assert await house.servers() == set()


async def test_a_cluster_whose_server_does_not_go_away_stays_and_says_so(house: House) -> None:
    cluster = await house.cluster(2)
    house.faults.keep = {(await house.members(cluster))[0]["physical_id"]}
    action = await house.done(await house.call("DELETE", f"/clusters/{cluster['id']}"))
    assert action["status"] == "FAILED"
    assert "The server does not go away." in action["status_reason"]
    assert [node["status"] for node in await house.members(cluster)] == ["ERROR"]
    house.faults.keep = set()
    assert (await house.done(await house.call("DELETE", f"/clusters/{cluster['id']}")))["status"] == "SUCCEEDED"


async def test_only_force_deletes_a_locked_server(house: House) -> None:
    cluster = await house.cluster(1)
    await house.done(await house.post(f"/clusters/{cluster['id']}/ops", {"lock": {}}))
    action = await house.done(await house.call("DELETE", f"/clusters/{cluster['id']}"))
    assert (action["status"], "is locked" in action["status_reason"]) == ("FAILED", True)
    forced = await house.call("DELETE", f"/clusters/{cluster['id']}", {"force": True})
    assert (await house.done(forced))["status"] == "SUCCEEDED"
    assert await house.servers() == set()


async def test_an_update_changes_properties_at_once_and_profiles_node_by_node(house: House) -> None:
    cluster = await house.cluster(2)
    new = await house.profile(flavor="2")
    change = {"name": "renamed", "metadata": {"a": "b"}, "timeout": "120", "profile_id": new["id"]}
    answer = await house.call("PATCH", f"/clusters/{cluster['id']}", {"cluster": change})
    assert (await house.done(answer))["status"] == "SUCCEEDED"
    now = await house.show(cluster)
    assert (now["name"], now["metadata"], now["timeout"], now["profile_id"]) == ("renamed", {"a": "b"}, 120, new["id"])
    assert {node["profile_id"] for node in await house.members(cluster)} == {new["id"]}
    flavors = await house.get(f"/clusters/{cluster['id']}/attrs/details.flavor.id")
    assert {found["value"] for found in flavors} == {"2"}


async def test_an_update_of_the_profile_only_leaves_the_nodes_alone(house: House) -> None:
    cluster = await house.cluster(1)
    new = await house.profile(flavor="2")
    body = {"cluster": {"profile_id": new["id"], "profile_only": True}}
    await house.done(await house.call("PATCH", f"/clusters/{cluster['id']}", body))
    assert (await house.show(cluster))["profile_id"] == new["id"]
    assert (await house.members(cluster))[0]["profile_id"] == cluster["profile_id"]


async def test_nodes_join_leave_and_are_replaced(house: House) -> None:
    profile = await house.profile()
    cluster = await house.cluster(1, profile=profile)
    first, second = [await house.node(profile_id=profile["id"]) for _ in range(2)]
    assert (await house.act(cluster, "add_nodes", {"nodes": [first["name"]]}))["status"] == "SUCCEEDED"
    assert (await house.show(cluster))["desired_capacity"] == 2
    await house.act(cluster, "replace_nodes", {"nodes": {first["id"]: second["id"]}})
    members = {node["id"] for node in await house.members(cluster)}
    assert second["id"] in members
    assert first["id"] not in members
    assert (await house.get(f"/nodes/{first['id']}"))["cluster_id"] == ""
    await house.act(cluster, "del_nodes", {"nodes": [second["id"]], "destroy_after_deletion": False})
    assert (await house.get(f"/nodes/{second['id']}"))["cluster_id"] == ""
    assert (await house.show(cluster))["desired_capacity"] == 1
    assert len(await house.servers()) == 3


async def test_nodes_removed_with_destruction_are_gone(house: House) -> None:
    cluster = await house.cluster(2)
    victim = (await house.members(cluster))[0]
    await house.act(cluster, "del_nodes", {"nodes": [victim["id"]], "destroy_after_deletion": True})
    assert (await house.call("GET", f"/nodes/{victim['id']}")).status_code == 404
    assert victim["physical_id"] not in await house.servers()


async def test_a_request_not_to_destroy_wins_over_a_deletion_policy(house: House) -> None:
    cluster = await house.cluster(2)
    policy = await house.policy("senlin.policy.deletion", criteria="OLDEST_FIRST", destroy_after_deletion=True)
    await house.act(cluster, "policy_attach", {"policy_id": policy["id"]})
    victim = (await house.members(cluster))[0]
    await house.act(cluster, "del_nodes", {"nodes": [victim["id"]], "destroy_after_deletion": False})
    assert (await house.get(f"/nodes/{victim['id']}"))["cluster_id"] == ""
    assert victim["physical_id"] in await house.servers()


async def test_a_check_finds_what_is_broken_and_a_recovery_mends_it(house: House) -> None:
    cluster = await house.cluster(2)
    lost = (await house.members(cluster))[0]
    await house.lose(lost["physical_id"])
    assert (await house.act(cluster, "check"))["status"] == "SUCCEEDED"
    assert (await house.show(cluster))["status"] == "WARNING"
    assert (await house.get(f"/nodes/{lost['id']}"))["status"] == "ERROR"
    assert (await house.act(cluster, "recover", {"operation": "recreate"}))["status"] == "SUCCEEDED"
    found = await house.get(f"/nodes/{lost['id']}")
    assert found["status"] == "ACTIVE"
    assert found["physical_id"] in await house.servers()
    assert len(await house.servers()) == 2


async def test_a_recovery_with_check_capacity_makes_what_is_missing(house: House) -> None:
    cluster = await house.cluster(2)
    policy = await house.policy("senlin.policy.deletion", reduce_desired_capacity=False)
    await house.act(cluster, "policy_attach", {"policy_id": policy["id"]})
    victim = (await house.members(cluster))[0]
    await house.act(cluster, "del_nodes", {"nodes": [victim["id"]], "destroy_after_deletion": True})
    assert (await house.show(cluster))["desired_capacity"] == 2
    await house.act(cluster, "recover", {"check_capacity": True})
    assert len((await house.show(cluster))["nodes"]) == 2


async def test_operations_are_done_to_the_nodes_that_the_filters_leave(house: House) -> None:
    cluster = await house.cluster(2)
    first, second = await house.members(cluster)
    body = {"stop": {"params": {}, "filters": {"name": first["name"]}}}
    action = await house.done(await house.post(f"/clusters/{cluster['id']}/ops", body))
    assert action["status"] == "SUCCEEDED"
    states = await house.get(f"/clusters/{cluster['id']}/attrs/details.status")
    assert {found["id"]: found["value"] for found in states} == {first["id"]: "SHUTOFF", second["id"]: "ACTIVE"}


async def test_attributes_are_collected_by_path(house: House) -> None:
    cluster = await house.cluster(2)
    names = await house.get(f"/clusters/{cluster['id']}/attrs/name")
    assert [found["value"] for found in names] == [node["name"] for node in await house.members(cluster)]
    zones = await house.get(f"/clusters/{cluster['id']}/attrs/$.data.placement.zone")
    assert len(zones) == 2
    assert await house.get(f"/clusters/{cluster['id']}/attrs/data.nothing") == []
    assert (await house.call("GET", f"/clusters/{cluster['id']}/attrs/name[[")).status_code == 400


async def test_names_of_nodes_follow_the_format_of_the_cluster(house: House) -> None:
    cluster = await house.cluster(2, config={"node.name.format": "web-$3I"})
    assert [node["name"] for node in await house.members(cluster)] == ["web-001", "web-002"]


async def test_zero_is_a_size_and_not_a_missing_one(house: House) -> None:
    profile = await house.profile()
    body = {"cluster": {"name": "none", "profile_id": profile["id"], "max_size": 0, "desired_capacity": 1}}
    answer = await house.post("/clusters", body)
    assert answer.status_code == 400
    assert "The target capacity (1) is greater than the specified max_size (0)." in answer.text
