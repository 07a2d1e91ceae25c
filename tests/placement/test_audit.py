"""An audit says where members are, and what is wrong with it by how much."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roost.placement.audit import Breach, audit
from roost.placement.fleet import Fleet, Resources
from roost.placement.rules import Rule
from tests.placement import oracle
from tests.placement.worlds import Case, cases, partition_rules


def racks(*names: str | None) -> Fleet:
    """A host for each rack named; None for a host in no rack."""
    fleet = Fleet()
    for number, name in enumerate(names):
        fleet.add_host(f"h{number}", Resources(9, 9, 9), aggregates={} if name is None else {"rack": name})
    return fleet


@pytest.mark.parametrize(
    ("text", "limits", "members", "found"),
    [
        ("anti-affinity:rack", {}, [0, 2], []),
        ("anti-affinity:rack", {}, [0, 1, 2], [(Breach.TOO_MANY, 0, "ab", 1)]),
        ("anti-affinity:rack", {"max_server_per_aggregate": 2}, [0, 1, 1, 0], [(Breach.TOO_MANY, 0, "abcd", 2)]),
        ("anti-affinity", {}, [0, 0, 1], [(Breach.TOO_MANY, 0, "ab", 1)]),
        ("anti-affinity:rack", {}, [4], [(Breach.OUTSIDE_SCOPE, None, "a", 1)]),
        ("affinity:rack", {}, [0, 1], []),
        ("affinity:rack", {}, [2, 0, 1], [(Breach.APART, 0, "a", 1)]),
        ("affinity:rack:y", {}, [0, 2, 3], [(Breach.OUTSIDE_TARGET, 1, "ac", 2)]),
        ("affinity:rack:y", {}, [2], []),
        ("anti-affinity:rack:y", {}, [0, 2], [(Breach.FORBIDDEN_TARGET, 1, "b", 1)]),
        ("anti-affinity:rack", {"max_skew": 1}, [0, 2, 3], []),
        ("anti-affinity:rack", {"max_skew": 1}, [0, 0, 0, 2, 3], [(Breach.SKEWED, 0, "abc", 1)]),
        ("anti-affinity:rack", {"max_skew": 1}, [0, 0], [(Breach.SKEWED, 0, "ab", 1)]),
        ("soft-anti-affinity", {}, [0, 0], []),
    ],
)
def test_violations(text: str, limits: dict[str, object], members: list[int], found: list[object]) -> None:
    fleet = racks("x", "x", "y", "z", None)
    result = audit(fleet, [Rule.parse(text, limits)], dict(zip("abcde", members, strict=False)))
    assert [(v.breach, v.aggregate, "".join(v.members), v.excess) for v in result.violations] == found
    assert all(str(violation) for violation in result.violations)


@pytest.mark.parametrize(
    ("members", "numbers", "found"),
    [
        ([0, 1, 2, 3], [1, 1, 2, 1], []),
        ([0, 1, 2], [1, 2, 3], [(0, "ab", 1)]),
        ([0, 1, 1, 1, 2, 2], [1, 2, 2, 3, 1, 3], [(0, "abcd", 2), (1, "ef", 1)]),
    ],
)
def test_an_aggregate_that_partitions_share_is_found(
    members: list[int], numbers: list[int], found: list[object]
) -> None:
    rules = [Rule.parse("anti-affinity:rack", {"partitions": 3})]
    partitions = dict(zip("abcdef", numbers, strict=False))
    result = audit(racks("x", "x", "y", "z"), rules, dict(zip("abcdef", members, strict=False)), partitions)
    assert [(v.aggregate, "".join(v.members), v.excess) for v in result.violations] == found
    assert all(violation.breach is Breach.PARTITIONS_SHARE for violation in result.violations)


def test_a_violation_reads_as_a_sentence() -> None:
    fleet = racks("x", "x")
    divided = [Rule.parse("anti-affinity:rack", {"partitions": 2})]
    (violation,) = audit(fleet, divided, {"a": 0, "b": 1}, {"a": 1, "b": 2}).violations
    assert (
        str(violation) == "2 members are of several partitions in one rack, against 'anti-affinity:rack'; 1 must leave"
    )
    (violation,) = audit(fleet, [Rule.parse("anti-affinity:rack")], {"a": 0, "b": 1}).violations
    assert str(violation) == "2 members are in one rack, 1 more than 'anti-affinity:rack' allows"


def test_placements_are_shown_for_the_scopes_of_the_rules_only() -> None:
    fleet = racks("x", "y", None)
    rules = [Rule.parse("anti-affinity:rack"), Rule.parse("soft-affinity")]
    assert audit(fleet, rules, {"a": 1, "b": 2}).placements == {
        "a": {"rack": 1, "host": 1},
        "b": {"rack": None, "host": 2},
    }


@settings(max_examples=1000, deadline=None, derandomize=True)
@given(st.one_of(cases(), cases(1, partition_rules)))
def test_an_audit_finds_violations_exactly_where_the_oracle_does(case: Case) -> None:
    members = {str(number): host for number, host in enumerate(case.plain.members)}
    numbers = {str(number): each for number, each in enumerate(case.plain.numbers)}
    violations = audit(case.fleet, case.request.rules, members, numbers).violations
    assert bool(violations) == oracle.broken(case.world, case.plain.rules, case.plain.members, case.plain.numbers)
