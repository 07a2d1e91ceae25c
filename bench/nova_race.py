"""The race that Nova loses: as many servers as hosts in one anti-affinity group, asked for eight at a time.

On the lab's Nova, side by side in one run: Nova as it comes, Nova tuned for this (`host_subset_size`, shuffled best
hosts), and the same Nova with Roost in front of it and its plug-in in the scheduler. Needs the lab: make lab.
"""

import argparse
import os
import platform
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lab import control, tenants
from lab import settings as lab_settings
from lab.settings import Settings
from tests.lab.front import connect, restart_scheduler, standing

HOSTS = 30
AT_ONCE = 8
TUNED = "host_subset_size=15;shuffle_best_same_weighed_hosts=true"
FIGURES = Path("bench/figures/nova_race.md")
_ROOST = "nova"
"""The user of the lab as whom Roost signs in: an administrator, with the role of a service."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the servers."""

    who: str
    active: int
    failed: int
    hosts: int
    most: int
    seconds: float

    def row(self) -> str:
        """A line of the table."""
        broken = "no rule broken" if self.most <= 1 else f"**{self.most} on one host**"
        return f"| {self.who} | {self.active} | {self.failed} | {self.hosts} | {broken} | {self.seconds:.0f} |"


def race(who: str, cloud: Any, admin: Any) -> Outcome:
    """Ask for the servers, wait until each is ACTIVE or ERROR, and see where they are."""
    compute = cloud.compute
    group = compute.create_server_group(name="race", policy="anti-affinity")
    image, flavor = cloud.image.find_image(tenants.IMAGE).id, compute.find_flavor("m1.lab").id

    def create(number: int) -> str:
        hints = {"group": group.id}
        made = compute.create_server(
            name=f"race-{number}", image_id=image, flavor_id=flavor, networks="none", scheduler_hints=hints
        )
        return str(made.id)

    started = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as clients:
        wanted = set(clients.map(create, range(HOSTS)))
    while True:
        servers = [server for server in admin.compute.servers(all_projects=True) if server.id in wanted]
        if len(servers) == HOSTS and all(server.status in ("ACTIVE", "ERROR") for server in servers):
            break
        time.sleep(0.5)
    seconds = time.monotonic() - started
    places = Counter(server.compute_host for server in servers if server.status == "ACTIVE")
    for server in servers:
        compute.delete_server(server.id)
    for server in servers:
        admin.compute.wait_for_delete(server, interval=0.3, wait=300)
    compute.delete_server_group(group)
    active = places.total()
    return Outcome(who, active, HOSTS - active, len(places), max(places.values(), default=0), seconds)


def races(lab: Settings, rounds: int, tell: Callable[[Outcome], None]) -> None:
    """All three, as often as asked for."""
    admin = tenants.connect(lab)
    demo = {"auth_url": lab.auth_url, "username": "demo", "password": "demo", "project_name": "demo"}
    roost = {**demo, "username": _ROOST, "password": "lab", "project_name": "service"}
    domains = {"user_domain_id": "default", "project_domain_id": "default"}
    with (
        tempfile.TemporaryDirectory(prefix="roost-") as folder,
        standing(lab, Path(folder), {**roost, **domains}) as front,
    ):
        for _ in range(rounds):
            restart_scheduler(lab)
            tell(race("Nova", connect({**demo, **domains}), admin))
            restart_scheduler(replace(lab, scheduler_conf=TUNED))
            tell(race("Nova, tuned", connect({**demo, **domains}), admin))
            front.plug_in()
            tell(race("Roost on the same Nova", front.connect({**demo, **domains}), admin))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--figures", type=Path, default=FIGURES)
    arguments, _ = parser.parse_known_args()
    lab = replace(lab_settings.load(), hosts=HOSTS)
    if not control.is_up(lab):
        print("The lab is not up: run make lab first")
        return
    outcomes: list[Outcome] = []

    def tell(outcome: Outcome) -> None:
        outcomes.append(outcome)
        print(outcome.row(), flush=True)

    usual = lab_settings.load()
    control.restart(lab, ["computes"])
    try:
        races(lab, arguments.rounds, tell)
    finally:
        control.restart(usual, ["computes"])
        restart_scheduler(usual)
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    text = "\n".join(
        [
            "# The race that Nova loses: the last figures",
            "",
            f"{HOSTS} hosts, one anti-affinity group, {HOSTS} servers asked for {AT_ONCE} at a time; a real Nova",
            f"34.0.0 in the lab, one scheduler. Made by `bench/nova_race.py`, on a machine with {machine}, load",
            f"{os.getloadavg()[0]:.1f} at the end. Tuned: `{TUNED}`.",
            "",
            "| who | ACTIVE | ERROR | hosts used | | seconds |",
            "|---|---|---|---|---|---|",
            *(outcome.row() for outcome in outcomes),
            "",
        ]
    )
    arguments.figures.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
