"""What a Roost that hangs costs: members of groups wait once, and servers outside groups hardly at all."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest
from roost_nova.asker import Asker, Wanted
from roost_nova.service import Hanging, Silent

from tests.nova.schedulers import offer

SMALL = {"vcpus": 1, "memory_mb": 512, "disk_gb": 1}


@dataclass
class Roost:
    """Answers, hangs for as long as it is given, or is not there."""

    adopts: frozenset[str] = frozenset()
    knows: bool = True
    hangs: bool = False
    refuses: bool = False
    asked: list[str] = field(default_factory=list)

    def _answer(self, question: str, seconds: float) -> None:
        self.asked.append(question)
        if self.hangs:
            time.sleep(seconds)
            raise Hanging("no answer")
        if self.refuses:
            raise Silent("refused")

    def adopted(self, seconds: float) -> frozenset[str]:
        self._answer("adopted", seconds)
        return self.adopts

    def choose(self, wanted: Mapping[str, Any], seconds: float) -> Mapping[str, Any] | None:
        self._answer("choose", seconds)
        return {"hosts": wanted["hosts"]["names"][:1], "weights": [1.0]} if self.knows else None


def server(group: str | None = None) -> Wanted:
    return Wanted(str(uuid4()), group, "demo", "user", SMALL)


def asker(roost: Roost, cache_seconds: float = 60.0) -> Asker:
    return Asker(roost, time_limit=0.5, quick_limit=0.2, cache_seconds=cache_seconds)


def test_members_are_asked_about_and_others_are_not() -> None:
    roost = Roost()
    own = asker(roost)
    assert own.choose(server("g"), offer("a", "b")) == {"a": 1.0}
    assert [own.choose(server(), offer("a")) for _ in range(3)] == [None] * 3
    assert roost.asked == ["choose", "adopted"]


def test_a_server_that_roost_made_a_member_is_asked_about() -> None:
    moving = server()
    roost = Roost(frozenset({moving.instance_id}))
    assert asker(roost).choose(moving, offer("a")) == {"a": 1.0}


def test_a_roost_that_hangs_costs_servers_outside_groups_a_moment_once() -> None:
    roost = Roost(hangs=True)
    own = asker(roost)
    began = time.monotonic()
    assert [own.choose(server(), offer("a")) for _ in range(20)] == [None] * 20
    assert time.monotonic() - began < 0.4
    assert roost.asked == ["adopted"]


def test_while_one_waits_for_a_roost_that_hangs_the_others_do_not() -> None:
    roost = Roost(hangs=True)
    own = Asker(roost, 5.0, quick_limit=1.0, cache_seconds=60.0)
    first = threading.Thread(target=own.choose, args=(server(), offer("a")))
    first.start()
    time.sleep(0.1)
    began = time.monotonic()
    assert own.choose(server(), offer("a")) is None
    assert time.monotonic() - began < 0.5
    first.join()


def test_the_last_list_holds_while_roost_does_not_answer() -> None:
    moving = server()
    roost = Roost(frozenset({moving.instance_id}))
    own = asker(roost, cache_seconds=0.0)
    own.choose(server(), offer("a"))
    roost.refuses = True
    with pytest.raises(Silent):
        own.choose(moving, offer("a"))


def test_after_one_has_waited_in_vain_the_next_members_do_not_wait() -> None:
    roost = Roost(hangs=True)
    own = asker(roost)
    with pytest.raises(Hanging):
        own.choose(server("g"), offer("a"))
    began = time.monotonic()
    for _ in range(10):
        with pytest.raises(Silent, match="a moment ago"):
            own.choose(server("g"), offer("a"))
    assert time.monotonic() - began < 0.2


def test_a_roost_that_hung_is_asked_something_small_first() -> None:
    roost = Roost(hangs=True)
    own = asker(roost, cache_seconds=0.0)
    with pytest.raises(Hanging):
        own.choose(server("g"), offer("a"))
    with pytest.raises(Silent):
        own.choose(server("g"), offer("a"))
    assert roost.asked == ["choose", "adopted"]
    roost.hangs = False
    assert own.choose(server("g"), offer("a")) == {"a": 1.0}


def test_a_refused_connection_does_not_open_the_breaker() -> None:
    """A Roost that restarts is back soon, and each question waits for it."""
    roost = Roost(refuses=True)
    own = asker(roost)
    for _ in range(2):
        with pytest.raises(Silent, match="refused"):
            own.choose(server("g"), offer("a"))
    assert roost.asked == ["choose", "choose"]


def test_groups_that_are_none_of_roosts_are_remembered_and_forgotten() -> None:
    roost = Roost(knows=False)
    own = asker(roost)
    assert [own.choose(server("g"), offer("a")) for _ in range(3)] == [None] * 3
    assert roost.asked == ["choose"]
    for number in range(1500):
        own.choose(server(str(number)), offer("a"))
    assert len(own._foreign) <= 1000
