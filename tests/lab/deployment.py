"""Roost as an operator runs it on an OpenStack: an API and engines, each a process, on a PostgreSQL."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from lab.settings import Settings

_OPTIONS = """
[api]
listen = 127.0.0.1:{port}
public_url = {url}
[auth]
strategy = keystone
[keystone_authtoken]
auth_type = password
auth_url = {auth_url}
www_authenticate_uri = {auth_url}
username = {username}
password = lab
project_name = service
user_domain_id = default
project_domain_id = default
memcached_servers = 127.0.0.1:{memcached}
service_token_roles = service
service_token_roles_required = true
token_cache_time = 10
[clusters]
cloud = openstack
os_cloud = roost
heartbeat = 0.5
dead_after = 3
health_interval_min = 1
[notifications]
driver = messagingv2
transport_url = {message_bus}
"""


@dataclass
class Deployment:
    """Where Roost's files are, and its processes."""

    lab: Settings
    folder: Path
    database_url: str
    auth: Mapping[str, str]
    processes: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def __post_init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.config = self.folder / "roost.conf"
        self.config.write_text(
            _OPTIONS.format(
                port=port,
                url=self.url,
                auth_url=self.lab.auth_url,
                username=self.auth["username"],
                memcached=self.lab.port("memcached"),
                message_bus=self.lab.message_bus,
            )
        )
        roost = {"auth": dict(self.auth), "region_name": "RegionOne"}
        everybody = {**yaml.safe_load(self.lab.clouds.read_text())["clouds"], "roost": roost}
        (self.folder / "clouds.yaml").write_text(yaml.safe_dump({"clouds": everybody}))

    @property
    def environment(self) -> dict[str, str]:
        """What every process of Roost gets."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("OS_", "ROOST_"))}
        return {
            **inherited,
            "ROOST_DATABASE_URL": self.database_url,
            "OS_CLIENT_CONFIG_FILE": str(self.folder / "clouds.yaml"),
        }

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """A `roost` command, to its end."""
        words = [sys.executable, "-m", "roost", *command, "--config", str(self.config)]
        return subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=120)

    def start(self, what: str) -> "subprocess.Popen[bytes]":
        """Another `roost api` or `roost engine`."""
        words = [sys.executable, "-m", "roost", what, "--config", str(self.config)]
        with (self.folder / f"{what}.log").open("ab") as log:
            process = subprocess.Popen(words, env=self.environment, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def start_api(self) -> None:
        """And wait until it answers."""
        process = self.start("api")
        for _ in range(1200):
            try:
                urllib.request.urlopen(f"{self.url}/healthcheck", timeout=2).close()
                return
            except OSError:
                assert process.poll() is None, self.log("api")
                time.sleep(0.1)
        raise AssertionError(self.log("api"))

    def kill(self, process: "subprocess.Popen[bytes]") -> None:
        """End a process as a power cut would."""
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.processes.remove(process)

    def stop(self) -> None:
        """End all of it."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(60)
        self.processes.clear()

    def log(self, what: str) -> str:
        """What the processes of one kind have said."""
        return (self.folder / f"{what}.log").read_text()


def until(true: Any, seconds: float = 300) -> Any:
    """What it returns once it is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := true():
            return found
        time.sleep(0.3)
    raise AssertionError("it did not come to pass in time")
