"""An empty text is an empty list, as Senlin takes it and gophercloud sends it."""

import pytest

from roost.clusters.spec import InvalidSpec, List, String


def test_an_empty_text_is_an_empty_list() -> None:
    assert List(schema=String()).resolve("") == []


def test_any_other_text_is_not_a_list() -> None:
    with pytest.raises(InvalidSpec, match="'web' is not a List"):
        List(schema=String()).resolve("web")
