"""The scheduler by example: moves, batches, races, ties, and the honest word when time runs out."""

import sys
from dataclasses import replace
from random import Random

import pytest

from roost import placement
from roost.placement import several
from roost.placement.decision import Move, Refusal, RefusalCount, Request, Verdict, WorkBudget
from roost.placement.fleet import Fleet, Members, Resources
from roost.placement.holding import broken_rules
from roost.placement.rules import Rule
from roost.placement.scheduler import candidates, place

ONE = Resources(1, 1, 1)


def rules(*texts: str, **limits: int) -> tuple[Rule, ...]:
    return tuple(Rule.parse(text, limits) for text in texts)


def fleet_in(*racks: str, **more: str) -> Fleet:
    """A host for each rack named; each further scope names its aggregates in one string, a letter a host."""
    fleet = Fleet()
    for number, rack in enumerate(racks):
        places = {"rack": rack} | {scope: letters[number] for scope, letters in more.items()}
        fleet.add_host(f"h{number}", Resources(4, 4, 4), aggregates=places)
    return fleet


def dead_end() -> tuple[Fleet, Request]:
    """One server a rack, a row and a cage: taken in any order but one, two servers leave the third no place.

    Each row of letters is a host; the three at the end fit together, and every other host is in the way of two.
    """
    fleet = fleet_in(*"aababc", row="abaabc", cage="abbbca")
    for host in range(3, 6):
        fleet.claim(host, Resources(2, 2, 2))
    return fleet, Request(ONE, 3, rules("anti-affinity:rack", "anti-affinity:row", "anti-affinity:cage"))


def test_an_only_member_may_leave_its_affinity() -> None:
    fleet = fleet_in("a", "b")
    request = Request(ONE, 1, rules("affinity:rack"), Members([0]), moving=Move(0, ONE))
    assert place(fleet, request).hosts == (1,)


def test_nobody_can_be_sure_to_be_with_a_member_that_moves_to_another_rack() -> None:
    fleet = fleet_in("a", "a", "b", "c")
    group = Members([0, 2])
    group.between = ((0, 2),)
    alone = Request(ONE, 1, rules("affinity:rack"), group)
    assert [(each.reason, each.hosts) for each in place(fleet, alone).refused] == [(Refusal.AWAY_FROM_MEMBERS, 4)]
    group.add(3)
    joined = place(fleet, alone)
    assert joined.hosts == (3,)
    assert broken_rules(fleet, joined, group) == ()
    group.remove(3)
    assert broken_rules(fleet, joined, group) == alone.rules
    within = Members([0, 1])
    within.between = ((0, 1),)
    assert place(fleet, Request(ONE, 1, rules("affinity:rack"), within)).hosts in {(0,), (1,)}


def test_a_member_may_stay_where_only_it_fills_the_host() -> None:
    fleet = fleet_in("a", "b")
    fleet.claim(0, Resources(4, 4, 4))
    fleet.enable(1, False)
    moving = Move(0, ONE, may_stay=True)
    assert place(fleet, Request(ONE, 1, rules("anti-affinity"), Members([0]), moving=moving)).hosts == (0,)
    assert not place(fleet, Request(Resources(2, 1, 1), moving=moving))


@pytest.mark.parametrize(
    ("text", "limits", "before", "now"),
    [
        ("anti-affinity", {}, [], [0]),
        ("anti-affinity:rack", {}, [1], [0]),
        ("affinity:rack", {}, [0], [1]),
        ("anti-affinity:rack", {"max_skew": 1}, [], [0]),
        ("anti-affinity:rack", {"max_server_per_aggregate": 2, "max_skew": 2}, [0], [0, 0]),
    ],
)
def test_a_lost_race_is_seen(text: str, limits: dict[str, int], before: list[int], now: list[int]) -> None:
    fleet = fleet_in("x", "y")
    wanted = (*rules(text, **limits), *rules("soft-affinity:rack:x"))
    decision = place(fleet, Request(ONE, 1, wanted, Members(before)))
    assert decision.hosts == (0,)
    assert not broken_rules(fleet, decision, Members(before))
    assert broken_rules(fleet, decision, Members(now)) == (wanted[0],)
    fleet.add_host("late", Resources(4, 4, 4), aggregates={"rack": "z"})
    assert not broken_rules(fleet, decision, Members(before))


