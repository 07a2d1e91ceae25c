"""An OpenStack is signed in to as an administrator; what such a one is shown is not lent to the projects it is for."""

import asyncio
import uuid
from typing import Any

import openstack
import pytest
import yaml
from openstack.image.v2.image import Image
from openstack.network.v2.network import Network

from roost.clouds.openstack import OpenStackClouds, usable_image, usable_network
from roost.store.database import Database, Limits
from tests.conftest import Served


def connected(served: Served, cloud: str) -> tuple[dict[str, Any], Any]:
    entry = yaml.safe_load(served.clouds.read_text())["clouds"][cloud]
    access = {"load_yaml_config": False, "load_envvars": False, **entry}
    return access, openstack.connect(**access)


async def test_what_belongs_to_another_project_is_not_found(served: Served) -> None:
    access, operator = connected(served, "roost-admin")
    _, other = connected(served, "roost-alt")
    name = f"private-{uuid.uuid4().hex[:8]}"
    group = other.compute.create_server_group(name=name, policy="affinity")
    flavor = operator.compute.create_flavor(name=name, ram=64, vcpus=1, disk=1, is_public=False)
    operator.compute.flavor_add_tenant_access(flavor, other.current_project_id)
    clouds = OpenStackClouds(None, access)
    own = operator.current_project_id
    try:
        assert operator.compute.get_server_group(group.id).id == group.id
        assert await clouds.of(own, "user").find_server_group(group.id) is None
        assert await clouds.of(own, "user").find_flavor(name) is None
        operator.compute.flavor_add_tenant_access(flavor, own)
        found = await clouds.of(own, "user").find_flavor(name)
        assert found is not None
        assert found.id == flavor.id
    finally:
        clouds.close()
        other.compute.delete_server_group(group)
        operator.compute.delete_flavor(flavor)


async def test_a_turn_in_a_group_is_waited_for_however_long_it_takes(database_url: str) -> None:
    """Servers take longer to boot than PostgreSQL lets a statement wait for a lock."""
    databases = [Database(database_url, limits=Limits(lock=0.2, idle=0.2)) for _ in range(2)]
    engines = [OpenStackClouds(None, {}, database) for database in databases]
    order: list[int] = []

    async def take(number: int) -> None:
        async with engines[number]._turn("group"):
            order.append(number)
            await asyncio.sleep(1.2)
            order.append(number)

    await asyncio.gather(take(0), take(1))
    assert order in ([0, 0, 1, 1], [1, 1, 0, 0])
    for clouds in engines:
        clouds.close()
    for database in databases:
        await database.close()


class Members:
    """An image service in which an image is shared with these projects."""

    def __init__(self, *projects: str) -> None:
        self.image = self
        self.projects = projects

    def members(self, image_id: str) -> list[Any]:
        return [type("Member", (), {"member_id": project}) for project in self.projects]


@pytest.mark.parametrize(
    ("visibility", "owner", "usable"),
    [
        ("public", "theirs", True),
        ("community", "theirs", True),
        ("private", "ours", True),
        ("private", "theirs", False),
        ("shared", "theirs", False),
    ],
)
def test_which_images_are_for_a_project(visibility: str, owner: str, usable: bool) -> None:
    assert usable_image(Members(), Image(visibility=visibility, owner=owner), "ours") is usable


def test_an_image_that_is_shared_with_a_project_is_for_it() -> None:
    assert usable_image(Members("ours"), Image(visibility="shared", owner="theirs"), "ours")


@pytest.mark.parametrize(
    ("network", "usable"),
    [
        ({"shared": True, "project_id": "theirs"}, True),
        ({"router:external": True, "project_id": "theirs"}, True),
        ({"project_id": "ours"}, True),
        ({"project_id": "theirs"}, False),
    ],
)
def test_which_networks_are_for_a_project(network: dict[str, Any], usable: bool) -> None:
    assert usable_network(Network.existing(**network), "ours") is usable
