"""The reference, written from what the program itself declares. MkDocs runs this as a hook: nothing of it is kept."""

import argparse
import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from oslo_config import cfg
from prometheus_client import REGISTRY

import roost
from roost import config, errors
from roost.api import errors as statuses
from roost.api import openapi
from roost.api.app import APIS, default_rules
from roost.api.frame import Api
from roost.cli import main
from roost.cli.policies import description, properties
from roost.clusters import errors as cluster_errors
from roost.clusters import plugins
from roost.clusters.states import ActionName
from roost.compute.answers.audit import FindingKind
from roost.compute.groups import notifications
from roost.placement import audit, decision
from roost.placement.audit import Breach
from roost.placement.decision import Refusal
from roost.store import row_counts

ROOT = Path(__file__).parent.parent
NOTE = "*Written from the program itself when this site is built.*\n"


def on_config(config: Any) -> Any:
    """Add the decisions to the navigation."""
    decisions = sorted((ROOT / "docs" / "adr").glob("*.md"))
    contributing = next(each["Contributing"] for each in config.nav if "Contributing" in each)
    contributing.append({"Decisions": [f"adr/{page.name}" for page in decisions]})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages, and those that lie beside the documentation."""
    from mkdocs.structure.files import File

    for path, text in {**pages(), **dict(outside())}.items():
        files.append(File.generated(config, path, content=text))
    return files


def outside() -> Iterator[tuple[str, str]]:
    """Pages that belong at the top of the repository, with links that work from here."""
    for name in ("CONTRIBUTING", "SECURITY", "CHANGELOG"):
        text = (ROOT / f"{name}.md").read_text().replace("](docs/", "](")
        yield f"{name.lower()}.md", re.sub(r"\[([^\]]+)\]\((?!https?:|#)(?![\w/-]*\.md)[^)]*\)", r"\1", text)


def pages() -> dict[str, str]:
    """Every page of the reference, by its path."""
    apis = {api.name: api for api in APIS}
    found = {f"reference/{name}-api.md": api_page(apis[name]) for name in ("compute", "clustering")}
    return found | {
        "reference/roost.md": roost_page(),
        "reference/openstack.md": openstack_page(),
        "reference/configuration.md": configuration_page(),
        "reference/permissions.md": permissions_page(),
        "reference/types.md": types_page(),
        "reference/metrics.md": metrics_page(),
        "reference/events.md": events_page(),
        "reference/refusals.md": refusals_page(),
    }


def table(*columns: str, rows: Iterable[Iterable[object]]) -> str:
    """A table in Markdown."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        lines.append("| " + " | ".join(" ".join(str(cell).split()).replace("|", "\\|") for cell in row) + " |")
    return "\n".join(lines) + "\n"


# The APIs


def api_page(api: Api) -> str:
    """Every operation of an API at its newest version."""
    assert api.negotiation is not None
    newest = api.negotiation.newest
    document = openapi.document(api, newest, "")
    rows = {(route.method.lower(), route.path or "/"): route for route in api.table.routes if route.serves(newest)}
    first = {(route.method.lower(), route.path or "/"): route.since for route in reversed(api.table.routes)}
    nouns: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            route, since = rows[method, path], first[method, path]
            who = "none, and no token" if route.public else f"`{route.rule}`" if route.rule else "any token"
            lines = [f"### {method.upper()} {path}\n", f"{operation['summary']}\n"]
            lines.append(f"- Permission: {who}" + (f"; since {since}" if since.major else "") + "\n")
            good = ", ".join(status for status in operation["responses"] if status.isdigit())
            lines[-1] += f"- Answers: {good}\n"
            if query := [f"`{each['name']}`" for each in operation["parameters"] if each["in"] == "query"]:
                lines[-1] += f"- Query: {', '.join(query)}\n"
            if "requestBody" in operation:
                schema = operation["requestBody"]["content"]["application/json"]["schema"]
                body = list(fields(schema))
                lines.append(table("body", "type", "may be", rows=body) if body else "")
            nouns.setdefault(operation["tags"][0].replace("_", " ").capitalize(), []).append("\n".join(lines))
    oldest = api.negotiation.oldest
    title = f"# The {api.name} API\n\n{NOTE}\nServed at `{api.prefix}`, microversions {oldest} to {newest}, of which "
    title += f"this is {newest}."
    where = f"`{api.prefix}/openapi.json?version={newest}` has the same for programs, with the shape of each answer.\n"
    return f"{title} {where}\n" + "\n".join(f"## {noun}\n\n" + "\n".join(nouns[noun]) for noun in sorted(nouns))


