"""Actions over HTTP: who may, in which state, with which body, and what becomes of the server."""

from typing import Any

from tests.compute.cloud import IMAGE, Cloud

NULL_HOST = {"host": None, "block_migration": "auto"}

# From where, by which action, in which status on the way and at the end, with which power state.
STEPS: list[tuple[list[tuple[str, Any]], tuple[str, Any], str, str, int]] = [
    ([], ("os-stop", None), "ACTIVE", "SHUTOFF", 4),
    ([("os-stop", None)], ("os-start", None), "SHUTOFF", "ACTIVE", 1),
    ([], ("reboot", {"type": "SOFT"}), "REBOOT", "ACTIVE", 1),
    ([], ("reboot", {"type": "Hard"}), "HARD_REBOOT", "ACTIVE", 1),
    ([("os-stop", None)], ("reboot", {"type": "HARD"}), "SHUTOFF", "ACTIVE", 1),
    ([], ("pause", None), "ACTIVE", "PAUSED", 3),
    ([("pause", None)], ("unpause", None), "PAUSED", "ACTIVE", 1),
    ([], ("suspend", None), "ACTIVE", "SUSPENDED", 7),
    ([("suspend", None)], ("resume", None), "SUSPENDED", "ACTIVE", 1),
    ([], ("changePassword", {"adminPass": "x"}), "ACTIVE", "ACTIVE", 1),
    ([], ("rebuild", {"imageRef": IMAGE}), "REBUILD", "ACTIVE", 1),
    ([("os-stop", None)], ("rebuild", {"imageRef": IMAGE}), "REBUILD", "SHUTOFF", 4),
    ([], ("resize", {"flavorRef": "2"}), "RESIZE", "VERIFY_RESIZE", 1),
    ([], ("migrate", None), "RESIZE", "VERIFY_RESIZE", 1),
    ([("os-stop", None)], ("migrate", None), "RESIZE", "VERIFY_RESIZE", 4),
    ([("migrate", None)], ("confirmResize", None), "ACTIVE", "ACTIVE", 1),
    ([("os-stop", None), ("migrate", None)], ("confirmResize", None), "SHUTOFF", "SHUTOFF", 4),
    ([("resize", {"flavorRef": "2"})], ("revertResize", None), "ACTIVE", "ACTIVE", 1),
    ([], ("os-migrateLive", NULL_HOST), "MIGRATING", "ACTIVE", 1),
    ([], ("shelve", None), "ACTIVE", "SHELVED_OFFLOADED", 0),
    ([("shelve", None)], ("unshelve", None), "SHELVED_OFFLOADED", "ACTIVE", 1),
    ([("shelve", None)], ("shelveOffload", None), "SHELVED_OFFLOADED", "SHELVED_OFFLOADED", 0),
]


async def test_each_action_passes_through_its_status(cloud: Cloud) -> None:
    await cloud.quota(instances=-1, cores=-1, ram=-1)
    for before, (action, value), during, after, power in STEPS:
        server = await cloud.boot()
        for earlier, its_value in before:
            await cloud.done(server, earlier, its_value)
        response = await cloud.act(server, action, value)
        assert response.is_success, (before, action, response.text)
        assert await cloud.status(server) == during, (before, action)
        await cloud.settle()
        shown = await cloud.show(server)
        assert (shown["status"], shown["OS-EXT-STS:power_state"]) == (after, power), (before, action)
        assert shown["OS-EXT-STS:task_state"] is None
        await cloud.check()


