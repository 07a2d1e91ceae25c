"""openstacksdk's own clustering proxy, against a Roost that is served."""

from collections.abc import Iterator
from typing import Any

import openstack
import pytest
import yaml
from openstack.clustering.v1.action import Action
from openstack.resource import Resource

from tests.conftest import Served

SPEC = {"type": "os.nova.server", "version": "1.0",
        "properties": {"flavor": "1", "image": "cirros-0.6.2-x86_64-disk"}}  # fmt: skip
DELETION = {"type": "senlin.policy.deletion", "version": "1.1", "properties": {"criteria": "OLDEST_FIRST"}}


@pytest.fixture(scope="module")
def proxy(served: Served) -> Iterator[Any]:
    """The proxy, signed in as the other project, so that other tests do not see what is made here."""
    entry = yaml.safe_load(served.clouds.read_text())["clouds"]["roost-alt"]
    access = {"load_yaml_config": False, "load_envvars": False, "clustering_default_microversion": "1.14", **entry}
    connection = openstack.connect(**access)
    yield connection.clustering
    connection.close()


def _done(proxy: Any, answer: Any) -> None:
    """Wait for the action that an answer names: by its id, by itself, or by what it was to make."""
    if isinstance(answer, Action):
        identifier = answer.id
    elif isinstance(answer, Resource):
        [identifier] = [action.id for action in proxy.actions(target=answer.id)]
    else:
        assert "action" in answer, answer
        identifier = answer["action"]
    action = proxy.get_action(identifier)
    proxy.wait_for_status(action, "SUCCEEDED", failures=["FAILED", "CANCELLED"], interval=0.1)


def test_the_whole_of_the_proxy(proxy: Any) -> None:
    assert proxy.get_build_info().engine["revision"]
    assert "os.nova.server" in {kind.name for kind in proxy.profile_types()}
    assert "senlin.policy.deletion" in {kind.name for kind in proxy.policy_types()}
    assert proxy.validate_profile(spec=SPEC).id is None
    profile = proxy.create_profile(name="sdk", spec=SPEC)
    policy = proxy.create_policy(name="sdk", spec=DELETION)
    cluster = proxy.create_cluster(name="sdk", profile_id=profile.id, desired_capacity=2, min_size=0, max_size=9)
    _done(proxy, cluster)
    assert proxy.get_cluster(cluster.id).status == "ACTIVE"
    _done(proxy, proxy.attach_policy_to_cluster(cluster, policy.id, enabled=True))
    [binding] = proxy.cluster_policies(cluster)
    assert binding.policy_id == policy.id
    _done(proxy, proxy.scale_out_cluster(cluster, 2))
    _done(proxy, proxy.scale_in_cluster(cluster, 1))
    _done(proxy, proxy.resize_cluster(cluster, adjustment_type="EXACT_CAPACITY", number=4))
    assert len(list(proxy.nodes(cluster_id=cluster.id))) == 4
    assert len(list(proxy.collect_cluster_attrs(cluster.id, "name"))) == 4
    _done(proxy, proxy.check_cluster(cluster))
    _done(proxy, proxy.recover_cluster(cluster, check=True))
    node = proxy.create_node(name="sdk", profile_id=profile.id)
    _done(proxy, node)
    _done(proxy, proxy.add_nodes_to_cluster(cluster, [node.id]))
    _done(proxy, proxy.remove_nodes_from_cluster(cluster, [node.id], destroy_after_deletion=False))
    _done(proxy, proxy.check_node(node))
    _done(proxy, proxy.perform_operation_on_node(node, "reboot", type="SOFT"))
    receiver = proxy.create_receiver(
        name="sdk", type="webhook", cluster_id=cluster.id, action="CLUSTER_SCALE_OUT", params={"count": 1}
    )
    assert receiver.channel["alarm_url"]
    assert proxy.find_cluster("sdk").id == cluster.id
    assert next(iter(proxy.events(cluster_id=cluster.id))).cluster_id == cluster.id
    proxy.delete_receiver(receiver)
    _done(proxy, proxy.detach_policy_from_cluster(cluster, policy.id))
    _done(proxy, proxy.delete_cluster(cluster.id))
    _done(proxy, proxy.delete_node(node.id))
    proxy.delete_policy(policy)
    proxy.delete_profile(profile)
    assert list(proxy.clusters()) == []
