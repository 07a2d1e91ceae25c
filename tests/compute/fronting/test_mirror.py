"""Nova's hosts, aggregates, groups and members in Roost's tables: what is taken over, and what stays Roost's own."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa

from roost.compute.answers import audit, placed_servers
from roost.compute.fronting import mirror, reservations
from roost.compute.fronting.mirror import NovaAggregate, NovaGroup, NovaHost, NovaServer
from roost.compute.fronting.reservations import Order
from roost.compute.groups import groups, members
from roost.compute.groups.identifiers import Identifiers
from roost.compute.inventory import scopes
from roost.compute.inventory.changes import latest_generation
from roost.compute.inventory.live_fleet import LiveFleet
from roost.config import Settings
from roost.placement.fleet import Resources
from roost.placement.record import Record
from roost.placement.rules import Rule
from roost.store.database import Database
from roost.store.tables.compute import hosts as hosts_table
from roost.store.tables.servers import servers
from tests.store.waiting import until_waiting

ROOM = Resources(10, 8192, 100)
RECORD: Record = {
    "verdict": "placed",
    "servers": 1,
    "hosts": 1,
    "candidates": 1,
    "refused": [],
    "preferences": [],
    "flip": 0,
    "chosen": [],
    "runners_up": [],
}


def host(name: str, **changes: Any) -> NovaHost:
    values: dict[str, Any] = {
        "address": "10.0.0.1",
        "enabled": True,
        "disabled_reason": None,
        "up": True,
        "total": ROOM,
        "used": Resources(),
    }
    return NovaHost(name, **{**values, **changes})


def aggregate(number: int, name: str, hosts: Sequence[str], zone: str = "", **metadata: str) -> NovaAggregate:
    return NovaAggregate(number, str(uuid4()), name, zone, tuple(hosts), metadata)


def server(host_name: str | None, server_id: str | None = None, **changes: Any) -> NovaServer:
    values: dict[str, Any] = {
        "vm_state": "active",
        "task_state": None,
        "launched_at": datetime(2026, 1, 1, tzinfo=UTC),
        "settled": True,
    }
    given = {**values, **changes}
    return NovaServer(server_id or str(uuid4()), "server", "demo", "user", host_name, Resources(1, 512, 1), **given)


class Mirror:
    """Writes what Nova says, each time in its own transaction."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self.database = database
        self.settings = settings

    async def inventory(self, hosts: Sequence[NovaHost], aggregates: Sequence[NovaAggregate] = ()) -> None:
        async with self.database.begin() as connection:
            await mirror.put_inventory(connection, hosts, aggregates)

    async def places(self) -> dict[str, dict[str, str]]:
        live = LiveFleet()
        async with self.database.begin() as connection:
            await live.sync(connection)
        return {live.host(index).name: dict(live.places(index)) for index in live.fleet.hosts()}

    async def group(self, *members: str, policy: str = "anti-affinity") -> str:
        group = NovaGroup(str(uuid4()), "group", "demo", "user", Rule.parse(policy), members)
        async with self.database.begin() as connection:
            await mirror.put_groups(connection, self.settings, [group])
        return group.id

    async def put(
        self, *found: NovaServer, group: str | None = None, gone: Sequence[str] = (), ago: float = 0.0
    ) -> None:
        at = datetime.now(UTC) + timedelta(seconds=60 - ago)
        new = {each.id: group for each in found} if group else {}
        async with self.database.begin() as connection:
            await mirror.put_servers(connection, self.settings, found, at=at, new=new, gone=gone)

    async def members(self, group: str) -> dict[str, tuple[str, ...]]:
        async with self.database.begin() as connection:
            return dict((await reservations.show(connection, group)).members)

    async def version(self, group: str) -> int:
        async with self.database.begin() as connection:
            return (await reservations.show(connection, group)).version

    async def reserve(self, group: str, host_name: str | None, server_id: str) -> None:
        async with self.database.begin() as connection:
            known = await reservations.show(connection, group)
            generation = await latest_generation(connection)
            order = Order(server_id, "demo", "user", {"vcpus": 1}, host_name, known.version, generation, RECORD)
            assert isinstance(
                await reservations.reserve(connection, self.settings, group, order), reservations.Reserved
            )


