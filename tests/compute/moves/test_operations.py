"""Moves: every one is scheduled under the group's rules, and whatever becomes of it, claims and usage are exact."""

from typing import Any

import pytest

from tests.compute.cloud import Cloud

LIVE = {"host": None, "block_migration": "auto"}

# Each move with what starts it, and what must come first.
MOVES: dict[str, tuple[list[str], str, Any]] = {
    "migrate": ([], "migrate", None),
    "live-migration": ([], "os-migrateLive", LIVE),
    "evacuate": ([], "evacuate", {}),
    "unshelve": (["shelve"], "unshelve", None),
}


async def prepare(cloud: Cloud, server: str, kind: str) -> None:
    """Bring a server to where the move starts."""
    for action in MOVES[kind][0]:
        await cloud.done(server, action)
    if kind == "evacuate":
        host = await cloud.host(server)
        assert host is not None
        await cloud.change_host(host, forced_down=True)


async def finish(cloud: Cloud, server: str, kind: str) -> None:
    """Carry the move out to its end."""
    await cloud.done(server, MOVES[kind][1], MOVES[kind][2])
    if kind == "migrate":
        await cloud.done(server, "confirmResize")


@pytest.mark.parametrize("kind", MOVES)
async def test_a_move_goes_where_the_rules_allow(cloud: Cloud, kind: str) -> None:
    await cloud.hosts(3)
    group = await cloud.group("anti-affinity")
    first, second = await cloud.boot(group=group), await cloud.boot(group=group)
    before, other = await cloud.host(first), await cloud.host(second)
    await prepare(cloud, first, kind)
    await finish(cloud, first, kind)
    after = await cloud.host(first)
    assert after not in ({other} if kind == "unshelve" else {before, other})
    assert await cloud.claims(first) == {after: 1}
    assert await cloud.usage() == (2, 2, 1024)
    await cloud.check()


@pytest.mark.parametrize("kind", MOVES)
async def test_a_refused_move_changes_nothing_and_is_remembered(cloud: Cloud, kind: str) -> None:
    await cloud.hosts(2)
    group = await cloud.group("anti-affinity")
    first, second = await cloud.boot(group=group), await cloud.boot(group=group)
    await prepare(cloud, first, kind)
    if kind == "unshelve":
        third = await cloud.boot(group=group)
        assert await cloud.status(third) == "ACTIVE"
    before = await cloud.show(first), await cloud.claims(first), await cloud.usage()
    status, message = await cloud.refused(first, MOVES[kind][1], MOVES[kind][2])
    assert status == 400
    down = 47 if kind == "evacuate" else 46
    assert message.startswith(f"No valid host was found. No place for 1 server: {down} hosts are down or disabled")
    assert "as many members as 'anti-affinity' allows" in message
    assert (await cloud.show(first), await cloud.claims(first), await cloud.usage()) == before
    assert (await cloud.history(first))[0] == (kind, "Error")
    assert (await cloud.show(second))["status"] == "ACTIVE"
    await cloud.check()


@pytest.mark.parametrize("kind", MOVES)
async def test_the_only_member_of_an_affinity_group_can_move(cloud: Cloud, kind: str) -> None:
    group = await cloud.group("affinity")
    server = await cloud.boot(group=group)
    before = await cloud.host(server)
    await prepare(cloud, server, kind)
    await finish(cloud, server, kind)
    assert kind == "unshelve" or await cloud.host(server) != before
    await cloud.check()


async def test_one_of_several_members_of_an_affinity_group_cannot_leave_the_others(cloud: Cloud) -> None:
    group = await cloud.group("affinity:rack")
    first, second = await cloud.boot(group=group), await cloud.boot(group=group)
    await finish(cloud, first, "migrate")
    racks = {str(await cloud.host(server)).rpartition("-")[0] for server in (first, second)}
    assert len(racks) == 1
    together = await cloud.group("affinity")
    third, _ = await cloud.boot(group=together), await cloud.boot(group=together)
    status, message = await cloud.refused(third, "migrate")
    assert status == 400
    assert "47 hosts hold none of the members, as 'affinity' asks" in message
    await cloud.check()


