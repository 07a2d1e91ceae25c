"""The long form of the drills, for SOAK_MINUTES: `make soak`, or `make soak SEED=...` to begin as before.

What was tried and what came of it is printed at the end, and written to build/soak.json.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.faults import machine
from tests.faults.drill import Drill, Violation
from tests.faults.histories import HOSTS
from tests.faults.linearizability import linearizable

MINUTES = float(os.environ.get("SOAK_MINUTES") or 30)
PROGRAMS, STEPS = 4, 40
WRITTEN = Path("build/soak.json")


def main() -> int:
    """Run programs and record histories, in turns, until the time is over or a promise is broken."""
    seed = machine.asked_seed()
    print(f"SEED={seed}: {MINUTES:g} minutes", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="roost-soak-"))
    drill = Drill(folder / "drill", seed)
    drill.start()
    begun = time.monotonic()
    try:
        for number in range(seed, sys.maxsize):
            if time.monotonic() - begun > MINUTES * 60:
                break
            machine.run(drill, number, programs=PROGRAMS, steps=STEPS)
            if not linearizable(drill.record(number, faults=True), HOSTS):
                raise Violation(f"the history of seed {number} could not have happened in any order")
            print(_line(drill, (time.monotonic() - begun) / 60), flush=True)
    except Violation as violation:
        drill.violations = drill.violations or [str(violation)]
        drill.keep(WRITTEN.parent / "drill")
    minutes = (time.monotonic() - begun) / 60
    drill.stop()
    summary = {"minutes": round(minutes, 1), **drill.summary()}
    WRITTEN.parent.mkdir(exist_ok=True)
    WRITTEN.write_text(json.dumps(summary, indent=2) + "\n")
    print(_told(summary))
    if drill.violations:
        print(f"The logs of all processes, and every request: {WRITTEN.parent / 'drill'}")
    return 1 if drill.violations else 0


def _line(drill: Drill, minutes: float) -> str:
    summary = drill.summary()
    return f"{minutes:5.1f} min: {summary['operations']} operations, {summary['faults']} faults"


def _told(summary: dict[str, Any]) -> str:
    lines = [f"{summary['minutes']} minutes, seed {summary['seed']}", "", "| operation | tried |", "|---|---|"]
    lines += [f"| {kind} | {number} |" for kind, number in summary["operations_by_kind"].items()]
    lines += [f"| **all** | **{summary['operations']}** |", "", "| fault | injected |", "|---|---|"]
    lines += [f"| {kind} | {number} |" for kind, number in summary["faults_by_kind"].items()]
    lines += [f"| **all** | **{summary['faults']}** |", ""]
    lines += [f"answers by status: {summary['answers_by_status']}", f"quiet points: {summary['quiet_points']}"]
    lines += [f"histories: {summary['histories']}", f"violations: {len(summary['violations'])}", *summary["violations"]]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
