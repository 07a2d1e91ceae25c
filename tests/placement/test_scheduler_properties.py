"""The scheduler against the oracle: never a wrong placement, never a refusal where there is a way."""

from dataclasses import replace
from itertools import pairwise, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.placement.decision import Request, Verdict
from roost.placement.fleet import Resources
from roost.placement.holding import broken_rules
from roost.placement.rules import Kind
from roost.placement.scheduler import place
from tests.placement import oracle, worlds
from tests.placement.worlds import Case, cases, examples, in_turn, tight_cases

often = examples(1500)
rarely = examples(1000)
seldom = examples(500)


def agrees(case: Case) -> None:
    """The decision is right, and is a refusal only where the oracle finds nothing either."""
    decision = place(case.fleet, case.request)
    if decision:
        assert len(decision.hosts) == case.request.count
        assert oracle.allowed(case.world, case.plain, decision.hosts, decision.partitions)
        assert not broken_rules(case.fleet, decision, case.request.members)
    else:
        assert decision.verdict is Verdict.REFUSED
        assert next(oracle.placements(case.world, case.plain), None) is None


@often
@given(cases())
def test_one_server_is_placed_wherever_it_can_be(case: Case) -> None:
    agrees(case)


@often
@given(cases(6))
def test_several_servers_are_placed_whenever_they_can_be(case: Case) -> None:
    agrees(case)


@rarely
@given(tight_cases(worlds.limit_rules, 4))
def test_overlapping_limits_are_solved_together(case: Case) -> None:
    agrees(case)


@often
@given(cases(6, worlds.skew_rules, 5))
def test_skews_hold_for_the_request_as_a_whole(case: Case) -> None:
    agrees(case)


@often
@given(cases(5, worlds.affinity_rules, 7, 0))
def test_the_aggregate_chosen_for_an_affinity_holds_all_servers(case: Case) -> None:
    agrees(case)


@rarely
@given(tight_cases(lambda dice: worlds.skew_rules(dice) + worlds.limit_rules(dice), 5))
def test_skews_and_limits_hold_together(case: Case) -> None:
    agrees(case)


@rarely
@given(tight_cases(worlds.affinity_rules, 4))
def test_affinities_and_limits_hold_together(case: Case) -> None:
    agrees(case)


@seldom
@given(cases(1, worlds.partition_rules))
def test_one_server_finds_a_place_in_a_partition_whenever_it_can(case: Case) -> None:
    agrees(case)


@seldom
@given(cases(4, worlds.partition_rules))
def test_several_servers_find_places_in_partitions_whenever_they_can(case: Case) -> None:
    agrees(case)


@seldom
@given(tight_cases(lambda dice: (*worlds.partition_rules(dice), *worlds.limit_rules(dice)), 3))
def test_partitions_and_overlapping_limits_hold_together(case: Case) -> None:
    agrees(case)


@often
@given(st.one_of(cases(), cases(1, worlds.partition_rules), cases(1, worlds.many_soft_rules)))
def test_one_server_gets_the_best_soft_score_and_then_the_best_capacity(case: Case) -> None:
    """And before that the emptiest partition that has a place, as far as the other partitions can spare it."""
    decision = place(case.fleet, case.request)
    partition, ways = oracle.considered(case.world, case.plain)
    assert bool(decision) == bool(ways)
    if ways:
        assert decision.partitions == (() if partition is None else (partition,))
        scores = {host: (*oracle.liking(case.world, case.plain, host), oracle.share(case.world[host])) for host in ways}
        assert scores[decision.hosts[0]] == max(scores.values())


@often
@given(cases())
def test_preferences_order_the_candidates_as_the_soft_rules_like_them(case: Case) -> None:
    preferences = place(case.fleet, case.request).ranking.preferences()
    _, ways = oracle.considered(case.world, case.plain)
    likes = {host: oracle.liking(case.world, case.plain, host) for host in ways}
    for one, other in permutations(ways, 2):
        assert (preferences[one] < preferences[other]) == (likes[one] < likes[other])


@often
@given(st.one_of(cases(), cases(1, worlds.partition_rules)))
def test_the_reasons_account_for_every_host(case: Case) -> None:
    decision = place(case.fleet, case.request)
    ways = len(oracle.considered(case.world, case.plain)[1])
    assert decision.candidates == ways
    assert sum(refused.hosts for refused in decision.refused) == len(case.world) - ways
    assert all(refused.hosts > 0 for refused in decision.refused)


@often
@given(st.one_of(cases(6), cases(6, worlds.skew_rules), cases(6, worlds.partition_rules)))
def test_the_counts_of_several_servers_add_up(case: Case) -> None:
    decision = place(case.fleet, case.request)
    assert decision.candidates + sum(refused.hosts for refused in decision.refused) == len(case.world)
    assert all(refused.hosts > 0 for refused in decision.refused)


@rarely
@given(cases(5))
def test_the_explanation_ranks_as_the_decision_did(case: Case) -> None:
    decision = place(case.fleet, case.request)
    explanation = decision.explain()
    assert tuple(winner.host for winner in explanation.winners) == decision.hosts
    assert len(explanation.runners_up) <= 3
    assert not {standing.host for standing in explanation.runners_up} & set(decision.hosts)
    if decision and case.request.count == 1:
        standings = [*explanation.winners, *explanation.runners_up]
        for better, worse in pairwise(standings):
            likes = [oracle.liking(case.world, case.plain, standing.host) for standing in (better, worse)]
            assert likes[0] >= likes[1]
        for standing in standings:
            assert standing.headroom == oracle.share(case.world[standing.host])


