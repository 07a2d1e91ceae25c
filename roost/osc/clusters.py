"""`openstack cluster ...`: clusters and what is done to them."""

import argparse
import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

from openstack import exceptions as sdk
from osc_lib.exceptions import CommandError

from roost.osc import commands
from roost.osc.commands import (
    FORCE,
    FULL_ID,
    NOTHING,
    WAIT,
    Command,
    Lister,
    One,
    Options,
    ShowOne,
    Table,
    Tending,
    boolean_option,
    listing,
    missing,
    one_of,
    option,
    pairs,
    pairs_option,
)
from roost.osc.nouns import ListNouns, NounCommand, ShowNoun

_CLUSTER = option("cluster", metavar="<cluster>", help="Name or ID of cluster")


class _Cluster(NounCommand):
    noun, plural, hidden = "cluster", "clusters", ("is_profile_only",)


class _Acting(_Cluster, ShowOne):
    """A command that starts an action and may wait for it."""

    options: ClassVar[Options] = (_CLUSTER, WAIT)

    def start(self, given: argparse.Namespace) -> Any:
        """Ask for the action."""
        raise NotImplementedError

    def take_action(self, given: argparse.Namespace) -> One:
        try:
            action = commands.accepted(self.start(given))
        except sdk.NotFoundException:
            raise missing("Cluster", given.cluster) from None
        self.app.stdout.write(f"Request accepted by action: {action}\n")
        if not given.wait:
            return NOTHING
        commands.await_action(self.clustering, action)
        return self.shown(given.cluster)


class ListCluster(_Cluster, ListNouns):
    """List clusters."""

    options = listing("clusters")
    columns = ("id", "name", "status", "created_at", "updated_at")


class ShowCluster(_Cluster, ShowNoun):
    """Show details of the cluster."""

    options = (option("cluster", metavar="<cluster>", help="Name or ID of cluster to show"),)


class CreateCluster(_Cluster, ShowOne):
    """Create the cluster."""

    options = (
        pairs_option("--config", "Configuration of the cluster"),
        option("--min-size", metavar="<min-size>", default=0, help="Min size of the cluster (0)"),
        option("--max-size", metavar="<max-size>", default=-1, help="Max size (-1: unlimited)"),
        option("--desired-capacity", metavar="<desired-capacity>", help="Number of nodes (min size)"),
        option("--timeout", metavar="<timeout>", type=int, help="Creation timeout in seconds"),
        pairs_option("--metadata", "Metadata values to be attached to the cluster"),
        option("--profile", metavar="<profile>", required=True, help="Name or ID of its profile"),
        option("name", metavar="<cluster-name>", help="Name of the cluster to create"),
        WAIT,
    )

    def take_action(self, given: argparse.Namespace) -> One:
        desired = given.min_size if given.desired_capacity is None else given.desired_capacity
        cluster = self.clustering.create_cluster(
            name=given.name,
            profile_id=given.profile,
            min_size=given.min_size,
            max_size=given.max_size,
            desired_capacity=desired,
            config=pairs(given.config),
            metadata=pairs(given.metadata),
            timeout=given.timeout,
        )
        if given.wait:
            commands.await_latest_action(self.clustering, cluster.id)
        return self.shown(cluster.id)


class UpdateCluster(_Cluster, ShowOne):
    """Update the cluster."""

    options = (
        pairs_option("--config", "Configuration of the cluster; '{}' empties it"),
        option("--profile", metavar="<profile>", help="ID or name of new profile to use"),
        boolean_option("--profile-only", default=False, help="Only new nodes get the new profile"),
        option("--timeout", metavar="<timeout>", help="New timeout in seconds"),
        pairs_option("--metadata", "Metadata values to be attached to the cluster; '{}' empties it"),
        option("--name", metavar="<name>", help="New name for the cluster"),
        option("cluster", metavar="<cluster>", help="Name or ID of cluster to be updated"),
        WAIT,
    )

    def take_action(self, given: argparse.Namespace) -> One:
        cluster = self.get(given.cluster)
        wanted: dict[str, Any] = {"name": given.name, "profile_id": given.profile, "timeout": given.timeout}
        changed = {key: value for key, value in wanted.items() if value is not None}
        changed |= {key: pairs(getattr(given, key)) for key in ("config", "metadata") if getattr(given, key)}
        if given.profile:
            changed["is_profile_only"] = given.profile_only
        self.clustering.update_cluster(cluster, **changed)
        if given.wait:
            commands.await_latest_action(self.clustering, cluster.id)
        return self.shown(cluster.id)


