"""Tempest's tests of the compute API: python -m tests.tempest.compute [--all | --regex REGEX]."""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from tests.conftest import serve
from tests.tempest.__main__ import BIN, run

PLACEMENT = (
    "(test_server_group|serial_tests.api.compute.admin.test_server_affinity"
    "|test_servers_on_multinodes.ServersOnMultiNodesTest|test_aggregates|test_availability_zone|test_hypervisor"
    "|test_versions.TestVersions)"
)
"""Groups, affinity, hints, aggregates, zones, hypervisors: what Roost is for. All of it must pass."""
ALL = "^tempest.(api|serial_tests.api).compute"
"""Much of it is of what Roost does not have: volumes, networks, consoles, snapshots."""


def main() -> int:
    """Serve a cloud of two hosts, run, and stop. The affinity tests disable all hosts but two, and leave it so."""
    parser = argparse.ArgumentParser(prog="python -m tests.tempest.compute", description=__doc__)
    parser.add_argument("--all", action="store_const", const=ALL, dest="regex", help="every test of the compute API")
    parser.add_argument("--regex", help="other tests")
    parser.add_argument("--hosts", type=int, default=2)
    parser.set_defaults(regex=PLACEMENT)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="roost-tempest-", ignore_cleanup_errors=True) as folder:
        topology = Path(folder) / "topology.yaml"
        topology.write_text(yaml.safe_dump({"hosts": [{"name": f"host{n + 1}"} for n in range(options.hosts)]}))
        served = serve(Path(folder) / "data", "--topology", str(topology))
        try:
            failed = run(served, Path(folder), options.regex)
            # The names of failed tests leave out the classes that could not even be set up.
            last = subprocess.run([BIN / "stestr", "last"], cwd=Path(folder) / "workspace", capture_output=True)
            return failed or last.returncode
        finally:
            served.process.terminate()
            served.process.wait(60)


if __name__ == "__main__":
    sys.exit(main())
