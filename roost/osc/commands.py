"""What the commands have in common: where they get their client, how they print, wait, and put refusals into words."""

import argparse
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from cliff.columns import FormattableColumn
from openstack import exceptions as sdk
from osc_lib.command import command
from osc_lib.exceptions import CommandError
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from roost.client import Client
from roost.osc.plugin import CLUSTERING_MICROVERSION

Table = tuple[Sequence[str], Iterable[Sequence[Any]]]
One = tuple[Sequence[str], Sequence[Any]]

NOTHING: One = ((), ())

_POLL_SECONDS = 0.5
_LONGEST_WAIT = 3600


class _Base:
    """A command that says in one sentence why it was refused."""

    app: Any

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Carry the command out; a refusal is a sentence, not a traceback."""
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


class Command(_Base, command.Command):  # type: ignore[misc]
    """A command that prints sentences."""


class Lister(_Base, command.Lister):  # type: ignore[misc]
    """A command that prints a table."""


class ShowOne(_Base, command.ShowOne):  # type: ignore[misc]
    """A command that prints one thing."""


def words(error: sdk.HttpException) -> str:
    """The sentence in an error's body; what the SDK makes of it, if there is none."""
    details = getattr(error, "details", None)
    return str(details or error)


class JsonColumn(FormattableColumn[Any]):
    """Nested data: as it is for machines, as indented JSON for people."""

    def human_readable(self) -> str:
        return json.dumps(self._value, indent=2, ensure_ascii=False)


class LinesColumn(FormattableColumn[Any]):
    """A list: as it is for machines, a line each for people."""

    def human_readable(self) -> str:
        return "\n".join(str(each) for each in self._value)


def cell(value: Any) -> Any:
    """A value as a table can hold it."""
    if isinstance(value, list | tuple) and not any(isinstance(each, dict) for each in value):
        return LinesColumn(list(value))
    return JsonColumn(value) if isinstance(value, dict | list) else value


def shown(data: Mapping[str, Any], *without: str) -> One:
    """Everything about one thing, in the order of its names."""
    columns = sorted(set(data) - {"location", *without})
    return columns, [cell(data[column]) for column in columns]


def listed(items: Iterable[Any], columns: Sequence[str], short: Iterable[str] = ()) -> Table:
    """These columns of many things; ids that are to be short are cut to eight letters."""
    cut = set(short)
    return columns, (tuple(_cut(getattr(item, column), column in cut) for column in columns) for item in items)


def _cut(value: Any, short: bool) -> Any:
    if not short:
        return cell(value)
    return "\n".join(each[:8] for each in value) if isinstance(value, list) else (value or "")[:8]


# What is given


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
    word = str(text).lower()
    if word in ("true", "t", "yes", "y", "on", "1"):
        return True
    if word in ("false", "f", "no", "n", "off", "0"):
        return False
    raise argparse.ArgumentTypeError(f"'{text}' is neither true nor false")


def document(path: str) -> Any:
    """What a YAML file says."""
    try:
        return yaml.safe_load(Path(path).read_text())
    except OSError as error:
        raise CommandError(f"The file {path} cannot be read: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise CommandError(f"The specified file is not a valid YAML file: {error}") from None


def add_pairs(parser: argparse.ArgumentParser, option: str, what: str) -> None:
    """An option of KEY=VALUE."""
    parser.add_argument(option, metavar='<"key1=value1;key2=value2...">', action="append", help=what)


def add_listing(parser: argparse.ArgumentParser, what: str, *, everybody: bool = True, pages: bool = True) -> None:
    """The options that all lists have."""
    add_pairs(parser, "--filters", f"Filter parameters to apply on returned {what}")
    parser.add_argument("--sort", metavar="<key>[:<direction>]", help="Sorting keys, each with :asc or :desc")
    if pages:
        parser.add_argument("--limit", metavar="<limit>", help=f"Limit the number of {what} returned")
        parser.add_argument("--marker", metavar="<id>", help=f"Only return {what} that appear after the given ID")
    if everybody:
        parser.add_argument("--global-project", action="store_true", help=f"Include {what} of all projects")
    parser.add_argument("--full-id", action="store_true", help="Print full IDs in list")


def queries(given: argparse.Namespace) -> dict[str, Any]:
    """What a list is asked for with."""
    names = ("limit", "marker", "sort", "global_project")
    found = {name: getattr(given, name) for name in names if getattr(given, name, None) is not None}
    return {**found, **pairs(given.filters)}


def missing(noun: str, name: str) -> CommandError:
    """What to say of a thing that is not there."""
    return CommandError(f"{noun} not found: {name}")


def confirm(given: argparse.Namespace, noun: str) -> bool:
    """Whether something is really to be deleted: `--force` says so beforehand."""
    if given.force:
        return True
    print(f"Are you sure you want to delete this {noun}? [y/N]", end=" ", flush=True)
    try:
        return input().strip().lower() in ("y", "yes")
    except (EOFError, KeyboardInterrupt):
        print("Ctrl-c detected.")
        return False


# Waiting


@contextmanager
def progress(sentence: str, total: int | None = None) -> Iterator[Any]:
    """A bar on the terminal while something is waited for; `update(done)` moves it. Silent where nobody looks on."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal,
    )  # fmt: skip
    with bar:
        task = bar.add_task(sentence, total=total)
        yield lambda done, total=total: bar.update(task, completed=done, total=total)


def await_action(clustering: Any, action_id: str) -> None:
    """Wait until an action of a cluster has ended; one that failed is a refusal."""
    with progress(f"action {action_id[:8]}"):
        for _ in range(int(_LONGEST_WAIT / _POLL_SECONDS)):
            action = clustering.get_action(action_id)
            if action.status in ("SUCCEEDED", "FAILED", "CANCELLED"):
                break
            time.sleep(_POLL_SECONDS)
    if action.status != "SUCCEEDED":
        raise CommandError(f"The action {action_id} ended as {action.status}: {action.status_reason}")


def await_latest_action(clustering: Any, target: str) -> None:
    """Wait for the action that was last begun on a cluster, where the SDK does not say which that is."""
    await_action(clustering, next(iter(clustering.actions(target_id=target, sort="created_at:desc", limit=1))).id)
