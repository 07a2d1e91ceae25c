"""The fleet in memory: after a sync it is what the database says, whatever happened in between."""

import asyncio
import contextlib

import pytest
import sqlalchemy as sa

from roost.compute.inventory import changes, hosts
from roost.compute.inventory.live_fleet import LiveFleet, announce_claims
from roost.placement.fleet import Resources
from roost.placement.rules import AVAILABILITY_ZONE
from roost.store import feed
from roost.store.database import Database
from roost.store.tables.changes import claim_changes
from roost.store.tables.compute import hosts as hosts_table
from tests.compute.cloud import Cloud


async def synced(live: LiveFleet, database: Database) -> LiveFleet:
    async with database.begin() as connection:
        await live.sync(connection)
    return live


async def assert_true(live: LiveFleet, database: Database) -> None:
    """Every host, its room and its places are as a fleet says that is loaded now."""
    fresh = await synced(LiveFleet(), database)
    assert sorted(live.fleet.name(index) for index in live.fleet.hosts()) == sorted(
        fresh.fleet.name(index) for index in fresh.fleet.hosts()
    )
    for index in fresh.fleet.hosts():
        name = fresh.fleet.name(index)
        here = live.fleet.index(name)
        assert here is not None
        assert live.fleet.free(here) == fresh.fleet.free(index)
        assert live.fleet.total(here) == fresh.fleet.total(index)
        assert live.fleet.is_enabled(here) == fresh.fleet.is_enabled(index)
        assert live.host(here).zone == fresh.host(index).zone
        for scope in ("rack", "switch", AVAILABILITY_ZONE):
            known, wanted = live.fleet.identifiers(scope), fresh.fleet.identifiers(scope)
            place, should = live.fleet.aggregate(here, scope), fresh.fleet.aggregate(index, scope)
            assert (known[place] if place >= 0 else None) == (wanted[should] if should >= 0 else None)


async def test_changes_of_hosts_are_taken_in(cloud: Cloud) -> None:
    live = await synced(LiveFleet(), cloud.database)
    assert len(live.fleet) == 48
    await cloud.change_host("zone1-rack1-host1", enabled=False)
    await cloud.change_host("zone1-rack1-host2", forced_down=True, vcpus=7)
    async with cloud.database.begin() as connection:
        gone = (await connection.execute(sa.select(hosts_table).where(hosts_table.c.name == "zone2-rack1-host1"))).one()
        await hosts.delete(connection, host_id=gone.id)
    await assert_true(await synced(live, cloud.database), cloud.database)
    assert live.index(gone.id) is None
    await cloud.delete(await cloud.boot())
    await cloud.boot()
    await assert_true(await synced(live, cloud.database), cloud.database)


async def test_hosts_move_between_aggregates_and_zones(cloud: Cloud) -> None:
    live = await synced(LiveFleet(), cloud.database)
    listed = (await cloud.ask("GET", "/os-aggregates", cloud="roost-admin")).json()["aggregates"]
    ids = {aggregate["name"]: aggregate["id"] for aggregate in listed}
    host = {"host": "zone1-rack1-host1"}
    for aggregate, action in (
        ("zone1-rack1", "remove_host"),
        ("zone1-rack2", "add_host"),
        ("zone1", "remove_host"),
        ("zone2", "add_host"),
    ):
        body = {action: host}
        path = f"/os-aggregates/{ids[aggregate]}/action"
        assert (await cloud.ask("POST", path, json=body, cloud="roost-admin")).is_success
        await assert_true(await synced(live, cloud.database), cloud.database)
    index = live.fleet.index("zone1-rack1-host1")
    assert index is not None
    assert live.host(index).zone == "zone2"


async def test_who_missed_changes_loads_again_and_hosts_keep_their_places(cloud: Cloud) -> None:
    live = await synced(LiveFleet(), cloud.database)
    before = {live.fleet.name(index): index for index in live.fleet.hosts()}
    await cloud.change_host("zone1-rack1-host1", vcpus=1)
    await cloud.change_host("zone1-rack1-host2", vcpus=2)
    async with cloud.database.begin() as connection:
        await changes.forget_old(connection, keep=1)
    await assert_true(await synced(live, cloud.database), cloud.database)
    for _ in range(3):
        await cloud.boot()
    async with cloud.database.begin() as connection:
        await feed.forget_old(connection, [claim_changes], keep=1)
    await assert_true(await synced(live, cloud.database), cloud.database)
    assert {live.fleet.name(index): index for index in live.fleet.hosts()} == before


async def test_of_two_counts_of_a_host_s_room_the_later_one_stays(cloud: Cloud) -> None:
    live = await synced(LiveFleet(), cloud.database)
    index = live.index(1)
    assert index is not None
    for version, used in ((2, 5), (1, 3), (3, 6), (3, 6)):
        live.put_room(1, version, used, 0, 0)
    assert live.fleet.free(index).vcpus == 64 - 6
    live.put_room(10_000, 1, 5, 0, 0)  # a host that is not there yet


