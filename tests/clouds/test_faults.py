"""A bad way to a cloud: here to Roost's own compute API, over HTTP."""

from collections.abc import AsyncIterator

import openstack
import pytest
import yaml

from roost.clouds.openstack import OpenStackClouds
from tests.clouds.conformance import Subject
from tests.clouds.fault_proxy import FaultProxy
from tests.clouds.faults import *  # noqa: F403
from tests.clouds.faults import Troubled
from tests.clouds.test_conformance import NAMES
from tests.conftest import Served


@pytest.fixture
async def troubled(served: Served) -> AsyncIterator[Troubled]:
    """The served Roost, with a proxy before its compute API."""
    entry = yaml.safe_load(served.clouds.read_text())["clouds"]["roost"]
    access = {"load_yaml_config": False, "load_envvars": False, **entry}
    own = openstack.connect(**access)
    async with FaultProxy(served.url).running() as proxy:
        through = {**access, "compute_endpoint_override": f"{proxy.url}/compute/v2.1", "api_timeout": 3}
        both = [OpenStackClouds(None, config) for config in (through, access)]
        one, other = (Subject(clouds.of(own.current_project_id, own.current_user_id), **NAMES) for clouds in both)
        yield Troubled(one, other, proxy)
        for clouds in both:
            clouds.close()
