"""Command lines as they are shown to people: whether `openstack` and `roost` know them."""

import argparse
import shlex
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import SimpleNamespace

from roost.cli import main

_GROUPS = (
    *("openstack.common", "openstack.compute.v2", "openstack.identity.v3"),
    *("openstack.roost.v1", "openstack.extension"),
)


def check(line: str) -> None:
    """Parse a line as the program that it names would; it fails if that would refuse it."""
    words = shlex.split(line, comments=True)
    if words[0] == "roost":
        _parse(main.parser(), words[1:])
    elif words[0] == "openstack":
        entry, rest = _command(words[1:])
        _parse(entry.load()(SimpleNamespace(client_manager=None), None).get_parser("openstack"), rest)


def _parse(parser: argparse.ArgumentParser, words: list[str]) -> None:
    end = next((number for number, word in enumerate(words) if word in (">", "|", "&&")), len(words))
    parser.parse_args(words[:end])


@cache
def _commands() -> dict[str, EntryPoint]:
    return {entry.name.replace("_", " "): entry for group in _GROUPS for entry in entry_points(group=group)}


def _command(words: list[str]) -> tuple[EntryPoint, list[str]]:
    """The command that these words begin with, and the rest of them."""
    while words[0].startswith("--os-"):
        words = words[2:]
    for length in range(len(words), 0, -1):
        if " ".join(words[:length]) in _commands():
            return _commands()[" ".join(words[:length])], words[length:]
    raise AssertionError(f"openstack {' '.join(words)}: there is no such command")
