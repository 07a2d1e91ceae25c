"""What the commands share: their options, their client, how they print and wait, and how they report a refusal."""

import argparse
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import yaml
from cliff.columns import FormattableColumn
from openstack import exceptions as sdk
from osc_lib.command import command
from osc_lib.exceptions import CommandError
from oslo_utils import strutils
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from roost.client import Client
from roost.osc.plugin import CLUSTERING_MICROVERSION

Table = tuple[Sequence[str], Iterable[Sequence[Any]]]
One = tuple[Sequence[str], Sequence[Any]]

NOTHING: One = ((), ())

_POLL_SECONDS = 0.5
_LONGEST_WAIT = 3600


@dataclass(frozen=True)
class Option:
    """One option or argument of a command, in argparse's own terms."""

    names: tuple[str, ...]
    settings: Mapping[str, Any]

    def add_to(self, parser: Any) -> None:
        """Declare it to a parser, or to a group of options."""
        parser.add_argument(*self.names, **self.settings)


@dataclass(frozen=True)
class OneOf:
    """Options that exclude each other."""

    options: tuple[Option, ...]
    required: bool

    def add_to(self, parser: Any) -> None:
        """Declare them to a parser."""
        group = parser.add_mutually_exclusive_group(required=self.required)
        for each in self.options:
            each.add_to(group)


Options = tuple[Option | OneOf, ...]


def option(*names: str, **settings: Any) -> Option:
    """An option (`--name`) or an argument (`name`)."""
    return Option(names, settings)


def one_of(*options: Option, required: bool = False) -> OneOf:
    """Several options of which at most one may be given."""
    return OneOf(options, required)


class RoostCommand:
    """A command that declares its options, and reports a refusal in one sentence.

    A command has the options of its base classes too; theirs come first.
    """

    app: Any
    options: ClassVar[Options] = ()

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The parser of everything that the class and its base classes declare."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)  # type: ignore[misc]
        for base in reversed(type(self).__mro__):
            for each in vars(base).get("options", ()):
                each.add_to(parser)
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Carry out the command. A refusal prints a sentence, not a traceback."""
        try:
            return int(super().run(parsed_args))  # type: ignore[misc]
        except sdk.HttpException as error:
            raise CommandError(words(error)) from None

    @property
    def roost(self) -> Client:
        """The client of this plug-in."""
        client: Client = self.app.client_manager.roost
        return client

    @property
    def clustering(self) -> Any:
        """The SDK's clustering proxy, in the newest version that clusters have."""
        proxy = self.app.client_manager.sdk_connection.clustering
        proxy.default_microversion = CLUSTERING_MICROVERSION
        return proxy


class Command(RoostCommand, command.Command):  # type: ignore[misc]
    """A command that prints sentences."""


class Lister(RoostCommand, command.Lister):  # type: ignore[misc]
    """A command that prints a table."""


class ShowOne(RoostCommand, command.ShowOne):  # type: ignore[misc]
    """A command that prints one thing."""


def words(error: sdk.HttpException) -> str:
    """The message in an error's body, or the SDK's own if there is none."""
    details = getattr(error, "details", None)
    return str(details or error)


class JsonColumn(FormattableColumn[Any]):
    """Nested data: unchanged for machines, indented JSON for people."""

    def human_readable(self) -> str:
        return json.dumps(self._value, indent=2, ensure_ascii=False)


class LinesColumn(FormattableColumn[Any]):
    """A list: unchanged for machines, one line each for people."""

    def human_readable(self) -> str:
        return "\n".join(str(each) for each in self._value)


def cell(value: Any) -> Any:
    """A value as a table can hold it."""
    if isinstance(value, list | tuple) and not any(isinstance(each, dict) for each in value):
        return LinesColumn(list(value))
    return JsonColumn(value) if isinstance(value, dict | list) else value


def shown(data: Mapping[str, Any], *without: str) -> One:
    """All columns of one resource, sorted by name."""
    columns = sorted(set(data) - {"location", *without})
    return columns, [cell(data[column]) for column in columns]


def listed(items: Iterable[Any], columns: Sequence[str], short: Iterable[str] = ()) -> Table:
    """These columns of many resources; the ids in `short` are cut to eight characters."""
    cut = set(short)
    return columns, (tuple(_cut(getattr(item, column), column in cut) for column in columns) for item in items)


def _cut(value: Any, short: bool) -> Any:
    if not short:
        return cell(value)
    return "\n".join(each[:8] for each in value) if isinstance(value, list) else (value or "")[:8]


# Options and their values


def pairs(given: Sequence[str] | None) -> dict[str, Any]:
    """KEY=VALUE, given several times or once with semicolons; a key given twice has a list."""
    if not given or list(given) == ["{}"]:
        return {}
    found: dict[str, Any] = {}
    for part in given[0].split(";") if len(given) == 1 else given:
        key, equals, value = part.partition("=")
        if not equals:
            raise CommandError(f"Malformed parameter({part}). Use the key=value format.")
        found[key] = value if key not in found else [*_as_list(found[key]), value]
    return found


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def boolean(text: str | bool) -> bool:
    """A word for true or false."""
    try:
        return bool(strutils.bool_from_string(text, strict=True))
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is neither true nor false") from None


