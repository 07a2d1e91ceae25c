"""A Roost of its own in front of the lab's Nova, with its plug-in in the lab's nova-scheduler."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import openstack

from lab import control, tenants
from lab.settings import Settings
from roost.store import schema
from roost.store.embedded import EmbeddedPostgres
from tests.lab.deployment import Deployment, until

FILTER = "roost_nova.ScopedGroupFilter"
WEIGHER = "roost_nova.ScopedGroupWeigher"

_MORE = """topic = {topic}
[groups]
follow_seconds = 1
audit_seconds = 5
"""

_NOVA_CONF = """
[roost]
url = {url}
auth_type = password
auth_url = {auth_url}
username = nova
password = lab
project_name = service
user_domain_name = Default
project_domain_name = Default
on_failure = {on_failure}
time_limit = {time_limit}
"""


class Front(Deployment):
    """Roost's API and an engine in front of the lab's Nova."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.topic = f"roost_{secrets.token_hex(4)}"
        self.config.write_text(self.config.read_text() + _MORE.format(topic=self.topic))

    def begin(self) -> None:
        """Start the API and the engine."""
        self.start_api()
        self.start("engine")

    def plug_in(self, on_failure: str = "refuse", time_limit: int = 60, **more: Any) -> None:
        """Let the lab's nova-scheduler load the filter and the weigher."""
        conf = self.folder / "nova-roost.conf"
        given = {"on_failure": on_failure, "time_limit": time_limit}
        conf.write_text(_NOVA_CONF.format(url=self.url, auth_url=self.lab.auth_url, **given))
        settings = {"filters": FILTER, "weighers": WEIGHER, "nova_conf": str(conf), **more}
        restart_scheduler(replace(self.lab, **settings))

    def connect(self, auth: Mapping[str, str]) -> Any:
        """openstacksdk as somebody, with Roost in Nova's place."""
        return connect(auth, compute_endpoint_override=f"{self.url}/compute/v2.1")


def connect(auth: Mapping[str, str], **more: Any) -> Any:
    """openstacksdk as somebody."""
    settings = {"load_yaml_config": False, "load_envvars": False, "region_name": "RegionOne", **more}
    return openstack.connect(auth=dict(auth), **settings)


def restart_scheduler(lab: Settings) -> None:
    """Start nova-scheduler again with these settings, and wait until it takes requests."""
    compute = tenants.connect(lab).compute

    def signs_of_life() -> dict[str, str]:
        return {row.id: row.updated_at for row in compute.services(binary="nova-scheduler") if row.state == "up"}

    control.restart(lab, ["nova-scheduler"])
    before = set(signs_of_life().items())
    until(lambda: set(signs_of_life().items()) - before)


@contextmanager
def standing(lab: Settings, folder: Path, service: Mapping[str, str]) -> Iterator[Front]:
    """A Roost on its own database; `service` says how it signs in."""
    folder.mkdir(parents=True, exist_ok=True)
    postgres = EmbeddedPostgres(folder / "postgres", {"fsync": "off"})
    postgres.start()
    try:
        schema.upgrade(postgres.url)
        front = Front(lab, folder, postgres.url, service)
        front.begin()
        try:
            yield front
        finally:
            front.stop()
    finally:
        postgres.stop()


@dataclass
class Person:
    """Somebody who uses the cloud through Roost; where their servers really are is read from Nova, as its admin."""

    connection: Any
    admin: Any
    _groups: list[str] = field(default_factory=list)

    def ask(self, method: str, path: str, body: Any = None, *, version: str = "2.1003") -> Any:
        """One request to the compute API: the answer's status and body."""
        response = self.connection.compute.request(path, method, json=body, microversion=version, raise_exc=False)
        return response.status_code, response.json() if response.content else None

    def await_scopes(self, wanted: Mapping[str, Mapping[str, Sequence[str]]]) -> None:
        """Wait until Roost has heard of all aggregates."""

        def known() -> set[str]:
            return {scope["name"] for scope in self.ask("GET", "/os-policy-scopes")[1]["policy_scopes"]}

        until(lambda: known() >= wanted.keys())

    def group(self, *policies: str) -> str:
        """A server group with these policies."""
        body = {"server_group": {"name": "group", "policies": list(policies)}}
        status, answer = self.ask("POST", "/os-server-groups", body, version="2.1002")
        assert status == 200, answer
        self._groups.append(answer["server_group"]["id"])
        return self._groups[-1]

    def begin(self, group: str | None = None, flavor: str = "m1.lab", **more: Any) -> str:
        """Ask for a server; its id."""
        compute = self.connection.compute
        hints = {"scheduler_hints": {"group": group}} if group else {}
        given = {"name": "server", "networks": "none", **hints, **more}
        image, size = self.connection.image.find_image(tenants.IMAGE), compute.find_flavor(flavor)
        made = compute.create_server(image_id=image.id, flavor_id=size.id, **given)
        return str(made.id)

    def settled(self, server: str) -> Any:
        """A server as Nova's admin sees it, once it is neither being made nor moved."""

        def at_rest() -> Any:
            found = self.admin.compute.get_server(server)
            rests = found.status in ("ACTIVE", "ERROR", "VERIFY_RESIZE", "SHELVED_OFFLOADED") and not found.task_state
            return found if rests else None

        return until(at_rest)

    def boot(self, group: str | None = None, **more: Any) -> str:
        """A server that runs."""
        server = self.begin(group, **more)
        found = self.settled(server)
        assert found.status == "ACTIVE", found.fault
        return server

    def host(self, server: str) -> str:
        """Where a server really is."""
        return str(self.settled(server).compute_host)

    def hosts(self, servers: Sequence[str]) -> list[str]:
        """Where servers really are."""
        return [self.host(server) for server in servers]

    def delete(self, server: str) -> None:
        """Delete a server, and wait until Nova has."""
        there = self.admin.compute.get_server(server)
        self.connection.compute.delete_server(server)
        self.admin.compute.wait_for_delete(there, interval=0.3, wait=300)

    def violations(self, group: str) -> list[Any]:
        """The broken rules of a group, as soon as Roost sees any."""

        def broken() -> Any:
            status, answer = self.ask("GET", f"/os-server-groups/{group}/audit")
            return answer["server_group_policy_audit"]["violations"] if status == 200 else None

        return list(until(broken))

    def clean_up(self) -> None:
        """Delete everything."""
        compute = self.connection.compute
        left = list(compute.servers(details=False))
        for server in left:
            compute.delete_server(server.id, ignore_missing=True)
        for server in left:
            compute.wait_for_delete(server, interval=0.3, wait=300)
        while self._groups:
            self.ask("DELETE", f"/os-server-groups/{self._groups.pop()}")


def part(scopes: Mapping[str, Sequence[str]], host: str) -> str:
    """The aggregate of a scope that a host is in."""
    return next(name for name, hosts in scopes.items() if host in hosts)
