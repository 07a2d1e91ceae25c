"""The short form of the drills: programs of requests and faults, and histories of clients, on one deployment.

`make soak` is the long form. A failure prints its seed; `SEED=... pytest tests/faults/test_faults.py` runs it again.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import load, machine
from tests.faults.drill import Drill
from tests.faults.histories import HOSTS
from tests.faults.linearizability import linearizable

SEED = machine.asked_seed(default=20)
PROGRAMS, STEPS = 2, 10


@pytest.fixture(scope="module")
def drill(folders: Path) -> Iterator[Drill]:
    """A deployment to be broken; the logs of its processes are kept in build/drill if it was."""
    print(f"SEED={SEED}")
    started = Drill(folders / "drill", SEED)
    started.start()
    yield started
    started.stop()
    if started.violations:
        started.keep(Path("build/drill"))
    assert not started.violations


def test_no_program_of_requests_and_faults_breaks_a_promise(drill: Drill) -> None:
    machine.run(drill, SEED, programs=PROGRAMS, steps=STEPS)
    assert drill.quiet_points > PROGRAMS
    assert sum(drill.deployment.injected.values()) > 0


def test_under_load_every_request_is_answered_and_a_crowd_is_told_to_come_again(drill: Drill) -> None:
    token = drill.clients.token("admin")
    seen = drill.deployment.await_(load.put_on(drill.deployment, token, seconds=5, clients=5, crowd=100))
    assert list(seen.wrong(flat=False)) == []
    assert seen.statuses["in a crowd"].keys() <= {200, 429, 503}
    drill.clear()


@pytest.mark.parametrize("faults", [False, True])
def test_membership_and_claims_of_a_group_are_linearizable(drill: Drill, faults: bool) -> None:
    assert linearizable(drill.record(SEED, faults=faults), HOSTS)
