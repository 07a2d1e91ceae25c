"""Lists over 100,000 hosts and 500,000 servers: how long each takes, and how long others wait meanwhile.

One API process, everything on this machine. While an administrator asks for a list, another client asks for
/healthcheck again and again, which is answered at once unless the event loop is busy. The longest of its waits stands
beside the time of the list; the first row has the waits of three seconds without other requests.

    python -m bench.lists [--hosts N] [--groups N]
"""

import argparse
import asyncio
import http.client
import os
import platform
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psycopg

from bench.servers import cloud, sign_in
from tests.compute.large_fleet import LISTS, large_fleet

FIGURES = Path("bench/figures/lists.md")
IDLE_SECONDS = 3.0


def waits(port: int, meanwhile: Callable[[], None]) -> list[float]:
    """How long each /healthcheck took, in seconds, while something else was done."""
    took: list[float] = []
    working = threading.Thread(target=meanwhile)
    working.start()
    connection = http.client.HTTPConnection("127.0.0.1", port)
    while working.is_alive() or not took:
        begun = time.perf_counter()
        connection.request("GET", "/healthcheck")
        connection.getresponse().read()
        took.append(time.perf_counter() - begun)
        time.sleep(0.002)
    return sorted(took)


def fetch(port: int, path: str, token: str) -> int:
    """Ask for a list, and read it without looking at it; its size in bytes."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    headers = {"X-Auth-Token": token, "OpenStack-API-Version": "compute 2.1003"}
    connection.request("GET", f"/compute/v2.1/{path}", headers=headers)
    answer = connection.getresponse()
    size = len(answer.read())
    assert answer.status == 200, (path, answer.status)
    return size


def measure(port: int, path: str, token: str) -> str:
    """Ask for a list once, while others ask for little: its row in the table."""
    sizes: list[int] = []
    begun = time.perf_counter()
    others = waits(port, lambda: sizes.append(fetch(port, path, token)))
    seconds = time.perf_counter() - begun
    figures = f"{others[-1] * 1000:.0f} | {others[len(others) // 2] * 1000:.1f}"
    return f"| `{path}` | {sizes[0] / 1e6:.1f} | {seconds:.2f} | {figures} |"


def main() -> None:
    """Make the fleet, ask for every list, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=100_000)
    parser.add_argument("--groups", type=int, default=25_000, help="of 20 servers each")
    wanted = parser.parse_args()
    lines = ["| list | MB | seconds | others wait, longest ms | median ms |", "|---|---|---|---|---|"]
    with cloud() as (postgres, port, passwords):
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            # No process has to hear of each of so many servers.
            connection.execute("SET session_replication_role = replica")
            for statement in large_fleet(wanted.hosts, groups=wanted.groups):
                connection.execute(statement)
            connection.execute("ANALYZE")
        token = asyncio.run(sign_in(port, passwords["admin"], "admin"))
        idle = waits(port, lambda: time.sleep(IDLE_SECONDS))
        lines.append(f"| nothing | | | {idle[-1] * 1000:.0f} | {idle[len(idle) // 2] * 1000:.1f} |")
        for path in LISTS:
            lines.append(measure(port, path, token))
            print(lines[-1], flush=True)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    head = f"# Lists\n\n{__doc__}\n{wanted.hosts:,} hosts, {wanted.groups * 20:,} servers; {machine}; "
    FIGURES.write_text(f"{head}load {os.getloadavg()[0]:.1f} at the end.\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
