"""A bad way to a real Nova."""

from collections.abc import AsyncIterator

import pytest

from lab.settings import Settings
from roost.clouds.openstack import OpenStackClouds
from tests.clouds.conformance import Subject
from tests.clouds.fault_proxy import FaultProxy
from tests.clouds.faults import *  # noqa: F403
from tests.clouds.faults import Troubled
from tests.lab.conftest import Access, Tenant


@pytest.fixture
async def troubled(lab: Settings, service: Access, tenant: Tenant, subject: Subject) -> AsyncIterator[Troubled]:
    """The lab, with a proxy before Nova."""
    async with FaultProxy(lab.url("nova")).running() as proxy:
        way = {**service.config, "compute_endpoint_override": f"{proxy.url}/v2.1", "api_timeout": 15}
        clouds = OpenStackClouds(None, way)
        through = Subject(clouds.of(tenant.project_id, tenant.user_id), subject.flavor, subject.bigger, subject.image)
        yield Troubled(through, subject, proxy)
        clouds.close()
