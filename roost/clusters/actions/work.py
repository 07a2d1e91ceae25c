"""One attempt at one action: what it is about, and when it must stop.

Every write checks that this attempt is still the current one. An engine that was considered dead, and whose work
another has taken over, notices at its next write and stops.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.clouds.base import Cloud, Clouds
from roost.clusters.actions.program import NodeStep, Outputs, Program
from roost.clusters.actions.requests import Owner
from roost.clusters.events import Event, Severity
from roost.clusters.plugins import Plugins
from roost.clusters.policies.decisions import Decisions
from roost.clusters.states import ActionName, Signal
from roost.config import ClusterSettings
from roost.store.database import Database
from roost.store.tables.clusters import actions, unfinished

if TYPE_CHECKING:
    from roost.clusters.actions.journal import Journal
    from roost.clusters.actions.steps import NodeBatch, Report


@dataclass(frozen=True, slots=True)
class Engine:
    """What an engine works with."""

    id: str
    database: Database
    settings: ClusterSettings
    plugins: Plugins
    clouds: Clouds
    journal: "Journal"
    errands: set["asyncio.Task[None]"] = field(default_factory=set)
    """Background work that no action waits for."""


class Superseded(Exception):
    """Another attempt at this action has begun, or it was ended by force: this one may not write any more."""


class Interrupted(Exception):
    """The action has been cancelled or suspended."""

    def __init__(self, signal: Signal) -> None:
        super().__init__(signal)
        self.signal = signal


class ActionRefused(Exception):
    """The action cannot be carried out; the message is for its owner."""


class ActionRow(NamedTuple):
    """What the table of actions has of one."""

    id: str
    name: str
    action: str
    target: str
    cluster_id: str | None
    attempt: int
    timeout: int
    user_id: str
    project_id: str
    domain_id: str
    is_admin: bool
    inputs: Mapping[str, object]
    data: Mapping[str, object]
    outputs: Mapping[str, object]
    plan: Mapping[str, object] | None
    control: str | None
    trace: str | None


@dataclass(slots=True)
class Work:
    """An action that this process has taken up."""

    engine: Engine
    id: str
    name: str
    action: ActionName
    target: str
    cluster_id: str | None
    attempt: int
    timeout: int
    deadline: float
    """By the monotonic clock; how long earlier attempts took comes from the database's."""
    owner: Owner
    inputs: Mapping[str, object]
    """As policies see them; a planner reads them as one of the types in `program`."""
    data: dict[str, object]
    """What policies have decided, as they see it; the engine reads it as `Decisions`."""
    outputs: Outputs
    program: Program | None
    trace: str | None = None
    signal: Signal | None = None
    steps: tuple[NodeStep, ...] | None = None
    """Those not yet done; None if they are still to be read."""
    in_hand: "NodeBatch | None" = None
    """What the cloud is making at this moment."""
    report: "Report | None" = None
    """What became of the steps, once all are done."""

    @classmethod
    def of(cls, engine: Engine, row: ActionRow, since_start: float = 0.0) -> "Work":
        """The work of an action that began so many seconds ago."""
        return cls(
            engine=engine,
            id=row.id,
            name=row.name,
            action=ActionName(row.action),
            target=row.target,
            cluster_id=row.cluster_id,
            attempt=row.attempt,
            timeout=row.timeout,
            deadline=time.monotonic() + row.timeout - since_start,
            owner=Owner(row.user_id, row.project_id, row.domain_id, row.is_admin),
            inputs=row.inputs,
            data=dict(row.data),
            outputs=Outputs.from_json(row.outputs),
            program=None if row.plan is None else Program.from_json(row.plan, "The plan"),
            signal=Signal(row.control) if row.control else None,
            trace=row.trace,
        )

    @property
    def decisions(self) -> Decisions:
        """What policies have decided; `MalformedData` if that cannot be followed."""
        return Decisions.from_json(self.data, "action.data")

    @property
    def planned(self) -> Program:
        """The program, once there is one."""
        assert self.program is not None
        return self.program

    def cloud_of(self, project_id: str, user_id: str) -> Cloud:
        """The cloud of the owner of a cluster or node, with the rights of the one who asked for this action."""
        return self.engine.clouds.of(project_id, user_id, privileged=self.owner.is_admin)

    @property
    def label(self) -> str:
        """How the action is called in sentences."""
        return f"{self.action} [{self.id[:8]}]"

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
            self.signal = Signal(row.control) if row.control else None
            yield connection

    def check_signal(self) -> None:
        """Stop here if the action was asked to."""
        if self.signal is not None:
            raise Interrupted(self.signal)

    def event(self, status: str, reason: str = "", level: Severity = Severity.INFO, **more: object) -> Event:
        """An event about the target of the action."""
        return Event(
            oid=self.target,
            oname=self.name,
            otype="CLUSTER" if self.action.on_cluster else "NODE",
            cluster_id=self.cluster_id,
            level=level,
            action=self.action,
            status=status,
            status_reason=reason,
            meta_data={"action": {"id": self.id, "name": self.name}, **more},
            user_id=self.owner.user_id,
            project_id=self.owner.project_id,
            domain_id=self.owner.domain_id,
        )

    def node_event(
        self, step: NodeStep, status: str, reason: str, level: Severity, name: str | None = None, **more: object
    ) -> Event:
        """An event about one of the nodes that the action works on."""
        about = self.event(status, reason, level, **more)
        return about.of_node(step.node_id, name or step.node_id[:8], step.action)
