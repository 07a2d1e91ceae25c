"""The long form of the drills: `make soak`, or `make soak SOAK="--minutes 60 --seeds 1 2 3 --apis 4"`.

What every run tried, and what came of it, is kept in `soaks.json` beside this file, from which the table in
docs/reliability.md is written. A run that is ended keeps what it did until then.
"""

import argparse
import fcntl
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.faults import machine
from tests.faults.drill import Drill, Violation
from tests.faults.histories import HOSTS
from tests.faults.linearizability import linearizable

PROGRAMS, STEPS = 4, 16
LEDGER = Path(__file__).with_name("soaks.json")
PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
BEGIN, END = "<!-- sum of the soaks: written by make soak -->\n", "<!-- end of the sum -->\n"
KEPT = Path("build/drill")
"""Where the logs and requests of a run that broke a promise are kept."""


def main() -> int:
    """Run a drill for each seed, one after the other; 1 if one of them broke a promise."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak")
    parser.add_argument("--minutes", type=float, default=30.0, help="how long to go on, all seeds together")
    parser.add_argument("--seeds", type=int, nargs="+", default=[machine.asked_seed()])
    parser.add_argument("--apis", type=int, default=3, help="how many API processes")
    parser.add_argument("--ledger", type=Path, default=LEDGER, help="keep the sum elsewhere, and not in the page")
    asked = parser.parse_args()
    # A run that is asked to end finishes its program first, so that what it found is whole.
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    violated = False
    for seed in asked.seeds:
        if over.is_set():
            break
        violated |= not soak(seed, asked.apis, asked.minutes / len(asked.seeds), asked.ledger, over)
        if asked.ledger == LEDGER:
            PAGE.write_text(with_sum(PAGE.read_text(), json.loads(LEDGER.read_text())))
    return 1 if violated else 0


def soak(seed: int, apis: int, minutes: float, ledger: Path, over: threading.Event) -> bool:
    """Run programs and record histories, in turns, until the time or all is over; whether every promise was kept."""
    print(f"seed {seed}, {apis} APIs: {minutes:g} minutes", flush=True)
    drill = Drill(Path(tempfile.mkdtemp(prefix="roost-soak-")) / "drill", seed, apis)
    begun = time.monotonic()
    entry = {"began": datetime.now(UTC).isoformat(timespec="seconds"), "commit": _commit(), "apis": apis}
    drill.start()
    try:
        for number in range(seed, sys.maxsize):
            if over.is_set() or time.monotonic() - begun > minutes * 60:
                break
            machine.run(drill, number, programs=PROGRAMS, steps=STEPS)
            if not linearizable(drill.record(number, faults=True), HOSTS):
                raise Violation(f"the history of seed {number} could not have happened in any order")
            _write_down(ledger, entry | drill.summary(), begun)
    except Violation as violation:
        drill.violations = drill.violations or [str(violation)]
        drill.keep(KEPT / str(seed))
        print(f"{violation}\nThe logs of all processes, and every request: {KEPT / str(seed)}", flush=True)
    finally:
        drill.stop()
        _write_down(ledger, entry | drill.summary(), begun)
    return not drill.violations


def _commit() -> str:
    asked = ["git", "-C", str(PAGE.parent), "log", "-1", "--format=%h", "--", "../roost"]
    return subprocess.run(asked, capture_output=True, text=True).stdout.strip() or "unknown"


def _write_down(ledger: Path, entry: dict[str, Any], begun: float) -> None:
    """Put the run, as far as it has come, into the ledger, which several runs may share."""
    minutes = round((time.monotonic() - begun) / 60, 1)
    ledger.touch()
    with ledger.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        runs = json.loads(file.read() or "[]")
        same = ("began", "seed", "apis")
        others = [run for run in runs if any(run[name] != entry[name] for name in same)]
        runs = [*others, {**entry, "minutes": minutes}]
        file.seek(0)
        file.truncate()
        file.write(json.dumps(runs, indent=1) + "\n")
    print(f"{minutes:6.1f} min, seed {entry['seed']}: {_figures(entry)}", flush=True)
    print(f"    all runs: {_figures(summed(runs))}", flush=True)


def _figures(of: dict[str, Any]) -> str:
    return (
        f"{of['operations']:,} operations, {of['faults']:,} faults, {of['quiet_points']:,} quiet points, "
        f"{of['histories'].get('recorded', 0):,} histories, {len(of['violations'])} violations"
    )


def summed(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """All runs as if they were one."""
    total: dict[str, Any] = {"violations": [each for run in runs for each in run["violations"]]}
    for name in ("minutes", "operations", "faults", "quiet_points"):
        total[name] = sum(run[name] for run in runs)
    for name in ("operations_by_kind", "faults_by_kind", "answers_by_status", "histories"):
        total[name] = dict(sum((Counter(run[name]) for run in runs), Counter()).most_common())
    return total


def with_sum(page: str, runs: list[dict[str, Any]]) -> str:
    """The page with the sum of these runs in its place."""
    before, found, rest = page.partition(BEGIN)
    _, ended, after = rest.partition(END)
    assert found, "the page has no place for the sum"
    assert ended, "the place for the sum has no end"
    return "".join([before, BEGIN, "\n", *(f"{line}\n" for line in _section(runs)), "\n", END, after])


def _section(runs: list[dict[str, Any]]) -> list[str]:
    total = summed(runs)
    days = sorted({run["began"][:10] for run in runs})
    lines = [
        f"{days[0]} to {days[-1]}: {len(runs)} runs, {total['minutes'] / 60:.1f} hours. {_figures(total)}.",
        "",
        "| seed | APIs | commit | minutes | operations | faults | violations |",
        "|---|---|---|---|---|---|---|",
    ]
    for run in sorted(runs, key=lambda run: str(run["began"])):
        lines.append(
            f"| {run['seed']} | {run['apis']} | {run['commit']} | {run['minutes']:g} | {run['operations']:,} "
            f"| {run['faults']:,} | {len(run['violations'])} |"
        )
    lines += ["", "| fault | injected |", "|---|---|"]
    lines += [f"| {kind} | {number:,} |" for kind, number in total["faults_by_kind"].items()]
    answers = Counter[str]()
    for status, number in total["answers_by_status"].items():
        answers[_OUTCOMES.get(status, _OUTCOMES.get(status[0], status))] += number
    lines += ["", "| answer | requests |", "|---|---|"]
    lines += [f"| {outcome} | {number:,} |" for outcome, number in answers.most_common()]
    return lines


_OUTCOMES = {"2": "granted", "4": "refused", "503": "asked to retry (503)", "none": "none: the connection was lost"}
"""What an answer means, by its status or the first figure of it."""


if __name__ == "__main__":
    sys.exit(main())
