"""The configuration of every service, written from the templates beside this file."""

import getpass
import shutil
import subprocess
from pathlib import Path
from string import Template

from lab.services import WEB_SERVICES
from lab.settings import OFFSETS, Settings

_TEMPLATES = Path(__file__).parent / "templates"

_CREDENTIALS: dict[str, dict[str, str]] = {
    "rabbitmq.conf": {},
    "mariadb.cnf": {},
    "keystone.conf": {},
    "placement.conf": {"keystone_authtoken": "placement"},
    "glance-api.conf": {"keystone_authtoken": "glance"},
    "neutron.conf": {"keystone_authtoken": "neutron", "nova": "nova"},
    "ml2_conf.ini": {},
    "nova.conf": {
        "keystone_authtoken": "nova",
        "service_user": "nova",
        "placement": "placement",
        "neutron": "neutron",
    },
    "octavia.conf": {"keystone_authtoken": "octavia", "service_auth": "octavia"},
}
"""Each file, with the sections that say as whom a service signs in."""

_MORE = {
    "keystone_authtoken": "memcached_servers = 127.0.0.1:$port_memcached\nwww_authenticate_uri = $auth_url\n",
    "service_user": "send_service_user_token = true\n",
}

_FILTERS = (
    "ComputeFilter",
    "ComputeCapabilitiesFilter",
    "ImagePropertiesFilter",
    "ServerGroupAntiAffinityFilter",
    "ServerGroupAffinityFilter",
)

_FOLDERS = (
    *("log", "run", "etc/fernet-keys", "etc/credential-keys", "etc/certificates", "plugins/lab-1.dist-info"),
    *("rabbitmq/mnesia", "rabbitmq/home", "glance/images", "glance/staging", "glance/tasks"),
    *("nova/locks", "neutron/locks"),
)


def write(settings: Settings) -> None:
    """Write all of it; a service reads it when it is started."""
    for folder in _FOLDERS:
        (settings.dir / folder).mkdir(parents=True, exist_ok=True)
    for folder in ("etc/fernet-keys", "etc/credential-keys"):
        (settings.dir / folder).chmod(0o700)
    etc, values = settings.dir / "etc", _values(settings)
    for name, sections in _CREDENTIALS.items():
        text = _filled(name, values)
        for section, username in sections.items():
            text += _filled("credentials.conf", {**values, "section": section, "username": username})
            text += Template(_MORE.get(section, "")).substitute(values)
        (etc / name).write_text(text)
    if settings.nova_conf:
        with (etc / "nova.conf").open("a") as file:
            file.write(Path(settings.nova_conf).read_text())
    for service in WEB_SERVICES:
        own = {"name": service.name, "port": settings.port(service.port), "module": service.module,
               "threads": service.threads, "arguments": Template(service.arguments).substitute(values)}  # fmt: skip
        (etc / f"{service.name}.uwsgi.ini").write_text(_filled("uwsgi.ini", {**values, **own}))
    (etc / "rabbitmq.plugins").write_text("[].\n")
    shutil.copy(settings.dir / "venv/etc/nova/api-paste.ini", etc)
    settings.clouds.write_text(_filled("clouds.yaml", values))
    _entry_points(settings.dir / "plugins" / "lab-1.dist-info")
    _certificates(etc / "certificates")


def _filled(name: str, values: "dict[str, object]") -> str:
    return Template((_TEMPLATES / name).read_text()).substitute(values)


def _values(settings: Settings) -> dict[str, object]:
    return {
        **{f"port_{service}": settings.port(service) for service in OFFSETS},
        "dir": settings.dir,
        "user": getpass.getuser(),
        "auth_url": settings.auth_url,
        "message_bus": settings.message_bus,
        "database": f"mysql+pymysql://lab:lab@127.0.0.1:{settings.port('mariadb')}",
        "scheduler_workers": settings.scheduler_workers,
        "filter_scheduler": "\n".join(_scheduler_lines(settings)),
    }


def _scheduler_lines(settings: Settings) -> list[str]:
    filters = [path for path in settings.filters.split(",") if path]
    weighers = [path for path in settings.weighers.split(",") if path]
    names = ",".join([*_FILTERS, *(path.rpartition(".")[2] for path in filters)])
    return [
        "available_filters = nova.scheduler.filters.all_filters",
        *(f"available_filters = {path}" for path in filters),
        f"enabled_filters = {names}",
        f"weight_classes = {','.join(['nova.scheduler.weights.all_weighers', *weighers])}",
        *(line.strip() for line in settings.scheduler_conf.split(";")),
    ]


def _entry_points(folder: Path) -> None:
    """Neutron finds a mechanism driver only as an entry point of something installed."""
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: lab\nVersion: 1\n")
    (folder / "entry_points.txt").write_text(
        "[neutron.ml2.mechanism_drivers]\nlab = lab.inside.ports:LabMechanismDriver\n"
    )


def _certificates(folder: Path) -> None:
    """A throw-away authority, since Octavia does not start to make a load balancer without one."""
    if (folder / "client.pem").exists():
        return
    for command in (
        "openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 3650 -subj /CN=lab",
        "openssl rsa -aes128 -passout pass:lab -in ca.key -out ca.encrypted.key",
    ):
        subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    (folder / "client.pem").write_text((folder / "ca.pem").read_text() + (folder / "ca.key").read_text())
