"""What can be done to a server: stop and start, reboot, resize, migrate, evacuate, shelve, lock."""

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from starlette.responses import JSONResponse, Response

from roost.api import schemas
from roost.api.compute import server_guests, server_view
from roost.api.compute.servers import METADATA, actor, owned
from roost.api.permissions import ADMIN, MANAGER, MEMBER, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import BOOLEAN, NAME, STRING, Schema, Validator, boolean, thing
from roost.api.versions import Version
from roost.compute.inventory.claims import lost_race
from roost.compute.moves import operations
from roost.compute.moves.relocation import NoValidHost
from roost.compute.scheduling import servers
from roost.compute.scheduling.servers import Server, ServerValues
from roost.errors import Invalid, NotFound
from roost.network import attachments
from roost.volume import block_devices

routes = Table(prefix="/v2.1")

Carried = Callable[[Call, Connection, Server, Any], Awaitable[Response | None]]

_ATTEMPTS = 20
_NOTHING: Schema = {}
_HOST: Schema = {"oneOf": [NAME, {"type": "null"}]}


@dataclass(frozen=True, slots=True)
class Action:
    """One action: who may, what it takes from which version on, what it answers."""

    rule: str
    check: str
    description: str
    carry_out: Carried
    bodies: tuple[tuple[Version, Validator], ...]
    status: int = 202
    history: str | None = None
    """What instance actions call it, where that is not its name."""
    until: Version | None = None
    """The last version that has it."""

    def serves(self, version: Version) -> bool:
        """Whether that version has it."""
        return self.bodies[0][0] <= version and (self.until is None or version <= self.until)

    def validator(self, version: Version) -> Validator:
        """The schema of what the action takes in this version."""
        return next(validator for since, validator in reversed(self.bodies) if since <= version)


def _simple(name: str) -> Carried:
    async def carry_out(call: Call, connection: Connection, server: Server, value: Any) -> None:
        await servers.change_state(connection, server, name, actor(call))

    return carry_out


async def _reboot(call: Call, connection: Connection, server: Server, value: Any) -> None:
    await servers.change_state(connection, server, value["type"].upper(), actor(call))


async def _resize(call: Call, connection: Connection, server: Server, value: Any) -> None:
    flavor = str(value["flavorRef"]).rpartition("/")[2]
    await operations.resize(connection, call.services.scheduler, server, actor(call), flavor)


async def _confirm(call: Call, connection: Connection, server: Server, value: Any) -> None:
    await operations.confirm(connection, server, actor(call))


async def _revert(call: Call, connection: Connection, server: Server, value: Any) -> None:
    await operations.revert(connection, server, actor(call))


async def _migrate(call: Call, connection: Connection, server: Server, value: Any) -> None:
    target = (value or {}).get("host")
    if target is not None:
        call.permit("os_compute_api:os-migrate-server:migrate:host", project_id=server.project_id)
    await operations.migrate(connection, call.services.scheduler, server, actor(call), target)


async def _live_migrate(call: Call, connection: Connection, server: Server, value: Any) -> None:
    target = value.get("host")
    if target is not None:
        call.permit("os_compute_api:os-migrate-server:migrate_live:host", project_id=server.project_id)
    await operations.live_migrate(
        connection, call.services.scheduler, server, actor(call), target, forced=_forced(value)
    )


def _forced(value: Mapping[str, Any]) -> bool:
    forced = boolean(value.get("force", False))
    if forced and value.get("host") is None:
        raise Invalid("Can't force to a non-provided destination")
    return forced


async def _evacuate(call: Call, connection: Connection, server: Server, value: Any) -> Response:
    await operations.evacuate(
        connection,
        call.services.scheduler,
        server,
        actor(call),
        value.get("host"),
        stopped=call.version >= Version(2, 95),
        forced=_forced(value),
    )
    if call.version >= Version(2, 14):
        return Response(status_code=200)
    return JSONResponse({"adminPass": value.get("adminPass", "")}, 200)


async def _shelve(call: Call, connection: Connection, server: Server, value: Any) -> None:
    await operations.shelve(connection, server, actor(call))


async def _shelve_offload(call: Call, connection: Connection, server: Server, value: Any) -> None:
    await operations.shelve_offload(connection, server, actor(call))


async def _unshelve(call: Call, connection: Connection, server: Server, value: Any) -> None:
    wishes = value or {}
    if wishes.get("host") is not None:
        call.permit("os_compute_api:os-shelve:unshelve_to_host", project_id=server.project_id)
    await operations.unshelve(
        connection,
        call.services.scheduler,
        server,
        actor(call),
        target=wishes.get("host"),
        zone=wishes.get("availability_zone"),
        any_zone="availability_zone" in wishes,
    )


