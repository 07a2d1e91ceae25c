"""A world for all tests of a file: it takes a while to make, and they only look at it."""

import secrets
from collections.abc import Iterator

import psycopg
import pytest

from roost.store.embedded import EmbeddedPostgres


@pytest.fixture(scope="module")
def shared_database_url(postgres: EmbeddedPostgres) -> Iterator[str]:
    """A database for the tests of one file."""
    name = f"test_{secrets.token_hex(6)}"
    with psycopg.connect(postgres.url.replace("/roost?", "/postgres?"), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE roost STRATEGY FILE_COPY')
        yield postgres.url.replace("/roost?", f"/{name}?")
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
