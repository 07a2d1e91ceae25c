"""A crowd: 30 servers of one group, 8 at a time, on 30 hosts; with the plug-in, and with Nova alone."""

import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from lab import control, tenants
from lab.settings import Settings
from tests.lab.front import Front, Person, restart_scheduler
from tests.lab.test_plugin_rules import straight_to_nova

SERVERS, AT_ONCE = 30, 8


@pytest.fixture
def many_hosts(lab: Settings) -> Iterator[None]:
    """As many hosts as servers; those beyond the usual ones are taken out of Nova afterwards."""
    control.restart(replace(lab, hosts=SERVERS), ["computes"])
    yield
    control.restart(lab, ["computes"])
    compute = tenants.connect(lab).compute
    for service in list(compute.services(binary="nova-compute")):
        number = int(service.host.rpartition("-")[2])
        if number > lab.hosts:
            compute.delete_service(service)
            shutil.rmtree(lab.dir / "nova" / f"host-{number}")


def race(person: Person, group: str) -> tuple[Counter[str], list[str]]:
    """Ask for all servers; how they ended, and where those are that run."""
    with ThreadPoolExecutor(AT_ONCE) as people:
        servers = list(people.map(lambda _: person.begin(group), range(SERVERS)))
    found = [person.settled(server) for server in servers]
    return Counter(each.status for each in found), [each.compute_host for each in found if each.status == "ACTIVE"]


def test_a_crowd_that_asks_at_once_finds_a_host_each(
    lab: Settings, front: Front, many_hosts: None, somebody: Person, capsys: pytest.CaptureFixture[str]
) -> None:
    restart_scheduler(lab)
    alone = straight_to_nova(somebody)
    group = alone.connection.compute.create_server_group(name="crowd", policy="anti-affinity")
    stock, _ = race(alone, group.id)
    alone.clean_up()
    alone.connection.compute.delete_server_group(group)
    front.plug_in()
    ended, hosts = race(somebody, somebody.group("anti-affinity"))
    with capsys.disabled():
        print(
            f"\n{SERVERS} servers, {AT_ONCE} at a time: "
            f"{stock['ERROR']} ERROR with Nova alone, {ended['ERROR']} with Roost"
        )
    assert ended == {"ACTIVE": SERVERS}
    assert len(set(hosts)) == SERVERS