async def _lock(call: Call, connection: Connection, server: Server, value: Any) -> None:
    reason = (value or {}).get("locked_reason")
    await servers.update(connection, server.id, {"locked": True, "locked_reason": reason})
    await servers.record(connection, server.id, "lock", actor(call), done=True)


async def _unlock(call: Call, connection: Connection, server: Server, value: Any) -> None:
    await servers.update(connection, server.id, {"locked": False, "locked_reason": None})
    await servers.record(connection, server.id, "unlock", actor(call), done=True)


async def _change_password(call: Call, connection: Connection, server: Server, value: Any) -> None:
    """The hosts are simulated: nothing that has a password runs in a server."""
    servers.check(server, "changePassword", frozenset({"active"}), actor(call))
    await servers.record(connection, server.id, "changePassword", actor(call), done=True)


async def _force_delete(call: Call, connection: Connection, server: Server, value: Any) -> None:
    await servers.delete(connection, server, actor(call))


async def _reset(call: Call, connection: Connection, server: Server, value: Any) -> None:
    await operations.reset(connection, server, value["state"])


async def _add_security_group(call: Call, connection: Connection, server: Server, value: Any) -> None:
    await _change_groups(connection, server, value["name"], add=True)


async def _remove_security_group(call: Call, connection: Connection, server: Server, value: Any) -> None:
    await _change_groups(connection, server, value["name"], add=False)


async def _change_groups(connection: Connection, server: Server, name: str, *, add: bool) -> None:
    try:
        await attachments.change_groups(connection, server, name, add=add)
    except Invalid as error:
        raise NotFound(error.message) from None


async def _rebuild(call: Call, connection: Connection, server: Server, value: Any) -> Response:
    await server_guests.usable_image(connection, server, value["imageRef"])
    if any(each.root for each in (await block_devices.attached(connection, [server.id])).get(server.id, ())):
        raise Invalid("Unable to rebuild with a different image for a volume-backed server.")
    await servers.change_state(connection, server, "rebuild", actor(call))
    changes = {key: value[key] for key in ("name", "metadata", "description") if key in value}
    await servers.update(connection, server.id, cast(ServerValues, {**changes, "image_id": value["imageRef"]}))
    row = await servers.find(connection, server.id)
    password = value.get("adminPass") or secrets.token_urlsafe(9)
    of = await server_view.companions(connection, [row])
    view = server_view.rebuilt(call, row, of[row.id], await servers.groups_of(connection, row), password)
    return JSONResponse({"server": view}, 202)


def _bodies(*steps: tuple[str, Schema]) -> tuple[tuple[Version, Validator], ...]:
    return tuple((Version.parse(since), Validator(schema)) for since, schema in steps)


def _maybe(**properties: Schema) -> Schema:
    """These properties, or nothing."""
    return {**thing({}, properties), "type": ["object", "null"]}


_ANYTHING = _bodies(("2.1", _NOTHING))
_FLEXIBLE = thing({"host": _HOST, "block_migration": {"anyOf": [BOOLEAN, {"const": "auto"}]}})
_FORCE = {"force": BOOLEAN}
_SECURITY_GROUP = _bodies(("2.1", thing({"name": {"type": "string", "minLength": 1}})))
_RESCUE = {"adminPass": STRING, "rescue_image_ref": schemas.UUID}

