"""The schema: what the migrations make is what the tables say."""

import threading

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine

from roost.store import schema
from roost.store.embedded import EmbeddedPostgres
from roost.store.tables import metadata


def test_the_migrations_make_what_the_tables_say(postgres: EmbeddedPostgres) -> None:
    engine = create_engine(postgres.url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "include_name": _is_ours})
        assert compare_metadata(context, metadata) == []
    engine.dispose()


def _is_ours(name: str | None, kind: str, _: object) -> bool:
    """Tables of ours; Alembic cannot compare the expressions of the indexes for search (tests/store/test_words.py) and
    for names in order (tests/store/test_natural.py)."""
    if kind == "index":
        return not str(name).endswith(("_words", "_natural"))
    return kind != "table" or name in metadata.tables


def test_many_processes_may_upgrade_at_once(empty_url: str) -> None:
    assert schema.status(empty_url) == schema.Status(None, "0", schema.expected())
    assert not schema.status(empty_url)
    failures: list[Exception] = []

    def upgrade() -> None:
        try:
            schema.upgrade(empty_url)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=upgrade) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert schema.status(empty_url)


def test_no_transaction_waits_while_the_migrations_are_read(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """That takes a second, and a minute on a machine that is busy with other things."""
    found = []

    def look() -> str:
        query = "SELECT count(xact_start) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = %s"
        with psycopg.connect(empty_url) as connection:
            found.append(connection.execute(query, (connection.info.dbname,)).fetchone())
        return "0001"

    monkeypatch.setattr(schema, "expected", look)
    assert schema.status(empty_url).problem
    assert found == [(0,)]
