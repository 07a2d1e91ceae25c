"""Moves of repairs in a Nova: Roost asks for live migrations as its own user, and follows them in Nova.

A move is written down as running before Nova is asked, and the id of the request when it has answered. A move without
one may or may not have been asked for: the state of its server shows which. Asking twice does no harm, since Nova moves
a server once at a time, and never to the host that it is on.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.answers import what_if
from roost.compute.moves.relocation import NoValidHost
from roost.compute.moves.repair_steps import DELETED, FAILED, LEFT, STOPPED, RepairMove, StepState
from roost.compute.scheduling.scheduler import Scheduler
from roost.compute.scheduling.servers import Actor, Server
from roost.errors import RoostError, Unavailable
from roost.placement.scheduler import place

if TYPE_CHECKING:
    from roost.clouds.front import Front


@dataclass(frozen=True, slots=True)
class NovaMover:
    """The Nova that Roost stands in front of."""

    front: "Front"
    scheduler: Scheduler

    async def start(self, connection: AsyncConnection, server: Server, target: str, actor: Actor) -> None:
        """Look whether the rules and the room allow the move now, given those under way. Nova is asked once it is
        written down."""
        if not place(self.scheduler.live.fleet, await what_if.moved(connection, self.scheduler, server, target)):
            raise NoValidHost(f"Host {target} does not take server {server.id} now.")

    async def look_after(self, step: RepairMove, *, stopping: bool) -> StepState:
        """See how far a move has come; ask for it, if Nova does not know of it yet."""
        under_way = StepState("running", request_id=step.request_id)
        found = await self.front.read_servers([step.server_id])
        if not found:
            return DELETED
        [server] = found
        if server.task_state is not None:
            return under_way
        if server.host == step.target and server.vm_state != "error":
            # Until the migration is over for Nova, the source keeps the room: the next move may need it.
            if await self.front.nova.is_migrating(server.id) and not stopping:
                return under_way
            await self.front.follow_inventory()
            return replace(under_way, state="done")
        if step.request_id is not None:
            why = await self.front.nova.why_failed(server.id, step.request_id)
            return replace(under_way, state="failed", reason=why or FAILED.reason)
        if stopping or server.host != step.source:
            return StepState("skipped", STOPPED if stopping else LEFT)
        return await self._ask(step)

    async def _ask(self, step: RepairMove) -> StepState:
        try:
            return StepState("running", request_id=await self.front.nova.live_migrate(step.server_id, step.target))
        except Unavailable:
            raise
        except RoostError as error:
            # Where an answer was lost, what was asked for then may have begun just now.
            moving = [server for server in await self.front.read_servers([step.server_id]) if server.task_state]
            return StepState("running") if moving else StepState("failed", error.message)