ACTIONS: Mapping[str, Action] = {
    "os-stop": Action("os_compute_api:servers:stop", MEMBER, "Stop a server.", _simple("os-stop"), _ANYTHING),
    "os-start": Action("os_compute_api:servers:start", MEMBER, "Start a server.", _simple("os-start"), _ANYTHING),
    "reboot": Action(
        "os_compute_api:servers:reboot",
        MEMBER,
        "Reboot a server.",
        _reboot,
        _bodies(("2.1", thing({"type": {"type": "string", "enum": ["HARD", "Hard", "hard", "SOFT", "Soft", "soft"]}}))),
    ),
    "pause": Action("os_compute_api:os-pause-server:pause", MEMBER, "Pause a server.", _simple("pause"), _ANYTHING),
    "unpause": Action(
        "os_compute_api:os-pause-server:unpause", MEMBER, "Unpause a server.", _simple("unpause"), _ANYTHING
    ),
    "suspend": Action(
        "os_compute_api:os-suspend-server:suspend", MEMBER, "Suspend a server.", _simple("suspend"), _ANYTHING
    ),
    "resume": Action(
        "os_compute_api:os-suspend-server:resume", MEMBER, "Resume a server.", _simple("resume"), _ANYTHING
    ),
    "resize": Action(
        "os_compute_api:servers:resize",
        MEMBER,
        "Give a server another flavor.",
        _resize,
        _bodies(
            (
                "2.1",
                thing({"flavorRef": {"type": ["string", "integer"], "minLength": 1}}, {"OS-DCF:diskConfig": STRING}),
            )
        ),
    ),
    "confirmResize": Action(
        "os_compute_api:servers:confirm_resize", MEMBER, "Keep a resize or migration.", _confirm, _ANYTHING, 204
    ),
    "revertResize": Action(
        "os_compute_api:servers:revert_resize", MEMBER, "Undo a resize or migration.", _revert, _ANYTHING
    ),
    "migrate": Action(
        "os_compute_api:os-migrate-server:migrate",
        MANAGER,
        "Move a server to another host.",
        _migrate,
        _bodies(("2.1", _NOTHING), ("2.56", _maybe(host=_HOST))),
    ),
    "os-migrateLive": Action(
        "os_compute_api:os-migrate-server:migrate_live",
        MANAGER,
        "Move a running server to another host.",
        _live_migrate,
        _bodies(
            ("2.1", thing({"host": _HOST, "block_migration": BOOLEAN, "disk_over_commit": BOOLEAN})),
            ("2.25", _FLEXIBLE),
            ("2.30", {**_FLEXIBLE, "properties": {**_FLEXIBLE["properties"], **_FORCE}}),
            ("2.68", _FLEXIBLE),
        ),
        history="live-migration",
    ),
    "evacuate": Action(
        "os_compute_api:os-evacuate",
        ADMIN,
        "Rebuild a server of a dead host elsewhere.",
        _evacuate,
        _bodies(
            ("2.1", thing({"onSharedStorage": BOOLEAN}, {"host": NAME, "adminPass": STRING})),
            ("2.14", thing({}, {"host": NAME, "adminPass": STRING})),
            ("2.29", thing({}, {"host": NAME, "adminPass": STRING, **_FORCE})),
            ("2.68", thing({}, {"host": NAME, "adminPass": STRING})),
        ),
        200,
    ),
    "shelve": Action("os_compute_api:os-shelve:shelve", MEMBER, "Shelve a server.", _shelve, _ANYTHING),
    "shelveOffload": Action(
        "os_compute_api:os-shelve:shelve_offload",
        ADMIN,
        "Take a shelved server off its host.",
        _shelve_offload,
        _ANYTHING,
    ),
    "unshelve": Action(
        "os_compute_api:os-shelve:unshelve",
        MEMBER,
        "Bring a shelved server back.",
        _unshelve,
        _bodies(
            ("2.1", _NOTHING),
            (
                "2.77",
                {"type": ["object", "null"], "properties": {"availability_zone": NAME}, "additionalProperties": False},
            ),
            ("2.91", _maybe(availability_zone=_HOST, host=NAME)),
        ),
    ),
    "lock": Action(
        "os_compute_api:os-lock-server:lock",
        MEMBER,
        "Lock a server against changes.",
        _lock,
        _bodies(
            ("2.1", _NOTHING), ("2.73", _maybe(locked_reason={"type": "string", "minLength": 1, "maxLength": 255}))
        ),
    ),
    "unlock": Action("os_compute_api:os-lock-server:unlock", MEMBER, "Unlock a server.", _unlock, _ANYTHING),
    "changePassword": Action(
        "os_compute_api:os-admin-password",
        MEMBER,
        "Change the password of a server's administrator.",
        _change_password,
        _bodies(("2.1", thing({"adminPass": STRING}))),
    ),
    "forceDelete": Action(
        "os_compute_api:os-deferred-delete:force", MEMBER, "Delete a server at once.", _force_delete, _ANYTHING
    ),
    "os-resetState": Action(
        "os_compute_api:os-admin-actions:reset_state",
        ADMIN,
        "Set the state of a server by hand.",
        _reset,
        _bodies(("2.1", thing({"state": {"type": "string", "enum": ["active", "error"]}}))),
    ),
    "rebuild": Action(
        "os_compute_api:servers:rebuild",
        MEMBER,
        "Rebuild a server in its place.",
        _rebuild,
        _bodies(
            (
                "2.1",
                {
                    "type": "object",
                    "properties": {"imageRef": schemas.UUID, "name": NAME, "metadata": METADATA, "adminPass": STRING},
                    "required": ["imageRef"],
                },
            )
        ),
    ),
    "addSecurityGroup": Action(
        "os_compute_api:os-security-groups:add",
        MEMBER,
        "Give the ports of a server a security group.",
        _add_security_group,
        _SECURITY_GROUP,
    ),
    "removeSecurityGroup": Action(
        "os_compute_api:os-security-groups:remove",
        MEMBER,
        "Take a security group off the ports of a server.",
        _remove_security_group,
        _SECURITY_GROUP,
    ),
    "rescue": Action(
        "os_compute_api:os-rescue",
        MEMBER,
        "Boot a server from another disk.",
        server_guests.rescue,
        _bodies(("2.1", _maybe(**_RESCUE))),
        200,
    ),
    "unrescue": Action(
        "os_compute_api:os-unrescue", MEMBER, "Boot a server from its own disk again.", _simple("unrescue"), _ANYTHING
    ),
    "createImage": Action(
        "os_compute_api:servers:create_image",
        MEMBER,
        "Make an image of a server.",
        server_guests.create_image,
        _bodies(("2.1", thing({"name": NAME}, {"metadata": METADATA}))),
    ),
    "trigger_crash_dump": Action(
        "os_compute_api:servers:trigger_crash_dump",
        MEMBER,
        "Have a server dump its memory.",
        server_guests.trigger_crash_dump,
        _bodies(("2.17", {"type": "null"})),
    ),
    "os-getConsoleOutput": Action(
        "os_compute_api:os-console-output",
        MEMBER,
        "Read what a server has printed.",
        server_guests.console_output,
        _bodies(("2.1", thing({}, {"length": {"type": ["integer", "string", "null"], "pattern": "^-?[0-9]{1,9}$"}}))),
        200,
    ),
    **{
        name: Action(
            f"os_compute_api:os-remote-consoles:{name.removeprefix('os-')}",
            MEMBER,
            "Get the address of a server's console, before 2.6.",
            server_guests.console,
            _bodies(("2.1", thing({"type": {"enum": [*kinds]}}))),
            200,
            until=Version(2, 5),
        )
        for name, kinds in server_guests.CONSOLE_ACTIONS.items()
    },
}