class DeleteCluster(Command):
    """Delete the cluster(s)."""

    options = (
        option("cluster", metavar="<cluster>", nargs="+", help="Name or ID of cluster(s) to delete"),
        option("--force-delete", action="store_true", help="Delete them whatever else is going on"),
        FORCE,
        WAIT,
    )

    def take_action(self, given: argparse.Namespace) -> None:
        commands.confirm(given, "cluster")
        actions: list[str] = []

        def delete(name: str) -> str:
            action = self.clustering.delete_cluster(name, ignore_missing=False, force_delete=given.force_delete)
            actions.append(action.id)
            return f" {name}: accepted by action {action.id}"

        commands.each(given.cluster, "cluster", delete, self.app.stdout.write)
        for action_id in actions if given.wait else ():
            commands.await_action(self.clustering, action_id)


def resize_request(given: argparse.Namespace) -> dict[str, Any]:
    """What the options of a resize come to; raises where they contradict each other."""
    ways = [
        ("EXACT_CAPACITY", given.capacity),
        ("CHANGE_IN_CAPACITY", given.adjustment),
        ("CHANGE_IN_PERCENTAGE", given.percentage),
    ]
    chosen = [(kind, number) for kind, number in ways if number is not None]
    if len(chosen) > 1:
        raise CommandError("Only one of 'capacity', 'adjustment' and 'percentage' can be specified.")
    if not chosen and given.min_size is None and given.max_size is None:
        raise CommandError("At least one parameter of 'capacity', 'adjustment' and 'percentage' should be specified.")
    kind, number = chosen[0] if chosen else (None, None)
    if kind == "EXACT_CAPACITY" and number is not None and number < 0:
        raise CommandError("Cluster capacity must be larger than or equal to zero.")
    if kind in ("CHANGE_IN_CAPACITY", "CHANGE_IN_PERCENTAGE") and number == 0:
        raise CommandError(f"{'Adjustment' if kind == 'CHANGE_IN_CAPACITY' else 'Percentage'} cannot be zero.")
    if given.min_step is not None and kind != "CHANGE_IN_PERCENTAGE":
        raise CommandError("Min step is only used with percentage.")
    _check_bounds(given.min_size, given.max_size, number if kind == "EXACT_CAPACITY" else None)
    return {
        "adjustment_type": kind,
        "number": number,
        "min_size": given.min_size,
        "max_size": given.max_size,
        "min_step": given.min_step,
        "strict": given.strict,
    }


def _check_bounds(least: int | None, most: int | None, capacity: int | None) -> None:
    if least is not None and least < 0:
        raise CommandError("Min size cannot be less than zero.")
    if least is not None and most is not None and 0 <= most < least:
        raise CommandError("Min size cannot be larger than max size.")
    if capacity is not None and least is not None and least > capacity:
        raise CommandError("Min size cannot be larger than the specified capacity")
    if capacity is not None and most is not None and 0 <= most < capacity:
        raise CommandError("Max size cannot be less than the specified capacity.")


RESIZE = (
    option("--capacity", metavar="<capacity>", type=int, help="The number of nodes wanted"),
    option("--adjustment", metavar="<adjustment>", type=int, help="How many nodes more, or, negative, less"),
    option("--percentage", metavar="<percentage>", type=float, help="The same in per cent"),
    option("--min-step", metavar="<min-step>", type=int, help="At least so many nodes, with --percentage"),
    option("--strict", action="store_true", help="Do nothing rather than stop at the bounds"),
    option("--min-size", metavar="min", type=int, help="New lower bound of cluster size"),
    option("--max-size", metavar="max", type=int, help="New upper bound of cluster size; -1 for none"),
)


class ResizeCluster(_Acting):
    """Resize the cluster."""

    options = (*RESIZE,)

    def start(self, given: argparse.Namespace) -> Any:
        return self.clustering.resize_cluster(given.cluster, **resize_request(given))


class _Scaling(_Acting):
    options: ClassVar[Options] = (option("--count", metavar="<count>", help="Number of nodes"),)


class ScaleOutCluster(_Scaling):
    """Scale out a cluster by the specified number of nodes."""

    def start(self, given: argparse.Namespace) -> Any:
        return self.clustering.scale_out_cluster(given.cluster, given.count)


class ScaleInCluster(_Scaling):
    """Scale in a cluster by the specified number of nodes."""

    def start(self, given: argparse.Namespace) -> Any:
        return self.clustering.scale_in_cluster(given.cluster, given.count)


