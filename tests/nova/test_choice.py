"""Decisions of a nova-scheduler on Roost's groups: real decisions and reservations, only Nova is not there."""

import asyncio
from collections import Counter
from uuid import uuid4

import pytest
import sqlalchemy as sa

from roost.compute.fronting import reservations
from roost.compute.groups import groups, members
from roost.compute.inventory import aggregates, hosts
from roost.config import Settings
from roost.errors import Conflict, NotFound
from roost.store.database import Database
from roost.store.tables.answers import planned_places
from roost.store.tables.servers import servers
from tests.nova.schedulers import Nova, offer

# The small topology: three zones of four racks of four hosts each, two racks on a switch.
EVERYWHERE = [
    f"zone{zone}-rack{rack}-host{host}" for zone in (1, 2, 3) for rack in (1, 2, 3, 4) for host in (1, 2, 3, 4)
]


@pytest.fixture
async def nova(database: Database, settings: Settings) -> Nova:
    return await Nova.start(database, settings, schedulers=2)


def rack(host: str) -> str:
    return host.rpartition("-")[0]


def switch(host: str) -> str:
    return f"{zone(host)}-{(int(rack(host)[-1]) + 1) // 2}"


def zone(host: str) -> str:
    return host.partition("-")[0]


async def test_no_two_members_share_a_host_and_the_last_host_is_found(nova: Nova) -> None:
    group = await nova.group("anti-affinity")
    chosen = [await nova.boot(group, offer(*EVERYWHERE[:5])) for _ in range(6)]
    assert sorted(chosen[:5]) == [[host] for host in EVERYWHERE[:5]]
    assert chosen[5] == []


async def test_a_place_is_every_host_in_the_same_aggregate_that_the_rules_count(nova: Nova) -> None:
    """Nova's own weighers, and its alternates, have all of a rack to choose from."""
    group = await nova.group("anti-affinity:rack")
    first = await nova.boot(group, offer(*EVERYWHERE))
    second = await nova.boot(group, offer(*EVERYWHERE))
    assert [len({rack(host) for host in hosts}) for hosts in (first, second)] == [1, 1]
    assert len(first) == len(second) == 4
    assert rack(first[0]) != rack(second[0])


async def test_members_that_belong_together_follow_the_first(nova: Nova) -> None:
    group = await nova.group("affinity:rack", "anti-affinity")
    chosen = [(await nova.boot(group, offer(*EVERYWHERE)))[0] for _ in range(4)]
    assert len(set(chosen)) == 4
    assert len({rack(host) for host in chosen}) == 1
    assert await nova.boot(group, offer(*EVERYWHERE)) == []


async def test_a_rule_with_a_target_passes_all_hosts_of_the_target(nova: Nova) -> None:
    group = await nova.group("affinity:availability_zone:zone2")
    passing = await nova.boot(group, offer(*EVERYWHERE))
    assert passing == [host for host in EVERYWHERE if zone(host) == "zone2"]


async def test_soft_rules_refuse_nobody_and_rank_in_their_order(nova: Nova) -> None:
    group = await nova.group("soft-anti-affinity:availability_zone", "soft-affinity:switch")
    member, second = str(uuid4()), str(uuid4())
    assert len(await nova.boot(group, offer(*EVERYWHERE), member)) == 48
    here = (await nova.members(group))[member][0]
    chosen = await nova.choose(group, offer(*EVERYWHERE), second)
    by_host = dict(zip(chosen.hosts, chosen.weights, strict=True))
    elsewhere = [by_host[host] for host in EVERYWHERE if zone(host) != zone(here)]
    same_zone = [by_host[host] for host in EVERYWHERE if zone(host) == zone(here)]
    assert max(same_zone) < min(elsewhere), "the first rule decides"
    assert by_host[here] == max(same_zone) > min(same_zone), "then the second: its own switch"
    [reserved] = (await nova.members(group))[second]
    best = {host for host in EVERYWHERE if by_host[host] == max(chosen.weights)}
    assert reserved in best, "and then the place that is reserved, so that others can count on it"
    assert {switch(host) for host in best} == {switch(reserved)}


async def test_two_schedulers_never_break_a_rule_between_them(nova: Nova) -> None:
    """48 servers on 48 hosts, 16 at a time: each decides on what it knows, and only one of two gets a place."""
    group = await nova.group("anti-affinity")
    gate = asyncio.Semaphore(16)

    async def one(number: int) -> list[str]:
        async with gate:
            return await nova.boot(group, offer(*EVERYWHERE), scheduler=number % 2)

    passed = await asyncio.gather(*(one(number) for number in range(48)))
    assert sorted(hosts[0] for hosts in passed) == sorted(EVERYWHERE)
    members = await nova.members(group)
    assert set(Counter(host for hosts in members.values() for host in hosts).values()) == {1}


