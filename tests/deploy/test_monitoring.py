"""What dashboards and alerts ask for is what Roost exports, and Prometheus and systemd read the files as we do."""

import json
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from roost.compute.inventory import images
from roost.store.embedded import EmbeddedPostgres
from tests.cli.test_processes import free_port, running, wait_for
from tests.cli.test_serve import ask, sign_in
from tests.conftest import serve

DEPLOY = Path(__file__).parents[2] / "deploy"
PROMETHEUS = DEPLOY / "prometheus"
# What Prometheus itself adds to what it scrapes.
ADDED = {"up", "job", "instance", "le"}


@dataclass(frozen=True)
class Selected:
    """A metric as an expression names it: with the labels that it is asked for, some of them with their values."""

    name: str
    labels: frozenset[str]
    values: frozenset[tuple[str, str]]


def selected(expression: str) -> Iterator[Selected]:
    """Every metric in an expression of PromQL; labels that it is grouped by count for all of them."""
    grouped = {label.strip() for by in re.findall(r"\bby \(([^)]*)\)", expression) for label in by.split(",")}
    plain = re.sub(r"\bby \([^)]*\)|\[[^]]*\]", "", expression)
    for name, selector in re.findall(r"\b((?:roost|process)_\w+|up)\b(?:\{([^}]*)\})?", plain):
        matchers = re.findall(r'(\w+)(=~|!=|!~|=)"([^"]*)"', selector)
        exact = frozenset((label, value) for label, how, value in matchers if how == "=")
        yield Selected(name, frozenset(grouped | {label for label, _, _ in matchers}), exact)


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((PROMETHEUS / "roost.rules.yml").read_text())["groups"]
    return list(group["rules"])


def queries() -> list[tuple[str, str, set[str]]]:
    """Every expression of the dashboard and of the alerts: where it stands, and which labels are shown of it."""
    board = json.loads((DEPLOY / "grafana" / "roost.json").read_text())
    shown = [
        (panel["title"], target["expr"], set(re.findall(r"{{(\w+)}}", target["legendFormat"])))
        for panel in board["panels"]
        for target in panel.get("targets", [])
    ]
    return shown + [(rule["alert"], rule["expr"], _named(rule)) for rule in alerts()]


def _named(rule: dict[str, Any]) -> set[str]:
    return set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))


Samples = dict[str, list[dict[str, str]]]


def scrape(url: str) -> Samples:
    """The labels of every sample, by the name under which Prometheus keeps it."""
    samples: Samples = {}
    with urllib.request.urlopen(url, timeout=30) as answer:
        for family in text_string_to_metric_families(answer.read().decode()):
            for sample in family.samples:
                samples.setdefault(sample.name, []).append(dict(sample.labels))
    return samples


@pytest.fixture(scope="module")
def exported(folders: Path) -> Iterator[Samples]:
    """What a Roost exports after a little of everything."""
    served = serve(folders / "watched")
    token = sign_in(served, "roost")
    server = {"name": "s", "flavorRef": "1", "imageRef": images.USUAL[0].id}
    ask(served, "/compute/v2.1/servers", {"server": server}, token)
    properties = {"name": "n", "flavor": "1", "image": images.USUAL[0].id}
    spec = {"type": "os.nova.server", "version": "1.0", "properties": properties}
    made, _ = ask(served, "/clustering/v1/profiles", {"profile": {"name": "p", "spec": spec}}, token)
    cluster = {"name": "watched", "profile_id": made["profile"]["id"], "desired_capacity": 1}
    ask(served, "/clustering/v1/clusters", {"cluster": cluster}, token)
    # One that is never looked at stays unfinished.
    with psycopg.connect(EmbeddedPostgres(served.folder).url) as connection:
        connection.execute(
            "INSERT INTO actions (id, name, action, target, cause, timeout, status, user_id, project_id) "
            "VALUES ('asleep', 'a', 'CLUSTER_CHECK', 'c', 'RPC Request', 1, 'SUSPENDED', 'u', 'p')"
        )
    until = time.monotonic() + 120
    late = {"roost_actions_ended_total", "roost_actions_unfinished", "roost_nodes", "roost_purged_rows_total"}
    late |= {"roost_audit_findings", "roost_servers"}
    while not late <= (samples := scrape(f"{served.url}/metrics")).keys():
        assert time.monotonic() < until, late - samples.keys()
        time.sleep(0.5)
    yield samples
    served.process.terminate()
    assert served.process.wait(30) == 0


@pytest.mark.parametrize(("title", "expression", "shown"), queries())
def test_what_is_asked_for_is_exported(exported: Samples, title: str, expression: str, shown: set[str]) -> None:
    asked = [metric for metric in selected(expression) if metric.name != "up"]
    assert asked or expression.startswith("up{")
    for metric in asked:
        samples = exported[metric.name]
        assert (metric.labels | shown) - ADDED <= set(samples[0])
        assert metric.values <= {pair for sample in samples for pair in sample.items()}


def test_every_metric_of_ours_is_looked_at_somewhere(exported: Samples) -> None:
    used = {metric.name for _, expression, _ in queries() for metric in selected(expression)}
    ours = {
        name for name in exported if name.startswith("roost_") and not name.endswith(("_created", "_sum", "_count"))
    }
    assert ours - used == set()


def test_an_engine_of_its_own_answers_prometheus(database_url: str) -> None:
    port = free_port()
    with running("engine", database_url, "--listen", f"127.0.0.1:{port}"):
        url = f"http://127.0.0.1:{port}/metrics"
        wait_for(url)
        until = time.monotonic() + 60
        while {"state": "up"} not in scrape(url).get("roost_engines", []):
            assert time.monotonic() < until
            time.sleep(0.2)
        assert scrape(url)["roost_database_connections_limit"] == [{}]


def test_every_alert_says_how_bad_it_is_and_what_is_the_matter_and_the_manual_what_to_do() -> None:
    manual = (DEPLOY.parent / "docs" / "operators.md").read_text()
    tested = (PROMETHEUS / "roost.rules.test.yml").read_text()
    for rule in alerts():
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"].endswith(".")
        assert f"| `{rule['alert']}` |" in manual
        # Once where it must be silent, once where it must not.
        assert tested.count(f"alertname: {rule['alert']}") >= 2


@pytest.mark.parametrize("unit", ["roost-api@", "roost-engine@"])
def test_the_units_are_what_systemd_reads_and_leave_little_exposed(tmp_path: Path, unit: str) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("there is no systemd-analyze")
    text = (DEPLOY / "systemd" / f"{unit}.service").read_text()
    assert "/opt/roost/bin/roost " in text
    file = tmp_path / f"{unit}.service"
    # It looks whether the program is there.
    file.write_text(text.replace("/opt/roost/bin/roost", "/bin/true"))
    verified = subprocess.run([analyze, "verify", file], capture_output=True, text=True)
    assert (verified.returncode, verified.stderr) == (0, "")
    judged = subprocess.run([analyze, "security", "--offline=true", "--threshold=20", file], capture_output=True)
    assert judged.returncode == 0, judged.stdout.decode()