@pytest.fixture
async def nova(database: Database, settings: Settings) -> Mirror:
    """Three hosts in two racks, and nothing of the embedded cloud."""
    made = Mirror(database, settings)
    racks = [aggregate(11, "r1", ["h1", "h2"], policy_scope="rack"), aggregate(12, "r2", ["h3"], policy_scope="rack")]
    await made.inventory([host("h1"), host("h2"), host("h3")], racks)
    return made


async def test_hosts_and_scopes_are_novas(nova: Mirror) -> None:
    assert await nova.places() == {
        "h1": {"rack": "11", "availability_zone": "nova"},
        "h2": {"rack": "11", "availability_zone": "nova"},
        "h3": {"rack": "12", "availability_zone": "nova"},
    }


async def test_a_full_host_keeps_the_size_that_it_had(nova: Mirror) -> None:
    """Placement does not offer it, so only its physical size is known; before, ratios made it larger."""
    small = Resources(4, 9000, 100)
    await nova.inventory([host("h1", total=small, full=True), host("h4", total=small, full=True)])
    async with nova.database.begin() as connection:
        rows = {row.name: row for row in await connection.execute(sa.select(hosts_table))}
    for name, size in {"h1": (10, 9000, 100), "h4": small}.items():
        row = rows[name]
        assert (row.vcpus, row.memory_mb, row.disk_gb) == size
        assert (row.vcpus_used, row.memory_mb_used, row.disk_gb_used) == size
    await nova.inventory([host("h1"), host("h4", total=small)])
    async with nova.database.begin() as connection:
        rows = {row.name: row for row in await connection.execute(sa.select(hosts_table))}
    assert (rows["h1"].memory_mb, rows["h1"].vcpus_used, rows["h4"].vcpus_used) == (8192, 0, 0)


async def test_a_scope_that_only_an_aggregate_names_is_made(nova: Mirror) -> None:
    await nova.inventory([host("h1")], [aggregate(5, "a", ["h1"], policy_scope="power_feed")])
    async with nova.database.begin() as connection:
        assert "power_feed" in {scope.name for scope, _ in await scopes.index(connection)}
    assert (await nova.places())["h1"]["power_feed"] == "5"


@pytest.mark.parametrize("name", ["host", "availability_zone", "two words", "a:b", ""])
async def test_what_cannot_be_a_scope_is_none(nova: Mirror, name: str) -> None:
    await nova.inventory([host("h1")], [aggregate(5, "a", ["h1"], policy_scope=name)])
    assert await nova.places() == {"h1": {"availability_zone": "nova"}}


async def test_a_host_in_two_aggregates_of_a_scope_is_in_none(nova: Mirror) -> None:
    """Nova does not forbid it; a hard rule refuses such a host."""
    both = [aggregate(11, "r1", ["h1", "h2"], policy_scope="rack"), aggregate(12, "r2", ["h2"], policy_scope="rack")]
    await nova.inventory([host("h1"), host("h2")], both)
    assert await nova.places() == {
        "h1": {"rack": "11", "availability_zone": "nova"},
        "h2": {"availability_zone": "nova"},
    }


async def test_zones_scopes_and_hosts_change_together(nova: Mirror) -> None:
    moved = [
        aggregate(11, "r1", ["h1"], policy_scope="rack"),
        aggregate(12, "renamed", ["h2"], policy_scope="switch"),
        aggregate(13, "z", ["h1", "h2"], zone="z1"),
    ]
    await nova.inventory([host("h1"), host("h2"), host("h4")], moved)
    assert await nova.places() == {
        "h1": {"rack": "11", "availability_zone": "z1"},
        "h2": {"switch": "12", "availability_zone": "z1"},
        "h4": {"availability_zone": "nova"},
    }
    await nova.inventory([host("h1")], [aggregate(13, "z", ["h1"], zone="z2")])
    assert await nova.places() == {"h1": {"availability_zone": "z2"}}


async def test_nothing_is_written_where_nothing_changed(nova: Mirror) -> None:
    async with nova.database.begin() as connection:
        before = await latest_generation(connection)
    racks = [aggregate(11, "r1", ["h1", "h2"], policy_scope="rack"), aggregate(12, "r2", ["h3"], policy_scope="rack")]
    await nova.inventory([host("h1", used=Resources(5, 5, 5)), host("h2"), host("h3")], racks)
    async with nova.database.begin() as connection:
        assert await latest_generation(connection) == before


