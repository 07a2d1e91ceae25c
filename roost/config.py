"""Settings: declared with oslo.config, as operators know it, and read once into a frozen value."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Any

from oslo_config import cfg

from roost.errors import Invalid
from roost.suggestions import nearest

OPTIONS: dict[str, list[cfg.Opt]] = {
    "database": [
        cfg.StrOpt(
            "url",
            secret=True,
            help="PostgreSQL to use, such as postgresql://user:password@host/roost. The environment variable "
            "ROOST_DATABASE_URL takes precedence. `roost serve` starts its own when neither is set.",
        ),
        cfg.StrOpt(
            "session_url",
            secret=True,
            help="PostgreSQL itself, where `url` leads to a pooler that shares sessions between clients, such as "
            "PgBouncer in transaction mode: for what needs its own session.",
        ),
        cfg.IntOpt("pool_size", default=10, min=1, help="Connections that each process keeps open."),
        cfg.IntOpt("max_overflow", default=20, min=0, help="Connections beyond pool_size in a burst."),
        cfg.FloatOpt(
            "statement_seconds",
            default=15.0,
            min=0.1,
            help="Seconds after which PostgreSQL cancels a statement of a request. Less than [api] request_seconds.",
        ),
        cfg.FloatOpt(
            "engine_statement_seconds",
            default=60.0,
            min=0.1,
            help="Seconds after which PostgreSQL cancels a statement of an engine, which reads whole tables.",
        ),
        cfg.FloatOpt(
            "lock_seconds", default=10.0, min=0.1, help="Seconds for which a statement waits for a lock of another."
        ),
        cfg.FloatOpt(
            "idle_seconds",
            default=4.0,
            min=0.1,
            help="Seconds of silence in a transaction of a request after which PostgreSQL ends the session, so that a "
            "process that hangs does not keep others waiting for its locks; an engine has four times as long.",
        ),
    ],
    "api": [
        cfg.StrOpt("listen", default="127.0.0.1:8774", help="HOST:PORT to serve on."),
        cfg.StrOpt(
            "public_url",
            help="Address that clients use, such as https://cloud.example/. By default, that of each request.",
        ),
        cfg.StrOpt("region", default="RegionOne", help="Region named in the catalogue."),
        cfg.IntOpt("max_body_bytes", default=1 << 20, min=1024, help="Largest request body that is read."),
        cfg.StrOpt(
            "tls_cert",
            help="File with the certificate, and those that lead from it to its authority, in PEM: serve HTTPS. Read "
            "again on SIGHUP.",
        ),
        cfg.StrOpt("tls_key", help="File with the key of the certificate, in PEM."),
        cfg.FloatOpt(
            "body_seconds",
            default=30.0,
            min=0.1,
            help="Seconds within which a client must have sent a request, or taken some more of its answer.",
        ),
        cfg.FloatOpt(
            "drain_seconds",
            default=0.0,
            min=0.0,
            help="Seconds for which an API keeps serving after SIGTERM, while /readiness says 503, "
            "so that load balancers send requests elsewhere first. Five seconds later at the latest it has ended.",
        ),
        cfg.FloatOpt(
            "request_seconds",
            default=20.0,
            min=0.1,
            help="Seconds after which the work on a request is cancelled, in the database too: 503 and Retry-After. A "
            "list may take half of it, and what shows one thing, or is public, a quarter.",
        ),
        cfg.IntOpt(
            "max_requests",
            default=256,
            min=1,
            help="Requests that one API process works on at once. More are refused at once, with 503 and Retry-After.",
        ),
        cfg.IntOpt(
            "max_connections",
            default=2048,
            min=1,
            help="Connections of clients that one API process holds at once, idle ones included.",
        ),
        cfg.IntOpt(
            "worker_processes",
            default=max(1, (os.cpu_count() or 2) // 2),
            min=1,
            help="Processes in which each API process and each engine works out what takes long: explanations, plans, "
            "repairs, and searches for places. By default, half as many as there are CPUs.",
        ),
        cfg.IntOpt(
            "project_questions",
            default=4,
            min=1,
            help="How many such questions of one project may be worked on or wait in one process. More are refused at "
            "once, with 429 and Retry-After.",
        ),
        cfg.IntOpt(
            "project_requests",
            default=2,
            min=1,
            help="Requests of one project that each API process works on at once, not counting those that wait for the "
            "scheduler. More wait, and projects take turns; while others are served, a project that has requests "
            "waiting works half of the time. One that would have more than half of max_requests gets "
            "429 and Retry-After. The role service is exempt.",
        ),
        cfg.FloatOpt(
            "project_rate",
            default=2000.0,
            min=0,
            help="Requests a second of one project that each API process answers on average, and twice as many in a "
            "burst. More are refused, with 429 and Retry-After. 0 is no limit. The role service is exempt.",
        ),
        cfg.FloatOpt(
            "address_rate",
            default=200.0,
            min=0,
            help="The same for requests of one address without a valid token: sign-ins, webhooks, versions. 0 is no "
            "limit.",
        ),
        cfg.IntOpt("max_body_depth", default=64, min=4, help="Deepest nesting of a JSON body."),
        cfg.IntOpt("max_body_values", default=10_000, min=100, help="Most values in a JSON body: each is checked."),
        cfg.IntOpt("max_limit", default=1000, min=1, help="Most items in one page of a list."),
    ],
    "images": [
        cfg.StrOpt(
            "folder",
            help="Where the data of uploaded images is kept: one folder for all API processes. By default, that of a "
            "`roost serve` keeps it in its data folder; others refuse uploads.",
        ),
        cfg.IntOpt("max_bytes", default=4 << 30, min=1, help="Largest image that can be uploaded."),
        cfg.IntOpt("project_bytes", default=16 << 30, min=1, help="Bytes that all images of a project may take up."),
        cfg.IntOpt("project_images", default=100, min=0, help="Images that a project may have."),
    ],
    "engine": [
        cfg.StrOpt("listen", help="HOST:PORT at which an engine process answers Prometheus; by default, it does not."),
    ],
    "auth": [
        cfg.StrOpt(
            "strategy",
            default="roost",
            choices=[
                ("roost", "Roost's own identity service, at /identity"),
                ("keystone", "tokens of an OpenStack Keystone, validated as [keystone_authtoken] says"),
            ],
            help="Who vouches for a token.",
        ),
        cfg.IntOpt(
            "max_failures",
            default=10,
            min=0,
            help="Wrong passwords for one user, within failure_seconds and over all processes, after which nobody may "
            "sign in as that user, also with the right one, until these seconds are over: 429 and Retry-After. Tokens "
            "that the user has stay good. 0 is no limit.",
        ),
        cfg.IntOpt("failure_seconds", default=300, min=1, help="For how long wrong passwords are counted."),
        cfg.IntOpt("token_seconds", default=3600, min=60, help="How long a token of Roost's own identity is valid."),
        cfg.IntOpt(
            "token_cache_seconds",
            default=10,
            min=0,
            help="How long an API process trusts a token that it has looked up. A revocation empties the caches of "
            "all processes at once; this bounds the delay when a process missed it.",
        ),
    ],
    "quota": [
        cfg.IntOpt("instances", default=10, min=-1, help="Servers per project; -1 is no limit."),
        cfg.IntOpt("cores", default=20, min=-1, help="Virtual CPUs per project."),
        cfg.IntOpt("ram", default=51200, min=-1, help="Memory per project, in MiB."),
        cfg.IntOpt("metadata_items", default=128, min=-1, help="Metadata items per server."),
        cfg.IntOpt("key_pairs", default=100, min=-1, help="Key pairs per user."),
        cfg.IntOpt("server_groups", default=10, min=-1, help="Server groups per project."),
        cfg.IntOpt("server_group_members", default=10, min=-1, help="Servers per server group."),
    ],
    "groups": [
        cfg.IntOpt(
            "max_members",
            default=-1,
            min=-1,
            help="Servers in any one group, whatever the quota of its project; -1 is no limit.",
        ),
        cfg.IntOpt(
            "audit_seconds",
            default=300,
            min=0,
            help="How often the engine looks for groups whose rules are broken; 0 is never.",
        ),
        cfg.FloatOpt(
            "follow_seconds",
            default=15.0,
            min=0.1,
            help="In front of a Nova: seconds between two looks at its hosts, aggregates, groups and their members.",
        ),
        cfg.IntOpt(
            "missing_days",
            default=7,
            min=0,
            help="In front of a Nova: days for which a group that Nova does not have any more is kept, with its rules, "
            "in case it comes back; 0 is for ever. `roost front forget` removes it at once.",
        ),
    ],
    "notifications": [
        cfg.StrOpt(
            "driver",
            default="noop",
            choices=[("noop", "send none"), ("messagingv2", "send through oslo.messaging")],
            help="Whom to tell of changes to server groups.",
        ),
        cfg.StrOpt(
            "transport_url",
            secret=True,
            help="Where to send notifications, such as rabbit://user:password@host:5672/.",
        ),
        cfg.StrOpt("topic", default="versioned_notifications", help="Topic of the notifications."),
    ],
    "clusters": [
        cfg.IntOpt("max_nodes", default=1000, min=1, help="Nodes in any one cluster."),
        cfg.IntOpt("max_clusters", default=100, min=1, help="Clusters per project."),
        cfg.IntOpt("timeout", default=3600, min=1, help="Seconds that an action may take, unless its cluster says."),
        cfg.StrOpt(
            "cloud",
            default="embedded",
            choices=[("embedded", "Roost's own hosts"), ("openstack", "the cloud that `os_cloud` names")],
            help="Where the servers of clusters are made. With `openstack`, the compute API stands in front of that "
            "cloud's Nova too.",
        ),
        cfg.StrOpt("os_cloud", help="The cloud of clouds.yaml to use; its user must be an administrator."),
        cfg.IntOpt(
            "concurrency",
            default=100,
            min=1,
            help="Actions that one engine carries out at once, shared by projects: one alone gets half.",
        ),
        cfg.FloatOpt("heartbeat", default=2.0, min=0.1, help="Seconds between an engine's signs of life."),
        cfg.FloatOpt(
            "dead_after",
            default=10.0,
            min=0.3,
            help="Seconds without a sign of life after which others take over what an engine was doing.",
        ),
        cfg.MultiStrOpt(
            "policies",
            default=[],
            help="Policy types besides those that installed packages offer, as module:Class; several with commas, or "
            "one a line.",
        ),
        cfg.MultiStrOpt(
            "profiles",
            default=[],
            help="Profile types besides those that installed packages offer, as module:Class; several with commas, or "
            "one a line.",
        ),
        cfg.IntOpt(
            "health_interval_min", default=60, min=1, help="Least seconds between two looks at a node's health."
        ),
        cfg.BoolOpt(
            "private_urls",
            default=False,
            help="Whether the webhooks and the polled URLs of policies may lead to this machine and into private "
            "networks. Users name them, and the engine calls them.",
        ),
        cfg.BoolOpt(
            "senlin_webhooks",
            default=False,
            help="Whether webhooks that came from Senlin are also triggered at their old addresses, which have no "
            "token: anyone who knows the id of such a receiver can trigger it.",
        ),
    ],
    "history": [
        cfg.IntOpt(
            "keep_days",
            default=30,
            min=0,
            help="Days for which deleted servers, ended actions of clusters, their events, and ended repairs are kept; "
            "0 is for ever.",
        ),
    ],
    "tracing": [
        cfg.StrOpt(
            "endpoint",
            help="Where to send OpenTelemetry traces: OTLP over HTTP, such as http://collector:4318/v1/traces. "
            "Needs the extra `tracing`. By default, there are none.",
        ),
    ],
    "log": [
        cfg.StrOpt("level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"], help="Least level logged."),
        cfg.StrOpt("format", default="text", choices=["text", "json"], help="One line of text, or of JSON, a record."),
    ],
}

QUOTA_DEFAULTS = tuple(option.name for option in OPTIONS["quota"])


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Limits of clusters, and how engines work on them."""

    max_nodes: int
    max_clusters: int
    timeout: int
    cloud: str
    os_cloud: str | None
    concurrency: int
    heartbeat: float
    dead_after: float
    policies: list[str]
    profiles: list[str]
    health_interval_min: int
    private_urls: bool
    senlin_webhooks: bool


