"""Nova's fake hypervisor as the lab wants it: with a capacity of choice, and alive after a restart.

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

    def spawn(self, *arguments: Any, **more: Any) -> Any:
        """Take the time that the settings say."""
        time.sleep(float(os.environ["LAB_SPAWN_SECONDS"]))
        return super().spawn(*arguments, **more)
