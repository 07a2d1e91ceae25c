"""The real `openstack` command and the real SDK, pointed at a served Roost."""

import contextlib
import io
import json
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openstack
import pytest
from openstackclient.shell import OpenStackShell
from osc_lib.clientmanager import ClientCache, ClientManager

from tests.conftest import Served


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    code: int
    output: str
    errors: str


@dataclass(frozen=True)
class Client:
    """The `openstack` command, run inside this process because starting one takes seconds."""

    clouds: Path

    def run(self, *command: str, cloud: str = "roost-admin") -> Ran:
        """Run a command whatever comes of it."""
        output, errors = io.StringIO(), io.StringIO()
        _forget_clients()
        logger = logging.getLogger()
        handlers, level = list(logger.handlers), logger.level
        logger.handlers.clear()  # pytest's would raise where the client itself logs something malformed
        try:
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
                code = OpenStackShell().run(["--os-cloud", cloud, *command])
        except SystemExit as ended:  # what cannot be parsed
            code = int(ended.code or 0)
        finally:
            logger.handlers[:], logger.level = handlers, level
        return Ran(code, output.getvalue(), errors.getvalue())

    def do(self, *command: str, cloud: str = "roost-admin") -> str:
        """What a command that must succeed prints."""
        ran = self.run(*command, cloud=cloud)
        assert ran.code == 0, ran.errors
        return ran.output

    def ask(self, *command: str, cloud: str = "roost-admin") -> Any:
        """What a command that must succeed answers."""
        return json.loads(self.do(*command, "-f", "json", cloud=cloud))

    def refusal(self, *command: str, cloud: str = "roost") -> str:
        """What a command that must fail says."""
        ran = self.run(*command, cloud=cloud)
        assert ran.code != 0, ran.output
        return ran.errors


def _forget_clients() -> None:
    """The command keeps its service clients on a class, where the next one would find those of another user."""
    for kept in vars(ClientManager).values():
        if isinstance(kept, ClientCache):
            kept._handle = None


@pytest.fixture
def client(served: Served, monkeypatch: pytest.MonkeyPatch) -> Client:
    """The command line client of the served Roost."""
    for name in [name for name in os.environ if name.startswith("OS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(served.clouds))
    return Client(served.clouds)


@pytest.fixture
def sdk(client: Client) -> Iterator[Any]:
    """An openstacksdk connection of the operator."""
    connection = openstack.connect(cloud="roost-admin")
    yield connection
    connection.close()
