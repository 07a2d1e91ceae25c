"""A Roost of its own in front of the lab's Nova, with its plug-in in the lab's nova-scheduler."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import openstack
import yaml

from lab import control, tenants
from lab.settings import Settings
from roost.store import schema
from roost.store.embedded import EmbeddedPostgres

FILTER = "roost.nova.ScopedGroupFilter"
WEIGHER = "roost.nova.ScopedGroupWeigher"

_CONFIG = """
[api]
listen = 127.0.0.1:{port}
[auth]
strategy = keystone
[keystone_authtoken]
auth_type = password
auth_url = {auth_url}
www_authenticate_uri = {auth_url}
username = {username}
password = {password}
project_name = service
user_domain_id = default
project_domain_id = default
[clusters]
cloud = openstack
os_cloud = roost
[groups]
follow_seconds = 1
audit_seconds = 5
[notifications]
driver = messagingv2
transport_url = {message_bus}
topic = {topic}
[log]
format = json
"""

_NOVA_CONF = """
[roost]
url = http://127.0.0.1:{port}
auth_type = password
auth_url = {auth_url}
username = nova
password = lab
project_name = service
user_domain_name = Default
project_domain_name = Default
on_failure = {on_failure}
"""


@dataclass
class Front:
    """Roost's API and engine, as processes."""

    lab: Settings
    folder: Path
    port: int
    topic: str
    _processes: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    @property
    def compute(self) -> str:
        """The address that clients use instead of Nova's."""
        return f"http://127.0.0.1:{self.port}/compute/v2.1"

    def start(self) -> None:
        """Start the API and the engine, and wait until requests are answered."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("OS_", "ROOST_"))}
        environment["OS_CLIENT_CONFIG_FILE"] = str(self.folder / "clouds.yaml")
        for part in ("api", "engine"):
            log = (self.folder / f"{part}.log").open("ab")
            command = [sys.executable, "-m", "roost", part, "--config", str(self.folder / "roost.conf")]
            self._processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment))
        until = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthcheck", timeout=1).close()
                return
            except OSError:
                if time.monotonic() > until or any(process.poll() is not None for process in self._processes):
                    raise AssertionError((self.folder / "api.log").read_text()[-3000:]) from None
                time.sleep(0.1)

    def stop(self) -> None:
        """End both."""
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            process.wait(30)
        self._processes.clear()

    def plug_in(self, on_failure: str = "refuse", **more: Any) -> None:
        """Let the lab's nova-scheduler load the filter and the weigher."""
        conf = self.folder / "nova-roost.conf"
        conf.write_text(_NOVA_CONF.format(port=self.port, auth_url=self.lab.auth_url, on_failure=on_failure))
        restart_scheduler(replace(self.lab, filters=FILTER, weighers=WEIGHER, nova_conf=str(conf), **more))

    def connect(self, auth: Mapping[str, str]) -> Any:
        """openstacksdk as somebody, with Roost in Nova's place."""
        return openstack.connect(
            load_yaml_config=False,
            load_envvars=False,
            region_name="RegionOne",
            auth=dict(auth),
            compute_endpoint_override=self.compute,
        )


def restart_scheduler(lab: Settings) -> None:
    """Start nova-scheduler again with these settings, and wait until it takes requests."""
    compute = tenants.connect(lab).compute

    def signs_of_life() -> dict[str, str]:
        return {row.id: row.updated_at for row in compute.services(binary="nova-scheduler") if row.state == "up"}

    control.restart(lab, ["nova-scheduler"])
    before, until = signs_of_life(), time.monotonic() + 120
    while not set(signs_of_life().items()) - set(before.items()):
        assert time.monotonic() < until, "nova-scheduler does not start"
        time.sleep(0.5)


@contextmanager
def standing(lab: Settings, folder: Path, service: Mapping[str, str]) -> Iterator[Front]:
    """A Roost on a database of its own; `service` says how it signs in."""
    folder.mkdir(parents=True, exist_ok=True)
    postgres = EmbeddedPostgres(folder / "postgres", {"fsync": "off"})
    postgres.start()
    schema.upgrade(postgres.url)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        front = Front(lab, folder, probe.getsockname()[1], f"roost_{secrets.token_hex(4)}")
    own = _CONFIG.format(
        port=front.port,
        auth_url=lab.auth_url,
        username=service["username"],
        password=service["password"],
        message_bus=lab.message_bus,
        topic=front.topic,
    )
    (folder / "roost.conf").write_text(f"[database]\nurl = {postgres.url}\n{own}")
    cloud = {"auth": dict(service), "region_name": "RegionOne", "compute_endpoint_override": lab.url("nova") + "/v2.1"}
    (folder / "clouds.yaml").write_text(yaml.safe_dump({"clouds": {"roost": cloud}}))
    try:
        front.start()
        yield front
    finally:
        front.stop()
        postgres.stop()