@dataclass(frozen=True, slots=True)
class ImageSettings:
    """Where the data of images is kept, and how much of it."""

    folder: str | None
    max_bytes: int
    project_bytes: int
    project_images: int


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of one process."""

    database_url: str | None
    session_url: str | None
    pool_size: int
    max_overflow: int
    statement_seconds: float
    engine_statement_seconds: float
    lock_seconds: float
    idle_seconds: float
    listen: str
    engine_listen: str | None
    public_url: str | None
    region: str
    max_body_bytes: int
    tls_cert: str | None
    tls_key: str | None
    body_seconds: float
    request_seconds: float
    drain_seconds: float
    max_requests: int
    max_connections: int
    worker_processes: int
    project_questions: int
    project_requests: int
    project_rate: float
    address_rate: float
    max_body_depth: int
    max_body_values: int
    max_limit: int
    auth_strategy: str
    max_failures: int
    failure_seconds: int
    token_seconds: int
    token_cache_seconds: int
    quota: dict[str, int]
    group_max_members: int
    group_audit_seconds: int
    group_follow_seconds: float
    group_missing_days: int
    notification_driver: str
    notification_url: str | None
    notification_topic: str
    clusters: ClusterSettings
    images: ImageSettings
    keep_days: int
    tracing_endpoint: str | None
    log_level: str
    log_format: str
    source: cfg.ConfigOpts
    """Where these came from, for the libraries that read their own sections (oslo.policy, keystonemiddleware)."""

    @property
    def in_front_of_nova(self) -> bool:
        """Whether servers, hosts and aggregates are Nova's, and only groups, scopes and what they mean are Roost's."""
        return self.clusters.cloud == "openstack"

    @property
    def address(self) -> tuple[str, int]:
        """The host and port to listen on."""
        return address(self.listen)


def address(listen: str) -> tuple[str, int]:
    """A host and a port, as people write them."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise Invalid(f"'{listen}' is not an address to listen on: write HOST:PORT, such as 127.0.0.1:8774.")
    return host.strip("[]"), int(port)


