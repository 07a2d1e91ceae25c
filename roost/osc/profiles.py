"""`openstack cluster profile ...` and `openstack cluster policy ...`: what clusters are made of and governed by."""

import argparse
from typing import Any, ClassVar

from openstack import exceptions as sdk
from osc_lib.exceptions import CommandError

from roost.osc import commands
from roost.osc.commands import Command, Lister, One, ShowOne, Table, add_pairs, missing, pairs


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
    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        commands.add_listing(parser, self.plural)
        return parser

    def take_action(self, given: argparse.Namespace) -> Table:
        columns = ["id", "name", "type", "created_at", *(["project_id"] if given.global_project else [])]
        found = getattr(self.clustering, self.plural)(**commands.queries(given))
        return commands.listed(found, columns, () if given.full_id else ("id", "project_id"))


class ListProfile(_Profile, _List):
    """List profiles that meet the criteria."""


class ListPolicy(_Policy, _List):
    """List policies that meet the criteria."""


class _Show(_Noun, ShowOne):
    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument(self.noun, metavar=f"<{self.noun}>", help=f"Name or ID of {self.noun} to show")
        return parser

    def take_action(self, given: argparse.Namespace) -> One:
        return self.shown(getattr(given, self.noun))


class ShowProfile(_Profile, _Show):
    """Show profile details."""


class ShowPolicy(_Policy, _Show):
    """Show the policy details."""


def _spec(path: str) -> Any:
    spec = commands.document(path)
    for key in ("type", "version", "properties"):
        if not isinstance(spec, dict) or key not in spec:
            raise CommandError(f"Missing '{key}' key in spec file.")
    return spec


class _FromSpec(_Noun, ShowOne):
    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("--spec-file", metavar="<spec-file>", required=True, help="The YAML file with the spec")
        return parser


class _Create(_FromSpec):
    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument("name", metavar=f"<{self.noun}-name>", help=f"Name of the {self.noun} to create")
        return parser

    def take_action(self, given: argparse.Namespace) -> One:
        more = {"metadata": pairs(given.metadata)} if hasattr(given, "metadata") else {}
        made = self.ask("create", name=given.name, spec=_spec(given.spec_file), **more)
        return self.shown(made.id)


class CreateProfile(_Profile, _Create):
    """Create a profile."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        add_pairs(parser, "--metadata", "Metadata values to be attached to the profile")
        return parser


class CreatePolicy(_Policy, _Create):
    """Create a policy."""


class _Validate(_FromSpec):
    def take_action(self, given: argparse.Namespace) -> One:
        return commands.shown(self.ask("validate", spec=_spec(given.spec_file)).to_dict())


class ValidateProfile(_Profile, _Validate):
    """Validate a profile."""


class ValidatePolicy(_Policy, _Validate):
    """Validate a policy."""


class UpdateProfile(_Profile, ShowOne):
    """Update a profile."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("--name", metavar="<name>", help="The new name for the profile")
        add_pairs(parser, "--metadata", "Metadata values to be attached to the profile; '{}' empties it")
        parser.add_argument("profile", metavar="<profile>", help="Name or ID of profile to update")
        return parser

    def take_action(self, given: argparse.Namespace) -> One:
        changed: dict[str, Any] = {"name": given.name} if given.name else {}
        if given.metadata:
            changed["metadata"] = pairs(given.metadata)
        profile = self.found(given.profile)
        self.clustering.update_profile(profile.id, **changed)
        return self.shown(profile.id)


class UpdatePolicy(_Policy, ShowOne):
    """Update a policy."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("--name", metavar="<name>", help="New name of the policy")
        parser.add_argument("policy", metavar="<policy>", help="Name or ID of policy to be updated")
        return parser

    def take_action(self, given: argparse.Namespace) -> One:
        policy = self.found(given.policy)
        self.clustering.update_policy(policy.id, **({"name": given.name} if given.name else {}))
        return self.shown(policy.id)


class _Delete(_Noun, Command):
    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument(self.noun, metavar=f"<{self.noun}>", nargs="+", help=f"Name or ID of {self.plural}")
        parser.add_argument("--force", action="store_true", help="Skip yes/no prompt (assume yes)")
        return parser

    def take_action(self, given: argparse.Namespace) -> None:
        if not commands.confirm(given, self.noun):
            return
        names, failures = getattr(given, self.noun), 0
        for name in names:
            try:
                self.ask("delete", name, ignore_missing=False)
            except sdk.HttpException as error:
                failures += 1
                self.app.stdout.write(f"{commands.words(error)}\n")
        if failures:
            raise CommandError(f"Failed to delete {failures} of the {len(names)} specified {self.noun}(s).")
        self.app.stdout.write(f"{self.noun.capitalize()} deleted: {names}\n")


class DeleteProfile(_Profile, _Delete):
    """Delete profile(s)."""


class DeletePolicy(_Policy, _Delete):
    """Delete policy(s)."""


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
                told = "\n".join(f"{each['status']} since {each['since']}" for each in statuses)
                rows.append((kind.name, version, told))
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

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("type_name", metavar="<type-name>", help="Its name and version")
        return parser

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
