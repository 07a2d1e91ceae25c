"""The checker itself: histories that could have happened, and others that could not."""

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.faults.linearizability import FOREVER, NOWHERE, Group, Operation, apply, linearizable, order


def create(server: str, host: str, begun: float, ended: float) -> Operation:
    return Operation("create", begun, ended, server, host)


def read(seen: str, begun: float, ended: float) -> Operation:
    return Operation("read", begun, ended, seen=frozenset(seen))


def remove(server: str, begun: float, ended: float, *, refused: bool = False) -> Operation:
    return Operation("remove", begun, ended, server, refused=refused)


def add(server: str, begun: float, ended: float, *, refused: bool = False) -> Operation:
    return Operation("add", begun, ended, server, refused=refused)


def delete(server: str, begun: float, ended: float) -> Operation:
    return Operation("delete", begun, ended, server)


GOOD = {
    "nothing": [],
    "one after the other": [create("a", "1", 0, 1), read("a", 2, 3), remove("a", 4, 5), read("", 6, 7)],
    "a read while something is made sees it or not": [create("a", "1", 0, 9), read("", 1, 2), read("a", 3, 4)],
    "two at once in the other order": [create("a", "1", 0, 5), create("b", "2", 0, 5), read("b", 1, 2)],
    "what was not answered happened": [create("a", "1", 0, FOREVER), read("a", 5, 6)],
    "what was not answered happened late": [create("a", "1", 0, FOREVER), read("", 5, 6), read("a", 7, 8)],
    "what was not answered did not happen": [create("a", "1", 0, FOREVER), read("", 5, 6)],
    "full": [create("a", "1", 0, 1), create("b", "2", 0, 1), create("c", NOWHERE, 2, 3), read("abc", 4, 5)],
    "a place is free again": [create("a", "1", 0, 1), delete("a", 2, 6), create("b", "1", 3, 5), read("b", 7, 8)],
    "back again": [create("a", "1", 0, 1), remove("a", 2, 3), add("a", 4, 5), read("a", 6, 7)],
    "removed once": [create("a", "1", 0, 1), remove("a", 2, 5), remove("a", 2, 5, refused=True)],
}
BAD = {
    "a read that sees what was gone": [create("a", "1", 0, 1), remove("a", 2, 3), read("a", 4, 5)],
    "a read that misses what was there": [create("a", "1", 0, 1), read("", 2, 3)],
    "reads that go back in time": [create("a", "1", 0, 9), read("a", 1, 2), read("", 3, 4)],
    "two on one host": [create("a", "1", 0, 5), create("b", "1", 0, 5)],
    "refused while there was room": [create("a", "1", 0, 1), create("b", NOWHERE, 2, 3)],
    "a place given twice before it was free": [create("a", "1", 0, 1), create("b", "1", 2, 3), delete("a", 4, 5)],
    "more than fit": [create("a", "1", 0, 1), create("b", "2", 0, 1), create("c", "3", 2, 3)],
    "what was not answered happened twice": [create("a", "1", 0, FOREVER), read("a", 1, 2), read("", 3, 4)],
    "removed twice": [create("a", "1", 0, 1), remove("a", 2, 5), remove("a", 2, 5)],
    "refused to remove a member": [create("a", "1", 0, 1), remove("a", 2, 3, refused=True)],
    "refused to add what was outside": [create("a", "1", 0, 1), remove("a", 2, 3), add("a", 4, 5, refused=True)],
    "two reads see two that were made at once in two orders": [
        create("a", "1", 0, 9),
        create("b", "2", 0, 9),
        read("a", 1, 2),
        read("b", 3, 4),
    ],
}


@pytest.mark.parametrize("name", GOOD)
def test_what_could_have_happened_is_told_so(name: str) -> None:
    assert linearizable(GOOD[name], 2)


@pytest.mark.parametrize("name", BAD)
def test_what_could_not_have_happened_is_told_so(name: str) -> None:
    assert not linearizable(BAD[name], 2)


servers = st.sampled_from("abc")
moments = st.integers(0, 6)


@st.composite
def operations(draw: st.DrawFn) -> Operation:
    begun = draw(moments)
    ended = draw(st.just(FOREVER) | st.integers(begun, 8))
    kind = draw(st.sampled_from(["create", "delete", "add", "remove", "read"]))
    host = draw(st.sampled_from([NOWHERE, "1", "2"])) if kind == "create" else NOWHERE
    seen = draw(st.frozensets(servers)) if kind == "read" else frozenset()
    return Operation(kind, begun, ended, "" if kind == "read" else draw(servers), host, seen, draw(st.booleans()))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(operations(), max_size=5))
def test_it_agrees_with_trying_every_order(history: list[Operation]) -> None:
    assert linearizable(history, 2) == _by_brute_force(history)
    found = order(history, 2)
    assert found is None or _runs(found)


def _by_brute_force(history: list[Operation]) -> bool:
    optional = [operation for operation in history if not operation.known]
    for number in range(1 << len(optional)):
        left_out = [operation for place, operation in enumerate(optional) if number >> place & 1]
        happened = [each for each in history if not any(each is other for other in left_out)]
        if any(_runs(one) for one in permutations(happened)):
            return True
    return False


def _runs(sequence: tuple[Operation, ...] | list[Operation]) -> bool:
    group: Group | None = Group(frozenset(), frozenset())
    for place, operation in enumerate(sequence):
        if any(later.ended < operation.begun for later in sequence[place + 1 :]):
            return False
        group = apply(operation, group, 2) if group is not None else None
    return group is not None
