"""Scheduling: decided in memory, claimed under lock, and right even if memory is stale or others interfere."""

import asyncio
import time
from collections import Counter, deque
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from roost.compute.inventory import claims
from roost.compute.inventory.changes import host_changed
from roost.compute.inventory.claims import Claim
from roost.compute.inventory.live_fleet import announce_claims
from roost.compute.scheduling.attempt import PendingRequest
from roost.compute.scheduling.request import CreatedServers, CreateRequest, NewServer, asked_partition, named_servers
from roost.compute.scheduling.scheduler import Scheduler, _Project
from roost.config import Settings
from roost.errors import Invalid, OverQuota
from roost.placement import scheduler as placement
from roost.placement.fleet import Resources
from roost.store.database import Database
from roost.store.tables.compute import hosts
from roost.store.tables.servers import servers
from tests.compute.cloud import Cloud
from tests.store.test_upgrades import recorded
from tests.store.waiting import until_waiting

ABSENT = "5bbcc3c4-1da2-4437-a48a-66f15b1b13f9"


def boot(number: int = 1, **more: Any) -> CreateRequest:
    """A request for so many servers."""
    servers = tuple(NewServer(f"s{n}", token=more["token"] + str(n) if "token" in more else None)
                    for n in range(number))  # fmt: skip
    more.pop("token", None)
    values: dict[str, Any] = {
        "project_id": "p",
        "user_id": "u",
        "request_id": "req-1",
        "flavor_id": "1",
        "least": number,
    }
    return CreateRequest(servers=servers, **{**values, **more})


@pytest.fixture
def schedulers(settings: Settings, database: Database) -> list[Scheduler]:
    """Three processes that do not hear what the others announce."""
    quota = dict.fromkeys(settings.quota, -1)
    return [Scheduler(database, replace(settings, quota=quota)) for _ in range(3)]


async def states(database: Database) -> dict[str, int]:
    async with database.begin() as connection:
        query = sa.text("SELECT vm_state, count(*) AS n FROM servers GROUP BY vm_state")
        return {row.vm_state: row.n for row in await connection.execute(query)}


async def test_requests_that_come_together_are_decided_together(schedulers: list[Scheduler], cloud: Cloud) -> None:
    answers = await schedulers[0].create_all([boot() for _ in range(200)])
    ids = [server_id for answer in answers if isinstance(answer, CreatedServers) for server_id in answer.server_ids]
    assert len(set(ids)) == 200
    await cloud.settle()
    await cloud.check()


async def test_what_one_process_took_another_finds_out(schedulers: list[Scheduler], cloud: Cloud) -> None:
    await cloud.hosts(4, vcpus=3)
    for scheduler in schedulers:  # each has seen the hosts when they were empty
        await scheduler.create(boot(flavor_id="1"))
    everyone = [scheduler.create(boot()) for scheduler in schedulers for _ in range(5)]
    await asyncio.gather(*everyone)
    await cloud.settle()
    assert await states(cloud.database) == {"active": 12, "error": 6}
    await cloud.check()


async def test_room_that_others_gave_back_is_found_before_anybody_is_refused(
    schedulers: list[Scheduler], cloud: Cloud
) -> None:
    await cloud.hosts(1, vcpus=1)
    first = await schedulers[0].create(boot())
    await cloud.settle()
    await cloud.delete(*first.server_ids)
    # The first process still believes that the host is full, and the second has never heard of the server.
    assert schedulers[0].live.fleet.free(0).vcpus == 0
    await schedulers[0].create(boot())
    await cloud.settle()
    assert await states(cloud.database) == {"active": 1}
    await cloud.check()


async def test_rules_hold_between_processes_that_do_not_hear_each_other(
    schedulers: list[Scheduler], cloud: Cloud
) -> None:
    await cloud.hosts(12)
    project = await cloud.project()
    group = await cloud.group("anti-affinity", {"name": "anti-affinity", "scope": "rack", "rules": {}})
    works = [scheduler.create(boot(project_id=project, group_id=group)) for scheduler in schedulers for _ in range(3)]
    await asyncio.gather(*works)
    await cloud.settle()
    assert await states(cloud.database) == {"active": 3, "error": 6}  # twelve hosts are in three racks
    await cloud.check()


