"""Cells: ten databases with a fleet of 100,000 hosts each, and a router that knows only a digest of each.

    python -m bench.cells [--cells N] [--hosts N] [--requests N]

A simulation of docs/adr/0016: each cell decides with the real placement core on its own hosts. The router chooses the
cell by a digest (how many servers of the flavor it has room for), which is as old as the refresh interval allows; a
cell that refuses sends the request on to the next. The clock is simulated: requests come at a fixed rate, and cells get
their next digest out when the interval has passed. One request in ten is for a group whose home is one cell, one in ten
for a group that is spread over cells and keeps a count of its members in each.
"""

import argparse
import os
import platform
import random
import statistics
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from roost.placement.decision import Request
from roost.placement.fleet import Fleet, Members, Resources
from roost.placement.rules import Rule
from roost.placement.scheduler import place

FIGURES = Path("bench/figures/cells.md")
TOTAL = Resources(64, 262_144, 2_000)
FLAVOR = Resources(4, 8_192, 80)
PER_HOST = 16
RATE = 5_000
"""Requests a second, over all cells, by the simulated clock."""
INTERVALS = (0.0, 1.0, 5.0, 30.0)
RULES = (Rule.parse("anti-affinity"), Rule.parse("anti-affinity:rack", {"max_server_per_aggregate": 2}))


@dataclass
class Cell:
    """One database with its hosts: all that the router sees of it is the digest."""

    name: str
    fleet: Fleet
    left: int
    """Servers of the flavor that still fit."""
    up: bool = True
    digest: int = 0
    spent: float = 0.0
    """Seconds that its decisions have taken."""
    decisions: int = 0

    def decide(self, rules: tuple[Rule, ...], members: Members, seed: int) -> bool:
        """Place one server, if it fits."""
        started = time.perf_counter()
        decision = place(self.fleet, Request(FLAVOR, rules=rules, members=members, seed=seed, budget=0))
        if decision:
            self.fleet.claim(decision.hosts[0], FLAVOR)
            members.add(decision.hosts[0])
            self.left -= 1
        self.spent += time.perf_counter() - started
        self.decisions += 1
        return bool(decision)


@dataclass
class Group:
    """A group: at home in one cell, or spread over cells with its members counted in each."""

    home: int | None
    members: dict[int, Members] = field(default_factory=dict)

    def in_cell(self, cell: int) -> Members:
        """Its members in one cell, which no other cell needs to know."""
        return self.members.setdefault(cell, Members())


def make(number: int, hosts: int, fill: float) -> Cell:
    """A cell whose hosts are this full on average."""
    dice, fleet, left = random.Random(number), Fleet(), 0
    for at in range(hosts):
        host = fleet.add_host(f"c{number}h{at}", TOTAL, aggregates={"rack": f"r{at // 40}"})
        used = min(PER_HOST, max(0, round(dice.gauss(fill, 0.1) * PER_HOST)))
        if used:
            fleet.claim(host, FLAVOR, used)
        left += PER_HOST - used
    return Cell(f"cell{number}", fleet, left)


def order(cells: list[Cell], group: Group | None, dice: random.Random) -> list[int]:
    """The cells to ask, the best first: the home of the group; the cells with the fewest of its members; else by chance
    in proportion to the room that the digests show, so that a stale digest does not send everybody to one cell."""
    if group is not None and group.home is not None:
        return [group.home]
    weights = {number: max(cell.digest, 1) * dice.random() for number, cell in enumerate(cells)}
    by_room = sorted(weights, key=lambda number: -weights[number])
    if group is None:
        return by_room
    return sorted(by_room, key=lambda number: group.in_cell(number).total)


@dataclass
class Outcome:
    """What a run came to."""

    asked: Counter[int] = field(default_factory=Counter)
    """How many requests were answered by the cell asked first, second and so on; 0 is by none."""
    unevenness: list[int] = field(default_factory=list)


def run(cells: list[Cell], requests: int, interval: float, seed: int) -> Outcome:
    """Send requests while digests grow old."""
    dice, outcome = random.Random(seed), Outcome()
    homes = [Group(number % len(cells)) for number in range(50)]
    spread = [Group(None) for _ in range(50)]
    refreshed = -1.0
    for number in range(requests):
        now = number / RATE
        if now - refreshed >= interval:
            refreshed = now
            for cell in cells:
                cell.digest = cell.left if cell.up else 0
        kind = number % 10
        group = dice.choice(homes) if kind == 0 else dice.choice(spread) if kind == 1 else None
        answered = 0
        for place_in_line, choice in enumerate(order(cells, group, dice), 1):
            cell = cells[choice]
            members = group.in_cell(choice) if group is not None else Members()
            if cell.up and cell.decide(RULES if group is not None else (), members, dice.getrandbits(32)):
                answered = place_in_line
                break
        outcome.asked[answered] += 1
    outcome.unevenness = [
        max(counts) - min(counts)
        for counts in ([group.in_cell(number).total for number in range(len(cells))] for group in spread)
    ]
    return outcome


def main() -> None:
    """Measure, say the table, and keep the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cells", type=int, default=10)
    parser.add_argument("--hosts", type=int, default=100_000)
    parser.add_argument("--requests", type=int, default=20_000)
    options = parser.parse_args()
    whole = (options.cells, options.hosts) == (10, 100_000)
    started = time.perf_counter()
    # From half full to nearly full, and the last one with next to nothing left: there a stale digest misleads.
    fills = np.linspace(0.5, 1.1, options.cells)
    cells = [make(number, options.hosts, float(fill)) for number, fill in enumerate(fills)]
    lines = [
        f"{options.cells} cells of {options.hosts:,} hosts, made in {time.perf_counter() - started:.0f} s.",
        "",
        "| digests every | decisions/s of one cell's core | answered by the first cell | by a later one | by none | "
        "a spread group's most uneven cells | fill of cells, min to max |",
        "|---|---|---|---|---|---|---|",
    ]
    scenarios = [(interval, True) for interval in INTERVALS] + [(INTERVALS[2], False)]
    for seed, (interval, all_up) in enumerate(scenarios):
        cells[0].up = all_up
        for cell in cells:
            cell.spent, cell.decisions = 0.0, 0
        outcome = run(cells, options.requests, interval, seed)
        first, none = outcome.asked[1], outcome.asked[0]
        rate = statistics.mean(cell.decisions / cell.spent for cell in cells if cell.spent)
        fill = [1 - cell.left / (options.hosts * PER_HOST) for cell in cells]
        lines.append(
            f"| {interval:.0f} s{'' if all_up else ', one cell down'} | {rate:,.0f} | {first / options.requests:.2%} | "
            f"{(options.requests - first - none) / options.requests:.2%} | {none / options.requests:.2%} | "
            f"{max(outcome.unevenness)} | {min(fill):.0%} to {max(fill):.0%} |"
        )
        print(lines[-1], flush=True)
    print("\n".join(lines))
    if whole:
        machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
        head = f"# Cells\n\n{__doc__}\n{machine}; load {os.getloadavg()[0]:.1f} at the end."
        FIGURES.write_text("\n".join([head, "", *lines]) + "\n")


if __name__ == "__main__":
    main()
