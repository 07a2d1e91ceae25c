"""Rules are read and written in one form, and what is wrong with them is said."""

import pytest
from hypothesis import given, settings

from roost.placement.rules import (
    BadLimit,
    ContradictionKind,
    Kind,
    Limit,
    MalformedRule,
    MisplacedLimit,
    Rule,
    RuleError,
    UnknownLimit,
    UnknownType,
    UntargetableScope,
    contradictions,
)
from tests.placement.worlds import any_rule, dice


@settings(max_examples=500, deadline=None, derandomize=True)
@given(dice.map(any_rule))
def test_a_rule_reads_as_it_is_written(rule: Rule) -> None:
    assert Rule.parse(str(rule), {str(name): value for name, value in rule.limits.items()}) == rule


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("affinity", Rule(Kind.AFFINITY)),
        ("anti-affinity:rack", Rule(Kind.ANTI_AFFINITY, scope="rack")),
        ("soft-affinity:rack:42", Rule(Kind.AFFINITY, True, "rack", "42")),
        ("soft-anti-affinity:zone:a:b", Rule(Kind.ANTI_AFFINITY, True, "zone", "a:b")),
    ],
)
def test_the_forms_of_a_rule(text: str, rule: Rule) -> None:
    assert Rule.parse(text) == rule
    assert str(rule) == text


@pytest.mark.parametrize(
    ("text", "limits", "error", "says"),
    [
        ("", {}, UnknownType, "use one of anti-affinity"),
        ("Affinity", {}, UnknownType, "'Affinity' is not a type"),
        (" affinity", {}, UnknownType, "not a type"),
        ("affinity:", {}, MalformedRule, "scope"),
        ("affinity:rack ", {}, MalformedRule, "scope"),
        ("affinity:rack:", {}, MalformedRule, "identifier"),
        ("affinity:rack: 1", {}, MalformedRule, "identifier"),
        ("affinity:host:h1", {}, UntargetableScope, "leave out 'h1'"),
        ("anti-affinity", {"max_servers": 1}, UnknownLimit, "max_server_per_host"),
        ("anti-affinity", {"max_server_per_host": -1}, BadLimit, "-1"),
        ("anti-affinity", {"max_server_per_host": "two"}, BadLimit, "'two'"),
        ("anti-affinity", {"max_server_per_host": True}, BadLimit, "True"),
        ("anti-affinity", {"max_server_per_host": 1.0}, BadLimit, "1.0"),
        ("anti-affinity:rack", {"max_server_per_host": 1}, MisplacedLimit, "use max_server_per_aggregate"),
        ("anti-affinity:rack:1", {"max_skew": 1}, MisplacedLimit, "leave out one"),
        ("affinity", {"max_server_per_host": 1}, MisplacedLimit, "only anti-affinity"),
        ("soft-anti-affinity", {"max_skew": 1}, MisplacedLimit, "only anti-affinity"),
        ("anti-affinity:rack", {"partitions": 0}, BadLimit, "from 2 to 100, and is 0"),
        ("anti-affinity:rack", {"partitions": 1}, BadLimit, "from 2 to 100, and is 1"),
        ("anti-affinity:rack", {"partitions": 101}, BadLimit, "from 2 to 100, and is 101"),
        ("anti-affinity:rack", {"partitions": 3, "max_skew": 1}, MisplacedLimit, "leave out one"),
        ("anti-affinity:rack:1", {"partitions": 3}, MisplacedLimit, "leave out one"),
        ("affinity:rack", {"partitions": 3}, MisplacedLimit, "only anti-affinity"),
        ("soft-anti-affinity:rack", {"partitions": 3}, MisplacedLimit, "only anti-affinity"),
    ],
)
def test_what_is_wrong_is_said(text: str, limits: dict[str, object], error: type[RuleError], says: str) -> None:
    with pytest.raises(error, match=says):
        Rule.parse(text, limits)


