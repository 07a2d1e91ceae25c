"""Actions: in order, one at a time, cancelled, suspended, timed out, overtaken, lost and found, and always ended."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from roost.clouds.embedded import EmbeddedCloud
from roost.clusters.actions import queue, runner
from roost.clusters.actions.journal import Journal
from roost.clusters.actions.work import ActionRow, Engine, Superseded, Work
from roost.clusters.plugins import load
from roost.compute.scheduling.scheduler import Scheduler
from roost.store.tables.clusters import actions, nodes
from tests.clusters.house import FaultyClouds, House, clustering, working_engine


class Gate:
    """Holds the cloud at a point until it is opened."""

    def __init__(self) -> None:
        self.reached, self.open = asyncio.Event(), asyncio.Event()

    async def __call__(self) -> None:
        self.reached.set()
        await self.open.wait()


async def test_while_an_action_is_at_work_another_is_refused(house: House) -> None:
    cluster = await house.cluster(1)
    gate = house.faults.before_create = Gate()
    first = await house.post(f"/clusters/{cluster['id']}/actions", {"scale_out": {}})
    await gate.reached.wait()
    second = await house.post(f"/clusters/{cluster['id']}/actions", {"scale_out": {}})
    assert second.status_code == 409
    sentence = f"CLUSTER_SCALE_OUT for cluster '{cluster['id']}' cannot be completed because it is already locked."
    assert second.json()["error"] == {"code": 409, "message": sentence, "type": "ResourceIsLocked"}
    gate.open.set()
    assert (await house.done(first))["status"] == "SUCCEEDED"


async def test_an_action_that_waits_for_its_turn_is_a_conflict(database_url: str) -> None:
    async with clustering(database_url, engine=False) as house:
        profile = await house.profile()
        answer = await house.post("/clusters", {"cluster": {"name": "c", "profile_id": profile["id"]}})
        cluster, waiting = answer.json()["cluster"], answer.headers["location"].rpartition("/")[2]
        second = await house.post(f"/clusters/{cluster['id']}/actions", {"check": {}})
        assert second.json()["error"]["message"] == (
            f"The CLUSTER_CHECK action for target {cluster['id']} conflicts with the following action(s): {waiting}"
        )


async def test_a_deletion_waits_for_its_turn(house: House) -> None:
    cluster = await house.cluster(1)
    gate = house.faults.before_create = Gate()
    growing = await house.post(f"/clusters/{cluster['id']}/actions", {"scale_out": {}})
    await gate.reached.wait()
    deleting = await house.call("DELETE", f"/clusters/{cluster['id']}")
    await asyncio.sleep(0.3)
    waiting = await house.get(f"/actions/{deleting.headers['location'].rpartition('/')[2]}")
    assert waiting["status"] == "READY"
    gate.open.set()
    assert (await house.done(growing))["status"] == "SUCCEEDED"
    assert (await house.done(deleting))["status"] == "SUCCEEDED"
    assert await house.servers() == set()


async def test_whoever_sees_the_end_of_an_action_may_begin_the_next_at_once(house: House) -> None:
    cluster = await house.cluster(1)
    house.faults.refuse = lambda request: "It is full."
    for _ in range(5):
        assert (await house.act(cluster, "scale_out"))["status"] == "FAILED"


async def test_different_clusters_are_worked_on_side_by_side(house: House) -> None:
    first, second = await house.cluster(0), await house.cluster(0)
    gate = house.faults.before_create = Gate()
    held = await house.post(f"/clusters/{first['id']}/actions", {"scale_out": {}})
    await gate.reached.wait()
    house.faults.before_create = None
    assert (await house.act(second, "scale_out"))["status"] == "SUCCEEDED"
    gate.open.set()
    await house.done(held)


async def test_an_action_that_nobody_has_begun_is_cancelled_at_once(database_url: str) -> None:
    async with clustering(database_url, engine=False) as house:
        profile = await house.profile()
        answer = await house.post("/clusters", {"cluster": {"name": "c", "profile_id": profile["id"]}})
        identifier = answer.headers["location"].rpartition("/")[2]
        await house.call("PATCH", f"/actions/{identifier}", {"action": {"status": "CANCELLED"}})
        assert (await house.get(f"/actions/{identifier}"))["status"] == "CANCELLED"
        again = await house.call("PATCH", f"/actions/{identifier}", {"action": {"status": "CANCELLED"}})
        assert again.status_code == 409
        assert again.json()["error"]["type"] == "ActionImmutable"


async def _begin_update(house: House, cluster: dict[str, Any], pause: int) -> str:
    """A rolling update, one node at a time, with a pause after each."""
    policy = await house.policy("senlin.policy.batch", min_in_service=0, max_batch_size=1, pause_time=pause)
    await house.act(cluster, "policy_attach", {"policy_id": policy["id"]})
    new = await house.profile(metadata={"release": "2"})
    answer = await house.call("PATCH", f"/clusters/{cluster['id']}", {"cluster": {"profile_id": new["id"]}})
    return answer.headers["location"].rpartition("/")[2]


async def test_a_rolling_update_pauses_between_its_batches_without_holding_an_engine(house: House) -> None:
    cluster = await house.cluster(3)
    identifier = await _begin_update(house, cluster, 1)
    waiting = await house.until(f"/actions/{identifier}", lambda action: action["status"] == "WAITING")
    assert waiting["owner"] is None
    assert waiting["outputs"]["nodes_done"] in (1, 2)
    assert (await house.ended(identifier))["status"] == "SUCCEEDED"
    labels = await house.get(f"/clusters/{cluster['id']}/attrs/details.metadata.release")
    assert [found["value"] for found in labels] == ["2", "2", "2"]


async def test_a_waiting_action_is_cancelled_and_lets_the_cluster_go(house: House) -> None:
    cluster = await house.cluster(3)
    identifier = await _begin_update(house, cluster, 60)
    await house.until(f"/actions/{identifier}", lambda action: action["status"] == "WAITING")
    await house.call("PATCH", f"/actions/{identifier}", {"action": {"status": "CANCELLED"}})
    assert (await house.get(f"/actions/{identifier}"))["status"] == "CANCELLED"
    assert (await house.act(cluster, "check"))["status"] == "SUCCEEDED"
    assert (await house.show(cluster))["status"] == "ACTIVE"


async def test_an_action_at_work_is_cancelled_after_its_batch(house: House) -> None:
    cluster = await house.cluster(0)
    gate = house.faults.before_create = Gate()
    answer = await house.post(f"/clusters/{cluster['id']}/actions", {"scale_out": {"count": 2}})
    await gate.reached.wait()
    identifier = answer.headers["location"].rpartition("/")[2]
    answered = await house.call("PATCH", f"/actions/{identifier}", {"action": {"status": "CANCELLED"}})
    assert answered.status_code == 202
    assert (await house.get(f"/actions/{identifier}"))["status"] == "RUNNING"
    gate.open.set()
    ended = await house.ended(identifier)
    assert ended["status"] in ("CANCELLED", "SUCCEEDED")
    assert len(await house.servers()) == len((await house.show(cluster))["nodes"])


async def test_an_action_cancelled_by_force_leaves_no_server_that_no_node_knows(house: House) -> None:
    cluster = await house.cluster(0)
    gate = house.faults.before_create = Gate()
    answer = await house.post(f"/clusters/{cluster['id']}/actions", {"scale_out": {"count": 2}})
    await gate.reached.wait()
    identifier = answer.headers["location"].rpartition("/")[2]
    await house.call("PATCH", f"/actions/{identifier}?force=true", {"action": {"status": "CANCELLED"}})
    assert (await house.get(f"/actions/{identifier}"))["status"] == "CANCELLED"
    deleted = await house.done(await house.call("DELETE", f"/clusters/{cluster['id']}?force=true"))
    assert deleted["status"] == "SUCCEEDED"
    await _make_and_unmake(house, gate)


async def _make_and_unmake(house: House, gate: Gate) -> None:
    """Let servers be made that nothing waits for any more; they must go again."""
    made = house.faults.after_create = Gate()
    made.open.set()
    gate.open.set()
    await made.reached.wait()
    for _ in range(600):
        if not await house.servers():
            break
        await asyncio.sleep(0.05)
    assert await house.servers() == set()


async def test_a_server_that_comes_while_its_node_is_being_deleted_goes_too(house: House) -> None:
    cluster = await house.cluster(0)
    gate = house.faults.before_create = Gate()
    await house.post(f"/clusters/{cluster['id']}/actions", {"scale_out": {"count": 2}})
    await gate.reached.wait()
    looked = house.faults.after_lookup = Gate()
    deletion = await house.call("DELETE", f"/clusters/{cluster['id']}?force=true")
    await looked.reached.wait()
    house.faults.after_lookup = None
    await _make_and_unmake(house, gate)
    looked.open.set()
    assert (await house.done(deletion))["status"] == "SUCCEEDED"
    assert await house.servers() == set()


async def test_a_server_that_a_recovery_made_too_late_goes_with_its_node(house: House) -> None:
    cluster = await house.cluster(1)
    gate = house.faults.after_create = Gate()
    [node] = await house.members(cluster)
    recovery = await house.post(f"/nodes/{node['id']}/actions", {"recover": {"operation": "RECREATE"}})
    await gate.reached.wait()
    house.faults.after_create = None
    identifier = recovery.headers["location"].rpartition("/")[2]
    await house.call("PATCH", f"/actions/{identifier}?force=true", {"action": {"status": "CANCELLED"}})
    gate.open.set()
    assert (await house.done(await house.call("DELETE", f"/clusters/{cluster['id']}")))["status"] == "SUCCEEDED"
    assert await house.servers() == set()


@pytest.mark.parametrize("gone", [True, False])
async def test_what_a_dead_engine_left_of_an_action_ended_by_force_is_cleared_away(house: House, gone: bool) -> None:
    cluster = await house.cluster(1)
    [node] = await house.members(cluster)
    async with house.database.begin() as connection:
        if gone:
            await connection.execute(nodes.delete().where(nodes.c.id == node["id"]))
        made = actions.update().where(actions.c.target == cluster["id"]).returning(actions.c.id)
        identifier = (await connection.execute(made.values(status="CANCELLED", owner="a dead engine"))).scalar_one()
    await house.until(f"/actions/{identifier}", lambda action: action["owner"] is None)
    assert len(await house.servers()) == (0 if gone else 1)


async def test_a_forced_deletion_does_not_wait_for_what_is_under_way(house: House) -> None:
    cluster = await house.cluster(1)
    gate = house.faults.before_create = Gate()
    growing = await house.post(f"/clusters/{cluster['id']}/actions", {"scale_out": {}})
    await gate.reached.wait()
    refused = await house.call("DELETE", f"/clusters/{cluster['id']}", version="1.7")
    assert refused.status_code == 202  # the cluster is resizing, which is no obstacle
    forced = await house.call("DELETE", f"/clusters/{cluster['id']}", {"force": True})
    assert (await house.done(forced))["status"] == "SUCCEEDED"
    assert (await house.done(growing))["status"] == "CANCELLED"
    gate.open.set()


async def test_an_action_is_suspended_and_resumed(house: House) -> None:
    cluster = await house.cluster(3)
    identifier = await _begin_update(house, cluster, 1)
    await house.until(f"/actions/{identifier}", lambda action: action["status"] == "WAITING")
    await house.call("PATCH", f"/actions/{identifier}", {"action": {"status": "SUSPENDED"}})
    await asyncio.sleep(1.5)
    assert (await house.get(f"/actions/{identifier}"))["status"] == "SUSPENDED"
    await house.call("PATCH", f"/actions/{identifier}", {"action": {"status": "READY"}})
    assert (await house.ended(identifier))["status"] == "SUCCEEDED"


async def test_an_action_that_takes_too_long_ends_and_says_so(house: House) -> None:
    cluster = await house.cluster(0, timeout=1)
    gate = house.faults.before_create = Gate()
    action = await house.act(cluster, "scale_out", {"count": 2})
    gate.open.set()
    assert action["status"] == "FAILED"
    assert action["status_reason"] == f"CLUSTER_SCALE_OUT [{action['id'][:8]}] timeout."
    house.faults.before_create = None
    now = await house.show(cluster)
    assert now["status"] in ("ACTIVE", "WARNING")
    assert now["desired_capacity"] == 0
    assert {node["status"] for node in await house.members(cluster)} <= {"ERROR"}


async def test_whoever_was_overtaken_writes_nothing_more(house: House) -> None:
    cluster = await house.cluster(0)
    gate = house.faults.after_create = Gate()
    answer = await house.post(f"/clusters/{cluster['id']}/actions", {"scale_out": {"count": 2}})
    await gate.reached.wait()
    house.faults.after_create = None
    identifier = answer.headers["location"].rpartition("/")[2]
    second = Engine(
        "second",
        house.database,
        house.settings.clusters,
        load(house.settings),
        FaultyClouds(house.database, house.settings, Scheduler(house.database, house.settings)),
        Journal(house.database),
    )
    async with house.database.begin() as connection:
        await connection.execute(actions.update().where(actions.c.id == identifier).values(owner="a dead engine"))
        [work], _ = await queue.claim(connection, second, {}, [identifier])
    await runner.carry_out(work)
    ended = await house.ended(identifier)
    gate.open.set()
    await asyncio.sleep(0.5)
    assert ended["status"] == "SUCCEEDED"
    assert await house.get(f"/actions/{identifier}") == ended
    assert len(await house.servers()) == len((await house.show(cluster))["nodes"]) == 2


async def test_an_attempt_that_is_not_the_current_one_may_not_write(house: House) -> None:
    cluster = await house.cluster(0)
    gate = house.faults.before_create = Gate()
    answer = await house.post(f"/clusters/{cluster['id']}/actions", {"scale_out": {}})
    await gate.reached.wait()
    async with house.database.begin() as connection:
        columns = (actions.c[name] for name in ActionRow._fields)
        row = (await connection.execute(sa.select(*columns).where(actions.c.status == "RUNNING"))).one()
    journal = Journal(house.database)
    engine = Engine("old", house.database, house.settings.clusters, load(house.settings), None, journal)  # type: ignore[arg-type]
    work = Work.of(engine, ActionRow(*row))
    work.attempt -= 1
    with pytest.raises(Superseded):
        async with work.write():
            pass
    gate.open.set()
    await house.done(answer)


async def test_a_node_that_something_is_done_to_cannot_join(database_url: str) -> None:
    async with clustering(database_url) as house:
        profile = await house.profile()
        cluster = await house.cluster(0, profile=profile)
        node = await house.node(profile_id=profile["id"])
        async with house.database.begin() as connection:
            await connection.execute(
                actions.update().where(actions.c.target == node["id"]).values(status="SUSPENDED", lock="nobody")
            )
        answer = await house.post(f"/clusters/{cluster['id']}/actions", {"add_nodes": {"nodes": [node["id"]]}})
        assert answer.status_code == 409
        assert answer.json()["error"]["type"] == "ResourceIsLocked"


async def test_a_deletion_of_a_node_that_has_joined_a_cluster_waits_for_the_cluster(database_url: str) -> None:
    async with clustering(database_url, engine=False, clusters__concurrency=1) as house:
        async with working_engine(house.settings, house.database):
            profile = await house.profile()
            cluster = await house.cluster(0, profile=profile)
            node = await house.node(profile_id=profile["id"])
        body = {"add_nodes": {"nodes": [node["id"]]}}
        joining = await house.post(f"/clusters/{cluster['id']}/actions", body)
        deleting = await house.call("DELETE", f"/nodes/{node['id']}")
        async with working_engine(house.settings, house.database):
            assert (await house.done(joining))["status"] == "SUCCEEDED"
            assert (await house.done(deleting))["status"] == "SUCCEEDED"
        now = await house.show(cluster)
        assert (now["nodes"], now["desired_capacity"]) == ([], 0)


async def test_an_action_whose_job_was_lost_is_found_again(house: House) -> None:
    cluster = await house.cluster(0)
    async with house.database.begin() as connection:
        await connection.execute(
            actions.insert().values(
                id="lost",
                name="lost",
                action="CLUSTER_CHECK",
                target=cluster["id"],
                cluster_id=cluster["id"],
                lock=cluster["id"],
                cause="RPC Request",
                timeout=60,
                status="READY",
                user_id=cluster["user"],
                project_id=cluster["project"],
                created_at=sa.text("now() - interval '1 minute'"),
            )
        )
    assert (await house.ended("lost"))["status"] == "SUCCEEDED"


async def test_an_engine_that_comes_later_takes_up_what_waits(database_url: str) -> None:
    async with clustering(database_url, engine=False) as house:
        profile = await house.profile()
        body = {"cluster": {"name": "c", "profile_id": profile["id"], "desired_capacity": 2}}
        answer = await house.post("/clusters", body)
        async with working_engine(house.settings, house.database):
            assert (await house.done(answer))["status"] == "SUCCEEDED"


async def test_a_node_waits_for_its_life_cycle_to_be_completed(house: House) -> None:
    cluster = await house.cluster(2)
    hooks = {"type": "zaqar", "timeout": 60, "params": {"queue": "q"}}
    policy = await house.policy("senlin.policy.deletion", "1.1", criteria="OLDEST_FIRST", hooks=hooks)
    await house.act(cluster, "policy_attach", {"policy_id": policy["id"]})
    answer = await house.post(f"/clusters/{cluster['id']}/actions", {"scale_in": {}})
    identifier = answer.headers["location"].rpartition("/")[2]
    waiting = await house.until(f"/actions/{identifier}", lambda action: action["status"] == "WAITING")
    [token] = waiting["depends_on"]
    step = await house.get(f"/actions/{token}")
    assert (step["status"], step["depended_by"]) == ("WAITING_LIFECYCLE_COMPLETION", [identifier])
    path = f"/events?oid={step['target']}"
    happened = await house.until(path, lambda events: "did not get the message" in str(events))
    assert token in [event["meta_data"].get("lifecycle_action_token") for event in happened]
    [failure] = [event["status_reason"] for event in happened if "did not get the message" in event["status_reason"]]
    assert failure.startswith(
        "The queue q did not get the message: The embedded cloud has no queues: use a hook of type webhook"
    )
    body = {"complete_lifecycle": {"lifecycle_action_token": token}}
    assert (await house.post(f"/clusters/{cluster['id']}/actions", body)).json() == {"action": token}
    assert (await house.ended(identifier))["status"] == "SUCCEEDED"
    assert len(await house.servers()) == 1


async def test_a_life_cycle_that_nobody_completes_ends_in_its_time(house: House) -> None:
    cluster = await house.cluster(2)
    hooks = {"type": "zaqar", "timeout": 1, "params": {"queue": "q"}}
    policy = await house.policy("senlin.policy.deletion", "1.1", hooks=hooks)
    await house.act(cluster, "policy_attach", {"policy_id": policy["id"]})
    assert (await house.act(cluster, "scale_in"))["status"] == "SUCCEEDED"
    assert len(await house.servers()) == 1


async def test_a_queue_of_the_cloud_is_told_of_the_node_that_waits(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[tuple[str, Any]] = []

    async def keep(_: EmbeddedCloud, queue: str, body: Any) -> None:
        heard.append((queue, body))

    monkeypatch.setattr(EmbeddedCloud, "post_message", keep)
    cluster = await house.cluster(2)
    hooks = {"timeout": 1, "params": {"queue": "goodbyes"}}
    policy = await house.policy("senlin.policy.deletion", "1.1", criteria="OLDEST_FIRST", hooks=hooks)
    await house.act(cluster, "policy_attach", {"policy_id": policy["id"]})
    oldest = (await house.members(cluster))[0]
    assert (await house.act(cluster, "scale_in"))["status"] == "SUCCEEDED"
    [(queue, body)] = heard
    assert (queue, body["node_id"], body["resource_id"]) == ("goodbyes", oldest["id"], oldest["physical_id"])
    assert body["lifecycle_transition_type"] == "termination"


@asynccontextmanager
async def webhook(heard: list[Any], status: str = "200 OK") -> AsyncIterator[str]:
    """A page that keeps the messages it gets."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
        heard.append(json.loads(await reader.readexactly(length)))
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"


