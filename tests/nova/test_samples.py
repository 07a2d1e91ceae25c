"""What Roost asks of a Nova in front of which it stands, answered with the samples that Nova's own tests hold it to.

`make nova-matrix` runs this for each release: `ROOST_NOVA` is the folder of its package, which has the samples. Without
one there is nothing to read.
"""

import json
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from roost.clouds.front import Front
from roost.clouds.nova import Answer, Nova
from roost.config import Settings
from roost.placement.fleet import Resources
from roost.placement.rules import Rule
from roost.store.database import Database
from roost.store.tables.compute import aggregates, hosts
from roost.store.tables.servers import server_groups

pytestmark = pytest.mark.skipif("ROOST_NOVA" not in os.environ, reason="no Nova is here: make nova-matrix")

ID = "11111111-2222-4333-8444-555555555555"
SAMPLES = {
    r"^GET /v2\.1/$": "versions/v21-version-get-resp",
    r"^GET /v2\.1/os-hypervisors/detail": "os-hypervisors/hypervisors-detail-resp",
    r"^GET /v2\.1/os-aggregates": "os-aggregates/aggregates-list-get-resp",
    r"^GET /v2\.1/os-server-groups\?": "os-server-groups/server-groups-list-resp",
    r"^GET /v2\.1/os-server-groups/": "os-server-groups/server-groups-get-resp",
    r"^POST /v2\.1/os-server-groups$": "os-server-groups/server-groups-post-resp",
    r"^GET /v2\.1/servers/detail": "servers/servers-details-resp",
    r"^GET /v2\.1/servers/[^/]+$": "servers/server-get-resp",
    r"^GET /v2\.1/servers/[^/]+/os-instance-actions/": "os-instance-actions/instance-action-get-resp",
    r"^GET /v2\.1/os-migrations": "os-migrations/migrations-get",
    r"^GET /v2\.1/flavors/": "flavors/flavor-get-resp",
}


def number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.removeprefix("v").split(".")))


class SampledNova:
    """Answers with samples, in the version asked for."""

    def __init__(self, package: Path) -> None:
        self.samples = package / "tests" / "functional" / "api_sample_tests" / "api_samples"
        text = (package / "api" / "openstack" / "api_version_request.py").read_text()
        found = re.search(r"^_MAX_API_VERSION = ['\"]([\d.]+)['\"]", text, re.MULTILINE)
        assert found is not None
        self.newest = found[1]
        self.sent: list[tuple[str, Any]] = []

    def sample(self, name: str, version: str) -> Any:
        """The newest one that is not newer than this."""
        folder, _, file = name.partition("/")
        there = [each.parent.name for each in (self.samples / folder).glob(f"v2.*/{file}.json.tpl")]
        fitting = sorted((each for each in there if number(each) <= number(version)), key=number)
        text = (self.samples / folder / (fitting[-1] if fitting else "") / f"{file}.json.tpl").read_text()
        values = {
            "isotime": "2026-11-16T00:00:00Z",
            "strtime": "2026-11-16T00:00:00.000000",
            "max_api_version": self.newest,
        }
        filled = re.sub(r"%\((\w+)\)s", lambda place: values.get(place[1], ID), text)
        return json.loads(filled)

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes | None) -> Answer:
        version = headers["OpenStack-API-Version"].removeprefix("compute ")
        assert number(version) <= number(self.newest), "Nova would answer 406"
        name = next(name for pattern, name in SAMPLES.items() if re.search(pattern, f"{method} {path}"))
        self.sent.append((f"{method} {path}", json.loads(body) if body else None))
        shown = self.sample(name, version)
        for server in shown.get("servers", [shown["server"]] if "server" in shown else []):
            # Some samples are those of tenants, who are not shown hosts.
            server.setdefault("OS-EXT-SRV-ATTR:host", ID)
        return Answer(200, {}, json.dumps(shown).encode())


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> SampledNova:
    sampled = SampledNova(Path(os.environ["ROOST_NOVA"]))

    async def send(self: Nova, method: str, path: str, headers: Any, body: bytes | None, **_: Any) -> Answer:
        return sampled.answer(method, path, headers, body)

    async def run(self: Nova, work: Any, threads: Any = None) -> Any:
        return work(SimpleNamespace(has_service=lambda name: False))

    monkeypatch.setattr(Nova, "_send", send)
    monkeypatch.setattr(Nova, "_run", run)
    return sampled


async def test_roost_announces_what_this_nova_has(release: SampledNova) -> None:
    assert number(release.newest) >= (2, 87)
    assert await Nova(None).newest_version() == release.newest


async def test_hosts_zones_and_groups_are_followed(
    release: SampledNova, database: Database, settings: Settings
) -> None:
    async with database.begin() as connection:
        await connection.execute(sa.text("TRUNCATE hosts, aggregates, server_groups CASCADE"))
    await Front(Nova(None), database, settings).follow()
    async with database.begin() as connection:
        [host] = (await connection.execute(sa.select(hosts))).all()
        [aggregate] = (await connection.execute(sa.select(aggregates))).all()
        [group] = (await connection.execute(sa.select(server_groups))).all()
    assert (host.name, host.enabled, host.forced_down, host.vcpus, host.memory_mb) == (ID, True, False, 2, 8192)
    assert (aggregate.availability_zone, host.availability_zone) == ("london", "london")
    assert group.id == ID
    found = await Nova(None).group(ID)
    assert found is not None
    assert found.rule == Rule.parse("anti-affinity", {"max_server_per_host": 3})


async def test_servers_tell_their_size_their_place_and_their_zone(release: SampledNova) -> None:
    nova = Nova(None)
    (server,), gone = await nova.servers(None)
    assert (server.id, server.resources, server.vm_state, server.settled) == (ID, Resources(1, 512, 1), "active", True)
    assert server.zone == ("us-west" if number(release.newest) >= (2, 96) else None)
    assert server.launched_at is not None
    assert gone == set()
    (again,), gone = await nova.servers_by_id([ID])
    assert again.id == ID
    assert again.host
    [known] = await nova.node_servers()
    assert (known.id, known.node_id) == (ID, None)


async def test_a_group_is_made_as_nova_wants_it(release: SampledNova) -> None:
    rules = [Rule.parse("anti-affinity:rack", {"max_server_per_aggregate": 2})]
    assert await Nova(None).create_group("token", "test", rules) == ID
    [(_, sent)] = release.sent
    wanted = release.sample("os-server-groups/server-groups-post-req", "2.87")
    assert sent["server_group"].keys() == wanted["server_group"].keys()
    assert sent["server_group"]["rules"] == {"max_server_per_host": 2}


async def test_migrations_and_what_became_of_them_are_read(release: SampledNova) -> None:
    assert await Nova(None).is_migrating(ID) in (True, False)
    assert await Nova(None).why_failed(ID, "req-1") is None
    flavor = await Nova(None).flavor("token", "1")
    assert min(flavor.vcpus, flavor.memory_mb, flavor.disk_gb) > 0
