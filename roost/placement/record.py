"""A decision as it is stored: with real names and no sentences, readable long after the fleet has changed."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from roost.placement.decision import Decision
from roost.placement.rules import Rule

Record = dict[str, Any]
"""A decision as it is stored."""

Where = Callable[[int, Sequence[str]], dict[str, Any]]
"""The name of a host (`host`), and its aggregate in each of these scopes that it is in (`places`)."""


def record(decision: Decision, where: Where) -> Record:
    """One decision, on all of its servers. What ranked the hosts is kept as the scheduler has it, and read later.

    What each check removed is written down where the decision has counted it. A refusal always has; a server that is
    placed by the index never looked at the hosts that it did not need, and `candidates` is None."""
    scopes = tuple(dict.fromkeys(rule.scope for rule in decision.request.rules))
    names, counted = decision.names, decision.reasons.counted
    ranked = zip(decision.placed(), names.rows, strict=True)
    refused = decision.refused if counted else ()
    return {
        "verdict": decision.verdict,
        "servers": decision.request.count,
        "hosts": names.fleet_size,
        "candidates": decision.candidates if counted else None,
        "refused": [(each.reason, each.hosts, _written(each.rule)) for each in refused],
        "preferences": [
            (_written(field.rule), field.word, field.shift, field.width, field.top) for field in names.fields
        ],
        "flip": names.flip,
        "chosen": [{**where(host, scopes), "words": row, **_numbered(number)} for (host, number), row in ranked],
        "runners_up": [{**where(host, scopes), "words": row} for host, row in (names.next_best if decision else ())],
        **_numbered(decision.request.partition),
    }


def _numbered(partition: int | None) -> dict[str, int]:
    """The partition of a server, or the one asked for, where there is one."""
    return {} if partition is None else {"partition": partition}


@lru_cache(maxsize=4096)
def _written(rule: Rule | None) -> dict[str, Any] | None:
    return None if rule is None else {"policy": str(rule), "rules": rule.limits}
