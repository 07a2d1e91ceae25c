"""Answers of every version, held against Nova 34's own JSON schemas: python -m tests.tempest.nova_schemas.

Nova's environment is .venv-nova, or that of the python that ROOST_NOVA_PYTHON names.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

from roost.compute.inventory import images
from tests.conftest import Served, serve

_ROOT = Path(__file__).parents[2]
_PYTHON = os.environ.get("ROOST_NOVA_PYTHON", str(_ROOT / ".venv-nova/bin/python"))
_VALIDATOR = str(Path(__file__).parent / "nova_validator.py")
_IMAGE = images.USUAL[0].id
NEWEST = 104


@dataclass
class Recorder:
    """An administrator who writes down what is answered, in one version at a time."""

    http: httpx.Client
    project: str
    minor: int = 1
    answers: list[tuple[str, str, int, Any]] = field(default_factory=list)

    def ask(self, method: str, path: str, body: Any = None, *, record: tuple[str, str] | None = None) -> Any:
        """One request, which must succeed; its answer is recorded as of this module and kind."""
        headers = {"OpenStack-API-Version": f"compute 2.{self.minor}"}
        response = self.http.request(method, f"/compute/v2.1{path}", json=body, headers=headers)
        assert response.is_success, f"2.{self.minor} {method} {path}: {response.text}"
        answer = response.json() if response.content else None
        if record is not None:
            self.answers.append((*record, self.minor, answer))
        return answer

    def record_all(self) -> None:
        """Every answer of this version that Nova has a schema for."""
        self._record_lists()
        self._record_group()
        self._record_server()
        self._record_aggregate()
        self._record_flavor()
        self._record_keypair()
        self._record_hosts()
        self._record_quotas()

    def _record_lists(self) -> None:
        for path, module, kind in (
            ("/os-availability-zone", "availability_zone", "index"),
            ("/os-availability-zone/detail", "availability_zone", "detail"),
            ("/os-migrations", "migrations", "index"),
            ("/limits", "limits", "index"),
            ("/os-services", "services", "index"),
            ("/flavors", "flavors", "index"),
            ("/flavors/detail", "flavors", "detail"),
        ):
            self.ask("GET", path, record=(module, kind))

    def _record_group(self) -> None:
        body: dict[str, Any] = {"name": "g", "policies": ["anti-affinity"]}
        if self.minor >= 64:
            body = {"name": "g", "policy": "anti-affinity", "rules": {"max_server_per_host": "2"}}
        made = self.ask("POST", "/os-server-groups", {"server_group": body}, record=("server_groups", "create"))
        path = f"/os-server-groups/{made['server_group']['id']}"
        self.ask("GET", path, record=("server_groups", "show"))
        self.ask("GET", "/os-server-groups", record=("server_groups", "index"))
        self.ask("DELETE", path)

    def _record_server(self) -> None:
        server: dict[str, Any] = {"name": "s", "flavorRef": "1", "imageRef": _IMAGE, "metadata": {"a": "b"}}
        if self.minor >= 37:
            server["networks"] = "auto"
        made = self.ask("POST", "/servers", {"server": server}, record=("servers", "create"))
        path = f"/servers/{made['server']['id']}"
        self._wait(path)
        self.ask("GET", path, record=("servers", "show"))
        self.ask("GET", "/servers", record=("servers", "index"))
        self.ask("GET", "/servers?limit=1", record=("servers", "index"))
        self.ask("GET", "/servers/detail", record=("servers", "detail"))
        self.ask("PUT", path, {"server": {"name": "t"}}, record=("servers", "update"))
        for metadata in ({"c": "d"}, {}):
            self.ask("POST", path + "/metadata", {"metadata": metadata}, record=("server_metadata", "create"))
        self.ask("GET", path + "/metadata", record=("server_metadata", "index"))
        self.ask("GET", path + "/metadata/a", record=("server_metadata", "show"))
        self.ask("PUT", path + "/metadata/a", {"meta": {"a": "e"}}, record=("server_metadata", "update"))
        self.ask("PUT", path + "/metadata", {"metadata": {"f": "g"}}, record=("server_metadata", "update_all"))
        actions = self.ask("GET", path + "/os-instance-actions", record=("instance_actions", "index"))
        request = actions["instanceActions"][0]["request_id"]
        self.ask("GET", f"{path}/os-instance-actions/{request}", record=("instance_actions", "show"))
        self.ask("POST", path + "/action", {"rebuild": {"imageRef": _IMAGE}}, record=("servers", "rebuild"))
        self._wait(path)
        self.ask("POST", path + "/action", {"migrate": None})
        self._wait(path, "VERIFY_RESIZE")
        self.ask("GET", path, record=("servers", "show"))
        self.ask("GET", "/os-migrations", record=("migrations", "index"))
        self.ask("DELETE", path)
        self._record_failure(server)

    def _record_failure(self, server: dict[str, Any]) -> None:
        """A server that finds no host has a fault."""
        wanted = {**server, "availability_zone": ":nowhere"}
        made = self.ask("POST", "/servers", {"server": wanted, "os:scheduler_hints": {"different_host": []}})
        path = f"/servers/{made['server']['id']}"
        self.ask("GET", path, record=("servers", "show"))
        self.ask("GET", "/servers/detail", record=("servers", "detail"))
        self.ask("DELETE", path)

    def _wait(self, path: str, status: str = "ACTIVE") -> None:
        for _ in range(600):
            shown = self.ask("GET", path)["server"]
            if shown["status"] == status and shown["OS-EXT-STS:task_state"] is None:
                return
            time.sleep(0.05)
        raise AssertionError(f"{path} does not become {status}")

    def _record_aggregate(self) -> None:
        made = self.ask("POST", "/os-aggregates", {"aggregate": {"name": "a"}}, record=("aggregates", "create"))
        path = f"/os-aggregates/{made['aggregate']['id']}"
        host = {"host": "host1"}
        self.ask("POST", path + "/action", {"add_host": host}, record=("aggregates", "add_host"))
        self.ask(
            "POST", path + "/action", {"set_metadata": {"metadata": {"k": "v"}}}, record=("aggregates", "set_metadata")
        )
        self.ask("GET", path, record=("aggregates", "show"))
        self.ask("GET", "/os-aggregates", record=("aggregates", "index"))
        self.ask("PUT", path, {"aggregate": {"name": "b"}}, record=("aggregates", "update"))
        self.ask("POST", path + "/action", {"remove_host": host}, record=("aggregates", "remove_host"))
        self.ask("DELETE", path)

    def _record_flavor(self) -> None:
        body = {"flavor": {"name": "f", "ram": 64, "vcpus": 1, "disk": 1, "os-flavor-access:is_public": False}}
        made = self.ask("POST", "/flavors", body, record=("flavors", "create"))
        path = f"/flavors/{made['flavor']['id']}"
        self.ask("GET", path, record=("flavors", "show"))
        if self.minor >= 55:
            self.ask("PUT", path, {"flavor": {"description": "d"}}, record=("flavors", "update"))
        specs = {"extra_specs": {"hw:cpu_policy": "shared"}}
        self.ask("POST", path + "/os-extra_specs", specs, record=("flavors_extraspecs", "create"))
        self.ask("GET", path + "/os-extra_specs", record=("flavors_extraspecs", "index"))
        access = {"addTenantAccess": {"tenant": self.project}}
        self.ask("POST", path + "/action", access, record=("flavor_access", "add_tenant_access"))
        self.ask("GET", path + "/os-flavor-access", record=("flavor_access", "index"))
        self.ask("DELETE", path)

    def _record_keypair(self) -> None:
        key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIK0wmN/Cr3JXqmLW7u+g9pTh+wyqDHpSQEIQczXkVx9q x"
        body = {"keypair": {"name": "k", "public_key": key}}
        self.ask("POST", "/os-keypairs", body, record=("keypairs", "create"))
        self.ask("GET", "/os-keypairs", record=("keypairs", "index"))
        self.ask("GET", "/os-keypairs/k", record=("keypairs", "show"))
        self.ask("DELETE", "/os-keypairs/k")

    def _record_hosts(self) -> None:
        listed = self.ask("GET", "/os-hypervisors", record=("hypervisors", "index"))["hypervisors"]
        self.ask("GET", "/os-hypervisors/detail", record=("hypervisors", "detail"))
        self.ask("GET", f"/os-hypervisors/{listed[0]['id']}", record=("hypervisors", "show"))
        if self.minor >= 33:
            self.ask("GET", "/os-hypervisors?limit=1", record=("hypervisors", "index"))
        if self.minor < 88:
            self.ask("GET", "/os-hypervisors/statistics", record=("hypervisors", "statistics"))
            self.ask("GET", f"/os-hypervisors/{listed[0]['id']}/uptime", record=("hypervisors", "uptime"))
        if self.minor < 53:
            self.ask("GET", "/os-hypervisors/host/search", record=("hypervisors", "search"))
            self.ask("GET", "/os-hypervisors/host/servers", record=("hypervisors", "servers"))
            body = {"host": "host1", "binary": "nova-compute"}
            self.ask("PUT", "/os-services/enable", body)
        else:
            self.ask("GET", "/os-hypervisors?with_servers=true", record=("hypervisors", "index"))
            service = self.ask("GET", "/os-services")["services"][0]["id"]
            self.ask("PUT", f"/os-services/{service}", {"status": "enabled"}, record=("services", "update"))

    def _record_quotas(self) -> None:
        path = f"/os-quota-sets/{self.project}"
        self.ask("GET", path, record=("quota_sets", "show"))
        self.ask("GET", path + "/defaults", record=("quota_sets", "defaults"))
        self.ask("GET", path + "/detail", record=("quota_sets", "detail"))
        self.ask("PUT", path, {"quota_set": {"instances": 50}}, record=("quota_sets", "update"))
        self.ask("GET", "/os-quota-class-sets/default", record=("quota_classes", "show"))
        body = {"quota_class_set": {"instances": 50}}
        self.ask("PUT", "/os-quota-class-sets/default", body, record=("quota_classes", "update"))


@contextmanager
def served() -> Iterator[Served]:
    """A cloud of two hosts, without the zones that the presets have."""
    with tempfile.TemporaryDirectory(prefix="roost-schemas-", ignore_cleanup_errors=True) as folder:
        topology = Path(folder) / "topology.yaml"
        topology.write_text(yaml.safe_dump({"hosts": [{"name": "host1"}, {"name": "host2"}]}))
        started = serve(Path(folder) / "data", "--topology", str(topology))
        try:
            yield started
        finally:
            started.process.terminate()
            started.process.wait(60)


def sign_in(cloud: Served) -> Recorder:
    """A recorder with the administrator's token."""
    auth = yaml.safe_load(cloud.clouds.read_text())["clouds"]["roost-admin"]["auth"]
    user = {"name": auth["username"], "password": auth["password"], "domain": {"id": "default"}}
    scope = {"project": {"name": auth["project_name"], "domain": {"id": "default"}}}
    body = {"auth": {"identity": {"methods": ["password"], "password": {"user": user}}, "scope": scope}}
    http = httpx.Client(base_url=cloud.url, timeout=60)
    answer = http.post("/identity/v3/auth/tokens", json=body)
    http.headers["X-Auth-Token"] = answer.headers["X-Subject-Token"]
    return Recorder(http, answer.json()["token"]["project"]["id"])


def main() -> int:
    """Record, validate, and say what differs."""
    found = subprocess.run([_PYTHON, _VALIDATOR, "versions"], check=True, capture_output=True, text=True)
    versions = sorted({max(minor, 1) for minor in json.loads(found.stdout.splitlines()[-1])} | {NEWEST})
    with served() as cloud:
        recorder = sign_in(cloud)
        for minor in versions:
            recorder.minor = minor
            recorder.record_all()
    lines = "".join(json.dumps(answer) + "\n" for answer in recorder.answers)
    judged = subprocess.run([_PYTHON, _VALIDATOR], input=lines, check=True, stdout=subprocess.PIPE, text=True)
    print(judged.stdout, end="")
    deviations = len(judged.stdout.splitlines())
    print(f"{len(recorder.answers)} answers in {len(versions)} versions: {deviations} deviate from Nova's schemas.")
    return 1 if deviations else 0


if __name__ == "__main__":
    sys.exit(main())
