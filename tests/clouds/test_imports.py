"""`roost import check` and `roost import groups`, in front of a Nova."""

import asyncio
import uuid

import pytest

from roost import config
from roost.cli import imports
from roost.compute.inventory import images
from roost.errors import Invalid
from roost.store.tables.clusters import nodes, profiles
from tests.clouds.conftest import Cloud

SPEC = {"type": "os.nova.server", "version": "1.0", "properties": {"flavor": "1"}}


async def boot(cloud: Cloud, node_id: str | None) -> tuple[str, str]:
    """A server in Nova that was made for a node; its id, and its project's."""
    metadata = {"cluster_node_id": node_id} if node_id else {}
    server = {"name": "s", "flavorRef": "1", "imageRef": images.USUAL[0].id, "networks": "none", "metadata": metadata}
    answer = await cloud.tenant.ask("POST", "/servers", {"server": server}, version="2.87", straight=True)
    assert answer.status_code == 202, answer.text
    made = str(answer.json()["server"]["id"])
    shown = await cloud.tenant.ask("GET", f"/servers/{made}", version="2.87", straight=True)
    return made, str(shown.json()["server"]["tenant_id"])


async def test_nodes_and_servers_are_held_against_each_other(cloud: Cloud, capsys: pytest.CaptureFixture[str]) -> None:
    ids = {name: str(uuid.uuid4()) for name in ("well", "lost", "foreign", "empty", "dead")}
    well, project = await boot(cloud, ids["well"])
    foreign, _ = await boot(cloud, ids["foreign"])
    stray, _ = await boot(cloud, "00000000-0000-4000-8000-00000000dead")
    await boot(cloud, None)
    owner = {"user_id": "u", "project_id": project}
    wanted = {
        "well": (well, project, "ACTIVE"),
        "lost": ("11111111-0000-4000-8000-000000000001", project, "ACTIVE"),
        "foreign": (foreign, "another", "ACTIVE"),
        "empty": (None, project, "ACTIVE"),
        "dead": (None, project, "ERROR"),
    }
    async with cloud.front.database.begin() as connection:
        await connection.execute(
            profiles.insert().values(id="p", name="p", type="os.nova.server-1.0", spec=SPEC, **owner)
        )
        for name, (server, project_id, status) in wanted.items():
            row = {"id": ids[name], "name": name, "physical_id": server, "status": status, "profile_id": "p"}
            await connection.execute(nodes.insert().values(**row, **{**owner, "project_id": project_id}))
    assert await asyncio.to_thread(imports.check, cloud.front.settings) == 1
    breaches = [
        line for line in capsys.readouterr().out.splitlines() if any(each in line for each in (*ids.values(), stray))
    ]
    assert sorted(breaches) == sorted(
        [
            f"server missing: 11111111-0000-4000-8000-000000000001, of node {ids['lost']} lost",
            f"server missing: none, of node {ids['empty']} empty",
            f"server of another project: {foreign} s belongs to project {project}, and node {ids['foreign']} foreign "
            "to another",
            f"server unknown: {stray} s, made for node 00000000-0000-4000-8000-00000000dead",
        ]
    )


async def test_groups_of_nova_come_with_a_list_of_broken_rules(
    cloud: Cloud, capsys: pytest.CaptureFixture[str]
) -> None:
    body = {"server_group": {"name": "made in Nova", "policy": "anti-affinity"}}
    made = await cloud.tenant.ask("POST", "/os-server-groups", body, version="2.64", straight=True)
    group = made.json()["server_group"]["id"]
    first, second = await cloud.tenant.boot(group), await cloud.tenant.boot()
    home = await cloud.host(first)
    assert await asyncio.to_thread(imports.groups, cloud.front.settings) == 0
    printed = capsys.readouterr().out
    assert "Every rule holds." in printed
    if await cloud.host(second) != home:
        await cloud.move(second, home)
    added = {"add_instance": {"instance_id": second}}
    answer = await cloud.tenant.ask("POST", f"/os-server-groups/{group}/action", added, straight=True)
    assert answer.is_success, answer.text
    assert await asyncio.to_thread(imports.groups, cloud.front.settings) == 1
    printed = capsys.readouterr().out
    [broken] = [line for line in printed.splitlines() if group in line]
    assert first in broken
    assert second in broken


async def test_a_roost_in_front_of_no_nova_has_nothing_to_compare_with(cloud: Cloud) -> None:
    alone = config.with_database(config.load(), cloud.front.settings.database_url or "")
    for command in (imports.check, imports.groups):
        with pytest.raises(Invalid, match="in front of no Nova"):
            await asyncio.to_thread(command, alone)
