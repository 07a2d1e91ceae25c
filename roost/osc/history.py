"""`openstack cluster action, event, service, build info`: what happened, and who is at work."""

import argparse
from typing import Any

from openstack import exceptions as sdk

from roost.osc import commands
from roost.osc.commands import Lister, One, ShowOne, Table, listing, missing, option


class ListAction(Lister):
    """List actions."""

    options = listing("actions")

    def take_action(self, given: argparse.Namespace) -> Table:
        columns = ["id", "name", "action", "status", "target_id", "depends_on", "depended_by", "created_at"]
        columns += ["project_id"] if given.global_project else []
        found = self.clustering.actions(**commands.queries(given))
        short = () if given.full_id else ("id", "target_id", "depends_on", "depended_by", "project_id")
        return commands.listed(found, columns, short)


def _show_action(clustering: Any, name: str) -> One:
    try:
        return commands.shown(clustering.get_action(name).to_dict())
    except sdk.NotFoundException:
        raise missing("Action", name) from None


class ShowAction(ShowOne):
    """Show detailed info about the specified action."""

    options = (option("action", metavar="<action>", help="Name or ID of the action to show the details for"),)

    def take_action(self, given: argparse.Namespace) -> One:
        return _show_action(self.clustering, given.action)


class UpdateAction(ShowOne):
    """Update the action."""

    options = (
        option("--status", metavar="<status>", required=True, help="New status: CANCELLED"),
        option("action", metavar="<action>", help="Name or ID of the action"),
    )

    def take_action(self, given: argparse.Namespace) -> One:
        self.clustering.update_action(given.action, status=given.status)
        return _show_action(self.clustering, given.action)


class ListEvent(Lister):
    """List events."""

    options = listing("events")

    def take_action(self, given: argparse.Namespace) -> Table:
        columns = ["id", "generated_at", "obj_type", "obj_id", "obj_name", "action", "status", "level", "cluster_id"]
        columns += ["meta_data", *(["project_id"] if given.global_project else [])]
        found = self.clustering.events(**commands.queries(given))
        return commands.listed(found, columns, () if given.full_id else ("id", "obj_id", "cluster_id", "project_id"))


class ShowEvent(ShowOne):
    """Describe the event."""

    options = (option("event", metavar="<event>", help="ID of event to display details for"),)

    def take_action(self, given: argparse.Namespace) -> One:
        try:
            return commands.shown(self.clustering.get_event(given.event).to_dict())
        except sdk.NotFoundException:
            raise missing("Event", given.event) from None


class ListService(Lister):
    """Show a list of all running services."""

    def take_action(self, given: argparse.Namespace) -> Table:
        columns = ["binary", "host", "status", "state", "updated_at", "disabled_reason"]
        return commands.listed(self.clustering.services(), columns)


class BuildInfo(ShowOne):
    """Retrieve build information."""

    def take_action(self, given: argparse.Namespace) -> One:
        info = self.clustering.get_build_info()
        return ("api", "engine"), (commands.cell(info.api), commands.cell(info.engine))