async def test_a_webhook_is_told_of_the_node_that_waits(database_url: str) -> None:
    heard: list[Any] = []
    async with clustering(database_url, clusters__private_urls=True) as house, webhook(heard) as url:
        cluster = await house.cluster(2)
        hooks = {"type": "webhook", "timeout": 60, "params": {"url": url}}
        policy = await house.policy("senlin.policy.deletion", "1.1", criteria="OLDEST_FIRST", hooks=hooks)
        await house.act(cluster, "policy_attach", {"policy_id": policy["id"]})
        oldest = (await house.members(cluster))[0]
        answer = await house.post(f"/clusters/{cluster['id']}/actions", {"scale_in": {}})
        identifier = answer.headers["location"].rpartition("/")[2]
        waiting = await house.until(
            f"/actions/{identifier}", lambda action: bool(heard) and action["status"] == "WAITING"
        )
        assert heard == [
            {
                "lifecycle_action_token": waiting["depends_on"][0],
                "node_id": oldest["id"],
                "resource_id": oldest["physical_id"],
                "lifecycle_transition_type": "termination",
            }
        ]
        body = {"complete_lifecycle": {"lifecycle_action_token": heard[0]["lifecycle_action_token"]}}
        await house.post(f"/clusters/{cluster['id']}/actions", body)
        assert (await house.ended(identifier))["status"] == "SUCCEEDED"
        assert oldest["physical_id"] not in await house.servers()