@pytest.mark.parametrize(("kind", "version"), [("os-migrateLive", "2.30"), ("evacuate", "2.29")])
async def test_a_forced_move_heeds_rules_and_room_and_nothing_else(cloud: Cloud, kind: str, version: str) -> None:
    source, _, crowded, *_ = await cloud.hosts(48)
    target = "zone2-rack1-host1"
    group = await cloud.group("anti-affinity", cloud="roost-admin")
    server = await cloud.boot(group=group, cloud="roost-admin", availability_zone=f"zone1:{source}")
    await cloud.boot(group=group, cloud="roost-admin", host=crowded)
    await cloud.change_host(target, enabled=False)
    if kind == "evacuate":
        await cloud.change_host(source, forced_down=True)
    more = {"block_migration": "auto"} if kind == "os-migrateLive" else {}

    async def refused(host: str | None, *, force: bool = True) -> str:
        where = {"host": host} if host is not None or more else {}
        status, message = await cloud.refused(server, kind, {**where, **more, "force": force}, version=version)
        assert status == 400
        return message

    assert await refused(None) == "Can't force to a non-provided destination"
    assert "1 host holds as many members as 'anti-affinity' allows" in await refused(crowded)
    assert await refused(target, force=False)
    await cloud.change_host(target, forced_down=True)
    assert await refused(target) == f"Compute service of {target} is unavailable at this time."
    await cloud.change_host(target, forced_down=False)
    await cloud.done(server, kind, {"host": target, **more, "force": True}, version=version)
    assert await cloud.host(server) == target
    await cloud.check()


async def test_until_a_move_is_confirmed_both_hosts_are_kept(cloud: Cloud) -> None:
    source, destination, spare = await cloud.hosts(3)
    group = await cloud.group("anti-affinity", cloud="roost-admin")
    moved = await cloud.boot(group=group, host=source, cloud="roost-admin")
    await cloud.done(moved, "migrate", {"host": destination})
    assert await cloud.claims(moved) == {source: 1, destination: 1}
    for taken in (source, destination):
        server = await cloud.boot(group=group, host=taken, cloud="roost-admin")
        assert await cloud.status(server) == "ERROR"
        await cloud.delete(server)
    await cloud.done(moved, "confirmResize")
    assert await cloud.claims(moved) == {destination: 1}
    assert await cloud.status(await cloud.boot(group=group, host=source, cloud="roost-admin")) == "ACTIVE"
    assert await cloud.status(await cloud.boot(group=group, host=spare, cloud="roost-admin")) == "ACTIVE"
    await cloud.check()


async def test_a_reverted_move_is_as_if_it_never_was(cloud: Cloud) -> None:
    await cloud.hosts(2)
    server = await cloud.boot(flavorRef="2")
    host = await cloud.host(server)
    for action, value in (("migrate", None), ("resize", {"flavorRef": "4"})):
        await cloud.done(server, action, value)
        await cloud.done(server, "revertResize")
        shown = await cloud.show(server)
        assert (shown["OS-EXT-SRV-ATTR:host"], shown["flavor"]["original_name"]) == (host, "m1.small")
        assert await cloud.claims(server) == {host: 1}
        assert await cloud.usage() == (1, 1, 2048)
        await cloud.check()


@pytest.mark.parametrize("ending", ["confirmResize", "revertResize"])
@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize("flavors", [("2", "4"), ("4", "2")])
async def test_a_resize_keeps_claims_and_usage_exact_at_each_stage(
    cloud: Cloud, hosts: int, flavors: tuple[str, str], ending: str
) -> None:
    await cloud.hosts(hosts)
    if hosts == 2:  # there is no room to stay
        await cloud.hosts(2, vcpus=5)
    sizes = {"2": (1, 2048), "4": (4, 8192)}
    old, new = (sizes[flavor] for flavor in flavors)
    server = await cloud.boot(flavorRef=flavors[0])
    host = await cloud.host(server)
    await cloud.act(server, "resize", {"flavorRef": flavors[1]}, cloud="roost")
    assert await cloud.usage() == (1, 4, 8192)
    await cloud.settle()
    assert await cloud.usage() == (1, 4, 8192)
    assert (await cloud.show(server))["flavor"]["vcpus"] == new[0]
    claims = await cloud.claims(server)
    if hosts == 1:
        assert claims == {host: 4}
    else:
        assert claims[str(host)] >= old[0]
    await cloud.check()
    await cloud.done(server, ending, cloud="roost")
    stays = new if ending == "confirmResize" else old
    assert await cloud.usage() == (1, *stays)
    assert list((await cloud.claims(server)).values()) == [stays[0]]
    await cloud.check()


