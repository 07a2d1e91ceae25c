"""The short form of `make load` with a hostile tenant: what it attacks answers, and its neighbour is served."""

import os
from pathlib import Path

from tests.faults import hostile

QUIET, ATTACKED = 4.0, 15.0


def test_a_neighbour_is_served_while_everything_expensive_is_asked_for_at_once(folders: Path) -> None:
    trial, failed = hostile.try_it(folders / "hostile", quiet=QUIET, attacked=ATTACKED, servers=100)
    # Whether 99 % are five times as slow at most is asked on a quiet machine, by the long form.
    busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    assert [*trial.wrong(flat=False, bearable=2000 * busy), *failed] == []
    asked = {kind for kind, statuses in trial.attackers.statuses.items() if statuses}
    assert {"regular expression", "explain", "plan", "repair", "sign in", "huge list", "big body", "flood"} <= asked