def load(
    config_file: Path | None = None, defaults: Mapping[str, Any] = MappingProxyType({}), **overrides: Any
) -> Settings:
    """Read the configuration file; `overrides` are `group__option=value` and win over it, `defaults` give way to it."""
    source = cfg.ConfigOpts()
    for group, options in OPTIONS.items():
        source.register_opts(options, group=group)
    if config_file is not None and not config_file.is_file():
        raise Invalid(f"There is no configuration file {config_file}.")
    arguments = ["--config-file", str(config_file)] if config_file else []
    try:
        source(arguments, project="roost", default_config_files=[], default_config_dirs=[])
        for change, values in ((source.set_default, defaults), (source.set_override, overrides)):
            for name, value in values.items():
                group, option = name.split("__")
                change(option, value, group=group)
        if config_file is not None and (problems := list(_unknown_names(config_file))):
            raise ValueError("; ".join(problems))
        return _freeze(source)
    except (cfg.Error, ValueError) as error:
        raise Invalid(f"The configuration cannot be used: {error}") from error


_LIBRARIES = {"oslo_policy": "oslo.policy", "keystone_authtoken": "keystonemiddleware.auth_token"}
"""Sections that libraries read themselves, and where each lists its options."""


def _unknown_names(file: Path) -> Iterator[str]:
    """A sentence for each section and key of a file that nothing reads. oslo.messaging's are left to it: a look at its
    options would load all of it."""
    written: dict[str, dict[str, list[str]]] = {}
    cfg.ConfigParser(str(file), written).parse()
    elsewhere = {"DEFAULT", *written.get("keystone_authtoken", {}).get("auth_section", [])}
    for section, given in written.items():
        if section in elsewhere or section.startswith("oslo_messaging_"):
            continue
        if section in OPTIONS:
            known = {option.dest for option in OPTIONS[section]}
        elif section in _LIBRARIES:
            known = _library_names(section, given)
        else:
            yield f"there is no section [{section}]; {nearest(section, [*OPTIONS, *_LIBRARIES])}"
            continue
        unknown = [key for key in given if known and key not in known]
        yield from (f"[{section}] has no option '{key}'; {nearest(key, known)}" for key in unknown)


