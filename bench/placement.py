"""The placement core against Nova's scheduler, against one bare pass over the columns, and against its own bars.

    python -m bench.placement [--nova PYTHON] [--figures FILE]

PYTHON is the interpreter of an environment in which Nova is installed; without one, Nova is left out and said to be.
All figures are CPU time, the best of several runs, so that a busy machine disturbs them least.
"""

import argparse
import gc
import json
import os
import platform
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypedDict

import numpy as np

from roost.placement import walk
from roost.placement.board import offset
from roost.placement.decision import Request
from roost.placement.distribution import WeightedZone, create
from roost.placement.fleet import Fleet, Members, Resources
from roost.placement.repair import RepairMember, repair
from roost.placement.rules import Rule
from roost.placement.scheduler import LateReasons, place, scan

HOSTS = (1_000, 10_000)
SIZES = (10_000, 100_000, 1_000_000)
MEMBERS = (10, 100, 1_000)
MANY = 100
FLAVOR = Resources(2, 4096, 20)
NOVA = Path(".venv-nova/bin/python")
FIGURES = Path("bench/figures/placement.md")


class NovaResult(TypedDict, total=False):
    hosts: int
    members: int
    one_ms: float
    many_ms: float


@dataclass(frozen=True, slots=True)
class Bar:
    """Something that must hold, what was measured, and whether it holds."""

    what: str
    bar: str
    measured: str
    met: bool | None

    def row(self) -> str:
        verdict = {True: "met", False: "**missed**", None: "not measured"}[self.met]
        return f"| {self.what} | {self.bar} | {self.measured} | {verdict} |"


def cpu(act: Callable[[], object], repeats: int, rounds: int = 15) -> float:
    """CPU seconds for one call: the best round."""
    act()
    times = []
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(repeats):
            act()
        times.append((time.process_time() - start) / repeats)
    return min(times)


def fleet_of(number: int) -> Fleet:
    """Hosts in three zones, racks of 40 and eight maintenance zones, each with something on it."""
    dice, fleet = random.Random(number), Fleet()
    for at in range(number):
        used = dice.randint(10, 90)
        places = {"availability_zone": f"az{at % 3}", "rack": f"r{at // 40}", "maintenance_zone": f"mz{at % 8}"}
        host = fleet.add_host(f"host{at:06}", Resources(512, 1048576, 20000), aggregates=places)
        fleet.claim(host, Resources(used, used * 4096, used * 20))
    return fleet


def group_request(fleet: Fleet, members: int, count: int = 1) -> Request:
    """Anti-affinity between hosts, as Nova is asked for it."""
    limit = 2 if members >= len(fleet) else 1
    rules = (Rule.parse("anti-affinity", {"max_server_per_host": limit}),)
    spots = random.Random(members).sample(range(len(fleet)), min(members, len(fleet)))
    return Request(FLAVOR, count, rules, Members(spots))


def bare_pass(fleet: Fleet) -> None:
    """Every column that a decision needs, read once: three compared, one copied, one combined with a seed."""
    for free, need in zip(fleet.free_columns, FLAVOR, strict=True):
        _ = free >= need
    _ = fleet.enabled_column.copy()
    _ = fleet.order_column ^ 5


def ask_nova(python: Path) -> list[NovaResult]:
    """Nova's figures, or none if it is not there; 100 servers over 10,000 hosts take it minutes, so once is enough."""
    if not python.exists():
        print(f"Nova is left out: there is no {python}", file=sys.stderr)
        return []
    cases = [
        f"{hosts}:{members}:{MANY if hosts == 1_000 or members == 100 else 0}" for hosts in HOSTS for members in MEMBERS
    ]
    peer = Path(__file__).with_name("nova_peer.py")
    command = [str(python), "-W", "ignore", str(peer), "--cases", ",".join(cases)]
    answer: list[NovaResult] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return answer


