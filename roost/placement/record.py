"""A decision as it is stored: with real names and no sentences, readable long after the fleet has changed."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NotRequired, TypedDict

from roost.placement.decision import Decision
from roost.placement.rules import Rule


class HostPlace(TypedDict):
    """The name of a host, and its aggregate in each of some scopes that it is in."""

    host: str
    places: Mapping[str, str]


class WrittenRule(TypedDict):
    """A rule, and its limits."""

    policy: str
    rules: Mapping[str, int]


class RankedPlace(HostPlace):
    """A host that was ranked, with the words that ranked it, and the partition of the server that it was chosen for."""

    words: Sequence[int]
    partition: NotRequired[int]


class Record(TypedDict):
    """A decision as it is stored."""

    verdict: str
    servers: int
    hosts: int
    candidates: int | None
    refused: Sequence[tuple[str, int, WrittenRule | None]]
    preferences: Sequence[tuple[WrittenRule | None, int, int, int, int]]
    """The rule of each `RankingField`, and where it stands."""
    flip: int
    chosen: Sequence[RankedPlace]
    runners_up: Sequence[RankedPlace]
    partition: NotRequired[int]
    """The one asked for."""


Where = Callable[[int, Sequence[str]], HostPlace]
"""The place of a host in these scopes."""


def record(decision: Decision, where: Where) -> Record:
    """One decision, on all of its servers. What ranked the hosts is kept as the scheduler has it, and read later.

    What each check removed is written down where the decision has counted it. A refusal always has; a server that is
    placed by the index never looked at the hosts that it did not need, and `candidates` is None."""
    scopes = tuple(dict.fromkeys(rule.scope for rule in decision.request.rules))
    names, counted = decision.names, decision.reasons.counted
    ranked = zip(decision.placed(), names.rows, strict=True)
    refused = decision.refused if counted else ()
    written: Record = {
        "verdict": decision.verdict,
        "servers": decision.request.count,
        "hosts": names.fleet_size,
        "candidates": decision.candidates if counted else None,
        "refused": [(each.reason, each.hosts, written_rule(each.rule) if each.rule else None) for each in refused],
        "preferences": [
            (written_rule(field.rule), field.word, field.shift, field.width, field.top) for field in names.fields
        ],
        "flip": names.flip,
        "chosen": [_ranked(where(host, scopes), row, number) for (host, number), row in ranked],
        "runners_up": [_ranked(where(host, scopes), row) for host, row in (names.next_best if decision else ())],
    }
    if decision.request.partition is not None:
        written["partition"] = decision.request.partition
    return written


def _ranked(place: HostPlace, words: Sequence[int], partition: int | None = None) -> RankedPlace:
    ranked = RankedPlace(host=place["host"], places=place["places"], words=words)
    if partition is not None:
        ranked["partition"] = partition
    return ranked


@lru_cache(maxsize=4096)
def written_rule(rule: Rule) -> WrittenRule:
    """A rule as it is stored."""
    return WrittenRule(policy=str(rule), rules={str(name): value for name, value in rule.limits.items()})
