"""Tempest, OpenStack's own integration suite, against a `roost serve`: `python -m tests.tempest --suite compute`."""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from configparser import ConfigParser
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from roost.compute import images
from tests.conftest import Served, serve

_ROOT = Path(__file__).parents[2]
_ROLES = {"reader": "reader", "manager": "manager"}


@dataclass(frozen=True)
class Suite:
    """Which tests, and the cloud that they need."""

    regex: str
    exclude: str = ""
    hosts: int = 2
    """The affinity tests disable all hosts but two, and leave it so."""
    options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Further lines of tempest.conf, by section."""
    environment: Mapping[str, str] = field(default_factory=dict)


SUITES = {
    "compute": Suite(
        "(test_server_group|serial_tests.api.compute.admin.test_server_affinity"
        "|test_servers_on_multinodes.ServersOnMultiNodesTest|test_aggregates|test_availability_zone|test_hypervisor"
        "|test_versions.TestVersions)",
    ),
    "compute-more": Suite("^tempest.(api.compute|serial_tests.api.compute)", hosts=4),
}


def main() -> int:
    """Serve, write what Tempest wants to know, run it; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.tempest", description=__doc__)
    parser.add_argument("--suite", choices=SUITES, default="compute")
    parser.add_argument("--regex", help="only these tests of the suite")
    parser.add_argument("--tempest", type=Path, default=_ROOT / ".venv-tempest/bin/tempest", help="the command")
    options = parser.parse_args()
    suite = SUITES[options.suite]
    with tempfile.TemporaryDirectory(prefix="roost-tempest-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        topology = folder / "topology.yaml"
        topology.write_text(yaml.safe_dump({"hosts": [{"name": f"host{n + 1}"} for n in range(suite.hosts)]}))
        served = serve(folder / "served", "--topology", str(topology))
        try:
            return _run(served, folder, suite, options.tempest, options.regex or suite.regex)
        finally:
            served.process.terminate()
            served.process.wait(60)


def _run(served: Served, folder: Path, suite: Suite, tempest: Path, regex: str) -> int:
    workspace = folder / "workspace"
    home = {"HOME": str(folder), "PATH": f"{tempest.parent}:{os.environ['PATH']}"}
    subprocess.run([tempest, "init", workspace], check=True, env=home, stdout=subprocess.DEVNULL)
    clouds = yaml.safe_load(served.clouds.read_text())["clouds"]
    (workspace / "etc/accounts.yaml").write_text(yaml.safe_dump(_accounts(clouds)))
    _write_config(workspace, served.url, clouds["roost-admin"], suite)
    command = [tempest, "run", "--serial", "--regex", regex]
    if suite.exclude:
        command += ["--exclude-regex", suite.exclude]
    environment = {**home, **suite.environment, "TEMPEST_CONFIG_DIR": str(workspace / "etc")}
    return subprocess.run(command, cwd=workspace, env=environment).returncode


def _accounts(clouds: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One user a persona: Tempest takes several of a project at once, and a user with two roles only for one."""
    accounts = []
    for name, cloud in clouds.items():
        role = _ROLES.get(name.rpartition("-")[2], "member")
        account = {
            "username": cloud["auth"]["username"],
            "password": cloud["auth"]["password"],
            "project_name": cloud["auth"]["project_name"],
            "domain_name": "Default",
        }
        if name == "roost-admin":
            accounts.append({**account, "types": ["admin"], "roles": ["admin"]})
        else:
            accounts.append({**account, "roles": [role]})
    return accounts


def _write_config(workspace: Path, url: str, admin: Mapping[str, Any], suite: Suite) -> None:
    options: dict[str, dict[str, str]] = {
        "DEFAULT": {"log_file": str(workspace / "tempest.log")},
        "auth": {
            "use_dynamic_credentials": "false",
            "test_accounts_file": str(workspace / "etc/accounts.yaml"),
            "admin_username": admin["auth"]["username"],
            "admin_password": admin["auth"]["password"],
            "admin_project_name": admin["auth"]["project_name"],
            "admin_domain_name": "Default",
            "create_isolated_networks": "false",
        },
        "identity": {"uri_v3": f"{url}/identity/v3", "auth_version": "v3", "region": "RegionOne"},
        # Some classes of server tests are skipped without a network service, though none is asked.
        "service_available": {"nova": "true", "glance": "true", "neutron": "true", "cinder": "false", "swift": "false"},
        "compute": {
            "image_ref": images.USUAL[0].id,
            "image_ref_alt": images.USUAL[1].id,
            "flavor_ref": "1",
            "flavor_ref_alt": "2",
            "min_compute_nodes": "2",
            "min_microversion": "2.1",
            "max_microversion": "2.104",
            "build_interval": "1",
            "build_timeout": "30",
        },
        "compute-feature-enabled": {
            "scheduler_enabled_filters": "ComputeFilter,ServerGroupAntiAffinityFilter,ServerGroupAffinityFilter,"
            "SameHostFilter,DifferentHostFilter",
            "console_output": "false",
            "vnc_console": "false",
            "cold_migration": "true",
            "live_migration": "true",
            "resize": "true",
            "attach_encrypted_volume": "false",
            "snapshot": "false",
            "interface_attach": "false",
        },
        "validation": {"run_validation": "false"},
        "oslo_concurrency": {"lock_path": str(workspace / "locks")},
    }
    parser = ConfigParser(interpolation=None)
    parser.read_dict(options)
    for section, lines in suite.options.items():
        parser.read_dict({section: lines})
    with (workspace / "etc/tempest.conf").open("w") as file:
        parser.write(file)


if __name__ == "__main__":
    sys.exit(main())
