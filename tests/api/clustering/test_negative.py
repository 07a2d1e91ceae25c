"""Bad requests get their sentence, and change nothing."""

import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from roost.store.embedded import EmbeddedPostgres
from roost.store.tables import clusters as tables
from tests.api.clustering.negative_cases import CASES, Case
from tests.clusters.house import House, clustering

HEAT = {"type": "os.heat.stack", "version": "1.0", "properties": {"template": {"heat_template_version": "2014-10-16"}}}


@dataclass
class Scene:
    """A service with things in it, by the names that the cases use."""

    house: House
    ids: dict[str, str]

    def filled(self, text: Any) -> Any:
        """The same, with ids for names."""
        if isinstance(text, str):
            for name, identifier in self.ids.items():
                text = text.replace(f"{{{name}}}", identifier)
            return text
        if isinstance(text, dict):
            return {self.filled(key): self.filled(value) for key, value in text.items()}
        return [self.filled(item) for item in text] if isinstance(text, list) else text


@pytest.fixture(scope="module")
def scene_url(postgres: EmbeddedPostgres) -> Any:
    """A database for all cases: none of them changes anything."""
    name = f"test_{secrets.token_hex(6)}"
    with psycopg.connect(postgres.url.replace("/roost?", "/postgres?"), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE roost')
        yield postgres.url.replace("/roost?", f"/{name}?")
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture(scope="module")
async def scene(scene_url: str) -> AsyncIterator[Scene]:
    async with clustering(scene_url) as house:
        profile, policy = await house.profile(), await house.policy("senlin.policy.deletion")
        cluster = await house.cluster(3, profile=profile, min_size=2, max_size=5)
        full = await house.cluster(1, profile=profile, min_size=1, max_size=1)
        attached = await house.policy("senlin.policy.deletion", criteria="OLDEST_FIRST")
        action = await house.act(full, "policy_attach", {"policy_id": attached["id"]})
        heat = await house.post("/profiles", {"profile": {"name": "heat", "spec": HEAT}})
        receiver = {"name": "r", "type": "webhook", "cluster_id": cluster["id"], "action": "CLUSTER_SCALE_IN"}
        made = await house.post("/receivers", {"receiver": receiver})
        await _twice(house, cluster)
        yield Scene(
            house,
            {
                "profile": profile["id"],
                "policy": policy["id"],
                "attached": attached["id"],
                "cluster": cluster["id"],
                "full": full["id"],
                "member": (await house.members(cluster))[0]["id"],
                "only": (await house.members(full))[0]["id"],
                "orphan": (await house.node(profile_id=profile["id"]))["id"],
                "other": (await house.node(profile_id=profile["id"]))["id"],
                "heat": heat.json()["profile"]["id"],
                "receiver": made.json()["receiver"]["id"],
                "action": action["id"],
            },
        )


async def _twice(house: House, cluster: dict[str, Any]) -> None:
    """Two of each noun that are called `twice`."""
    for _ in range(2):
        await house.profile("twice")
        spec = {"type": "senlin.policy.deletion", "version": "1.0", "properties": {}}
        await house.post("/policies", {"policy": {"name": "twice", "spec": spec}})
        await house.cluster(0, name="twice")
        await house.node(name="twice")
        receiver = {"name": "twice", "type": "webhook", "cluster_id": cluster["id"], "action": "CLUSTER_CHECK"}
        await house.post("/receivers", {"receiver": receiver})


async def _counts(house: House) -> list[int]:
    async with house.database.begin() as connection:
        found = []
        for table in (
            tables.profiles,
            tables.policies,
            tables.clusters,
            tables.nodes,
            tables.actions,
            tables.receivers,
        ):
            found.append(await connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0)
        return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_bad_request_gets_its_sentence_and_changes_nothing(scene: Scene, case: Case) -> None:
    before = await _counts(scene.house)
    path, body = scene.filled(case.path), scene.filled(case.body)
    answer = await scene.house.call(case.method, path, body, version=case.version)
    error = answer.json()["error"]
    message = scene.filled(case.message)
    assert (answer.status_code, error["message"][: len(message)]) == (case.status, message)
    assert error["code"] == answer.json()["code"] == case.status
    assert answer.json()["title"]
    assert error["type"]
    assert await _counts(scene.house) == before


def test_no_two_cases_are_called_the_same() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 231
