"""The fleet in memory: after a sync it is what the database says, whatever happened in between."""

import asyncio

import pytest
import sqlalchemy as sa

from roost.compute.inventory import changes, hosts
from roost.compute.inventory.live_fleet import LiveFleet
from roost.placement.fleet import Resources
from roost.placement.rules import AVAILABILITY_ZONE
from roost.store.database import Database
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
    live.doubt(range(1, 49))
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
    await live.noted("")
    await assert_true(await synced(live, cloud.database), cloud.database)
    assert {live.fleet.name(index): index for index in live.fleet.hosts()} == before


async def test_claims_of_others_are_read_and_own_ones_are_not(cloud: Cloud) -> None:
    live = await synced(LiveFleet(), cloud.database)
    async with cloud.database.begin() as connection:
        await connection.execute(sa.text("UPDATE hosts SET vcpus_used = 5 WHERE id IN (1, 2)"))
    await live.noted(f"{live.origin}:1")
    await live.noted("other:2")
    await synced(live, cloud.database)
    first, second = live.index(1), live.index(2)
    assert first is not None
    assert second is not None
    assert (live.fleet.free(first).vcpus, live.fleet.free(second).vcpus) == (64, 59)
    async with cloud.database.begin() as connection:
        await live.read_room(connection)
    assert live.fleet.free(first) == Resources(59, 262_144, 2_000)


async def test_what_could_not_be_read_is_read_the_next_time(cloud: Cloud) -> None:
    live = await synced(LiveFleet(), cloud.database)
    async with cloud.database.begin() as connection:
        await connection.execute(sa.text("UPDATE hosts SET vcpus_used = 5 WHERE id = 1"))
    live.doubt([1])
    task = asyncio.create_task(synced(live, cloud.database))
    for _ in range(10_000):
        if not live._stale:
            break  # it is reading
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
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
