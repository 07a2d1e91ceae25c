"""The console blocks of each page, run in order on a fresh Roost with the real clients, print what the page says.

A `yaml` block that begins with a comment such as `# web.yaml: …` becomes that file. What cannot be run here has a
comment `<!-- not run: why -->` before the block. A line `...` in an output stands for any lines.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import Served, serve

ROOT = Path(__file__).parent.parent.parent
PAGES = ["docs/server-groups.md", "docs/scopes.md", "docs/clusters.md", "docs/client.md", "docs/answers.md"]

_BLOCK = re.compile(r"(?P<note><!-- not run: .+? -->\n)?```(?P<kind>console|yaml)\n(?P<text>.*?)```", re.S)
_NAMES = (
    (re.compile(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}"), "ID"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "ID"),
    (re.compile(r"\bnode-[0-9A-Za-z]{8}\b"), "NODE"),
    (re.compile(r"\bzone\d-rack\d-host\d\b"), "HOST"),
    (re.compile(r"\bzone\d\b"), "ZONE"),
    (re.compile(r"\brack \d+"), "RACK"),
    (re.compile(r"\d+ % "), "SHARE "),
    (re.compile(r"\b\d+\.\d+\.\d+\b"), "GENERATION"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.\d]*(Z|\+00:00)?"), "TIME"),
)


@dataclass(frozen=True)
class Step:
    """A command, and what the page says that it prints; nothing, if it does not say."""

    command: str
    output: str


def steps(text: str) -> Iterator[Step]:
    """The commands of a block. One goes on over lines that end with a backslash or are inside quotes."""
    command, output, inside = "", "", False
    for line in text.splitlines():
        if line.startswith("$ "):
            if command:
                yield Step(command, output)
            command, output, inside = line[2:], "", _goes_on(line[2:])
        elif inside:
            command += f"\n{line}"
            inside = _goes_on(command)
        else:
            output += f"{line}\n"
    if command:
        yield Step(command, output)


def _goes_on(command: str) -> bool:
    return command.endswith("\\") or command.count("'") % 2 == 1


def lines(text: str) -> list[str]:
    """What matters of an output: no borders and widths of tables, and names in place of what differs each time."""
    found: list[str] = []
    for line in text.splitlines():
        if set(line) <= set("+-| "):
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else [line.strip()]
        if found and line.startswith("|") and not cells[0]:
            found[-1] += " " + " ".join(cells[1:])
        else:
            found.append(" | ".join(cells))
    return [_named(line) for line in found]


def _named(line: str) -> str:
    for pattern, name in _NAMES:
        line = pattern.sub(name, line)
    return re.sub(r"\s+", " ", line).strip()


def matches(expected: list[str], printed: list[str]) -> bool:
    """Whether the lines are the same, where `...` stands for any."""
    pattern = "".join(r"(?:.*\n)*" if line == "..." else re.escape(line) + r"\n" for line in expected)
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in printed)) is not None


@pytest.fixture
def roost(folders: Path, request: pytest.FixtureRequest) -> Iterator[Served]:
    served = serve(folders / f"page-{Path(request.node.callspec.params['page']).stem}")
    yield served
    served.process.terminate()
    served.process.wait(30)


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_do_what_it_says(page: str, roost: Served, tmp_path: Path) -> None:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("OS_")},
        "OS_CLIENT_CONFIG_FILE": str(roost.clouds),
        "OS_CLOUD": "roost",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "COLUMNS": "200",
        "PYTHONWARNINGS": "ignore",
    }
    ran = 0
    shell = subprocess.Popen(
        ["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert shell.stdin is not None
    assert shell.stdout is not None
    for block in _BLOCK.finditer((ROOT / page).read_text()):
        if block["kind"] == "yaml":
            named = re.match(r"# ([\w-]+\.yaml)", block["text"])
            if named:
                (tmp_path / named[1]).write_text(block["text"])
            continue
        for step in () if block["note"] else steps(block["text"]):
            shell.stdin.write(f'{step.command}\necho "=== $?"\n')
            shell.stdin.flush()
            printed = ""
            while (end := re.search(r"^=== (\d+)\n", printed, re.M)) is None:
                read = shell.stdout.readline()
                assert read, f"{page}: the shell ended at: {step.command}"
                printed += read
            printed = printed[: end.start()]
            if step.output.strip():
                expected = lines(step.output)
                assert matches(expected, lines(printed)), f"{page}: {step.command}\n{printed}"
            else:
                assert end[1] == "0", f"{page}: {step.command}\n{printed}"
            ran += 1
    shell.stdin.close()
    shell.wait(10)
    assert ran
