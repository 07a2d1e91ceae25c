"""`openstack cluster action, event, service, build info`: what happened, and who is at work."""

import argparse

from roost.osc import commands
from roost.osc.commands import Lister, One, ShowOne, Table, listing, option
from roost.osc.nouns import ListNouns, NounCommand, ShowNoun


class _Action(NounCommand):
    noun, plural = "action", "actions"


class ListAction(_Action, ListNouns):
    """List actions."""

    options = listing("actions")
    columns = ("id", "name", "action", "status", "target_id", "depends_on", "depended_by", "created_at")
    ids = ("id", "target_id", "depends_on", "depended_by")


class ShowAction(_Action, ShowNoun):
    """Show detailed info about the specified action."""

    options = (option("action", metavar="<action>", help="Name or ID of the action to show the details for"),)


class UpdateAction(_Action, ShowOne):
    """Update the action."""

    options = (
        option("--status", metavar="<status>", required=True, help="New status: CANCELLED"),
        option("action", metavar="<action>", help="Name or ID of the action"),
    )

    def take_action(self, given: argparse.Namespace) -> One:
        self.clustering.update_action(given.action, status=given.status)
        return self.shown(given.action)


class _Event(NounCommand):
    noun, plural = "event", "events"


class ListEvent(_Event, ListNouns):
    """List events."""

    options = listing("events")
    columns = (
        *("id", "generated_at", "obj_type", "obj_id", "obj_name", "action", "status", "level", "cluster_id"),
        "meta_data",
    )
    ids = ("id", "obj_id", "cluster_id")


class ShowEvent(_Event, ShowNoun):
    """Describe the event."""

    options = (option("event", metavar="<event>", help="ID of event to display details for"),)


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