@rarely
@given(st.one_of(cases(6), cases(6, worlds.partition_rules), cases(6, worlds.many_soft_rules)))
def test_several_servers_go_where_one_by_one_would_put_them(case: Case) -> None:
    """The bound for several: no server is worse off than if each had been asked for by itself, in turn."""
    request = case.request
    first_soft = next((rule for rule in request.rules if rule.soft), None)
    gathers = first_soft is not None and first_soft.kind is Kind.AFFINITY and first_soft.identifier is None
    if gathers or any(rule.together or rule.max_skew for rule in request.rules):
        return
    singles = in_turn(case.fleet, [replace(request, count=1)] * request.count)
    if all(singles):
        together = place(case.fleet, request)
        assert together.hosts == tuple(single.hosts[0] for single in singles)
        assert together.partitions == tuple(number for single in singles for number in single.partitions)


@rarely
@given(cases(6, worlds.soft_rules))
def test_one_soft_anti_affinity_spreads_as_evenly_as_can_be(case: Case) -> None:
    """The other bound: with a single soft anti-affinity, the squares of the members per aggregate are least."""
    rule = case.plain.rules[0]
    decision = place(case.fleet, case.request)
    inside = all(oracle.in_scope(case.world, rule, host) for host in range(len(case.world)))
    if rule.together or not decision or not inside:
        return

    def unevenness(chosen: tuple[int, ...]) -> int:
        return sum(n * n for n in oracle.held(case.world, rule.scope, case.plain.members + chosen).values())

    best = min(map(unevenness, oracle.placements(case.world, case.plain)))
    assert unevenness(decision.hosts) == best


@often
@given(st.one_of(cases(6, worlds.gathering_rules), tight_cases(worlds.gathering_rules, 4)))
def test_a_first_soft_affinity_gathers_all_servers_where_one_aggregate_holds_them(case: Case) -> None:
    """No aggregate could take all servers and keep more members together than there are now."""
    decision = place(case.fleet, case.request)
    rule = next(rule for rule in case.plain.rules if rule.soft)

    def together(chosen: tuple[int, ...]) -> int:
        held = oracle.held(case.world, rule.scope, case.plain.members + chosen)
        return sum(number**2 for place, number in held.items() if place is not None)

    for chosen in oracle.placements(case.world, case.plain):
        places = {oracle.aggregate(case.world, host, rule.scope) for host in chosen}
        if len(places) == 1 and places != {None}:
            assert together(chosen) <= together(decision.hosts)


@often
@given(st.one_of(cases(6), cases(6, worlds.skew_rules), tight_cases(worlds.limit_rules, 6)))
def test_where_fewer_are_enough_as_many_as_can_be_are_placed(case: Case) -> None:
    least = max(1, case.request.count - 2)
    decision = place(case.fleet, replace(case.request, least=least))
    possible = [
        count
        for count in range(least, case.request.count + 1)
        if next(oracle.placements(case.world, replace(case.plain, count=count)), None) is not None
    ]
    assert len(decision.hosts) == max(possible, default=0)
    assert not decision.cut_short
    if decision:
        assert decision.request.count == len(decision.hosts)
        plain = replace(case.plain, count=len(decision.hosts))
        assert oracle.allowed(case.world, plain, decision.hosts, decision.partitions)


@rarely
@given(cases(4))
def test_the_same_input_gives_the_same_decision(case: Case) -> None:
    first, second = place(case.fleet, case.request), place(case.fleet.snapshot(), case.request)
    assert (first.hosts, first.refused, first.explain()) == (second.hosts, second.refused, second.explain())


def carrying(host: oracle.PlainHost, need: oracle.Triple, servers: int) -> oracle.PlainHost:
    """A host once it carries some servers more."""
    vcpus, memory, disk = (free - servers * each for free, each in zip(host.free, need, strict=True))
    return replace(host, free=(vcpus, memory, disk))


@rarely
@given(st.one_of(cases(2), cases(2, worlds.partition_rules)))
def test_a_batch_never_breaks_what_single_decisions_keep(case: Case) -> None:
    """Requests of one group in one batch see each other's servers and each other's claims."""
    decisions = in_turn(case.fleet, [case.request, case.request])
    plain, world = case.plain, case.world
    for decision in decisions:
        if not decision:
            assert next(oracle.placements(world, plain), None) is None
            continue
        assert oracle.allowed(world, plain, decision.hosts, decision.partitions)
        world = [carrying(host, plain.need, decision.hosts.count(at)) for at, host in enumerate(world)]
        plain = replace(plain, members=plain.members + decision.hosts, numbers=plain.numbers + decision.partitions)
    assert case.request.members.total == len(case.plain.members)


@pytest.mark.parametrize("count", [1, 2])
def test_no_hosts_no_place(count: int) -> None:
    decision = place(worlds.fleet_of([]), Request(Resources(1, 1, 1), count))
    assert not decision
    assert decision.explain().runners_up == ()
