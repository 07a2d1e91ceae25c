"""The fifth walk of docs/architecture.md: a server created in front of a Nova that has loaded the plug-in."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from roost_nova.asker import Asker

from tests.clouds.conftest import Cloud
from tests.nova.schedulers import offer
from tests.nova.test_plugin import Group, Spec, loading, passed
from tests.test_architecture import traced


@dataclass
class OverHttp:
    """The plug-in's questions, sent from its thread to the API in front."""

    cloud: Cloud
    loop: asyncio.AbstractEventLoop

    def adopted(self, seconds: float) -> frozenset[str]:
        return frozenset()

    def choose(self, wanted: Mapping[str, Any], seconds: float) -> Any:
        operator = self.cloud.operator
        request = operator.front.post(
            "/scheduler/choices", json={"choice": dict(wanted)}, headers={"X-Auth-Token": operator.token}
        )
        answer = asyncio.run_coroutine_threadsafe(request, self.loop).result(seconds)
        assert answer.status_code == 200, answer.text
        return answer.json()["choice"]


async def test_a_create_in_front_of_a_nova_takes_the_walk(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    asker = Asker(OverHttp(cloud, loop), 60, 1, 0)
    group = await cloud.tenant.group("anti-affinity:rack")
    owner = (await cloud.tenant.ask("GET", f"/os-server-groups/{group}")).json()["server_group"]
    walk = "Create a server in front of a Nova"
    with loading(monkeypatch) as loaded, traced(walk) as trace, ThreadPoolExecutor(1) as scheduler:
        monkeypatch.setattr("roost_nova.plugin._asker", lambda: asker)
        server = await cloud.tenant.boot(group)
        spec = Spec(server, Group(group), owner["project_id"], owner["user_id"])
        hosts = offer(await cloud.host(server))
        assert await loop.run_in_executor(scheduler, passed, loaded.filter, hosts, spec) == hosts
        await cloud.front.follow()
    trace.check()
