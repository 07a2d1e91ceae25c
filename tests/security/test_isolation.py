"""What belongs to one project does not exist for another: every route is asked, whatever it is and will be.

The same request is made twice by a stranger, once with the ids of things that are another's and once with ids that
mean nothing. If the two answers differ in anything but the ids, something leaked; and nothing of the owner's may
have changed in any table.
"""

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from itertools import groupby
from typing import Any

import pytest
import sqlalchemy as sa

from tests.security import probes
from tests.security.probes import Probe
from tests.security.world import SHARED, STRANGER, Things, World, inhabited, nobodys, own

# Two answers differ in these though they tell the same.
_MOVING = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "UUID"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.\d]*(Z|\+00:00)?"), "TIME"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "ID"),
    (re.compile(r"10\.\d+\.\d+\.\d+|fa:16:3e(:[0-9a-f]{2}){3}"), "ADDRESS"),
    (re.compile(r'"(adminPass|audit_ids|generation|reservation_id|secret)":("[^"]*"|\[[^]]*\])'), "SECRET"),
)


@pytest.fixture(scope="module")
async def world(shared_database_url: str) -> AsyncIterator[World]:
    """Two tenants with one of everything."""
    async with inhabited(shared_database_url) as made:
        yield made


def shown(answer: Any, things: Things) -> tuple[int, str, list[str]]:
    """An answer without the ids that were sent and without what differs each time."""
    text = answer.text
    for kind, value in sorted(things.items(), key=lambda item: -len(item[1])):
        text = text.replace(value, f"<{kind}>")
    for pattern, word in _MOVING:
        text = pattern.sub(word, text)
    return answer.status_code, text, sorted(answer.headers)


async def rows_of(world: World) -> Mapping[str, str]:
    """All rows, of all tables, that have anything of the owner's in them and are not the stranger's."""
    theirs = [re.escape(world.stranger[kind]) for kind in ("project_id", "user_id")]
    words = {"ours": "|".join(map(re.escape, own(world.owner).values())), "theirs": "|".join(theirs)}
    one = (
        "SELECT '{0}', coalesce(string_agg(t::text, E'\\n' ORDER BY t::text), '') FROM \"{0}\" t "
        "WHERE t::text ~ :ours AND t::text !~ :theirs"
    )
    async with world.house.database.begin() as connection:
        tables = await connection.scalars(
            sa.text("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'")
        )
        query = " UNION ALL ".join(one.format(table) for table in sorted(tables))
        return dict((await connection.execute(sa.text(query), words)).all())


def attempts(world: World, unknown: Things) -> Iterator[tuple[Probe, Probe]]:
    """What a stranger tries on every row of the table, and the same with ids that do not exist."""
    for api, route in probes.rows():
        kinds = probes.variables(api.prefix + route.path)
        secret = {"V": "2", "token": world.stranger["secret"]} if "webhook_id" in kinds else {}
        ways: list[tuple[Things, ...]] = [()]
        if any(kind not in SHARED and kind not in probes.OPERATORS for kind in kinds[1:]):
            ways.append((world.stranger,))
        for first in ways:
            theirs = probes.probes(api, route, world.owner, *first, world.owner, **secret)
            nothing = probes.probes(api, route, unknown, *first, unknown, **secret)
            yield from zip(theirs, nothing, strict=True)
        if len(kinds) == 1:
            theirs = probes.probes(api, route, world.owner, world.stranger)
            nothing = probes.probes(api, route, unknown, world.stranger)
            yield from (pair for pair in zip(theirs, nothing, strict=True) if pair[0].body != pair[1].body)


class Stranger:
    """Asks twice, and notes what could be learnt from the difference, or changed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.unknown = nobodys(world.owner)
        self.findings: list[str] = []

    async def ask(self, theirs: Probe, nothing: Probe) -> int:
        """The status that was answered to the one with the owner's ids."""
        first = await self.world.ask(cloud=STRANGER, **theirs.request)
        second = await self.world.ask(cloud=STRANGER, **nothing.request)
        counting = theirs.path == "/metrics"
        if not counting and shown(first, self.world.owner) != shown(second, self.unknown):
            self.findings.append(f"{theirs}\n  {first.status_code} {first.text}\n  {second.status_code} {second.text}")
        for kind, value in own(self.world.owner).items():
            if value in first.text and value not in str(theirs):
                self.findings.append(f"{theirs} leaked {kind}")
        return int(first.status_code)

    async def unchanged(self, before: Mapping[str, str], row: str) -> Mapping[str, str]:
        """Note what is different from before; what is there now."""
        after = await rows_of(self.world)
        self.findings += [f"{row} changed {table}" for table in after if after[table] != before[table]]
        return after


async def test_nothing_of_another_project_exists_whatever_is_asked(world: World) -> None:
    stranger, before, searched = Stranger(world), await rows_of(world), set()
    for row, asked in groupby(attempts(world, stranger.unknown), key=lambda pair: pair[0].row):
        for theirs, nothing in asked:
            status = await stranger.ask(theirs, nothing)
            lists = theirs.method == "GET" and (status == 200 or "keypairs" in theirs.path) and not theirs.public
            if lists and theirs.path not in searched:
                searched.add(theirs.path)
                for pair in zip(
                    probes.searches(theirs, world.owner), probes.searches(nothing, stranger.unknown), strict=True
                ):
                    await stranger.ask(*pair)
        if not row.startswith("GET"):
            before = await stranger.unchanged(before, row)
    assert not stranger.findings, "\n".join(stranger.findings)
