"""The plug-in as a distribution of its own: what it may use, and with which Python it is read."""

import ast
import sys
import tomllib
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "roost-nova"
FILES = sorted((PACKAGE / "roost_nova").glob("*.py"))
NOVA_BRINGS = {"nova", "keystoneauth1", "oslo_config", "oslo_log", "roost_nova"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_it_is_read_by_python_3_9_and_needs_only_what_nova_brings(file: Path) -> None:
    tree = ast.parse(file.read_text(), feature_version=(3, 9))
    named = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    named |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in named} <= NOVA_BRINGS | sys.stdlib_module_names
    futures = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    assert futures, "annotations such as str | None are not evaluated"


def test_it_pulls_in_nothing() -> None:
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    assert project["dependencies"] == []
    assert project["requires-python"] == ">=3.9"
