"""`roost bootstrap`: the first steps on a database of the operator's own, as docs/operators.md has them."""

import re
from pathlib import Path

import httpx

from roost.store import schema
from tests.cli.test_main import roost, said
from tests.cli.test_processes import free_port, running, wait_for


def _sign_in(port: int, user: str, password: str) -> int:
    person = {"name": user, "domain": {"id": "default"}, "password": password}
    scope = {"project": {"name": "ops", "domain": {"id": "default"}}}
    body = {"auth": {"identity": {"methods": ["password"], "password": {"user": person}}, "scope": scope}}
    answer = httpx.post(f"http://127.0.0.1:{port}/identity/v3/auth/tokens", json=body, timeout=60)
    if answer.status_code == 201:
        assert "admin" in [role["name"] for role in answer.json()["token"]["roles"]]
    return answer.status_code


def test_the_first_administrator_is_made_once_and_can_sign_in(empty_url: str) -> None:
    schema.upgrade(empty_url)
    first = roost("bootstrap", "--user", "ada", "--project", "ops", ROOST_DATABASE_URL=empty_url)
    assert first.returncode == 0, first.stderr
    assert "User ada: made, with the role admin in the project ops." in first.stdout
    assert "Flavors: m1.tiny" in first.stdout
    [password] = re.findall(r"not shown again: (\S+)", first.stdout)
    again = roost("bootstrap", "--user", "ada", "--project", "ops", ROOST_DATABASE_URL=empty_url)
    assert again.returncode == 0, again.stderr
    assert "User ada: there already" in again.stdout
    assert "was not changed" in again.stdout
    assert password not in again.stdout
    port = free_port()
    with running("api", empty_url, "--listen", f"127.0.0.1:{port}"):
        wait_for(f"http://127.0.0.1:{port}/readiness")
        assert _sign_in(port, "ada", password) == 201
        chosen = {"ROOST_DATABASE_URL": empty_url, "ROOST_ADMIN_PASSWORD": "a new and long one"}
        third = roost("bootstrap", "--user", "ada", "--project", "ops", **chosen)
        assert "a new and long one" not in third.stdout
        assert _sign_in(port, "ada", "a new and long one") == 201


def test_where_users_are_keystones_there_is_nothing_to_bootstrap(empty_url: str, tmp_path: Path) -> None:
    file = tmp_path / "roost.conf"
    file.write_text("[auth]\nstrategy = keystone\n")
    message = said(roost("bootstrap", "--config", str(file), ROOST_DATABASE_URL=empty_url))
    assert message == "Users and projects are Keystone's here ([auth] strategy): there is nothing to bootstrap."
