"""What policy types of others may do wrong, and what becomes of the action and of its cluster."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import sqlalchemy as sa

from roost import config
from roost.cli import serve
from roost.clusters import orphans, plugins
from roost.store.tables.clusters import policies, profiles
from tests.clusters.house import House, clustering

LINES = ["tests.clusters.faulty_policies:FaultyPolicy, tests.clusters.faulty_policies:ImpatientPolicy"]


@pytest.fixture
async def house(database_url: str) -> AsyncIterator[House]:
    async with clustering(database_url, clusters__policies=LINES) as made:
        yield made


async def governed(house: House, kind: str = "tests.policy.faulty", size: int = 0, **spec: Any) -> dict[str, Any]:
    cluster = await house.cluster(size)
    policy = await house.policy(kind, **spec)
    assert (await house.act(cluster, "policy_attach", {"policy_id": policy["id"]}))["status"] == "SUCCEEDED"
    return {**cluster, "policy": policy}


@pytest.mark.parametrize("fault", ["set", "nan", "nul"])
async def test_a_value_that_is_not_json_fails_the_action_with_the_policy_and_the_key(house: House, fault: str) -> None:
    cluster = await governed(house, fault=fault)
    action = await house.act(cluster, "scale_out")
    assert action["status"] == "FAILED"
    assert f"Failed policy '{cluster['policy']['name']}': it left" in action["status_reason"]
    assert "as 'faulty.list.1' in action.data, which cannot be written as JSON" in action["status_reason"]
    assert (await house.act(cluster, "check"))["status"] == "SUCCEEDED"


async def test_times_are_written_as_text_and_the_last_word_of_the_policies_is_ok(house: House) -> None:
    action = await house.act(await governed(house, fault="time"), "scale_out")
    assert action["status"] == "SUCCEEDED"
    assert action["data"]["faulty"] == {"list": ["fine", "2026-11-16T00:00:00+00:00"]}
    assert (action["data"]["status"], action["data"]["reason"]) == ("OK", "Completed policy checking.")


async def test_a_decision_that_cannot_be_followed_fails_the_action_and_nothing_is_made(house: House) -> None:
    cluster = await governed(house, fault="count")
    action = await house.act(cluster, "scale_out")
    assert action["status"] == "FAILED"
    assert action["status_reason"] == "action.data.creation.count must be of type int, and is 'many'."
    assert (await house.show(cluster))["nodes"] == []


async def test_a_plain_hook_that_sleeps_holds_up_nobody(house: House) -> None:
    cluster = await governed(house, fault="sleep")
    acting = asyncio.create_task(house.act(cluster, "scale_out"))
    await asyncio.sleep(0.3)
    began = time.monotonic()
    await house.get("/clusters")
    assert time.monotonic() - began < 2
    assert (await acting)["status"] == "SUCCEEDED"


async def test_a_hook_that_overruns_its_time_fails_the_action(house: House) -> None:
    action = await house.act(await governed(house, "tests.policy.impatient", fault="sleep"), "scale_out")
    assert action["status"] == "FAILED"
    assert action["status_reason"].endswith("it did not answer within 0.3 seconds")


async def uninstalled(house: House, table: sa.Table, name: str) -> None:
    """As if the package of these types had gone."""
    async with house.database.begin() as connection:
        kept = {"data": {"package": "acme-curfew"}} if table is policies else {}
        await connection.execute(table.update().where(table.c.id == name).values(type="acme.kind.gone-1.0", **kept))


async def test_a_cluster_outlives_the_package_of_its_policy(house: House) -> None:
    cluster, other = await governed(house, size=1), await governed(house, size=1)
    for each in (cluster, other):
        await uninstalled(house, policies, each["policy"]["id"])
    name = cluster["policy"]["name"]
    gone = f"The policy '{name}' is of type acme.kind.gone-1.0, which came with acme-curfew and is not installed."

    action = await house.act(cluster, "scale_out")
    assert (action["status"], action["status_reason"]) == ("FAILED", gone)
    async with house.database.begin() as connection:
        found = await orphans.find(connection, plugins.load(house.settings))
    assert f"{gone} Clusters: {cluster['name']}." in map(str, found)

    detached = await house.act(cluster, "policy_detach", {"policy_id": cluster["policy"]["id"]})
    assert detached["status"] == "SUCCEEDED"
    assert gone in {event["status_reason"] for event in await house.get(f"/events?oid={cluster['id']}")}
    assert (await house.act(cluster, "scale_out"))["status"] == "SUCCEEDED"

    deleted = await house.done(await house.call("DELETE", f"/clusters/{other['id']}"))
    assert deleted["status"] == "SUCCEEDED"
    reasons = [event["status_reason"] for event in await house.get(f"/events?oid={other['id']}")]
    assert any("Its detach was skipped: what it made may be left over." in reason for reason in reasons)


async def test_a_cluster_outlives_the_package_of_its_profile_by_force(house: House) -> None:
    cluster = await house.cluster(1)
    await uninstalled(house, profiles, cluster["profile_id"])
    refused = await house.done(await house.call("DELETE", f"/clusters/{cluster['id']}"))
    assert refused["status"] == "FAILED"
    assert "which no installed package offers" in refused["status_reason"]
    forced = await house.done(await house.call("DELETE", f"/clusters/{cluster['id']}?force=true"))
    assert forced["status"] == "SUCCEEDED", forced["status_reason"]


def test_a_type_that_does_not_conform_is_refused_before_anything_starts() -> None:

    broken = config.load(clusters__policies=["tests.clusters.faulty_policies:Nonconforming"])
    with pytest.raises(plugins.PluginError, match="has no VERSIONS"):
        serve.run(broken, None, None)  # type: ignore[arg-type]