@pytest.mark.parametrize("full", [False, True])
async def test_hosts_can_be_claimed_by_others_while_the_rows_of_servers_are_written(
    schedulers: list[Scheduler], cloud: Cloud, full: bool
) -> None:
    """A claim that is about to be written holds no host; if the hosts are not the same any more, it decides again."""
    async with cloud.database.begin() as writing:
        await writing.execute(sa.text("LOCK TABLE instance_actions IN SHARE MODE"))
        creating = asyncio.create_task(schedulers[0].create(boot(8)))
        await until_waiting(cloud.database)
        async with cloud.database.begin() as other:
            free = sa.text("SELECT id FROM hosts ORDER BY id FOR NO KEY UPDATE NOWAIT")
            assert len((await other.execute(free)).all()) == 48
            if full:
                await other.execute(sa.text("UPDATE hosts SET vcpus_used = vcpus, room_version = room_version + 1"))
                await announce_claims(other, range(1, 49))
    created = await creating
    assert len(created.server_ids) == 8
    assert await states(cloud.database) == ({"error": 8} if full else {"active": 8})
    if not full:
        await cloud.settle()
        await cloud.check()


async def test_partitions_share_no_rack_between_processes_that_do_not_hear_each_other(
    schedulers: list[Scheduler], cloud: Cloud
) -> None:
    await cloud.hosts(20)
    project = await cloud.project()
    group = await cloud.group({"name": "anti-affinity", "scope": "rack", "rules": {"partitions": 3}})
    works = [
        scheduler.create(boot(project_id=project, group_id=group, hints=hints))
        for scheduler in schedulers
        for hints in [{"partition": "2"}] * 2 + [{}] * 6
    ]
    await asyncio.gather(*works)
    await cloud.settle()
    held = sa.text("""
        SELECT a.name, array_agg(DISTINCT s.partition) AS partitions, count(*) AS servers
        FROM servers s JOIN aggregate_hosts USING (host_id) JOIN aggregates a ON a.id = aggregate_hosts.aggregate_id
        JOIN scopes p ON p.id = a.scope_id AND p.name = 'rack' WHERE s.group_id = :group GROUP BY a.name
    """)
    async with cloud.database.begin() as connection:
        racks = (await connection.execute(held, {"group": group})).all()
    assert all(len(rack.partitions) == 1 for rack in racks)
    members = Counter[int]()
    for rack in racks:
        members[rack.partitions[0]] += rack.servers
    assert members == {1: 8, 2: 8, 3: 8}
    await cloud.check()


async def test_members_that_a_process_of_the_release_before_left_without_a_number_get_one(
    schedulers: list[Scheduler], cloud: Cloud
) -> None:
    await cloud.hosts(20)
    project = await cloud.project()
    group = await cloud.group({"name": "anti-affinity", "scope": "rack", "rules": {"partitions": 3}})
    old = [await cloud.boot(group=group) for _ in range(2)]
    unnumbered = servers.update().values(partition=None)
    async with cloud.database.begin() as connection:
        await connection.execute(unnumbered)
        await claims.touch_groups(connection, [group])
    await schedulers[0].create(boot(project_id=project, group_id=group))
    await cloud.settle()
    await cloud.check()
    async with cloud.database.begin() as connection:
        numbers = (await connection.scalars(sa.select(servers.c.partition).order_by(servers.c.number))).all()
        assert sorted(filter(None, numbers)) == [1, 2, 3]
        await connection.execute(unnumbered)
        await claims.touch_groups(connection, [group])
    # It gets a number for the move, too, and may then not go to where another partition is.
    there = {"host": await cloud.host(old[1]), "block_migration": "auto"}
    assert (await cloud.refused(old[0], "os-migrateLive", there))[0] == 400


@pytest.mark.parametrize("value", [True, 1.0, "two", "1" * 10, ["1"], {}])
def test_a_partition_is_asked_for_by_one_whole_number(value: object) -> None:
    assert asked_partition({}) is None
    assert asked_partition({"partition": "2"}) == asked_partition({"partition": 2}) == 2
    with pytest.raises(Invalid, match="one whole number"):
        asked_partition({"partition": value})


