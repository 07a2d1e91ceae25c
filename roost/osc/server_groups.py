"""`openstack server group create`, `show` and `list` with all policies of a group.

The stock commands know one plain policy. These are the same where that is enough, and with any other cloud than Roost.
"""

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

from openstackclient.compute.v2 import server_group as stock
from osc_lib.cli import parseractions
from osc_lib.exceptions import CommandError

from roost.client import GroupAnswer
from roost.osc.commands import LinesColumn, One, RoostCommand, Table
from roost.osc.groups import POLICY_HELP, policy, policy_text, shown_group

_FIRST_RULES = (2, 64)
_FIRST_OWN = (2, 1001)
_ALL_POLICIES = (2, 1003)


def _version(text: str | None) -> tuple[int, ...]:
    """The version asked for; without one, the SDK takes the newest that it has words for."""
    return _FIRST_RULES if text is None else tuple(int(part) for part in text.split("."))


class _ServerGroupCommand(RoostCommand):
    """A stock command that asks Roost where the stock one cannot say everything."""

    @property
    def _compute(self) -> Any:
        return self.app.client_manager.compute

    @property
    def _is_roost(self) -> bool:
        endpoint = self._compute.get_endpoint_data()
        newest = None if endpoint is None else endpoint.max_microversion
        return newest is not None and tuple(newest) >= _ALL_POLICIES

    def _stock_says_all(self, group: GroupAnswer) -> bool:
        """Whether the version in use has words for all policies of a group."""
        version, (first, *others) = _version(self._compute.default_microversion), group.policies
        plain = first["scope"] == "host" and not first["rules"]
        return not others and not group.partitions and (plain or version >= _FIRST_RULES) and version < _FIRST_OWN


class CreateServerGroup(_ServerGroupCommand, stock.CreateServerGroup):  # type: ignore[misc]
    """Create a new server group."""

    _description = "Create a new server group."

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        # Not the stock parser: it takes one policy, and only of the four plain types.
        parser: argparse.ArgumentParser = super(stock.CreateServerGroup, self).get_parser(prog_name)
        parser.add_argument("name", metavar="<name>", help="New server group name")
        parser.add_argument(
            "--policy",
            metavar="<policy>",
            action="append",
            type=policy,
            dest="policies",
            help=f"{POLICY_HELP}; repeat for several (default: affinity)",
        )
        parser.add_argument(
            "--rule",
            metavar="<key=value>",
            action=parseractions.KeyValueAction,
            default={},
            dest="rules",
            help="A rule for the one policy, such as max_server_per_host=2 or scope=rack; repeat for several",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> One:
        policies = parsed_args.policies or [policy("affinity")]
        first, *others = policies
        if not others and first == {"name": first["name"], "rules": {}}:
            parsed_args.policy = first["name"]
            made: One = super().take_action(parsed_args)
            return made
        if parsed_args.rules:
            raise CommandError("--rule is for one plain policy: write limits behind the policy that they belong to.")
        if not self._is_roost:
            raise CommandError("This cloud takes one policy without a scope, with limits given by --rule.")
        return shown_group(self.roost.create_server_group(parsed_args.name, policies))


class ShowServerGroup(_ServerGroupCommand, stock.ShowServerGroup):  # type: ignore[misc]
    """Display server group details."""

    _description = "Display server group details."

    def take_action(self, parsed_args: argparse.Namespace) -> One:
        if self._is_roost:
            found = self._compute.find_server_group(parsed_args.server_group, ignore_missing=False)
            group = self.roost.server_group(found.id)
            if not self._stock_says_all(group):
                return shown_group(group)
        shown: One = super().take_action(parsed_args)
        return shown


class ListServerGroup(_ServerGroupCommand, stock.ListServerGroup):  # type: ignore[misc]
    """List all server groups."""

    _description = "List all server groups."

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        if not self._is_roost:
            listed: Table = super().take_action(parsed_args)
            return listed
        groups = self.roost.server_groups(
            all_projects=parsed_args.all_projects,
            offset=parsed_args.offset,
            page=parsed_args.limit,
            most=parsed_args.max_items,
        )
        policy_key = "Policy" if _version(self._compute.default_microversion) >= _FIRST_RULES else "Policies"
        more = ("Members", "Project Id", "User Id") if parsed_args.long else ()
        return ("ID", "Name", policy_key, *more), self._rows(groups, policy_key == "Policies", parsed_args.long)

    def _rows(self, groups: Iterator[GroupAnswer], plural: bool, long: bool) -> Iterator[Sequence[Any]]:
        for group in groups:
            names: Any = [group.policies[0]["name"]]
            if not self._stock_says_all(group):
                names = [policy_text(each) for each in group.policies]
            shown = names[0] if len(names) == 1 and not plural else LinesColumn(names)
            row = (group.id, group.name, shown)
            yield (*row, LinesColumn(list(group.members)), group.project_id, group.user_id) if long else row
