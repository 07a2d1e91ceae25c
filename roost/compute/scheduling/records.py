"""What is written down of a decision: with real names, so that it can be explained long after the fleet has changed."""

from collections.abc import Sequence
from dataclasses import replace

from roost.compute.inventory.live_fleet import LiveFleet
from roost.placement import record as placement
from roost.placement.decision import Decision, RefusalCount
from roost.placement.record import HostPlace, Record
from roost.placement.rules import HOST


def sentence(decision: Decision) -> str:
    """Why nowhere, in plain words that name no identifier: some are hidden from tenants."""
    text = decision.sentence([_nameless(refused) for refused in decision.refused])
    return text[:1].upper() + text[1:] + "."


def _nameless(refused: RefusalCount) -> RefusalCount:
    rule = refused.rule
    return refused if rule is None or rule.identifier is None else replace(refused, rule=replace(rule, identifier=None))


def record(decision: Decision, live: LiveFleet) -> Record:
    """One decision, on all of its servers."""

    def where(host: int, scopes: Sequence[str]) -> HostPlace:
        name = live.host(host).name
        places = {HOST: name, **live.places(host)}
        return {"host": name, "places": {scope: places[scope] for scope in scopes if scope in places}}

    return placement.record(decision, where)


def records(decision: Decision, live: LiveFleet, servers: int) -> list[Record]:
    """One decision for each of its servers to keep: each with its own host."""
    whole = record(decision, live)
    if not decision:
        return [whole] * servers
    return [{**whole, "chosen": [chosen]} for chosen in whole["chosen"]]
