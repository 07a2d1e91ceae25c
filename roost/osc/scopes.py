"""`openstack policy scope ...`: ways of dividing hosts that server groups may name."""

import argparse
from typing import Any, ClassVar

from roost.client import PolicyScope
from roost.osc import commands
from roost.osc.commands import Command, Lister, One, Options, ShowOne, Table, one_of, option


def _row(scope: PolicyScope) -> One:
    columns = ["id", "name", "allow_identifiers", "obfuscate_identifiers", "aggregates"]
    values: list[Any] = [scope.id, scope.name, scope.allow_identifiers, scope.obfuscate_identifiers]
    values.append(commands.cell([_aggregate(each) for each in scope.aggregates]))
    if scope.namespace_uuid:
        columns.append("obfuscate_namespace_uuid")
        values.append(scope.namespace_uuid)
    return columns, values


def _aggregate(each: Any) -> str:
    seen_as = f" (seen as {each['obfuscated_group_id']})" if "obfuscated_group_id" in each else ""
    name = f" {each['name']}" if "name" in each and each["name"] != each["group_id"] else ""
    return f"{each['group_id']}{name}{seen_as}"


_FLAGS = (
    one_of(
        option(
            "--allow-identifiers",
            dest="allow",
            action="store_true",
            default=None,
            help="Let groups name aggregates of this scope",
        ),
        option(
            "--forbid-identifiers",
            dest="allow",
            action="store_false",
            help="Let groups only be spread over or kept within it",
        ),
    ),
    one_of(
        option(
            "--obfuscate-identifiers",
            dest="obfuscate",
            action="store_true",
            default=None,
            help="Give every project its own identifiers",
        ),
        option(
            "--show-identifiers", dest="obfuscate", action="store_false", help="Show every project the real identifiers"
        ),
    ),
    option("--namespace", metavar="<uuid>", help="What the identifiers of projects are made from"),
)


def _attributes(given: argparse.Namespace) -> dict[str, Any]:
    wanted = {
        "allow_identifiers": given.allow,
        "obfuscate_identifiers": given.obfuscate,
        "obfuscate_namespace_uuid": given.namespace,
    }
    return {key: value for key, value in wanted.items() if value is not None}


class ListPolicyScope(Lister):
    """List policy scopes, the built-in ones first."""

    def take_action(self, given: argparse.Namespace) -> Table:
        columns = ("ID", "Name", "Allow Identifiers", "Obfuscate Identifiers", "Aggregates")
        return columns, [
            (each.id, each.name, each.allow_identifiers, each.obfuscate_identifiers, len(each.aggregates))
            for each in self.roost.policy_scopes()
        ]


class _OfScope:
    roost: Any

    options: ClassVar[Options] = (option("scope", metavar="<scope>", help="Policy scope (name or ID)"),)

    def scope(self, given: argparse.Namespace) -> PolicyScope:
        """The scope that is named."""
        found: PolicyScope = self.roost.find_policy_scope(given.scope)
        return found


class ShowPolicyScope(_OfScope, ShowOne):
    """Show a policy scope and the identifiers of its aggregates."""

    options = (
        option("--as-project", metavar="<project>", help="Show what this project (name or ID) sees (admin only)"),
    )

    def take_action(self, given: argparse.Namespace) -> One:
        return _row(self.roost.find_policy_scope(given.scope, as_project=given.as_project))


class CreatePolicyScope(ShowOne):
    """Make a policy scope."""

    options = (option("name", metavar="<name>", help="Name of the scope, such as rack"), *_FLAGS)

    def take_action(self, given: argparse.Namespace) -> One:
        return _row(self.roost.create_policy_scope(given.name, **_attributes(given)))


class SetPolicyScope(_OfScope, Command):
    """Change a policy scope."""

    options = (option("--name", metavar="<name>", help="New name of the scope"), *_FLAGS)

    def take_action(self, given: argparse.Namespace) -> None:
        named = {"name": given.name} if given.name else {}
        self.roost.update_policy_scope(self.scope(given).id, **named, **_attributes(given))


class UnsetPolicyScope(_OfScope, Command):
    """Put a policy scope back to what it is without options."""

    options = (
        option("--allow-identifiers", action="store_true", help="Forbid identifiers again"),
        option("--obfuscate-identifiers", action="store_true", help="Show real identifiers again"),
    )

    def take_action(self, given: argparse.Namespace) -> None:
        names = ("allow_identifiers", "obfuscate_identifiers")
        self.roost.update_policy_scope(self.scope(given).id, **{name: False for name in names if getattr(given, name)})


class DeletePolicyScope(Command):
    """Delete policy scopes that nothing uses."""

    options = (option("scope", metavar="<scope>", nargs="+", help="Policy scope(s) (name or ID)"),)

    def take_action(self, given: argparse.Namespace) -> None:
        for name in given.scope:
            self.roost.delete_policy_scope(self.roost.find_policy_scope(name).id)


class _OfAggregate(_OfScope):
    app: Any

    options: ClassVar[Options] = (option("aggregate", metavar="<aggregate>", help="Aggregate (name or ID)"),)

    def aggregate(self, given: argparse.Namespace) -> int:
        """The number of the aggregate that is named."""
        compute = self.app.client_manager.sdk_connection.compute
        return int(compute.find_aggregate(given.aggregate, ignore_missing=False).id)


class AddAggregate(_OfAggregate, ShowOne):
    """Make an aggregate one of a policy scope's."""

    def take_action(self, given: argparse.Namespace) -> One:
        return _row(self.roost.add_aggregate_to_scope(self.scope(given).id, self.aggregate(given)))


class RemoveAggregate(_OfAggregate, ShowOne):
    """Take an aggregate out of a policy scope."""

    def take_action(self, given: argparse.Namespace) -> One:
        return _row(self.roost.remove_aggregate_from_scope(self.scope(given).id, self.aggregate(given)))
