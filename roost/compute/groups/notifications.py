"""Notifications about server groups: written in the transaction of the change, sent after it.

A change and its notification commit together, so none is sent for a change that was rolled back and none is lost. The
engine sends them in order; a crash between sending and forgetting sends some again, with the same `message_id`.
"""

import asyncio
import contextlib
import logging
import socket
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TypedDict

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost import threads
from roost.config import Settings
from roost.errors import Unavailable
from roost.store.database import Database, patient
from roost.store.locks import AdvisoryLock
from roost.store.rounds import Rounds
from roost.store.tables.servers import outbox

logger = logging.getLogger(__name__)

CREATE = "server_group.create"
UPDATE = "server_group.update"
DELETE = "server_group.delete"
MISSING = "server_group.missing"
MASS_MISSING = "server_group.mass_missing"
ADD_MEMBER = "server_group.add_member"
REMOVE_MEMBER = "server_group.remove_member"

NOOP = "noop"

_BATCH = 100
_POLL_SECONDS = 0.5
_RETRY_SECONDS = 5
_MESSAGE_IDS = uuid.UUID("6f1c7f0a-3d57-4b0e-9f57-0c5a9c1b7a11")

Payload = Mapping[str, object]
"""What a notification says, as its listeners read it."""


class Message(TypedDict):
    """A notification as it goes to the broker."""

    message_id: str
    publisher_id: str
    event_type: str
    priority: str
    payload: Payload
    timestamp: str


Send = Callable[[Message], None]
"""Hands one message to the broker, or raises."""


def wanted(settings: Settings) -> bool:
    """Whether notifications are sent."""
    return settings.notification_driver != NOOP


async def write(connection: AsyncConnection, event_type: str, payloads: Iterable[Payload]) -> None:
    """Put notifications into the outbox, as part of the caller's transaction."""
    rows = [{"event_type": event_type, "payload": payload} for payload in payloads]
    if rows:
        await connection.execute(outbox.insert(), rows)


def server_group_payload(**data: object) -> Payload:
    """Nova's ServerGroupPayload, version 1.1."""
    return {
        "nova_object.name": "ServerGroupPayload",
        "nova_object.namespace": "nova",
        "nova_object.version": "1.1",
        "nova_object.data": {**data, "hosts": None},
    }


async def keep_sending(database: Database, settings: Settings, rounds: Rounds) -> None:
    """Send what is in the outbox until cancelled. While the broker does not answer, everything waits there."""
    if wanted(settings):
        send = await _connect(settings)
        # One engine sends at a time, which keeps the order.
        await rounds.every(_POLL_SECONDS, partial(_send_some, database, send), turn=AdvisoryLock.NOTIFICATIONS)


async def _send_some(database: Database, send: Send) -> float:
    batch = asyncio.create_task(send_batch(database, send))
    try:
        return 0 if await asyncio.shield(batch) == _BATCH else _POLL_SECONDS
    except asyncio.CancelledError:
        # What has been sent is to be forgotten before the engine stops, or it would be sent again.
        await asyncio.gather(batch, return_exceptions=True)
        raise
    except Exception as error:
        logger.warning("notifications could not be sent, trying again", extra={"error": str(error)})
        return _RETRY_SECONDS


async def _connect(settings: Settings) -> Send:
    """A sender, as soon as there can be one: nothing else that the engine does should have to wait for it."""
    threads.import_eventlet()
    while True:
        try:
            return await asyncio.to_thread(sender, settings)
        except Exception as error:
            logger.error("there is no connection to send notifications, trying again", extra={"error": str(error)})
            await asyncio.sleep(_RETRY_SECONDS)


async def send_batch(database: Database, send: Send) -> int:
    """Send the oldest notifications and forget them; how many those were. Raises what kept one from being sent."""
    async with database.begin() as connection:
        await patient(connection)
        rows = (await connection.execute(_NEXT)).all()
        sent, failure = await asyncio.to_thread(_send_all, send, [_message(*row) for row in rows])
        await connection.execute(outbox.delete().where(outbox.c.id.in_([row.id for row in rows[:sent]])))
    if failure is not None:
        raise failure
    return sent


def _send_all(send: Send, messages: Iterable[Message]) -> tuple[int, Exception | None]:
    """How many were sent, and what stopped the next."""
    sent = 0
    for message in messages:
        try:
            send(message)
        except Exception as error:
            return sent, error
        sent += 1
    return sent, None


_NEXT = (
    sa.select(outbox.c.id, outbox.c.created_at, outbox.c.event_type, outbox.c.payload)
    .order_by(outbox.c.id)
    .limit(_BATCH)
)


def _message(number: int, created_at: datetime, event_type: str, payload: Payload) -> Message:
    written = str(created_at.astimezone(UTC).replace(tzinfo=None))
    return {
        # The same however often it is sent, so that listeners can recognise a repetition.
        "message_id": str(uuid.uuid5(_MESSAGE_IDS, f"{number} {written}")),
        "publisher_id": f"nova-api:{socket.gethostname()}",
        "event_type": event_type,
        "priority": "INFO",
        "payload": payload,
        "timestamp": written,
    }


def sender(settings: Settings) -> Send:
    """A connection to the broker.

    oslo.messaging's own Notifier logs a message that it cannot send, and goes on; here a failure must be seen, so that
    the message stays in the outbox. So this asks the transport itself, as the `messagingv2` driver does.
    """
    try:
        from oslo_service import backend

        # Otherwise oslo.messaging would use the threads of eventlet.
        with contextlib.suppress(backend.exceptions.BackendAlreadySelected):
            backend.init_backend(backend.BackendType.THREADING)
        import oslo_messaging
    except ImportError:
        raise Unavailable("Notifications need oslo.messaging: pip install 'roost[notifications]'.") from None
    transport = oslo_messaging.get_notification_transport(settings.source, url=settings.notification_url)
    target = oslo_messaging.Target(exchange="nova", topic=f"{settings.notification_topic}.info")

    def send(message: Message) -> None:
        transport._send_notification(target, {}, message, version=2.0, retry=0)

    return send
