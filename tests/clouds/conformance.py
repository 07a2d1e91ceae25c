"""What every cloud must do for clusters; the modules that have a `subject` collect these tests."""

import uuid
from dataclasses import dataclass, replace
from typing import Any

from roost.clouds.base import Cloud, ServerRequest
from roost.placement.rules import Rule


@dataclass(frozen=True)
class Subject:
    """A cloud, for a project that may make servers, with the names of what it has."""

    cloud: Cloud
    flavor: str
    bigger: str
    image: str

    async def wanted(self, count: int, **given: Any) -> list[ServerRequest]:
        """Requests for that many small servers, each for its own node."""
        flavor, image = await self.cloud.find_flavor(self.flavor), await self.cloud.find_image(self.image)
        assert flavor is not None
        assert image is not None
        ids = [str(uuid.uuid4()) for _ in range(count)]
        return [
            ServerRequest(
                node_id, f"node-{node_id[:8]}", flavor.id, image.id, metadata={"cluster_node_id": node_id}, **given
            )
            for node_id in ids
        ]


async def test_a_batch_of_servers_is_made_found_and_deleted(subject: Subject) -> None:
    requests = await subject.wanted(3)
    made = await subject.cloud.create_servers(requests)
    assert [outcome.node_id for outcome in made] == [request.node_id for request in requests]
    assert all(outcome.error is None and outcome.server_id and outcome.zone for outcome in made)
    found = await subject.cloud.find_servers([request.node_id for request in requests])
    assert {server.id for server in found.values()} == {outcome.server_id for outcome in made}
    assert {server.status for server in found.values()} == {"ACTIVE"}
    ids = [server.id for server in found.values()]
    assert await subject.cloud.delete_servers(ids) == {}
    assert await subject.cloud.show_servers(ids) == {}


async def test_asking_twice_makes_no_second_server(subject: Subject) -> None:
    requests = await subject.wanted(2)
    first = await subject.cloud.create_servers(requests[:1])
    both = await subject.cloud.create_servers(requests)
    assert both[0].server_id == first[0].server_id
    assert both[1].server_id is not None
    await subject.cloud.delete_servers([outcome.server_id for outcome in both if outcome.server_id])


async def test_a_zone_is_kept_to_and_an_unknown_one_is_a_reason(subject: Subject) -> None:
    zone = (await subject.cloud.availability_zones())[0]
    assert zone.available
    [placed] = await subject.cloud.create_servers(await subject.wanted(1, availability_zone=zone.name))
    assert placed.zone == zone.name
    [refused] = await subject.cloud.create_servers(await subject.wanted(1, availability_zone="nowhere"))
    assert refused.error
    await subject.cloud.delete_servers([server for server in (placed.server_id, refused.server_id) if server])


async def test_a_group_is_made_found_kept_to_and_deleted(subject: Subject) -> None:
    group = await subject.cloud.create_server_group(f"group-{uuid.uuid4().hex[:6]}", [Rule.parse("anti-affinity")])
    assert (await subject.cloud.find_server_group(group.name)) == (await subject.cloud.find_server_group(group.id))
    made = await subject.cloud.create_servers(await subject.wanted(2, server_group=group.id))
    assert all(outcome.error is None for outcome in made)
    servers = await subject.cloud.show_servers([outcome.server_id for outcome in made if outcome.server_id])
    assert len(servers) == 2
    await subject.cloud.delete_servers(list(servers))
    await subject.cloud.delete_server_group(group.id)
    await subject.cloud.delete_server_group(group.id)
    assert await subject.cloud.find_server_group(group.id) is None