class ClusterNodeAdd(_Acting):
    """Add specified nodes to cluster."""

    options = (option("--nodes", metavar="<nodes>", required=True, help="Names or IDs, separated by commas"),)

    def start(self, given: argparse.Namespace) -> Any:
        return self.clustering.add_nodes_to_cluster(given.cluster, given.nodes.split(","))


class ClusterNodeDel(_Acting):
    """Delete specified nodes from cluster."""

    options = (
        option("--nodes", metavar="<nodes>", required=True, help="Names or IDs, separated by commas"),
        boolean_option(
            "-d", "--destroy-after-deletion", default=False, help="Whether the nodes are also deleted (false)"
        ),
    )

    def start(self, given: argparse.Namespace) -> Any:
        destroy = {"destroy_after_deletion": given.destroy_after_deletion}
        return self.clustering.remove_nodes_from_cluster(given.cluster, given.nodes.split(","), **destroy)


class ClusterNodeReplace(_Acting):
    """Replace specified nodes in cluster."""

    options = (
        option("--nodes", metavar="<OLD_NODE1=NEW_NODE1>", required=True, action="append", help="Which node by which"),
    )

    def start(self, given: argparse.Namespace) -> Any:
        return self.clustering.replace_nodes_in_cluster(given.cluster, pairs(given.nodes))


class ClusterNodeList(Lister):
    """List nodes from cluster."""

    options = (
        *listing("nodes", all_projects=False),
        option("cluster", metavar="<cluster>", help="Name or ID of cluster to nodes from"),
    )

    def take_action(self, given: argparse.Namespace) -> Table:
        found = self.clustering.nodes(cluster_id=given.cluster, **commands.queries(given))
        columns = ["id", "name", "index", "status", "physical_id", "created_at"]
        return commands.listed(found, columns, () if given.full_id else ("id", "physical_id"))


class ClusterOp(_Acting):
    """Perform an operation on all nodes across a cluster."""

    options = (
        option("--operation", metavar="<operation>", required=True, help="Operation to be performed"),
        pairs_option("--params", "Parameters of the operation"),
    )

    def start(self, given: argparse.Namespace) -> Any:
        return self.clustering.perform_operation_on_cluster(given.cluster, given.operation, **pairs(given.params))


class _Tending(Tending, _Cluster, Lister):
    options: ClassVar[Options] = (
        option("cluster", metavar="<cluster>", nargs="+", help="ID or name of cluster(s)"),
        WAIT,
    )

    def take_action(self, given: argparse.Namespace) -> Table:
        actions = self.start_all(given)
        if not given.wait:
            return (), ()
        for action in actions.values():
            commands.await_action(self.clustering, action)
        columns = ["ID", "Name", "Status", "Status Reason"]
        found = map(self.get, actions)
        return columns, [(each.id, each.name, each.status, each.status_reason) for each in found]


class CheckCluster(_Tending):
    """Check the cluster(s)."""

    verb = "check"

    def start(self, name: str, given: argparse.Namespace) -> Any:
        return self.clustering.check_cluster(name)


class RecoverCluster(_Tending):
    """Recover the cluster(s)."""

    verb = "recover"

    options = (boolean_option("--check", default=False, help="Check the nodes first (false)"),)

    def start(self, name: str, given: argparse.Namespace) -> Any:
        return self.clustering.recover_cluster(name, check=given.check)


class ClusterCollect(Lister):
    """Collect attributes across a cluster."""

    options = (
        FULL_ID,
        option("--path", metavar="<path>", required=True, help="JSON path of what is to be collected"),
        option("cluster", metavar="<cluster>", help="ID or name of cluster"),
    )

    def take_action(self, given: argparse.Namespace) -> Table:
        found = self.clustering.collect_cluster_attrs(given.cluster, given.path)
        return commands.listed(found, ["node_id", "attr_value"], () if given.full_id else ("node_id",))


