"""The ten changes that CONTRIBUTING describes: a part that was forgotten fails one of these."""

import argparse
import re
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from roost import config
from roost.api.compute import quotas as quota_api
from roost.api.versions import COMPUTE
from roost.cli import main
from roost.clouds import base
from roost.compute.groups import notifications
from roost.compute.scheduling import attempt
from roost.placement import rules
from roost.placement.audit import audit
from roost.placement.decision import Request
from roost.placement.fleet import Fleet, Resources
from roost.placement.phrases import phrase
from roost.placement.scheduler import place
from roost.store.tables.servers import server_group_policies, servers

ROOT = Path(__file__).parents[1]
DOCS = {path.name: path.read_text() for path in (ROOT / "docs").glob("*.md")}
SOURCES = {path: path.read_text() for path in (ROOT / "roost").rglob("*.py")}


@pytest.mark.parametrize("limit", list(rules.Limit))
def test_every_limit_is_described_and_documented(limit: rules.Limit) -> None:
    scope = "host" if limit is rules.Limit.MAX_SERVER_PER_HOST else "rack"
    rule = rules.Rule.parse(f"anti-affinity:{scope}", {limit: 7})
    assert rule.limits == {limit: 7}
    assert "7" in phrase(rule)
    assert f"`{limit}`" in DOCS["server-groups.md"]


def three_racks() -> Fleet:
    """A rack of four hosts, and two of a single host that holds one server."""
    fleet = Fleet()
    for at, rack in enumerate("aaaabc"):
        room = 4 if rack == "a" else 1
        fleet.add_host(f"h{at}", Resources(room, room, room), aggregates={"rack": rack})
    return fleet


@pytest.mark.parametrize("limit", list(rules.Limit))
def test_every_limit_is_enforced_and_audited(limit: rules.Limit) -> None:
    scope = "host" if limit is rules.Limit.MAX_SERVER_PER_HOST else "rack"
    low, high = (rules.Rule.parse(f"anti-affinity:{scope}", {limit: value}) for value in (2, 3))
    one = Resources(1, 1, 1)
    decisions = [place(three_racks(), Request(one, 18, (rule,), least=1)) for rule in (low, high)]
    fewer, more = ((len(each.hosts), len(set(each.partitions))) for each in decisions)
    assert fewer < more, "its value makes no difference to how many servers find a place, or in how many partitions"
    assert audit(three_racks(), [low], dict.fromkeys("xyz", 0), {"x": 1, "y": 2, "z": 1}).violations


def test_every_policy_type_has_its_page_and_its_tests() -> None:
    index = (ROOT / "docs" / "policies" / "index.md").read_text()
    for entry in entry_points(group="roost.policies"):
        if not entry.value.startswith("roost."):
            continue
        assert (ROOT / "docs" / "policies" / f"{entry.name}.md").is_file(), entry.name
        assert f"({entry.name}.md)" in index, entry.name
        assert (ROOT / "tests" / "clusters" / "policies" / f"test_{entry.name}.py").is_file(), entry.name


def test_every_microversion_of_ours_is_documented() -> None:
    first = 1001
    for minor in range(first, COMPUTE.newest.minor + 1):
        assert f"2.{minor}" in DOCS["server-groups.md"], minor


@pytest.mark.parametrize("scope", [rules.HOST, rules.AVAILABILITY_ZONE])
def test_every_built_in_scope_is_stored_and_documented(scope: str) -> None:
    assert f"`{scope}`" in DOCS["scopes.md"]
    checks = [str(each.sqltext) for each in server_group_policies.constraints if hasattr(each, "sqltext")]
    assert any(f"'{scope}'" in check for check in checks), scope


def test_no_built_in_scope_is_forgotten_by_these_tests() -> None:
    stored = next(
        str(each.sqltext)
        for each in server_group_policies.constraints
        if hasattr(each, "sqltext") and "builtin_scope IN" in str(each.sqltext)
    )
    assert set(re.findall(r"'(\w+)'", stored)) == {rules.HOST, rules.AVAILABILITY_ZONE}


