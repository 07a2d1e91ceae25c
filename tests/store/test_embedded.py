"""The embedded PostgreSQL: found again after every kind of end."""

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from roost.errors import Unavailable
from roost.store import embedded
from roost.store.embedded import EmbeddedPostgres, FolderInUse


@pytest.fixture
def folder(folders: Path) -> Path:
    """Short, so that the socket is inside it too."""
    return folders / secrets.token_hex(3)


@pytest.fixture
def server(folder: Path) -> Iterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(folder)
    yield server
    server.stop()


def value(server: EmbeddedPostgres, statement: str) -> object:
    with psycopg.connect(server.url, autocommit=True) as connection:
        row = connection.execute(statement).fetchone()
    return row[0] if row else None


def pid_of(server: EmbeddedPostgres) -> int:
    return int((server.folder / "postgres" / "postmaster.pid").read_text().split()[0])


def runs(pid: int) -> bool:
    """Whether there is such a process, and not only its remains."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    return bool(state) and not state.startswith("Z")


def test_what_was_written_is_found_after_a_stop_and_a_crash(server: EmbeddedPostgres) -> None:
    server.start()
    with psycopg.connect(server.url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
    server.stop()
    server.start()
    assert value(server, "SELECT number FROM kept") == 7
    server.restart()
    assert value(server, "SELECT number FROM kept") == 7


def test_it_is_not_reachable_from_the_network_and_its_folder_is_private(server: EmbeddedPostgres) -> None:
    server.start()
    assert value(server, "SHOW listen_addresses") == ""
    for name in ("postgres", "run"):
        assert (server.folder / name).stat().st_mode & 0o077 == 0


def test_two_on_one_folder_are_refused_and_the_first_goes_on(server: EmbeddedPostgres) -> None:
    server.start()
    with pytest.raises(FolderInUse) as caught:
        EmbeddedPostgres(server.folder).start()
    assert caught.value.message == (
        f"Roost already runs on {server.folder} (process {os.getpid()}). Stop it, or give another folder with --data."
    )
    assert value(server, "SELECT 1") == 1


def test_one_left_by_a_process_that_was_killed_is_ended_first(server: EmbeddedPostgres) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from roost.store.embedded import EmbeddedPostgres;"
        "EmbeddedPostgres(Path(sys.argv[1])).start(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(server.folder)], timeout=120)
    assert killed.returncode == -signal.SIGKILL
    leftover = pid_of(server)
    assert runs(leftover)
    server.start()
    assert pid_of(server) != leftover
    assert not runs(leftover)


def test_a_stale_process_number_harms_nobody(server: EmbeddedPostgres) -> None:
    server.start()
    server.stop()
    # As after a power cut, when the number has since been given to another process: here, to this one.
    stale = server.folder / "postgres" / "postmaster.pid"
    stale.write_text(f"{os.getpid()}\n{server.folder / 'postgres'}\n")
    server.start()
    assert value(server, "SELECT 1") == 1


def test_a_first_start_that_was_cut_off_is_begun_anew(server: EmbeddedPostgres) -> None:
    unfinished = server.folder / "postgres.new"
    unfinished.mkdir(parents=True)
    (unfinished / "PG_VERSION").write_text("18\n")
    server.start()
    assert value(server, "SELECT 1") == 1
    assert not unfinished.exists()


def test_a_folder_with_a_very_long_name_works(folders: Path) -> None:
    server = EmbeddedPostgres(folders / ("x" * 60) / ("y" * 60))
    server.start()
    try:
        assert value(server, "SELECT 1") == 1
    finally:
        server.stop()


def test_a_folder_for_sockets_that_is_not_ours_is_not_used(folders: Path) -> None:
    """Its name can be guessed, and others may write into the temporary folder: root changed the owner of what a link
    there led to."""
    server = EmbeddedPostgres((folders / ("x" * 60) / ("z" * 60)).absolute())
    victim = folders / "victim"
    victim.mkdir()
    server._sockets.symlink_to(victim)
    try:
        with pytest.raises(Unavailable, match="is not a folder of this account"):
            server.start()
        assert victim.stat().st_uid == os.getuid()
    finally:
        server._sockets.unlink()


def test_a_folder_for_sockets_of_another_account_is_not_used(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = EmbeddedPostgres((folders / ("x" * 60) / ("w" * 60)).absolute())
    server._sockets.mkdir(mode=0o777)
    monkeypatch.setattr(os, "geteuid", lambda: server._sockets.lstat().st_uid + 1)
    monkeypatch.setattr("roost.store.embedded._account", lambda: None)
    try:
        with pytest.raises(Unavailable, match="is not a folder of this account"):
            embedded._make_private(server._sockets)
    finally:
        server._sockets.rmdir()


def test_the_log_and_the_lock_are_for_the_owner_alone(server: EmbeddedPostgres) -> None:
    server.start()
    for name in ("postgres.log", "lock"):
        assert (server.folder / name).stat().st_mode & 0o077 == 0


def test_a_start_that_fails_leaves_nothing_running(server: EmbeddedPostgres) -> None:
    server.start()
    server.stop()
    (server.folder / "postgres" / "postgresql.conf").write_text("nonsense = on\n")
    with pytest.raises(Exception, match="did not start: see "):
        server.start()
    EmbeddedPostgres(server.folder)._take_lock()
