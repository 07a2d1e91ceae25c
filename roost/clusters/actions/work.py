"""One attempt at one action: what it is about, what it may write, and when it must stop.

Every write goes through `Work.write`, which checks that this attempt is still the current one. An engine that was
taken for dead, and whose work another has taken over, finds out at its next write and does nothing more.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.clouds.base import Cloud, Clouds
from roost.clusters import events
from roost.clusters.actions.requests import DERIVED, Owner
from roost.clusters.ids import new_id
from roost.clusters.plugins import Plugins
from roost.config import ClusterSettings
from roost.store.database import Database
from roost.store.tables.clusters import actions, unfinished

if TYPE_CHECKING:
    from roost.clusters.actions.steps import NodeBatch, Report

CANCEL, SUSPEND = "CANCEL", "SUSPEND"
SUCCEEDED, FAILED, CANCELLED = "SUCCEEDED", "FAILED", "CANCELLED"


@dataclass(frozen=True, slots=True)
class Engine:
    """What an engine works with."""

    id: str
    database: Database
    settings: ClusterSettings
    plugins: Plugins
    clouds: Clouds
    errands: set["asyncio.Task[None]"] = field(default_factory=set)
    """What it does besides, which nothing waits for."""


class Superseded(Exception):
    """Another attempt at this action has begun, or it was ended by force: this one may not write any more."""


class Interrupted(Exception):
    """Somebody asked for the action to be cancelled or suspended."""

    def __init__(self, signal: str) -> None:
        super().__init__(signal)
        self.signal = signal


class ActionRefused(Exception):
    """The action cannot be carried out, for a reason that its owner is told."""


@dataclass(frozen=True, slots=True)
class NodeStep:
    """What an action does to one node: a derived action of its own, or (for an action on a node) the action itself."""

    id: str
    action: str
    node_id: str
    part: int = 0
    inputs: Mapping[str, Any] = field(default_factory=dict)
    waiting: bool = False
    """Until somebody completes its life cycle, or the time for that is over."""


@dataclass(slots=True)
class ActionPlan:
    """What is to be done, written down before anything is."""

    steps: list[NodeStep] = field(default_factory=list)
    new_nodes: list[dict[str, Any]] = field(default_factory=list)
    busy: str | None = None
    """The status of the cluster meanwhile."""
    desired: int | None = None
    """The size of the cluster if all goes well."""
    change: dict[str, Any] = field(default_factory=dict)
    """Columns of the cluster to set if all goes well."""
    at_once: dict[str, Any] = field(default_factory=dict)
    """Columns of the cluster to set now."""
    undo_failures: bool = False
    """Whether nodes that could not be made are forgotten, so that the cluster is not left larger than it is."""
    pause: float = 0.0
    """Seconds between two parts."""
    wait: float = 0.0
    """Seconds before the first part."""
    more: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """What of it must survive this process; steps and nodes are rows of their own."""
        return {
            "desired": self.desired,
            "change": self.change,
            "undo_failures": self.undo_failures,
            "pause": self.pause,
            "total": len(self.steps),
            **self.more,
        }


@dataclass(slots=True)
class Work:
    """An action that this process has taken up."""

    engine: Engine
    id: str
    name: str
    action: str
    target: str
    cluster_id: str | None
    lock: str
    attempt: int
    timeout: int
    deadline: float
    """By a clock that nobody sets; how long earlier attempts have taken is told by the database's."""
    owner: Owner
    inputs: dict[str, Any]
    data: dict[str, Any]
    outputs: dict[str, Any]
    plan: dict[str, Any] | None
    signal: str | None = None
    steps: list[NodeStep] | None = None
    """Those not yet done; None if they are still to be read."""
    in_hand: "NodeBatch | None" = None
    """What the cloud is making at this moment."""
    report: "Report | None" = None
    """What became of the steps, once all are done."""

    @classmethod
    def of(cls, engine: Engine, row: sa.Row[Any], since_start: float = 0.0) -> "Work":
        """The work of a row of the table of actions, which began so many seconds ago."""
        return cls(
            engine=engine,
            id=row.id,
            name=row.name,
            action=row.action,
            target=row.target,
            cluster_id=row.cluster_id,
            lock=row.lock,
            attempt=row.attempt,
            timeout=row.timeout,
            deadline=time.monotonic() + row.timeout - since_start,
            owner=Owner(row.user_id, row.project_id, row.domain_id, row.is_admin),
            inputs=dict(row.inputs),
            data=dict(row.data),
            outputs=dict(row.outputs),
            plan=row.plan,
            signal=row.control,
        )

    def cloud_of(self, project_id: str, user_id: str) -> Cloud:
        """The cloud of whom a thing belongs to, with what the one who asked for this may do there."""
        return self.engine.clouds.of(project_id, user_id, privileged=self.owner.is_admin)

    @property
    def label(self) -> str:
        """How the action is called in sentences."""
        return f"{self.action} [{self.id[:8]}]"

    @property
    def on_cluster(self) -> bool:
        """Whether this is about a cluster as a whole."""
        return self.action.startswith("CLUSTER_")

    @property
    def seconds_left(self) -> float:
        """How long this may still take."""
        return self.deadline - time.monotonic()

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """A transaction in which this attempt may write; `Superseded` if it no longer may."""
        async with self.engine.database.begin() as connection:
            query = sa.select(actions.c.control).where(actions.c.id == self.id, actions.c.attempt == self.attempt)
            row = (await connection.execute(query.where(unfinished).with_for_update())).one_or_none()
            if row is None:
                raise Superseded
            self.signal = row.control
            yield connection

    def check_signal(self) -> None:
        """Stop here if somebody asked for it."""
        if self.signal in (CANCEL, SUSPEND):
            raise Interrupted(self.signal)

    def event(self, status: str, reason: str = "", level: int = events.INFO, **more: Any) -> dict[str, Any]:
        """A row for the table of events."""
        return {
            "oid": self.target,
            "oname": self.outputs.get("name") or self.name,
            "otype": "CLUSTER" if self.on_cluster else "NODE",
            "cluster_id": self.cluster_id,
            "level": level,
            "action": self.action,
            "status": status,
            "status_reason": reason,
            "meta_data": {"action": {"id": self.id, "name": self.name, **more}},
            "user_id": self.owner.user_id,
            "project_id": self.owner.project_id,
            "domain_id": self.owner.domain_id,
        }


