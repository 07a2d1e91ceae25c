"""What the `openstack` command loads first: the name of this plug-in, its option, and its client."""

import argparse
import logging
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from roost.client import Client

API_NAME = "roost"
API_VERSION_OPTION = "os_roost_api_version"
API_VERSIONS = ("1",)
DEFAULT_API_VERSION = "1"

CLUSTERING_MICROVERSION = "1.14"

_log = logging.getLogger(__name__)


def make_client(manager: Any) -> Client:
    """The client that commands find as `client_manager.roost`."""
    return Client(manager.sdk_connection)


def build_option_parser(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add python-senlinclient's option, unless it is installed itself; only version 1 exists."""
    other = _other_version()
    if other is None:
        parser.add_argument(
            "--os-clustering-api-version", metavar="<clustering-api-version>", help="Clustering API version, always 1"
        )
    else:
        _prefer_these_commands(other)
    return parser


def _other_version() -> str | None:
    try:
        return version("python-senlinclient")
    except PackageNotFoundError:
        return None


def _prefer_these_commands(other: str) -> None:
    """Where both are installed, python-senlinclient's commands are loaded first and these last, so that these win. One
    line says so, instead of one warning a command."""
    _log.info("python-senlinclient %s is installed too; 'openstack cluster' is the one that comes with roost", other)
    logging.getLogger("cliff.commandmanager").addFilter(lambda record: "senlinclient." not in record.getMessage())
