"""What Roost's filter costs inside nova-scheduler, next to Nova's own anti-affinity filter on the same host states.

CPU time of the process that filters, best of several rounds in turns, in one run. Roost's filter offers
the hosts over HTTP and hears which may pass; what Roost itself spends on deciding is measured elsewhere.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import TypedDict

NOVA = Path(".venv-nova/bin/python")
FIGURES = Path("bench/figures/nova_plugin.md")


class Result(TypedDict):
    hosts: int
    members: int
    nova_cpu_ms: float
    nova_ms: float
    roost_cpu_ms: float
    roost_ms: float


def measure(python: Path) -> list[Result]:
    """Both filters, where Nova is installed."""
    if not python.exists():
        sys.exit(f"Nova is not there: make {python.parts[0]}/.installed")
    peer = Path(__file__).with_name("nova_plugin_peer.py")
    own = {"PYTHONPATH": str(peer.parent.parent / "roost-nova"), "OS_NOVA_DISABLE_EVENTLET_PATCHING": "true"}
    found = subprocess.run(
        [python, "-W", "ignore", peer], check=True, stdout=subprocess.PIPE, env={**os.environ, **own}
    )
    results: list[Result] = json.loads(found.stdout)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nova", type=Path, default=NOVA)
    parser.add_argument("--figures", type=Path, default=FIGURES)
    arguments = parser.parse_args()
    results = measure(arguments.nova)
    worst = max(result["roost_cpu_ms"] / result["nova_cpu_ms"] for result in results)
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    lines = [
        "# The plug-in inside nova-scheduler: the last figures",
        "",
        f"Made by `bench/nova_plugin.py`, on a machine with {machine}, load {os.getloadavg()[0]:.1f} at the end.",
        "Nova 34.0.0's `ServerGroupAntiAffinityFilter` and `roost_nova.ScopedGroupFilter` on the same list of host",
        "states, in turns, in one process; the best of 15 rounds. CPU is that of this process; Roost's filter also",
        "waits for the answer, which is in the last column.",
        "",
        "| hosts | members | Nova, CPU ms | Roost, CPU ms | share | Nova, ms | Roost, ms |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {result['hosts']:,} | {result['members']:,} | {result['nova_cpu_ms']:.1f} "
            f"| {result['roost_cpu_ms']:.1f} | {result['roost_cpu_ms'] / result['nova_cpu_ms']:.0%} "
            f"| {result['nova_ms']:.1f} | {result['roost_ms']:.1f} |"
            for result in results
        ),
        "",
        f"The bar is less than Nova's own filter in every row: {'met' if worst < 1 else '**missed**'}, "
        f"at most {worst:.0%} of its CPU time.",
        "",
    ]
    arguments.figures.write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
