"""A profile's networks mean what the compute API's do: nodes are plugged in, and what is not there is refused."""

from typing import Any

from roost.clouds.base import ServerRequest
from roost.clouds.embedded import EmbeddedClouds
from roost.network.addresses import PRIVATE
from tests.api.network.test_network import listed, make, network
from tests.compute.cloud import IMAGE, Cloud
from tests.conftest import Api

NOBODYS = "00000000-0000-4000-8000-00000000dead"


async def created(api: Api, cloud: Cloud, **more: Any) -> list[Any]:
    """Two nodes' servers, asked for as the engine asks."""
    services, project = api.services, await cloud.project()
    clouds = EmbeddedClouds(services.database, services.settings, services.scheduler)
    requests = [
        ServerRequest(node_id=f"node-{number}", name=f"node-{number}", flavor="1", image=IMAGE, **more)
        for number in range(2)
    ]
    reserved = await clouds.of(project, "user")._reserve(requests)
    return [clouds, project, reserved, requests]


async def test_networks_are_found_by_name_and_by_id_alike(api: Api, cloud: Cloud) -> None:
    mine, theirs = await network(api), await make(api, "networks", "roost-alt", name="theirs")
    clouds = EmbeddedClouds(api.services.database, api.services.settings, api.services.scheduler)
    own = clouds.of(await cloud.project(), "user")
    for word, found in (("private", PRIVATE), (PRIVATE, PRIVATE), ("mine", mine["id"]), (mine["id"], mine["id"])):
        resource = await own.find_network(word)
        assert resource is not None
        assert resource.id == found
    for word in ("theirs", theirs["id"], "none", NOBODYS):
        assert await own.find_network(word) is None


async def test_nodes_have_addresses_on_the_networks_of_their_profile(api: Api, cloud: Cloud) -> None:
    mine = await network(api)
    _, _, reserved, _ = await created(api, cloud, networks=({"uuid": PRIVATE},))
    assert [list(each) for each in reserved.addresses] == [["private"], ["private"]]
    assert reserved.port_ids == ()
    _, _, reserved, _ = await created(api, cloud, networks=({"uuid": mine["id"]},))
    assert [list(each) for each in reserved.addresses] == [["mine"], ["mine"]]
    assert {port["device_owner"] for port in await listed(api, "ports")} == {"compute:pending"}
