"""Servers: finding and listing them, what may be done to them in which state, and the steps that this starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypedDict

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.inventory.flavors import ServerFlavor
from roost.compute.scheduling import steps
from roost.compute.scheduling.request import Addresses, Hints
from roost.compute.scheduling.steps import PAUSED, RUNNING, SHUTDOWN, SUSPENDED, Deletion, Fault, Step, Transition
from roost.errors import Conflict, Invalid, NotFound
from roost.placement.record import Record
from roost.store import pages, patterns
from roost.store.pages import EVERYTHING, PageRequest, SortKey
from roost.store.tables.compute import hosts, topologies
from roost.store.tables.servers import instance_actions, server_groups, servers
from roost.store.uuids import is_uuid
from roost.turns import spread


@dataclass(frozen=True, slots=True)
class Server:
    """A server: the columns of its row, and what is shown of its host."""

    id: str
    number: int
    project_id: str
    user_id: str
    name: str
    hostname: str
    description: str | None
    flavor: ServerFlavor
    image_id: str | None
    key_name: str | None
    user_data: str | None
    config_drive: bool
    metadata: Mapping[str, str]
    tags: Sequence[str]
    addresses: Addresses
    hints: Hints
    zone: str | None
    reservation_id: str
    launch_index: int
    host_id: int | None
    group_id: str | None
    partition: int | None
    vm_state: str
    task_state: str | None
    power_state: int
    locked: bool
    locked_reason: str | None
    due_at: datetime | None
    step: Step | None
    fault: Fault | None
    explanation: Record | None
    client_token: str | None
    launched_at: datetime | None
    created_at: datetime
    updated_at: datetime | None
    host: str | None
    host_zone: str | None
    host_enabled: bool | None
    host_down: bool | None


def _read(columns: sa.RowMapping) -> Server:
    flavor, step = ServerFlavor.from_json(columns["flavor"]), steps.read(columns["step"])
    return Server(**{**columns, "flavor": flavor, "step": step})


# The status that clients see, by the state of the machine and of the task that works on it; '' is any other task.
STATUSES: Mapping[str, Mapping[str, str]] = {
    "active": {
        "": "ACTIVE",
        "rebooting": "REBOOT",
        "rebooting_hard": "HARD_REBOOT",
        "migrating": "MIGRATING",
        "rebuilding": "REBUILD",
        "resize_migrating": "RESIZE",
    },
    "building": {"": "BUILD"},
    "stopped": {"": "SHUTOFF", "rebuilding": "REBUILD", "resize_migrating": "RESIZE"},
    "resized": {"": "VERIFY_RESIZE", "resize_reverting": "REVERT_RESIZE"},
    "paused": {"": "PAUSED", "migrating": "MIGRATING"},
    "suspended": {"": "SUSPENDED"},
    "error": {"": "ERROR", "rebuilding": "REBUILD"},
    "shelved": {"": "SHELVED"},
    "shelved_offloaded": {"": "SHELVED_OFFLOADED"},
    "rescued": {"": "RESCUE"},
    "deleted": {"": "DELETED"},
}


@dataclass(frozen=True, slots=True)
class StateChange:
    """A change of state that the engine finishes: from where it may start, and what it comes to."""

    action: str
    """As instance actions and refusals call it."""
    allowed: frozenset[str]
    task_state: str
    vm_state: str
    power_state: int


def _change(action: str, allowed: str, task_state: str, vm_state: str, power_state: int) -> StateChange:
    return StateChange(action, frozenset(allowed.split()), task_state, vm_state, power_state)


STATE_CHANGES: Mapping[str, StateChange] = {
    "os-stop": _change("stop", "active error", "powering-off", "stopped", SHUTDOWN),
    "os-start": _change("start", "stopped", "powering-on", "active", RUNNING),
    "pause": _change("pause", "active", "pausing", "paused", PAUSED),
    "unpause": _change("unpause", "paused", "unpausing", "active", RUNNING),
    "suspend": _change("suspend", "active", "suspending", "suspended", SUSPENDED),
    "resume": _change("resume", "suspended", "resuming", "active", RUNNING),
    "SOFT": _change("reboot", "active", "rebooting", "active", RUNNING),
    "HARD": _change("reboot", "active stopped paused suspended error", "rebooting_hard", "active", RUNNING),
    "rescue": _change("rescue", "active stopped error", "rescuing", "rescued", RUNNING),
    "unrescue": _change("unrescue", "rescued", "unrescuing", "active", RUNNING),
    "rebuild": _change("rebuild", "active stopped paused suspended error", "rebuilding", "active", RUNNING),
}


def status(vm_state: str, task_state: str | None) -> str:
    """The one word that clients show."""
    by_task = STATUSES[vm_state]
    return by_task.get(task_state or "", by_task[""])


def _has_status(words: Sequence[str]) -> sa.ColumnElement[bool]:
    """Whether a server is in one of these statuses."""
    wanted = {word.upper() for word in words}
    matches = []
    for state, by_task in STATUSES.items():
        tasks = {task for task, word in by_task.items() if task and word in wanted}
        others = by_task.keys() - tasks - {""}
        here: sa.ColumnElement[bool] = servers.c.task_state.in_(tasks)
        if by_task[""] in wanted:
            here = sa.or_(servers.c.task_state.is_(None), servers.c.task_state.not_in(others))
        matches.append(sa.and_(servers.c.vm_state == state, here))
    return sa.or_(*matches)


@dataclass(frozen=True, slots=True)
class Filters:
    """Which servers to list, and how."""

    project_id: str | None = None
    user_id: str | None = None
    ids: tuple[str, ...] = ()
    name: str | None = None
    """A regular expression, as in Nova, but only as much of it as `roost.store.patterns` allows."""
    statuses: tuple[str, ...] = ()
    vm_states: tuple[str, ...] = ()
    host: str | None = None
    zone: str | None = None
    flavor_id: str | None = None
    image_id: str | None = None
    reservation_id: str | None = None
    changed_since: datetime | None = None
    changed_before: datetime | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    locked: bool | None = None
    tags: tuple[str, ...] = ()
    any_tags: tuple[str, ...] = ()
    not_tags: tuple[str, ...] = ()
    not_any_tags: tuple[str, ...] = ()
    page: PageRequest = EVERYTHING
    sorts: tuple[tuple[str, bool], ...] = ()
    """Keys of `SORT_KEYS`, each with whether it descends."""


# None of them is ever null: a page would end before what cannot be compared.
SORT_KEYS: Mapping[str, sa.ColumnElement[Any]] = {
    "created_at": servers.c.created_at,
    "display_name": servers.c.name,
    "updated_at": sa.func.coalesce(servers.c.updated_at, servers.c.created_at),
    "uuid": servers.c.id,
    "vm_state": servers.c.vm_state,
    "task_state": sa.func.coalesce(servers.c.task_state, ""),
    "power_state": servers.c.power_state,
    "host": sa.func.coalesce(hosts.c.name, ""),
    "project_id": servers.c.project_id,
    "user_id": servers.c.user_id,
    "launch_index": servers.c.launch_index,
    "launched_at": sa.func.coalesce(servers.c.launched_at, servers.c.created_at),
    "availability_zone": sa.func.coalesce(hosts.c.availability_zone, servers.c.zone, ""),
    "display_description": sa.func.coalesce(servers.c.description, ""),
    "image_ref": sa.func.coalesce(servers.c.image_id, ""),
    "instance_type_id": servers.c.flavor["id"].astext,
    "key_name": sa.func.coalesce(servers.c.key_name, ""),
    "hostname": servers.c.hostname,
}


def _query() -> sa.Select[Any]:
    return sa.select(
        servers,
        hosts.c.name.label("host"),
        hosts.c.availability_zone.label("host_zone"),
        hosts.c.enabled.label("host_enabled"),
        hosts.c.forced_down.label("host_down"),
    ).outerjoin(hosts, hosts.c.id == servers.c.host_id)


async def find(
    connection: AsyncConnection, server_id: str, *, project_id: str | None = None, lock: bool = False
) -> Server:
    """One server, of this project if one is given."""
    query = _query().where(servers.c.id == server_id if is_uuid(server_id) else sa.false())
    if project_id is not None:
        query = query.where(servers.c.project_id == project_id)
    if lock:
        query = query.with_for_update(of=servers)
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        raise NotFound(f"Instance {server_id} could not be found.")
    return _read(row._mapping)


async def index(connection: AsyncConnection, filters: Filters) -> Sequence[Server]:
    """Servers, the newest first unless sorted otherwise."""
    visible = _query() if filters.project_id is None else _query().where(servers.c.project_id == filters.project_id)
    keys = [SortKey(SORT_KEYS[key], descends) for key, descends in filters.sorts]
    keys.append(SortKey(servers.c.number, not filters.sorts or filters.sorts[-1][1]))
    try:
        rows = await pages.read(connection, visible, keys, filters.page, *_conditions(filters), named=servers.c.id)
        return await spread(lambda row: _read(row._mapping), rows)
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) == "2201B":
            raise Invalid(f"Invalid regular expression '{filters.name}' for name.") from None
        raise


def _conditions(filters: Filters) -> list[sa.ColumnElement[bool]]:
    equal: Mapping[sa.ColumnElement[Any], Any] = {
        servers.c.user_id: filters.user_id,
        hosts.c.name: filters.host,
        servers.c.flavor["id"].astext: filters.flavor_id,
        servers.c.image_id: filters.image_id,
        servers.c.reservation_id: filters.reservation_id,
        servers.c.locked: filters.locked,
    }
    conditions = [column == value for column, value in equal.items() if value is not None]
    if filters.ids:
        conditions.append(servers.c.id.in_(filter(is_uuid, filters.ids)))
    if filters.name is not None:
        conditions.append(patterns.matches(servers.c.name, filters.name))
    if filters.statuses:
        conditions.append(_has_status(filters.statuses))
    if filters.vm_states:
        conditions.append(servers.c.vm_state.in_(filters.vm_states))
    if filters.zone is not None:
        conditions.append(sa.func.coalesce(hosts.c.availability_zone, servers.c.zone) == filters.zone)
    changed = sa.func.coalesce(servers.c.updated_at, servers.c.created_at)
    if filters.changed_since is not None:
        conditions.append(sa.func.date_trunc("second", changed) >= filters.changed_since)
    if filters.changed_before is not None:
        # As shown, in whole seconds: what is shown as changed at that moment is changed by then.
        conditions.append(sa.func.date_trunc("second", changed) <= filters.changed_before)
    if filters.metadata:
        conditions.append(servers.c.metadata.contains(sa.cast(dict(filters.metadata), JSONB)))
    if filters.tags:
        conditions.append(servers.c.tags.has_all(sa.cast(list(filters.tags), sa.ARRAY(sa.Text))))
    if filters.any_tags:
        conditions.append(servers.c.tags.has_any(sa.cast(list(filters.any_tags), sa.ARRAY(sa.Text))))
    if filters.not_tags:
        conditions.append(~servers.c.tags.has_all(sa.cast(list(filters.not_tags), sa.ARRAY(sa.Text))))
    if filters.not_any_tags:
        conditions.append(~servers.c.tags.has_any(sa.cast(list(filters.not_any_tags), sa.ARRAY(sa.Text))))
    return conditions


async def groups_of(connection: AsyncConnection, server: Server) -> list[str]:
    """The group of a server, as a list of at most one."""
    if server.group_id is None:
        return []
    query = sa.select(server_groups.c.id).where(server_groups.c.id == server.group_id)
    return list((await connection.execute(query)).scalars())


# What changes a server


@dataclass(frozen=True, slots=True)
class Actor:
    """On whose behalf a server is changed."""

    user_id: str
    project_id: str
    request_id: str
    is_admin: bool = False


def check(server: Server, action: str, allowed: frozenset[str], actor: Actor) -> None:
    """Raise `Conflict` unless the server is in a state that allows this, has no other task, and is not locked."""
    if server.locked and not actor.is_admin:
        raise Conflict(f"Instance {server.id} is locked")
    if server.vm_state not in allowed:
        raise Conflict(f"Cannot '{action}' instance {server.id} while it is in vm_state {server.vm_state}")
    if server.task_state is not None:
        raise Conflict(f"Cannot '{action}' instance {server.id} while it is in task_state {server.task_state}")


async def start(
    connection: AsyncConnection,
    server: Server,
    action: str,
    actor: Actor,
    task_state: str,
    step: Step,
    *,
    at_once: bool = False,
) -> None:
    """Begin a step: the engine finishes it in the time that the topology says, or at once."""
    seconds = sa.select(sa.cast(topologies.c.simulation["boot_seconds"].astext, sa.Float)).scalar_subquery()
    lasts = sa.func.make_interval(0, 0, 0, 0, 0, 0, sa.func.coalesce(0 if at_once else seconds, 0))
    values = {"task_state": task_state, "step": step.to_json(), "due_at": sa.func.now() + lasts}
    changed = servers.update().where(servers.c.id == server.id).values(**values, updated_at=sa.func.now())
    await connection.execute(changed.add_cte(_noted(server.id, action, actor).cte("noted")))


async def record(
    connection: AsyncConnection, server_id: str, action: str, actor: Actor, *, error: bool = False, done: bool = False
) -> None:
    """Note in the server's history that this was asked for."""
    values = {"message": "Error" if error else None, "finish_time": sa.func.now() if error or done else None}
    await connection.execute(_noted(server_id, action, actor).values(**values))


