"""A decision is written down with real names: what was asked, what each check removed, and who came where."""

from roost.placement.decision import Request
from roost.placement.fleet import Fleet, Resources
from roost.placement.record import record
from roost.placement.rules import Rule
from roost.placement.scheduler import place

TWO = (Rule.parse("anti-affinity:rack", {"partitions": 2}),)


def fleet_in(*racks: str) -> Fleet:
    fleet = Fleet()
    for number, rack in enumerate(racks):
        fleet.add_host(f"h{number}", Resources(4, 4, 4), aggregates={"rack": rack})
    return fleet


def test_each_server_has_its_host_its_places_and_its_partition() -> None:
    fleet = fleet_in("a", "b")
    written = record(
        place(fleet, Request(Resources(1, 1, 1), 2, TWO)),
        lambda host, scopes: {
            "host": fleet.name(host),
            "places": {scope: str(fleet.aggregate(host, scope)) for scope in scopes},
        },
    )
    assert (written["verdict"], written["hosts"], "partition" in written) == ("placed", 2, False)
    assert sorted((each["host"], each["places"]["rack"]) for each in written["chosen"]) == [("h0", "0"), ("h1", "1")]
    assert [each["partition"] for each in written["chosen"]] == [1, 2]


def test_a_refusal_has_its_rules_and_the_partition_asked_for() -> None:
    written = record(
        place(fleet_in("a"), Request(Resources(9, 1, 1), 1, TWO, partition=2)),
        lambda host, scopes: {"host": str(host), "places": {}},
    )
    assert (written["verdict"], written["partition"], written["chosen"]) == ("refused", 2, [])
    assert written["refused"] == [("too_few_vcpus", 1, None)]
