"""For the tests of authors: the suite that every profile type passes.

def test_conforms() -> None:
    assert_conforms(ContainerProfile, image="cirros")
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from roost.clusters.policies.base import NodeView
from roost.clusters.profiles import base
from roost.clusters.profiles.base import NodeOutcome, Profile
from roost.clusters.spec import InvalidSpec
from roost.clusters.states import NodeStatus, Recovery
from roost.policies.memory import MemoryCloud

__all__ = ["MemoryCloud", "assert_conforms", "problems"]


def assert_conforms(kind: type[Profile], *, cloud: MemoryCloud | None = None, **properties: Any) -> None:
    """Fail with one line for each thing that is wrong with a profile type; `properties` are those of a valid spec."""
    found = asyncio.run(problems(kind, cloud=cloud, **properties))
    assert not found, "\n".join(found)


async def problems(kind: type[Profile], *, cloud: MemoryCloud | None = None, **properties: Any) -> list[str]:
    """What is wrong with a profile type: how it is declared, and whether it makes, finds and unmakes nodes."""
    sentence = base.nonconformity(kind)
    if sentence:
        return [sentence]
    there, found = cloud or MemoryCloud(), []
    for version in kind.VERSIONS:
        spec = {"type": kind.TYPE, "version": version, "properties": properties}
        try:
            profile = kind("conforming", spec, id="profile-1")
        except InvalidSpec as error:
            return [f"version {version} refuses the properties: {error.message}"]
        found += [f"version {version}, {problem}" for problem in await _life_of(profile, there)]
    return found


async def _life_of(profile: Profile, cloud: MemoryCloud) -> list[str]:
    """Two nodes are made twice, checked, recovered, and unmade twice: the second time changes nothing."""
    nodes = [
        NodeView(f"node-{number}", f"n{number}", number, "", NodeStatus.INIT, None, profile.id, None, False, {})
        for number in (1, 2)
    ]
    found: list[str] = []
    made = await _outcomes("create", nodes, lambda: profile.create(cloud, nodes, "cluster-1"), found)
    again = await _outcomes("create again", nodes, lambda: profile.create(cloud, nodes, "cluster-1"), found)
    if [outcome.physical_id for outcome in made] != [outcome.physical_id for outcome in again]:
        found.append("create made a second thing for a node that had one.")
    nodes = [node._replace(physical_id=one.physical_id) for node, one in zip(nodes, made, strict=False)]
    await _outcomes("check", nodes, lambda: profile.check(cloud, nodes), found)
    await _outcomes("recover", nodes, lambda: profile.recover(cloud, nodes, Recovery.RECREATE, {}, "cluster-1"), found)
    await _outcomes("delete", nodes, lambda: profile.delete(cloud, nodes), found)
    await _outcomes("delete again", nodes, lambda: profile.delete(cloud, nodes), found)
    return found


async def _outcomes(
    what: str, nodes: Sequence[NodeView], do: Callable[[], Awaitable[list[NodeOutcome]]], found: list[str]
) -> list[NodeOutcome]:
    try:
        outcomes = await do()
    except Exception as error:
        found.append(f"{what} failed with {type(error).__name__}: {error}")
        return []
    if [outcome.node_id for outcome in outcomes] != [node.id for node in nodes]:
        found.append(f"{what} must answer with one outcome for each node, in their order.")
    found += [f"{what}: {outcome.node_id}: {outcome.reason}" for outcome in outcomes if not outcome.ok]
    return list(outcomes)
