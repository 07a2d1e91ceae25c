"""The databases, made once: schemas, Keystone's first administrator, Nova's cells. A copy is kept to return to."""

import getpass
import grp
import os
import shutil
import subprocess
from collections.abc import Mapping

from lab import processes, tenants
from lab.services import libraries, python_path, stages
from lab.settings import Settings
from lab.steps import Failure, step

_NAMES = ("keystone", "placement", "glance", "neutron", "nova_api", "nova", "nova_cell0", "octavia")


def initialise(settings: Settings) -> None:
    """Make all databases, unless they are there."""
    if (settings.dir / "clean").is_dir():
        return
    shutil.rmtree(settings.dir / "mariadb", ignore_errors=True)
    infrastructure, with_keystone, *_ = stages(settings)
    with step("databases"):
        _make(settings)
        processes.start(settings, infrastructure)
        for name in _NAMES:
            grant = f"CREATE DATABASE {name}; GRANT ALL ON {name}.* TO 'lab'@'127.0.0.1' IDENTIFIED BY 'lab';"
            client = f"{settings.dir}/root/usr/bin/mariadb"
            _run(settings, client, "--no-defaults", "-uroot", "-S", f"{settings.dir}/run/mariadb.sock", "-e", grant)
    for what, commands in _schemas(settings).items():
        with step(f"schema of {what}"):
            for command in commands:
                _run(settings, f"{settings.dir}/venv/bin/{command[0]}", *command[1:])
    with step("services, users and endpoints"):
        processes.start(settings, [process for process in with_keystone if process.name == "keystone"])
        tenants.register(settings)
    processes.stop(settings, ["keystone", "memcached", "epmd"])
    processes.stop(settings, ["mariadb"])
    shutil.copytree(settings.dir / "mariadb", settings.dir / "clean.part")
    (settings.dir / "clean.part").rename(settings.dir / "clean")


def restore(settings: Settings) -> None:
    """Put everything back as `initialise` left it; nothing may run."""
    for folder in ("mariadb", "rabbitmq/mnesia", "nova", "glance/images"):
        shutil.rmtree(settings.dir / folder, ignore_errors=True)
    shutil.copytree(settings.dir / "clean", settings.dir / "mariadb")


def map_hosts(settings: Settings) -> None:
    """Tell Nova of new hosts at once; by itself it would look every 15 seconds."""
    nova = f"{settings.dir}/etc/nova.conf"
    _run(settings, f"{settings.dir}/venv/bin/nova-manage", "--config-file", nova, "cell_v2", "discover_hosts")


def _make(settings: Settings) -> None:
    root = settings.dir / "root" / "usr"
    _run(
        settings,
        f"{root}/bin/mariadb-install-db",
        f"--defaults-file={settings.dir}/etc/mariadb.cnf",
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
        f"--basedir={root}",
        f"--user={getpass.getuser()}",
    )


def _schemas(settings: Settings) -> Mapping[str, list[tuple[str, ...]]]:
    def tool(name: str, config: str) -> tuple[str, ...]:
        return (name, "--config-file", f"{settings.dir}/etc/{config}")

    keystone, nova = tool("keystone-manage", "keystone.conf"), tool("nova-manage", "nova.conf")
    owner = ("--keystone-user", getpass.getuser(), "--keystone-group", grp.getgrgid(os.getgid()).gr_name)
    urls = [f"--bootstrap-{side}-url={settings.auth_url}" for side in ("public", "internal", "admin")]
    cell0 = f"mysql+pymysql://lab:lab@127.0.0.1:{settings.port('mariadb')}/nova_cell0"
    return {
        "Keystone": [
            (*keystone, "db_sync"),
            (*keystone, "fernet_setup", *owner),
            (*keystone, "credential_setup", *owner),
            (*keystone, "bootstrap", "--bootstrap-password=admin", "--bootstrap-region-id=RegionOne", *urls),
        ],
        "Placement": [(*tool("placement-manage", "placement.conf"), "db", "sync")],
        "Glance": [(*tool("glance-manage", "glance-api.conf"), "db_sync")],
        "Nova": [
            (*nova, "api_db", "sync"),
            (*nova, "cell_v2", "map_cell0", "--database_connection", cell0),
            (*nova, "db", "sync"),
            (*nova, "cell_v2", "create_cell", "--name", "cell1"),
        ],
        "Neutron": [
            (*tool("neutron-db-manage", "neutron.conf"), f"--config-file={settings.dir}/etc/ml2_conf.ini", "upgrade",
             "heads")
        ],
        "Octavia": [(*tool("octavia-db-manage", "octavia.conf"), "upgrade", "head")],
    }  # fmt: skip


def _run(settings: Settings, *command: str) -> None:
    name = command[0].rpartition("/")[2]
    own = {"PYTHONPATH": python_path(settings), "PYTHONWARNINGS": "ignore"}
    if "/root/" in command[0]:
        own |= libraries(settings)
    log = settings.dir / "log" / f"{name}.out"
    with log.open("ab") as file:
        done = subprocess.run(command, cwd=settings.dir, env={**os.environ, **own}, stdout=file, stderr=file)
    if done.returncode != 0:
        raise Failure(f"{name} failed: see {log}")