@pytest.mark.parametrize(
    ("text", "limits", "limit"),
    [
        ("anti-affinity", {}, 1),
        ("anti-affinity", {"max_server_per_host": "3"}, 3),
        ("anti-affinity", {"max_server_per_host": 3, "max_server_per_aggregate": 2}, 2),
        ("anti-affinity:rack", {"max_skew": 1}, None),
        ("anti-affinity:rack", {"max_skew": 1, "max_server_per_aggregate": 4}, 4),
        ("anti-affinity:rack", {"partitions": 3}, None),
        ("anti-affinity:rack", {"partitions": "3", "max_server_per_aggregate": 4}, 4),
        ("anti-affinity:rack:1", {}, None),
        ("affinity", {}, None),
        ("soft-anti-affinity", {}, None),
    ],
)
def test_how_many_one_aggregate_may_hold(text: str, limits: dict[str, object], limit: int | None) -> None:
    assert Rule.parse(text, limits).limit == limit


def test_limits_are_listed_by_name() -> None:
    assert Rule.parse("anti-affinity", {"max_skew": 2}).limits == {Limit.MAX_SKEW: 2}


@pytest.mark.parametrize(
    ("texts", "servers", "conflicts"),
    [
        (["affinity", "anti-affinity"], 2, [ContradictionKind.TOGETHER_AND_APART]),
        (["affinity", "anti-affinity"], 1, []),
        (["affinity:rack", "anti-affinity:rack"], 2, [ContradictionKind.TOGETHER_AND_APART]),
        (["affinity:rack:1", "anti-affinity:rack"], 2, [ContradictionKind.TOGETHER_AND_APART]),
        (["affinity:host", "anti-affinity:rack"], 2, [ContradictionKind.TOGETHER_AND_APART]),
        (["affinity:rack", "anti-affinity:host"], 2, []),
        (["soft-affinity", "anti-affinity"], 2, []),
        (["affinity:rack:1", "affinity:rack:2"], 1, [ContradictionKind.TWO_TARGETS]),
        (["affinity:rack:1", "affinity:rack:1"], 1, []),
        (["affinity:rack:1", "affinity:switch:2"], 1, []),
        (["affinity:rack:1", "anti-affinity:rack:1"], 1, [ContradictionKind.TARGET_FORBIDDEN]),
        (["affinity:rack:1", "anti-affinity:rack:2"], 1, []),
        (["anti-affinity:rack:1", "anti-affinity:rack:2"], 2, []),
    ],
)
def test_rules_that_can_never_hold_together_are_named(
    texts: list[str], servers: int, conflicts: list[ContradictionKind]
) -> None:
    found = contradictions([Rule.parse(text) for text in texts], servers)
    assert [contradiction.conflict for contradiction in found] == conflicts
    assert all(str(rule) in contradiction.sentence for contradiction in found for rule in contradiction.rules)


@pytest.mark.parametrize(
    ("texts", "servers", "conflict"),
    [
        (["anti-affinity:rack", "affinity:rack"], 2, ContradictionKind.TOGETHER_AND_APART),
        (["anti-affinity:rack", "affinity:rack:1"], 2, ContradictionKind.TOGETHER_AND_APART),
        (["anti-affinity:rack", "affinity"], 2, ContradictionKind.TOGETHER_AND_APART),
        (["anti-affinity:rack", "affinity"], 1, None),
        (["anti-affinity:rack", "affinity:switch"], 2, None),
        (["anti-affinity:rack", "soft-affinity:rack"], 2, None),
        (["anti-affinity:rack", "anti-affinity"], 2, None),
    ],
)
def test_partitions_cannot_all_be_in_one_aggregate(
    texts: list[str], servers: int, conflict: ContradictionKind | None
) -> None:
    divided, *others = texts
    rules = [Rule.parse(divided, {"partitions": 3}), *map(Rule.parse, others)]
    assert [found.conflict for found in contradictions(rules, servers)] == ([] if conflict is None else [conflict])


def test_a_group_is_divided_once() -> None:
    rules = [Rule.parse(f"anti-affinity:{scope}", {"partitions": 3}) for scope in ("rack", "switch")]
    (found,) = contradictions(rules)
    assert (found.conflict, found.rules) == (ContradictionKind.DIVIDED_TWICE, tuple(rules))
    assert "keep one" in found.sentence


@pytest.mark.parametrize("limit", [limit for limit in Limit if limit is not Limit.PARTITIONS])
def test_a_limit_of_none_is_named(limit: Limit) -> None:
    others = {str(other): 3 for other in Limit if other not in (limit, Limit.PARTITIONS)}
    (found,) = contradictions([Rule.parse("anti-affinity", {**others, str(limit): 0})], 1)
    assert found.conflict is ContradictionKind.LIMIT_OF_NONE
    assert "use 1 or more" in found.sentence
