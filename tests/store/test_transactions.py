"""Nothing slow happens in a transaction: it keeps a connection, and perhaps locks, from others, and PostgreSQL ends one
that is silent for four seconds."""

import ast
import asyncio
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench import processes
from roost.identity import users
from roost.store import database as store
from tests.conftest import Api

ROOT = Path(__file__).parents[2]
SLOW = ("to_thread", "run_in_executor", "getaddrinfo", "generate_private_key", "safe_load", "_hasher")
"""What is called for work that takes long: here, in other threads, in other processes or on other machines."""
KNOWN = {
    "roost.compute.groups.notifications.send_batch": "what was sent is forgotten in it: it is patient",
    "roost.clusters.actions.rehearsals.rehearse": "policies are asked about what is undone after",
}
"""Functions that do so in a transaction, and why."""


class Calls:
    """Which function of Roost calls which, and which calls are made in a transaction. Methods are known by their class
    only where they are called on `self`."""

    def __init__(self) -> None:
        self.all: dict[str, set[str]] = defaultdict(set)
        self.held: dict[str, set[str]] = defaultdict(set)
        for path in sorted((ROOT / "roost").rglob("*.py")):
            self._module = str(path.relative_to(ROOT).with_suffix("")).replace("/", ".").removesuffix(".__init__")
            tree = ast.parse(path.read_text())
            self._imported = dict(_imported(tree))
            for node in tree.body:
                for each in node.body if isinstance(node, ast.ClassDef) else [node]:
                    if isinstance(each, ast.AsyncFunctionDef | ast.FunctionDef):
                        self._read(each, f"{self._module}.{each.name}", held=False)

    def slow(self) -> set[str]:
        """What takes long, or calls what does and is not known to."""
        called = {callee for callees in self.all.values() for callee in callees}
        found = {callee for callee in called if set(SLOW) & set(callee.split("."))}
        while more := {each for each, callees in self.all.items() if callees & found} - found - KNOWN.keys():
            found |= more
        return found

    def _read(self, node: ast.AST, function: str, *, held: bool) -> None:
        if isinstance(node, ast.Call):
            callee = self._name(node.func)
            self.all[function].add(callee)
            if held:
                self.held[function].add(callee)
        if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef):
            held = held or _has_connection(node)
        for child in ast.iter_child_nodes(node):
            self._read(child, function, held=held)
            # What is entered first holds for what is entered next, and for all that is within.
            held = held or (isinstance(child, ast.withitem) and _begins(child.context_expr))

    def _name(self, called: ast.expr) -> str:
        first, *rest = ast.unparse(called).split(".")
        if first == "self" or (first not in self._imported and not rest):
            return ".".join([self._module, *(rest or [first])])
        return ".".join([self._imported.get(first, first), *rest])


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.asname, alias.name) for alias in node.names if alias.asname)
        elif isinstance(node, ast.ImportFrom):
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


_CONNECTIONS = ("AsyncConnection", "Connection", "RequestContext")


def _has_connection(function: ast.AsyncFunctionDef | ast.FunctionDef) -> bool:
    given = (each.annotation for each in (*function.args.args, *function.args.kwonlyargs))
    return any(each is not None and ast.unparse(each) in _CONNECTIONS for each in given)


def _begins(context: ast.expr) -> bool:
    called = context.func if isinstance(context, ast.Call) else context
    return isinstance(called, ast.Attribute) and called.attr in ("begin", "autocommit")


def test_nothing_slow_is_called_in_a_transaction() -> None:
    calls = Calls()
    slow = calls.slow()
    assert {"roost.identity.users.hashed", "roost.clusters.urls.fetch", "roost.clusters.bindings.consult"} <= slow
    found = {function: callees & slow for function, callees in calls.held.items() if callees & slow}
    assert found.keys() == KNOWN.keys(), found


# Passwords, which are slow by design


@pytest.fixture
def slow_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that has much more to do."""
    at_once = users._slowly

    async def slowly(*work: Any) -> Any:
        await asyncio.sleep(0.5)
        return await at_once(*work)

    monkeypatch.setattr(users, "_slowly", slowly)

    # A transaction may not be silent for as long as that.
    monkeypatch.setattr(store, "Limits", partial(store.Limits, idle=0.3))


async def test_a_password_takes_no_time_of_a_transaction(slow_passwords: None, api: Api) -> None:
    asked = {"user": {"name": "ada", "password": "lovelace"}}
    made = await api.post("/identity/v3/users", asked)
    assert made.status_code == 201, made.text
    path = f"/identity/v3/users/{made.json()['user']['id']}"
    changed = await api.patch(path, json={"user": {"password": "byron"}})
    assert changed.status_code == 200, changed.text
    own = {"user": {"original_password": "byron", "password": "king"}}
    assert (await api.post(f"{path}/password", own, cloud=None)).status_code == 204
    who = (await api.get("/identity/v3/auth/tokens", headers={"X-Subject-Token": await api.token("roost")})).json()
    credentials = f"/identity/v3/users/{who['token']['user']['id']}/application_credentials"
    credential = await api.post(credentials, {"application_credential": {"name": "robot"}}, cloud="roost")
    assert credential.status_code == 201, credential.text


async def test_passwords_for_a_benchmark_take_no_time_of_a_transaction(slow_passwords: None, database_url: str) -> None:
    await processes._prepare(database_url)
