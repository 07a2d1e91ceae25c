"""Writes what comes from Senlin into Roost's tables: all of it in one transaction, and never a second time."""

import json
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.clusters import receivers
from roost.clusters.events import Severity
from roost.imports import judgement
from roost.imports.judgement import Arrival, Present
from roost.imports.senlin_database import SenlinData, SenlinRow
from roost.store import bulk
from roost.store.locks import AdvisoryLock, hold
from roost.store.tables.clusters import (
    cluster_policies,
    clusters,
    events,
    health_registry,
    imports,
    nodes,
    policies,
    profiles,
)
from roost.store.tables.clusters import receivers as receivers_table

_TABLES: Mapping[str, sa.Table] = {
    judgement.PROFILE: profiles,
    judgement.POLICY: policies,
    judgement.CLUSTER: clusters,
    judgement.NODE: nodes,
    judgement.BINDING: cluster_policies,
    judgement.WATCH: health_registry,
    judgement.RECEIVER: receivers_table,
}
"""Where each noun is stored, in the order in which they refer to each other."""
_PORTION = 5000


async def present(connection: AsyncConnection, data: SenlinData) -> Present:
    """What Roost already has of this import. No other import runs until this transaction ends."""
    await hold(connection, AdvisoryLock.IMPORT)
    asked = _ids(data)
    ids = {}
    for noun, table in _TABLES.items():
        key = table.c.id if "id" in table.c else table.c.cluster_id
        ids[noun] = frozenset(await connection.scalars(sa.select(key))) & asked[noun]
    imported: dict[str, set[str]] = {noun: set() for noun in _TABLES}
    for row in await connection.execute(sa.select(imports.c.noun, imports.c.id)):
        imported[row.noun].add(row.id)
    made = {row["physical_id"] for row in data.nodes}
    servers = sa.select(nodes.c.physical_id, nodes.c.id).where(nodes.c.physical_id.is_not(None))
    bound = sa.select(cluster_policies.c.cluster_id, cluster_policies.c.policy_id)
    return Present(
        ids,
        {noun: frozenset(found) for noun, found in imported.items()},
        {row.physical_id: row.id for row in await connection.execute(servers) if row.physical_id in made},
        frozenset(tuple(row) for row in await connection.execute(bound) if row.cluster_id in asked[judgement.CLUSTER]),
    )


def _ids(data: SenlinData) -> dict[str, set[str]]:
    """What the Senlin database has, by noun."""
    rows = {
        judgement.PROFILE: data.profiles,
        judgement.POLICY: data.policies,
        judgement.CLUSTER: data.clusters,
        judgement.NODE: data.nodes,
        judgement.BINDING: data.bindings,
        judgement.WATCH: data.clusters,
        judgement.RECEIVER: data.receivers,
    }
    return {noun: {row["id"] for row in some} for noun, some in rows.items()}


async def bring(connection: AsyncConnection, arrivals: Iterable[Arrival]) -> dict[str, str]:
    """Write what comes; the token of each new address of a webhook, by receiver, of which only a digest is stored."""
    coming: dict[str, list[Arrival]] = {noun: [] for noun in _TABLES}
    for arrival in arrivals:
        if arrival.comes:
            coming[arrival.noun].append(arrival)
    tokens = {arrival.id: secrets.token_urlsafe(24) for arrival in coming[judgement.RECEIVER]}
    for noun, table in _TABLES.items():
        rows = [arrival.row for arrival in coming[noun]]
        if noun == judgement.RECEIVER:
            rows = [{**row, "secret": receivers.digest(tokens[row["id"]])} for row in rows]
        await _insert(connection, table, rows)
        await _insert(connection, imports, [{"noun": noun, "id": arrival.id} for arrival in coming[noun]])
    return tokens


async def bring_events(connection: AsyncConnection, rows: Iterable[SenlinRow]) -> int:
    """Write events that Roost does not have; how many."""
    made = [
        {**row, "level": _level(row["level"]), "domain_id": "default"}
        for row in rows
        if row["project_id"] and "\\u0000" not in json.dumps(row, default=str)
    ]
    texts = ("oid", "oname", "otype", "action", "status", "status_reason", "user_id")
    made = [{**row, **{key: row[key] or "" for key in texts}} for row in made]
    if not made:
        return 0
    source = bulk.given(*events.c)
    statement = insert(events).from_select([column.name for column in source.c], sa.select(source))
    written = statement.on_conflict_do_nothing().returning(events.c.id)
    return len((await connection.execute(written, {"rows": _json(made)})).all())


def _level(given: Any) -> int:
    """Senlin keeps the number of a level as text; older ones kept its name."""
    text = str(given or "").upper()
    return int(text) if text.isdigit() else int(Severity.__members__.get(text.removesuffix("ING"), Severity.INFO))


async def _insert(connection: AsyncConnection, table: sa.Table, rows: list[dict[str, Any]]) -> None:
    for start in range(0, len(rows), _PORTION):
        portion = rows[start : start + _PORTION]
        columns = [column for column in table.c if column.name in portion[0]]
        await connection.execute(bulk.insert(table, *columns), {"rows": _json(portion)})


def _json(rows: list[dict[str, Any]]) -> Any:
    return json.loads(json.dumps(rows, default=str))