async def test_a_users_share_of_a_quota_is_exact_between_processes(schedulers: list[Scheduler], cloud: Cloud) -> None:
    async with cloud.database.begin() as connection:
        limits = "INSERT INTO quotas (project_id, user_id, resource, \"limit\") VALUES ('p', 'u', 'instances', 7)"
        await connection.execute(sa.text(limits))
    of_user = [scheduler.create(boot(user_id=user)) for scheduler in schedulers for user in ("u",) * 5 + ("other",) * 2]
    answers = await asyncio.gather(*of_user, return_exceptions=True)
    refused = [str(answer) for answer in answers if not isinstance(answer, CreatedServers)]
    assert refused == ["Quota exceeded for instances: Requested 1, but already used 7 of 7 instances"] * 8
    query = sa.text("SELECT user_id, count(*) FROM servers GROUP BY user_id")
    async with cloud.database.begin() as connection:
        assert {tuple(row) for row in await connection.execute(query)} == {("u", 7), ("other", 6)}
    await cloud.settle()
    await cloud.check()


async def test_users_without_a_share_of_their_own_are_not_counted(schedulers: list[Scheduler], cloud: Cloud) -> None:
    with recorded() as statements:
        await schedulers[0].create(boot())
    assert statements
    assert not [statement for statement in statements if "AS share" in statement]


async def test_a_request_asked_for_again_is_found_and_not_made_again(schedulers: list[Scheduler], cloud: Cloud) -> None:
    first = await schedulers[0].create(boot(3, token="t"))
    again = await schedulers[1].create(boot(3, token="t"))
    more = await schedulers[2].create(boot(5, token="t"))
    assert again.server_ids == first.server_ids
    assert more.server_ids[:3] == first.server_ids
    assert len(set(more.server_ids)) == 5
    together = await schedulers[0].create_all([boot(2, token="x"), boot(2, token="x")])
    made = {ids for answer in together if isinstance(answer, CreatedServers) for ids in answer.server_ids}
    assert len(made) == 2
    await cloud.settle()
    await cloud.check()


async def test_one_bad_request_does_not_spoil_the_others(schedulers: list[Scheduler], cloud: Cloud) -> None:
    wanted = [
        boot(),
        boot(flavor_id="none"),
        boot(group_id=ABSENT),
        boot(zone="nowhere"),
        boot(image_id=ABSENT),
        boot(),
    ]
    answers = await schedulers[0].create_all(wanted)
    kinds = [type(answer) for answer in answers]
    assert kinds == [CreatedServers, Invalid, Invalid, Invalid, Invalid, CreatedServers]
    await cloud.settle()
    await cloud.check()


async def test_a_client_that_went_away_hinders_nobody(schedulers: list[Scheduler], cloud: Cloud) -> None:
    gone = [asyncio.create_task(schedulers[0].create(boot())) for _ in range(3)]
    await asyncio.sleep(0)
    stays = asyncio.create_task(schedulers[0].create(boot()))
    for task in gone:
        task.cancel()
    assert (await stays).server_ids
    assert (await schedulers[0].create(boot())).server_ids
    await cloud.settle()
    await cloud.check()


async def test_the_deployer_s_cap_on_a_group_counts_everybody(settings: Settings, cloud: Cloud) -> None:
    capped = Scheduler(cloud.database, replace(settings, group_max_members=3))
    group = await cloud.group("soft-affinity")
    wanted: dict[str, Any] = {"project_id": await cloud.project(), "group_id": group}
    for user in ("one", "two", "three"):
        await capped.create(boot(user_id=user, **wanted))
    with pytest.raises(OverQuota, match="Quota exceeded, too many servers in group"):
        await capped.create(boot(user_id="four", **wanted))
    await cloud.settle()
    await cloud.check()


