"""What is wrong, the most harmful first: hosts down, broken rules, servers in ERROR, failed actions, dead engines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.answers import audit
from roost.compute.answers.violations import BrokenRule
from roost.store.tables.clusters import actions, clusters, services
from roost.store.tables.compute import hosts
from roost.store.tables.history import happenings
from roost.store.tables.servers import outbox, servers

MOST = 100
"""How many of a kind are listed; all are counted."""

_RECENTLY = timedelta(days=1)
_LATE = timedelta(minutes=5)


class TroubleKind(StrEnum):
    """Kinds of trouble, the most harmful first. The codes are public."""

    NO_ENGINE = "no_engine"
    HOST_DOWN = "host_down"
    RULE_BROKEN = "rule_broken"
    SERVER_FAILED = "server_failed"
    CLUSTER_FAILED = "cluster_failed"
    ACTION_FAILED = "action_failed"
    ENGINE_DEAD = "engine_dead"
    NOTIFICATIONS_WAIT = "notifications_wait"


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that is wrong, what it is about, and what can be done."""

    kind: TroubleKind
    name: str
    sentence: str
    subject: tuple[str, str] | None = None
    """The kind and the id of the thing that has the trouble."""
    since: datetime | None = None
    remedies: tuple[tuple[str, str], ...] = ()
    """What to do, each as a sentence and a command."""


@dataclass(frozen=True, slots=True)
class Troubles:
    """Everything that is wrong, by harm, and how many of each kind there are."""

    found: Sequence[Trouble]
    counts: Mapping[TroubleKind, int]


async def find(
    connection: AsyncConnection, project_id: str | None, broken: Sequence[BrokenRule], dead_after: float
) -> Troubles:
    """What is wrong in a project, or, for operators (None), anywhere."""
    parts = [
        await _rules(connection, broken),
        await _servers(connection, project_id),
        await _clusters(connection, project_id),
        await _actions(connection, project_id),
    ]
    if project_id is None:
        parts += [await _hosts(connection), await _engines(connection, dead_after), await _outbox(connection)]
    found = [trouble for troubles, _ in parts for trouble in troubles]
    order = list(TroubleKind)
    found.sort(key=lambda each: order.index(each.kind))
    counts: dict[TroubleKind, int] = {}
    for troubles, number in parts:
        if troubles:
            counts[troubles[0].kind] = number
    return Troubles(found, counts)


Part = tuple[list[Trouble], int]


async def _count(connection: AsyncConnection, table: sa.Table, *conditions: sa.ColumnElement[bool]) -> int:
    return int(await connection.scalar(sa.select(sa.func.count()).select_from(table).where(*conditions)) or 0)


async def _rules(connection: AsyncConnection, broken: Sequence[BrokenRule]) -> Part:
    shown = broken[:MOST]
    since: dict[tuple[str, str], datetime] = {}
    for (group_id, _, policy, _), began in (await audit.since(connection, {each.group_id for each in shown})).items():
        # A rule that the caller knows by another identifier counts from when its group was first broken.
        for key in ((group_id, policy), (group_id, "")):
            since[key] = min(began, since.get(key, began))
    return [
        Trouble(
            TroubleKind.RULE_BROKEN,
            each.group_name,
            str(each.violation),
            ("groups", each.group_id),
            since.get((each.group_id, str(each.violation.rule)), since.get((each.group_id, ""))),
            (
                ("See the fewest moves that mend it", f"openstack server group repair {each.group_id} --dry-run"),
                ("Mend it", f"openstack server group repair {each.group_id} --wait"),
            ),
        )
        for each in shown
    ], len(broken)


async def _servers(connection: AsyncConnection, project_id: str | None) -> Part:
    conditions: list[sa.ColumnElement[bool]] = [servers.c.vm_state == sa.literal_column("'error'")]
    conditions += [] if project_id is None else [servers.c.project_id == project_id]
    columns = (servers.c.id, servers.c.name, servers.c.fault, servers.c.updated_at, servers.c.created_at)
    rows = await connection.execute(
        sa.select(*columns).where(*conditions).order_by(servers.c.number.desc()).limit(MOST)
    )
    found = [
        Trouble(
            TroubleKind.SERVER_FAILED,
            row.name,
            (row.fault or {}).get("message") or "No reason was recorded.",
            ("servers", row.id),
            row.updated_at or row.created_at,
            (
                ("Ask why, and what would help", f"openstack server explain {row.id}"),
                ("Delete it", f"openstack server delete {row.id}"),
            ),
        )
        for row in rows
    ]
    return found, len(found) if len(found) < MOST else await _count(connection, servers, *conditions)


