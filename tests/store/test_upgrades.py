"""Upgrades: migrations add, what is there stays, and no user of the database is held up."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import sqlalchemy as sa

from roost import __version__, config
from roost.api.app import App, make_services
from roost.api.auth import RoostAuthenticator
from roost.store import schema
from roost.store.database import Database
from tests.compute import truth
from tests.compute.cloud import Cloud
from tests.conftest import Api

# The revisions before the first release: until then there was no one to hold up.
BASELINE = "0004"

GROUP = "00000000-0000-4000-8000-000000000010"
ONE, TWO = "00000000-0000-4000-8000-000000000021", "00000000-0000-4000-8000-000000000022"

_TABLE = r'(?:ONLY )?"?(?P<table>\w+)"?'
FORBIDDEN = {
    r"^DROP (?!INDEX CONCURRENTLY IF EXISTS\b)": "removes something",
    r"^TRUNCATE\b|^DELETE\b": "removes rows",
    r"^ALTER .*\bRENAME\b": "renames something",
    rf"^ALTER TABLE {_TABLE}.*\bDROP\b(?! (?:DEFAULT|NOT NULL)\b)": "removes something of a table",
    rf"^ALTER TABLE {_TABLE}.*\b(?:SET DATA )?TYPE\b": "changes the type of a column",
    rf"^ALTER TABLE {_TABLE}.*\bSET NOT NULL\b": "demands a value that old programs may not give",
    rf"^ALTER TABLE {_TABLE} ADD COLUMN (?=.*\bNOT NULL\b)(?!.*\b(?:DEFAULT|GENERATED)\b)": (
        "demands a value that old programs do not give"
    ),
    rf"^ALTER TABLE {_TABLE} ADD COLUMN .*\bDEFAULT (?:\w+\.)?(?:gen_random_uuid|clock_timestamp|nextval|random)\b": (
        "rewrites a table that is in use"
    ),
    rf"^ALTER TABLE {_TABLE} ADD (?:CONSTRAINT|UNIQUE|CHECK|PRIMARY|FOREIGN|EXCLUDE)\b": (
        "demands what old programs may not keep to"
    ),
    rf"^CREATE (?:UNIQUE )?INDEX (?!CONCURRENTLY\b).* ON {_TABLE}": "keeps everybody from writing meanwhile",
    rf"^CREATE UNIQUE INDEX CONCURRENTLY .* ON {_TABLE}": "demands what old programs may not keep to",
    rf"^LOCK TABLE {_TABLE}": "keeps everybody waiting",
}


def wrong_with(statements: list[str]) -> list[str]:
    """What programs that know nothing of these statements could not live with; their own new tables are their own."""
    text = "\n".join(statements)
    own = set(re.findall(r'^CREATE TABLE (?:IF NOT EXISTS )?"?(\w+)', text, re.MULTILINE))
    new_columns = re.findall(r'\bADD COLUMN "?(\w+)', text)
    # Old programs leave a new column alone, so they meet its constraints; but no one may wait meanwhile.
    own_check = rf"\bADD CONSTRAINT \w+ CHECK \(.*\b(?:{'|'.join(new_columns) or '(?!)'})\b.*\) NOT VALID$"
    found = []
    for statement in statements:
        if re.search(own_check, statement):
            continue
        for pattern, fault in FORBIDDEN.items():
            match = re.search(pattern, statement, re.IGNORECASE)
            if match and match.groupdict().get("table") not in own:
                found.append(f"{fault}: {statement}")
    return found


@contextmanager
def recorded() -> Iterator[list[str]]:
    """Every statement that is executed meanwhile, in one line each."""
    statements: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(" ".join(statement.split()))

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)


def test_each_migration_adds_or_says_since_which_earlier_release_what_it_removes_is_unused(empty_url: str) -> None:
    schema.upgrade(empty_url, BASELINE)
    for script in reversed(list(schema.scripts().walk_revisions(BASELINE, "head"))):
        if script.revision == BASELINE:
            continue
        with recorded() as statements:
            schema.upgrade(empty_url, script.revision)
        unused_since = getattr(script.module, "unused_since", None)
        if getattr(script.module, "closes", None):
            # It closes a security hole and says which: it may refuse what old programs do, and end what they did.
            allowed = r"ADD CONSTRAINT \w+ CHECK .* NOT VALID$|^DELETE FROM \w+ WHERE "
            statements = [each for each in statements if not re.search(allowed, each)]
        if unused_since is None:
            assert wrong_with(statements) == [], script.path
        else:
            assert schema.release(unused_since) < schema.release(__version__), script.path
    assert schema.status(empty_url)


def test_revisions_are_numbered_in_their_order() -> None:
    numbers = [script.revision for script in schema.scripts().walk_revisions()]
    assert numbers == [f"{number:04}" for number in range(len(numbers), 0, -1)]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE new (id INTEGER NOT NULL)",
        "ALTER TABLE servers ADD COLUMN note TEXT",
        "ALTER TABLE servers ADD COLUMN note TEXT DEFAULT '' NOT NULL",
        "ALTER TABLE servers ALTER COLUMN note DROP NOT NULL",
        "CREATE INDEX CONCURRENTLY ix_new ON servers (note)",
        "DROP INDEX CONCURRENTLY IF EXISTS ix_new",
        "CREATE TRIGGER new AFTER INSERT ON servers FOR EACH ROW EXECUTE FUNCTION new()",
        "UPDATE alembic_version SET version_num='0009' WHERE alembic_version.version_num = '0008'",
    ],
)
def test_what_adds_is_allowed(statement: str) -> None:
    assert wrong_with([statement]) == []


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE servers",
        "DROP INDEX ix_servers_due_at",
        "DELETE FROM servers",
        "ALTER TABLE servers RENAME COLUMN name TO title",
        "ALTER TABLE servers RENAME TO machines",
        "ALTER INDEX ix_servers_due_at RENAME TO ix_due",
        "ALTER TABLE servers DROP COLUMN name",
        "ALTER TABLE servers DROP CONSTRAINT uq_servers_number",
        "ALTER TABLE servers ALTER COLUMN power_state TYPE BIGINT",
        "ALTER TABLE servers ALTER COLUMN description SET NOT NULL",
        "ALTER TABLE servers ADD COLUMN note TEXT NOT NULL",
        "ALTER TABLE servers ADD COLUMN mark UUID DEFAULT gen_random_uuid() NOT NULL",
        "ALTER TABLE servers ADD CONSTRAINT ck_new CHECK (power_state > 0)",
        "CREATE INDEX ix_new ON servers (name)",
        "CREATE UNIQUE INDEX CONCURRENTLY uq_new ON servers (name)",
        "LOCK TABLE servers",
    ],
)
def test_what_others_cannot_live_with_is_not(statement: str) -> None:
    assert len(wrong_with([statement])) == 1


def test_a_new_table_is_its_migrations_own() -> None:
    made = ["CREATE TABLE new ( id INTEGER )", "CREATE INDEX ix_new ON new (id)", "ALTER TABLE new ADD CHECK (id > 0)"]
    assert wrong_with(made) == []


def test_a_new_column_may_be_checked_without_a_look_at_all_rows() -> None:
    column, check = (
        "ALTER TABLE servers ADD COLUMN part INTEGER",
        "ALTER TABLE servers ADD CONSTRAINT ck CHECK (part > 0)",
    )
    assert wrong_with([column, f"{check} NOT VALID"]) == []
    assert len(wrong_with([column, check])) == 1
    assert len(wrong_with([f"{check} NOT VALID"])) == 1


def everything(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables, in the columns that the tables have now."""
    with psycopg.connect(url) as connection:
        columns = connection.execute(
            "SELECT table_name, string_agg(quote_ident(column_name), ', ' ORDER BY ordinal_position) "
            "FROM information_schema.columns WHERE table_schema = 'public' AND table_name IN (SELECT tablename FROM "
            "pg_tables) AND table_name NOT LIKE 'alembic%' GROUP BY table_name"
        ).fetchall()
        return {
            f"SELECT {names} FROM {table}": connection.execute(f"SELECT {names} FROM {table} ORDER BY 1, 2").fetchall()
            for table, names in columns
        }


