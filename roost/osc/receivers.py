"""`openstack cluster receiver ...`: what lets others start actions."""

import argparse
from typing import Any

from openstack import exceptions as sdk
from osc_lib.exceptions import CommandError

from roost.osc import commands
from roost.osc.commands import (
    FORCE,
    Command,
    Lister,
    One,
    ShowOne,
    Table,
    listing,
    missing,
    option,
    pairs,
    pairs_option,
)


def _show(clustering: Any, name: str) -> One:
    try:
        return commands.shown(clustering.get_receiver(name).to_dict())
    except sdk.NotFoundException:
        raise missing("Receiver", name) from None


class ListReceiver(Lister):
    """List receivers that meet the criteria."""

    options = listing("receivers")

    def take_action(self, given: argparse.Namespace) -> Table:
        columns = ["id", "name", "type", "cluster_id", "action", "created_at"]
        columns += ["project_id", "user_id"] if given.global_project else []
        found = self.clustering.receivers(**commands.queries(given))
        short = () if given.full_id else ("id", "cluster_id", "project_id", "user_id")
        return commands.listed(found, columns, short)


class ShowReceiver(ShowOne):
    """Show the receiver details."""

    options = (option("receiver", metavar="<receiver>", help="Name or ID of the receiver to show"),)

    def take_action(self, given: argparse.Namespace) -> One:
        return _show(self.clustering, given.receiver)


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


class UpdateReceiver(ShowOne):
    """Update a receiver."""

    options = (
        option("--name", metavar="<name>", help="The new name for the receiver"),
        option("--action", metavar="<action>", help="Name of the action to be started"),
        pairs_option("--params", "Parameters that are passed to the target action"),
        option("receiver", metavar="<receiver>", help="Name or ID of receiver(s) to update"),
    )

    def take_action(self, given: argparse.Namespace) -> One:
        changed: dict[str, Any] = {key: getattr(given, key) for key in ("name", "action") if getattr(given, key)}
        if given.params:
            changed["params"] = pairs(given.params)
        receiver = self.clustering.find_receiver(given.receiver)
        if receiver is None:
            raise missing("Receiver", given.receiver)
        self.clustering.update_receiver(receiver.id, **changed)
        return _show(self.clustering, receiver.id)


class DeleteReceiver(Command):
    """Delete receiver(s)."""

    options = (option("receiver", metavar="<receiver>", nargs="+", help="Name or ID of receiver(s) to delete"), FORCE)

    def take_action(self, given: argparse.Namespace) -> None:
        commands.confirm(given, "receiver")

        def delete(name: str) -> str:
            self.clustering.delete_receiver(name, ignore_missing=False)
            return f"Receiver deleted: {[name]}"

        commands.each(given.receiver, "receiver", delete, self.app.stdout.write)