def _noted(server_id: str, action: str, actor: Actor) -> sa.Insert:
    values = {"request_id": actor.request_id, "user_id": actor.user_id, "project_id": actor.project_id}
    return instance_actions.insert().values(server_id=server_id, action=action, **values)


async def change_state(connection: AsyncConnection, server: Server, name: str, actor: Actor) -> None:
    """Begin one of `STATE_CHANGES`."""
    step = STATE_CHANGES[name]
    check(server, step.action, step.allowed, actor)
    if server.host_id is None:
        raise Conflict(f"Instance {server.id} is not ready")
    stays = name == "rebuild" and server.vm_state == "stopped"
    end = Transition() if stays else Transition(step.vm_state, step.power_state)
    await start(connection, server, step.action, actor, step.task_state, end)


async def delete(connection: AsyncConnection, server: Server, actor: Actor) -> None:
    """Begin to delete a server, whatever else was under way with it."""
    if server.locked and not actor.is_admin:
        raise Conflict(f"Instance {server.id} is locked")
    if server.task_state != "deleting":
        step = Deletion(steps.other_flavor(server.step))
        await start(connection, server, "delete", actor, "deleting", step, at_once=True)


class ServerValues(TypedDict, total=False):
    """Columns of a server that are set at once."""

    name: str
    hostname: str
    description: str | None
    metadata: Mapping[str, str]
    tags: Sequence[str]
    image_id: str
    zone: str | None
    locked: bool
    locked_reason: str | None
    vm_state: str
    task_state: str | None
    power_state: int
    host_id: int
    flavor: Mapping[str, object]
    due_at: datetime | None
    step: None


async def update(connection: AsyncConnection, server_id: str, values: ServerValues) -> None:
    """Set columns of a server."""
    if values:
        changed = servers.update().where(servers.c.id == server_id)
        await connection.execute(changed.values(**values, updated_at=sa.func.now()))