class PlanCluster(ShowOne):
    """Say what an action would do to a cluster, and do nothing: what each policy decides, and which nodes follow."""

    options = (
        *RESIZE,
        one_of(
            option("--expand", metavar="<count>", type=int, help="Plan to scale out by so many nodes"),
            option("--shrink", metavar="<count>", type=int, help="Plan to scale in by so many nodes"),
            option("--action", metavar="<json>", help="Plan any action, such as '{\"del_nodes\": {...}}'"),
        ),
        option("cluster", metavar="<cluster>", help="Name or ID of cluster"),
    )

    def take_action(self, given: argparse.Namespace) -> One:
        plan = self.roost.plan_cluster(given.cluster, self._request(given))
        steps = [
            " ".join(
                [each["action"], each["node"], *(f"{key} {value}" for key, value in each.get("placement", {}).items())]
            )
            for each in plan["steps"]
        ]
        policies = [f"{each['policy']} ({each['type']}): {json.dumps(each['decision'])}" for each in plan["policies"]]
        columns = ("sentence", "accepted", "policies", "steps", "size", "distribution", "warnings")
        return columns, (
            plan["sentence"], plan["accepted"], commands.cell(policies), commands.cell(steps),
            commands.cell(plan["size"]), commands.cell(plan["distribution"]), commands.cell(plan["warnings"]),
        )  # fmt: skip

    def _request(self, given: argparse.Namespace) -> dict[str, Any]:
        if given.expand is not None:
            return {"scale_out": {"count": given.expand}}
        if given.shrink is not None:
            return {"scale_in": {"count": given.shrink}}
        if given.action is None:
            return {"resize": {key: value for key, value in resize_request(given).items() if value is not None}}
        try:
            action: dict[str, Any] = json.loads(given.action)
        except ValueError as error:
            raise CommandError(f"The action is not JSON: {error}") from None
        return action


class ClusterRun(Command):
    """Run scripts on cluster."""

    options = (
        option("--port", metavar="<port>", type=int, default=22, help="The TCP port of SSH (22)"),
        option("--address-type", metavar="<address_type>", default="floating", help="fixed or floating"),
        option("--network", metavar="<network>", default="", help="The network to use"),
        option("--ipv6", action="store_true", help="Use the IPv6 address"),
        option("--user", metavar="<user>", default="root", help="The login name (root)"),
        option("--identity-file", metavar="<identity_file>", help="The private key file, as ssh -i"),
        option("--ssh-options", metavar="<ssh_options>", default="", help="Extra options to pass to SSH"),
        option("--script", metavar="<script>", required=True, help="Path of the script file to run"),
        option("cluster", metavar="<cluster>", help="ID or name of cluster, or user@cluster"),
    )

    def take_action(self, given: argparse.Namespace) -> None:
        user, at, name = given.cluster.rpartition("@")
        given.user = user if at else given.user
        try:
            found = list(self.clustering.collect_cluster_attrs(name, "details"))
        except sdk.NotFoundException:
            raise missing("Cluster", name) from None
        try:
            script = Path(given.script).read_text()
        except OSError:
            raise CommandError(f"Could not open script file: {given.script}") from None
        with ThreadPoolExecutor(max_workers=8) as pool:
            outcomes = pool.map(lambda node: self._run_on(node, script, given), found)
        for node, outcome in zip(found, outcomes, strict=True):
            self.app.stdout.write(f"node: {node.node_id}\n{outcome}\n")

    def _run_on(self, node: Any, script: str, given: argparse.Namespace) -> str:
        address = _address(node, given)
        if isinstance(address, CommandError):
            return f"status: FAILED\nerror:\n{address}"
        identity = ["-i", given.identity_file] if given.identity_file else []
        ssh = ["ssh", "-6" if given.ipv6 else "-4", f"-p{given.port}", *identity, *given.ssh_options.split()]
        ended = subprocess.run([*ssh, f"{given.user}@{address}", script], capture_output=True, text=True, check=False)
        status = "SUCCEEDED (0)" if ended.returncode == 0 else f"FAILED ({ended.returncode})"
        return f"status: {status}\noutput:\n{ended.stdout}" + (f"\nerror:\n{ended.stderr}" if ended.stderr else "")


def _address(node: Any, given: argparse.Namespace) -> str | CommandError:
    """Where a node can be reached, or why that cannot be said."""
    networks: dict[str, Any] = (node.attr_value or {}).get("addresses") or {}
    if given.network and given.network not in networks:
        return CommandError(f"Node '{node.node_id}' is not attached to network '{given.network}'.")
    if not given.network and len(networks) != 1:
        many = "more than one network. Please pick the network to use" if networks else "any network"
        return CommandError(f"Node '{node.node_id}' is {'' if networks else 'not '}attached to {many}.")
    version = 6 if given.ipv6 else 4
    network = given.network or next(iter(networks))
    matching = [
        each["addr"]
        for each in networks[network]
        if each.get("version") == version and each.get("OS-EXT-IPS:type", "floating") == given.address_type
    ]
    if len(matching) == 1:
        return str(matching[0])
    many = "More than one" if matching else "No"
    return CommandError(f"{many} IPv{version} {given.address_type} address found for node '{node.node_id}'.")
