"""The schema: what the migrations make is what the tables say."""

import threading

import psycopg
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine

from roost.store import schema
from roost.store.embedded import EmbeddedPostgres
from roost.store.tables import metadata


def test_the_migrations_make_what_the_tables_say(postgres: EmbeddedPostgres) -> None:
    engine = create_engine(postgres.url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        ours = {"include_name": lambda name, kind, _: kind != "table" or name in metadata.tables}
        context = MigrationContext.configure(connection, opts={"compare_type": True, **ours})
        assert compare_metadata(context, metadata) == []
    engine.dispose()


def test_many_processes_may_upgrade_at_once(postgres: EmbeddedPostgres) -> None:
    with psycopg.connect(postgres.url.replace("/roost?", "/postgres?"), autocommit=True) as connection:
        connection.execute("CREATE DATABASE fresh")
        url = postgres.url.replace("/roost?", "/fresh?")
        assert schema.status(url) == schema.Status(None, schema.expected())
        assert not schema.status(url)
        failures: list[Exception] = []

        def upgrade() -> None:
            try:
                schema.upgrade(url)
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=upgrade) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert schema.status(url)
        connection.execute("DROP DATABASE fresh WITH (FORCE)")