async def test_the_data_of_an_earlier_revision_is_all_there_and_goes_on_working(empty_url: str) -> None:
    schema.upgrade(empty_url, "0003")
    with psycopg.connect(empty_url) as connection:
        connection.execute((Path(__file__).parent / "of_0003.sql").read_text())
    before = everything(empty_url)
    assert schema.status(empty_url).problem == (
        f"The schema is at 0003, this program needs {schema.expected()}: roost db upgrade"
    )
    schema.upgrade(empty_url)
    with psycopg.connect(empty_url) as connection:
        assert {query: connection.execute(f"{query} ORDER BY 1, 2").fetchall() for query in before} == before

    settings, database = config.with_database(config.load(), empty_url), Database(empty_url)
    app = App(make_services(settings, database), RoostAuthenticator(database, 0))
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://roost.test") as http:
        cloud = Cloud(Api(make_services(settings, database), http, {}))
        assert (await cloud.ask("GET", f"/os-server-groups/{GROUP}")).json()["server_group"]["members"] == [ONE, TWO]
        assert await cloud.host(ONE) == "h1"
        image = "00000000-0000-4000-8000-0000000000aa"
        # Both racks are taken, so the group has no room; the quota of three leaves one server outside it.
        full = await cloud.boot(group=GROUP, imageRef=image)
        assert await cloud.status(full) == "ERROR"
        await cloud.delete(full)
        third = await cloud.boot(imageRef=image)
        assert await cloud.status(third) == "ACTIVE"
        assert (await cloud.create(imageRef=image)).status_code == 403
        await cloud.done(ONE, "os-migrateLive", {"host": None, "block_migration": "auto"})
        assert await cloud.host(ONE) == "h2"
        shown = await cloud.api.get("/clustering/v1/clusters/web", cloud="roost")
        assert (shown.json()["cluster"]["nodes"], shown.json()["cluster"]["status"]) == (["n1"], "ACTIVE")
        actions = await cloud.api.get("/clustering/v1/actions", cloud="roost")
        assert [action["id"] for action in actions.json()["actions"]] == ["a1"]
        await truth.check(database)
    await database.close()
