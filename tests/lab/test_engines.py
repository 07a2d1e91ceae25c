"""Engines that die, nodes whose hosts die, and what Roost tells others of it: on real Nova and RabbitMQ."""

import time
from collections.abc import Iterator
from typing import Any

import kombu
import pytest

from lab import control
from lab.settings import Settings
from tests.lab.conftest import LabCluster
from tests.lab.deployment import Deployment, until
from tests.lab.test_driver import bring_back


@pytest.fixture
def one_engine(deployment: Deployment) -> Iterator[Deployment]:
    """The deployment, which has an engine again afterwards."""
    yield deployment
    if len(deployment.processes) < 2:
        deployment.start("engine")


@pytest.mark.parametrize("moment", [0.0, 1.0, 3.0])
def test_servers_that_a_dead_engine_asked_for_are_adopted(
    one_engine: Deployment, cluster: LabCluster, moment: float
) -> None:
    cluster.make(0)
    answer = cluster.clustering.scale_out_cluster(cluster.id, 6)
    servers = until(cluster.servers) if moment == 0.0 else []
    time.sleep(moment)
    one_engine.kill(one_engine.processes[-1])
    began = {server.id for server in servers} | {server.id for server in cluster.servers()}
    one_engine.start("engine")
    action = cluster.until(lambda: cluster.ended(answer["action"]))
    assert action.status == "SUCCEEDED", action.status_reason
    servers = cluster.servers()
    nodes = {node.id: node.physical_id for node in cluster.clustering.nodes(cluster_id=cluster.id)}
    assert began <= {server.id for server in servers}, "what was begun is kept"
    assert len(servers) == len(nodes) == 6
    assert {server.metadata["cluster_node_id"]: server.id for server in servers} == nodes
    assert {server.status for server in servers} == {"ACTIVE"}


def test_a_node_whose_host_died_is_made_anew_on_another(
    lab: Settings, deployment: Deployment, cluster: LabCluster, admin: Any
) -> None:
    cluster.make(1)
    [server] = cluster.servers()
    [service] = [each for each in admin.compute.services(binary="nova-compute") if each.host == server.compute_host]
    control.kill_host(lab, int(server.compute_host.removeprefix("fake-")))
    admin.compute.update_service_forced_down(service, forced=True)
    try:
        [node] = cluster.clustering.nodes(cluster_id=cluster.id)
        answer = cluster.clustering.recover_node(node.id, operation="RECREATE")
        action = cluster.until(lambda: cluster.ended(answer["action"]))
        assert action.status == "SUCCEEDED", action.status_reason
        [new] = cluster.servers()
        assert new.compute_host != server.compute_host
        assert new.status == "ACTIVE"
    finally:
        bring_back(lab, admin, service)


def test_a_change_of_a_group_is_told_on_the_real_broker(
    lab: Settings, deployment: Deployment, cluster: LabCluster
) -> None:
    """Roost's own groups, made through its compute API by a tenant of Keystone."""
    with kombu.Connection(lab.message_bus.replace("rabbit://", "amqp://")) as broker:
        exchange = kombu.Exchange("nova", "topic", durable=False)
        queue = kombu.Queue("roost-test", exchange, "versioned_notifications.info", durable=False, auto_delete=True)
        with broker.SimpleQueue(queue) as heard:
            override = f"{deployment.url}/compute/v2.1"
            body = {"server_group": {"name": "notified", "policy": "anti-affinity"}}
            made = cluster.cloud.compute.post(
                "/os-server-groups", json=body, microversion="2.64", endpoint_override=override
            )
            assert made.status_code == 200, made.text
            message = heard.get(timeout=60)
            message.ack()
    assert "server_group.create" in str(message.payload)