async def test_what_a_host_has_left_and_whether_it_is_up_reach_the_fleet(nova: Mirror) -> None:
    live = LiveFleet()
    async with nova.database.begin() as connection:
        await live.sync(connection)
    await nova.inventory([host("h1", used=Resources(12, 1, 1)), host("h2", up=False), host("h3", enabled=False)])
    async with nova.database.begin() as connection:
        await live.sync(connection)
    fleet = {live.fleet.name(index): index for index in live.fleet.hosts()}
    assert live.fleet.free(fleet["h1"]).vcpus == 0, "more than all cannot be used"
    assert not live.fleet.is_enabled(fleet["h2"])
    assert not live.fleet.is_enabled(fleet["h3"])


async def test_what_a_host_has_in_all_reaches_the_fleet(nova: Mirror) -> None:
    """A host that is full is not offered by Placement, and so seems to have nothing; later it is larger than before."""
    live = LiveFleet()
    sizes = [
        (ROOM, Resources(9, 512, 1), 1),
        (Resources(), Resources(), 0),
        (Resources(20, 8192, 100), Resources(), 20),
    ]
    for total, used, free in sizes:
        await nova.inventory([host("h1", total=total, used=used), host("h2"), host("h3")])
        async with nova.database.begin() as connection:
            await live.sync(connection)
        index = live.fleet.index("h1")
        assert index is not None
        assert live.fleet.free(index).vcpus == free


async def test_an_aggregate_that_a_group_targets_is_kept_empty(nova: Mirror) -> None:
    async with nova.database.begin() as connection:
        [rack] = [scope for scope, _ in await scopes.index(connection) if scope.name == "rack"]
        await scopes.update(connection, rack.uuid, {"allow_identifiers": True})
        policy = groups.GroupPolicy(Rule.parse("affinity:rack:12"))
        await groups.create(connection, nova.settings, name="g", policies=[policy], project_id="demo", user_id="user")
    await nova.inventory([host("h1"), host("h3")], [aggregate(11, "r1", ["h1"], policy_scope="rack")])
    assert (await nova.places())["h3"] == {"availability_zone": "nova"}
    async with nova.database.begin() as connection:
        assert [each.identifier for _, inside in await scopes.index(connection) for each in inside if each.name == "r2"]


async def test_groups_made_in_nova_are_taken_over_and_leave_with_it(nova: Mirror) -> None:
    group = await nova.group(policy="soft-affinity")
    async with nova.database.begin() as connection:
        assert [str(policy) for policy in (await groups.find(connection, group)).policies] == ["soft-affinity"]
        assert await mirror.unlisted_groups(connection, [], datetime(2020, 1, 1, tzinfo=UTC)) == (set(), 0)
        assert await mirror.unlisted_groups(connection, [], datetime(2100, 1, 1, tzinfo=UTC)) == ({group}, 1)
        await mirror.put_groups(connection, nova.settings, [], missing={group})
        assert await groups.index(connection, project_id="demo") == []


async def test_members_are_where_nova_says(nova: Mirror) -> None:
    group, one = await nova.group(), server("h1")
    await nova.put(one, group=group)
    assert await nova.members(group) == {one.id: ("h1",)}
    await nova.put(server("h2", one.id))
    assert await nova.members(group) == {one.id: ("h2",)}
    await nova.put(gone=[one.id])
    assert await nova.members(group) == {}


async def test_a_reservation_becomes_a_fact_or_is_given_back(nova: Mirror) -> None:
    group = await nova.group()
    building = {"vm_state": "building", "launched_at": None, "settled": False}
    made, failed, deleted = (str(uuid4()) for _ in range(3))
    for name, server_id in (("h1", made), ("h2", failed), ("h3", deleted)):
        await nova.reserve(group, name, server_id)
    await nova.put(server(None, made, **building), server(None, failed, **building))
    assert sorted((await nova.members(group)).values()) == [("h1",), ("h2",), ("h3",)], "Nova is still at it"
    lost = {"vm_state": "error", "launched_at": None}
    await nova.put(server("h1", made), server(None, failed, **lost), gone=[deleted])
    assert await nova.members(group) == {made: ("h1",), failed: ()}


