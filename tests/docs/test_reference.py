"""The reference is made from the program, and has all of it."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from roost import config
from roost.api.app import default_rules
from roost.clusters import plugins
from roost.placement.decision import Refusal
from tests.deploy.test_monitoring import queries, selected

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", DOCS / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_has_everything(reference: ModuleType) -> None:
    pages = reference.pages()
    options = [f"`{option.name}`" for group in config.OPTIONS.values() for option in group]
    assert [each for each in options if each not in pages["reference/configuration.md"]] == []
    rules = [f"`{rule.name}`" for rule in default_rules()]
    assert [each for each in rules if each not in pages["reference/permissions.md"]] == []
    types = plugins.load(config.load())
    names = [f"## {name}\n" for name in [*types.policies, *types.profiles]]
    assert [each for each in names if each not in pages["reference/types.md"]] == []
    assert [each for each in Refusal if f"| `{each}` |" not in pages["reference/refusals.md"]] == []
    metrics = {each.name for _, expression, _ in queries() for each in selected(expression)}
    ours = {re.sub(r"_(bucket|sum|count)$", "", name) for name in metrics if name.startswith("roost_")}
    assert [each for each in sorted(ours) if f"`{each}`" not in pages["reference/metrics.md"]] == []
    for name in ("server group audit", "cluster plan", "policy scope create"):
        assert f"## {name}\n" in pages["reference/openstack.md"]
    assert "### POST /v2.1/os-server-groups/{server_group_id}/repairs" in pages["reference/compute-api.md"]
    assert "### POST /v1/webhooks/{webhook_id}/trigger" in pages["reference/clustering-api.md"]


def test_every_page_is_in_the_navigation() -> None:
    navigation = (DOCS.parent / "mkdocs.yml").read_text()
    pages = [str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md") if path.parent.name != "adr"]
    assert [page for page in pages if not re.search(rf"[ -]{re.escape(page)}$", navigation, re.M)] == []
