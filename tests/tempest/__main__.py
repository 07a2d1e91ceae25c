"""Run Tempest against a Roost of its own: python -m tests.tempest SUITE, or a regular expression.

The suites know a cloud only by the two files that are written here, from the clouds.yaml that `roost serve` writes.
They live in their own environment, .venv-tempest, since they bring their own versions of everything.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import psycopg
import yaml

from tests.conftest import Served, serve
from tests.tempest.suites import CANNOT_PASS, SUITES, Pass

ROOT = Path(__file__).parents[2]
BIN = ROOT / ".venv-tempest" / "bin"
IMAGES = ("cirros-0.4.0-x86_64-disk", "tempest-alt", "new_image")
"""Names that the suites have built in, or read from their configuration."""
FILTERS = (
    "ComputeFilter",
    "ServerGroupAntiAffinityFilter",
    "ServerGroupAffinityFilter",
    "SameHostFilter",
    "DifferentHostFilter",
)


def main() -> int:
    """Serve, run, and stop; 0 if nothing failed but what cannot pass."""
    parser = argparse.ArgumentParser(prog="python -m tests.tempest", description="Run Tempest against Roost.")
    parser.add_argument("what", help=f"a suite ({', '.join(SUITES)}) or a regular expression")
    parser.add_argument("--exclude-regex", default="")
    parser.add_argument("--longest-sleep", type=float, default=0.2, help="seconds that waits of the tests are cut to")
    arguments = parser.parse_args()
    passes = SUITES.get(arguments.what) or (Pass(arguments.what, arguments.exclude_regex, arguments.longest_sleep),)
    with tempfile.TemporaryDirectory(prefix="roost-tempest-") as folder:
        settings = Path(folder) / "roost.conf"
        settings.write_text("[clusters]\nhealth_interval_min = 10\nprivate_urls = true\n")
        served = serve(Path(folder) / "data", "--config", str(settings))
        try:
            workspace = _workspace(served, Path(folder))
            failed = [name for part in passes for name in attempt(workspace, part)]
        finally:
            served.process.terminate()
            served.process.wait(60)
    return _verdict(failed)


def _verdict(failed: list[str]) -> int:
    unexpected = []
    for name in failed:
        reason = next((why for known, why in CANNOT_PASS.items() if name.endswith(known)), None)
        print(f"cannot pass: {name}: it {reason}" if reason else f"FAILED: {name}")
        unexpected += [] if reason else [name]
    return 1 if unexpected else 0


def _workspace(served: Served, folder: Path) -> Path:
    images = _prepare(served)
    workspace = folder / "workspace"
    registry = ("--workspace-path", folder / "workspaces.yaml")
    subprocess.run([BIN / "tempest", "init", *registry, workspace], check=True, capture_output=True)
    (workspace / "etc" / "accounts.yaml").write_text(yaml.safe_dump(_accounts(served)))
    (workspace / "etc" / "tempest.conf").write_text(_configuration(served, workspace, images))
    return workspace


def run(served: Served, folder: Path, regex: str) -> int:
    """Run the tests that match in a workspace under `folder`; 0 if nothing failed but what cannot pass."""
    return _verdict(attempt(_workspace(served, folder), Pass(regex)))


def attempt(workspace: Path, part: Pass) -> list[str]:
    """Run the tests of a pass; print the traces of those that failed, and the totals; the names of the former."""
    environment = {
        **os.environ,
        "TEMPEST_CONFIG_DIR": str(workspace / "etc"),
        "PYTHONPATH": str(Path(__file__).parent / "shim"),
        "LONGEST_SLEEP": str(part.longest_sleep),
    }
    command = [str(BIN / "tempest"), "run", "--serial", "--regex", part.regex]
    if part.exclude:
        command += ["--exclude-regex", part.exclude]
    done = subprocess.run(command, cwd=workspace, env=environment, capture_output=True, text=True)
    output = done.stdout + done.stderr
    print(output.partition("==============================\nFailed")[2].partition("======\nTotals")[0])
    print(output.partition("======\nTotals")[2] or output[-3000:])
    return re.findall(r"^\{\d+\} (\S+?)(?:\[\S*\])? \[[\d.]+s\] \.\.\. FAILED", output, re.MULTILINE)


def _prepare(served: Served) -> list[str]:
    """Lift the quotas of the suites' projects, and add the flavor and the images that they ask for; the images' ids."""
    url = f"postgresql://roost@/roost?host={served.folder / 'run'}"
    with psycopg.connect(url) as connection:
        for resource in ("instances", "cores", "ram", "server_groups", "server_group_members"):
            connection.execute(
                'INSERT INTO quotas (project_id, resource, "limit") SELECT id, %s, -1 FROM projects '
                "ON CONFLICT DO NOTHING",
                (resource,),
            )
        connection.execute(
            "INSERT INTO flavors (id, name, vcpus, memory_mb, disk_gb) VALUES ('new', 'new_flavor', 1, 1024, 1) "
            "ON CONFLICT DO NOTHING"
        )
        ids = []
        for name in IMAGES:
            query = "INSERT INTO images (id, name, size) VALUES (gen_random_uuid(), %s, 1000) RETURNING id"
            row = connection.execute(query, (name,)).fetchone()
            assert row is not None
            ids.append(str(row[0]))
    return ids


def _accounts(served: Served) -> list[dict[str, Any]]:
    roles = {"roost": "member", "roost-reader": "reader", "roost-manager": "manager"}
    accounts = []
    for cloud, entry in yaml.safe_load(served.clouds.read_text())["clouds"].items():
        auth = entry["auth"]
        account = {"username": auth["username"], "password": auth["password"], "project_name": auth["project_name"],
                   "domain_name": "Default"}  # fmt: skip
        role = roles.get(cloud.replace("-alt", ""))
        if cloud == "roost-admin":
            accounts.append({**account, "types": ["admin"], "roles": ["admin"]})
        elif role is not None:
            accounts.append({**account, "roles": [role]})
    return accounts


def _configuration(served: Served, workspace: Path, images: list[str]) -> str:
    admin = yaml.safe_load(served.clouds.read_text())["clouds"]["roost-admin"]["auth"]
    return f"""
[DEFAULT]
log_file = {workspace}/tempest.log
[auth]
use_dynamic_credentials = false
test_accounts_file = {workspace}/etc/accounts.yaml
admin_username = {admin["username"]}
admin_password = {admin["password"]}
admin_project_name = {admin["project_name"]}
admin_domain_name = Default
[identity]
uri_v3 = {served.url}/identity/v3
auth_version = v3
region = RegionOne
[oslo_concurrency]
lock_path = {workspace}/locks
[service_available]
nova = true
glance = true
neutron = true
cinder = false
swift = false
horizon = false
senlin = true
[compute]
image_ref = {images[0]}
image_ref_alt = {images[1]}
flavor_ref = 1
flavor_ref_alt = 2
min_compute_nodes = 2
min_microversion = 2.1
max_microversion = latest
build_interval = 1
build_timeout = 30
[compute-feature-enabled]
scheduler_enabled_filters = {",".join(FILTERS)}
[validation]
run_validation = false
[clustering]
wait_timeout = 60
min_microversion = 1.0
max_microversion = latest
delete_with_dependency = true
health_policy_version = 1.1
"""


if __name__ == "__main__":
    sys.exit(main())