async def test_two_schedulers_never_put_two_partitions_into_one_rack(nova: Nova) -> None:
    group = await nova.group("anti-affinity:rack", partitions=3)
    works = [nova.boot(group, offer(*EVERYWHERE), scheduler=number % 2) for number in range(12)]
    passed = await asyncio.gather(*works, nova.boot(group, offer(*EVERYWHERE), partition=2))
    assert all({rack(host) for host in hosts} == {rack(hosts[0])} for hosts in passed)
    async with nova.database.begin() as connection:
        found = await reservations.show(connection, group)
    assert sorted(Counter(found.partitions.values()).values()) == [4, 4, 5]
    held: dict[str, set[int]] = {}
    for member, places in found.members.items():
        held.setdefault(rack(places[0]), set()).add(found.partitions[member])
    assert all(len(inside) == 1 for inside in held.values())


async def test_a_partition_that_is_not_there_lets_no_host_pass(nova: Nova) -> None:
    divided, plain = await nova.group("anti-affinity:rack", partitions=3), await nova.group("anti-affinity:rack")
    for group, partition in ((divided, 4), (divided, 0), (plain, 1)):
        assert await nova.boot(group, offer(*EVERYWHERE), partition=partition) == []
        assert await nova.members(group) == {}


async def test_a_server_that_runs_keeps_its_number_wherever_it_goes(nova: Nova) -> None:
    group, server = await nova.group("anti-affinity:rack", partitions=2), str(uuid4())
    (home, *_) = await nova.boot(group, offer(*EVERYWHERE), server, partition=2)
    await nova.boot(group, offer(*EVERYWHERE), partition=1)
    async with nova.database.begin() as connection:
        await connection.execute(servers.update().where(servers.c.id == server).values(launched_at=sa.func.now()))
        await connection.execute(sa.text("UPDATE server_groups SET version = version + 1"))
    others = [host for host in EVERYWHERE if rack(host) != rack(home)]
    assert await nova.boot(group, offer(*others), server, scheduler=1)
    async with nova.database.begin() as connection:
        assert (await reservations.show(connection, group)).partitions[server] == 2


async def test_a_group_that_changed_is_decided_on_anew(nova: Nova) -> None:
    group = await nova.group("anti-affinity", max_server_per_host=2)
    await nova.boot(group, offer("zone1-rack1-host1"))
    async with nova.database.begin() as connection:
        found = await groups.find(connection, group)
        [policy] = (await groups.find(connection, await nova.group("anti-affinity"))).policies
        await groups.update(connection, nova.settings, found, name=None, policies=[policy])
    assert await nova.boot(group, offer("zone1-rack1-host1")) == []


async def test_hosts_that_were_moved_are_counted_where_they_are(nova: Nova) -> None:
    group = await nova.group("anti-affinity:rack")
    assert await nova.boot(group, offer("zone1-rack1-host1")) == ["zone1-rack1-host1"]
    assert await nova.boot(group, offer("zone1-rack1-host2")) == []
    async with nova.database.begin() as connection:
        all_of_them = {each.name: each.id for each in await aggregates.index(connection)}
        await aggregates.remove_host(connection, all_of_them["zone1-rack1"], "zone1-rack1-host2")
        await aggregates.add_host(connection, all_of_them["zone3-rack1"], "zone1-rack1-host2")
    assert await nova.boot(group, offer("zone1-rack1-host2")) == ["zone1-rack1-host2"]


async def test_a_host_that_is_gone_or_unknown_takes_nobody(nova: Nova) -> None:
    group = await nova.group("soft-anti-affinity")
    assert await nova.boot(group, offer("zone1-rack1-host1", "unheard-of")) == ["zone1-rack1-host1"]
    async with nova.database.begin() as connection:
        row = await hosts.find(connection, name="zone1-rack1-host1")
        assert row is not None
        await hosts.change(connection, row.id, enabled=False)
        await hosts.delete(connection, host_id=(await hosts.find(connection, name="zone1-rack1-host2")).id)  # type: ignore[union-attr]
    assert await nova.boot(group, offer("zone1-rack1-host2")) == []


async def test_a_server_that_moves_is_not_in_its_own_way(nova: Nova) -> None:
    group = await nova.group("anti-affinity:rack")
    server = str(uuid4())
    await nova.boot(group, offer("zone1-rack1-host1"), server)
    await arrived(nova, server, "zone1-rack1-host1")
    assert await nova.boot(group, offer("zone1-rack1-host2"), server) == ["zone1-rack1-host2"]
    assert set((await nova.members(group))[server]) == {"zone1-rack1-host1", "zone1-rack1-host2"}, "it keeps both"
    assert await nova.boot(group, offer("zone1-rack1-host3")) == [], "and is in the way of others"


