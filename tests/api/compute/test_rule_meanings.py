"""Policies in words."""

from typing import Any

from tests.api.compute.conftest import Compute
from tests.compute.cloud import NEWEST

SPREAD: dict[str, Any] = {"name": "anti-affinity", "scope": "rack", "rules": {"max_server_per_aggregate": 2}}


async def meanings(compute: Compute, *groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    body = await compute.post("/os-rule-meanings", {"groups": list(groups)}, version=NEWEST)
    return list(body["meanings"])


async def test_each_group_is_described_in_its_place(compute: Compute) -> None:
    first, second = await meanings(compute, [SPREAD], [{"name": "soft-affinity", "scope": "switch"}])
    assert first == {
        "sentence": "At most 2 per rack",
        "rules": [{"scope": "rack", "phrase": "at most 2 per rack", "limit": 2}],
        "conflicts": [],
    }
    assert second["rules"] == [{"scope": "switch", "phrase": "preferably one switch", "limit": None}]


async def test_rules_that_can_never_hold_together_are_named(compute: Compute) -> None:
    (found,) = await meanings(
        compute, [{"name": "affinity", "scope": "rack"}, {"name": "anti-affinity", "scope": "rack"}]
    )
    assert len(found["conflicts"]) == 1
    assert "keeps 2 servers in one rack" in found["conflicts"][0]


async def test_a_policy_that_cannot_be_understood_is_refused(compute: Compute) -> None:
    wrong = {"name": "affinity", "scope": "rack", "rules": {"max_skew": 1}}
    status, message = await compute.refusal("POST", "/os-rule-meanings", {"groups": [[wrong]]}, version=NEWEST)
    assert (status, "only anti-affinity takes limits" in message) == (400, True)
