"""The processes of the lab, as a table: in which order they start, and how it is seen that they are up."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lab.settings import REPOSITORY, Settings


@dataclass(frozen=True, slots=True)
class WebService:
    """An API, served by uwsgi."""

    name: str
    port: str
    module: str
    threads: int
    arguments: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Where it finds its configuration; a value of "" is the folder of all of it."""


WEB_SERVICES = (
    WebService("keystone", "keystone", "keystone.wsgi.api", 4, environment={"OS_KEYSTONE_CONFIG_DIR": ""}),
    WebService("placement", "placement", "placement.wsgi.api", 4, environment={"OS_PLACEMENT_CONFIG_DIR": ""}),
    WebService("glance", "glance", "glance.wsgi.api", 2, environment={"OS_GLANCE_CONFIG_DIR": ""}),
    WebService(
        "neutron",
        "neutron",
        "neutron.wsgi.api",
        4,
        environment={"OS_NEUTRON_CONFIG_DIR": "", "OS_NEUTRON_CONFIG_FILES": "neutron.conf;ml2_conf.ini"},
    ),
    WebService("nova-api", "nova", "nova.wsgi.osapi_compute", 8, environment={"OS_NOVA_CONFIG_DIR": ""}),
    WebService(
        "octavia-api",
        "octavia",
        "octavia.wsgi.api",
        2,
        arguments="--config-file $dir/etc/octavia.conf --log-file $dir/log/octavia-api.log",
    ),
)


@dataclass(frozen=True, slots=True)
class Process:
    """One process (with its children): how it is started, and which port says that it is up."""

    name: str
    command: tuple[str, ...]
    port: str | None = None
    http: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    own_pid_file: bool = False
    """It is started by a script, and writes down itself which process it is."""


def stages(settings: Settings) -> list[list[Process]]:
    """All processes; those of one stage need those of the stages before."""
    web = {service.name: _web(settings, service) for service in WEB_SERVICES}
    root, bin_, etc = settings.dir / "root", settings.dir / "venv" / "bin", settings.dir / "etc"

    def worker(name: str, config: str) -> Process:
        log = settings.dir / "log" / f"{name}.log"
        return Process(name, (f"{bin_}/{name}", "--config-file", f"{etc}/{config}", "--log-file", str(log)))

    return [
        [
            Process(
                "mariadb", (f"{root}/usr/sbin/mariadbd", f"--defaults-file={etc}/mariadb.cnf"), "mariadb",
                environment=libraries(settings),
            ),
            Process(
                "memcached",
                (f"{root}/usr/bin/memcached", "-u", "root", "-l", "127.0.0.1", "-p", str(settings.port("memcached"))),
                "memcached",
                environment=libraries(settings),
            ),
            Process(
                "epmd",
                (_only(settings, "usr/lib/erlang/erts-*/bin/epmd"), "-address", "127.0.0.1", "-port",
                 str(settings.port("epmd"))),
                "epmd",
            ),
        ],
        [
            Process(
                "rabbitmq", (_only(settings, "usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server"),),
                "rabbitmq",
                environment=_rabbitmq(settings),
                own_pid_file=True,
            ),
            web["keystone"],
        ],
        [
            *(web[name] for name in ("placement", "glance", "neutron", "nova-api", "octavia-api")),
            worker("nova-conductor", "nova.conf"),
            worker("nova-scheduler", "nova.conf"),
            worker("octavia-worker", "octavia.conf"),
        ],
        [
            Process(
                "computes",
                (f"{bin_}/python", "-m", "lab.inside.computes", str(settings.dir), str(settings.hosts)),
                environment={
                    "LAB_HOST_VCPUS": str(settings.host_vcpus),
                    "LAB_HOST_MB": str(settings.host_mb),
                    "LAB_HOST_GB": str(settings.host_gb),
                    "LAB_SPAWN_SECONDS": str(settings.spawn_seconds),
                },
            ),
        ],
    ]  # fmt: skip


def libraries(settings: Settings) -> dict[str, str]:
    """Where the unpacked programs find their shared libraries."""
    root = settings.dir / "root"
    return {"LD_LIBRARY_PATH": ":".join(map(str, [*root.glob("usr/lib/*-linux-gnu"), *root.glob("lib/*-linux-gnu")]))}


def python_path(settings: Settings) -> str:
    """Where the services find the lab's drivers, and what the settings add."""
    own = (REPOSITORY, REPOSITORY / "roost-nova", settings.dir / "plugins")
    return ":".join(filter(None, [*map(str, own), settings.pythonpath]))


def _web(settings: Settings, service: WebService) -> Process:
    etc = settings.dir / "etc"
    return Process(
        service.name,
        (f"{settings.dir}/venv/bin/uwsgi", "--ini", f"{etc}/{service.name}.uwsgi.ini"),
        service.port,
        http=True,
        environment={key: value or str(etc) for key, value in service.environment.items()},
    )


def _only(settings: Settings, pattern: str) -> str:
    return str(next((settings.dir / "root").glob(pattern)))


def _rabbitmq(settings: Settings) -> dict[str, str]:
    own = settings.dir / "rabbitmq"
    return {
        "PATH": f"{settings.dir}/root/usr/lib/erlang/bin:/usr/bin:/bin",
        "HOME": f"{own}/home",
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(settings.port("epmd")),
        "RABBITMQ_NODENAME": "lab@localhost",
        "RABBITMQ_CONFIG_FILE": f"{settings.dir}/etc/rabbitmq.conf",
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_MNESIA_BASE": f"{own}/mnesia",
        "RABBITMQ_LOG_BASE": f"{settings.dir}/log",
        "RABBITMQ_DIST_PORT": str(settings.port("erlang")),
        "RABBITMQ_ENABLED_PLUGINS_FILE": f"{settings.dir}/etc/rabbitmq.plugins",
        "RABBITMQ_PID_FILE": f"{settings.dir}/run/rabbitmq.pid",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} +S 2:2 +A 16",
    }