def derived(work: Work, specs: Sequence[tuple[str, str, int, Mapping[str, Any]]]) -> list[NodeStep]:
    """Steps of an action on a cluster, from (action, node, part, inputs)."""
    return [NodeStep(new_id(), action, node_id, part, inputs) for action, node_id, part, inputs in specs]


async def insert_steps(connection: AsyncConnection, work: Work, steps: Sequence[NodeStep]) -> None:
    """Write steps down as derived actions, all in one statement."""
    rows = [
        {
            "id": step.id,
            "name": f"{step.action.lower()}_{step.node_id[:8]}",
            "action": step.action,
            "target": step.node_id,
            "part": step.part,
            "inputs": dict(step.inputs),
            "status": "WAITING_LIFECYCLE_COMPLETION" if step.waiting else "READY",
        }
        for step in steps
    ]
    values = {
        "rows": rows,
        "cluster_id": work.cluster_id,
        "parent_id": work.id,
        "cause": DERIVED,
        "timeout": work.timeout,
        "user_id": work.owner.user_id,
        "project_id": work.owner.project_id,
        "domain_id": work.owner.domain_id,
    }
    if rows:
        await connection.execute(_INSERT_STEPS, values)


_INSERT_STEPS = sa.text(
    """
    INSERT INTO actions (id, name, action, target, part, inputs, status, cluster_id, parent_id, cause, timeout,
                         user_id, project_id, domain_id, start_time)
    SELECT given.id, given.name, given.action, given.target, given.part, given.inputs, given.status,
           :cluster_id, :parent_id, :cause, :timeout, :user_id, :project_id, :domain_id, now()
    FROM jsonb_to_recordset(:rows)
         AS given(id text, name text, action text, target text, part integer, inputs jsonb, status text)
    """
).bindparams(sa.bindparam("rows", type_=JSONB))


async def read_steps(connection: AsyncConnection, work: Work) -> list[NodeStep]:
    """The steps that are not yet done, in order."""
    query = (
        sa.select(actions.c.id, actions.c.action, actions.c.target, actions.c.part, actions.c.inputs, actions.c.status)
        .where(actions.c.parent_id == work.id, unfinished)
        .order_by(actions.c.part, actions.c.sequence)
    )
    return [
        NodeStep(row.id, row.action, row.target, row.part, row.inputs, row.status == "WAITING_LIFECYCLE_COMPLETION")
        for row in (await connection.execute(query)).all()
    ]
