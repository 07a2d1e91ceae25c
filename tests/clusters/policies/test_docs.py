"""The pages of docs/policies: what they say of the types is what the types say, and their examples can be used."""

import re
from pathlib import Path

import pytest
import yaml

from roost.cli.policies import description
from tests.clusters.builders import types

DOCS = Path(__file__).parents[3] / "docs" / "policies"
PAGES = sorted(page for page in DOCS.glob("*.md") if page.name != "index.md")
MARK = re.compile(r"<!-- roost policy describe (\S+) -->\n\n(.*?)\n\n<!-- end -->", re.S)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_specification_is_made_from_the_schema(page: Path) -> None:
    found = MARK.findall(page.read_text())
    assert found
    for name, text in found:
        assert text == description(types().policy(name), name.rpartition("-")[2])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_example_is_a_spec_that_is_accepted(page: Path) -> None:
    [example] = re.findall(r"```yaml\n(.*?)```", page.read_text(), re.S)
    spec = yaml.safe_load(example)
    kind = types().policy(f"{spec['type']}-{spec['version']}")
    assert kind("example", spec).spec_data


def test_every_type_has_a_page() -> None:
    described = {name.rpartition("-")[0] for page in PAGES for name, _ in MARK.findall(page.read_text())}
    assert described == {name.rpartition("-")[0] for name in types().policies}
