"""Partitions over HTTP: who gets which number, who sees it, and what is said of a group whose partitions share."""

from typing import Any

import pytest

from roost.compute.scheduling import lifecycle
from tests.api.compute.conftest import Compute
from tests.api.compute.test_explanations import asked, boot, explanation, make_group
from tests.api.compute.test_plans import hosts_of, plan, rack_of, refused
from tests.api.compute.test_repairs import repair, shown, violations, work

VERSION = "2.1003"
RACK = {"name": "anti-affinity", "scope": "rack"}
THREE = {**RACK, "rules": {"partitions": 3}}


async def group_of(compute: Compute, group: str, version: str = VERSION) -> dict[str, Any]:
    return dict((await compute.get(f"/os-server-groups/{group}", version=version))["server_group"])


async def numbers(compute: Compute, group: str) -> list[int | None]:
    """The partitions of the members, in the order in which these were made."""
    found = await group_of(compute, group)
    return [found["partitions"][member] for member in found["members"]]


async def boot_in(compute: Compute, group: str, partition: object, count: int = 1) -> None:
    answer = await ask_for(compute, {"group": group, "partition": partition}, min_count=count)
    assert answer.status_code == 202, answer.text
    await lifecycle.finish(compute.api.services.database)


async def ask_for(compute: Compute, hints: dict[str, Any], **more: Any) -> Any:
    image = (await compute.api.get("/image/v2/images")).json()["images"][0]["id"]
    server = {"name": "s", "flavorRef": "1", "imageRef": image, "networks": "none", **more}
    body = {"server": server, "os:scheduler_hints": hints}
    return await compute.api.post("/compute/v2.1/servers", body, cloud="roost", version="2.90")


async def lift_quota(compute: Compute, group: str) -> None:
    """Let the project of a group have as many servers as it likes."""
    project = (await group_of(compute, group))["project_id"]
    limits = {"instances": -1, "cores": -1, "ram": -1, "server_group_members": -1}
    await compute.put(f"/os-quota-sets/{project}", {"quota_set": limits})


async def give(compute: Compute, group: str, *policies: dict[str, Any]) -> dict[str, Any]:
    body = {"server_group": {"policies": list(policies)}}
    answer = await compute.post(f"/os-server-groups/{group}", body, version=VERSION, cloud="roost")
    return dict(answer["server_group"]["partitions"])


async def move_to_rack(compute: Compute, host: str, rack: str) -> None:
    """An operator carries a host to another rack."""
    before = await rack_of(compute, host)
    await compute.post(f"/os-aggregates/{before}/action", {"remove_host": {"host": host}})
    await compute.post(f"/os-aggregates/{rack}/action", {"add_host": {"host": host}})


async def test_members_are_spread_evenly_and_everybody_sees_their_numbers(compute: Compute) -> None:
    group = await make_group(compute, THREE)
    await boot(compute, group, 5)
    assert await numbers(compute, group) == [1, 2, 3, 1, 2]
    found = await group_of(compute, group)
    (*_, last) = found["members"]
    for version, partition in (("2.104", None), (VERSION, 2)):
        server = (await compute.api.get(f"/compute/v2.1/servers/{last}", cloud="roost", version=version)).json()[
            "server"
        ]
        assert server.get("partition") == partition
        assert ("partition" in server) == (version == VERSION)
    audit = (await compute.get(f"/os-server-groups/{group}/audit", version=VERSION))["server_group_policy_audit"]
    assert [member["partition"] for member in audit["members"]] == [1, 2, 3, 1, 2]
    racks: dict[str, set[int]] = {}
    for member in audit["members"]:
        racks.setdefault(member["placements"]["rack"], set()).add(member["partition"])
    assert all(len(inside) == 1 for inside in racks.values())
    old = await compute.get(f"/os-server-groups/{group}/audit", version="2.1002")
    assert all("partition" not in member for member in old["server_group_policy_audit"]["members"])


@pytest.mark.parametrize(
    ("version", "policies"),
    [
        ("2.1", {"policies": ["anti-affinity"]}),
        ("2.64", {"policy": "anti-affinity", "rules": {"scope": "rack", "partitions": 3}}),
        ("2.1002", {"policies": ["anti-affinity:rack"]}),
        (VERSION, {"policies": [{**THREE, "identifier": None}]}),
    ],
)
async def test_the_rule_reads_as_other_limits_do(compute: Compute, version: str, policies: dict[str, Any]) -> None:
    found = await group_of(compute, await make_group(compute, THREE), version)
    assert {key: value for key, value in found.items() if key in ("policy", "policies", "rules")} == policies
    assert ("partitions" in found) == (version == VERSION)


