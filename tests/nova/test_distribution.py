"""The plug-in as its own distribution: what it may use, and with which Python it is read."""

import ast
import shutil
import subprocess
import sys
from importlib import metadata
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


def test_it_builds_and_installs_alone(tmp_path: Path) -> None:
    copy, made, installed = (tmp_path / name for name in ("source", "dist", "installed"))
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-qq"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", made, copy], check=True)
    [wheel] = made.iterdir()
    subprocess.run([*pip, "install", "--no-index", "--target", installed, wheel], check=True)
    [found] = metadata.distributions(path=[str(installed)])
    assert (found.name, found.metadata["Requires-Python"], found.requires) == ("roost-nova", ">=3.9", None)
    assert sorted(path.name for path in (installed / "roost_nova").glob("*.py")) == [file.name for file in FILES]