def document(path: str) -> Any:
    """The content of a YAML file."""
    try:
        return yaml.safe_load(Path(path).read_text())
    except OSError as error:
        raise CommandError(f"The file {path} cannot be read: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise CommandError(f"The specified file is not a valid YAML file: {error}") from None


WAIT = option("--wait", action="store_true", help="Wait until it is done")
FORCE = option("--force", action="store_true", help="Skip yes/no prompt (assume yes)")
FULL_ID = option("--full-id", action="store_true", help="Print full IDs in list")


def pairs_option(name: str, what: str) -> Option:
    """An option of KEY=VALUE."""
    return option(name, metavar='<"key1=value1;key2=value2...">', action="append", help=what)


def boolean_option(*names: str, **settings: Any) -> Option:
    """An option with a word for true or false."""
    return option(*names, metavar="<boolean>", type=boolean, **settings)


def listing(what: str, *, all_projects: bool = True, pages: bool = True) -> tuple[Option, ...]:
    """The options of a list."""
    page = (
        option("--limit", metavar="<limit>", type=int, help=f"Limit the number of {what} returned"),
        option("--marker", metavar="<id>", help=f"Only return {what} that appear after the given ID"),
    )
    return (
        pairs_option("--filters", f"Filter parameters to apply on returned {what}"),
        option("--sort", metavar="<key>[:<direction>]", help="Sorting keys, each with :asc or :desc"),
        *(page if pages else ()),
        *([option("--global-project", action="store_true", help=f"Include {what} of all projects")] * all_projects),
        FULL_ID,
    )


def queries(given: argparse.Namespace) -> dict[str, Any]:
    """The query of a list."""
    # What the SDK calls a limit is the size of a page: it goes on to the next.
    names = {"limit": "max_items", "marker": "marker", "sort": "sort", "global_project": "global_project"}
    found = {key: getattr(given, name) for name, key in names.items() if getattr(given, name, None) is not None}
    return {**found, **pairs(given.filters)}


def missing(noun: str, name: str) -> CommandError:
    """The error for something that does not exist."""
    return CommandError(f"{noun} not found: {name}")


def confirm(given: argparse.Namespace, noun: str) -> None:
    """Ask before something is deleted, unless `--force` is given; raise if the answer is not yes."""
    if given.force:
        return
    print(f"Are you sure you want to delete this {noun}? [y/N]", end=" ", flush=True)
    try:
        answer = input()
    except (EOFError, KeyboardInterrupt):
        print("Ctrl-c detected.")
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise CommandError("Nothing was deleted.")


def each(names: Sequence[str], noun: str, delete: Callable[[str], str], write: Callable[[str], Any]) -> None:
    """Delete each of these and write what `delete` says of it; raise at the end if any was refused."""
    failures = 0
    for name in names:
        try:
            write(f"{delete(name)}\n")
        except sdk.HttpException as error:
            failures += 1
            write(f" {name}: failed due to '{words(error)}'\n")
    if failures:
        raise CommandError(f"Failed to delete {failures} of the {len(names)} specified {noun}(s).")


# Starting actions, and waiting for them


def accepted(answer: Any) -> str:
    """The action that the SDK's answer names; raises where the body of a refusal came instead."""
    if "action" in answer:
        return str(answer["action"])
    error = answer.get("error") if isinstance(answer, dict) else None
    message = error["message"] if isinstance(error, dict) and "message" in error else answer
    raise CommandError(f"Request error: {message}")


class Tending:
    """A command that starts an action on each of several things."""

    noun: ClassVar[str]
    verb: ClassVar[str]
    app: Any

    def start(self, name: str, given: argparse.Namespace) -> Any:
        """Ask for the action."""
        raise NotImplementedError

    def start_all(self, given: argparse.Namespace) -> dict[str, str]:
        """Start an action on each; the actions by name."""
        actions = {}
        for name in getattr(given, self.noun):
            try:
                actions[name] = accepted(self.start(name, given))
            except sdk.NotFoundException:
                raise missing(self.noun.title(), name) from None
            request = f"{self.noun.title()} {self.verb} request on {self.noun} {name}"
            self.app.stdout.write(f"{request} is accepted by action {actions[name]}.\n")
        return actions


@contextmanager
def progress(sentence: str, total: int | None = None) -> Iterator[Any]:
    """A progress bar; `update(done, total, sentence)` moves it. Prints nothing when stderr is not a terminal."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal,
    )  # fmt: skip
    with bar:
        task = bar.add_task(sentence, total=total)
        yield lambda done, total=total, said=sentence: bar.update(task, completed=done, total=total, description=said)


def await_action(clustering: Any, action_id: str) -> None:
    """Wait until an action has ended; raise if it failed."""
    with progress(f"action {action_id[:8]}") as update:
        for _ in range(int(_LONGEST_WAIT / _POLL_SECONDS)):
            action = clustering.get_action(action_id)
            if action.status in ("SUCCEEDED", "FAILED", "CANCELLED"):
                break
            outputs = action.outputs or {}
            waiting = f"{action.action} is {action.status}: {action.status_reason or 'nodes done'}"
            update(outputs.get("nodes_done", 0), outputs.get("nodes_total"), waiting)
            time.sleep(_POLL_SECONDS)
    if action.status != "SUCCEEDED":
        raise CommandError(f"The action {action_id} ended as {action.status}: {action.status_reason}")


def await_latest_action(clustering: Any, target: str) -> None:
    """Wait for the latest action on a cluster, where the SDK does not say which action it started."""
    await_action(clustering, next(iter(clustering.actions(target_id=target, sort="created_at:desc", limit=1))).id)