def scheduler_section(nova: list[NovaResult]) -> tuple[list[str], list[Bar]]:
    lines = [
        "| hosts | members | bare pass, us | one decision, us | to bare | Nova, ms | times faster "
        "| 100 servers, ms | Nova, s | times faster |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    by_case = {(result["hosts"], result["members"]): result for result in nova}
    ratios: list[float] = []
    speedups: list[float] = []
    many_speedups: list[float] = []
    ones: dict[tuple[int, int], float] = {}
    for hosts in HOSTS:
        fleet = fleet_of(hosts)
        fleet.index_hosts()
        for members in MEMBERS:
            single, several = group_request(fleet, members), group_request(fleet, members, MANY)
            assert place(fleet, single)
            assert place(fleet, several)
            bare = cpu(partial(bare_pass, fleet), 200)
            one = cpu(partial(place, fleet, single), 100)
            many = cpu(partial(place, fleet, several), 5)
            ones[hosts, members] = one
            theirs = by_case.get((hosts, members), NovaResult())
            their_one, their_many = theirs.get("one_ms"), theirs.get("many_ms")
            lines.append(
                f"| {hosts:,} | {members:,} | {bare * 1e6:.1f} | {one * 1e6:.1f} | {one / bare:.2f} "
                f"| {_number(their_one, 1)} | {_times(their_one, one * 1e3)} "
                f"| {many * 1e3:.2f} | {_number(their_many, 1e-3)} | {_times(their_many, many * 1e3)} |"
            )
            if hosts == max(HOSTS):
                ratios.append(one / bare)
                speedups += [their_one / one / 1e3] if their_one else []
                many_speedups += [their_many / many / 1e3] if their_many else []
    largest = max(HOSTS)
    growth = max(ones[largest, m] for m in MEMBERS) / min(ones[largest, m] for m in MEMBERS)
    return lines, [
        _least("one decision, 10,000 hosts, to Nova's", 50_000, speedups),
        _least("100 servers in one request, 10,000 hosts, to Nova's", 300_000, many_speedups),
        Bar("one decision, 10,000 hosts, to the bare pass", "<= 1x", f"{max(ratios):.2f}x", max(ratios) <= 1),
        Bar("100 times the members, 10,000 hosts", "no growth (<= 1.5x)", f"{growth:.2f}x", growth <= 1.5),
    ]


def _number(value: float | None, scale: float) -> str:
    return "-" if value is None else f"{value * scale:,.0f}"


def _times(theirs: float | None, ours: float) -> str:
    return "-" if theirs is None else f"{theirs / ours:,.0f}"


def _least(what: str, bar: int, found: list[float]) -> Bar:
    if not found:
        return Bar(what, f">= {bar:,}x", "-", None)
    return Bar(what, f">= {bar:,}x", f"{min(found):,.0f}x", min(found) >= bar)


TWO_SCOPES = (
    Rule.parse("anti-affinity:rack", {"max_server_per_aggregate": 2}),
    Rule.parse("soft-anti-affinity:maintenance_zone"),
)


def resident() -> int:
    """The bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def sizes_section() -> tuple[list[str], list[Bar]]:
    """One decision with two scopes, by the index and by the columns, and what the index costs, at three sizes."""
    lines = [
        "| hosts | load, s | index, s | memory, bytes a host | one decision, us | by the columns, us | 100 servers, us "
        "| one change, us | kept for naming, us | naming, us | counting, us |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    costs, kept = {}, {}
    for hosts in SIZES:
        gc.collect()
        before, start = resident(), time.process_time()
        fleet = fleet_of(hosts)
        loaded = time.process_time()
        fleet.index_hosts()
        request = Request(FLAVOR, 1, TWO_SCOPES, Members(range(0, hosts, hosts // 100)))
        several = replace(request, count=MANY)
        decision = place(fleet, request)
        chosen = decision.hosts[0]
        indexed = time.process_time()
        memory = (resident() - before) / hosts
        assert scan(fleet, request).hosts == (chosen,)
        assert scan(fleet, several).hosts == place(fleet, several).hosts
        one = costs[hosts] = cpu(partial(place, fleet, request), 200)
        columns = cpu(partial(scan, fleet, request), 3, 5)
        many = cpu(partial(place, fleet, several), 3, 5)
        change = cpu(partial(_change, fleet, chosen), 500) / 2
        named = cpu(partial(_names, fleet, request), 200)
        counted = cpu(partial(_refused, fleet, request), 3, 5)
        index = fleet.host_index
        assert index is not None
        found = walk.find(fleet, index, request, offset(fleet, request))
        assert found is not None
        kept[hosts] = cpu(partial(LateReasons, fleet, request, found), 500)
        lines.append(
            f"| {hosts:,} | {loaded - start:.1f} | {indexed - loaded:.2f} | {memory:,.0f} | {one * 1e6:.1f} "
            f"| {columns * 1e6:,.0f} | {many * 1e6:,.0f} | {change * 1e6:.1f} | {kept[hosts] * 1e6:.2f} "
            f"| {(named - one) * 1e6:,.1f} | {(counted - one) * 1e6:,.0f} |"
        )
        del fleet, request, several, decision, index, found
    return lines, [
        Bar("two scopes over 100,000 hosts", "<= 20 us", f"{costs[10**5] * 1e6:.1f} us", costs[10**5] <= 20e-6),
        Bar("two scopes over 1,000,000 hosts", "<= 30 us", f"{costs[10**6] * 1e6:.1f} us", costs[10**6] <= 30e-6),
        *(
            Bar(
                f"what a decision pays for naming winner and runners-up later, {hosts:,} hosts",
                "< 10 % of deciding",
                f"{kept[hosts] / costs[hosts]:.1%}",
                kept[hosts] < 0.1 * costs[hosts],
            )
            for hosts in SIZES
        ),
    ]


def _names(fleet: Fleet, request: Request) -> object:
    return place(fleet, request).names


def _refused(fleet: Fleet, request: Request) -> object:
    return place(fleet, request).refused


def _change(fleet: Fleet, host: int) -> None:
    """Two changes of what a host has left, each into another per cent."""
    fleet.claim(host, Resources(64, 0, 0))
    fleet.release(host, Resources(64, 0, 0))


def worst_section() -> list[str]:
    """What costs most, shown and not judged."""
    fleet = fleet_of(100_000)
    fleet.index_hosts()
    lines = ["| worst case | what it takes |", "|---|---|"]
    sixteen = (
        *(Rule.parse("soft-anti-affinity:rack") for _ in range(7)),
        *(Rule.parse("soft-anti-affinity:maintenance_zone") for _ in range(7)),
        *TWO_SCOPES[:1],
        Rule.parse("anti-affinity"),
    )
    many_rules = Request(FLAVOR, 1, sixteen, Members(range(0, 100_000, 1000)))
    lines.append(_worst("16 rules, 100,000 hosts", lambda: place(fleet, many_rules), 20))
    many = Request(FLAVOR, 10_000, TWO_SCOPES[1:])
    lines.append(_worst("10,000 servers in one request, 100,000 hosts", lambda: place(fleet, many), 0))
    skewed = Request(FLAVOR, 10_000, (Rule.parse("anti-affinity:availability_zone", {"max_skew": 1}),))
    what = "10,000 servers in one request with a skew, which the columns decide, 100,000 hosts"
    lines.append(_worst(what, lambda: place(fleet, skewed), 0))
    full = Fleet()
    for number in range(100_000):  # the few hosts that are large enough have the least headroom
        large = number % 1000 == 0
        total, free = (512, 1048576, 20000), (8, 16384, 400)
        full.add_host(
            f"h{number}", Resources(*total if large else (1, 2048, 20)), free=Resources(*free) if large else None
        )
    full.index_hosts()
    crowded = Request(FLAVOR)
    assert place(full, crowded)
    what = "a nearly full fleet of 100,000: the first 99,900 hosts of the queue are refused"
    lines.append(_worst(what, lambda: place(full, crowded), 10))
    for hosts, parts, planted, servers in ((1000, 200, 200, 190), (600, 200, 0, 150)):
        crossing, rules = _crossing(hosts, parts, planted)
        ask = Request(FLAVOR, servers, rules)
        start = time.process_time()
        decision = place(crossing, ask)
        spent = time.process_time() - start
        what = f"exact search: {hosts:,} hosts, four crossing scopes of {parts}, {servers} servers, {planted} planted"
        lines.append(f"| {what} | {spent:.1f} s, {decision.verdict} |")
    return lines


def _worst(what: str, act: Callable[[], object], repeats: int) -> str:
    if repeats:
        spent = cpu(act, repeats, 3)
    else:  # once is long enough
        start = time.process_time()
        act()
        spent = time.process_time() - start
    return f"| {what} | {spent * 1e6:,.0f} us |" if spent < 0.01 else f"| {what} | {spent * 1e3:,.0f} ms |"


def _crossing(hosts: int, parts: int, planted: int) -> tuple[Fleet, tuple[Rule, ...]]:
    """Four scopes that cut across each other, with a place for so many servers in as many parts of each."""
    dice, fleet = random.Random(1), Fleet()
    shuffled = [dice.sample(range(parts), parts) for _ in range(4)]
    rows = [[scope[at] for scope in shuffled] for at in range(planted)]
    rows += [[dice.randrange(parts) for _ in range(4)] for _ in range(hosts - planted)]
    dice.shuffle(rows)
    for at, row in enumerate(rows):
        places = {f"scope{number}": str(part) for number, part in enumerate(row)}
        fleet.add_host(f"host{at}", Resources(16, 65536, 500), aggregates=places)
    return fleet, tuple(Rule.parse(f"anti-affinity:scope{number}") for number in range(4))


def distribution_section() -> list[Bar]:
    zones = [WeightedZone(f"zone{at:02}", 100 + at, at * 7 % 13, cap=None if at % 3 else 10**6) for at in range(50)]
    costs = [cpu(partial(create, zones, count), 200) for count in (100, 100_000_000)]
    even = create([WeightedZone(name) for name in "abcde"], 16)
    shares = [even.changes.get(name, 0) for name in "abcde"]
    return [
        Bar("plan for 50 zones, 100 servers", "< 0.1 ms", f"{costs[0] * 1e3:.3f} ms", costs[0] < 1e-4),
        Bar("plan for 50 zones, 100,000,000 servers", "< 0.1 ms", f"{costs[1] * 1e3:.3f} ms", costs[1] < 1e-4),
        Bar(
            "16 servers over 5 equal zones (Senlin: 4, 4, 4, 4, 0)",
            "4, 3, 3, 3, 3",
            str(shares)[1:-1],
            shares == [4, 3, 3, 3, 3],
        ),
    ]


def repair_section() -> list[Bar]:
    """A thousand groups of 30 scattered at random, to be one a host and one a rack."""
    dice, fleet, servers = random.Random(1), Fleet(), []
    for at in range(5_000):
        fleet.add_host(f"host{at}", Resources(64, 262144, 4000), aggregates={"rack": f"r{at // 25}"})
    groups = {str(group): (Rule.parse("anti-affinity"), Rule.parse("anti-affinity:rack")) for group in range(1_000)}
    for number in range(30_000):
        host, size = dice.randrange(5_000), dice.choice((1, 2, 4))
        taken = Resources(2 * size, 4096 * size, 20 * size)
        fleet.claim(host, taken)
        servers.append(RepairMember(str(number), host, taken, str(number % 1_000)))
    start = time.process_time()
    plan = repair(fleet, groups, servers)
    spent = time.process_time() - start
    moves = f"{len(plan.moves):,} moves, {'proven fewest' if plan.fewest else 'not proven fewest'}"
    what = f"repair of 5,000 hosts, 30,000 servers, 1,000 groups, 200 racks: {moves}"
    return [Bar(what, "<= 10 s", f"{spent:.1f} s", spent <= 10 and plan.fewest)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nova", type=Path, default=NOVA)
    parser.add_argument("--figures", type=Path, default=FIGURES)
    arguments = parser.parse_args()
    lines, bars = scheduler_section(ask_nova(arguments.nova))
    sizes, more = sizes_section()
    bars += [*more, *distribution_section(), *repair_section()]
    worst = worst_section()
    machine = (
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}"
    )
    text = "\n".join(
        [
            "# Placement: the last figures",
            "",
            f"CPU time, best of several runs, on a machine with {machine}, load {os.getloadavg()[0]:.1f} at the end.",
            "Nova 34.0.0: its own filters, weighers and scheduler, without database and messages.",
            "",
            *lines,
            "",
            "Two scopes, 100 members. A change is into another per cent of headroom. A decision keeps what naming the",
            "winner and the runners-up needs; naming them and counting refusals come on top of it when they are read.",
            "",
            *sizes,
            "",
            *worst,
            "",
            "| what | bar | measured | |",
            "|---|---|---|---|",
            *(bar.row() for bar in bars),
            "",
        ]
    )
    arguments.figures.parent.mkdir(parents=True, exist_ok=True)
    arguments.figures.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
