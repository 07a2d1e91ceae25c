"""Nova's fake hypervisor as the lab wants it: with a capacity of choice in two NUMA cells, and alive after a restart.

Nova's own `FakeDriver` invents the identity of its node in every process, so a nova-compute with it refuses to start a
second time; the one that this derives from keeps it, as a real driver does. Its servers it forgets with the process:
they are taken from Nova's record at the start.
"""

import os
import time
from typing import Any

from nova import context, objects
from nova.virt import fake


class LabDriver(fake.FakeDriverWithoutFakeNodes):
    """A hypervisor that only says that it runs servers."""

    vcpus = int(os.environ["LAB_HOST_VCPUS"])
    memory_mb = int(os.environ["LAB_HOST_MB"])
    local_gb = int(os.environ["LAB_HOST_GB"])

    def init_host(self, host: str) -> None:
        """Take up the servers that are here by Nova's record."""
        super().init_host(host)
        admin = context.get_admin_context()
        for server in objects.InstanceList.get_by_host(admin, host, expected_attrs=["flavor"]):
            if server.uuid not in self.instances:
                flavor = server.flavor
                self.resources.claim(vcpus=flavor.vcpus, mem=flavor.memory_mb, disk=flavor.root_gb)
                self.instances[server.uuid] = fake.FakeInstance(server.name, server.power_state, server.uuid)

    def get_available_resource(self, nodename: str) -> Any:
        """With half of it in each of two NUMA cells."""
        half, rest = self.vcpus // 2, set(range(self.vcpus // 2, self.vcpus))
        cells = [_cell(0, set(range(half)), self.memory_mb // 2), _cell(1, rest, self.memory_mb // 2)]
        topology = objects.NUMATopology(cells=cells)
        return {**super().get_available_resource(nodename), "numa_topology": topology._to_json()}

    def spawn(self, *arguments: Any, **more: Any) -> Any:
        """Take the time that the settings say."""
        time.sleep(float(os.environ["LAB_SPAWN_SECONDS"]))
        return super().spawn(*arguments, **more)


def _cell(number: int, cpus: set[int], memory_mb: int) -> Any:
    pages = [objects.NUMAPagesTopology(size_kb=4, total=memory_mb * 256, used=0, reserved=0)]
    nothing: dict[str, Any] = {"pinned_cpus": set(), "cpu_usage": 0, "memory_usage": 0}
    siblings = [{cpu} for cpu in cpus]
    return objects.NUMACell(
        id=number, cpuset=cpus, pcpuset=set(), memory=memory_mb, siblings=siblings, mempages=pages, socket=0, **nothing
    )