# Which of these states each action is refused in.
REFUSED = {
    "os-stop": "stopped paused suspended resized shelved_offloaded",
    "os-start": "active paused suspended resized shelved_offloaded error",
    "pause": "stopped paused suspended resized shelved_offloaded error",
    "unpause": "active stopped suspended resized shelved_offloaded error",
    "suspend": "stopped paused suspended resized shelved_offloaded error",
    "resume": "active stopped paused resized shelved_offloaded error",
    "changePassword": "stopped paused suspended resized shelved_offloaded error",
    "resize": "paused suspended resized shelved_offloaded error",
    "confirmResize": "active stopped paused suspended shelved_offloaded error",
    "revertResize": "active stopped paused suspended shelved_offloaded error",
    "migrate": "paused suspended resized shelved_offloaded error",
    "os-migrateLive": "stopped suspended resized shelved_offloaded error",
    "shelve": "resized shelved_offloaded error",
    "unshelve": "active stopped paused suspended resized error",
    "rebuild": "resized shelved_offloaded",
}
VALUES: dict[str, Any] = {
    "changePassword": {"adminPass": "x"},
    "resize": {"flavorRef": "2"},
    "os-migrateLive": NULL_HOST,
    "rebuild": {"imageRef": IMAGE},
}
WORDS = {"os-stop": "stop", "os-start": "start"}
REACH: dict[str, list[str]] = {
    "active": [],
    "stopped": ["os-stop"],
    "paused": ["pause"],
    "suspended": ["suspend"],
    "resized": ["migrate"],
    "shelved_offloaded": ["shelve"],
    "error": [],
}


async def test_an_action_in_the_wrong_state_is_a_conflict_that_says_so(cloud: Cloud) -> None:
    servers = {}
    for state, way in REACH.items():
        servers[state] = await cloud.boot()
        for action in way:
            await cloud.done(servers[state], action)
    await cloud.done(servers["error"], "os-resetState", {"state": "error"})
    for action, states in REFUSED.items():
        for state in states.split():
            server = servers[state]
            word = WORDS.get(action, action)
            assert await cloud.refused(server, action, VALUES.get(action)) == (
                409,
                f"Cannot '{word}' instance {server} while it is in vm_state {state}",
            )
    await cloud.boots_take_a_moment()
    busy = await cloud.boot(settle=False)
    for action in ("os-stop", "migrate"):
        status, message = await cloud.refused(busy, action)
        assert (status, message) == (
            409,
            f"Cannot '{WORDS.get(action, action)}' instance {busy} while it is in vm_state building",
        )
    await cloud.settle()
    await cloud.act(busy, "os-stop")
    assert await cloud.refused(busy, "os-stop") == (
        409,
        f"Cannot 'stop' instance {busy} while it is in task_state powering-off",
    )
    await cloud.settle()
    await cloud.check()


async def test_a_server_that_never_had_a_host_cannot_be_started_without_one(cloud: Cloud) -> None:
    await cloud.hosts(0)
    server = await cloud.boot()
    for action, value in (
        ("os-stop", None),
        ("reboot", {"type": "HARD"}),
        ("rebuild", {"imageRef": IMAGE}),
    ):
        assert await cloud.refused(server, action, value) == (409, f"Instance {server} is not ready")
    assert await cloud.refused(server, "evacuate", {}) == (
        409,
        f"Instance {server} is on no host and cannot be evacuated.",
    )
    await cloud.check()


async def test_a_locked_server_is_left_alone_by_all_but_administrators(cloud: Cloud) -> None:
    server = await cloud.boot()
    await cloud.done(server, "lock", cloud="roost")
    for action, value in (("os-stop", None), ("resize", {"flavorRef": "2"}), ("shelve", None)):
        assert await cloud.refused(server, action, value, cloud="roost") == (409, f"Instance {server} is locked")
    await cloud.done(server, "os-stop")
    await cloud.done(server, "unlock", cloud="roost")
    await cloud.done(server, "os-start", cloud="roost")
    shown = await cloud.show(server)
    assert (shown["status"], shown["locked"], shown["locked_reason"]) == ("ACTIVE", False, None)


RULES: list[tuple[str, Any, str, str]] = [
    ("os-stop", None, "roost", "os_compute_api:servers:stop"),
    ("resize", {"flavorRef": "2"}, "roost", "os_compute_api:servers:resize"),
    ("shelve", None, "roost", "os_compute_api:os-shelve:shelve"),
    ("migrate", None, "roost-manager", "os_compute_api:os-migrate-server:migrate"),
    ("os-migrateLive", NULL_HOST, "roost-manager", "os_compute_api:os-migrate-server:migrate_live"),
    ("migrate", {"host": "zone1-rack1-host1"}, "roost-admin", "os_compute_api:os-migrate-server:migrate:host"),
    (
        "os-migrateLive",
        {"host": "zone1-rack1-host1", "block_migration": "auto"},
        "roost-admin",
        "os_compute_api:os-migrate-server:migrate_live:host",
    ),
    ("evacuate", {}, "roost-admin", "os_compute_api:os-evacuate"),
    ("os-resetState", {"state": "active"}, "roost-admin", "os_compute_api:os-admin-actions:reset_state"),
]


