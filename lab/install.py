"""What the lab is made of: Debian packages unpacked into its folder, and one Python environment. Nothing is installed
into the system."""

import hashlib
import os
import re
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

from lab.settings import REPOSITORY, Settings
from lab.steps import Failure, step

CONSTRAINTS = REPOSITORY / "constraints-lab.txt"

PYTHON = (
    "glance",
    "keystone",
    "neutron",
    "nova",
    "numpy",
    "octavia",
    "openstack-placement",
    "pymemcache",
    "PyMySQL",
    "python-memcached",
    "uwsgi",
)
DEBIAN = (
    *("rabbitmq-server", "erlang-base", "erlang-asn1", "erlang-crypto", "erlang-eldap", "erlang-ftp", "erlang-inets"),
    *("erlang-mnesia", "erlang-os-mon", "erlang-parsetools", "erlang-public-key", "erlang-runtime-tools"),
    *("erlang-snmp", "erlang-ssl", "erlang-syntax-tools", "erlang-tftp", "erlang-tools", "erlang-xmerl"),
    *("mariadb-server", "mariadb-server-core", "mariadb-client-core", "libmariadb3", "liburing2", "libaio1"),
    *("memcached", "libevent-2.1-7"),
)


def install(settings: Settings) -> None:
    """Download and unpack whatever is not there yet, or not any more what is wanted."""
    (settings.dir / "log").mkdir(parents=True, exist_ok=True)
    _once(settings.dir / "root" / ".installed", " ".join(DEBIAN), lambda: _debian(settings))
    wanted = " ".join(PYTHON) + CONSTRAINTS.read_text() + sys.version
    _once(settings.dir / "venv" / ".installed", wanted, lambda: _python(settings))


def _once(mark: Path, wanted: str, work: Callable[[], None]) -> None:
    digest = hashlib.sha256(wanted.encode()).hexdigest()
    if not mark.is_file() or mark.read_text() != digest:
        work()
        mark.write_text(digest)


def _debian(settings: Settings) -> None:
    with step("RabbitMQ, MariaDB and memcached, from Debian packages"):
        packages, root = settings.dir / "debian", settings.dir / "root"
        packages.mkdir(exist_ok=True)
        download = ["apt-get", "download", "-qq", *DEBIAN]
        if not _runs(settings, download, packages):
            if os.getuid() == 0:
                _runs(settings, ["apt-get", "update", "-qq"], packages)
            if not _runs(settings, download, packages):
                raise Failure(f"apt-get cannot download the packages: run `apt-get update`, or see {_log(settings)}")
        for package in packages.glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, root], check=True)
        # Debian's Erlang has the path of its root written into its scripts.
        for script in root.glob("usr/lib/erlang/**/bin/*"):
            if script.name in ("erl", "start") and script.is_file():
                text = re.sub(r"(^|[^a-z])/usr/lib/erlang", rf"\1{root}/usr/lib/erlang", script.read_text(), flags=re.M)
                script.write_text(text)


def _python(settings: Settings) -> None:
    with step("Keystone, Placement, Glance, Neutron, Nova and Octavia, with pip"):
        environment = settings.dir / "venv"
        if not (environment / "bin" / "pip").exists():
            venv.create(environment, with_pip=True)
        pip = [str(environment / "bin" / "pip"), "install", "-q", "--disable-pip-version-check"]
        if not _runs(settings, [*pip, "--constraint", str(CONSTRAINTS), *PYTHON], settings.dir):
            raise Failure(f"pip cannot install OpenStack (uwsgi needs a C compiler): see {_log(settings)}")


def _runs(settings: Settings, command: list[str], folder: Path) -> bool:
    with _log(settings).open("ab") as log:
        return subprocess.run(command, cwd=folder, stdout=log, stderr=log).returncode == 0


def _log(settings: Settings) -> Path:
    return settings.dir / "log" / "install.out"
