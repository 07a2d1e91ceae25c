"""`openstack cluster receiver ...`: what lets others start actions."""

import argparse

from osc_lib.exceptions import CommandError

from roost.osc import commands
from roost.osc.commands import One, ShowOne, listing, option, pairs, pairs_option
from roost.osc.nouns import DeleteNouns, ListNouns, NounCommand, ShowNoun, UpdateNoun


class _Receiver(NounCommand):
    noun, plural = "receiver", "receivers"


class ListReceiver(_Receiver, ListNouns):
    """List receivers that meet the criteria."""

    options = listing("receivers")
    columns = ("id", "name", "type", "cluster_id", "action", "created_at")
    owner = ("project_id", "user_id")
    ids = ("id", "cluster_id")


class ShowReceiver(_Receiver, ShowNoun):
    """Show the receiver details."""

    options = (option("receiver", metavar="<receiver>", help="Name or ID of the receiver to show"),)


class CreateReceiver(ShowOne):
    """Create a receiver."""

    options = (
        option("--type", metavar="<type>", default="webhook", help="webhook (the default) or message"),
        pairs_option("--params", "Parameters that are passed to the target action"),
        option("--cluster", metavar="<cluster>", help="Targeted cluster; needed for a webhook"),
        option("--action", metavar="<action>", help="Name of the action; needed for a webhook"),
        option("name", metavar="<name>", help="Name of the receiver to create"),
    )

    def take_action(self, given: argparse.Namespace) -> One:
        if given.type == "webhook" and not (given.cluster and given.action):
            raise CommandError("cluster and action parameters are required to create webhook type of receiver.")
        asked = {"name": given.name, "type": given.type, "params": pairs(given.params)}
        asked |= {"cluster_id": given.cluster, "action": given.action}
        made = self.clustering.create_receiver(**{key: value for key, value in asked.items() if value is not None})
        return commands.shown(made.to_dict())  # only this answer has the secret of a webhook


class UpdateReceiver(_Receiver, UpdateNoun):
    """Update a receiver."""

    plain, paired = ("name", "action"), ("params",)
    options = (
        option("--name", metavar="<name>", help="The new name for the receiver"),
        option("--action", metavar="<action>", help="Name of the action to be started"),
        pairs_option("--params", "Parameters that are passed to the target action"),
        option("receiver", metavar="<receiver>", help="Name or ID of receiver(s) to update"),
    )


class DeleteReceiver(_Receiver, DeleteNouns):
    """Delete receiver(s)."""

    options = (option("receiver", metavar="<receiver>", nargs="+", help="Name or ID of receiver(s) to delete"),)
