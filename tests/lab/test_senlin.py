"""Clusters that a real Senlin made on the lab's Keystone and Nova, taken over and looked after by Roost."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.settings import Settings
from tests.lab import senlin
from tests.lab.conftest import ZONES, LabCluster, Tenant
from tests.lab.deployment import until
from tests.lab.front import Front, connect
from tests.lab.senlin import Senlin

pytestmark = pytest.mark.skipif(
    not (senlin.VENV / ".installed").exists(), reason="needs Senlin 16: make .venv-senlin-16/.installed"
)


@pytest.fixture
def old(lab: Settings, folders: Path) -> Iterator[Senlin]:
    with senlin.running(lab, folders / "senlin") as made:
        yield made


def in_senlin(old: Senlin, tenant: Tenant, admin: Any) -> LabCluster:
    """A cluster to be, of a tenant who uses Senlin."""
    return LabCluster(connect(tenant.access.auth, clustering_endpoint_override=old.url), admin=admin)


def test_clusters_of_senlin_are_taken_over_scaled_and_healed(
    old: Senlin, front: Front, tenant: Tenant, admin: Any, zones: object
) -> None:
    spread = in_senlin(old, tenant, admin).make(0)
    spread.attach("zone_placement", zones=[{"name": zone} for zone in ZONES])
    spread.attach("scaling", event="CLUSTER_SCALE_OUT", adjustment={"type": "CHANGE_IN_CAPACITY", "number": 2})
    spread.attach("deletion", criteria="OLDEST_FIRST")
    spread.attach(
        "health",
        "1.1",
        detection={"interval": 60, "node_update_timeout": 60, "detection_modes": [{"type": "NODE_STATUS_POLLING"}]},
        recovery={"actions": [{"name": "RECREATE"}]},
    )
    spread.do("scale_out_cluster", 3)
    apart = in_senlin(old, tenant, admin).make(0)
    apart.attach("affinity", servergroup={"name": "apart", "policies": "anti-affinity"})
    apart.do("scale_out_cluster", 3)
    before = {each.id: sorted(server.id for server in each.servers()) for each in (spread, apart)}
    assert [len(servers) for servers in before.values()] == [3, 3]

    early = front.run("import", "senlin", "--from", old.database)
    assert early.returncode != 0, "Senlin is still alive"
    old.stop()
    assert front.run("import", "groups").returncode == 0
    came = until(lambda: _imported(front, old), 240)
    assert came.count(": came") >= 14, came
    again = front.run("import", "senlin", "--from", old.database)
    assert (again.returncode, again.stdout.count(": came")) == (0, 0), again.stdout
    checked = front.run("import", "check")
    assert checked.returncode == 0, checked.stdout

    own = connect(tenant.access.auth, clustering_endpoint_override=f"{front.url}/clustering")
    spread.cloud = apart.cloud = own
    assert {each.id: sorted(server.id for server in each.servers()) for each in (spread, apart)} == before
    assert {node.status for node in own.clustering.nodes()} == {"ACTIVE"}

    spread.do("scale_out_cluster")
    assert len(spread.servers()) == 5, "the scaling policy says two more"
    for server in spread.servers():
        if server.id not in before[spread.id]:
            assert server.compute_host in ZONES[server.availability_zone]
    spread.do("scale_in_cluster", 1)
    gone = set(before[spread.id]) - {server.id for server in spread.servers()}
    assert len(gone) == 1, "the oldest goes first, and that is one of Senlin's"

    apart.do("scale_out_cluster", 3)
    assert Counter(apart.hosts()) == Counter({f"fake-{number}": 1 for number in range(1, 7)})
    lost = apart.servers()[0]
    admin.compute.delete_server(lost.id)
    admin.compute.wait_for_delete(lost, interval=0.3, wait=300)
    apart.do("check_cluster")
    apart.do("recover_cluster")
    assert len(set(apart.hosts())) == 6, "healed, on the host that was left"

    lost = spread.servers()[0]
    admin.compute.delete_server(lost.id)
    admin.compute.wait_for_delete(lost, interval=0.3, wait=300)
    until(lambda: len([server for server in spread.servers() if server.status == "ACTIVE"]) == 4, 240)
    for each in (spread, apart):
        each.delete()
    assert list(admin.network.ports(project_id=tenant.project_id)) == []


def _imported(front: Front, old: Senlin) -> str:
    """What came, as soon as Senlin counts as gone."""
    ran = front.run("import", "senlin", "--from", old.database)
    return ran.stdout if ran.returncode == 0 else ""
