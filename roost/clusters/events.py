"""Events: what happened to clusters and nodes, for people to read afterwards."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import IntEnum
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from roost.clusters.ids import new_id
from roost.store import bulk
from roost.store.tables.clusters import events


class Severity(IntEnum):
    """How serious an event is."""

    CRITICAL = 50
    ERROR = 40
    WARN = 30
    INFO = 20
    DEBUG = 10


@dataclass(frozen=True, slots=True)
class Event:
    """A row of the table of events."""

    oid: str
    oname: str
    otype: str
    cluster_id: str | None
    level: Severity
    action: str
    status: str
    status_reason: str
    user_id: str
    project_id: str
    domain_id: str
    meta_data: Mapping[str, Any]
    id: str = field(default_factory=new_id)

    def of_node(self, node_id: str, name: str, action: str) -> "Event":
        """The same about a node."""
        return replace(self, oid=node_id, oname=name, otype="NODE", action=action)


_INSERT = bulk.insert(events, *(column for column in events.c if column.name != "timestamp"))


async def record(connection: AsyncConnection, happened: Sequence[Event]) -> None:
    """Write events down, in the transaction that did what they describe."""
    if happened:
        await connection.execute(_INSERT, {"rows": [asdict(event) for event in happened]})