async def test_plans_count_a_member_that_is_being_made_where_its_place_is_reserved(nova: Mirror) -> None:
    group, made, new = await nova.group(), server("h1"), str(uuid4())
    await nova.put(made, group=group)
    await nova.reserve(group, "h3", new)
    await nova.reserve(group, None, str(uuid4()))
    live = LiveFleet()
    async with nova.database.begin() as connection:
        await live.sync(connection)
        found = await placed_servers.load(connection, live, servers.c.group_id == group)
    assert {each.id: live.host(each.host).name for each in found} == {made.id: "h1", new: "h3"}


async def test_what_was_reserved_since_nova_was_asked_stands(nova: Mirror) -> None:
    group, new = await nova.group(), str(uuid4())
    await nova.reserve(group, "h1", new)
    await nova.put(gone=[new], ago=120)
    assert await nova.members(group) == {new: ("h1",)}


async def test_a_member_that_is_being_reserved_while_nova_lists_it_keeps_its_place(nova: Mirror) -> None:
    group, new = await nova.group(), str(uuid4())
    listed = server(None, new, vm_state="building", launched_at=None, settled=False)
    async with nova.database.begin() as connection:
        known = await reservations.show(connection, group)
        generation = await latest_generation(connection)
        order = Order(new, "demo", "user", {"vcpus": 1}, "h1", known.version, generation, RECORD)
        await reservations.reserve(connection, nova.settings, group, order)
        putting = asyncio.create_task(nova.put(listed, group=group, ago=120))
        await until_waiting(nova.database)
    await putting
    assert await nova.members(group) == {new: ("h1",)}


async def test_a_server_that_moves_keeps_both_places_until_it_has_settled(nova: Mirror) -> None:
    group, one = await nova.group(), server("h1")
    await nova.put(one, group=group)
    await nova.reserve(group, "h2", one.id)
    await nova.put(server("h1", one.id, task_state="migrating", settled=False))
    assert set((await nova.members(group))[one.id]) == {"h1", "h2"}
    await nova.put(server("h2", one.id, vm_state="resized", settled=False))
    assert set((await nova.members(group))[one.id]) == {"h1", "h2"}
    await nova.put(server("h2", one.id))
    assert (await nova.members(group))[one.id] == ("h2",)


async def test_who_was_taken_out_by_hand_stays_out(nova: Mirror) -> None:
    group, one = await nova.group(), server("h1")
    await nova.put(one, group=group)
    async with nova.database.begin() as connection:
        await members.remove(connection, nova.settings, await groups.find(connection, group), one.id)
    await nova.put(server("h2", one.id), group=group)
    assert await nova.members(group) == {}


async def test_the_version_of_a_group_tells_whether_somebody_moved(nova: Mirror) -> None:
    group, one = await nova.group(), server("h1")
    await nova.put(one, group=group)
    before = await nova.version(group)
    await nova.put(server("h1", one.id))
    assert await nova.version(group) == before
    await nova.put(server("h2", one.id))
    assert await nova.version(group) > before


async def test_a_group_is_audited_where_its_members_really_are(nova: Mirror) -> None:
    group = await nova.group()
    await nova.put(server("h1"), server("h1"), group=group)
    async with nova.database.begin() as connection:
        real = Identifiers({}, "p", real=True)
        found = await audit.audit_group(connection, await groups.find(connection, group), real, LiveFleet())
        [(broken, _)] = found.violations
    violation = broken.violation
    assert (violation.breach, len(violation.members), violation.excess) == ("too_many", 2, 1)


async def test_a_host_that_is_gone_keeps_its_members_until_it_is_forgotten(nova: Mirror) -> None:
    group, one = await nova.group(), server("h1")
    await nova.put(one, group=group)
    await nova.inventory([host("h2"), host("h3")])
    assert await nova.members(group) == {one.id: ("h1",)}
    async with nova.database.begin() as connection:
        assert await mirror.forget_hosts_but(connection, {"h2", "h3"}) == ["h1"]
    assert await nova.members(group) == {one.id: ()}
    async with nova.database.begin() as connection:
        assert await connection.scalar(sa.select(servers.c.host_id).where(servers.c.id == one.id)) is None
