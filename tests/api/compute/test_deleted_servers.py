"""Deleted servers stay visible for a while: to operators, to clients that follow changes, and in their history."""

from datetime import UTC, datetime, timedelta

from roost.store import retention
from tests.compute.cloud import Cloud


async def names(cloud: Cloud, query: str, tenant: str = "roost") -> list[tuple[str, str]]:
    answer = await cloud.ask("GET", f"/servers/detail?{query}", cloud=tenant)
    assert answer.status_code == 200, answer.text
    return [(server["name"], server["status"]) for server in answer.json()["servers"]]


async def test_whoever_follows_changes_sees_a_server_go(cloud: Cloud) -> None:
    await cloud.boot(name="kept")
    await cloud.delete(await cloud.boot(name="gone"))
    past = (datetime.now(UTC) - timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    future = (datetime.now(UTC) + timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert await names(cloud, f"changes-since={past}") == [("kept", "ACTIVE"), ("gone", "DELETED")]
    assert await names(cloud, f"changes-since={future}") == []
    assert await names(cloud, f"changes-since={past}", "roost-alt") == []
    assert await names(cloud, "") == [("kept", "ACTIVE")]


async def test_an_operator_lists_deleted_servers_and_a_tenant_does_not(cloud: Cloud) -> None:
    server = await cloud.boot(name="gone")
    await cloud.delete(server)
    everywhere = "deleted=True&all_tenants=1"
    assert await names(cloud, everywhere, "roost-admin") == [("gone", "DELETED")]
    assert await names(cloud, "deleted=True") == []
    shown = (await cloud.ask("GET", f"/servers/detail?{everywhere}", cloud="roost-admin")).json()["servers"][0]
    assert (shown["id"], shown["OS-EXT-STS:vm_state"]) == (server, "deleted")
    assert shown["OS-SRV-USG:terminated_at"] is not None
    assert (await cloud.ask("GET", f"/servers/{server}")).status_code == 404


async def test_what_was_done_to_a_deleted_server_is_told_since_2_21(cloud: Cloud) -> None:
    server = await cloud.boot()
    await cloud.delete(server)
    path = f"/servers/{server}/os-instance-actions"
    done = (await cloud.ask("GET", path, version="2.21")).json()["instanceActions"]
    assert [action["action"] for action in done] == ["delete", "create"]
    one = await cloud.ask("GET", f"{path}/{done[0]['request_id']}", version="2.21")
    assert one.json()["instanceAction"]["events"][0]["result"] == "Success"
    assert (await cloud.ask("GET", path, version="2.20")).status_code == 404
    assert (await cloud.ask("GET", path, cloud="roost-alt")).status_code == 404


async def test_they_are_forgotten_with_the_rest_of_history(cloud: Cloud) -> None:
    await cloud.delete(await cloud.boot())
    assert (await retention.purge(cloud.database, 1, notifications=False))["deleted_servers"] == 0
    assert (await retention.purge(cloud.database, -1, notifications=False))["deleted_servers"] == 1


async def test_a_moment_that_is_shown_is_one_that_can_be_asked_for(cloud: Cloud) -> None:
    server = await cloud.boot(name="kept")
    moment = (await cloud.show(server))["updated"]
    assert await names(cloud, f"changes-before={moment}") == [("kept", "ACTIVE")]
    assert await names(cloud, f"changes-since={moment}") == [("kept", "ACTIVE")]
