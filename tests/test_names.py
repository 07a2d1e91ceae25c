"""One noun, one class: a search for a class name has one answer."""

import ast
from collections import defaultdict
from pathlib import Path

import roost
from roost.clusters.states import ActionName

ROOT = Path(roost.__file__).parent


def test_no_public_class_name_is_defined_twice() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(ROOT)))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_the_name_of_an_action_is_written_once() -> None:
    literals = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.value}"
        for folder in ("clusters", "api/clustering")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in set(ActionName)
    ]
    assert literals == []
