"""`roost demo`: a small world through the public API, with one broken rule and one refusal, and removed again."""

import subprocess
from typing import Any

import openstack
import pytest

from roost.cli import demo
from roost.client import Client
from tests.cli.test_main import roost
from tests.conftest import Served


@pytest.fixture
def connections(served: Served, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(served.clouds))
    return {cloud: openstack.connect(cloud=cloud) for cloud in ("roost", "roost-alt", "roost-admin")}


def run(served: Served, *options: str) -> "subprocess.CompletedProcess[str]":
    return roost("demo", "--data", str(served.folder), *options)


def test_it_has_all_that_it_promises_and_leaves_nothing(served: Served, connections: dict[str, Any]) -> None:
    theirs = Client(connections["roost"]).create_server_group("mine", [{"name": "affinity"}])
    made = run(served)
    assert made.returncode == 0, made.stderr
    for group in demo.GROUPS:
        client = Client(connections[group.cloud])
        found = client.find_server_group(demo.PREFIX + group.name)
        broken = client.audit(found.id).violations
        assert bool(broken) == (group.name == "pair"), group.name
        assert len(found.members) == sum(group.batches)
    (refused,) = connections["roost-alt"].compute.servers(status="ERROR")
    assert refused.name == "roost-demo-quorum-4"
    explained = Client(connections["roost-alt"]).explain_server(refused.id)
    assert explained is not None
    assert explained.verdict == "refused"
    for cluster in demo.CLUSTERS:
        found = connections[cluster.cloud].clustering.find_cluster(demo.PREFIX + cluster.name)
        assert (found.status, len(found.node_ids)) == ("ACTIVE", cluster.nodes)
        bound = connections[cluster.cloud].clustering.cluster_policies(found.id)
        assert {each.policy_name for each in bound} == {demo.PREFIX + name for name in cluster.policies}
    again = run(served)
    assert (again.returncode, again.stderr) == (
        1,
        "roost: The demo already exists: `roost demo --clean` removes it.\n",
    )
    assert run(served, "--clean").returncode == 0
    for connection in connections.values():
        assert [each.name for each in connection.compute.servers()] == []
        assert [each.name for each in connection.clustering.policies()] == []
        assert [each.name for each in connection.clustering.profiles()] == []
    assert [each.name for each in connections["roost"].compute.server_groups()] == ["mine"]
    assert run(served, "--clean").stdout == "".join(f"{cloud}: removed nothing\n" for cloud in connections)
    connections["roost"].compute.delete_server_group(theirs.id)


def test_without_a_roost_it_is_one_sentence(served: Served, tmp_path: Any) -> None:
    (tmp_path / "clouds.yaml").write_text(served.clouds.read_text().replace(served.url, "http://127.0.0.1:1"))
    done = roost("demo", "--data", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("roost: Roost cannot be asked: ")