def _library_names(section: str, given: Mapping[str, Sequence[str]]) -> set[str]:
    """What a library reads from a section; nothing if it is not installed."""
    known: set[str] = set()
    for entry in entry_points(group="oslo.config.opts", name=_LIBRARIES[section]):
        for _, options in entry.load()():
            for option in options:
                known |= {option.name, option.dest, *(old.name for old in option.deprecated_opts)}
    if known and "auth_type" in given:
        from keystoneauth1 import exceptions, loading

        # A plug-in that is not there is refused by what uses the section.
        with suppress(exceptions.NoMatchingPlugin):
            known |= {option.dest for option in loading.get_plugin_options(given["auth_type"][-1])}
    return known


def _freeze(source: cfg.ConfigOpts) -> Settings:
    own_hosts = source.clusters.cloud == "embedded"
    return Settings(
        database_url=os.environ.get("ROOST_DATABASE_URL") or source.database.url,
        session_url=source.database.session_url,
        pool_size=source.database.pool_size,
        max_overflow=source.database.max_overflow,
        statement_seconds=source.database.statement_seconds,
        engine_statement_seconds=source.database.engine_statement_seconds,
        lock_seconds=source.database.lock_seconds,
        idle_seconds=source.database.idle_seconds,
        listen=source.api.listen,
        engine_listen=source.engine.listen,
        public_url=source.api.public_url.rstrip("/") if source.api.public_url else None,
        region=source.api.region,
        max_body_bytes=source.api.max_body_bytes,
        tls_cert=source.api.tls_cert,
        tls_key=source.api.tls_key,
        body_seconds=source.api.body_seconds,
        request_seconds=source.api.request_seconds,
        drain_seconds=source.api.drain_seconds,
        max_requests=source.api.max_requests,
        max_connections=source.api.max_connections,
        worker_processes=source.api.worker_processes,
        project_questions=source.api.project_questions,
        project_requests=source.api.project_requests,
        project_rate=source.api.project_rate,
        address_rate=source.api.address_rate,
        max_body_depth=source.api.max_body_depth,
        max_body_values=source.api.max_body_values,
        max_limit=source.api.max_limit,
        auth_strategy=source.auth.strategy,
        max_failures=source.auth.max_failures,
        failure_seconds=source.auth.failure_seconds,
        token_seconds=source.auth.token_seconds,
        token_cache_seconds=source.auth.token_cache_seconds,
        # What a Nova behind Roost has, it counts itself.
        quota={name: getattr(source.quota, name) if own_hosts else -1 for name in QUOTA_DEFAULTS},
        group_max_members=source.groups.max_members,
        group_audit_seconds=source.groups.audit_seconds,
        group_follow_seconds=source.groups.follow_seconds,
        group_missing_days=source.groups.missing_days,
        notification_driver=source.notifications.driver,
        notification_url=source.notifications.transport_url,
        notification_topic=source.notifications.topic,
        clusters=ClusterSettings(
            **{field.name: getattr(source.clusters, field.name) for field in fields(ClusterSettings)}
        ),
        images=ImageSettings(**{field.name: getattr(source.images, field.name) for field in fields(ImageSettings)}),
        keep_days=source.history.keep_days,
        tracing_endpoint=source.tracing.endpoint,
        log_level=source.log.level,
        log_format=source.log.format,
        source=source,
    )


def list_options() -> Sequence[tuple[str, list[cfg.Opt]]]:
    """For oslo.config's sample generator: every section with its options."""
    return list(OPTIONS.items())


def database_url(settings: Settings) -> str:
    """The database to use, for the commands that cannot start their own."""
    if settings.database_url is None:
        raise Invalid(
            "No database is named: set [database] url in the file given with --config, or ROOST_DATABASE_URL."
        )
    return settings.database_url


def session_url(settings: Settings) -> str:
    """Where sessions are not shared: for changes of the schema, and backups."""
    return settings.session_url or database_url(settings)


def with_database(settings: Settings, url: str) -> Settings:
    """The same settings on another database."""
    return replace(settings, database_url=url)


def with_image_folder(settings: Settings, folder: Path) -> Settings:
    """The same settings, with this folder for images unless one is configured."""
    return replace(settings, images=replace(settings.images, folder=settings.images.folder or str(folder)))
