"""`openstack cluster profile ...` and `openstack cluster policy ...`: what clusters are made of and governed by."""

import argparse
from typing import Any, ClassVar

from openstack import exceptions as sdk
from osc_lib.exceptions import CommandError

from roost.osc import commands
from roost.osc.commands import Lister, One, Options, ShowOne, Table, listing, missing, option, pairs, pairs_option
from roost.osc.nouns import DeleteNouns, ListNouns, NounCommand, ShowNoun, UpdateNoun


class _Profile(NounCommand):
    noun, plural = "profile", "profiles"


class _Policy(NounCommand):
    noun, plural = "policy", "policies"


class _List(ListNouns):
    columns = ("id", "name", "type", "created_at")


class ListProfile(_Profile, _List):
    """List profiles that meet the criteria."""

    options = listing("profiles")


class ListPolicy(_Policy, _List):
    """List policies that meet the criteria."""

    options = listing("policies")


class ShowProfile(_Profile, ShowNoun):
    """Show profile details."""

    options = (option("profile", metavar="<profile>", help="Name or ID of profile to show"),)


class ShowPolicy(_Policy, ShowNoun):
    """Show the policy details."""

    options = (option("policy", metavar="<policy>", help="Name or ID of policy to show"),)


def _spec(path: str) -> Any:
    spec = commands.document(path)
    for key in ("type", "version", "properties"):
        if not isinstance(spec, dict) or key not in spec:
            raise CommandError(f"Missing '{key}' key in spec file.")
    return spec


class _FromSpec(NounCommand, ShowOne):
    options: ClassVar[Options] = (
        option("--spec-file", metavar="<spec-file>", required=True, help="The YAML file with the spec"),
    )


class _Create(_FromSpec):
    def take_action(self, given: argparse.Namespace) -> One:
        more = {"metadata": pairs(given.metadata)} if hasattr(given, "metadata") else {}
        made = self.ask("create", name=given.name, spec=_spec(given.spec_file), **more)
        return self.shown(made.id)


class CreateProfile(_Profile, _Create):
    """Create a profile."""

    options = (
        option("name", metavar="<profile-name>", help="Name of the profile to create"),
        pairs_option("--metadata", "Metadata values to be attached to the profile"),
    )


class CreatePolicy(_Policy, _Create):
    """Create a policy."""

    options = (option("name", metavar="<policy-name>", help="Name of the policy to create"),)


class _Validate(_FromSpec):
    def take_action(self, given: argparse.Namespace) -> One:
        return commands.shown(self.ask("validate", spec=_spec(given.spec_file)).to_dict())


class ValidateProfile(_Profile, _Validate):
    """Validate a profile."""


class ValidatePolicy(_Policy, _Validate):
    """Validate a policy."""


class UpdateProfile(_Profile, UpdateNoun):
    """Update a profile."""

    paired = ("metadata",)
    options = (
        option("--name", metavar="<name>", help="The new name for the profile"),
        pairs_option("--metadata", "Metadata values to be attached to the profile; '{}' empties it"),
        option("profile", metavar="<profile>", help="Name or ID of profile to update"),
    )


class UpdatePolicy(_Policy, UpdateNoun):
    """Update a policy."""

    options = (
        option("--name", metavar="<name>", help="New name of the policy"),
        option("policy", metavar="<policy>", help="Name or ID of policy to be updated"),
    )


class DeleteProfile(_Profile, DeleteNouns):
    """Delete profile(s)."""

    options = (option("profile", metavar="<profile>", nargs="+", help="Name or ID of profiles"),)


class DeletePolicy(_Policy, DeleteNouns):
    """Delete policy(s)."""

    options = (option("policy", metavar="<policy>", nargs="+", help="Name or ID of policies"),)


# Types


class _ProfileType(NounCommand):
    noun, plural = "profile_type", "profile_types"


class _PolicyType(NounCommand):
    noun, plural = "policy_type", "policy_types"


class _TypeList(NounCommand, Lister):
    def take_action(self, given: argparse.Namespace) -> Table:
        rows = []
        for kind in getattr(self.clustering, self.plural)():
            for version, statuses in sorted((kind.support_status or {}).items()):
                words = "\n".join(f"{each['status']} since {each['since']}" for each in statuses)
                rows.append((kind.name, version, words))
        return ("name", "version", "support_status"), sorted(rows)


class ProfileTypeList(_ProfileType, _TypeList):
    """List the available profile types."""


class PolicyTypeList(_PolicyType, _TypeList):
    """List the available policy types."""


class _TypeShow(NounCommand, ShowOne):
    @property
    def formatter_default(self) -> str:
        """Specs are read as YAML."""
        return "yaml"

    hidden = ("id",)
    options = (option("type_name", metavar="<type-name>", help="Its name and version"),)

    def take_action(self, given: argparse.Namespace) -> One:
        return self.shown(given.type_name)


class ProfileTypeShow(_ProfileType, _TypeShow):
    """Show the details about a profile type."""


class PolicyTypeShow(_PolicyType, _TypeShow):
    """Show the details about a policy type."""


class ProfileTypeOperations(_ProfileType, _TypeShow):
    """Show the operations that nodes of a profile type know."""

    def take_action(self, given: argparse.Namespace) -> One:
        try:
            known = self.clustering.list_profile_type_operations(given.type_name)
        except sdk.NotFoundException:
            raise missing("Profile Type", given.type_name) from None
        return commands.shown(known.get("operations", known))
