"""Backups: what was there at one moment is there again, and whatever cannot be trusted is refused."""

import asyncio
import hashlib
import json
import secrets
import zipfile
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from roost.errors import Conflict, Invalid, RoostError, Unavailable
from roost.store import backup, schema
from roost.store.database import Database
from roost.store.embedded import EmbeddedPostgres
from tests.compute import truth
from tests.compute.cloud import Cloud


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "roost.backup"


def values(url: str, query: str) -> list[object]:
    with psycopg.connect(url) as connection:
        return [row[0] for row in connection.execute(query)]


def databases(postgres: EmbeddedPostgres) -> set[object]:
    return set(values(postgres.url, "SELECT datname FROM pg_database"))


def rewrite(file: Path, dump: Callable[[bytes], bytes] = bytes, **manifest: str) -> None:
    """The same backup with another dump, or another manifest."""
    with zipfile.ZipFile(file) as archive:
        held, said = archive.read("roost.dump"), json.loads(archive.read("manifest.json"))
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("roost.dump", dump(held))
        archive.writestr("manifest.json", json.dumps({**said, **manifest}))


async def test_a_backup_made_under_traffic_holds_one_moment(
    cloud: Cloud, database_url: str, empty_url: str, file: Path
) -> None:
    await cloud.quota(instances=-1, cores=-1, ram=-1)
    group = await cloud.group("anti-affinity:rack")
    kept = [await cloud.boot(group=group) for _ in range(3)]
    made = asyncio.create_task(asyncio.to_thread(backup.make, database_url, file))
    later = 0
    while not made.done() or not later:
        assert (await cloud.create()).status_code == 202
        later += 1
    manifest = await made
    assert manifest.revision == schema.expected()

    await asyncio.to_thread(backup.restore, empty_url, file)
    restored = Database(empty_url)
    try:
        await truth.settle(restored)
        await truth.check(restored)
    finally:
        await restored.close()
    found = values(empty_url, f"SELECT id::text FROM servers WHERE group_id = '{group}' ORDER BY number")
    assert found == kept
    assert schema.status(empty_url)


async def test_who_had_signed_in_must_sign_in_again(
    cloud: Cloud, database_url: str, empty_url: str, file: Path
) -> None:
    await cloud.api.token("roost")
    await asyncio.to_thread(backup.make, database_url, file)
    assert values(database_url, "SELECT count(*) FROM tokens") == [1]
    await asyncio.to_thread(backup.restore, empty_url, file)
    assert values(empty_url, "SELECT count(*) FROM tokens") == [0]


def test_what_is_there_is_replaced_only_by_force_and_as_a_whole(
    database_url: str, empty_url: str, file: Path, postgres: EmbeddedPostgres
) -> None:
    backup.make(database_url, file)
    with psycopg.connect(empty_url) as connection:
        connection.execute("CREATE TABLE stays AS SELECT 7 AS number")
    with pytest.raises(Conflict, match="is not empty: --force replaces what is in it"):
        backup.restore(empty_url, file)
    assert values(empty_url, "SELECT number FROM stays") == [7]
    before = databases(postgres)
    backup.restore(empty_url, file, force=True)
    assert schema.status(empty_url)
    assert values(empty_url, "SELECT to_regclass('stays')") == [None]
    assert databases(postgres) == before


def test_a_database_in_use_is_not_taken_away(database_url: str, empty_url: str, file: Path) -> None:
    backup.make(database_url, file)
    with psycopg.connect(empty_url), pytest.raises(Conflict, match="is in use: stop every process of Roost first"):
        backup.restore(empty_url, file)
    assert schema.status(empty_url).current is None


def test_a_backup_of_an_older_schema_is_brought_up_to_date(empty_url: str, database_url: str, file: Path) -> None:
    schema.upgrade(empty_url, "0003")
    with psycopg.connect(empty_url) as connection:
        connection.execute("INSERT INTO projects (id, name) VALUES ('p', 'of old')")
    assert backup.make(empty_url, file).revision == "0003"
    backup.restore(database_url, file, force=True)
    assert schema.status(database_url)
    assert values(database_url, "SELECT name FROM projects") == ["of old"]


def test_a_backup_of_a_newer_schema_is_refused(database_url: str, empty_url: str, file: Path) -> None:
    backup.make(database_url, file)
    rewrite(file, revision="9999", roost="7.0.0")
    with pytest.raises(Invalid, match=r"holds the schema 9999 of Roost 7\.0\.0, .*: install a newer Roost"):
        backup.restore(empty_url, file)
    assert schema.status(empty_url).current is None


def test_what_cannot_be_trusted_is_refused(database_url: str, empty_url: str, file: Path) -> None:
    backup.make(database_url, file)
    whole = file.read_bytes()

    def refusal(content: bytes) -> str:
        file.write_bytes(content)
        with pytest.raises(RoostError) as caught:
            backup.restore(empty_url, file)
        assert schema.status(empty_url).current is None
        return caught.value.message

    no_backup = f"{file} is not a backup of Roost, or not a whole one."
    assert refusal(b"") == no_backup
    assert refusal(b"not at all") == no_backup
    assert refusal(whole[: len(whole) // 2]) == no_backup
    middle = len(whole) // 2
    assert refusal(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]) == no_backup
    file.write_bytes(whole)
    rewrite(file, dump=lambda held: held + b"more")
    assert refusal(file.read_bytes()) == f"{file} is damaged: what it holds is not what was written."
    file.unlink()
    with pytest.raises(Invalid, match=r"cannot be read: No such file or directory\."):
        backup.restore(empty_url, file)


def test_a_restore_that_fails_leaves_everything_as_it_was(
    database_url: str, file: Path, postgres: EmbeddedPostgres
) -> None:
    backup.make(database_url, file)
    nonsense = b"PGDMP" + secrets.token_bytes(100)
    rewrite(file, dump=lambda _: nonsense, sha256=hashlib.sha256(nonsense).hexdigest())
    before, names = databases(postgres), values(database_url, "SELECT name FROM projects ORDER BY name")
    with pytest.raises(Unavailable, match=r"^The backup could not be restored: pg_restore: "):
        backup.restore(database_url, file, force=True)
    assert databases(postgres) == before
    assert values(database_url, "SELECT name FROM projects ORDER BY name") == names


def test_a_backup_that_fails_leaves_the_one_before(empty_url: str, database_url: str, file: Path) -> None:
    backup.make(database_url, file)
    assert file.stat().st_mode & 0o777 == 0o600
    before = file.read_bytes()
    with pytest.raises(Invalid, match=r"There is nothing to back up: the database has no schema\."):
        backup.make(empty_url, file)
    with psycopg.connect(database_url) as connection:
        # As if the dump were cut off in its middle: a table that its user may not read.
        connection.execute("CREATE ROLE weak LOGIN")
        connection.execute("GRANT SELECT ON alembic_version TO weak")
    try:
        with pytest.raises(Unavailable, match=r"^The backup could not be made: pg_dump: .*permission denied"):
            backup.make(database_url.replace("//roost@", "//weak@"), file)
    finally:
        with psycopg.connect(database_url) as connection:
            connection.execute("DROP OWNED BY weak")
            connection.execute("DROP ROLE weak")
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]
    with pytest.raises(Invalid, match=r"cannot be written: No such file or directory\."):
        backup.make(database_url, file.parent / "nowhere" / "roost.backup")
