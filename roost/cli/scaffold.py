"""`roost policy new` and `roost profile new`: a package with a type, its test and its entry point, to begin with."""

import re
from pathlib import Path

from roost.errors import Invalid

_PYPROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{package}"
version = "0.1.0"
dependencies = ["roost"]

[project.entry-points."roost.{group}"]
{module} = "{module}:{name}"

[tool.setuptools]
py-modules = ["{module}"]
"""

_POLICY = '''\
"""Counts how often a cluster has been scaled out, and stops at a limit."""

from roost.policies import (
    AFTER,
    BEFORE,
    EXPERIMENTAL,
    ActionName,
    ActionView,
    Integer,
    InvalidSpec,
    Policy,
)


class {name}(Policy):
    """Lets a cluster scale out only so many times."""

    TYPE = "{type}"
    VERSIONS = {{"1.0": [{{"status": EXPERIMENTAL, "since": "2026.11"}}]}}
    TARGET = [(BEFORE, ActionName.CLUSTER_SCALE_OUT), (AFTER, ActionName.CLUSTER_SCALE_OUT)]
    spec_schema = {{"times": Integer("How many times the cluster may scale out.", default=10)}}

    def check_spec(self) -> None:
        if self.spec_data["times"] < 0:
            raise InvalidSpec("The 'times' must be >= 0.")

    def pre_op(self, cluster_id: str, action: ActionView) -> None:
        done = action.cluster.data.get(self.TYPE, 0)
        if done >= self.spec_data["times"]:
            action.refuse(f"It has scaled out {{done}} times.")

    def post_op(self, cluster_id: str, action: ActionView) -> None:
        if action.succeeded:
            action.effects.cluster_data[self.TYPE] = action.cluster.data.get(self.TYPE, 0) + 1
'''

_POLICY_TEST = """\
from roost.policies import ActionName
from roost.policies.testing import Harness, assert_conforms

from {module} import {name}


def test_it_conforms() -> None:
    assert_conforms({name})


async def _twice() -> list[str | None]:
    harness = Harness().attached({name}, times=1)
    return [(await harness.run(ActionName.CLUSTER_SCALE_OUT, count=1)).refusal for _ in range(2)]


def test_it_remembers() -> None:
    import asyncio

    first, second = asyncio.run(_twice())
    assert first is None
    assert second is not None and "It has scaled out 1 times." in second
"""

_PROFILE = '''\
"""Nodes that are servers of one flavor and image."""

from collections.abc import Mapping, Sequence
from typing import Any

from roost.profiles import EXPERIMENTAL, Cloud, NodeOutcome, NodeView, Profile, ServerRequest, String


class {name}(Profile):
    """Nodes that are plain servers."""

    TYPE = "{type}"
    VERSIONS = {{"1.0": [{{"status": EXPERIMENTAL, "since": "2026.11"}}]}}
    spec_schema = {{
        "flavor": String("The flavor of the servers.", required=True),
        "image": String("The image of the servers.", required=True),
    }}

    async def create(self, cloud: Cloud, nodes: Sequence[NodeView], cluster_id: str | None) -> list[NodeOutcome]:
        given = self.spec_data
        requests = [ServerRequest(node.id, node.name, given["flavor"], given["image"]) for node in nodes]
        made = await cloud.create_servers(requests)
        return [NodeOutcome(one.node_id, one.error is None, one.server_id, one.error or "") for one in made]

    async def delete(self, cloud: Cloud, nodes: Sequence[NodeView], *, force: bool = False) -> list[NodeOutcome]:
        servers = {{node.id: node.physical_id for node in nodes}}
        reasons = await cloud.delete_servers([each for each in servers.values() if each], force=force)
        return [
            NodeOutcome(node.id, servers[node.id] not in reasons, None, reasons.get(servers[node.id] or "", ""))
            for node in nodes
        ]

    async def check(self, cloud: Cloud, nodes: Sequence[NodeView]) -> list[NodeOutcome]:
        found = await cloud.show_servers([node.physical_id for node in nodes if node.physical_id])
        return [
            NodeOutcome(node.id, node.physical_id in found, node.physical_id, "The server is gone.") for node in nodes
        ]

    async def update(self, cloud: Cloud, nodes: Sequence[NodeView], new: Profile) -> list[NodeOutcome]:
        return [NodeOutcome(node.id, False, node.physical_id, "Recreate the nodes instead.") for node in nodes]

    async def recover(
        self, cloud: Cloud, nodes: Sequence[NodeView], operation: str, params: Mapping[str, Any], cluster_id: str | None
    ) -> list[NodeOutcome]:
        await self.delete(cloud, nodes)
        return await self.create(cloud, nodes, cluster_id)

    async def operate(
        self, cloud: Cloud, nodes: Sequence[NodeView], operation: str, params: Mapping[str, Any]
    ) -> list[NodeOutcome]:
        return [NodeOutcome(node.id, False, node.physical_id, "There are no operations.") for node in nodes]
'''

_PROFILE_TEST = """\
from roost.profiles.testing import assert_conforms

from {module} import {name}


def test_it_conforms() -> None:
    assert_conforms({name}, flavor="m1.tiny", image="cirros")
"""

_KINDS = {"policy": ("policies", _POLICY, _POLICY_TEST), "profile": ("profiles", _PROFILE, _PROFILE_TEST)}


def write(kind: str, name: str, parent: Path) -> Path:
    """Write a package for a policy or a profile type into a new folder; where it is."""
    if not re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", name):
        raise Invalid(f"'{name}' cannot name a package: use lower-case words with hyphens, such as night-watch.")
    group, code, test = _KINDS[kind]
    module = name.replace("-", "_")
    words = {
        "package": name,
        "module": module,
        "group": group,
        "name": "".join(part.capitalize() for part in module.split("_")) + kind.capitalize(),
        "type": f"{module}.{kind}",
    }
    folder = parent / name
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise Invalid(f"{folder} already exists.") from None
    (folder / "tests").mkdir()
    (folder / "pyproject.toml").write_text(_PYPROJECT.format(**words))
    (folder / f"{module}.py").write_text(code.format(**words))
    (folder / "tests" / f"test_{module}.py").write_text(test.format(**words))
    return folder
