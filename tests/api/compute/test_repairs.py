"""Repairs: which servers move, how they get there, and how a repair is stopped, taken up again and kept going."""

from typing import Any

import pytest
import sqlalchemy as sa

from roost.compute.answers import repairs
from roost.compute.moves import repair_steps
from roost.compute.scheduling import lifecycle
from roost.compute.scheduling.scheduler import Scheduler
from roost.store.database import Database
from roost.store.tables.answers import repairs as repairs_table
from roost.store.tables.servers import servers
from tests.api.compute.conftest import Compute
from tests.api.compute.test_explanations import boot, make_group
from tests.api.compute.test_plans import RACK, VERSION, hosts_of

TOGETHER = {"name": "affinity", "scope": "rack"}


async def broken_group(compute: Compute, servers: int = 3) -> str:
    """A group whose members are in different racks and should be in one."""
    group = await make_group(compute, RACK)
    await boot(compute, group, servers)
    body = {"server_group": {"policies": [TOGETHER]}}
    await compute.post(f"/os-server-groups/{group}", body, version=VERSION, cloud="roost")
    return group


async def repair(compute: Compute, group: str, cloud: str = "roost-admin", **asked: Any) -> dict[str, Any]:
    body = {"repair": asked}
    return dict(
        (await compute.post(f"/os-server-groups/{group}/repairs", body, version=VERSION, cloud=cloud))["repair"]
    )


async def shown(compute: Compute, group: str, repair_id: str) -> dict[str, Any]:
    return dict((await compute.get(f"/os-server-groups/{group}/repairs/{repair_id}", version=VERSION))["repair"])


async def violations(compute: Compute, group: str) -> list[Any]:
    audit = await compute.get(f"/os-server-groups/{group}/audit", version=VERSION)
    return list(audit["server_group_policy_audit"]["violations"])


async def mended(database: Database, scheduler: Scheduler) -> int:
    """How many repairs a round of continuous repairs begins."""
    count = sa.select(sa.func.count()).select_from(repairs_table)
    async with database.begin() as connection:
        before = int(await connection.scalar(count) or 0)
    await repairs.mend_all(database, scheduler)
    async with database.begin() as connection:
        return int(await connection.scalar(count) or 0) - before


async def work(compute: Compute, rounds: int = 1, *, finish: bool = True) -> None:
    """What an engine does."""
    database, settings = compute.api.services.database, compute.api.services.settings
    for _ in range(rounds):
        # Each time another engine: all that is known is in the database.
        mover = repair_steps.EmbeddedMover(database, Scheduler(database, settings))
        await repair_steps.advance_all(database, mover)
        if finish:
            await lifecycle.finish(database)


async def test_a_dry_run_says_the_fewest_moves_and_moves_nobody(compute: Compute) -> None:
    group = await broken_group(compute)
    planned = await repair(compute, group, "roost", dry_run=True)
    assert planned["sentence"] == "2 live migrations would repair everything; fewer cannot."
    assert (planned["id"], planned["status"], len(planned["moves"])) == (None, "planned", 2)
    assert all(set(move["target"]) == {"rack"} for move in planned["moves"])
    assert len(await violations(compute, group)) == 1


async def test_a_repair_leaves_servers_in_the_zones_that_they_were_asked_for_in(compute: Compute) -> None:
    group = await make_group(compute, RACK)
    for zone in ("zone1", "zone2"):
        await boot(compute, group, 1, availability_zone=zone)
    body = {"server_group": {"policies": [{"name": "affinity", "scope": "availability_zone"}]}}
    await compute.post(f"/os-server-groups/{group}", body, version=VERSION, cloud="roost")
    planned = await repair(compute, group, dry_run=True)
    assert (planned["moves"], planned["repairs_all"]) == ([], False)


async def test_a_repair_mends_the_group_one_move_after_another(compute: Compute) -> None:
    group = await broken_group(compute)
    begun = await repair(compute, group)
    assert begun["status"] == "running"
    await work(compute, finish=False)
    states = [move["state"] for move in (await shown(compute, group, begun["id"]))["moves"]]
    assert states == ["running", "waiting"]
    await work(compute, 4)
    ended = await shown(compute, group, begun["id"])
    assert (ended["status"], ended["sentence"]) == ("done", "2 of 2 moves done.")
    assert await violations(compute, group) == []
    moved = [move["server_id"] for move in ended["moves"]]
    assert await hosts_of(compute, moved) == [move["target"]["host"] for move in ended["moves"]]


