"""`openstack cluster node ...`: nodes and what is done to them."""

import argparse
import json
from typing import Any, ClassVar

from openstack import exceptions as sdk
from osc_lib.exceptions import CommandError

from roost.osc import commands
from roost.osc.commands import (
    Command,
    One,
    Options,
    ShowOne,
    Tending,
    boolean_option,
    listing,
    missing,
    option,
    pairs,
    pairs_option,
)
from roost.osc.nouns import DeleteNouns, ListNouns, NounCommand, UpdateNoun


class _Node(NounCommand):
    noun, plural, hidden = "node", "nodes", ("details",)


class ListNode(_Node, ListNouns):
    """Show list of nodes."""

    options = (
        option("--cluster", metavar="<cluster>", help="ID or name of cluster from which nodes are listed"),
        *listing("nodes"),
    )
    columns = (
        *("id", "name", "index", "status", "cluster_id", "physical_id", "profile_name", "created_at"),
        "updated_at",
    )
    ids = ("id", "cluster_id", "physical_id")

    def query(self, given: argparse.Namespace) -> dict[str, Any]:
        return {**super().query(given), **({"cluster_id": given.cluster} if given.cluster else {})}


class ShowNode(_Node, ShowOne):
    """Show detailed info about the specified node."""

    options = (
        option("--details", action="store_true", help="Include physical object details"),
        option("node", metavar="<node>", help="Name or ID of the node to show the details for"),
    )

    def take_action(self, given: argparse.Namespace) -> One:
        node = self.get(given.node, details=given.details)
        return commands.shown(node.to_dict(), *(() if given.details else self.hidden))


class CreateNode(_Node, ShowOne):
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
        return self.shown(node.id)


class UpdateNode(_Node, UpdateNoun):
    """Update the node."""

    plain, paired = ("name", "profile_id", "role", "tainted"), ("metadata",)
    options = (
        option("--name", metavar="<name>", help="New name for the node"),
        option("--profile", metavar="<profile-id>", dest="profile_id", help="ID or name of new profile to use"),
        option("--role", metavar="<role>", help="Role for this node in the specific cluster"),
        pairs_option("--metadata", "Metadata values to be attached to the node; '{}' empties it"),
        boolean_option("--tainted", help="Whether to delete it first"),
        option("node", metavar="<node>", help="Name or ID of node to update"),
    )


class DeleteNode(_Node, DeleteNouns):
    """Delete the node(s)."""

    options = (
        option("node", metavar="<node>", nargs="+", help="Name or ID of node(s) to delete"),
        option("--force-delete", action="store_true", help="Delete them whatever else is going on"),
    )

    def delete(self, name: str, given: argparse.Namespace) -> str:
        action = self.ask("delete", name, ignore_missing=False, force_delete=given.force_delete)
        return f" {name}: accepted by action {action.id}"


class _Tending(Tending, Command):
    noun = "node"
    options: ClassVar[Options] = (option("node", metavar="<node>", nargs="+", help="ID or name of node(s)"),)

    def take_action(self, given: argparse.Namespace) -> None:
        self.start_all(given)


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
        self.app.stdout.write(f"Request accepted by action: {commands.accepted(answer)}\n")


class AdoptNode(_Node, ShowOne):
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
        return self.shown(self.clustering.adopt_node(False, **asked, **named).id)
