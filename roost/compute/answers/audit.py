"""The audit: what is broken in one group, as the reader may see it, and what is wrong anywhere, for the operator.

The engine audits repeatedly. A rule that it finds broken for the first time is written down with the time, logged,
counted, and sent as a notification.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

import sqlalchemy as sa
from prometheus_client import Counter as Metric
from prometheus_client import Gauge
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.answers import violations as finder
from roost.compute.answers.violations import BrokenRule, ViolationKey, Violations
from roost.compute.groups import notifications
from roost.compute.groups.groups import Group
from roost.compute.groups.identifiers import Identifiers
from roost.compute.inventory.live_fleet import LiveFleet
from roost.compute.inventory.scopes import load_scopes
from roost.config import Settings
from roost.placement.audit import Breach
from roost.placement.rules import division_of
from roost.store.database import Database
from roost.store.tables.answers import violations
from roost.store.tables.compute import aggregate_hosts, aggregates, hosts, scopes
from roost.store.tables.servers import server_groups, servers

logger = logging.getLogger(__name__)

EVENT = "server_group.violation"


class FindingKind(StrEnum):
    """What an audit finds. The codes are public and do not change."""

    HOST_TWICE_IN_SCOPE = "host_twice_in_scope"
    RULE_BROKEN = "rule_broken"
    MEMBER_LOST = "member_lost"


FINDINGS = Gauge("roost_audit_findings", "What the last audit found, by kind.", ["kind"])
LAST = Gauge("roost_audit_last_run_timestamp_seconds", "When the last audit ended.")
DRIFT = Metric("roost_drift_total", "Rules that came to be broken, by how.", ["breach"])
for _breach in Breach:
    DRIFT.labels(str(_breach))  # Initialise each label, so that the first increment is visible.


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that an operator has to look at, with real identifiers."""

    kind: FindingKind
    message: str


# One group


@dataclass(frozen=True, slots=True)
class GroupAudit:
    """Each member's aggregate in each scope of the group's rules (None: in none), its partition where the group is
    divided, and which rules are broken, since when (None until the engine has looked)."""

    placements: Mapping[str, Mapping[str, str | None]]
    partitions: Mapping[str, int | None]
    violations: tuple[tuple[BrokenRule, datetime | None], ...]


async def audit_group(
    connection: AsyncConnection, group: Group, identifiers: Identifiers, fleet: LiveFleet
) -> GroupAudit:
    """Audit one group, by the identifiers that the reader may see."""
    found = await finder.of_group(connection, group, fleet)
    names = {rule.scope: found.fleet.identifiers(rule.scope) for rule in found.rules}
    nowhere: dict[str, int | None] = dict.fromkeys(names)
    placements = {
        member: {
            scope: None if aggregate is None else identifiers.of(scope, names[scope][aggregate])
            for scope, aggregate in found.audit.placements.get(member, nowhere).items()
        }
        for member in found.hosts
    }
    known = await since(connection, [group.id]) if found.broken else {}
    broken = tuple((each.shown(identifiers), known.get(each.key)) for each in found.broken)
    return GroupAudit(placements, found.partitions if division_of(found.rules) else {}, broken)


async def since(connection: AsyncConnection, group_ids: Iterable[str] | None = None) -> Mapping[ViolationKey, datetime]:
    """Since when the rules of these groups, or of all, are known to be broken."""
    query = sa.select(*(violations.c[name] for name in ViolationKey._fields), violations.c.since)
    if group_ids is not None:
        query = query.where(violations.c.group_id.in_(list(group_ids)))
    return {ViolationKey(*row[:4]): row.since for row in await connection.execute(query)}


# Everything


async def audit_all(connection: AsyncConnection, tell: Callable[[str], None] = lambda _: None) -> list[Finding]:
    """Audit every host and every group, as they were at one moment, in as many queries for many as for few. `tell` is
    called with the progress."""
    await connection.execute(sa.text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))
    return await _findings(connection, await Violations(LiveFleet(), tell).now(connection))


async def _findings(connection: AsyncConnection, broken: Iterable[BrokenRule]) -> list[Finding]:
    return [*await _hosts_twice(connection), *map(_finding, broken), *await _members_lost(connection)]


def _finding(broken: BrokenRule) -> Finding:
    found = broken.violation
    return Finding(FindingKind.RULE_BROKEN, f"server group {broken.group_id}: {found}: {', '.join(found.members)}")