def test_a_host_that_left_its_rack_is_seen() -> None:
    fleet = fleet_in("x")
    decision = place(fleet, Request(ONE, 1, rules("affinity:rack:x")))
    assert not broken_rules(fleet, decision, Members())
    fleet.join(0, "rack", "y")
    assert broken_rules(fleet, decision, Members()) == rules("affinity:rack:x")
    fleet.leave(0, "rack")
    assert broken_rules(fleet, decision, Members()) == rules("affinity:rack:x")


def test_a_target_that_no_host_is_in_is_no_aggregate_of_another_name() -> None:
    fleet = fleet_in("a", "b")
    for name in ("c", "d"):
        fleet.join(1, "rack", name)
    assert place(fleet, Request(ONE, 1, rules("anti-affinity:rack:nowhere"), targets=[1])).hosts == (1,)
    fleet.join(1, "rack", "c")
    assert not place(fleet, Request(ONE, 1, rules("affinity:rack:nowhere")))


def test_seeds_scatter_what_is_equal() -> None:
    fleet = fleet_in(*"abcdefgh")
    chosen = {place(fleet, Request(ONE, seed=seed)).hosts[0] for seed in range(100)}
    assert chosen == set(range(8))


def test_the_exact_search_finds_what_the_quick_one_misses() -> None:
    fleet, request = dead_end()
    assert sorted(place(fleet, request).hosts) == [3, 4, 5]


def test_the_exact_search_also_chooses_the_aggregate_for_an_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, request = dead_end()
    for host in fleet.hosts():
        fleet.join(host, "hall", "main")
    monkeypatch.setattr(several, "_TRIES", 1)
    together = Request(ONE, 3, (*request.rules, *rules("affinity:hall")))
    assert sorted(place(fleet, together).hosts) == [3, 4, 5]


def test_a_search_cut_short_is_no_refusal() -> None:
    fleet, request = dead_end()
    decision = place(fleet, Request(ONE, 3, request.rules, budget=0))
    assert decision.verdict is Verdict.UNDECIDED
    assert decision.cut_short
    assert decision.sentence().startswith("no place found for 3 servers: 6 hosts pass every check, and the search")


def crossing(hosts: int, parts: int, planted: int) -> tuple[Fleet, tuple[Rule, ...]]:
    """Four scopes that cut across each other, one server in each part of each; so many fit for sure."""
    dice, fleet = Random(1), Fleet()
    shuffled = [dice.sample(range(parts), parts) for _ in range(4)]
    rows = [[scope[number] for scope in shuffled] for number in range(planted)]
    rows += [[dice.randrange(parts) for _ in range(4)] for _ in range(hosts - planted)]
    dice.shuffle(rows)
    for number, row in enumerate(rows):
        places = {f"scope{at}": str(part) for at, part in enumerate(row)}
        fleet.add_host(f"h{number}", Resources(16, 16, 16), aggregates=places)
    return fleet, rules(*(f"anti-affinity:scope{at}" for at in range(4)))


def keeps_apart(fleet: Fleet, hosts: tuple[int, ...]) -> bool:
    return all(len({fleet.aggregate(host, f"scope{at}") for host in hosts}) == len(hosts) for at in range(4))


def test_four_crossing_scopes_are_filled_to_the_last_part_but_few() -> None:
    fleet, wanted = crossing(1000, 200, 200)
    request = Request(ONE, 190, wanted)
    assert place(fleet, replace(request, budget=0)).cut_short
    first = place(fleet, request)
    assert len(first.hosts) == 190
    assert keeps_apart(fleet, first.hosts)
    assert not broken_rules(fleet, first, Members())


