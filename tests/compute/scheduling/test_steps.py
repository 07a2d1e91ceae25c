"""Steps: what is stored is read back as it was, and what cannot be a step is refused with a sentence."""

import json
from typing import Any

import pytest
import sqlalchemy as sa

from roost.compute.inventory.flavors import ServerFlavor
from roost.compute.scheduling import steps
from roost.compute.scheduling.steps import STAY, Deletion, Resized, Step, Transition
from tests.compute.cloud import Cloud

SMALL, LARGE = ServerFlavor(1, 512, 1, "1", "small"), ServerFlavor(4, 8192, 80, "4", "large", extra_specs={"a": "b"})
KEPT = Resized(3, SMALL, "active", 1, 17)


@pytest.mark.parametrize(
    "step",
    [
        Transition(),
        Transition("active", 1, launches=True, undo=Transition("error", fault="why", host_id=None, release=(7,))),
        Transition("resized", host_id=9, flavor=LARGE, migration=17, migration_status="finished", then=KEPT),
        Transition("shelved_offloaded", 0, host_id=None, release=(1, 2)),
        Transition(undo=Transition("active", shrink=True)),
        KEPT,
        Deletion(),
        Deletion(LARGE),
    ],
)
def test_a_step_is_read_as_it_was_stored(step: Step) -> None:
    assert steps.read(json.loads(json.dumps(step.to_json()))) == step


def test_a_server_stays_unless_the_step_names_a_host_or_none() -> None:
    assert Transition().to_json() == {}
    assert Transition(host_id=None).to_json() == {"host_id": None}
    read = steps.read({})
    assert isinstance(read, Transition)
    assert read.host_id is STAY
    assert steps.read(None) is None


@pytest.mark.parametrize(
    "data",
    [
        {"vm_stat": "active"},
        {"undo": {"colour": "red"}},
        {"undo": 1},
        {"release": 5},
        {"flavor": {"cpus": 1}},
        {"flavor": 7},
        {"source": 1},
        {"delete": True, "flavor": []},
        {"then": {"flavor": {}}},
        [],
    ],
)
def test_what_is_no_step_is_refused_with_a_sentence(data: Any) -> None:
    with pytest.raises(ValueError, match=r"^The (step|flavor) of a server cannot be read"):
        steps.read(data)


async def test_a_server_whose_step_cannot_be_read_ends_in_error_and_holds_up_no_other(cloud: Cloud) -> None:
    await cloud.boots_take_a_moment()
    broken, other = await cloud.boot(settle=False), await cloud.boot(settle=False)
    async with cloud.database.begin() as connection:
        damage = sa.text('UPDATE servers SET step = \'{"vm_stat": "active"}\' WHERE id = :id')
        await connection.execute(damage, {"id": broken})
    await cloud.settle()
    assert (await cloud.status(broken), await cloud.status(other)) == ("ERROR", "ACTIVE")
    assert "cannot be read" in (await cloud.show(broken))["fault"]["message"]
    await cloud.check()