async def test_several_servers_move_at_once_if_the_budget_says_so(compute: Compute) -> None:
    group = await broken_group(compute)
    begun = await repair(compute, group, max_parallel=2)
    await work(compute, finish=False)
    assert [move["state"] for move in (await shown(compute, group, begun["id"]))["moves"]] == ["running", "running"]


async def test_no_more_servers_move_than_the_budget_has(compute: Compute) -> None:
    group = await broken_group(compute)
    planned = await repair(compute, group, dry_run=True, max_moves=1)
    assert planned["sentence"] == "1 live migration would repair a part."
    assert (len(planned["moves"]), planned["repairs_all"]) == (1, False)


async def test_a_cooldown_keeps_moves_apart(compute: Compute) -> None:
    group = await broken_group(compute)
    begun = await repair(compute, group, cooldown=3600)
    await work(compute, 3)
    assert [move["state"] for move in (await shown(compute, group, begun["id"]))["moves"]] == ["done", "waiting"]


async def test_a_repair_stops_after_the_moves_under_way(compute: Compute) -> None:
    group = await broken_group(compute)
    begun = await repair(compute, group)
    await work(compute, finish=False)
    await compute.delete(f"/os-server-groups/{group}/repairs/{begun['id']}", version=VERSION)
    await work(compute, 2)
    ended = await shown(compute, group, begun["id"])
    assert (ended["status"], ended["reason"]) == ("stopped", "Stopped after 1 of 2 moves.")
    assert [move["state"] for move in ended["moves"]] == ["done", "skipped"]
    status, message = await compute.refusal(
        "DELETE", f"/os-server-groups/{group}/repairs/{begun['id']}", version=VERSION
    )
    assert (status, message) == (409, f"Repair {begun['id']} has ended.")


async def test_a_paused_repair_begins_no_move_until_it_goes_on(compute: Compute) -> None:
    group = await broken_group(compute)
    begun = await repair(compute, group)
    path = f"/os-server-groups/{group}/repairs/{begun['id']}"
    await work(compute, finish=False)
    assert (await compute.put(path, {"repair": {"paused": True}}, version=VERSION))["repair"]["paused"]
    await work(compute, 3)
    assert [move["state"] for move in (await shown(compute, group, begun["id"]))["moves"]] == ["done", "waiting"]
    status, _ = await compute.refusal("PUT", path, {"repair": {"paused": False}}, version=VERSION, cloud="roost")
    assert status == 404
    await compute.put(path, {"repair": {"paused": False}}, version=VERSION)
    await work(compute, 3)
    assert (await shown(compute, group, begun["id"]))["status"] == "done"
    status, message = await compute.refusal("PUT", path, {"repair": {"paused": True}}, version=VERSION)
    assert (status, message) == (409, f"Repair {begun['id']} has ended.")


async def test_a_group_is_repaired_by_one_at_a_time(compute: Compute) -> None:
    group = await broken_group(compute)
    await repair(compute, group)
    status, message = await compute.refusal(
        "POST", f"/os-server-groups/{group}/repairs", {"repair": {}}, version=VERSION
    )
    assert (status, message) == (
        409, f"Server group {group} is being repaired already; stop that repair, or wait."
    )  # fmt: skip


async def test_a_server_that_is_gone_is_skipped_and_one_that_cannot_move_fails(compute: Compute) -> None:
    group = await broken_group(compute)
    begun = await repair(compute, group, max_parallel=2)
    gone, stuck = (move["server_id"] for move in begun["moves"])
    await compute.api.delete(f"/compute/v2.1/servers/{gone}")
    await compute.api.post(f"/compute/v2.1/servers/{stuck}/action", {"os-stop": None})
    await lifecycle.finish(compute.api.services.database)
    await work(compute, 2)
    ended = await shown(compute, group, begun["id"])
    assert [move["state"] for move in ended["moves"]] == ["skipped", "failed"]
    assert ended["status"] == "failed"
    assert "Cannot 'os-migrateLive' instance" in ended["reason"]


