"""What crosses a module boundary of the embedded cloud, or of the actions, has a named type: no row of a table and no
`dict[str, Any]`."""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("roost/compute", "roost/clusters/actions")
SQL = {"sa.Select", "sa.Column", "sa.ColumnElement"}
"""A query or a column is a type of its own, whatever it yields."""


@pytest.mark.parametrize("room", ROOMS)
def test_what_is_public_names_its_types(room: str) -> None:
    untyped = [
        f"{path.relative_to(ROOT)} {name}: {ast.unparse(annotation)}"
        for path in sorted((ROOT / room).rglob("*.py"))
        for name, annotation in _public(ast.parse(path.read_text()).body)
        if _says_any(annotation)
    ]
    assert untyped == []


def _public(body: Iterable[ast.stmt], within: str = "") -> Iterator[tuple[str, ast.expr]]:
    """The annotations of public functions and methods, of the fields of public classes, and of public names."""
    for node in body:
        match node:
            case ast.ClassDef(name=name) if not name.startswith("_"):
                yield from _public(node.body, f"{name}.")
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if not name.startswith("_"):
                given = node.args
                every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
                for each in every:
                    if each is not None and each.annotation is not None:
                        yield f"{within}{name}({each.arg})", each.annotation
                if node.returns is not None:
                    yield f"{within}{name}()", node.returns
            case ast.AnnAssign(target=ast.Name(id=name)) if not name.startswith("_"):
                yield f"{within}{name}", node.annotation
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript()) if not name.startswith("_"):
                yield f"{within}{name}", node.value


def _says_any(annotation: ast.AST) -> bool:
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) in SQL:
        return False
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return _says_any(ast.parse(annotation.value, mode="eval"))
    if isinstance(annotation, ast.Name):
        return annotation.id == "Any"
    return any(map(_says_any, ast.iter_child_nodes(annotation)))