async def _hosts_twice(connection: AsyncConnection) -> list[Finding]:
    """The database does not allow it; this finds what bypassed its constraints."""
    inside = sa.func.array_agg(aggregates.c.id)
    query = (
        sa.select(hosts.c.name, scopes.c.name.label("scope"), inside.label("aggregates"))
        .select_from(aggregate_hosts)
        .join(aggregates, aggregates.c.id == aggregate_hosts.c.aggregate_id)
        .join(scopes, scopes.c.id == aggregates.c.scope_id)
        .join(hosts, hosts.c.id == aggregate_hosts.c.host_id)
        .group_by(hosts.c.id, scopes.c.id)
        .having(sa.func.count() > 1)
    )
    return [
        Finding(
            FindingKind.HOST_TWICE_IN_SCOPE,
            f"host {row.name} is in {len(row.aggregates)} aggregates of scope {row.scope}: "
            f"{', '.join(str(number) for number in sorted(row.aggregates))}",
        )
        for row in await connection.execute(query)
    ]


async def _members_lost(connection: AsyncConnection) -> list[Finding]:
    """Members that were deleted, or whose host was: again, what bypassed the constraints."""
    query = (
        sa.select(servers.c.id, servers.c.group_id)
        .outerjoin(server_groups, server_groups.c.id == servers.c.group_id)
        .outerjoin(hosts, hosts.c.id == servers.c.host_id)
        .where(
            servers.c.group_id.is_not(None),
            sa.or_(
                servers.c.vm_state == "deleted",
                server_groups.c.id.is_(None),
                sa.and_(servers.c.host_id.is_not(None), hosts.c.id.is_(None)),
            ),
        )
    )
    return [
        Finding(FindingKind.MEMBER_LOST, f"server {row.id} of server group {row.group_id} no longer exists")
        for row in await connection.execute(query)
    ]


# The engine's part


async def look(database: Database, settings: Settings, found: Violations) -> list[BrokenRule]:
    """Audit everything once, for the log, the metrics and `since`; the rules that came to be broken since the last
    time."""
    async with database.begin() as connection:
        broken = await found.now(connection)
        findings = await _findings(connection, broken)
        new = await _note(connection, settings, broken)
    counts = Counter(finding.kind for finding in findings)
    for kind in FindingKind:
        FINDINGS.labels(kind).set(counts[kind])
    LAST.set_to_current_time()
    for each in new:
        DRIFT.labels(str(each.violation.breach)).inc()
    for finding in findings:
        logger.warning("audit: %s", finding.message, extra={"kind": finding.kind.value})
    return new


async def _note(connection: AsyncConnection, settings: Settings, broken: Sequence[BrokenRule]) -> list[BrokenRule]:
    """Write down what is broken now and forget what no longer is; what is new."""
    now = {each.key: each for each in broken}
    before = await since(connection)
    over = before.keys() - now.keys()
    if over:
        key = sa.tuple_(*(violations.c[name] for name in ViolationKey._fields))
        await connection.execute(violations.delete().where(key.in_(sorted(over))))
    there = await _existing(connection, {key.group_id for key in now.keys() - before.keys()})
    new = [each for key, each in now.items() if key not in before and each.group_id in there]
    if new:
        rows = [{**each.key._asdict(), "excess": each.violation.excess} for each in new]
        await connection.execute(violations.insert(), rows)
        if notifications.wanted(settings):
            known = await load_scopes(connection)
            payloads = [_payload(each.shown(Identifiers(known, each.project_id)), there[each.group_id]) for each in new]
            await notifications.write(connection, EVENT, payloads)
    return new


class _ExistingGroup(NamedTuple):
    id: str
    name: str
    project_id: str


async def _existing(connection: AsyncConnection, group_ids: Iterable[str]) -> dict[str, _ExistingGroup]:
    """The groups that are still there, and stay until this transaction ends."""
    columns = (server_groups.c[name] for name in _ExistingGroup._fields)
    query = sa.select(*columns).where(server_groups.c.id.in_(list(group_ids))).order_by(server_groups.c.id)
    rows = await connection.execute(query.with_for_update(read=True, key_share=True))
    return {row.id: _ExistingGroup(*row) for row in rows}


def _payload(broken: BrokenRule, group: _ExistingGroup) -> notifications.Payload:
    """With the identifiers of the group's own project, as in all notifications."""
    violation = broken.violation
    return {
        "uuid": group.id,
        "name": group.name,
        "project_id": group.project_id,
        "breach": str(violation.breach),
        "policy": str(violation.rule),
        "aggregate": broken.aggregate,
        "members": list(violation.members),
        "excess": violation.excess,
        "message": str(violation),
    }
