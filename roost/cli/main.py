"""The `roost` command: serve everything at once, or each part as a separate process."""

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from roost import config
from roost.cli import completion, version
from roost.errors import RoostError


def main(arguments: list[str] | None = None) -> None:
    """Run one command; an error that the user can fix is one sentence, not a traceback."""
    options = parser().parse_args(arguments)
    # Until a process handles signals itself, ending it must still end what it has started so far.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        sys.exit(options.run(options))
    except RoostError as error:
        print(f"roost: {error.message}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def parser() -> argparse.ArgumentParser:
    """The command line, with every command."""
    # Without a list of the two options, which the first line shows, the help fits a screen.
    roost = argparse.ArgumentParser(
        prog="roost",
        usage="roost [--help] [--version] COMMAND ...",
        add_help=False,
        formatter_class=_Formatter,
        description="Decides where servers live, and keeps it so.",
        epilog="example: roost serve",
    )
    roost.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
    roost.add_argument("--version", action=_Version, nargs=0, help=argparse.SUPPRESS)
    commands = roost.add_subparsers(title="commands", prog="roost", required=True, metavar="COMMAND")

    serve = _command(
        commands,
        "serve",
        _serve,
        "run everything on this machine, database and cloud included",
        "roost serve",
        "roost serve --data ~/roost --topology large",
        "roost serve --config roost.conf --listen 0.0.0.0:8774",
    )
    serve.add_argument("--data", type=Path, default=Path(".roost"), metavar="DIR", help="where all data lives (.roost)")
    serve.add_argument("--listen", metavar="HOST:PORT", help="address to serve on (127.0.0.1:8774)")
    serve.add_argument(
        "--topology", metavar="FILE|NAME", help="hosts of the embedded cloud: small (default), large, or a YAML file"
    )

    api = _command(
        commands,
        "api",
        _api,
        "run an API process on the operator's PostgreSQL",
        "roost api --config roost.conf --listen 0.0.0.0:8774",
    )
    api.add_argument("--listen", metavar="HOST:PORT", help="address to serve on (127.0.0.1:8774)")
    engine = _command(
        commands,
        "engine",
        _engine,
        "run an engine process on the operator's PostgreSQL",
        "roost engine --config roost.conf --listen 0.0.0.0:9774",
    )
    engine.add_argument("--listen", metavar="HOST:PORT", help="address to answer Prometheus on (none)")
    engine.set_defaults(listens="engine")

    first = _command(
        commands,
        "bootstrap",
        _bootstrap,
        "make the first administrator, project and flavors",
        "ROOST_ADMIN_PASSWORD=secret roost bootstrap --config roost.conf",
    )
    first.add_argument("--user", default="admin", metavar="NAME", help="the administrator (admin)")
    first.add_argument("--project", default="admin", metavar="NAME", help="the project to sign in to (admin)")
    first.add_argument("--topology", metavar="FILE|NAME", help="hosts of the embedded cloud, as for `roost serve`")

    top = _command(
        commands,
        "top",
        _top,
        "show zones, racks, hosts and groups live in the terminal",
        "roost top --scope switch",
        "roost top --once",
    )
    top.add_argument("--cloud", default="roost-admin", metavar="NAME", help="of clouds.yaml (roost-admin)")
    top.add_argument("--scope", default="rack", metavar="NAME", help="what to divide zones into (rack)")
    top.add_argument("--interval", type=float, default=2.0, metavar="SECONDS", help="between two looks (2)")
    top.add_argument("--once", action="store_true", help="print one picture and end")

    demo = _command(
        commands,
        "demo",
        _demo,
        "make a small world to look at in a running Roost, or remove it",
        "roost demo",
        "roost demo --clean",
    )
    demo.add_argument("--clean", action="store_true", help="remove everything that the demo made")
    demo.add_argument("--data", type=Path, default=Path(".roost"), metavar="DIR", help="of a `roost serve` (.roost)")

    _command(
        commands,
        "audit",
        _audit,
        "find groups whose rules are broken (exit status 1 if any)",
        "roost audit --config roost.conf",
    )

    database = _family(commands, "db", "the database", "roost db status --config roost.conf")
    _db_command(
        database, "upgrade", "bring the schema up to date, while others use it", "roost db upgrade --config roost.conf"
    )
    _db_command(
        database,
        "status",
        "say whether the schema fits this program (exit status 1 if not)",
        "roost db status --config roost.conf",
    )
    backup = _db_command(
        database, "backup", "write everything into one file, while others use it", "roost db backup roost.backup"
    )
    backup.add_argument("file", type=Path, metavar="FILE", help="to write; one that is there is replaced")
    restore = _db_command(
        database,
        "restore",
        "put a backup in the place of the database",
        "roost db restore roost.backup --data elsewhere",
    )
    restore.add_argument("file", type=Path, metavar="FILE", help="that `roost db backup` wrote")
    restore.add_argument("--force", action="store_true", help="also if the database is not empty")
    purge = _db_command(
        database,
        "purge",
        "forget actions, events and repairs that ended long ago",
        "roost db purge --config roost.conf --days 90",
    )
    purge.add_argument("--days", type=int, metavar="N", help="how long ago ([history] keep_days)")

    keystone = _family(commands, "keystone", "a Keystone's catalogue", "roost keystone register --cloud admin")
    register = _command(
        keystone,
        "register",
        _keystone_register,
        "make the services and endpoints of this Roost",
        "roost keystone register --cloud admin --url https://roost.example",
    )
    register.add_argument("--cloud", metavar="NAME", help="an administrator's, of clouds.yaml ([clusters] os_cloud)")
    register.add_argument("--url", metavar="URL", help="where clients reach Roost ([api] public_url)")
    register.add_argument(
        "types",
        nargs="*",
        metavar="TYPE",
        help="what to register: clustering (default), and compute, which takes Nova's place in the catalogue",
    )
    register.add_argument(
        "--interface",
        action="append",
        choices=["public", "internal", "admin"],
        help="which endpoints; may be repeated (all, and of compute only public)",
    )
    unregister = _command(
        keystone,
        "unregister",
        _keystone_unregister,
        "put the catalogue back as it was before",
        "roost keystone unregister --cloud admin clustering compute",
    )
    unregister.add_argument("--cloud", metavar="NAME", help="an administrator's, of clouds.yaml ([clusters] os_cloud)")
    unregister.add_argument("types", nargs="*", metavar="TYPE", help="clustering (default) and compute")

    front = _family(
        commands, "front", "the Nova that Roost stands in front of", "roost front missing --config roost.conf"
    )
    _command(
        front,
        "missing",
        _front_missing,
        "list server groups that Nova no longer has (exit status 1 if any)",
        "roost front missing --config roost.conf",
    )
    forget = _command(
        front,
        "forget",
        _front_forget,
        "delete server groups that Nova no longer has, with their rules",
        "roost front forget --config roost.conf --all",
    )
    forget.add_argument("groups", nargs="*", metavar="ID", help="which ones")
    forget.add_argument("--all", action="store_true", help="all of them, and all hosts that Nova no longer has")

    imports = _family(commands, "import", "what was there before Roost", "roost import groups --config roost.conf")
    senlin = _command(
        imports,
        "senlin",
        _import_senlin,
        "bring the clusters of a Senlin database, with their servers",
        "roost import senlin --from mysql+pymysql://senlin:secret@db/senlin --dry-run",
    )
    senlin.add_argument(
        "--from", dest="source", required=True, metavar="URL", help="mysql+pymysql://USER:PASSWORD@HOST/senlin"
    )
    senlin.add_argument("--dry-run", action="store_true", help="say what would come, and change nothing")
    senlin.add_argument("--events", action="store_true", help="also the events of the last [history] keep_days")
    _command(
        imports,
        "check",
        _import_check,
        "compare nodes with the servers of Nova (exit status 1 if they differ)",
        "roost import check --config roost.conf",
    )
    _command(
        imports,
        "groups",
        _import_groups,
        "take over the server groups of Nova, and list broken rules",
        "roost import groups --config roost.conf",
    )

    sample = _family(commands, "config", "the configuration file", "roost config sample > roost.conf")
    _command(
        sample,
        "sample",
        _config_sample,
        "print a configuration file with every option and its default",
        "roost config sample > roost.conf",
    )
    check = _command(
        sample,
        "check",
        _config_check,
        "say what is wrong with a configuration file (exit status 1 if anything)",
        "roost config check roost.conf",
    )
    check.add_argument("config", type=Path, metavar="FILE", help="the file to check")
    rules = _family(commands, "policy", "who may do what; what governs clusters", "roost policy graph")
    _command(
        rules,
        "sample",
        _policy_sample,
        "print a policy.yaml with every rule and its default",
        "roost policy sample > policy.yaml",
    )
    _command(
        rules,
        "graph",
        _policy_graph,
        "print the chain of policy types, and what each reads and writes",
        "roost policy graph",
    )
    describe = _command(
        rules,
        "describe",
        _policy_describe,
        "print one policy type as a part of a page in Markdown",
        "roost policy describe senlin.policy.scaling-1.0",
    )
    describe.add_argument("type", metavar="TYPE", help="its name and version, such as senlin.policy.scaling-1.0")
    _command(
        rules,
        "orphans",
        _policy_orphans,
        "list clusters and nodes of a type that is not installed (exit status 1 if any)",
        "roost policy orphans --config roost.conf",
    )
    _new_command(rules, "policy")
    shells = _command(
        commands,
        "completion",
        _completion,
        "print what lets a shell complete this command",
        "source <(roost completion bash)",
    )
    shells.add_argument("shell", choices=completion.SHELLS, help="which shell")
    profiles = _family(commands, "profile", "what nodes are", "roost profile new night-watch")
    _new_command(profiles, "profile")
    return roost


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Leaves room for the names of commands beside what they do."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog)
        self._action_max_length = 14


class _Version(argparse.Action):
    """Asks Git only when it is asked itself."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(version.text())
        parser.exit()


def _family(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, about: str, *examples: str
) -> "argparse._SubParsersAction[argparse.ArgumentParser]":
    parser = commands.add_parser(name, help=about, **_help(about, examples))
    return parser.add_subparsers(required=True, metavar="DO")


def _help(description: str, examples: Sequence[str]) -> dict[str, Any]:
    return {
        "description": description[:1].upper() + description[1:] + ".",
        "epilog": "\n  ".join(["examples:" if len(examples) > 1 else "example:", *examples]),
        "formatter_class": _Formatter,
    }


def _command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    run: object,
    description: str,
    *examples: str,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=description, **_help(description, examples))
    parser.add_argument("--config", type=Path, metavar="FILE", help="configuration file")
    parser.set_defaults(run=run)
    return parser


def _new_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", kind: str) -> None:
    parser = _command(
        commands,
        "new",
        _new,
        f"write a package with a new {kind} type, its test and its entry point",
        f"roost {kind} new night-watch --into plugins",
    )
    parser.add_argument("name", metavar="NAME", help="of the package, such as night-watch")
    parser.add_argument("--into", type=Path, default=Path(), metavar="DIR", help="where the package goes (here)")
    parser.set_defaults(kind=kind)


def _db_command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, description: str, *examples: str
) -> argparse.ArgumentParser:
    parser = _command(commands, name, _db, description, *examples)
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="the folder of a `roost serve`, if no database is named"
    )
    parser.set_defaults(do=name)
    return parser


def _settings(options: argparse.Namespace, **defaults: int) -> config.Settings:
    listen, part = getattr(options, "listen", None), getattr(options, "listens", "api")
    return config.load(options.config, defaults, **({f"{part}__listen": listen} if listen else {}))


def _serve(options: argparse.Namespace) -> int:
    from roost.cli import serve

    return serve.run(_settings(options, **serve.QUOTAS), options.data, options.topology)


def _api(options: argparse.Namespace) -> int:
    from roost.cli import processes

    return processes.run(_settings(options), api=True)


def _engine(options: argparse.Namespace) -> int:
    from roost.cli import processes

    return processes.run(_settings(options), engine=True)


def _bootstrap(options: argparse.Namespace) -> int:
    from roost.cli import bootstrap

    return bootstrap.run(_settings(options), options.user, options.project, options.topology)


def _top(options: argparse.Namespace) -> int:
    from roost.cli import top

    return top.run(options.cloud, options.scope, options.interval, once=options.once)


def _demo(options: argparse.Namespace) -> int:
    from roost.cli import demo

    return demo.run(options.data, clean=options.clean)


def _audit(options: argparse.Namespace) -> int:
    from roost.cli import audit

    return audit.run(_settings(options))


def _db(options: argparse.Namespace) -> int:
    from roost.cli import db

    return db.run(_settings(options), options)


def _keystone_register(options: argparse.Namespace) -> int:
    from roost.cli import keystone

    types = options.types or ["clustering"]
    return keystone.register(_settings(options), options.cloud, options.url, types, options.interface)


def _keystone_unregister(options: argparse.Namespace) -> int:
    from roost.cli import keystone

    return keystone.unregister(_settings(options), options.cloud, options.types or ["clustering"])


def _front_missing(options: argparse.Namespace) -> int:
    from roost.cli import front

    return front.missing(_settings(options))


def _front_forget(options: argparse.Namespace) -> int:
    from roost.cli import front

    return front.forget(_settings(options), options.groups, everything=options.all)


def _import_senlin(options: argparse.Namespace) -> int:
    from roost.cli import imports

    return imports.senlin(_settings(options), options.source, dry_run=options.dry_run, with_events=options.events)


def _import_check(options: argparse.Namespace) -> int:
    from roost.cli import imports

    return imports.check(_settings(options))


def _import_groups(options: argparse.Namespace) -> int:
    from roost.cli import imports

    return imports.groups(_settings(options))


def _config_sample(options: argparse.Namespace) -> int:
    from roost.cli import samples

    samples.print_config()
    return 0


def _config_check(options: argparse.Namespace) -> int:
    from roost.cli import checks

    return checks.run(options.config)


def _policy_sample(options: argparse.Namespace) -> int:
    from roost.cli import samples

    samples.print_policy()
    return 0


def _policy_graph(options: argparse.Namespace) -> int:
    from roost.cli import policies

    policies.print_graph(_settings(options))
    return 0


def _policy_describe(options: argparse.Namespace) -> int:
    from roost.cli import policies

    policies.print_description(_settings(options), options.type)
    return 0


def _policy_orphans(options: argparse.Namespace) -> int:
    from roost.cli import policies

    return policies.print_orphans(_settings(options))


def _completion(options: argparse.Namespace) -> int:
    print(completion.script(options.shell, parser()), end="")
    return 0


def _new(options: argparse.Namespace) -> int:
    from roost.cli import scaffold

    folder = scaffold.write(options.kind, options.name, options.into)
    print(f"{folder} is written: `pip install -e {folder}`, and `pytest {folder}` tests it.")
    return 0
