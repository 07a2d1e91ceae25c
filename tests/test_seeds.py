"""docs/seeds.md: what it says of the documents names modules and tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
_ROW = re.compile(r"^\| (?P<requirement>.+) \| `(?P<module>[^`]+)` \| `(?P<test>[^`]+)` \|$", re.M)


def test_every_requirement_names_a_module_and_a_test_that_exist() -> None:
    rows = [match.groupdict() for match in _ROW.finditer((ROOT / "docs/seeds.md").read_text())]
    assert len(rows) > 150
    wrong = [row["requirement"] for row in rows if not (ROOT / row["module"]).is_file()]
    for row in rows:
        path, _, name = row["test"].partition("::")
        file = ROOT / path
        if not file.is_file() or re.search(rf"^(async )?def {name}\(", file.read_text(), re.M) is None:
            wrong.append(row["requirement"])
    assert wrong == []
