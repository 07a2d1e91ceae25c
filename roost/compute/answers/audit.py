"""Which rules are broken: in one group, as its tenant may see it, or anywhere, for the operator.

Rules bind when scheduling only. A member added by hand, a policy changed or a host moved to another rack may break
them, and so may whoever changes the database by hand; this finds out, and moves nothing.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

import sqlalchemy as sa
from prometheus_client import Gauge
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.answers import drift
from roost.compute.groups import groups
from roost.compute.groups.groups import Group
from roost.compute.groups.identifiers import Surrogates
from roost.compute.inventory.live_fleet import LiveFleet
from roost.compute.inventory.scopes import load_scopes
from roost.config import Settings
from roost.placement import audit as placement
from roost.placement.rules import Rule, division_of
from roost.store.database import Database
from roost.store.tables.compute import aggregate_hosts, aggregates, hosts, scopes
from roost.store.tables.servers import server_groups, servers

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ShownViolation:
    """One rule broken in one aggregate, in words that the group's tenant may read."""

    breach: str
    rule: Rule
    aggregate: str | None
    members: tuple[str, ...]
    excess: int
    message: str
    since: datetime | None
    """Since when it is known to be so; None until the engine has looked."""


@dataclass(frozen=True, slots=True)
class GroupAudit:
    """Each member's aggregate in each scope of the group's rules (None: in none), its partition where the group is
    divided, and which rules are broken."""

    placements: Mapping[str, Mapping[str, str | None]]
    partitions: Mapping[str, int | None]
    violations: tuple[ShownViolation, ...]


async def audit_group(connection: AsyncConnection, group: Group) -> GroupAudit:
    """Audit one group. Nothing in the answer tells a tenant more than the scopes allow."""
    rules = (await groups.rules_of(connection, [group.id]))[group.id]
    query = sa.select(servers.c.id, servers.c.host_id, servers.c.partition).where(servers.c.group_id == group.id)
    rows = (await connection.execute(query.order_by(servers.c.number))).all()
    places, partitions = {row.id: row.host_id for row in rows}, {row.id: row.partition for row in rows}
    live = LiveFleet()
    if any(rule.max_skew is not None for rule in rules):
        await live.sync(connection)
    else:
        await live.refresh(connection, {host_id for host_id in places.values() if host_id is not None})
    found = placement.audit(live.fleet, rules, _placed(live, places), partitions)
    known = await load_scopes(connection)
    names = {rule.scope: live.fleet.identifiers(rule.scope) for rule in rules}
    surrogates = Surrogates(known, group.project_id)
    nowhere: dict[str, int | None] = dict.fromkeys(names)
    shown = {
        member: {
            scope: None if aggregate is None else surrogates.of(scope, names[scope][aggregate])
            for scope, aggregate in found.placements.get(member, nowhere).items()
        }
        for member in places
    }
    since = await drift.since(connection, [group.id]) if found.violations else {}
    told = (_told(group.id, violation, names, surrogates, since) for violation in found.violations)
    return GroupAudit(shown, partitions if division_of(rules) else {}, tuple(told))


def _placed(live: LiveFleet, places: Mapping[str, int | None]) -> dict[str, int]:
    """The members that are somewhere; one that failed or is shelved breaks nothing."""
    indexes = {member: live.index(host_id) for member, host_id in places.items() if host_id is not None}
    return {member: index for member, index in indexes.items() if index is not None}


def _told(
    group_id: str,
    violation: placement.Violation,
    names: Mapping[str, list[str]],
    surrogates: Surrogates,
    since: Mapping[drift.Key, datetime],
) -> ShownViolation:
    rule = surrogates.shown(violation.rule)
    real = drift.aggregate_name(names[rule.scope], violation)
    aggregate = rule.identifier
    if aggregate is None and real is not None:
        aggregate = surrogates.of(rule.scope, real)
    key = drift.DriftedRule(group_id, violation, real).key
    message = str(replace(violation, rule=rule))
    return ShownViolation(
        violation.breach, rule, aggregate, violation.members, violation.excess, message, since.get(key)
    )


# Everything


class FindingKind(StrEnum):
    """What the operator is told of. The codes are public: once set, they are set."""

    HOST_TWICE_IN_SCOPE = "host_twice_in_scope"
    RULE_BROKEN = "rule_broken"
    MEMBER_LOST = "member_lost"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that somebody has to look at; with real identifiers, for the operator."""

    kind: FindingKind
    message: str


FINDINGS = Gauge("roost_audit_findings", "What the last audit found, by kind.", ["kind"])
LAST = Gauge("roost_audit_last_run_timestamp_seconds", "When the last audit ended.")


async def audit_all(connection: AsyncConnection) -> list[Finding]:
    """Audit every host and every group, as they were at one moment, in as many queries for many as for few."""
    await connection.execute(sa.text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))
    return [*await _hosts_twice(connection), *await _rules_broken(connection), *await _members_lost(connection)]


async def _hosts_twice(connection: AsyncConnection) -> list[Finding]:
    """The database does not allow it; this is for what happened behind its back."""
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


async def _rules_broken(connection: AsyncConnection) -> list[Finding]:
    columns = (servers.c.group_id, servers.c.id, servers.c.host_id, servers.c.partition)
    places: dict[str, dict[str, int | None]] = {}
    partitions: dict[str, int | None] = {}
    for row in await connection.execute(sa.select(*columns).where(servers.c.group_id.is_not(None))):
        places.setdefault(row.group_id, {})[row.id] = row.host_id
        partitions[row.id] = row.partition
    rules = await groups.rules_of(connection, places)
    live = LiveFleet()
    await live.sync(connection)
    return [
        Finding(FindingKind.RULE_BROKEN, f"server group {group_id}: {violation}: {', '.join(violation.members)}")
        for group_id, members in places.items()
        for violation in placement.audit(live.fleet, rules[group_id], _placed(live, members), partitions).violations
    ]


async def _members_lost(connection: AsyncConnection) -> list[Finding]:
    """Members that were deleted, or whose host was: again, what happened behind the database's back."""
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


async def keep_auditing(database: Database, settings: Settings) -> None:
    """Audit again and again, for the log and the metrics."""
    while settings.group_audit_seconds:
        try:
            async with database.begin() as connection:
                _tell(await audit_all(connection))
        except Exception:
            logger.exception("the audit failed, trying again")
        await asyncio.sleep(settings.group_audit_seconds)


def _tell(findings: Sequence[Finding]) -> None:
    counts = Counter(finding.kind for finding in findings)
    for kind in FindingKind:
        FINDINGS.labels(kind).set(counts[kind])
    LAST.set_to_current_time()
    for finding in findings:
        logger.warning("audit: %s", finding.message, extra={"kind": finding.kind.value})
