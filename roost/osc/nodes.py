"""`openstack cluster node ...`: nodes and what is done to them."""

import argparse
import json
from typing import Any

from openstack import exceptions as sdk
from osc_lib.exceptions import CommandError

from roost.osc import commands
from roost.osc.commands import Command, Lister, One, ShowOne, Table, add_pairs, missing, pairs


def _show(clustering: Any, name: str, details: bool = False) -> One:
    try:
        node = clustering.get_node(name, details=details)
    except sdk.NotFoundException:
        raise missing("Node", name) from None
    data = node.to_dict()
    return commands.shown(data, *(() if details else ("details",)))


class ListNode(Lister):
    """Show list of nodes."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("--cluster", metavar="<cluster>", help="ID or name of cluster from which nodes are listed")
        commands.add_listing(parser, "nodes")
        return parser

    def take_action(self, given: argparse.Namespace) -> Table:
        columns = ["id", "name", "index", "status", "cluster_id", "physical_id", "profile_name", "created_at"]
        columns += ["updated_at", *(["project_id"] if given.global_project else [])]
        inside = {"cluster_id": given.cluster} if given.cluster else {}
        found = self.clustering.nodes(**inside, **commands.queries(given))
        return commands.listed(found, columns, () if given.full_id else ("id", "cluster_id", "physical_id"))


class ShowNode(ShowOne):
    """Show detailed info about the specified node."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("--details", action="store_true", help="Include physical object details")
        parser.add_argument("node", metavar="<node>", help="Name or ID of the node to show the details for")
        return parser

    def take_action(self, given: argparse.Namespace) -> One:
        return _show(self.clustering, given.node, given.details)


class CreateNode(ShowOne):
    """Create the node."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("--cluster", metavar="<cluster>", help="Cluster of this node")
        parser.add_argument("--role", metavar="<role>", help="Role for this node in the specific cluster")
        add_pairs(parser, "--metadata", "Metadata values to be attached to the node")
        parser.add_argument("--profile", metavar="<profile>", required=True, help="Profile Id or name of this node")
        parser.add_argument("name", metavar="<node-name>", help="Name of the node to create")
        return parser

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

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("--name", metavar="<name>", help="New name for the node")
        parser.add_argument("--profile", metavar="<profile-id>", help="ID or name of new profile to use")
        parser.add_argument("--role", metavar="<role>", help="Role for this node in the specific cluster")
        add_pairs(parser, "--metadata", "Metadata values to be attached to the node; '{}' empties it")
        parser.add_argument("--tainted", metavar="<boolean>", type=commands.boolean, help="Whether to delete it first")
        parser.add_argument("node", metavar="<node>", help="Name or ID of node to update")
        return parser

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

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("node", metavar="<node>", nargs="+", help="Name or ID of node(s) to delete")
        parser.add_argument("--force-delete", action="store_true", help="Delete them whatever else is going on")
        parser.add_argument("--force", action="store_true", help="Skip yes/no prompt (assume yes)")
        return parser

    def take_action(self, given: argparse.Namespace) -> None:
        if not commands.confirm(given, "node"):
            return
        for name in given.node:
            try:
                action = self.clustering.delete_node(name, ignore_missing=False, force_delete=given.force_delete)
            except sdk.HttpException as error:
                self.app.stdout.write(f" {name}: failed due to '{commands.words(error)}'\n")
            else:
                self.app.stdout.write(f" {name}: accepted by action {action.id}\n")


class _Tending(Command):
    """A command that starts an action on each of several nodes."""

    verb = ""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        self.add_options(parser)
        parser.add_argument("node", metavar="<node>", nargs="+", help="ID or name of node(s)")
        return parser

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """The command's own options."""

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

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--check", metavar="<boolean>", type=commands.boolean, default=False, help="Check the node first (false)"
        )

    def start(self, name: str, given: argparse.Namespace) -> Any:
        return self.clustering.recover_node(name, check=given.check)


class NodeOp(Command):
    """Perform an operation on a node."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("--operation", metavar="<operation>", required=True, help="Operation to be performed")
        add_pairs(parser, "--params", "Parameters of the operation")
        parser.add_argument("node", metavar="<node>", help="ID or name of node to operate on")
        return parser

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

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("--identity", metavar="<identity>", required=True, help="Physical resource id")
        parser.add_argument("--type", metavar="<type>", required=True, help="Profile type, such as os.nova.server-1.0")
        parser.add_argument("--role", metavar="<role>", help="Role for this node in the specific cluster")
        add_pairs(parser, "--metadata", "Metadata values to be attached to the node")
        parser.add_argument("--name", metavar="<name>", help="Name of the node to adopt")
        parser.add_argument("--overrides", metavar="<json>", help="JSON of properties that override what is found")
        parser.add_argument("--preview", action="store_true", help="Show the profile that would come of it")
        parser.add_argument("--snapshot", action="store_true", help="Take a snapshot of the resource first")
        return parser

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