async def test_each_action_needs_its_persona(cloud: Cloud) -> None:
    order = ["roost-reader", "roost", "roost-manager", "roost-admin"]
    for action, value, least, rule in RULES:
        server = await cloud.boot(availability_zone="zone2")
        for persona in order[: order.index(least)]:
            broader = rule.removesuffix(":host") if persona != "roost-manager" else rule
            refusal = (403, f"Policy doesn't allow {broader} to be performed.")
            assert await cloud.refused(server, action, value, cloud=persona) == refusal, persona
        response = await cloud.act(server, action, value, cloud=least)
        assert response.status_code != 403, response.text
        await cloud.delete(server)


BODIES: list[tuple[str, str, Any, bool]] = [
    ("2.1", "reboot", {"type": "MEDIUM"}, False),
    ("2.1", "reboot", {}, False),
    ("2.1", "resize", {}, False),
    ("2.55", "migrate", {"host": 7}, True),
    ("2.1", "migrate", "anything", True),
    ("2.72", "lock", "anything", True),
    ("2.56", "migrate", {"host": 7}, False),
    ("2.56", "migrate", {"host": None}, True),
    ("2.24", "os-migrateLive", {"host": None, "block_migration": False, "disk_over_commit": False}, True),
    ("2.25", "os-migrateLive", {"host": None, "block_migration": False, "disk_over_commit": False}, False),
    ("2.25", "os-migrateLive", NULL_HOST, True),
    ("2.24", "os-migrateLive", NULL_HOST, False),
    ("2.30", "os-migrateLive", {**NULL_HOST, "force": False}, True),
    ("2.68", "os-migrateLive", {**NULL_HOST, "force": False}, False),
    ("2.72", "lock", {"locked_reason": "x"}, True),
    ("2.73", "lock", {"locked_reason": ""}, False),
    ("2.1", "os-resetState", {"state": "stopped"}, False),
    ("2.1", "nonsense", None, False),
    ("2.1", "rebuild", {}, False),
]


async def test_each_version_takes_its_body(cloud: Cloud) -> None:
    for version, action, value, good in BODIES:
        server = await cloud.boot()
        response = await cloud.act(server, action, value, version=version)
        assert response.is_success == good, (version, action, value, response.text)
        assert good or response.status_code == 400
        await cloud.settle()
        await cloud.delete(server)
    bodies: list[Any] = [{}, {"os-stop": None, "os-start": None}, []]
    for body in bodies:
        status, _ = await cloud.refusal("POST", f"/servers/{await cloud.boot()}/action", body)
        assert status == 400


async def test_answers_have_nova_s_statuses(cloud: Cloud) -> None:
    server = await cloud.boot()
    for action, value, status in (
        ("os-stop", None, 202),
        ("os-start", None, 202),
        ("resize", {"flavorRef": "2"}, 202),
        ("revertResize", None, 202),
        ("migrate", None, 202),
        ("confirmResize", None, 204),
        ("lock", None, 202),
    ):
        response = await cloud.act(server, action, value)
        assert (response.status_code, response.content) == (status, b""), action
        await cloud.settle()
    host = await cloud.host(server)
    assert host is not None
    await cloud.change_host(host, forced_down=True)
    response = await cloud.act(server, "evacuate", {})
    assert (response.status_code, response.content) == (200, b"")
    await cloud.settle()
    response = await cloud.act(server, "rebuild", {"imageRef": IMAGE, "name": "renamed"})
    assert response.status_code == 202
    assert response.json()["server"]["name"] == "renamed"
    await cloud.settle()
    await cloud.check()


async def test_a_server_is_deleted_at_once_unless_somebody_locked_it(cloud: Cloud) -> None:
    server = await cloud.boot()
    await cloud.done(server, "lock")
    assert await cloud.refused(server, "forceDelete", cloud="roost") == (409, f"Instance {server} is locked")
    await cloud.done(server, "unlock")
    assert (await cloud.act(server, "forceDelete", cloud="roost")).status_code == 202
    await cloud.settle()
    assert (await cloud.ask("GET", f"/servers/{server}")).status_code == 404
    await cloud.check()