async def test_a_server_that_is_asked_for_again_gives_its_first_place_back(nova: Nova) -> None:
    group = await nova.group("anti-affinity")
    server = str(uuid4())
    await nova.boot(group, offer("zone1-rack1-host1"), server)
    assert await nova.boot(group, offer("zone1-rack1-host2"), server) == ["zone1-rack1-host2"]
    assert await nova.boot(group, offer("zone1-rack1-host1")) == ["zone1-rack1-host1"]


async def test_a_refusal_is_written_down_with_its_reasons(nova: Nova) -> None:
    group = await nova.group("anti-affinity")
    server = str(uuid4())
    await nova.boot(group, offer("zone1-rack1-host1"))
    assert await nova.boot(group, offer("zone1-rack1-host1"), server) == []
    async with nova.database.begin() as connection:
        query = sa.select(servers.c.explanation).where(servers.c.id == server)
        explanation = (await connection.execute(query)).scalar_one()
    assert explanation["verdict"] == "refused"
    assert ["scope_full", 1, {"rules": {}, "policy": "anti-affinity"}] in explanation["refused"]


async def test_several_servers_of_one_request_are_placed_as_a_whole(nova: Nova) -> None:
    """The first goes where there is room for all: three fit into the rack, though one host elsewhere is emptier."""
    group = await nova.group("affinity:rack", "anti-affinity")
    offered = offer("zone1-rack1-host1", "zone1-rack1-host2", "zone1-rack1-host3", "zone2-rack1-host1")
    for host in offered[:3]:
        host.vcpus_used = 5
    chosen = [await nova.boot(group, offered, count=3 - number) for number in range(3)]
    assert {rack(host) for [host] in chosen} == {"zone1-rack1"}


async def test_a_member_that_ran_moves_alone_however_many_it_was_made_with(nova: Nova) -> None:
    group = await nova.group("anti-affinity")
    server = str(uuid4())
    await nova.boot(group, offer("zone1-rack1-host1"), server)
    await arrived(nova, server, "zone1-rack1-host1")
    assert await nova.boot(group, offer("zone1-rack1-host2"), server, count=5) == ["zone1-rack1-host2"]


async def test_hosts_on_which_builds_failed_come_last(nova: Nova) -> None:
    group = await nova.group("anti-affinity")
    offered = offer(*EVERYWHERE[:3])
    offered[1].failed_builds = offered[2].failed_builds = 1
    offered[0].vcpus_used = 9
    assert await nova.boot(group, offered) == [EVERYWHERE[0]]


@pytest.mark.parametrize("group", [None, "00000000-0000-4000-8000-000000000000"])
async def test_groups_and_servers_that_are_none_of_roosts_are_left_alone(nova: Nova, group: str | None) -> None:
    with pytest.raises(NotFound):
        await nova.boot(group, offer(*EVERYWHERE))


async def test_before_a_refusal_members_are_looked_at_again(nova: Nova) -> None:
    """A place that Nova has given back since is found."""
    group, server = await nova.group("anti-affinity"), str(uuid4())
    await nova.boot(group, offer("zone1-rack1-host1"), server)
    looked: list[str] = []

    async def read_group(group_id: str) -> None:
        looked.append(group_id)
        async with nova.database.begin() as connection:
            await connection.execute(servers.delete().where(servers.c.id == server))
            await connection.execute(sa.text("UPDATE server_groups SET version = version + 1"))

    nova.choosers[0].read_group = read_group
    assert await nova.boot(group, offer("zone1-rack1-host1")) == ["zone1-rack1-host1"]
    assert await nova.boot(group, offer("zone1-rack1-host1"), scheduler=1) == []
    assert looked == [group]


async def test_a_host_that_nova_found_up_is_up(nova: Nova) -> None:
    """What Roost knows of it may be older."""
    group = await nova.group("anti-affinity")
    async with nova.database.begin() as connection:
        row = await hosts.find(connection, name="zone1-rack1-host1")
        assert row is not None
        await hosts.change(connection, row.id, enabled=False)
    assert await nova.boot(group, offer("zone1-rack1-host1")) == ["zone1-rack1-host1"]


async def test_a_server_that_roost_made_a_member_is_bound_when_it_moves(nova: Nova) -> None:
    first, adopted = str(uuid4()), str(uuid4())
    group, other = await nova.group("anti-affinity:rack"), await nova.group("anti-affinity")
    await nova.boot(group, offer("zone1-rack1-host1"), first)
    await nova.boot(other, offer("zone2-rack1-host1"), adopted)
    await arrived(nova, adopted, "zone2-rack1-host1")
    async with nova.database.begin() as connection:
        await members.remove(connection, nova.settings, await groups.find(connection, other), adopted)
        await members.add(connection, nova.settings, await groups.find(connection, group), adopted)
    assert await nova.boot(other, offer("zone1-rack1-host2"), adopted) == [], "though Nova knows only its first group"
    assert await nova.boot(None, offer("zone1-rack2-host2"), adopted) == ["zone1-rack2-host2"]


