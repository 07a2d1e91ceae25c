"""`roost policy graph`, `describe` and `orphans`: what policy types there are, what passes between them, and which are
missing."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

from roost.clusters import orphans, plugins
from roost.clusters.policies.base import AFTER, BEFORE, OF_THE_ENGINE, Policy
from roost.clusters.spec import List, Map, Property
from roost.config import Settings, database_url
from roost.store.database import Database


def print_graph(settings: Settings) -> None:
    """Print the types in the order in which they are asked, and what each reads from whom and writes."""
    print("\n".join(_graph(plugins.load(settings))))


def print_orphans(settings: Settings) -> int:
    """Print each policy and profile whose type is not installed, and what uses it; 1 if there are any."""
    found = asyncio.run(_orphans(settings))
    for orphan in found:
        print(orphan)
    if not found:
        print("Nothing found: every type is installed.")
    return 1 if found else 0


async def _orphans(settings: Settings) -> list[orphans.Orphan]:
    database = Database(database_url(settings))
    try:
        async with database.begin() as connection:
            return await orphans.find(connection, plugins.load(settings))
    finally:
        await database.close()


def _graph(found: plugins.Plugins) -> Iterator[str]:
    writers = {key.path: ["the engine"] for key in OF_THE_ENGINE}
    for number, kind in enumerate(found.chain(), 1):
        yield f"{number}. {kind.TYPE} ({', '.join(kind.VERSIONS)}), priority {kind.PRIORITY}"
        for when in (BEFORE, AFTER):
            actions = [action for moment, action in kind.TARGET if moment == when]
            if actions:
                yield f"     {when.lower()} {', '.join(actions)}"
        for key in kind.READS:
            yield f"     reads  {key.path} ({', '.join(writers.get(key.path, ['its own']))}): {key.meaning}"
        for key in kind.WRITES:
            yield f"     writes {key.path}: {key.meaning}"
            writers.setdefault(key.path, []).append(kind.TYPE.rpartition(".")[2])


def print_description(settings: Settings, name: str) -> None:
    """Print one type of one version, as a part of a page in Markdown."""
    print(description(plugins.load(settings).policy(name), name.rpartition("-")[2]))


def description(kind: type[Policy], version: str) -> str:
    """A type's properties, the actions it takes part in, and what it reads and writes, in Markdown."""
    status = kind.VERSIONS[version][-1]
    lines = [
        f"`{kind.TYPE}-{version}`: {status['status']} since {status['since']}, priority {kind.PRIORITY}, for profiles "
        f"of type {', '.join(kind.PROFILE_TYPE)}.",
        "",
        *properties(kind.schema(version), version),
        "",
        *_list("Asked before", [action for when, action in kind.TARGET if when == BEFORE]),
        *_list("Asked after", [action for when, action in kind.TARGET if when == AFTER]),
        *_list("Reads", [key.path for key in kind.READS]),
        *_list("Writes", [key.path for key in kind.WRITES]),
    ]
    return "\n".join(lines).rstrip()


def properties(schema: Mapping[str, Property], version: str) -> Iterator[str]:
    """What a specification takes, as a table in Markdown."""
    yield "| property | type | default | meaning |"
    yield "|---|---|---|---|"
    yield from _rows(schema, version, "")


def _list(title: str, items: list[str]) -> list[str]:
    return [f"{title}: {', '.join(f'`{item}`' for item in items)}.", ""] if items else []


def _rows(schema: Mapping[str, Property], version: str, prefix: str) -> Iterator[str]:
    for key, item in schema.items():
        if not item.in_version(version):
            continue
        path = prefix + key
        yield f"| `{path}` | {item.TYPE} | {_default(item)} | {_meaning(item)} |"
        inner, path = (item.schema, f"{path}[]") if isinstance(item, List) else (item, path)
        if isinstance(inner, Map) and inner.schema:
            yield from _rows(inner.schema, version, f"{path}.")


def _default(item: Property) -> str:
    if item.required:
        return "required"
    return "" if item.default is None else f"`{_plain(item.default)}`"


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value) if value != "" else '""'


def _meaning(item: Property) -> str:
    choices = [str(choice) for constraint in item.constraints for choice in constraint.allowed]
    text = item.description.replace("|", "\\|")
    return f"{text} One of {', '.join(choices)}.".strip() if choices else text
