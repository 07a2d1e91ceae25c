"""docs/architecture.md names files and functions that exist, and draws every room; CONTRIBUTING lists every room."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
WALK = re.compile(r"^\d+\. `(?P<file>[^`]+)` `(?P<function>[^`]+)`: ", re.MULTILINE)
WALKS = {title: WALK.findall(steps) for title, steps in re.findall(r"^### (.+?)\n(.*?)(?=^### |\Z)", PAGE, re.M | re.S)}


def functions(path: Path) -> set[str]:
    """`function` and `Class.method` of a file."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{inner.name}" for inner in node.body if hasattr(inner, "name")}
    return found


def test_five_requests_are_walked_through() -> None:
    assert len(WALKS) == 5
    numbered = {title: len(re.findall(r"^\d+\. ", steps, re.M)) for title, steps in _sections()}
    assert {title: len(walk) for title, walk in WALKS.items()} == numbered, "a line of a walk names no function"


def _sections() -> list[tuple[str, str]]:
    return re.findall(r"^### (.+?)\n(.*?)(?=^### |\Z)", PAGE, re.M | re.S)


@pytest.mark.parametrize("title", WALKS)
def test_every_step_of_a_walk_exists(title: str) -> None:
    missing = [
        f"{file} {function}"
        for file, function in WALKS[title]
        if not (ROOT / file).is_file() or function not in functions(ROOT / file)
    ]
    assert missing == []


def rooms(folder: Path) -> set[str]:
    """The packages in a folder."""
    return {each.parent.name for each in folder.glob("*/__init__.py")}


def test_the_diagram_draws_every_room() -> None:
    drawn = PAGE.partition("```mermaid")[2].partition("```")[0]
    for room in rooms(ROOT / "roost") | {"web"}:
        assert f"roost.{room}" in drawn, room
    for room in rooms(ROOT / "roost" / "compute"):
        assert re.search(rf'\b{room}\["{room}', drawn), room


def test_contributing_lists_every_room() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    listed = set(re.findall(r"^\| `(roost/[^`]+)`", page, re.M))
    expected = {f"roost/{room}" for room in rooms(ROOT / "roost") | {"web"}}
    expected |= {f"roost/compute/{room}" for room in rooms(ROOT / "roost" / "compute")}
    assert listed == expected
