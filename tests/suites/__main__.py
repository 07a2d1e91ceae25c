"""Run the functional tests of OpenStack's clients, each suite on its own Roost: python -m tests.suites [SUITE ...].

The clients and their tests live in .venv-suites, as published. `expected/SUITE.txt` lists the tests that cannot pass,
under the reason; a test that fails and is not in it, or is in it and passes, is an error.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.conftest import Served
from tests.suites.serving import start

HERE = Path(__file__).parent
BIN = HERE.parents[1] / ".venv-suites" / "bin"

# The longest first: they run side by side.
SUITES: Mapping[str, tuple[str, ...]] = {
    "openstacksdk": tuple(
        f"openstack.tests.functional.{part}"
        for part in ("identity", "image", "clustering", "cloud", "compute", "network")
    ),
    "openstackclient-identity": ("openstackclient.tests.functional.identity.v3",),
    "openstackclient-compute": ("openstackclient.tests.functional.compute",),
    "novaclient": tuple(
        f"novaclient.tests.functional.v2.{part}"
        for part in (
            *("legacy.test_readonly_nova", "legacy.test_keypairs", "legacy.test_server_groups"),
            *("test_aggregates", "test_server_groups"),
        )
    ),
    "openstackclient-common": ("openstackclient.tests.functional.common",),
    "openstackclient-image": ("openstackclient.tests.functional.image",),
    "glanceclient": ("glanceclient.tests.functional.v2",),
}
SHORT = (HERE / "short.txt").read_text().split()
"""A few tests of each suite, for CI."""
CLOUDS = {
    "devstack": "roost",
    "devstack-alt": "roost-alt",
    "devstack-admin": "roost-admin",
    "devstack-system-admin": "roost-admin",
    "functional_admin": "roost-admin",
}
"""The names that the suites have for what `roost serve` writes into clouds.yaml."""


@dataclass(frozen=True)
class Outcome:
    """What came of one test."""

    name: str
    result: str
    """`passed`, `failed` or `skipped`."""
    message: str


def main() -> int:
    """Run suites side by side, each on a Roost of its own; 0 if everything came as expected."""
    parser = argparse.ArgumentParser(prog="python -m tests.suites", description="Run the clients' own tests on Roost.")
    parser.add_argument("suite", nargs="*", help=f"one of {', '.join(SUITES)}, or the names of tests; all if none")
    parser.add_argument("--short", action="store_true", help="only the few tests that CI runs")
    parser.add_argument("--messages", action="store_true", help="say of each test that failed what it said last")
    parser.add_argument("--at-once", type=int, default=2, help="how many suites run side by side (2)")
    arguments = parser.parse_args()
    wanted = SHORT if arguments.short else arguments.suite
    named = [word for word in wanted if word not in SUITES]
    suites = [word for word in wanted if word in SUITES] or ([] if named else list(SUITES))
    runs = {"chosen": named} if named else {name: list(SUITES[name]) for name in suites}
    with ThreadPoolExecutor(arguments.at_once) as threads:
        wrong = list(threads.map(lambda name: _whole(name, runs[name], arguments.messages), runs))
    return 1 if any(wrong) else 0


def _whole(suite: str, parts: list[str], messages: bool) -> bool:
    """Run a suite on a Roost of its own; whether anything came otherwise than expected."""
    with tempfile.TemporaryDirectory(prefix="roost-suites-", ignore_cleanup_errors=True) as folder:
        served = start(Path(folder))
        try:
            _prepare(served, Path(folder))
            started = time.monotonic()
            outcomes = _run(parts, Path(folder))
        finally:
            served.process.terminate()
            served.process.wait(60)
    lines, wrong = _judge(suite, outcomes, time.monotonic() - started, messages)
    print("\n".join(lines), flush=True)
    return wrong


def _prepare(served: Served, folder: Path) -> None:
    """What devstack would have made: the clouds under its names, and room for the tests."""
    written = yaml.safe_load(served.clouds.read_text())["clouds"]
    clouds = {name: dict(written[ours]) for name, ours in CLOUDS.items()}
    system = {key: value for key, value in clouds["devstack-system-admin"]["auth"].items() if "project" not in key}
    clouds["devstack-system-admin"]["auth"] = {**system, "system_scope": "all"}
    (folder / "CONTRIBUTING.rst").write_text("What the tests of openstacksdk upload: they run where its source is.\n")
    (folder / "clouds.yaml").write_text(yaml.safe_dump({"clouds": clouds}))


def _run(names: list[str], folder: Path) -> list[Outcome]:
    """Run tests, given by module, class or method, as a user would who installed the packages."""
    report = folder / "outcomes"
    report.unlink(missing_ok=True)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("OS_", "PYTHON"))}
    environment |= {
        "HOME": str(folder),
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "PYTHONPATH": str(HERE / "plugin"),
        "OS_NOVACLIENT_EXEC_DIR": str(BIN),
        "OS_GLANCECLIENT_EXEC_DIR": str(BIN),
        "TOX_ENV_DIR": str(BIN.parent),
        "OPENSTACKSDK_FUNC_TEST_TIMEOUT": "60",
        "OS_TEST_TIMEOUT": "280",
    }
    command = [str(BIN / "python"), "-m", "pytest", "-q", "-p", "in_process", "--outcomes", str(report)]
    command += ["--timeout", "300", "--tb", "short", "-rN", "--pyargs", *(_argument(name) for name in names)]
    log = folder / "pytest.log"
    with log.open("wb") as output:
        subprocess.run(command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT)
    if not report.exists():
        raise SystemExit(log.read_text()[-5000:])
    return [Outcome(**json.loads(line)) for line in report.read_text().splitlines()]


def _argument(name: str) -> str:
    """A test as pytest wants it: the module, then the class and the method."""
    module, *inner = _split(name)
    return "::".join([module, *inner])


def _split(name: str) -> Iterator[str]:
    parts = name.split(".")
    start = next((place for place, part in enumerate(parts) if part[:1].isupper()), len(parts))
    yield ".".join(parts[:start])
    yield from parts[start:]


def _expected(suite: str) -> dict[str, str]:
    """The tests that cannot pass, with the reason of each: the comment above it."""
    files = sorted((HERE / "expected").glob("*.txt")) if suite == "chosen" else [HERE / "expected" / f"{suite}.txt"]
    reasons: dict[str, str] = {}
    for file in files:
        reason = ""
        for line in file.read_text().splitlines() if file.exists() else ():
            if line.startswith("#"):
                reason = line.removeprefix("#").strip()
            elif line.strip():
                reasons[line.strip()] = reason
    return reasons


def _judge(suite: str, outcomes: list[Outcome], seconds: float, messages: bool) -> tuple[list[str], bool]:
    """What came of a suite, in lines; whether anything came otherwise than expected."""
    expected = _expected(suite)
    results: dict[str, Outcome] = {}
    for outcome in outcomes:
        before = results.get(outcome.name)
        results[outcome.name] = outcome if before is None or before.result != "failed" else before
    counts = Counter(outcome.result for outcome in results.values())
    what = f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped"
    lines = [f"{suite}: {what} in {seconds:.0f} s"]
    failed = {name for name, outcome in results.items() if outcome.result == "failed"}
    unexpected = sorted(failed - expected.keys())
    # A whole class of tests may stand in the list, and a test that is not run says nothing.
    better = sorted(name for name in expected if name in results and results[name].result == "passed")
    for name in unexpected:
        lines.append(f"FAILED: {name}")
        if messages:
            lines.append("    " + results[name].message[-900:].replace("\n", "\n    "))
    for name in better:
        lines.append(f"PASSED, though it was not expected to: {name}")
    return lines, bool(unexpected or better)


if __name__ == "__main__":
    sys.exit(main())