async def test_a_group_that_was_deleted_binds_nobody_any_more(nova: Nova) -> None:
    group = await nova.group("anti-affinity")
    await nova.boot(group, offer("zone1-rack1-host1"))
    async with nova.database.begin() as connection:
        await groups.delete(connection, nova.settings, await groups.find(connection, group))
    with pytest.raises(NotFound):
        await nova.boot(group, offer("zone1-rack1-host1"))


async def hold(nova: Nova, group: str, *names: str) -> list[str]:
    """Places that an applied plan holds on these hosts; their tokens."""
    async with nova.database.begin() as connection:
        rows = [await hosts.find(connection, name=name) for name in names]
        return await reservations.hold(connection, group, [(row.id, None) for row in rows if row is not None])


async def test_a_server_that_comes_for_a_planned_place_gets_this_and_no_other(nova: Nova) -> None:
    group, server = await nova.group("anti-affinity:rack"), str(uuid4())
    [token] = await hold(nova, group, "zone2-rack2-host3")
    others = [host for host in EVERYWHERE if rack(host) != "zone2-rack2"]
    for _ in others[::4]:
        [*hosts_] = await nova.boot(group, offer(*EVERYWHERE))
        assert hosts_
        assert "zone2-rack2" not in {rack(host) for host in hosts_}, "a place that is held is taken"
    assert await nova.boot(group, offer(*EVERYWHERE)) == []
    assert await nova.boot(group, offer(*others), server, token=token) == [], "another host is not what was planned"
    for scheduler in (0, 1):  # an answer may be lost, and the question asked again
        passing = await nova.boot(group, offer(*EVERYWHERE), server, scheduler, token=token)
        assert passing == ["zone2-rack2-host3"]
    assert await nova.boot(group, offer(*EVERYWHERE), token=token) == [], "a second server does not get it"


async def test_a_server_that_ran_is_not_bound_to_the_place_of_its_plan(nova: Nova) -> None:
    group, server = await nova.group("anti-affinity"), str(uuid4())
    [token] = await hold(nova, group, EVERYWHERE[0])
    assert await nova.boot(group, offer(*EVERYWHERE), server, token=token) == [EVERYWHERE[0]]
    await arrived(nova, server, EVERYWHERE[0])
    assert await nova.boot(group, offer(EVERYWHERE[1]), server, token=token) == [EVERYWHERE[1]]


async def test_tokens_of_other_groups_and_of_nobody_mean_nothing(nova: Nova) -> None:
    group, other = await nova.group("anti-affinity"), await nova.group("anti-affinity")
    [token] = await hold(nova, other, EVERYWHERE[0])
    for strange in (token, str(uuid4()), "no token"):
        assert await nova.boot(group, offer(EVERYWHERE[1]), token=strange) in ([EVERYWHERE[1]], [])
    assert list((await nova.members(group)).values()).count((EVERYWHERE[1],)) == 1
    assert await nova.boot(other, offer(EVERYWHERE[0]), token=token) == [EVERYWHERE[0]]


async def test_places_that_nobody_came_for_are_free_again(nova: Nova) -> None:
    group = await nova.group("anti-affinity")
    [token] = await hold(nova, group, EVERYWHERE[0])
    with pytest.raises(Conflict):
        await hold(nova, group, EVERYWHERE[1])
    assert await nova.boot(group, offer(EVERYWHERE[0])) == []
    async with nova.database.begin() as connection:
        await connection.execute(planned_places.update().values(created_at=sa.text("now() - interval '11 minutes'")))
    assert await nova.boot(group, offer(EVERYWHERE[0]), token=token) == [EVERYWHERE[0]]
    assert await hold(nova, group, EVERYWHERE[1]) != [token]
    async with nova.database.begin() as connection:
        assert await connection.scalar(sa.select(sa.func.count()).select_from(planned_places)) == 1


async def arrived(nova: Nova, server: str, host: str) -> None:
    """Nova says that a server runs on a host."""
    async with nova.database.begin() as connection:
        row = await hosts.find(connection, name=host)
        assert row is not None
        values = {"host_id": row.id, "launched_at": sa.func.now(), "vm_state": "active"}
        await connection.execute(servers.update().where(servers.c.id == server).values(**values))
        await reservations.occupy(connection, server, {row.id})
        await connection.execute(sa.text("UPDATE server_groups SET version = version + 1"))
