"""What happened to servers, over HTTP: instance actions and migrations."""

from tests.compute.cloud import Cloud


async def test_actions_are_listed_the_newest_first_and_shown_by_their_request(cloud: Cloud) -> None:
    server = await cloud.boot()
    stopped = await cloud.act(server, "os-stop", cloud="roost")
    await cloud.settle()
    path = f"/servers/{server}/os-instance-actions"
    listed = (await cloud.ask("GET", path)).json()["instanceActions"]
    assert [action["action"] for action in listed] == ["stop", "create"]
    assert listed[0]["request_id"] == stopped.headers["X-Compute-Request-Id"]
    assert "updated_at" not in (await cloud.ask("GET", path, version="2.57")).json()["instanceActions"][0]
    shown = (await cloud.ask("GET", f"{path}/{listed[0]['request_id']}")).json()["instanceAction"]
    (event,) = shown["events"]
    assert (event["event"], event["result"], "host" in event) == ("compute_stop", "Success", False)
    seen = await cloud.ask("GET", f"{path}/{listed[0]['request_id']}", cloud="roost-admin")
    assert seen.json()["instanceAction"]["events"][0]["host"] == await cloud.host(server)
    assert await cloud.refusal("GET", f"{path}/req-none") == (
        404,
        f"Action req-none for instance {server} could not be found.",
    )


async def test_an_action_under_way_has_no_result_yet_and_a_failed_one_says_so(cloud: Cloud) -> None:
    await cloud.hosts(1)
    await cloud.boots_take_a_moment()
    server = await cloud.boot(settle=False)
    path = f"/servers/{server}/os-instance-actions"
    request = (await cloud.ask("GET", path)).json()["instanceActions"][0]["request_id"]
    shown = (await cloud.ask("GET", f"{path}/{request}")).json()["instanceAction"]
    assert (shown["message"], shown["events"][0]["result"], shown["events"][0]["finish_time"]) == (None, None, None)
    await cloud.settle()
    await cloud.refused(server, "migrate")
    failed = (await cloud.ask("GET", path)).json()["instanceActions"][0]
    assert (failed["action"], failed["message"]) == ("migrate", "Error")
    shown = (await cloud.ask("GET", f"{path}/{failed['request_id']}")).json()["instanceAction"]
    assert shown["events"][0]["result"] == "Error"


async def test_migrations_are_for_administrators_and_can_be_filtered(cloud: Cloud) -> None:
    source, destination = await cloud.hosts(2)
    server = await cloud.boot(host=source, cloud="roost-admin")
    other = await cloud.boot(host=destination, cloud="roost-admin")
    await cloud.done(server, "migrate")
    await cloud.done(server, "revertResize")
    await cloud.done(other, "os-migrateLive", {"host": None, "block_migration": "auto"})
    for query, found in (
        ({}, [other, server]),
        ({"instance_uuid": server}, [server]),
        ({"status": "reverted"}, [server]),
        ({"migration_type": "live-migration"}, [other]),
        ({"host": source}, [other, server]),
        ({"status": "error"}, []),
    ):
        response = await cloud.ask("GET", "/os-migrations", params=query, cloud="roost-admin")
        assert [row["instance_uuid"] for row in response.json()["migrations"]] == found, query
    assert (await cloud.ask("GET", "/os-migrations")).status_code == 403
