"""How several servers of one request are kept to their own hosts, as Nova goes through them."""

import threading

from roost_nova.multicreate import Rationing

from tests.nova.schedulers import HostState, offer


class Spec:
    """A request."""


def takable(hosts: list[HostState]) -> list[str]:
    return [host.host for host in hosts if host.allocation_candidates]


def test_all_hosts_pass_and_only_the_chosen_can_be_taken() -> None:
    thread, spec, hosts = threading.local(), Spec(), offer("a", "b", "c")
    passed = Rationing.of(thread, spec).only(hosts[:1], hosts, "first")
    assert passed == hosts
    assert takable(passed) == ["a"]


def test_the_next_server_has_all_hosts_to_choose_from() -> None:
    thread, spec, hosts = threading.local(), Spec(), offer("a", "b", "c")
    passed = Rationing.of(thread, spec).only(hosts[:1], hosts, "first")
    restored = Rationing.of(thread, spec).restored(passed)
    assert takable(restored) == ["a", "b", "c"]
    assert takable(Rationing.of(thread, spec).only(restored[2:], restored, "second")) == ["c"]


def test_a_host_that_is_held_back_has_all_its_candidates_for_other_filters() -> None:
    """NUMATopologyFilter and PciPassthroughFilter go through them, and put those that fit in their place."""
    thread, spec, hosts = threading.local(), Spec(), offer("a", "b")
    Rationing.of(thread, spec).only(hosts[:1], hosts, "first")
    held = hosts[1].allocation_candidates
    assert not held
    assert (list(held), len(held), held[0]) == (["a candidate"], 1, "a candidate")
    hosts[1].allocation_candidates = [candidate for candidate in held if candidate]
    assert takable(Rationing.of(thread, spec).restored(hosts)) == ["a", "b"]


def test_none_passes_where_none_was_chosen() -> None:
    assert Rationing.of(threading.local(), Spec()).only([], offer("a"), "first") == []


def test_a_server_that_has_its_place_is_known_until_the_next_request() -> None:
    thread, spec, hosts = threading.local(), Spec(), offer("a", "b")
    Rationing.of(thread, spec).only(hosts[:1], hosts, "first")
    assert Rationing.of(thread, spec).served("first")
    assert not Rationing.of(thread, spec).served("second")
    assert not Rationing.of(thread, Spec()).served("first")


def test_where_every_host_is_chosen_alternates_may_be_asked_for() -> None:
    thread, spec, hosts = threading.local(), Spec(), offer("a", "b")
    Rationing.of(thread, spec).only(hosts, hosts, "first")
    assert not Rationing.of(thread, spec).served("first")