async def test_a_server_is_renamed_relabelled_and_operated(subject: Subject) -> None:
    [made] = await subject.cloud.create_servers(await subject.wanted(1))
    assert made.server_id is not None
    assert await subject.cloud.update_server(made.server_id, name="other", metadata={"a": "b"}) is None
    assert await subject.cloud.update_server(made.server_id, metadata={"a": None, "never-there": None}) is None
    for operation, params, status in (
        ("reboot", {"type": "SOFT"}, "ACTIVE"),
        ("stop", {}, "SHUTOFF"),
        ("start", {}, "ACTIVE"),
        ("pause", {}, "PAUSED"),
        ("unpause", {}, "ACTIVE"),
        ("suspend", {}, "SUSPENDED"),
        ("resume", {}, "ACTIVE"),
        ("change_password", {"admin_pass": "secret"}, "ACTIVE"),
        ("rebuild", {}, "ACTIVE"),
    ):
        assert await subject.cloud.operate(made.server_id, operation, params) is None
        server = (await subject.cloud.show_servers([made.server_id]))[made.server_id]
        assert server.status == status, operation
    assert server.name == "other"
    assert "a" not in server.details["metadata"]
    assert await subject.cloud.operate(made.server_id, "unpause", {})
    await subject.cloud.delete_servers([made.server_id])


async def test_a_server_gets_another_flavor(subject: Subject) -> None:
    [made] = await subject.cloud.create_servers(await subject.wanted(1))
    flavor = await subject.cloud.find_flavor(subject.bigger)
    assert flavor is not None
    assert made.server_id is not None
    assert await subject.cloud.operate(made.server_id, "resize", {"flavor": flavor.id}) is None
    assert (await subject.cloud.show_servers([made.server_id]))[made.server_id].status == "ACTIVE"
    await subject.cloud.delete_servers([made.server_id])


async def test_what_is_not_there_is_none_or_counts_as_gone(subject: Subject) -> None:
    assert await subject.cloud.find_flavor("no-such-flavor") is None
    assert await subject.cloud.find_image("no-such-image") is None
    assert await subject.cloud.find_network("no-such-network") is None
    assert await subject.cloud.find_keypair("no-such-key") is None
    assert await subject.cloud.find_server_group("no-such-group") is None
    assert await subject.cloud.find_servers([str(uuid.uuid4())]) == {}
    assert await subject.cloud.delete_servers([str(uuid.uuid4())]) == {}
    assert await subject.cloud.operate(str(uuid.uuid4()), "stop", {})


async def test_there_is_a_region(subject: Subject) -> None:
    assert "RegionOne" in await subject.cloud.regions()


async def test_what_a_batch_cannot_have_is_a_reason_and_the_rest_is_made(subject: Subject) -> None:
    requests = await subject.wanted(3)
    requests[1] = replace(requests[1], flavor="no-such-flavor")
    made = await subject.cloud.create_servers(requests)
    assert [outcome.error is None for outcome in made] == [True, False, True]
    await subject.cloud.delete_servers([outcome.server_id for outcome in made if outcome.server_id])


async def test_a_locked_server_is_only_deleted_by_force(subject: Subject) -> None:
    [made] = await subject.cloud.create_servers(await subject.wanted(1))
    assert made.server_id is not None
    assert await subject.cloud.operate(made.server_id, "lock", {}) is None
    assert list(await subject.cloud.delete_servers([made.server_id])) == [made.server_id]
    assert await subject.cloud.delete_servers([made.server_id], force=True) == {}
    assert await subject.cloud.show_servers([made.server_id]) == {}


async def test_the_members_of_an_affine_group_share_a_host(subject: Subject) -> None:
    group = await subject.cloud.create_server_group(f"group-{uuid.uuid4().hex[:6]}", [Rule.parse("affinity")])
    made = await subject.cloud.create_servers(await subject.wanted(3, server_group=group.id))
    servers = (await subject.cloud.find_servers([outcome.node_id for outcome in made])).values()
    assert all(outcome.error is None for outcome in made)
    assert len({server.host or server.details["hostId"] for server in servers}) == 1
    await subject.cloud.delete_servers([outcome.server_id for outcome in made if outcome.server_id])
    await subject.cloud.delete_server_group(group.id)