def test_every_cloud_driver_is_offered_and_conforms() -> None:
    asked = {name for name, each in vars(base.Cloud).items() if callable(each) and not name.startswith("_")}
    drivers = {
        path.stem
        for path, text in SOURCES.items()
        if path.parent.name == "clouds"
        and path.stem != "base"
        and all(f"def {name}(" in text for name in sorted(asked))
    }
    option = next(each for each in config.OPTIONS["clusters"] if each.name == "cloud")
    assert {name for name, _ in option.type.choices.items()} == drivers
    conformance = (ROOT / "tests" / "clouds" / "test_conformance.py").read_text()
    offered = set(re.findall(r'"(\w+)"', re.search(r"fixture\(params=\[(.*?)\]", conformance)[1]))  # type: ignore[index]
    assert offered == drivers
    assert [name for name in sorted(drivers) if f"`{name}`" not in DOCS["openstack.md"]] == []


def test_every_notification_is_documented() -> None:
    types = {
        value for name, value in vars(notifications).items() if name.isupper() and str(value).startswith("server_")
    }
    types |= {found for text in SOURCES.values() for found in re.findall(r'^EVENT = "([\w.]+)"', text, re.MULTILINE)}
    assert types
    assert [each for each in sorted(types) if f"`{each}`" not in DOCS["operators.md"]] == []


def test_every_page_of_the_dashboard_is_documented_and_looked_at() -> None:
    page = (ROOT / "roost" / "web" / "main.js").read_text()
    views = re.search(r"this\._views = \{(.*?)\};", page, re.DOTALL)
    assert views is not None
    names = set(re.findall(r"(\w+): new \w+", views[1]))
    assert names
    looked_at = (ROOT / "tests" / "browser" / "test_dashboard.py").read_text()
    for name in names:
        assert f"`#/{'' if name == 'overview' else name}" in DOCS["dashboard.md"], name
        assert f'"{name}": "#/' in looked_at, name


def test_every_quota_can_be_configured_and_set() -> None:
    for option in config.OPTIONS["quota"]:
        assert option.help, option.name
        assert f"`{option.name}`" in DOCS["operators.md"], option.name
    assert set(config.QUOTA_DEFAULTS) <= set(quota_api._sets(COMPUTE.newest))


def commands(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[str]:
    """Every command of a parser, in full."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from commands(inner, (*words, name))
            return
    yield " ".join(words)


def test_every_command_is_documented() -> None:
    text = "\n".join(DOCS.values())
    assert [each for each in commands(main.parser()) if f"roost {each}" not in text] == []
    own = [entry.name.replace("_", " ") for entry in entry_points(group="openstack.roost.v1")]
    assert own
    assert [each for each in own if each not in DOCS["client.md"]] == []


def test_every_column_of_servers_is_written_or_has_a_default() -> None:
    written = "\n".join(path.read_text() for path in Path(attempt.__file__).parent.glob("*.py"))
    for column in servers.columns:
        given = column.nullable or column.server_default is not None or column.identity is not None
        assert given or re.search(rf"\b{column.name}\b", written), column.name


CHANGES = re.findall(r"^\| (a[n]? .+?) \| (.+?) \| (.+?) \|$", (ROOT / "CONTRIBUTING.md").read_text(), re.M)


def test_contributing_has_ten_changes() -> None:
    assert len(CHANGES) == 10


@pytest.mark.parametrize(("change", "touched", "tests"), CHANGES, ids=[change for change, *_ in CHANGES])
def test_what_contributing_names_exists(change: str, touched: str, tests: str) -> None:
    """A bare file name is in the folder of the file before it; NAME stands for any name."""
    folder = ROOT
    for name in re.findall(r"`([^`]+\.(?:py|md|js|toml))`", touched):
        path = ROOT / name if "/" in name or (ROOT / name).exists() else folder / name
        folder = path.parent
        assert "NAME" in name or path.exists(), f"{name} is not there"
    code = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for name in re.findall(r"`([^`]+)`", tests):
        assert (ROOT / name).exists() if "/" in name else f"def {name}(" in code, f"there is no {name}"