async def test_what_is_followed_is_taken_in_with_the_next_change(cloud: Cloud) -> None:
    live = await synced(LiveFleet(), cloud.database)
    members: list[str] = []
    live.joined = lambda joined: members.append(joined[0])
    index = live.index(1)
    assert index is not None
    empty = live.fleet.free(index)
    # The later count of a host may have the smaller number.
    for version, used in ((2, 5), (1, 3), (4, 6), (3, 7)):
        async with cloud.database.begin() as connection:
            body = {"rooms": [[1, version, used, 0, 0]], "joined": [["g", version, [], []]]}
            await connection.execute(claim_changes.insert().values(body=body))
            await live.follow(connection)
    assert live.fleet.free(index) == empty
    assert members == ["g"] * 4, "who remembers groups is told at once"
    live.put_room(1, 5, 2, 0, 0)
    await synced(live, cloud.database)
    assert live.fleet.free(index).vcpus == empty.vcpus - 2, "what is known is not forgotten for what came before"
    async with cloud.database.begin() as connection:
        await connection.execute(claim_changes.insert().values(body={"rooms": [[1, 7, 9, 0, 0]]}))
        await live.follow(connection)
    await synced(live, cloud.database)
    assert live.fleet.free(index).vcpus == empty.vcpus - 9


async def test_who_follows_takes_in_what_happens_to_hosts(cloud: Cloud) -> None:
    live = LiveFleet()
    async with cloud.database.begin() as connection:
        await live.follow(connection)
    await assert_true(live, cloud.database)
    async with cloud.database.begin() as connection:
        await connection.execute(hosts_table.update().where(hosts_table.c.id == 1).values(vcpus_used=3, room_version=1))
        await announce_claims(connection, [1])
    async with cloud.database.begin() as connection:
        await live.follow(connection)
    await cloud.change_host("zone1-rack1-host1", enabled=False)
    async with cloud.database.begin() as connection:
        await live.follow(connection)
    await assert_true(live, cloud.database)


async def test_what_is_reserved_is_missing_until_the_claim_has_an_answer(cloud: Cloud) -> None:
    live = await synced(LiveFleet(), cloud.database)
    size = Resources(2, 1024, 10)
    index = live.index(1)
    assert index is not None
    empty = live.fleet.free(index)
    live.reserve(1, size)
    live.reserve(1, size)
    live.put_room(1, 1, *size)  # the first claim, seen before its answer
    assert live.fleet.free(index).vcpus == empty.vcpus - 6
    live.unreserve([(1, size)], [(1, 1, *size)])
    assert live.fleet.free(index).vcpus == empty.vcpus - 4
    live.unreserve([(1, size)])
    assert live.fleet.free(index).vcpus == empty.vcpus - 2
    assert await live.reservations_ended() is False


async def test_a_change_that_is_committed_after_a_later_one_is_taken_in(cloud: Cloud) -> None:
    live = await synced(LiveFleet(), cloud.database)
    used = sa.text("UPDATE hosts SET vcpus_used = 5, room_version = room_version + 1 WHERE id = :id")
    async with cloud.database.begin() as early:
        await early.execute(used, {"id": 1})
        await announce_claims(early, [1])
        async with cloud.database.begin() as late:
            await late.execute(used, {"id": 2})
            await announce_claims(late, [2])
        await synced(live, cloud.database)
        assert [live.fleet.free(index).vcpus for index in live.indexes([1, 2])] == [64, 59]
    await assert_true(await synced(live, cloud.database), cloud.database)
    assert [live.fleet.free(index).vcpus for index in live.indexes([1, 2])] == [59, 59]


@pytest.mark.parametrize("steps", [1, 3, 6, 12])
async def test_what_could_not_be_read_is_read_the_next_time(cloud: Cloud, steps: int) -> None:
    live = await synced(LiveFleet(), cloud.database)
    await cloud.change_host("zone1-rack1-host1", vcpus=7)
    await cloud.boot()
    task = asyncio.create_task(synced(live, cloud.database))
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await assert_true(await synced(live, cloud.database), cloud.database)


async def test_a_zone_without_hosts_is_none(cloud: Cloud) -> None:
    live = await synced(LiveFleet(), cloud.database)
    assert (live.has_zone("zone1"), live.has_zone("nowhere")) == (True, False)
    async with cloud.database.begin() as connection:
        ids = await connection.scalars(sa.select(hosts_table.c.id).where(hosts_table.c.availability_zone == "zone1"))
        for host_id in ids.all():
            await hosts.delete(connection, host_id=host_id)
    await synced(live, cloud.database)
    assert (live.has_zone("zone1"), live.has_zone("zone2")) == (False, True)