@pytest.mark.parametrize(
    ("policies", "said"),
    [
        ([{**RACK, "rules": {"partitions": 1}}], "partitions must be a whole number from 2 to 100, and is 1"),
        ([{**RACK, "rules": {"partitions": "101"}}], "partitions must be a whole number from 2 to 100, and is 101"),
        ([{**RACK, "rules": {"partitions": 3, "max_skew": 1}}], "leave out one of the two"),
        ([{"name": "affinity", "scope": "rack", "rules": {"partitions": 3}}], "only anti-affinity takes limits"),
        ([{**THREE, "name": "soft-anti-affinity"}], "only anti-affinity takes limits"),
        ([THREE, {"name": "affinity", "scope": "rack"}], "gives each of 3 partitions racks of its own; drop one"),
        ([THREE, {"name": "affinity"}], "gives each of 3 partitions racks of its own; drop one"),
        ([THREE, {**THREE, "scope": "switch"}], "both divide the group into partitions; keep one"),
    ],
)
async def test_policies_that_cannot_be_are_refused(compute: Compute, policies: list[Any], said: str) -> None:
    body = {"server_group": {"name": "g", "policies": policies}}
    status, message = await compute.refusal("POST", "/os-server-groups", body, version=VERSION)
    assert status == 400
    assert said in message


async def test_a_hint_asks_for_a_partition(compute: Compute) -> None:
    group = await make_group(compute, THREE)
    await boot_in(compute, group, "2", 2)
    await boot_in(compute, group, 3)
    await boot(compute, group, 3)
    assert await numbers(compute, group) == [2, 2, 3, 1, 1, 3]
    assert await violations(compute, group) == []
    undivided = await make_group(compute, RACK)
    for hints, said in (
        ({"group": group, "partition": "4"}, f"Server group {group} has the partitions 1 to 3, not 4."),
        ({"group": group, "partition": 0}, f"Server group {group} has the partitions 1 to 3, not 0."),
        ({"group": group, "partition": "two"}, "The hint 'partition' must be one whole number, and is 'two'."),
        ({"group": undivided, "partition": "1"},
         f"Server group {undivided} is not divided into partitions: leave out partition 1."),
        ({"partition": "1"}, "A partition is one of a server group: give a 'group' hint too, or no 'partition' hint."),
    ):  # fmt: skip
        answer = await ask_for(compute, hints)
        assert (answer.status_code, answer.json()["badRequest"]["message"]) == (400, said)
    assert len(await numbers(compute, group)) == 6


async def test_a_group_that_comes_to_be_divided_numbers_its_members_rack_by_rack(compute: Compute) -> None:
    group = await make_group(compute, {**RACK, "rules": {"max_server_per_aggregate": 2}})
    await boot(compute, group, 8)
    members = (await group_of(compute, group))["members"]
    four = await give(compute, group, {**RACK, "rules": {"partitions": 4}})
    assert sorted(four) == sorted(members)
    assert sorted(four.values()) == [1, 1, 2, 2, 3, 3, 4, 4]
    assert await violations(compute, group) == []
    three = await give(compute, group, THREE)
    assert {member: number for member, number in four.items() if number < 4}.items() <= three.items()
    assert set(three.values()) == {1, 2, 3}
    assert await violations(compute, group) == []
    assert await give(compute, group, RACK) == {}
    server = (await compute.api.get(f"/compute/v2.1/servers/{members[0]}", version=VERSION)).json()["server"]
    assert server["partition"] is None


async def test_a_server_that_joins_gets_the_number_of_those_around_it_or_the_one_asked_for(compute: Compute) -> None:
    group = await make_group(compute, THREE)
    await boot(compute, group, 2)
    first, _ = (await group_of(compute, group))["members"]
    beside = (await ask_for(compute, {"same_host": first})).json()["server"]["id"]

    async def act(action: str, **subject: Any) -> Any:
        path = f"/os-server-groups/{group}/action"
        return await compute.ask("POST", path, json={action: subject}, version=VERSION, cloud="roost")

    added = await act("add_instance", instance_id=beside)
    assert added.json()["server_group"]["partitions"][beside] == 1
    removed = await act("remove_instance", instance_id=beside)
    assert beside not in removed.json()["server_group"]["partitions"]
    too_high = await act("add_instance", instance_id=beside, partition=4)
    assert too_high.json()["badRequest"]["message"] == f"Server group {group} has the partitions 1 to 3, not 4."
    added = await act("add_instance", instance_id=beside, partition=2)
    assert added.json()["server_group"]["partitions"][beside] == 2
    (broken,) = await violations(compute, group)
    assert (broken["breach"], broken["excess"]) == ("partitions_share", 1)
    old = await compute.ask("POST", f"/os-server-groups/{group}/action", version="2.1002", cloud="roost",
                            json={"add_instance": {"instance_id": beside, "partition": 2}})  # fmt: skip
    assert old.status_code == 400