@pytest.mark.parametrize(
    ("allowed", "reason"), [(True, "status 500"), (False, "It leads to this machine or into a private network")]
)
async def test_a_webhook_that_cannot_be_told_is_an_event(database_url: str, allowed: bool, reason: str) -> None:
    heard: list[Any] = []
    async with (
        clustering(database_url, clusters__private_urls=allowed) as house,
        webhook(heard, "500 Oh No") as url,
    ):
        cluster = await house.cluster(2)
        named = url.replace("127.0.0.1", "localhost")
        hooks = {"type": "webhook", "timeout": 1, "params": {"url": named}}
        policy = await house.policy("senlin.policy.deletion", "1.1", hooks=hooks)
        await house.act(cluster, "policy_attach", {"policy_id": policy["id"]})
        assert (await house.act(cluster, "scale_in"))["status"] == "SUCCEEDED"
        assert len(await house.servers()) == 1
        happened = await house.get(f"/events?cluster_id={cluster['id']}&action=NODE_DELETE")
    assert [reason in event["status_reason"] for event in happened if "webhook" in event["status_reason"]] == [True]
    assert bool(heard) is allowed


async def test_a_token_that_is_nobodys_is_not_found(house: House) -> None:
    cluster = await house.cluster(0)
    body = {"complete_lifecycle": {"lifecycle_action_token": "5e0a8c1d-0000-4000-8000-000000000000"}}
    assert (await house.post(f"/clusters/{cluster['id']}/actions", body)).status_code == 404


async def test_every_start_and_end_is_an_event(house: House) -> None:
    cluster = await house.cluster(1)
    happened = await house.get(f"/events?cluster_id={cluster['id']}&action=CLUSTER_CREATE")
    assert [event["status"] for event in happened] == ["start", "end"]
    assert (await house.get(f"/events/{happened[0]['id']}"))["oid"] == cluster["id"]


async def test_engines_are_listed_for_administrators(house: House) -> None:
    [service] = await house.until("/build-info", lambda _: True) and await house.get("/services", cloud="roost-admin")
    assert (service["binary"], service["state"], service["status"]) == ("senlin-engine", "up", "enabled")
