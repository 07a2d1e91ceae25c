"""Values kept as JSON read back as they were written, or say what is wrong."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from roost.clusters.actions.program import ClusterChange, NodeInputs, Outputs, Program
from roost.clusters.policies.decisions import Decisions, LifecycleHook, Place
from roost.clusters.stored import MalformedData, Stored


@pytest.mark.parametrize(
    "value",
    [
        Program(),
        Program(
            total=3,
            desired=0,
            change=ClusterChange(min_size=0, metadata={}),
            pause=1.5,
            hooks=LifecycleHook(timeout=0),
            inputs=NodeInputs(placement=Place(zone="z"), operation_params={"type": "SOFT"}),
            not_before=datetime(2026, 11, 16, tzinfo=UTC),
            last_part=0,
        ),
        Outputs(nodes_done=0, nodes_total=2, nodes_added=("a", "b"), nodes_failed={"c": "no room"}),
        replace(Decisions(), rebalance=("a",)),
    ],
)
def test_what_is_written_is_read_back(value: Stored) -> None:
    assert type(value).from_json(value.to_json()) == value


def test_defaults_are_not_written_and_unknown_keys_are_ignored() -> None:
    assert Program().to_json() == {}
    assert Place.from_json({"zone": None, "moon": "luna"}) == Place()


@pytest.mark.parametrize(
    ("kind", "data", "sentence"),
    [
        (Program, [], "Program must be a map, and is []."),
        (Program, {"total": True}, "total must be of type int, and is True."),
        (Program, {"pause": "1"}, "pause must be of type float, and is '1'."),
        (Program, {"not_before": "soon"}, "not_before cannot be read: Invalid isoformat string: 'soon'."),
        (Decisions, {"creation": {"zones": {"a": "b"}}}, "creation.zones.a must be of type int, and is 'b'."),
        (Decisions, {"update": {"plan": [["a"], "b"]}}, "update.plan[1] must be a list, and is 'b'."),
        (Decisions, {"hooks": 3}, "hooks must be a map, and is 3."),
    ],
)
def test_anything_malformed_is_named(kind: type[Stored], data: Any, sentence: str) -> None:
    with pytest.raises(MalformedData) as caught:
        kind.from_json(data)
    assert str(caught.value) == sentence