RULES = (
    *(Permission(action.rule, action.check, action.description) for action in ACTIONS.values()),
    Permission("os_compute_api:os-migrate-server:migrate:host", ADMIN, "Move a server to a certain host."),
    Permission("os_compute_api:os-migrate-server:migrate_live:host", ADMIN, "Move a running server to a certain host."),
    Permission("os_compute_api:os-shelve:unshelve_to_host", ADMIN, "Bring a shelved server back to a certain host."),
)

_ONE = {"type": "object", "minProperties": 1, "maxProperties": 1, "properties": dict.fromkeys(ACTIONS, _NOTHING)}


@routes.post(
    "/servers/{server_id}/action",
    body=_ONE,
    status=202,
    also={200: None, **{action.status: None for action in ACTIONS.values()}},
)
async def act(call: Call) -> Reply:
    """Do one thing to a server; a move that no host can take is refused, and the server stays as it was."""
    name, value = next(iter(call.body.items()))
    action = ACTIONS.get(name)
    if action is None or not action.serves(call.version):
        raise Invalid(f"There is no such action: {name}")
    validator = action.validator(call.version)
    validator.check_body(value, schemas.nova_sentence)
    try:
        # Where any value may be sent, it has no effect.
        answer = await _carry_out(call, action, value if validator.schema else None)
    except NoValidHost:
        async with call.services.database.begin() as connection:
            await operations.refused(connection, call.path["server_id"], action.history or name, actor(call))
        raise
    return answer or Response(status_code=action.status)


async def _carry_out(call: Call, action: Action, value: Any) -> Response | None:
    """In one transaction; again, where it lost to another one that wanted the same hosts in another order."""
    for attempt in range(_ATTEMPTS):
        try:
            async with call.services.database.begin() as connection:
                server = await owned(call, connection, action.rule, lock=True)
                return await action.carry_out(call, connection, server, value)
        except Exception as error:
            if not lost_race(error) or attempt == _ATTEMPTS - 1:
                raise
            await asyncio.sleep(random.uniform(0, 0.01 * attempt))
    raise AssertionError("unreachable")
