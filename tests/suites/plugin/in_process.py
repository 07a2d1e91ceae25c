"""A pytest plug-in for .venv-suites: commands run in a fork of this process, since starting a client takes seconds, and
waits are cut short, since they were chosen for clouds whose servers take minutes to boot.

The commands, their arguments and what they print are those of the installed clients.
"""

import importlib
import json
import os
import pkgutil
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence

import pytest
from tempest.lib import exceptions
from tempest.lib.cli import base as tempest_base

_LONGEST_SLEEP = 0.2
_SHELLS: dict[str, Callable[[list[str]], int | None]] = {}


def _preload() -> None:
    import cliff.command
    import glanceclient.shell
    import novaclient.shell
    import openstackclient
    import openstackclient.shell

    for found in pkgutil.walk_packages(openstackclient.__path__, "openstackclient."):
        if ".tests" not in found.name:
            importlib.import_module(found.name)
    for proxy in ("block_storage.v3", "compute.v2", "identity.v3", "image.v2", "network.v2"):
        importlib.import_module(f"openstack.{proxy}._proxy")
    cliff.command._get_distributions_by_modules()  # it is cached, and is most of what a command does by itself
    _SHELLS["openstack"] = openstackclient.shell.main
    _SHELLS["glance"] = lambda arguments: glanceclient.shell.main()  # it reads sys.argv
    _SHELLS["nova"] = novaclient.shell.main


def _fork(command: Sequence[str], environment: dict[str, str] | None, merge: bool) -> tuple[int, bytes, bytes]:
    """The status, output and errors of a command."""
    if not _SHELLS:
        _preload()
    program, arguments = os.path.basename(command[0]), list(command[1:])
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        child = os.fork()
        if child == 0:
            _become(program, arguments, output.fileno(), (output if merge else errors).fileno(), environment)
        _, status = os.waitpid(child, 0)
        output.seek(0)
        errors.seek(0)
        return os.waitstatus_to_exitcode(status), output.read(), errors.read()


def _become(program: str, arguments: list[str], output: int, errors: int, environment: dict[str, str] | None) -> None:
    code: object = 1
    try:
        os.dup2(output, 1)
        os.dup2(errors, 2)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        sys.stdin = open(os.devnull)  # noqa: SIM115
        sys.argv = [program, *arguments]
        if environment is not None:
            os.environ.clear()
            os.environ.update(environment)
        import logging

        logging.getLogger().handlers.clear()
        try:
            code = _SHELLS[program](arguments)
        except SystemExit as end:
            code = end.code
            if isinstance(code, str):
                print(code, file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException as error:
        os.write(2, repr(error).encode())
        code = 1
    finally:
        os._exit(code if isinstance(code, int) else 1 if code else 0)


def _openstack(cmd: str, *, fail_ok: bool = False) -> str:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OS_")}
    code, output, errors = _fork(shlex.split(cmd), environment, merge=False)
    if not fail_ok and code != 0:
        raise exceptions.CommandFailed(code, cmd, output.decode(), errors)
    return output.decode()


def _tempest(
    cmd: str,
    action: str,
    flags: str = "",
    params: str = "",
    fail_ok: bool = False,
    merge_stderr: bool = False,
    cli_dir: str = "/usr/bin",
    prefix: str = "",
) -> str:
    command = shlex.split(" ".join([prefix, os.path.join(cli_dir, cmd), flags, action, params]).strip())
    code, output, errors = _fork(command, None, merge_stderr)
    if not fail_ok and code != 0:
        raise exceptions.CommandFailed(code, command, output, errors)
    return output.decode()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where to write what came of each test."""
    parser.addoption("--outcomes")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Function, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write down a test with its whole name, and the last that it said, unless it just went on to its next phase."""
    report = yield
    if report.when == "call" or report.outcome != "passed":
        name = ".".join([item.module.__name__, *item.nodeid.split("::")[1:]])
        row = {"name": name, "result": report.outcome, "message": report.longreprtext[-1500:]}
        with open(item.config.getoption("--outcomes"), "a") as file:
            file.write(json.dumps(row) + "\n")
    return report


def pytest_configure() -> None:
    """Replace what starts a process for each command."""
    from openstackclient.tests.functional import base

    sleep = time.sleep
    time.sleep = lambda seconds: sleep(min(float(seconds), _LONGEST_SLEEP))
    base.execute = _openstack
    tempest_base.execute = _tempest
