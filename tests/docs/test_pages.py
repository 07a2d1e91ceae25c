"""The console blocks of each page, run in order on a fresh Roost with the real clients, print what the page says.

A `yaml` block that begins with a comment such as `# web.yaml: …` becomes that file. What cannot be run here has a
comment `<!-- not run: why -->` before the block; its syntax is checked. A block after `<!-- needs PROGRAM -->` is run
where the program is installed. A line `...` in an output stands for any lines.
"""

import os
import re
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import commands
from tests.cli.test_processes import free_port
from tests.conftest import Served, serve

ROOT = Path(__file__).parent.parent.parent
_NOTES = r"(?P<note> *<!-- not run: [^\n]+ -->\n)?(?: *<!-- needs (?P<needs>\S+) -->\n)?"
_BLOCK = re.compile(_NOTES + r"(?P<indent> *)```(?P<kind>console|yaml)\n(?P<text>.*?)(?P=indent)```", re.S)
_UNPACKED = ROOT / ".venv-prometheus"
PROGRAMS = f"{Path(sys.executable).parent}:{_UNPACKED / 'bin'}:{_UNPACKED / 'usr' / 'bin'}:{os.environ['PATH']}"
_SECONDS = 180
TEXTS = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if "```console" in path.read_text()
}
PAGES = [
    page
    for page, text in TEXTS.items()
    if any(block["kind"] == "console" and not block["note"] for block in _BLOCK.finditer(text))
]

_NAMES = (
    (re.compile(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}"), "ID"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "ID"),
    (re.compile(r"\bnode-[0-9A-Za-z]{8}\b"), "NODE"),
    (re.compile(r"\bzone\d-rack\d-host\d\b"), "HOST"),
    (re.compile(r"\bzone\d\b"), "ZONE"),
    (re.compile(r"\brack \d+"), "RACK"),
    (re.compile(r"\d+ % "), "SHARE "),
    (re.compile(r"\b\d+ of 48 hosts passed"), "SOME hosts passed"),
    (re.compile(r"\b\d+ hosts are in a rack of another"), "SOME hosts are in a rack of another"),
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
    for line in textwrap.dedent(text).splitlines():
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


@pytest.fixture(scope="module")
def client(folders: Path) -> Iterator[Path]:
    """A folder with an `openstack` that need not import everything each time."""
    folder = folders / "client"
    folder.mkdir()
    command = [sys.executable, "-W", "ignore", str(Path(__file__).parent / "quick_openstack.py"), str(folder)]
    process = subprocess.Popen(command)
    until = time.monotonic() + 120
    while not (folder / "openstack").exists():
        assert time.monotonic() < until
        assert process.poll() is None
        time.sleep(0.1)
    yield folder
    process.terminate()
    process.wait(30)


@pytest.fixture(scope="module")
def fresh(folders: Path) -> Path:
    """The folder of a Roost that has just been set up: a copy of it starts sooner than a new one."""
    served = serve(folders / "fresh")
    served.process.terminate()
    served.process.wait(30)
    return served.folder


@pytest.fixture
def roost(fresh: Path, request: pytest.FixtureRequest) -> Iterator[Served]:
    folder = fresh.parent / re.sub(r"\W+", "-", request.node.callspec.params["page"])
    subprocess.run(["cp", "-a", str(fresh), str(folder)], check=True)
    served = serve(folder)
    yield served
    served.process.terminate()
    served.process.wait(30)


@dataclass
class Shell:
    """A shell in a folder like a checkout in which `make serve` runs."""

    process: "subprocess.Popen[str]"

    def run(self, command: str) -> tuple[int, str]:
        """What a command came to, and all that it printed."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f'{command}\necho "=== $?"\n')
        self.process.stdin.flush()
        printed = ""
        # A command that does not end must not hold up all tests.
        late = threading.Timer(_SECONDS, self.process.kill)
        late.start()
        while (end := re.search(r"^=== (\d+)\n", printed, re.M)) is None:
            read = self.process.stdout.readline()
            assert read, f"the shell ended, or {_SECONDS} seconds passed, at: {command}\n{printed}"
            printed += read
        late.cancel()
        return int(end[1]), printed[: end.start()]


@pytest.fixture
def shell(roost: Served, client: Path, tmp_path: Path) -> Iterator[Shell]:
    (tmp_path / ".roost").symlink_to(roost.folder)
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "openstack").symlink_to(client / "openstack")
    (programs / "roost").symlink_to(Path(sys.executable).parent / "roost")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("OS_", "ROOST_"))},
        "OS_CLIENT_CONFIG_FILE": str(roost.clouds),
        "OS_CLOUD": "roost",
        "PATH": f"{programs}:{PROGRAMS}",
        "COLUMNS": "200",
        "PYTHONWARNINGS": "ignore",
    }
    process = subprocess.Popen(
        ["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        cwd=tmp_path, env=environment,
    )  # fmt: skip
    yield Shell(process)
    assert process.stdin is not None
    process.stdin.close()
    process.wait(10)


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_do_what_it_says(page: str, shell: Shell, tmp_path: Path) -> None:
    port = free_port()
    for block in _BLOCK.finditer(TEXTS[page]):
        if block["kind"] == "yaml":
            named = re.match(r"# ([\w-]+\.ya?ml)", block["text"])
            if named:
                (tmp_path / named[1]).write_text(block["text"])
            continue
        runs = not block["note"] and (not block["needs"] or shutil.which(block["needs"], path=PROGRAMS))
        for step in steps(block["text"]) if runs else ():
            status, printed = shell.run(step.command.replace("9093", str(port)))
            if step.output.strip():
                assert matches(lines(step.output), lines(printed)), f"{page}: {step.command}\n{printed}"
            else:
                assert status == 0, f"{page}: {step.command}\n{printed}"


@pytest.mark.parametrize("page", TEXTS)
def test_what_is_not_run_can_be_typed(page: str) -> None:
    for block in _BLOCK.finditer(TEXTS[page]):
        for step in steps(block["text"]) if block["kind"] == "console" and block["note"] else ():
            subprocess.run(["bash", "-n"], input=step.command, text=True, check=True)
            commands.check(step.command)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "lab/README.md"])
def test_the_links_of_a_page_outside_the_site_lead_somewhere(page: str) -> None:
    """`make docs` checks those of the site."""
    text = (ROOT / page).read_text()
    linked = re.findall(r"\]\((?!https?:)([^)#]+)", text) + re.findall(r'(?:href|src)="(?!https?:)([^"#]+)', text)
    assert [link for link in linked if not (ROOT / page).parent.joinpath(link).exists()] == []
