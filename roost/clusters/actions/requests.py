"""From a request to an action: refused while another action is at work, else stored for the engines to find."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost import traces
from roost.clusters.errors import ActionConflict, ResourceIsLocked
from roost.clusters.ids import new_id
from roost.clusters.states import ActionName, ActionStatus
from roost.identity.tokens import Caller
from roost.store.tables.clusters import actions, unfinished

REQUESTED, DERIVED = "RPC Request", "Derived Action"

_QUEUED_WHATEVER_RUNS = frozenset({ActionName.CLUSTER_DELETE, ActionName.NODE_DELETE, ActionName.NODE_OPERATION})
_SHORT_NAMES: Mapping[str, str] = {
    ActionName.CLUSTER_ATTACH_POLICY: "attach_policy",
    ActionName.CLUSTER_DETACH_POLICY: "detach_policy",
    ActionName.CLUSTER_UPDATE_POLICY: "update_policy",
}


@dataclass(frozen=True, slots=True)
class Owner:
    """Who a cluster, node or action belongs to."""

    user_id: str
    project_id: str
    domain_id: str = "default"
    is_admin: bool = False

    @classmethod
    def of(cls, caller: Caller) -> "Owner":
        """What a caller makes belongs to it."""
        return cls(caller.user_id, caller.project_id or "", is_admin=caller.is_admin)

    @property
    def columns(self) -> dict[str, str]:
        """The columns that every table has for its rows' owner."""
        return {"user_id": self.user_id, "project_id": self.project_id, "domain_id": self.domain_id}


@dataclass(frozen=True, slots=True)
class ActionRequest:
    """Something to be done to a cluster or to a node."""

    action: ActionName
    target: str
    cluster_id: str | None
    timeout: int
    inputs: Mapping[str, object] = field(default_factory=dict)
    name: str | None = None

    @property
    def lock(self) -> str:
        """What must not be worked on by two actions at once: the cluster, or a node that is in none."""
        return self.cluster_id or self.target


async def accept(connection: AsyncConnection, owner: Owner, request: ActionRequest) -> str:
    """Write the action down; the caller holds the row of its target. Returns the action's id."""
    await _refuse_if_busy(connection, request)
    identifier = new_id()
    await connection.execute(
        actions.insert().values(
            id=identifier,
            name=request.name or f"{_SHORT_NAMES.get(request.action, request.action.lower())}_{request.target[:8]}",
            action=request.action,
            target=request.target,
            cluster_id=request.cluster_id,
            lock=request.lock,
            cause=REQUESTED,
            timeout=request.timeout,
            status=ActionStatus.READY,
            status_reason="The action is ready to be carried out.",
            inputs=dict(request.inputs),
            **owner.columns,
            is_admin=owner.is_admin,
            trace=traces.current(),
        )
    )
    return identifier


async def _refuse_if_busy(connection: AsyncConnection, request: ActionRequest) -> None:
    if request.action in _QUEUED_WHATEVER_RUNS:
        return
    on_cluster = request.action.on_cluster
    same = actions.c.lock == request.lock if on_cluster else actions.c.target == request.target
    query = sa.select(actions.c.id, actions.c.status).where(same, unfinished)
    others = (await connection.execute(query.order_by(actions.c.sequence).limit(10))).all()
    if any(other.status not in (ActionStatus.INIT, ActionStatus.READY) for other in others):
        raise ResourceIsLocked(request.action, "cluster" if on_cluster else "node", request.target)
    if others:
        raise ActionConflict(request.action, request.target, [other.id for other in others])
