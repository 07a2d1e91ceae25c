"""`roost db` on the folder of a `roost serve`: while it runs, and when it does not."""

import secrets
from pathlib import Path

import psycopg

from roost.store import schema
from tests.cli.test_main import roost as roost_on
from tests.cli.test_main import said
from tests.cli.test_serve import ask, clouds, roost, sign_in
from tests.conftest import serve
from tests.store.test_retention import HISTORY


def test_a_folder_is_backed_up_while_it_serves_and_restored_into_another(folders: Path, tmp_path: Path) -> None:
    folder, other, file = folders / secrets.token_hex(3), folders / secrets.token_hex(3), tmp_path / "kept"
    first = serve(folder)
    try:
        made, _ = ask(first, "/identity/v3/projects", {"project": {"name": "kept"}}, sign_in(first, "roost-admin"))
        done = roost("db", "backup", str(file), "--data", str(folder))
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"{file}: schema {schema.expected()}, ")
        refused = said(roost("db", "restore", str(file), "--force", "--data", str(folder)))
        assert refused.startswith(f"Roost already runs on {folder} ")
        assert roost("db", "status", "--data", str(folder)).returncode == 0
    finally:
        first.process.terminate()
        assert first.process.wait(30) == 0

    done = roost("db", "restore", str(file), "--data", str(other))
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("; everybody must sign in again.\n")
    assert "is not empty" in said(roost("db", "restore", str(file), "--data", str(other)))
    assert roost("db", "status", "--data", str(other)).stdout == f"The schema is at {schema.expected()}: up to date.\n"

    second = serve(other)
    try:
        # New passwords, as in every new folder; the projects are those of the old.
        assert clouds(second) != clouds(first)
        shown, _ = ask(second, f"/identity/v3/projects/{made['project']['id']}", token=sign_in(second, "roost-admin"))
        assert shown["project"]["name"] == "kept"
    finally:
        second.process.terminate()
        assert second.process.wait(30) == 0


def test_a_folder_without_a_database_is_said(tmp_path: Path) -> None:
    message = said(roost("db", "backup", str(tmp_path / "file"), "--data", str(tmp_path / "none")))
    assert message == f"There is no database in {tmp_path / 'none'}."
    assert list(tmp_path.iterdir()) == []


def test_what_ended_long_ago_is_forgotten_on_request(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute(HISTORY)
    done = roost_on("db", "purge", ROOST_DATABASE_URL=database_url)
    assert done.stdout == (
        "Forgotten: 2 actions, 2 events, 1 happenings, 1 samples, 2 repairs, 0 deleted_servers, 1 outbox.\n"
    )
    done = roost_on("db", "purge", "--days", "1", ROOST_DATABASE_URL=database_url)
    assert done.stdout == (
        "Forgotten: 1 actions, 1 events, 0 happenings, 0 samples, 1 repairs, 0 deleted_servers, 0 outbox.\n"
    )
    message = said(roost_on("db", "purge", "--days", "0", ROOST_DATABASE_URL=database_url))
    assert message == "What ended is kept for at least a day: give --days 1 or more."
