"""JSON is written fast, and the same as the standard library writes it."""

import json
from enum import StrEnum

import pytest

from roost import quick_json


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    "value",
    [
        {"name": "Zürich ☃", "none": None, "flags": [True, False], "ratio": 0.1, "deep": {"list": [1, [2, {}]]}},
        {"large": 2**64 + 1, "larger": 10**30},
        {1: "a key that is a number"},
        Colour.RED,
        ("a", "pair"),
        'quotes " and \\ and \n lines',
    ],
)
def test_a_value_is_written_as_the_standard_library_writes_it(value: object) -> None:
    written = quick_json.dumps(value)
    assert written == json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def test_what_json_cannot_say_is_refused() -> None:
    with pytest.raises(TypeError):
        quick_json.dumps({"what": object()})
