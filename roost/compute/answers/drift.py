"""Drift: rules that come to be broken without a request, found by looking again and again.

A host is moved to another rack, an operator forces a migration, somebody changes a policy: nothing asks the scheduler.
What is broken is written down with the time at which it was first seen, and told: in the log, as a notification, and as
a metric.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from prometheus_client import Counter
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.groups import groups, notifications
from roost.compute.groups.identifiers import Surrogates
from roost.compute.inventory.live_fleet import LiveFleet
from roost.compute.inventory.scopes import Scope, load_scopes
from roost.config import Settings
from roost.placement.audit import Breach, Violation, audit
from roost.placement.fleet import Fleet
from roost.placement.rules import Rule
from roost.store.database import Database
from roost.store.tables.answers import violations
from roost.store.tables.servers import server_groups, servers

logger = logging.getLogger(__name__)

EVENT = "server_group.violation"
DRIFT = Counter("roost_drift_total", "Rules that came to be broken, by how.", ["breach"])
for _breach in Breach:
    DRIFT.labels(str(_breach))  # so that the first one of a kind is seen to be one more


class Key(NamedTuple):
    """What makes a violation the same one when it is looked for again."""

    group_id: str
    breach: str
    policy: str
    aggregate: str


@dataclass(frozen=True, slots=True)
class DriftedRule:
    """A broken rule, with the real name of the aggregate where that is."""

    group_id: str
    violation: Violation
    aggregate: str | None

    @property
    def key(self) -> Key:
        """What it is known by."""
        violation = self.violation
        return Key(self.group_id, str(violation.breach), str(violation.rule), self.aggregate or "")


async def find_all(connection: AsyncConnection, live: LiveFleet) -> Iterator[DriftedRule]:
    """Every broken rule of every group: read in as many queries for many groups as for few, and found one group after
    another as the answer is taken, on the fleet as it is now."""
    await live.sync(connection)
    places: dict[str, dict[str, int]] = {}
    partitions: dict[str, int | None] = {}
    columns = (servers.c.group_id, servers.c.id, servers.c.host_id, servers.c.partition)
    query = sa.select(*columns).where(servers.c.group_id.is_not(None), servers.c.host_id.is_not(None))
    for group_id, server_id, host_id, partition in await connection.execute(query.order_by(servers.c.number)):
        index = live.index(host_id)
        if index is not None:
            places.setdefault(group_id, {})[server_id] = index
            partitions[server_id] = partition
    return _broken(live.fleet.snapshot(), await groups.rules_of(connection, places), places, partitions)


def _broken(
    fleet: Fleet,
    rules: Mapping[str, Sequence[Rule]],
    places: Mapping[str, Mapping[str, int]],
    partitions: Mapping[str, int | None],
) -> Iterator[DriftedRule]:
    names: dict[str, list[str]] = {}
    for group_id, members in places.items():
        for violation in audit(fleet, rules[group_id], members, partitions).violations:
            scope = violation.rule.scope
            if scope not in names:
                names[scope] = fleet.identifiers(scope)
            yield DriftedRule(group_id, violation, aggregate_name(names[scope], violation))


def aggregate_name(names: Sequence[str], violation: Violation) -> str | None:
    """The real name of the aggregate where a rule is broken, among all of its scope; None for no aggregate at all."""
    if violation.aggregate is None:
        return None
    # A target that no host was ever in has only the name that the rule has for it.
    known = 0 <= violation.aggregate < len(names)
    return names[violation.aggregate] if known else violation.rule.identifier


async def since(connection: AsyncConnection, group_ids: Iterable[str] | None = None) -> Mapping[Key, datetime]:
    """Since when the rules of these groups, or of all, are known to be broken."""
    query = sa.select(*(violations.c[name] for name in Key._fields), violations.c.since)
    if group_ids is not None:
        query = query.where(violations.c.group_id.in_(list(group_ids)))
    return {Key(*row[:4]): row.since for row in await connection.execute(query)}


async def note(connection: AsyncConnection, settings: Settings, broken: Iterable[DriftedRule]) -> list[DriftedRule]:
    """Write down what is broken now and forget what no longer is; those that are new."""
    now = {each.key: each for each in broken}
    before = await since(connection)
    new = [each for key, each in now.items() if key not in before]
    for key in before.keys() - now.keys():
        matching = (violations.c[name] == value for name, value in zip(Key._fields, key, strict=True))
        await connection.execute(violations.delete().where(*matching))
    there = await _existing(connection, {each.group_id for each in new})
    new = [each for each in new if each.group_id in there]
    if new:
        rows = [{**each.key._asdict(), "excess": each.violation.excess} for each in new]
        await connection.execute(violations.insert(), rows)
        if notifications.wanted(settings):
            known = await load_scopes(connection)
            await notifications.write(connection, EVENT, [_payload(each, there[each.group_id], known) for each in new])
    return new


async def _existing(connection: AsyncConnection, group_ids: Iterable[str]) -> dict[str, sa.Row[Any]]:
    """The groups that are still there, and stay until this transaction ends."""
    query = sa.select(server_groups).where(server_groups.c.id.in_(list(group_ids))).order_by(server_groups.c.id)
    return {row.id: row for row in await connection.execute(query.with_for_update(read=True, key_share=True))}


def _payload(broken: DriftedRule, group: sa.Row[Any], known: Mapping[str, Scope]) -> dict[str, Any]:
    """With the identifiers of the group's own project, as all notifications have them."""
    shown = Surrogates(known, group.project_id)
    violation = replace(broken.violation, rule=shown.shown(broken.violation.rule))
    aggregate = None if broken.aggregate is None else shown.of(violation.rule.scope, broken.aggregate)
    return {
        "uuid": group.id,
        "name": group.name,
        "project_id": group.project_id,
        "breach": str(violation.breach),
        "policy": str(violation.rule),
        "aggregate": aggregate,
        "members": list(violation.members),
        "excess": violation.excess,
        "message": str(violation),
    }


async def look(database: Database, settings: Settings, live: LiveFleet) -> list[DriftedRule]:
    """Look once, and tell what has come to be broken since the last time."""
    async with database.begin() as connection:
        new = await note(connection, settings, await find_all(connection, live))
    for each in new:
        DRIFT.labels(str(each.violation.breach)).inc()
        logger.warning("drift: server group %s: %s", each.group_id, each.violation, extra={"group": each.group_id})
    return new


async def keep_looking(database: Database, settings: Settings, live: LiveFleet) -> None:
    """Look again and again, until cancelled."""
    while settings.group_audit_seconds:
        try:
            await look(database, settings, live)
        except Exception:
            logger.exception("looking for drift failed, trying again")
        await asyncio.sleep(settings.group_audit_seconds)
