"""The audit of everything, and since when rules are broken."""

import json
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from roost.compute.answers import audit
from roost.compute.answers.violations import BrokenRule, Violations
from roost.compute.inventory.live_fleet import LiveFleet
from roost.store.tables.answers import violations
from roost.store.tables.servers import outbox
from tests.api.compute.conftest import Compute
from tests.api.compute.test_explanations import make_group
from tests.api.compute.test_plans import VERSION, plan
from tests.api.compute.test_repairs import broken_group


async def audit_all(compute: Compute) -> list[dict[str, Any]]:
    response = await compute.api.get("/compute/v2.1/os-server-groups/audit", version=VERSION)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("application/x-ndjson")
    return [json.loads(line) for line in response.text.splitlines()]


async def look(compute: Compute) -> list[BrokenRule]:
    services = compute.api.services
    settings = replace(services.settings, notification_driver="messagingv2")
    return await audit.look(services.database, settings, Violations(LiveFleet()))


async def test_every_group_in_which_a_rule_is_broken_is_a_line(compute: Compute) -> None:
    await make_group(compute, {"name": "affinity"})
    group = await broken_group(compute)
    (line,) = await audit_all(compute)
    assert line["server_group_id"] == group
    (violation,) = line["violations"]
    assert violation["message"] == "2 members are apart from the rack that holds most, against 'affinity:rack'"
    assert (violation["breach"], violation["excess"], violation["since"]) == ("apart", 2, None)
    assert violation["policy"] == {"name": "affinity", "scope": "rack", "identifier": None, "rules": {}}


async def test_tenants_may_not_audit_everything(compute: Compute) -> None:
    status, _ = await compute.refusal("GET", "/os-server-groups/audit", version=VERSION, cloud="roost")
    assert status == 403


async def test_drift_is_told_once_and_remembered_since_when(compute: Compute) -> None:
    group = await broken_group(compute)
    (new,) = await look(compute)
    assert (new.group_id, new.violation.excess) == (group, 2)
    assert await look(compute) == []
    (line,) = await audit_all(compute)
    since = line["violations"][0]["since"]
    assert since is not None
    own = await compute.get(f"/os-server-groups/{group}/audit", version=VERSION, cloud="roost")
    assert own["server_group_policy_audit"]["violations"][0]["since"] == since
    async with compute.api.services.database.begin() as connection:
        events = (await connection.execute(sa.select(outbox).where(outbox.c.event_type == audit.EVENT))).all()
    assert [event.payload["uuid"] for event in events] == [group]
    assert events[0].payload["message"].startswith("2 members are apart")


async def test_what_is_mended_is_forgotten(compute: Compute) -> None:
    group = await broken_group(compute)
    await look(compute)
    policies = [{"name": "anti-affinity", "scope": "rack"}]
    planned = await plan(compute, group, policies=policies)
    await plan(compute, group, policies=policies, generation=planned["generation"])
    assert await look(compute) == []
    async with compute.api.services.database.begin() as connection:
        assert await connection.scalar(sa.select(sa.func.count()).select_from(violations)) == 0
