"""The batch policy: how an update goes through a cluster."""

from typing import Any

import pytest

from roost.clusters.spec import InvalidSpec
from roost.clusters.states import ActionName
from tests.clusters.builders import action, before, cluster, node, policy


@pytest.mark.parametrize(
    ("total", "properties", "sizes"),
    [
        (5, {}, [4, 1]),
        (5, {"min_in_service": 3}, [2, 2, 1]),
        (5, {"max_batch_size": 1}, [1, 1, 1, 1, 1]),
        (5, {"min_in_service": 5}, [3, 2]),
        (1, {"min_in_service": 9}, [1]),
        (3, {"min_in_service": 0}, [3]),
        (0, {}, []),
    ],
)
async def test_batches(total: int, properties: dict[str, Any], sizes: list[int]) -> None:
    view = action(ActionName.CLUSTER_UPDATE, cluster(*(node(str(at)) for at in range(total))))
    found = await before(policy("batch-1.0", properties), view)
    assert [len(batch) for batch in found["update"]["plan"]] == sizes


async def test_the_data_is_as_documented_and_bad_nodes_come_first() -> None:
    view = action(ActionName.CLUSTER_UPDATE, cluster(node("good"), node("bad", status="ERROR"), node("fine")))
    assert await before(policy("batch-1.0", {"max_batch_size": 2, "pause_time": 2}), view) == {
        "status": "OK",
        "reason": "Batching request validated.",
        "update": {"pause_time": 2, "plan": [["bad", "good"], ["fine"]]},
    }


@pytest.mark.parametrize("properties", [{"min_in_service": -1}, {"pause_time": -1}, {"max_batch_size": 0}])
def test_specs_that_make_no_sense_are_refused(properties: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec):
        policy("batch-1.0", properties)