def fields(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str, str]]:
    """The properties of a body, those within others by their paths."""
    for choice in schema.get("oneOf", schema.get("anyOf", [])):
        yield from fields(choice, path)
    if "items" in schema and isinstance(schema["items"], dict):
        yield from fields(schema["items"], f"{path}[]")
    for name, each in schema.get("properties", {}).items():
        inner = f"{path}.{name}" if path else name
        kinds = each.get("type", "")
        kind = kinds if isinstance(kinds, str) else " or ".join(kinds)
        needed = "required" if name in schema.get("required", ()) else ""
        yield f"`{inner}`", f"{kind} {f'({needed})' if needed else ''}".strip(), constraints(each)
        yield from fields(each, inner)


def constraints(schema: Mapping[str, Any]) -> str:
    """What a value may be, beyond its type."""
    said = []
    if "enum" in schema:
        shown = [f"`{value}`" for value in schema["enum"][:8]]
        said.append(", ".join(shown) + (" …" if len(schema["enum"]) > 8 else ""))
    for key, words in (("minimum", "at least {}"), ("maximum", "at most {}"), ("maxLength", "up to {} characters")):
        if key in schema:
            said.append(words.format(schema[key]))
    if schema.get("format"):
        said.append(f"a {schema['format']}")
    return "; ".join(said)


# The commands


def roost_page() -> str:
    """Every command of `roost`."""
    parts = [f"# The `roost` command\n\n{NOTE}"]
    for name, parser in commands(main.parser()):
        parts.append(f"## roost {name}\n\n```text\n{parser.format_help().strip()}\n```\n")
    return "\n".join(parts)


