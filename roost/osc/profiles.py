"""`openstack cluster profile ...` and `openstack cluster policy ...`: what clusters are made of and governed by."""

import argparse
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
    listing,
    missing,
    option,
    pairs,
    pairs_option,
)


class _Noun:
    """A kind of thing that is made from a spec: the SDK names its calls after it."""

    noun: ClassVar[str]
    plural: ClassVar[str]
    clustering: Any

    def ask(self, verb: str, *given: Any, **more: Any) -> Any:
        """One of the SDK's calls for this noun."""
        return getattr(self.clustering, f"{verb}_{self.noun}")(*given, **more)

    def shown(self, name: str) -> One:
        """Everything about one of them."""
        try:
            return commands.shown(self.ask("get", name).to_dict())
        except sdk.NotFoundException:
            raise missing(self.noun.capitalize(), name) from None

    def found(self, name: str) -> Any:
        """One of them, to be changed."""
        thing = self.ask("find", name)
        if thing is None:
            raise missing(self.noun.capitalize(), name)
        return thing


class _Profile(_Noun):
    noun, plural = "profile", "profiles"


class _Policy(_Noun):
    noun, plural = "policy", "policies"


class _List(_Noun, Lister):
    def take_action(self, given: argparse.Namespace) -> Table:
        columns = ["id", "name", "type", "created_at", *(["project_id"] if given.global_project else [])]
        found = getattr(self.clustering, self.plural)(**commands.queries(given))
        return commands.listed(found, columns, () if given.full_id else ("id", "project_id"))


class ListProfile(_Profile, _List):
    """List profiles that meet the criteria."""

    options = listing("profiles")


class ListPolicy(_Policy, _List):
    """List policies that meet the criteria."""

    options = listing("policies")


class _Show(_Noun, ShowOne):
    def take_action(self, given: argparse.Namespace) -> One:
        return self.shown(getattr(given, self.noun))


class ShowProfile(_Profile, _Show):
    """Show profile details."""

    options = (option("profile", metavar="<profile>", help="Name or ID of profile to show"),)


class ShowPolicy(_Policy, _Show):
    """Show the policy details."""

    options = (option("policy", metavar="<policy>", help="Name or ID of policy to show"),)


def _spec(path: str) -> Any:
    spec = commands.document(path)
    for key in ("type", "version", "properties"):
        if not isinstance(spec, dict) or key not in spec:
            raise CommandError(f"Missing '{key}' key in spec file.")
    return spec


class _FromSpec(_Noun, ShowOne):
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


class UpdateProfile(_Profile, ShowOne):
    """Update a profile."""

    options = (
        option("--name", metavar="<name>", help="The new name for the profile"),
        pairs_option("--metadata", "Metadata values to be attached to the profile; '{}' empties it"),
        option("profile", metavar="<profile>", help="Name or ID of profile to update"),
    )

    def take_action(self, given: argparse.Namespace) -> One:
        changed: dict[str, Any] = {"name": given.name} if given.name else {}
        if given.metadata:
            changed["metadata"] = pairs(given.metadata)
        profile = self.found(given.profile)
        self.clustering.update_profile(profile.id, **changed)
        return self.shown(profile.id)


class UpdatePolicy(_Policy, ShowOne):
    """Update a policy."""

    options = (
        option("--name", metavar="<name>", help="New name of the policy"),
        option("policy", metavar="<policy>", help="Name or ID of policy to be updated"),
    )

    def take_action(self, given: argparse.Namespace) -> One:
        policy = self.found(given.policy)
        self.clustering.update_policy(policy.id, **({"name": given.name} if given.name else {}))
        return self.shown(policy.id)


class _Delete(_Noun, Command):
    options: ClassVar[Options] = (FORCE,)

    def take_action(self, given: argparse.Namespace) -> None:
        commands.confirm(given, self.noun)

        def delete(name: str) -> str:
            self.ask("delete", name, ignore_missing=False)
            return f"{self.noun.capitalize()} deleted: {[name]}"

        commands.each(getattr(given, self.noun), self.noun, delete, self.app.stdout.write)


class DeleteProfile(_Profile, _Delete):
    """Delete profile(s)."""

    options = (option("profile", metavar="<profile>", nargs="+", help="Name or ID of profiles"),)


class DeletePolicy(_Policy, _Delete):
    """Delete policy(s)."""

    options = (option("policy", metavar="<policy>", nargs="+", help="Name or ID of policies"),)


# Types


class _Type(_Noun):
    title: ClassVar[str]

    def known(self, name: str) -> Any:
        """One type."""
        try:
            return self.ask("get", name)
        except sdk.NotFoundException:
            raise missing(self.title, name) from None


class _ProfileType(_Type):
    noun, plural, title = "profile_type", "profile_types", "Profile Type"


class _PolicyType(_Type):
    noun, plural, title = "policy_type", "policy_types", "Policy Type"


class _TypeList(_Type, Lister):
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


class _TypeShow(_Type, ShowOne):
    @property
    def formatter_default(self) -> str:
        """Specs are read as YAML."""
        return "yaml"

    options = (option("type_name", metavar="<type-name>", help="Its name and version"),)

    def take_action(self, given: argparse.Namespace) -> One:
        return commands.shown(self.known(given.type_name).to_dict(), "id")


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
            raise missing(self.title, given.type_name) from None
        return commands.shown(known.get("operations", known))
