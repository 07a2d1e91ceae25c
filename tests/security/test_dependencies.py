"""What is installed is what is pinned, and what is pinned is needed: nothing comes in unseen.

Whether a pinned version has a known hole is a question for a data base of advisories, which needs the Internet: see
SECURITY.md for how operators ask it.
"""

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

HERE = Path(__file__).parents[2]
PROJECT = tomllib.loads((HERE / "pyproject.toml").read_text())
EXTRAS = ("embedded", "keystone", "client", "notifications", "senlin", "tracing")
FILES = sorted(path.name for path in HERE.glob("constraints*.txt"))
# They bring the others, and pip is brought by Python.
TOOLS = {"pip", "setuptools"}


def pins(name: str) -> dict[str, Version]:
    """The versions that a file of constraints allows."""
    lines = [line.partition("#")[0].strip() for line in (HERE / name).read_text().splitlines()]
    found: dict[str, Version] = {}
    for line in filter(None, lines):
        matched = re.fullmatch(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.!+_-]+)(\s*;.*)?", line)
        assert matched, f"{name}: '{line}' is not a version and nothing else"
        found[canonicalize_name(matched[1])] = Version(matched[2])
    return found


def wanted() -> list[Requirement]:
    """What the project itself asks for, as `make install` installs it."""
    lines = [*PROJECT["project"]["dependencies"], *PROJECT["dependency-groups"]["dev"]]
    for extra in EXTRAS:
        lines += PROJECT["project"]["optional-dependencies"][extra]
    return [Requirement(line) for line in lines]


def needed() -> set[str]:
    """All that follows from what is asked for, by what the installed packages say of themselves."""
    found: set[str] = set()
    waiting = wanted()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        key = f"{name}[{','.join(sorted(requirement.extras))}]"
        if key in found:
            continue
        found |= {key, name}
        environment = {key_: str(value) for key_, value in default_environment().items()}
        for line in metadata.requires(name) or ():
            more = Requirement(line)
            extras = requirement.extras or {""}
            if more.marker is None or any(more.marker.evaluate({**environment, "extra": each}) for each in extras):
                waiting.append(more)
    return {name for name in found if "[" not in name}


@pytest.mark.parametrize("name", FILES)
def test_every_constraint_is_one_version(name: str) -> None:
    assert pins(name)
    assert not re.search(r"https?://|--|@ |git\+", (HERE / name).read_text())


def test_everything_that_is_needed_is_pinned_and_installed_as_pinned() -> None:
    pinned = pins("constraints.txt")
    unpinned = needed() - pinned.keys() - TOOLS
    assert not unpinned
    installed = {name: Version(metadata.version(name)) for name in needed() - TOOLS}
    assert installed == {name: pinned[name] for name in installed}
    for requirement in wanted():
        assert pinned[canonicalize_name(requirement.name)] in requirement.specifier


def test_nothing_is_pinned_that_nothing_needs() -> None:
    assert pins("constraints.txt").keys() - needed() - TOOLS == set()


def test_what_is_installed_fits_together() -> None:
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