async def test_a_member_on_a_host_that_came_meanwhile_counts(schedulers: list[Scheduler], cloud: Cloud) -> None:
    """While a request waits for its group, the group's member goes to a host that is unknown here."""
    group = await cloud.group("affinity")
    member = await cloud.boot(group=group)
    size = Resources(1, 512, 1)
    async with cloud.database.begin() as connection:
        await claims.lock_groups(connection, [group])
        waiting = asyncio.create_task(schedulers[0].create(boot(project_id=await cloud.project(), group_id=group)))
        await asyncio.sleep(0.3)
        row = {"name": "new", "address": "10.9.9.9", "vcpus": 8, "memory_mb": 8192, "disk_gb": 100}
        new = (await connection.execute(hosts.insert().values(row).returning(hosts.c.id))).scalar_one()
        await host_changed(connection, [new])
        held = await claims.held_by(connection, member)
        await claims.give_back(connection, await claims.give_up(connection, [(member, host) for host in held]))
        await claims.take(connection, [Claim(member, new, size)])
        await connection.execute(servers.update().where(servers.c.id == member).values(host_id=new))
        await claims.touch_groups(connection, [group])
    (second,) = (await waiting).server_ids
    await cloud.settle()
    assert await cloud.host(second) == "new"
    await cloud.check()


@pytest.mark.parametrize(
    ("hints", "found"),
    [
        ({}, None),
        ({"same_host": ABSENT}, (ABSENT,)),
        ({"same_host": [ABSENT.upper(), "a name"]}, (ABSENT,)),
        ({"same_host": []}, ()),
        ({"same_host": "a name"}, ()),
    ],
)
def test_a_hint_names_servers_by_one_id_or_several(hints: dict[str, Any], found: tuple[str, ...] | None) -> None:
    assert named_servers(hints, "same_host") == found


async def test_processes_that_share_a_busy_group_take_turns(schedulers: list[Scheduler], cloud: Cloud) -> None:
    """Each makes about as many as the others while all want the same group, and none ends in ERROR."""
    project = await cloud.project()
    group = await cloud.group("soft-anti-affinity")
    made = Counter[int]()

    async def keep_asking(number: int) -> None:
        while made.total() < 150:
            answer = await schedulers[number].create(boot(project_id=project, group_id=group))
            made[number] += len(answer.server_ids)

    await asyncio.gather(*(keep_asking(number) for number in range(3) for _ in range(3)))
    assert min(made.values()) > 150 / 3 / 3, made
    await cloud.settle()
    assert (await states(cloud.database)).keys() == {"active"}
    await cloud.check()


async def test_a_project_whose_rows_are_locked_holds_up_no_other(schedulers: list[Scheduler], cloud: Cloud) -> None:
    group = await cloud.group("anti-affinity")
    wanted: dict[str, Any] = {"project_id": await cloud.project(), "group_id": group}
    async with cloud.database.begin() as connection:
        await claims.lock_groups(connection, [group])
        stuck = [asyncio.create_task(schedulers[0].create(boot(**wanted))) for _ in range(20)]
        await asyncio.sleep(0.1)
        others = [schedulers[0].create(boot(project_id=f"other {number}")) for number in range(20)]
        async with asyncio.timeout(3.5):
            await asyncio.gather(*others)
        assert not any(task.done() for task in stuck)
    await asyncio.gather(*stuck)
    await cloud.settle()
    await cloud.check()


async def test_a_project_that_asks_for_much_does_not_crowd_out_those_that_ask_for_little(
    schedulers: list[Scheduler],
) -> None:
    scheduler, loop = schedulers[0], asyncio.get_running_loop()
    little = [f"little {number}" for number in range(5)]
    for project in ["much"] * 1000 + little:
        request = PendingRequest(boot(project_id=project), loop.create_future())
        scheduler._projects.setdefault(project, _Project()).waiting.append(request)
    large = PendingRequest(boot(300, project_id="large"), loop.create_future())
    more = [PendingRequest(boot(project_id="large"), loop.create_future()) for _ in range(3)]
    scheduler._projects["large"] = _Project(deque([large, *more]))
    turns = [scheduler._next() for _ in range(10)]
    # After its large request a project waits until the others have had as much.
    assert [turn[0].asked.project_id for turn in turns] == ["much", *little, "large", "much", "much", "much"]
    assert [len(turn) for turn in turns] == [64, 1, 1, 1, 1, 1, 1, 64, 64, 64]