async def test_partitions_that_come_to_share_a_rack_are_found_and_mended_with_one_move(compute: Compute) -> None:
    group = await make_group(compute, THREE)
    await boot(compute, group, 3)
    hosts = await hosts_of(compute, (await group_of(compute, group))["members"])
    await move_to_rack(compute, hosts[0], await rack_of(compute, hosts[1]))
    (broken,) = await violations(compute, group)
    assert broken["message"] == (
        "2 members are of several partitions in one rack, against 'anti-affinity:rack'; 1 must leave"
    )
    begun = await repair(compute, group)
    assert (len(begun["moves"]), begun["fewest"], begun["repairs_all"]) == (1, True, True)
    await work(compute, 3)
    assert (await shown(compute, group, begun["id"]))["status"] == "done"
    assert await violations(compute, group) == []
    assert await numbers(compute, group) == [1, 2, 3]


async def test_an_explanation_says_which_partition_and_why_and_what_would_help(compute: Compute) -> None:
    group = await make_group(compute, {**RACK, "rules": {"partitions": 13}})
    await lift_quota(compute, group)
    *_, server = await boot(compute, group)
    explained = await explanation(compute, server, "roost")
    assert explained["chosen"][0]["partition"] == 1
    assert explained["sentence"] == (
        "Partition 1 had the fewest members of those with a place. Of 48 hosts, the one chosen came first: it had room."
    )
    await boot(compute, group, 11)
    explained = await asked(compute, group, partition=13)
    assert explained["sentence"] == (
        "No place for 1 server in partition 13: 48 hosts are in a rack of another partition, by 'anti-affinity:rack'."
    )
    assert explained["advice"] == "1 more rack, or leaving the partition open, would help."
    explained = await asked(compute, group, partition=2)
    assert "Partition 2 was asked for." in explained["sentence"]
    status, said = await compute.refusal(
        "POST", f"/os-server-groups/{group}/explain", {"explain": {"flavorRef": "1", "partition": 14}}, version=VERSION
    )
    assert (status, said) == (400, f"Server group {group} has the partitions 1 to 13, not 14.")


async def test_a_plan_has_the_numbers_and_holds_only_as_long_as_they_do(compute: Compute) -> None:
    group = await make_group(compute, THREE)
    create = {"flavorRef": "1", "count": 4}
    planned = await plan(compute, group, create=create)
    assert [each["partition"] for each in planned["placements"]] == [1, 2, 3, 1]
    asked_for = await plan(compute, group, create={**create, "partition": 3})
    assert [each["partition"] for each in asked_for["placements"]] == [3, 3, 3, 3]
    applied = await plan(compute, group, create={**create, "partition": 3}, generation=asked_for["generation"])
    assert applied["applied"]
    assert await numbers(compute, group) == [3, 3, 3, 3]
    await boot_in(compute, group, 1)
    status, fault = await refused(compute, group, create=create, generation=planned["generation"])
    assert (status, fault["message"]) == (409, "The plan no longer holds: other placements. Plan again.")
    assert [each["partition"] for each in fault["difference"]["now"]["placements"]] == [2, 1, 2, 1]
    policies = await plan(compute, group, policies=[{**RACK, "rules": {"partitions": 2}}])
    assert set(policies["partitions"].values()) == {1, 2}
    assert policies["violations"] == []
    assert await numbers(compute, group) == [3, 3, 3, 3, 1]


async def test_a_partition_whose_rack_is_lost_takes_another_that_nobody_has(compute: Compute) -> None:
    group = await make_group(compute, {**RACK, "rules": {"partitions": 12}})
    await lift_quota(compute, group)
    await boot(compute, group, 11)
    members = (await group_of(compute, group))["members"]
    first, *others = await hosts_of(compute, members)
    rack = await rack_of(compute, first)
    lost = await plan(compute, group, "roost-admin", lose={"scope": "rack", "identifier": rack})
    (move,) = lost["moves"]
    assert move["server_id"] == members[0]
    assert move["target"]["rack"] not in [await rack_of(compute, host) for host in others]
    await boot(compute, group, 1)
    lost = await plan(compute, group, "roost-admin", lose={"scope": "rack", "identifier": rack})
    (stranded,) = lost["stranded"]
    assert stranded["sentence"].startswith("No place for 1 server in partition 1: ")
    assert "in a rack of another partition, by 'anti-affinity:rack'" in stranded["sentence"]