def test_as_many_as_can_be_take_one_search_and_the_same_hosts_every_time() -> None:
    fleet, wanted = crossing(150, 30, 30)
    quick = place(fleet, Request(ONE, 40, wanted, least=1, budget=0))
    assert quick
    assert quick.cut_short
    assert quick.request.count == len(quick.hosts) < 30
    decision = place(fleet, Request(ONE, 40, wanted, least=1))
    assert len(decision.hosts) == 30
    assert not decision.cut_short
    assert keeps_apart(fleet, decision.hosts)
    assert place(fleet.snapshot(), Request(ONE, 40, wanted, least=30)).hosts == decision.hosts
    assert place(fleet, Request(ONE, 40, wanted, least=31)).verdict is Verdict.REFUSED


def test_a_budget_is_shared_by_all_tries() -> None:
    fleet, request = dead_end()
    budget = WorkBudget(1000)
    lefts = [budget.left]
    while place(fleet, request, budget):
        lefts.append(budget.left)
    assert lefts == sorted(set(lefts), reverse=True)
    assert len(lefts) > 2
    assert place(fleet, request, budget).verdict is Verdict.UNDECIDED


def test_without_a_solver_what_the_quick_search_misses_is_not_said_to_be_impossible(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(placement, "exact", raising=False)
    monkeypatch.setitem(sys.modules, "roost.placement.exact", None)
    assert place(*dead_end()).verdict is Verdict.UNDECIDED


def test_more_soft_rules_than_one_word_holds() -> None:
    fleet = fleet_in("x", "x", "y", "y", row="abab", cage="aabb")
    members = Members()
    for host, many in ((0, 2**20), (1, 2**20 + 5), (2, 2**20 + 9), (3, 2**20)):
        members.add(host, many)
    soft = rules("soft-affinity:cage", "soft-anti-affinity:row", "soft-affinity:rack", "soft-affinity")
    request = Request(ONE, 2, soft, members)
    decision = place(fleet, request)
    assert decision.hosts == (3, 3)
    assert [share.value for share in decision.explain().winners[0].shares] == [2**21 + 9, 2**21 + 5, 2**21 + 9, 2**20]
    assert [standing.host for standing in decision.explain().runners_up] == [2, 1, 0]


def test_hosts_in_no_aggregate_share_none() -> None:
    """Soft rules: a host outside rule's scope stays as it was when another such host takes a server."""
    fleet = Fleet()
    fleet.add_host("bare", Resources(16, 16, 16))
    fleet.add_host("placed", Resources(16, 16, 16), aggregates={"availability_zone": "a2", "power": "p"})
    wanted = rules("soft-anti-affinity:availability_zone:a2", "soft-anti-affinity:power")
    assert place(fleet, Request(ONE, 4, wanted)).hosts == (0, 0, 0, 0)
    fleet = fleet_in("a", "b", "c")
    fleet.leave(0, "rack")
    fleet.leave(1, "rack")
    fleet.claim(2, Resources(2, 2, 2))
    assert place(fleet, Request(ONE, 3, rules("soft-affinity:rack"))).hosts[:2] == (2, 2)


def scopes_without_aggregates(hosts: int) -> Fleet:
    """Hosts in racks of four that are in no other scope, one of them down."""
    fleet = Fleet()
    for number in range(hosts):
        fleet.add_host(f"h{number}", Resources(64, 64, 64), aggregates={"rack": str(number // 4)})
    fleet.enable(hosts - 1, False)
    return fleet


def test_several_words_of_ranking_with_a_host_down() -> None:
    fleet = scopes_without_aggregates(48)
    wanted = rules(*(f"soft-anti-affinity:{scope}" for scope in ("empty", "rack", "power", "row")))
    hosts = place(fleet, Request(ONE, 255, wanted)).hosts
    per_rack = [sum(host // 4 == rack for host in hosts) for rack in range(12)]
    assert sorted(per_rack) == [21] * 9 + [22] * 3
    twelve = rules(*(f"soft-anti-affinity:empty{number}" for number in range(11)), "soft-anti-affinity")
    assert len(set(place(fleet, Request(ONE, 7, twelve)).hosts)) == 7
    limit = rules("anti-affinity:rack", max_server_per_aggregate=22)
    assert place(fleet, Request(ONE, 255, (*wanted, *limit)))


def test_the_explanation_tells_soft_rules_and_capacity_apart() -> None:
    fleet = fleet_in("x", "y", "y")
    fleet.leave(0, "rack")
    fleet.claim(2, Resources(2, 0, 0))
    wanted = rules("soft-anti-affinity:rack", "soft-anti-affinity:rack:x")
    explanation = place(fleet, Request(ONE, 1, wanted, Members([1]))).explain()
    seen = [
        (standing.host, [share.value for share in standing.shares], standing.headroom)
        for standing in (*explanation.winners, *explanation.runners_up)
    ]
    assert seen == [(1, [1, 1], 100), (2, [1, 1], 50), (0, [None, 1], 100)]


def test_reasons_come_in_order_and_in_words() -> None:
    fleet = fleet_in("x", "x", "y", "y", "z")
    fleet.enable(0, False)
    fleet.claim(1, Resources(4, 0, 0))
    decision = place(fleet, Request(ONE, 1, rules("anti-affinity:rack"), Members([2]), excluded=[4]))
    assert [(refused.reason, refused.hosts, refused.scope) for refused in decision.refused] == [
        (Refusal.DISABLED, 1, None),
        (Refusal.EXCLUDED, 1, None),
        (Refusal.TOO_FEW_VCPUS, 1, None),
        (Refusal.SCOPE_FULL, 2, "rack"),
    ]
    assert decision.sentence() == (
        "no place for 1 server: 1 host is down or disabled; 1 host is excluded; 1 host has too few free vCPUs; "
        "2 hosts are in a rack with as many members as 'anti-affinity:rack' allows"
    )


def test_other_sentences() -> None:
    assert place(fleet_in("x"), Request(ONE)).sentence() == "1 server placed"
    assert place(Fleet(), Request(ONE)).sentence() == "no place for 1 server: there are no hosts"
    single = place(fleet_in("x"), Request(ONE, 9))
    assert single.sentence() == "no place for 9 servers: 1 host passes every check, too few for all servers together"
    apart = (Rule.parse(f"anti-affinity:{scope}") for scope in ("rack", "availability_zone"))
    full = [str(RefusalCount(Refusal.SCOPE_FULL, 2, rule)) for rule in apart]
    assert [text[:23] for text in full] == ["2 hosts are in a rack w", "2 hosts are in an avail"]


def test_a_skew_that_stops_several_is_named() -> None:
    fleet = fleet_in("x", "y")
    fleet.claim(1, Resources(3, 0, 0))
    skew = rules("anti-affinity:rack", max_skew=1)
    decision = place(fleet, Request(ONE, 3, skew, Members([0])))
    assert [(refused.reason, refused.hosts) for refused in decision.refused] == [(Refusal.SKEWED, 1)]
    assert decision.candidates == 1


def test_candidates_are_the_hosts_that_pass() -> None:
    assert candidates(fleet_in("x", "y"), Request(ONE, 1, rules("affinity:rack:y"))).tolist() == [False, True]


@pytest.mark.parametrize(
    ("count", "moving", "least"), [(0, None, None), (2, Move(0, ONE), None), (2, None, 0), (2, None, 3)]
)
def test_requests_that_mean_nothing(count: int, moving: Move | None, least: int | None) -> None:
    with pytest.raises(ValueError, match="server"):
        Request(ONE, count, moving=moving, least=least)