async def _clusters(connection: AsyncConnection, project_id: str | None) -> Part:
    conditions: list[sa.ColumnElement[bool]] = [clusters.c.status.in_(["ERROR", "CRITICAL"])]
    conditions += [] if project_id is None else [clusters.c.project_id == project_id]
    rows = await connection.execute(sa.select(clusters).where(*conditions).order_by(clusters.c.name).limit(MOST))
    found = [
        Trouble(
            TroubleKind.CLUSTER_FAILED,
            row.name,
            row.status_reason or f"The cluster is {row.status}.",
            ("clusters", row.id),
            row.updated_at,
            (("Recover its nodes", f"openstack cluster recover {row.id} --check true"),),
        )
        for row in rows
    ]
    return found, len(found) if len(found) < MOST else await _count(connection, clusters, *conditions)


async def _actions(connection: AsyncConnection, project_id: str | None) -> Part:
    conditions: list[sa.ColumnElement[bool]] = [
        actions.c.parent_id.is_(None),
        actions.c.status == "FAILED",
        actions.c.end_time > sa.func.now() - _RECENTLY,
    ]
    conditions += [] if project_id is None else [actions.c.project_id == project_id]
    columns = (actions.c.id, actions.c.action, actions.c.status_reason, actions.c.end_time)
    rows = await connection.execute(
        sa.select(*columns).where(*conditions).order_by(actions.c.end_time.desc()).limit(MOST)
    )
    found = [
        Trouble(
            TroubleKind.ACTION_FAILED,
            row.action,
            row.status_reason,
            ("actions", row.id),
            row.end_time,
            (("See what it tried", f"openstack cluster action show {row.id}"),),
        )
        for row in rows
    ]
    return found, len(found) if len(found) < MOST else await _count(connection, actions, *conditions)


async def _hosts(connection: AsyncConnection) -> Part:
    columns = (hosts.c.name, hosts.c.servers, hosts.c.disabled_reason)
    rows = await connection.execute(
        sa.select(*columns).where(hosts.c.forced_down).order_by(hosts.c.servers.desc(), hosts.c.name).limit(MOST)
    )
    down = rows.all()
    began = sa.select(happenings.c.host, sa.func.max(happenings.c.at)).where(
        happenings.c.kind == "host_down", happenings.c.host.in_([row.name for row in down])
    )
    since: dict[str, datetime] = {}
    since.update((name, at) for name, at in await connection.execute(began.group_by(happenings.c.host)))
    found = [
        Trouble(
            TroubleKind.HOST_DOWN,
            row.name,
            f"The host is down, with {row.servers} {'server' if row.servers == 1 else 'servers'} on it."
            + (f" {row.disabled_reason}" if row.disabled_reason else ""),
            ("hosts", row.name),
            since.get(row.name),
            (
                (
                    "See which servers to evacuate",
                    f"openstack server list --all-projects --host {row.name}",
                ),
                ("Say that it is up again", f"openstack compute service set --up {row.name} nova-compute"),
            ),
        )
        for row in down
    ]
    return found, len(found) if len(found) < MOST else await _count(connection, hosts, hosts.c.forced_down)


async def _engines(connection: AsyncConnection, dead_after: float) -> Part:
    up = services.c.updated_at > sa.func.now() - timedelta(seconds=dead_after)
    rows = (await connection.execute(sa.select(services, up.label("up")))).all()
    if not any(row.up for row in rows):
        sentence = "No engine is alive: actions, repairs and audits wait."
        return [Trouble(TroubleKind.NO_ENGINE, "engine", sentence, remedies=(("Start one", "roost engine"),))], 1
    dead = [row for row in rows if not row.up]
    found = [
        Trouble(
            TroubleKind.ENGINE_DEAD,
            f"{row.host} {row.id[:8]}",
            "This engine gives no sign of life; the others have taken over its work.",
            since=row.updated_at,
            remedies=(("Look at its log, or start another", "roost engine"),),
        )
        for row in dead[:MOST]
    ]
    return found, len(dead)


async def _outbox(connection: AsyncConnection) -> Part:
    late = outbox.c.created_at < sa.func.now() - _LATE
    oldest = await connection.scalar(sa.select(sa.func.min(outbox.c.created_at)).where(late))
    if oldest is None:
        return [], 0
    sentence = "Notifications wait to be sent: the broker does not answer."
    return [Trouble(TroubleKind.NOTIFICATIONS_WAIT, "notifications", sentence, since=oldest)], 1