def commands(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """The parser of each command."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from commands(inner, (*words, name))
            return
    yield " ".join(words), parser


def openstack_page() -> str:
    """Every command that Roost adds to `openstack`."""
    found = [*entry_points(group="openstack.roost.v1"), *entry_points(group="openstack.extension")]
    parts = [f"# The `openstack` commands\n\n{NOTE}\nThey come with `pip install 'roost[client]'`.\n"]
    for entry in sorted((each for each in found if each.value.startswith("roost.")), key=lambda each: each.name):
        name = entry.name.replace("_", " ")
        parser = entry.load()(None, None).get_parser(f"openstack {name}")
        rows = [
            (f"`{', '.join(action.option_strings) or action.metavar or action.dest}`", _capitalised(action.help or ""))
            for action in parser._actions
            if action.help != argparse.SUPPRESS and not _of_cliff(action)
        ]
        summary = (parser.description or "").strip()
        parts.append(f"## {name}\n\n{summary}\n\n" + (table("option", "meaning", rows=rows) if rows else ""))
    return "\n".join(parts)


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


_CLIFF = {"help", "formatter", "columns", "quote_mode", "noindent", "max_width", "fit_width", "print_empty", "prefix"}
_CLIFF |= {"sort_columns", "sort_direction", "variables"}


def _of_cliff(action: argparse.Action) -> bool:
    return action.dest in _CLIFF


# Configuration, permissions, types


def configuration_page() -> str:
    """Every option of roost.conf."""
    head = (
        "`roost config sample` prints a file with all of it; `roost config check FILE` says what is wrong with one. An "
    )
    parts = [f"# Configuration\n\n{NOTE}\n{head}unknown section or option is refused.\n"]
    for section, options in config.OPTIONS.items():
        rows = [(f"`{each.name}`", _default(each), each.help) for each in options]
        parts.append(f"## [{section}]\n\n" + table("option", "default", "meaning", rows=rows))
    more = "`[oslo_policy]`, `[keystone_authtoken]` and `[oslo_messaging_…]` are read by the libraries of these names."
    return "\n".join([*parts, f"## Other sections\n\n{more}\n"])


def _default(option: cfg.Opt) -> str:
    if option.name == "worker_processes":
        return "half the CPUs"
    return "" if option.default in (None, []) else f"`{option.default}`"


def permissions_page() -> str:
    """Every permission, who has it, and what it guards."""
    rows = []
    for rule in default_rules():
        guarded = getattr(rule, "operations", None) or []
        where = "<br>".join(f"`{each['method']} {each['path']}`" for each in guarded)
        rows.append((f"`{rule.name}`", f"`{rule.check_str or '@'}`", rule.description or "", where))
    head = f"# Permissions\n\n{NOTE}\n`policy.yaml` overrides them; `roost policy sample` prints one with all.\n\n"
    return head + table("permission", "who has it", "allows", "requests", rows=rows)


def types_page() -> str:
    """Every policy and profile type, with what its specification takes."""
    found = plugins.load(config.load())
    parts = [f"# Policy and profile types\n\n{NOTE}"]
    for name, policy in sorted(found.policies.items()):
        parts.append(f"## {name}\n\n{_first(policy)}\n\n{description(policy, name.rpartition('-')[2])}\n")
    for name, profile in sorted(found.profiles.items()):
        rows = "\n".join(properties(profile.schema(name.rpartition("-")[2]), name.rpartition("-")[2]))
        parts.append(f"## {name}\n\n{_first(profile)}\n\n{rows}\n")
    return "\n".join(parts)


def _first(thing: object) -> str:
    return (inspect.getdoc(thing) or "").split("\n\n")[0]


# Metrics, events, refusals


def metrics_page() -> str:
    """Every metric."""
    for module in pkgutil.walk_packages(roost.__path__, "roost."):
        if not re.search(r"\.(migrations|osc|testing|__main__)\b", module.name):
            importlib.import_module(module.name)
    rows = {}
    for family in REGISTRY.collect():
        if family.name.startswith("roost_"):
            collector = REGISTRY._names_to_collectors.get(family.name)
            labels = ", ".join(f"`{label}`" for label in getattr(collector, "_labelnames", ()))
            name = family.name + ("_total" if family.type == "counter" else "")
            rows[name] = (f"`{name}`", family.type, labels, family.documentation)
    moment, meaning = row_counts.COUNTED_AT
    rows[moment] = (f"`{moment}`", "gauge", "", meaning)
    for name, (words, label, _) in row_counts.COUNTED.items():
        rows[name] = (f"`{name}`", "gauge", f"`{label}`" if label else "", words)
    head = (
        f"# Metrics\n\n{NOTE}\n`GET /metrics` of an API, and of an engine with `roost engine --listen`, has them.\n\n"
    )
    return head + table("metric", "type", "labels", "meaning", rows=[rows[name] for name in sorted(rows)])


def events_page() -> str:
    """Every notification, and what events of clusters look like."""
    sent = {value for name, value in vars(notifications).items() if name.isupper() and str(value).startswith("server_")}
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("roost.") and isinstance(getattr(module, "EVENT", None), str):
            sent.add(module.EVENT)
    page = (ROOT / "docs" / "operators.md").read_text()
    rows = []
    for name in sorted(sent):
        row = next(line for line in page.splitlines() if line.startswith("|") and f"`{name}`" in line)
        rows.append((f"`{name}`", row.strip("| ").split("|")[-1].strip()))
    actions = "\n".join(f"- `{name}`" for name in sorted(ActionName))
    return (
        f"# Events and notifications\n\n{NOTE}\n## Notifications\n\n[How to get them](../scopes.md#notifications).\n\n"
        + table("event type", "sent when", rows=rows)
        + "\n## Events of clusters\n\n`openstack cluster event list` shows what happened to clusters and nodes: which "
        "action, on what, and how it went. Each has one of the levels CRITICAL, ERROR, WARN, INFO and DEBUG. These are "
        f"the actions:\n\n{actions}\n"
    )


REMEDIES = {
    Refusal.DISABLED: "Bring the host up, or `openstack compute service set --enable`.",
    Refusal.OUTSIDE_ZONE: "Ask for another availability zone, or none.",
    Refusal.NOT_TARGETED: "Ask for another host, or none.",
    Refusal.EXCLUDED: "The server is on this host now, or the request excludes it.",
    Refusal.NOT_SAME_HOST: "Leave out the hint `same_host`, or free room on that host.",
    Refusal.NOT_DIFFERENT_HOST: "Leave out the hint `different_host`, or add hosts.",
    Refusal.TOO_FEW_VCPUS: "Use a smaller flavor, delete servers, or add hosts.",
    Refusal.TOO_LITTLE_MEMORY: "Use a smaller flavor, delete servers, or add hosts.",
    Refusal.TOO_LITTLE_DISK: "Use a smaller flavor, delete servers, or add hosts.",
    Refusal.OUTSIDE_SCOPE: "The operator puts the host into an aggregate of this scope.",
    Refusal.OUTSIDE_TARGET: "Free room in the aggregate that the rule names, or name another.",
    Refusal.FORBIDDEN_TARGET: "Leave out the rule, or add hosts elsewhere.",
    Refusal.AWAY_FROM_MEMBERS: "Free room beside the members, or move the members to where there is room.",
    Refusal.SCOPE_FULL: "Raise the limit of the rule, or add racks (or whatever the scope divides hosts into).",
    Refusal.TOO_SMALL_FOR_ALL: "Ask for fewer servers, or for a smaller flavor.",
    Refusal.SKEWED: "Raise `max_skew`, or free room in the least filled aggregate.",
    Refusal.SHARED_BY_PARTITIONS: "Repair the group: two partitions share an aggregate.",
    Refusal.OTHER_PARTITION: "Ask for the partition that is there, or add racks.",
    Refusal.KEPT_FOR_PARTITIONS: "Use fewer partitions, or add racks.",
}
REPAIRS = {
    Breach.OUTSIDE_SCOPE: "Put the host into an aggregate of the scope, or repair the group.",
    Breach.OUTSIDE_TARGET: "Repair the group: `openstack server group repair`.",
    Breach.FORBIDDEN_TARGET: "Repair the group.",
    Breach.APART: "Repair the group.",
    Breach.TOO_MANY: "Repair the group, or raise the limit.",
    Breach.SKEWED: "Repair the group, or raise `max_skew`.",
    Breach.PARTITIONS_SHARE: "Repair the group.",
}
FINDINGS = {
    FindingKind.RULE_BROKEN: "`openstack server group repair` moves as few servers as can be.",
    FindingKind.HOST_TWICE_IN_SCOPE: "Something else wrote to the database: keep a backup, and report it.",
    FindingKind.MEMBER_LOST: "Something else wrote to the database: keep a backup, and report it.",
}
ANSWERS = {
    errors.Invalid: "The request cannot be carried out as written. The message names the value and what is allowed.",
    errors.Unauthorized: "There is no valid token: sign in again.",
    errors.Forbidden: "Your role may not do this, or a quota is used up. The message names which.",
    errors.NotFound: "It does not exist, or not for you: look at the name and at the project of your token.",
    errors.NotAcceptable: "Ask for a microversion that is served; the message names them.",
    errors.TooSlow: "Send the whole body within `[api] body_seconds`.",
    errors.Conflict: "Something is in the way now. The message names it; try again when it is gone.",
    errors.TooLarge: "Send a smaller body (`[api] max_body_bytes`).",
    errors.UnsupportedMedia: "Send JSON, with `Content-Type: application/json`.",
    errors.TooManyRequests: "Wait for the seconds that `Retry-After` names.",
    errors.Unavailable: "The database or a service behind Roost does not answer: try again after `Retry-After`.",
}


def refusals_page() -> str:
    """Every reason to refuse, what it means and what helps."""
    hosts = {
        "hosts": "hosts",
        "scope": "rack",
        "a_scope": "a rack",
        "rule": "RULE",
        "are": "are",
        "have": "have",
        "hold": "hold",
        "do": "do",
    }
    words = {code: text.format(**hosts, share="share") for code, text in decision.SENTENCES.items()}
    members = {"members": "members are", "inside": "in", "scope": "rack", "rule": "RULE", "excess": "N"}
    parts = [f"# Refusals\n\n{NOTE}\nEvery code and class on this page is stable.\n"]
    parts.append(
        "## Why a host was refused\n\nIn explanations, as `refused`. `advice` says what would help in this case.\n"
    )
    parts.append(table("code", "says", "helps", rows=[(f"`{code}`", words[code], REMEDIES[code]) for code in Refusal]))
    parts.append("## How a rule is broken\n\nIn audits, as `breach`.\n")
    rows = [(f"`{code}`", audit.SENTENCES[code].format(**members), REPAIRS[code]) for code in Breach]
    parts.append(table("code", "says", "helps", rows=rows))
    parts.append("## What `roost audit` finds\n")
    parts.append(table("kind", "helps", rows=[(f"`{kind}`", FINDINGS[kind]) for kind in FindingKind]))
    parts.append("## Answers of the APIs\n")
    answers = [(status, _first(kind), ANSWERS[kind]) for kind, status in statuses.STATUS.items()]
    parts.append(table("status", "meaning", "what to do", rows=answers))
    parts.append("## Classes of the clustering API\n\nIn the answer as `error.type`.\n")
    classes = [
        (f"`{each.__name__}`", statuses.status_of(each.__new__(each)), _first(each))
        for each in vars(cluster_errors).values()
        if inspect.isclass(each) and issubclass(each, errors.RoostError) and each.__module__ == cluster_errors.__name__
    ]
    parts.append(table("class", "status", "meaning", rows=classes))
    return "\n".join(parts)
