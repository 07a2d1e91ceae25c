"""The files in deploy/container name commands, settings, routes, packages and paths; each of them exists."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from roost.api.service import routes
from roost.cli import bootstrap, checks
from roost.cli.main import parser

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "container"
LINES = [line for line in (FOLDER / "Containerfile").read_text().splitlines() if not line.startswith("#")]
STEPS = dict(line.split(maxsplit=1) for line in "\n".join(LINES).replace("\\\n", "").splitlines() if line)
"""The lines of the Containerfile by their first word."""
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"] == "localhost/roost"}
MADE_BY_THE_OPERATOR = {"roost.pem"}


def mounts(service: dict[str, Any]) -> dict[str, Path]:
    """What a service finds at which path, in the folders of the project."""
    pairs = (volume.split(":")[:2] for volume in service["volumes"])
    return {target: (FOLDER / source).resolve() for source, target in pairs if source.startswith(".")}


def asked(words: list[str]) -> str:
    """The URL that a health check asks for."""
    found = re.search(r"urlopen\('http://127.0.0.1:([^']+)'", words[-1])
    assert found is not None, words
    return found[1]


def listens(command: list[str]) -> str:
    return command[command.index("--listen") + 1].rpartition(":")[2]


@pytest.mark.parametrize("command", [*(each["command"] for each in OURS.values()), json.loads(STEPS["CMD"])], ids=str)
def test_every_command_is_one_of_roost_and_reads_the_settings_that_are_mounted(command: list[str]) -> None:
    assert json.loads(STEPS["ENTRYPOINT"]) == ["roost"]
    options = parser().parse_args(command)
    assert str(options.config) == "/etc/roost/roost.conf"
    assert all(mounts(service)[str(options.config)] == FOLDER / "roost.conf" for service in OURS.values())


def test_nothing_is_wrong_with_the_settings() -> None:
    assert checks.run(FOLDER / "roost.conf") == 0


def test_the_image_runs_as_a_user_of_its_own_from_packages_that_exist() -> None:
    assert f" {STEPS['USER']} " in f"{STEPS['RUN']} "
    assert STEPS["USER"] != "root"
    installed = re.search(r"'roost\[(.+?)\]'", STEPS["RUN"])
    collected = re.search(r"dist/roost-\*\.whl\)\[(.+?)\]", (ROOT / "Makefile").read_text())
    assert installed is not None
    assert collected is not None
    assert installed[1] == collected[1]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(installed[1].split(",")) <= project["optional-dependencies"].keys()


def test_health_checks_ask_for_what_the_process_serves() -> None:
    check = STEPS["HEALTHCHECK"]
    api = asked(json.loads(check[check.index("[") :]))
    assert api == f"{listens(json.loads(STEPS['CMD']))}/readiness"
    assert "/readiness" in {route.path for route in routes.routes}
    for name, service in OURS.items():
        if name.startswith("api"):
            assert api.startswith(f"{listens(service['command'])}/")  # the check of the image
        elif name.startswith("engine"):
            assert asked(service["healthcheck"]["test"]) == f"{listens(service['command'])}/metrics"
        else:
            assert service["healthcheck"] == {"disable": True}


def test_every_variable_is_read_and_no_secret_is_written_down() -> None:
    for service in OURS.values():
        assert service["environment"].keys() <= {"ROOST_DATABASE_URL", bootstrap.PASSWORD}
        assert "${DATABASE_PASSWORD:?" in service["environment"]["ROOST_DATABASE_URL"]
    for service in SERVICES.values():
        for name, value in service["environment"].items():
            assert "PASSWORD" not in name or re.fullmatch(r"\$\{\w+:\?.+\}", value)
    assert not re.search("password|secret", (FOLDER / "Containerfile").read_text(), re.IGNORECASE)


def test_the_database_is_made_ready_before_anything_is_served() -> None:
    before = {name: set(service.get("depends_on", {})) for name, service in SERVICES.items()}
    assert before["upgrade"] == {"database"}
    assert before["bootstrap"] == {"upgrade"}
    assert all(before[name] == {"bootstrap"} for name in OURS.keys() - {"upgrade", "bootstrap"})
    assert OURS["upgrade"]["command"][:2] == ["db", "upgrade"]
    assert OURS["bootstrap"]["command"][0] == "bootstrap"


def test_the_proxy_finds_both_apis_with_the_file_in_deploy() -> None:
    proxy = SERVICES["proxy"]
    settings = mounts(proxy)["/usr/local/etc/haproxy/haproxy.cfg"].read_text()
    for variable, address in proxy["environment"].items():
        assert f"${{{variable}-" in settings
        name, _, port = address.partition(":")
        assert port == listens(OURS[name]["command"])
    certificate = re.search(r"crt (\S+)", settings)
    assert certificate is not None
    assert certificate[1] in mounts(proxy)
    assert len(set(proxy["environment"].values())) == settings.count("    server api") == 2


def test_every_file_that_is_mounted_exists_or_is_said_to_be_the_operators() -> None:
    for service in SERVICES.values():
        for path in mounts(service).values():
            assert path.exists() or path.name in MADE_BY_THE_OPERATOR
            assert path.name in (FOLDER / "compose.yaml").read_text()


def test_the_database_has_a_connection_for_every_pool() -> None:
    settings = (FOLDER / "roost.conf").read_text()
    pool = sum(int(number) for number in re.findall(r"^(?:pool_size|max_overflow) = (\d+)", settings, re.MULTILINE))
    running = [name for name in OURS if name.startswith(("api", "engine"))]
    most = next(word for word in SERVICES["database"]["command"] if word.startswith("max_connections="))
    assert pool * len(running) < int(most.partition("=")[2])