async def test_a_resize_needs_another_flavor_quota_and_room(cloud: Cloud) -> None:
    await cloud.hosts(1, vcpus=4)
    server = await cloud.boot(flavorRef="1")
    for flavor, status, message in (
        ("1", 400, "When resizing, instances must change flavor!"),
        ("99", 400, "Flavor 99 could not be found."),
        (
            "5",
            400,
            "No valid host was found. No place for 1 server: 47 hosts are down or disabled; 1 host has too few free "
            "vCPUs.",
        ),
    ):
        assert await cloud.refused(server, "resize", {"flavorRef": flavor}, cloud="roost") == (status, message)
    await cloud.quota(cores=3)
    assert await cloud.refused(server, "resize", {"flavorRef": "4"}, cloud="roost") == (
        403,
        "Quota exceeded for cores: Requested 3, but already used 1 of 3 cores",
    )
    assert await cloud.usage() == (1, 1, 512)
    assert await cloud.status(server) == "ACTIVE"
    await cloud.check()


async def test_a_resize_needs_quota_of_its_user_too(cloud: Cloud) -> None:
    server = await cloud.boot(flavorRef="1")
    user = (await cloud.show(server))["user_id"]
    path = f"/os-quota-sets/{await cloud.project()}"
    body = {"quota_set": {"cores": 3, "instances": 1}}
    assert (await cloud.ask("PUT", f"{path}?user_id={user}", json=body, cloud="roost-admin")).status_code == 200
    detail = (await cloud.ask("GET", f"{path}/detail?user_id={user}", cloud="roost-admin")).json()["quota_set"]
    assert detail["cores"] == {"in_use": 1, "limit": 3, "reserved": 0}
    assert await cloud.refused(server, "resize", {"flavorRef": "4"}, cloud="roost") == (
        403,
        "Quota exceeded for cores: Requested 3, but already used 1 of 3 cores",
    )
    assert (await cloud.create()).status_code == 403
    # A user without limits has those of the project; what others use does not count.
    await cloud.boot(cloud="roost-manager")
    await cloud.done(server, "resize", {"flavorRef": "3"}, cloud="roost")
    low = {"quota_set": {"cores": 1}}
    assert await cloud.refusal("PUT", f"{path}?user_id={user}", low, cloud="roost-admin") == (
        400,
        "Quota limit 1 for cores must be greater than or equal to already used and reserved 2.",
    )
    await cloud.check()


async def test_a_member_may_be_resized_where_it_is(cloud: Cloud) -> None:
    await cloud.hosts(2)
    group = await cloud.group("anti-affinity")
    servers = [await cloud.boot(group=group) for _ in range(2)]
    for server in servers:
        host = await cloud.host(server)
        await cloud.done(server, "resize", {"flavorRef": "3"}, cloud="roost")
        await cloud.done(server, "confirmResize", cloud="roost")
        assert await cloud.host(server) == host
    await cloud.check()


@pytest.mark.parametrize("kind", ["migrate", "live-migration", "evacuate", "unshelve"])
async def test_a_host_can_be_named(cloud: Cloud, kind: str) -> None:
    first, second, _ = await cloud.hosts(3)
    server = await cloud.boot(host=first, cloud="roost-admin")
    await prepare(cloud, server, kind)
    action, value = MOVES[kind][1], {**(MOVES[kind][2] or {}), "host": "missing"}
    assert await cloud.refused(server, action, value) == (400, "Compute host missing could not be found.")
    if kind != "unshelve":
        status, _ = await cloud.refused(server, action, {**value, "host": first})
        assert status == 400
    await cloud.done(server, action, {**value, "host": second})
    assert await cloud.host(server) == second
    await cloud.check()