async def test_a_server_that_is_still_being_made_moves_once_it_is_made(compute: Compute) -> None:
    """In front of a Nova, such a server may have no host yet, only a reserved one."""
    group = await broken_group(compute)
    begun = await repair(compute, group)
    unmade, other = begun["moves"]
    row = servers.update().where(servers.c.id == unmade["server_id"])
    database = compute.api.services.database
    async with database.begin() as connection:
        made = await connection.scalar(sa.select(servers.c.host_id).where(servers.c.id == unmade["server_id"]))
        await connection.execute(row.values(vm_state="building", host_id=None))
    await work(compute, 3)
    waiting, done = (await shown(compute, group, begun["id"]))["moves"]
    assert (waiting["state"], waiting["reason"]) == ("waiting", "the server is still being made")
    assert (done["server_id"], done["state"]) == (other["server_id"], "done"), "the others do not wait for it"
    async with database.begin() as connection:
        await connection.execute(row.values(vm_state="active", host_id=made))
    await work(compute, 3)
    ended = await shown(compute, group, begun["id"])
    assert (ended["status"], ended["moves"][0]["reason"]) == ("done", None)
    assert await violations(compute, group) == []


async def test_a_group_that_is_well_has_nothing_to_repair(compute: Compute) -> None:
    group = await make_group(compute, RACK)
    await boot(compute, group, 2)
    done = await repair(compute, group)
    assert (done["status"], done["reason"], done["moves"]) == ("done", "There was nothing to move.", [])
    assert (await repair(compute, group, dry_run=True))["sentence"] == "There is nothing to repair."


async def test_a_group_in_continuous_mode_is_mended_when_it_is_found_broken(compute: Compute) -> None:
    group = await broken_group(compute)
    path = f"/os-server-groups/{group}/repair"
    assert not (await compute.get(path, version=VERSION))["repair"]["continuous"]
    database, scheduler = compute.api.services.database, compute.api.services.scheduler
    assert await mended(database, scheduler) == 0
    mode = await compute.put(path, {"repair": {"continuous": True, "max_parallel": 2}}, version=VERSION)
    assert mode["repair"] == {"continuous": True, "max_moves": None, "max_parallel": 2, "cooldown": 0}
    assert await mended(database, scheduler) == 1
    assert await mended(database, scheduler) == 0
    await work(compute, 3)
    assert await violations(compute, group) == []
    assert not (await compute.put(path, {"repair": {"continuous": False}}, version=VERSION))["repair"]["continuous"]


async def test_tenants_may_look_and_not_move(compute: Compute) -> None:
    group = await broken_group(compute)
    status, _ = await compute.refusal(
        "POST", f"/os-server-groups/{group}/repairs", {"repair": {}}, version=VERSION, cloud="roost"
    )
    assert status == 403
    listed = await compute.get(f"/os-server-groups/{group}/repairs", version=VERSION, cloud="roost")
    assert listed["repairs"] == []


async def test_each_repair_is_listed_with_its_own_moves_the_newest_first(compute: Compute) -> None:
    group = await broken_group(compute)
    begun = await repair(compute, group)
    await work(compute, 5)
    nothing = await repair(compute, group)
    listed = (await compute.get(f"/os-server-groups/{group}/repairs", version=VERSION))["repairs"]
    assert [(each["id"], len(each["moves"])) for each in listed] == [(nothing["id"], 0), (begun["id"], 2)]
    assert listed[1] == await shown(compute, group, begun["id"])


async def test_a_group_that_fails_does_not_end_the_round_for_the_others(
    compute: Compute, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing, other = await broken_group(compute), await broken_group(compute)
    for group in (failing, other):
        mode = {"repair": {"continuous": True, "max_parallel": 2}}
        await compute.put(f"/os-server-groups/{group}/repair", mode, version=VERSION)
    plan, start = repairs.plan, repair_steps.EmbeddedMover.start

    async def plan_all_but_one(scheduler: Any, group_id: str, budget: Any, owner: str) -> Any:
        if group_id == failing:
            raise RuntimeError("this group cannot be planned")
        return await plan(scheduler, group_id, budget, owner)

    async def start_all_but_one(self: Any, connection: Any, server: Any, target: str, actor: Any) -> None:
        if server.group_id == failing:
            raise RuntimeError("this group cannot be moved")
        await start(self, connection, server, target, actor)

    services = compute.api.services
    with monkeypatch.context() as patched:
        patched.setattr(repairs, "plan", plan_all_but_one)
        assert await mended(services.database, services.scheduler) == 1
    assert "this group cannot be planned" in caplog.text
    assert await mended(services.database, services.scheduler) == 1
    monkeypatch.setattr(repair_steps.EmbeddedMover, "start", start_all_but_one)
    await work(compute, 4)
    assert "this group cannot be moved" in caplog.text
    assert await violations(compute, failing) != []
    assert await violations(compute, other) == []
