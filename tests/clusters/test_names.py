"""Names of nodes, from a format."""

import re

import pytest

from roost.clusters.names import node_name

FORMATS = [
    (None, r"node-[A-Za-z0-9]{8}"),
    ("web-$3I", r"web-007"),
    ("web-$I", r"web-7"),
    ("$4r.$2R", r"[a-z0-9]{4}\.[A-Za-z0-9]{2}"),
    ("plain", r"plain"),
]


@pytest.mark.parametrize(("form", "pattern"), FORMATS)
def test_a_name_follows_its_format(form: str | None, pattern: str) -> None:
    assert re.fullmatch(pattern, node_name(form, 7))
