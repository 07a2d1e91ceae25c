"""What can be chosen about a lab. Everything is read from the environment, as LAB_HOSTS and the like."""

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

REPOSITORY = Path(__file__).resolve().parent.parent
_DIR = REPOSITORY / ".lab"

OFFSETS = {
    "keystone": 0,
    "memcached": 211,
    "glance": 292,
    "mariadb": 306,
    "octavia_health": 555,
    "rabbitmq": 670,
    "epmd": 671,
    "erlang": 672,
    "neutron": 696,
    "nova": 774,
    "placement": 778,
    "octavia": 876,
}
"""Each service's port, counted from `port_base`."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The choices of one lab. They are read at every command, and a process keeps those that it was started with."""

    dir: Annotated[Path, "where everything of the lab is"] = _DIR
    port_base: Annotated[int, "Keystone's port; the others are at fixed distances from it"] = 25000
    hosts: Annotated[int, "hypervisors: fake-1, fake-2, ..."] = 6
    host_vcpus: Annotated[int, "virtual CPUs of each"] = 10
    host_mb: Annotated[int, "memory of each, in MiB"] = 8192
    host_gb: Annotated[int, "disk of each, in GiB"] = 1000
    spawn_seconds: Annotated[float, "how long a server takes to boot"] = 0.0
    filters: Annotated[str, "further filters of nova-scheduler: dotted paths, separated by commas"] = ""
    weighers: Annotated[str, "further weighers of nova-scheduler: dotted paths, separated by commas"] = ""
    pythonpath: Annotated[str, "where all services find what the two above name, besides this repository"] = ""
    scheduler_conf: Annotated[str, "further lines of [filter_scheduler], separated by semicolons"] = ""
    scheduler_workers: Annotated[int, "processes of nova-scheduler"] = 1
    nova_conf: Annotated[str, "a file whose content is added to nova.conf"] = ""

    def port(self, service: str) -> int:
        """Where a service listens."""
        return self.port_base + OFFSETS[service]

    def url(self, service: str) -> str:
        """A service's address."""
        return f"http://127.0.0.1:{self.port(service)}"

    @property
    def auth_url(self) -> str:
        """Keystone's address, as clients know it."""
        return f"{self.url('keystone')}/v3"

    @property
    def message_bus(self) -> str:
        """RabbitMQ's address, as oslo.messaging knows it."""
        return f"rabbit://lab:lab@127.0.0.1:{self.port('rabbitmq')}/"

    @property
    def clouds(self) -> Path:
        """The clouds.yaml: `lab` (the administrator), `lab-demo` (a member), `lab-demo-admin`."""
        return self.dir / "clouds.yaml"


def load(environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings of this process."""
    given: dict[str, Any] = {}
    for name, (kind, _) in _DECLARED.items():
        if text := environment.get(f"LAB_{name.upper()}"):
            given[name] = kind(text).resolve() if kind is Path else kind(text)
    return Settings(**given)


def describe() -> str:
    """Every setting, a line each."""
    defaults = {**asdict(Settings()), "dir": ".lab"}
    return "\n".join(
        f"  LAB_{name.upper():<18} {meaning}" + (f" ({defaults[name]})" if defaults[name] else "")
        for name, (_, meaning) in _DECLARED.items()
    )


_DECLARED: Mapping[str, tuple[Callable[[str], Any], str]] = {
    name: get_args(kind) for name, kind in get_type_hints(Settings, include_extras=True).items()
}
