"""What is the same for every kind of thing: listing, showing, changing and deleting it."""

import argparse
from collections.abc import Sequence
from typing import Any, ClassVar

from openstack import exceptions as sdk

from roost.osc import commands
from roost.osc.commands import FORCE, Command, Lister, One, Options, RoostCommand, ShowOne, Table, missing, pairs


class NounCommand(RoostCommand):
    """A command about one kind of thing; the SDK names its calls after it."""

    noun: ClassVar[str]
    plural: ClassVar[str]
    hidden: ClassVar[Sequence[str]] = ()
    """What is not shown of one."""

    def ask(self, verb: str, *given: Any, **more: Any) -> Any:
        """One of the SDK's calls for this noun."""
        return getattr(self.clustering, f"{verb}_{self.noun}")(*given, **more)

    def get(self, name: str, **more: Any) -> Any:
        """One of them."""
        try:
            return self.ask("get", name, **more)
        except sdk.NotFoundException:
            raise missing(self.noun.replace("_", " ").title(), name) from None

    def shown(self, name: str) -> One:
        """Everything about one of them."""
        return commands.shown(self.get(name).to_dict(), *self.hidden)


class ListNouns(NounCommand, Lister):
    """A list of them, in these columns."""

    columns: ClassVar[Sequence[str]]
    owner: ClassVar[Sequence[str]] = ("project_id",)
    """More columns, where those of all projects are listed."""
    ids: ClassVar[Sequence[str]] = ("id",)
    """What is cut short, besides the columns of the owner."""

    def query(self, given: argparse.Namespace) -> dict[str, Any]:
        """What is asked for."""
        return commands.queries(given)

    def take_action(self, given: argparse.Namespace) -> Table:
        found = getattr(self.clustering, self.plural)(**self.query(given))
        columns = [*self.columns, *(self.owner if given.global_project else ())]
        return commands.listed(found, columns, () if given.full_id else (*self.ids, *self.owner))


class ShowNoun(NounCommand, ShowOne):
    """One of them."""

    def take_action(self, given: argparse.Namespace) -> One:
        return self.shown(getattr(given, self.noun))


class UpdateNoun(NounCommand, ShowOne):
    """Change one of them, and show it."""

    plain: ClassVar[Sequence[str]] = ("name",)
    """The options that are taken as they are given."""
    paired: ClassVar[Sequence[str]] = ()
    """The options of KEY=VALUE."""

    def changes(self, given: argparse.Namespace) -> dict[str, Any]:
        """What is to be different."""
        changed = {name: getattr(given, name) for name in self.plain if getattr(given, name) is not None}
        return changed | {name: pairs(getattr(given, name)) for name in self.paired if getattr(given, name)}

    def take_action(self, given: argparse.Namespace) -> One:
        found = self.ask("find", getattr(given, self.noun))
        if found is None:
            raise missing(self.noun.title(), getattr(given, self.noun))
        self.ask("update", found.id, **self.changes(given))
        return self.shown(found.id)


class DeleteNouns(NounCommand, Command):
    """Delete some of them."""

    options: ClassVar[Options] = (FORCE,)

    def delete(self, name: str, given: argparse.Namespace) -> str:
        """Delete one, and say so."""
        self.ask("delete", name, ignore_missing=False)
        return f"{self.noun.title()} deleted: {[name]}"

    def take_action(self, given: argparse.Namespace) -> None:
        commands.confirm(given, self.noun)
        names = getattr(given, self.noun)
        commands.each(names, self.noun, lambda name: self.delete(name, given), self.app.stdout.write)