async def test_a_session_that_is_silent_in_a_transaction_is_ended(schedulers: list[Scheduler], cloud: Cloud) -> None:
    """As when its process is frozen: what it has locked is let go before anybody has waited for five seconds."""
    group = await cloud.group("anti-affinity")
    frozen = Database(cloud.database.address.conninfo())
    project, started = await cloud.project(), time.monotonic()

    async def freeze() -> None:
        async with frozen.begin() as connection:
            await claims.lock_groups(connection, [group])
            await schedulers[0].create(boot(project_id=project, group_id=group))
            assert time.monotonic() - started < 6, "five seconds, and one for a machine that is busy"
            await connection.execute(sa.select(1))

    with pytest.raises(DBAPIError):
        await freeze()
    await frozen.close()
    await cloud.settle()
    await cloud.check()


async def test_a_create_takes_two_statements_and_no_transaction_of_its_own(
    schedulers: list[Scheduler], cloud: Cloud
) -> None:
    wanted: dict[str, Any] = {"project_id": await cloud.project(), "group_id": await cloud.group("anti-affinity")}
    await schedulers[0].create(boot(**wanted))
    with recorded() as statements:
        await schedulers[0].create_all([boot(**wanted) for _ in range(20)])
    assert len(statements) == 2, statements
    assert "roost_claim" in statements[-1]


@pytest.mark.parametrize("policies", [(), ("anti-affinity",), ("anti-affinity:rack", "soft-anti-affinity")])
async def test_a_create_looks_at_the_hosts_that_it_needs_and_not_at_all(
    schedulers: list[Scheduler], cloud: Cloud, monkeypatch: pytest.MonkeyPatch, policies: tuple[str, ...]
) -> None:
    wanted: dict[str, Any] = {"project_id": await cloud.project()}
    if policies:
        wanted["group_id"] = await cloud.group(*policies)
    await schedulers[0].create(boot(**wanted))
    monkeypatch.setattr(placement, "scan", None)
    await schedulers[0].create_all([boot(**wanted), boot(**wanted), boot(4, **wanted)])
    async with cloud.database.begin() as connection:
        kept = (await connection.scalars(sa.select(servers.c.explanation))).all()
    assert [(each["verdict"], each["candidates"], len(each["runners_up"])) for each in kept] == [
        ("placed", None, 3)
    ] * 7


async def test_the_claim_writes_every_column_of_a_server_that_a_request_can_set(cloud: Cloud) -> None:
    async with cloud.database.begin() as connection:
        source = await connection.scalar(sa.text("SELECT prosrc FROM pg_proc WHERE proname = 'roost_claim'"))
    set_later = {"number", "locked", "locked_reason", "created_at", "updated_at"}
    written = str(source).partition("INSERT INTO servers (")[2].partition(")")[0]
    assert {name.strip() for name in written.split(",")} == set(servers.c.keys()) - set_later


async def test_after_a_few_together_the_next_ones_share_a_batch_and_after_one_nothing_waits(
    schedulers: list[Scheduler], cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler, batches = schedulers[0], list[int]()
    work = Scheduler._work

    async def counted(self: Scheduler, together: list[PendingRequest]) -> None:
        batches.append(len(together))
        await work(self, together)

    monkeypatch.setattr(Scheduler, "_work", counted)
    monkeypatch.setattr("roost.compute.scheduling.scheduler._LONGEST_GATHERING", 0.5)
    monkeypatch.setattr("roost.compute.scheduling.scheduler._GATHERING", 1000.0)
    await scheduler.create_all([boot() for _ in range(3)])
    first = asyncio.create_task(scheduler.create(boot()))
    await asyncio.sleep(0.05)
    await asyncio.gather(first, scheduler.create(boot()))
    await asyncio.sleep(0.6)
    monkeypatch.setattr("roost.compute.scheduling.scheduler._LONGEST_GATHERING", 3600.0)
    async with asyncio.timeout(60):
        await scheduler.create(boot())
        await scheduler.create(boot())
    assert batches == [3, 2, 1, 1]
