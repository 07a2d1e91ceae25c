"""Rules in plain words."""

import pytest

from roost.placement.phrases import phrase, sentence
from roost.placement.rules import TYPES, Limit, Rule


@pytest.mark.parametrize(
    ("text", "limits", "words"),
    [
        ("anti-affinity", {}, "never two on one host"),
        ("affinity:switch:s1", {}, "only on switch s1"),
        ("anti-affinity:rack", {"max_server_per_aggregate": 2}, "at most 2 per rack"),
        ("anti-affinity:switch", {"max_skew": 1}, "switches at most 1 apart in number"),
        ("anti-affinity:rack", {"partitions": 3}, "3 partitions that share no rack"),
        (
            "anti-affinity:maintenance_zone",
            {"max_server_per_aggregate": 4, "partitions": 2},
            "at most 4 per maintenance zone, 2 partitions that share no maintenance zone",
        ),
        ("anti-affinity:rack:r1", {}, "never in rack r1"),
        ("affinity:rack", {}, "all in one rack"),
        ("affinity:rack:r1", {}, "only in rack r1"),
        ("soft-anti-affinity:rack", {}, "preferably spread over racks"),
        ("soft-anti-affinity:rack:r1", {}, "preferably not in rack r1"),
        ("soft-affinity:rack", {}, "preferably one rack"),
        ("soft-affinity:rack:r1", {}, "preferably in rack r1"),
    ],
)
def test_a_rule_in_words(text: str, limits: dict[str, object], words: str) -> None:
    assert phrase(Rule.parse(text, limits)) == words


def test_the_rules_of_a_group_are_one_sentence() -> None:
    rules = [Rule.parse("anti-affinity:rack"), Rule.parse("soft-affinity:switch")]
    assert sentence(rules) == "Never two in one rack; preferably one switch"
    assert sentence([]) == ""


@pytest.mark.parametrize("name", TYPES)
def test_every_type_has_words(name: str) -> None:
    assert phrase(Rule.parse(f"{name}:rack"))


@pytest.mark.parametrize("limit", list(Limit))
def test_every_limit_has_words(limit: Limit) -> None:
    """A new limit must be described: its number appears in the phrase."""
    scope = "host" if limit is Limit.MAX_SERVER_PER_HOST else "rack"
    assert "7" in phrase(Rule.parse(f"anti-affinity:{scope}", {limit: 7}))
