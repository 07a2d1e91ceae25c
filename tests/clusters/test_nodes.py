"""Nodes: every verb, alone and as members."""

from tests.clusters.house import House


async def test_a_node_alone_is_made_changed_and_deleted(house: House) -> None:
    node = await house.node(role="master", metadata={"a": "b"})
    assert (node["status"], node["cluster_id"], node["index"], node["role"]) == ("ACTIVE", "", -1, "master")
    change = {"name": "other", "role": "slave", "metadata": {"c": "d"}, "tainted": True}
    await house.done(await house.call("PATCH", f"/nodes/{node['id']}", {"node": change}))
    now = await house.get(f"/nodes/{node['id']}")
    assert (now["name"], now["role"], now["metadata"], now["tainted"]) == ("other", "slave", {"c": "d"}, True)
    await house.done(await house.call("DELETE", f"/nodes/{node['id']}"))
    assert (await house.call("GET", f"/nodes/{node['id']}")).status_code == 404
    assert await house.servers() == set()


async def test_a_node_made_in_a_cluster_makes_it_larger_and_deleted_smaller(house: House) -> None:
    profile = await house.profile()
    cluster = await house.cluster(1, profile=profile)
    node = await house.node(profile_id=profile["id"], cluster_id=cluster["name"])
    assert (node["cluster_id"], node["index"]) == (cluster["id"], 2)
    assert (await house.show(cluster))["desired_capacity"] == 2
    await house.done(await house.call("DELETE", f"/nodes/{node['id']}"))
    now = await house.show(cluster)
    assert (now["desired_capacity"], len(now["nodes"])) == (1, 1)


async def test_a_node_that_cannot_be_made_says_why_and_the_cluster_is_not_asked_to_be_larger(house: House) -> None:
    profile = await house.profile()
    cluster = await house.cluster(1, profile=profile)
    house.faults.refuse = lambda request: "It is full."
    node = await house.node(profile_id=profile["id"], cluster_id=cluster["id"])
    assert (node["status"], node["status_reason"]) == ("ERROR", "It is full.")
    assert (await house.show(cluster))["desired_capacity"] == 1
    [action] = await house.get(f"/actions?target={node['id']}")
    assert (action["status"], action["status_reason"]) == ("FAILED", "It is full.")


async def test_the_last_node_that_a_cluster_needs_is_not_deleted(house: House) -> None:
    cluster = await house.cluster(1, min_size=1)
    [node] = await house.members(cluster)
    action = await house.done(await house.call("DELETE", f"/nodes/{node['id']}"))
    assert action["status"] == "FAILED"
    assert action["status_reason"] == "The target capacity (0) is less than the cluster's min_size (1)."
    assert (await house.get(f"/nodes/{node['id']}"))["cluster_id"] == cluster["id"]
    assert len(await house.servers()) == 1


async def test_a_node_is_checked_recovered_and_operated(house: House) -> None:
    node = await house.node()
    await house.lose(node["physical_id"])
    await house.done(await house.post(f"/nodes/{node['id']}/actions", {"check": {}}))
    assert (await house.get(f"/nodes/{node['id']}"))["status"] == "ERROR"
    await house.done(await house.post(f"/nodes/{node['id']}/actions", {"recover": {"check": True}}))
    now = await house.get(f"/nodes/{node['id']}?show_details=true")
    assert (now["status"], now["details"]["status"]) == ("ACTIVE", "ACTIVE")
    assert await house.servers() == {now["physical_id"]}
    await house.done(await house.post(f"/nodes/{node['id']}/ops", {"pause": {}}))
    assert (await house.get(f"/nodes/{node['id']}?show_details=true"))["details"]["status"] == "PAUSED"


async def test_a_node_gets_another_profile(house: House) -> None:
    node = await house.node()
    new = await house.profile(flavor="2")
    answer = await house.call("PATCH", f"/nodes/{node['id']}", {"node": {"profile_id": new["id"]}})
    assert (await house.done(answer))["status"] == "SUCCEEDED"
    now = await house.get(f"/nodes/{node['id']}?show_details=true")
    assert (now["profile_id"], now["details"]["flavor"]["id"]) == (new["id"], "2")
    assert now["physical_id"] == node["physical_id"]


async def test_a_server_that_exists_is_previewed_and_adopted(house: House) -> None:
    node = await house.node()
    server = node["physical_id"]
    body = {"identity": server, "type": "os.nova.server-1.0"}
    taken = await house.post("/nodes/adopt", body)
    assert taken.status_code == 400
    created = {"server": {"name": "stray", "flavorRef": "1", "imageRef": "", "networks": "none"}}
    image = (await house.api.request("GET", "/image/v2/images", cloud="roost")).json()["images"][0]["id"]
    created["server"]["imageRef"] = image
    answer = await house.api.request("POST", "/compute/v2.1/servers", json=created, cloud="roost", version="2.64")
    body["identity"] = answer.json()["server"]["id"]
    preview = (await house.post("/nodes/adopt-preview", body)).json()["node_profile"]["node_preview"]
    assert (preview["type"], preview["version"], preview["properties"]["flavor"]) == ("os.nova.server", "1.0", "1")
    adopted = (await house.post("/nodes/adopt", {**body, "name": "mine", "role": "old"})).json()["node"]
    assert (adopted["status"], adopted["physical_id"], adopted["role"]) == ("ACTIVE", body["identity"], "old")
    await house.done(await house.call("DELETE", f"/nodes/{adopted['id']}"))
    assert await house.servers() == {server}


async def test_versions_hide_what_they_did_not_have(house: House) -> None:
    node = await house.node()
    assert "tainted" not in await house.get(f"/nodes/{node['id']}", version="1.12")
    [action] = await house.get(f"/actions?target={node['id']}", version="1.13")
    assert "cluster_id" not in action
    answer = await house.call("PATCH", f"/nodes/{node['id']}", {"node": {"tainted": True}}, version="1.12")
    assert "No property needs an update." in answer.text