async def test_a_named_host_is_held_to_the_rules(cloud: Cloud) -> None:
    first, second, _ = await cloud.hosts(3)
    group = await cloud.group("anti-affinity", cloud="roost-admin")
    server = await cloud.boot(group=group, host=first, cloud="roost-admin")
    await cloud.boot(group=group, host=second, cloud="roost-admin")
    for action, value in (("migrate", {"host": second}), ("os-migrateLive", {**LIVE, "host": second})):
        status, message = await cloud.refused(server, action, value)
        assert status == 400
        assert "1 host holds as many members as 'anti-affinity' allows" in message
    assert (await cloud.status(server), await cloud.host(server)) == ("ACTIVE", first)
    await cloud.check()


async def test_a_host_that_works_is_not_evacuated(cloud: Cloud) -> None:
    server = await cloud.boot()
    host = await cloud.host(server)
    assert await cloud.refused(server, "evacuate", {}) == (400, f"Compute service of {host} is still in use.")


@pytest.mark.parametrize(("version", "status"), [("2.94", "ACTIVE"), ("2.95", "SHUTOFF")])
async def test_an_evacuated_server_is_left_stopped_since_2_95(cloud: Cloud, version: str, status: str) -> None:
    server = await cloud.boot()
    await prepare(cloud, server, "evacuate")
    await cloud.done(server, "evacuate", {}, version=version)
    assert await cloud.status(server) == status
    await cloud.check()


async def test_a_server_stays_in_the_zone_that_it_asked_for(cloud: Cloud) -> None:
    pinned, free = await cloud.boot(availability_zone="zone2"), await cloud.boot()
    for _ in range(3):
        await finish(cloud, pinned, "live-migration")
        assert str(await cloud.host(pinned)).startswith("zone2")
    await cloud.done(pinned, "shelve")
    status, message = await cloud.refused(pinned, "unshelve", {"availability_zone": "nowhere"})
    assert (status, message) == (400, "The requested availability zone is not available")
    await cloud.done(pinned, "unshelve", {"availability_zone": "zone3"})
    assert str(await cloud.host(pinned)).startswith("zone3")
    await cloud.done(pinned, "shelve")
    await cloud.done(pinned, "unshelve", {"availability_zone": None})
    assert (await cloud.show(pinned))["pinned_availability_zone"] is None
    assert (await cloud.show(free))["pinned_availability_zone"] is None
    await cloud.check()


async def test_hints_bind_moves_too(cloud: Cloud) -> None:
    await cloud.hosts(2)
    first = await cloud.boot()
    apart = await cloud.boot(hints={"different_host": first})
    status, message = await cloud.refused(apart, "migrate")
    assert (status, "hold" in message) == (400, True)
    await cloud.delete(first)
    await finish(cloud, apart, "migrate")
    await cloud.check()


async def test_a_group_that_is_gone_binds_nobody(cloud: Cloud) -> None:
    await cloud.hosts(2)
    group = await cloud.group("anti-affinity")
    first, second = await cloud.boot(group=group), await cloud.boot(group=group)
    assert (await cloud.ask("DELETE", f"/os-server-groups/{group}")).status_code == 204
    await finish(cloud, first, "migrate")
    assert await cloud.host(first) == await cloud.host(second)
    await cloud.check()


async def test_moves_are_listed(cloud: Cloud) -> None:
    source, destination = await cloud.hosts(2)
    server = await cloud.boot(host=source, cloud="roost-admin")
    for kind in ("migrate", "live-migration"):
        await finish(cloud, server, kind)
    response = await cloud.ask("GET", "/os-migrations", cloud="roost-admin", version="2.80")
    rows = [
        (row["migration_type"], row["status"], row["source_compute"], row["dest_compute"])
        for row in response.json()["migrations"]
    ]
    assert rows == [
        ("live-migration", "completed", destination, source),
        ("migration", "confirmed", source, destination),
    ]
