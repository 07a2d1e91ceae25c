"""`openstack cluster node ...`: nodes and what is done to them."""

import argparse
import json
from typing import Any, ClassVar

from openstack import exceptions as sdk
from osc_lib.exceptions import CommandError

from roost.osc import commands
from roost.osc.commands import (
    FORCE,
    Command,
    Lister,
    One,
    Options,
    ShowOne,
    Table,
    boolean_option,
    listing,
    missing,
    option,
    pairs,
    pairs_option,
)


def _show(clustering: Any, name: str, details: bool = False) -> One:
    try:
        node = clustering.get_node(name, details=details)
    except sdk.NotFoundException:
        raise missing("Node", name) from None
    data = node.to_dict()
    return commands.shown(data, *(() if details else ("details",)))


class ListNode(Lister):
    """Show list of nodes."""

    options = (
        option("--cluster", metavar="<cluster>", help="ID or name of cluster from which nodes are listed"),
        *listing("nodes"),
    )

    def take_action(self, given: argparse.Namespace) -> Table:
        columns = ["id", "name", "index", "status", "cluster_id", "physical_id", "profile_name", "created_at"]
        columns += ["updated_at", *(["project_id"] if given.global_project else [])]
        inside = {"cluster_id": given.cluster} if given.cluster else {}
        found = self.clustering.nodes(**inside, **commands.queries(given))
        return commands.listed(found, columns, () if given.full_id else ("id", "cluster_id", "physical_id"))


class ShowNode(ShowOne):
    """Show detailed info about the specified node."""

    options = (
        option("--details", action="store_true", help="Include physical object details"),
        option("node", metavar="<node>", help="Name or ID of the node to show the details for"),
    )

    def take_action(self, given: argparse.Namespace) -> One:
        return _show(self.clustering, given.node, given.details)


class CreateNode(ShowOne):
    """Create the node."""

    options = (
        option("--cluster", metavar="<cluster>", help="Cluster of this node"),
        option("--role", metavar="<role>", help="Role for this node in the specific cluster"),
        pairs_option("--metadata", "Metadata values to be attached to the node"),
        option("--profile", metavar="<profile>", required=True, help="Profile Id or name of this node"),
        option("name", metavar="<node-name>", help="Name of the node to create"),
    )

    def take_action(self, given: argparse.Namespace) -> One:
        node = self.clustering.create_node(
            name=given.name,
            cluster_id=given.cluster,
            profile_id=given.profile,
            role=given.role,
            metadata=pairs(given.metadata),
        )
        return _show(self.clustering, node.id)


class UpdateNode(ShowOne):
    """Update the node."""

    options = (
        option("--name", metavar="<name>", help="New name for the node"),
        option("--profile", metavar="<profile-id>", help="ID or name of new profile to use"),
        option("--role", metavar="<role>", help="Role for this node in the specific cluster"),
        pairs_option("--metadata", "Metadata values to be attached to the node; '{}' empties it"),
        boolean_option("--tainted", help="Whether to delete it first"),
        option("node", metavar="<node>", help="Name or ID of node to update"),
    )

    def take_action(self, given: argparse.Namespace) -> One:
        wanted = {"name": given.name, "profile_id": given.profile, "role": given.role, "tainted": given.tainted}
        changed = {key: value for key, value in wanted.items() if value is not None}
        if given.metadata:
            changed["metadata"] = pairs(given.metadata)
        node = self.clustering.find_node(given.node)
        if node is None:
            raise missing("Node", given.node)
        self.clustering.update_node(node.id, **changed)
        return _show(self.clustering, node.id)


class DeleteNode(Command):
    """Delete the node(s)."""

    options = (
        option("node", metavar="<node>", nargs="+", help="Name or ID of node(s) to delete"),
        option("--force-delete", action="store_true", help="Delete them whatever else is going on"),
        FORCE,
    )

    def take_action(self, given: argparse.Namespace) -> None:
        commands.confirm(given, "node")

        def delete(name: str) -> str:
            action = self.clustering.delete_node(name, ignore_missing=False, force_delete=given.force_delete)
            return f" {name}: accepted by action {action.id}"

        commands.each(given.node, "node", delete, self.app.stdout.write)


class _Tending(Command):
    """A command that starts an action on each of several nodes."""

    verb = ""

    options: ClassVar[Options] = (option("node", metavar="<node>", nargs="+", help="ID or name of node(s)"),)

    def start(self, name: str, given: argparse.Namespace) -> Any:
        """Ask for the action."""
        raise NotImplementedError

    def take_action(self, given: argparse.Namespace) -> None:
        for name in given.node:
            try:
                answer = self.start(name, given)
            except sdk.NotFoundException:
                raise missing("Node", name) from None
            if "action" not in answer:
                raise CommandError(f"Request error: {answer}")
            self.app.stdout.write(
                f"Node {self.verb} request on node {name} is accepted by action {answer['action']}.\n"
            )


class CheckNode(_Tending):
    """Check the node(s)."""

    verb = "check"

    def start(self, name: str, given: argparse.Namespace) -> Any:
        return self.clustering.check_node(name)


class RecoverNode(_Tending):
    """Recover the node(s)."""

    verb = "recover"

    options = (boolean_option("--check", default=False, help="Check the node first (false)"),)

    def start(self, name: str, given: argparse.Namespace) -> Any:
        return self.clustering.recover_node(name, check=given.check)


class NodeOp(Command):
    """Perform an operation on a node."""

    options = (
        option("--operation", metavar="<operation>", required=True, help="Operation to be performed"),
        pairs_option("--params", "Parameters of the operation"),
        option("node", metavar="<node>", help="ID or name of node to operate on"),
    )

    def take_action(self, given: argparse.Namespace) -> None:
        try:
            answer = self.clustering.perform_operation_on_node(given.node, given.operation, **pairs(given.params))
        except sdk.NotFoundException:
            raise missing("Node", given.node) from None
        if "action" not in answer:
            raise CommandError(f"Request error: {answer}")
        self.app.stdout.write(f"Request accepted by action: {answer['action']}\n")


class AdoptNode(ShowOne):
    """Adopt (or preview) the node."""

    options = (
        option("--identity", metavar="<identity>", required=True, help="Physical resource id"),
        option("--type", metavar="<type>", required=True, help="Profile type, such as os.nova.server-1.0"),
        option("--role", metavar="<role>", help="Role for this node in the specific cluster"),
        pairs_option("--metadata", "Metadata values to be attached to the node"),
        option("--name", metavar="<name>", help="Name of the node to adopt"),
        option("--overrides", metavar="<json>", help="JSON of properties that override what is found"),
        option("--preview", action="store_true", help="Show the profile that would come of it"),
        option("--snapshot", action="store_true", help="Take a snapshot of the resource first"),
    )

    def take_action(self, given: argparse.Namespace) -> One:
        try:
            overrides = json.loads(given.overrides) if given.overrides else {}
        except ValueError:
            raise CommandError(f"Malformed parameter({given.overrides}). Use the JSON format.") from None
        asked: dict[str, Any] = {"identity": given.identity, "type": given.type, "snapshot": given.snapshot}
        asked["overrides"] = overrides
        if given.preview:
            return commands.shown(dict(self.clustering.adopt_node(True, **asked)["node_profile"]))
        named = {"name": given.name, "role": given.role, "metadata": pairs(given.metadata)}
        return _show(self.clustering, self.clustering.adopt_node(False, **asked, **named).id)
