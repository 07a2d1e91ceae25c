"""`roost import`: clusters out of a Senlin database, server groups out of a Nova, and whether all of it is there."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

import sqlalchemy as sa

from roost.clouds import choice
from roost.clusters import plugins
from roost.compute.answers import audit
from roost.compute.answers.audit import FindingKind
from roost.config import Settings, database_url
from roost.errors import Conflict, Invalid
from roost.imports import comparison, intake, judgement, senlin_database
from roost.imports.judgement import Arrival, Fate
from roost.store.database import Database, Limits
from roost.store.tables.servers import server_groups

_NO_NOVA = "This Roost stands in front of no Nova: [clusters] cloud is not openstack."


def senlin(settings: Settings, source: str, *, dry_run: bool, with_events: bool) -> int:
    """Bring what a Senlin database holds and say what became of each row; 1 if something could not come."""
    with senlin_database.opened(source) as connection:
        data = senlin_database.read(connection)
        if data.alive and not dry_run:
            raise Conflict(
                f"Senlin is running ({', '.join(data.alive)}), and two must not look after the same servers: stop it, "
                "or look first with --dry-run. A process that was killed counts as running for two minutes."
            )
        return asyncio.run(_senlin(settings, connection, data, dry_run, with_events))


async def _senlin(
    settings: Settings,
    connection: sa.Connection,
    data: senlin_database.SenlinData,
    dry_run: bool,
    with_events: bool,
) -> int:
    limits = Limits(settings.engine_statement_seconds, settings.lock_seconds, settings.idle_seconds * 4)
    database = Database(database_url(settings), limits=limits)
    try:
        arrivals, tokens = await _bring(settings, database, data, dry_run)
        brought = await _events(settings, connection, database, dry_run) if with_events else None
    finally:
        await database.close()
    for line in _report(settings, arrivals, tokens, dry_run):
        print(line)
    if brought is not None:
        print(f"events: {brought} {'would come' if dry_run else 'came'}")
    return 0 if all(arrival.ruling.fate in (Fate.COMES, Fate.THERE) for arrival in arrivals) else 1


async def _bring(
    settings: Settings, database: Database, data: senlin_database.SenlinData, dry_run: bool
) -> tuple[list[Arrival], dict[str, str]]:
    """Judge without a transaction, which may take long, and write if Roost still has what was judged by."""
    async with database.begin() as connection:
        present = await intake.present(connection, data)
    while True:
        arrivals = judgement.judge(data, present, plugins.load(settings), settings.clusters)
        if dry_run:
            return arrivals, {}
        async with database.begin() as connection:
            judged_by, present = present, await intake.present(connection, data)
            if present == judged_by:
                return arrivals, await intake.bring(connection, arrivals)


async def _events(settings: Settings, connection: sa.Connection, database: Database, dry_run: bool) -> int:
    """Those that Roost would keep; older ones would be forgotten at once."""
    oldest = datetime.now(UTC) - timedelta(days=settings.keep_days)
    brought = 0
    for rows in senlin_database.events(connection, oldest if settings.keep_days else datetime.min):
        async with database.begin() as own:
            brought += len(rows) if dry_run else await intake.bring_events(own, rows)
    return brought


def _report(settings: Settings, arrivals: Iterable[Arrival], tokens: dict[str, str], dry_run: bool) -> Iterator[str]:
    words = {Fate.COMES: "would come" if dry_run else "came"}
    counted: Counter[tuple[str, Fate]] = Counter()
    for arrival in arrivals:
        fate, reason, notes = arrival.ruling
        counted[arrival.noun, fate] += 1
        yield f"{arrival.noun} {arrival.id} {arrival.name}: {words.get(fate, fate)}{reason and f': {reason}'}"
        yield from (f"    {note}" for note in notes)
        if arrival.comes and "alarm_url" in arrival.row.get("channel", {}):
            yield from (f"    {line}" for line in _addresses(settings, arrival, tokens.get(arrival.id)))
    if settings.auth_strategy != "keystone":
        yield "Projects and users are Keystone's, and [auth] strategy is not keystone: no user can reach the clusters."
    if not settings.in_front_of_nova:
        yield "Servers are Nova's, and [clusters] cloud is not openstack: the nodes have no servers here."
    yield ", ".join(f"{number} x {noun} {words.get(fate, fate)}" for (noun, fate), number in counted.items()) + "."


def _addresses(settings: Settings, arrival: Arrival, token: str | None) -> Iterator[str]:
    """Where a webhook was, and where it is now. The new address cannot be shown again."""
    old = arrival.row["channel"]["alarm_url"]
    answered = "is answered too" if settings.clusters.senlin_webhooks else "is not answered: [clusters] senlin_webhooks"
    yield f"old address, which {answered}: {old}"
    query = urlencode({"V": 2, "token": token or "...", **dict(sorted(arrival.row["params"].items()))})
    base = settings.public_url or "http://ROOST"
    yield f"new address: {base}/clustering/v1/webhooks/{arrival.id}/trigger?{query}"


def check(settings: Settings) -> int:
    """Compare nodes with Nova's servers and print what differs; 1 if anything does."""
    return asyncio.run(_check(settings))


async def _check(settings: Settings) -> int:
    database = Database(database_url(settings))
    front = choice.front(settings, database)
    try:
        if front is None:
            raise Invalid(_NO_NOVA)
        servers = await front.nova.node_servers()
        async with database.begin() as connection:
            found = await comparison.compare(connection, servers)
    finally:
        if front is not None:
            front.nova.close()
        await database.close()
    for line in found:
        print(line)
    if not found:
        print("Nothing found: every node has its server, and every such server its node.")
    return 1 if found else 0


def groups(settings: Settings) -> int:
    """Take over Nova's server groups; print those that are new, and the rules that are broken: 1 if any is."""
    return asyncio.run(_groups(settings))


async def _groups(settings: Settings) -> int:
    database = Database(database_url(settings))
    front = choice.front(settings, database)
    try:
        if front is None:
            raise Invalid(_NO_NOVA)
        known = sa.select(server_groups.c.id)
        async with database.begin() as connection:
            before = set(await connection.scalars(known))
        await front.follow()
        async with database.begin() as connection:
            rows = await connection.execute(sa.select(server_groups).where(server_groups.c.id.not_in(before)))
            new = [f"server group {row.id} {row.name}: came" for row in rows]
        async with database.begin() as connection:
            findings = await audit.audit_all(connection)
    finally:
        if front is not None:
            front.nova.close()
        await database.close()
    broken = [finding.message for finding in findings if finding.kind is FindingKind.RULE_BROKEN]
    for line in (*new, *broken):
        print(line)
    if not broken:
        print("Every rule holds.")
    return 1 if broken else 0
