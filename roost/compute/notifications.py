"""What happened to server groups, for those outside who listen: written with the change, sent after it.

A change and its notification commit together, so none is sent for a change that was rolled back and none is lost. The
engine sends them in order; a crash between sending and forgetting sends some again, with the same `message_id`.
"""

from collections.abc import Iterable
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from roost.config import Settings
from roost.store.tables.servers import outbox

CREATE = "server_group.create"
UPDATE = "server_group.update"
DELETE = "server_group.delete"
ADD_MEMBER = "server_group.add_member"
REMOVE_MEMBER = "server_group.remove_member"

NOOP = "noop"


def wanted(settings: Settings) -> bool:
    """Whether anybody is to be told."""
    return settings.notification_driver != NOOP


async def write(connection: AsyncConnection, event_type: str, payloads: Iterable[dict[str, Any]]) -> None:
    """Put notifications into the outbox, as part of the caller's transaction."""
    rows = [{"event_type": event_type, "payload": payload} for payload in payloads]
    if rows:
        await connection.execute(outbox.insert(), rows)


def server_group_payload(**data: Any) -> dict[str, Any]:
    """Nova's ServerGroupPayload, version 1.1."""
    return {
        "nova_object.name": "ServerGroupPayload",
        "nova_object.namespace": "nova",
        "nova_object.version": "1.1",
        "nova_object.data": {**data, "hosts": None},
    }
