"""`openstack cluster policy attach, detach, binding ...`: which policies govern a cluster."""

import argparse
from typing import Any, ClassVar

from roost.osc import commands
from roost.osc.commands import WAIT, Command, Lister, One, Options, ShowOne, Table, boolean_option, listing, option


class _Binding(Command):
    """A command that starts an action on a cluster and one policy."""

    options: ClassVar[Options] = (
        option("--policy", metavar="<policy>", required=True, help="ID or name of policy"),
        option("cluster", metavar="<cluster>", help="Name or ID of cluster"),
        WAIT,
    )

    def start(self, given: argparse.Namespace) -> Any:
        """Ask for the action."""
        raise NotImplementedError

    def take_action(self, given: argparse.Namespace) -> None:
        action = commands.accepted(self.start(given))
        self.app.stdout.write(f"Request accepted by action: {action}\n")
        if given.wait:
            commands.await_action(self.clustering, action)


class ClusterPolicyAttach(_Binding):
    """Attach policy to cluster."""

    options = (boolean_option("--enabled", default=True, help="Whether it governs at once"),)

    def start(self, given: argparse.Namespace) -> Any:
        return self.clustering.attach_policy_to_cluster(given.cluster, given.policy, enabled=given.enabled)


class ClusterPolicyDetach(_Binding):
    """Detach policy from cluster."""

    def start(self, given: argparse.Namespace) -> Any:
        return self.clustering.detach_policy_from_cluster(given.cluster, given.policy)


class ClusterPolicyUpdate(_Binding):
    """Update a policy's properties on a cluster."""

    options = (boolean_option("--enabled", required=True, help="Whether it governs"),)

    def start(self, given: argparse.Namespace) -> Any:
        return self.clustering.update_cluster_policy(given.cluster, given.policy, enabled=given.enabled)


class ClusterPolicyList(Lister):
    """List policies from cluster."""

    options = (
        *listing("policies", all_projects=False, pages=False),
        option("cluster", metavar="<cluster>", help="Name or ID of cluster to query on"),
    )

    def take_action(self, given: argparse.Namespace) -> Table:
        cluster = self.clustering.get_cluster(given.cluster)
        found = self.clustering.cluster_policies(cluster.id, **commands.queries(given))
        columns = ["policy_id", "policy_name", "policy_type", "is_enabled"]
        return commands.listed(found, columns, () if given.full_id else ("policy_id",))


class ClusterPolicyShow(ShowOne):
    """Show a specific policy that is bound to the specified cluster."""

    options = (
        option("--policy", metavar="<policy>", required=True, help="ID or name of the policy"),
        option("cluster", metavar="<cluster>", help="ID or name of the cluster to query on"),
    )

    def take_action(self, given: argparse.Namespace) -> One:
        return commands.shown(self.clustering.get_cluster_policy(given.policy, given.cluster).to_dict())
