"""Notifications: sent for what was committed, in order, and for nothing else; through oslo.messaging itself."""

import asyncio
import socket
import sys
from typing import Any

import oslo_messaging
import pytest
import sqlalchemy as sa
from oslo_config import cfg

from roost import config
from roost.compute.groups import groups, members, notifications
from roost.compute.groups.groups import Group, GroupPolicy
from roost.compute.inventory.scopes import aggregates_in, load_scopes
from roost.compute.scheduling import lifecycle
from roost.compute.scheduling.steps import Deletion
from roost.config import Settings
from roost.placement.rules import Rule
from roost.store.database import Database
from roost.store.rounds import Rounds
from roost.store.tables.compute import scopes
from roost.store.tables.servers import outbox, servers
from tests.compute.members import put_server


@pytest.fixture
def telling(database_url: str) -> Settings:
    """Settings with which notifications go to a broker in this process."""
    loaded = config.load(notifications__driver="messagingv2", notifications__transport_url="fake:///")
    return config.with_database(loaded, database_url)


class Listener:
    """What a listener to Nova's notifications would have received."""

    def __init__(self) -> None:
        transport = oslo_messaging.get_notification_transport(cfg.ConfigOpts(), "fake:///")
        target = oslo_messaging.Target(exchange="nova", topic="versioned_notifications")
        self._poll = transport._listen_for_notifications([(target, "info")], None, 1, 0.05)._poll_style_listener

    def received(self) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = []
        while incoming := self._poll.poll(timeout=0.05):
            messages += [message.message for message in incoming]
        return messages

    def events(self) -> list[str]:
        return [message["event_type"] for message in self.received()]


@pytest.fixture
def listener() -> Listener:
    """Hears only what is sent from now on."""
    listening = Listener()
    listening.received()
    return listening


async def make_group(database: Database, settings: Settings, *policies: str, **limits: int) -> Group:
    rules = [GroupPolicy(Rule.parse(text, limits)) for text in policies or ("affinity",)]
    async with database.begin() as connection:
        return await groups.create(
            connection, settings, name="g", policies=rules, project_id="tenant", user_id="somebody"
        )


async def send_all(database: Database, settings: Settings) -> int:
    return await notifications.send_batch(database, notifications.sender(settings))


async def waiting(database: Database) -> int:
    async with database.begin() as connection:
        return int(await connection.scalar(sa.select(sa.func.count()).select_from(outbox)) or 0)


async def test_a_message_is_as_nova_sends_it(database: Database, telling: Settings, listener: Listener) -> None:
    group = await make_group(database, telling, "anti-affinity", max_server_per_host=2)
    server = await put_server(database, "tenant")
    async with database.begin() as connection:
        await members.add(connection, telling, group, server)
    assert await send_all(database, telling) == 2
    created, added = listener.received()
    assert created["event_type"] == "server_group.create"
    assert created["payload"]["nova_object.data"]["members"] == []
    assert added == {
        "message_id": added["message_id"],
        "timestamp": added["timestamp"],
        "priority": "INFO",
        "event_type": "server_group.add_member",
        "publisher_id": f"nova-api:{socket.gethostname()}",
        "payload": {
            "nova_object.name": "ServerGroupPayload",
            "nova_object.namespace": "nova",
            "nova_object.version": "1.1",
            "nova_object.data": {
                "uuid": group.id,
                "name": "g",
                "user_id": "somebody",
                "project_id": "tenant",
                "policies": ["anti-affinity"],
                "policy": "anti-affinity",
                "rules": {"max_server_per_host": "2"},
                "members": [server],
                "hosts": None,
            },
        },
    }


async def test_every_change_is_told_in_its_order(database: Database, telling: Settings, listener: Listener) -> None:
    group = await make_group(database, telling)
    server = await put_server(database, "tenant")
    async with database.begin() as connection:
        group = await groups.update(connection, telling, group, name="other", policies=None)
        group = await members.add(connection, telling, group, server)
        group = await members.remove(connection, telling, group, server)
        await groups.delete(connection, telling, group)
    await send_all(database, telling)
    assert listener.events() == [
        "server_group.create",
        "server_group.update",
        "server_group.add_member",
        "server_group.remove_member",
        "server_group.delete",
    ]


async def test_a_member_that_is_deleted_is_announced(database: Database, telling: Settings, listener: Listener) -> None:
    group = await make_group(database, telling)
    server = await put_server(database, "tenant", group=group.id)
    async with database.begin() as connection:
        due = {"step": Deletion().to_json(), "due_at": sa.func.now()}
        await connection.execute(servers.update().where(servers.c.id == server).values(due))
    assert await lifecycle.finish(database, telling) == 1
    await send_all(database, telling)
    _, removed = listener.received()
    assert removed["event_type"] == "server_group.remove_member"
    assert removed["payload"]["nova_object.data"]["members"] == [server]


async def test_many_members_at_once_are_told_one_by_one(
    database: Database, telling: Settings, listener: Listener
) -> None:
    one, other = await make_group(database, telling), await make_group(database, telling)
    pairs = [(group.id, await put_server(database, "tenant", group=group.id)) for group in (one, other, one)]
    async with database.begin() as connection:
        await members.announce_added(connection, telling, pairs)
    await send_all(database, telling)
    payloads = [message["payload"]["nova_object.data"] for message in listener.received()[2:]]
    assert [(data["uuid"], *data["members"]) for data in payloads] == pairs


async def test_a_real_identifier_is_not_told(database: Database, telling: Settings, listener: Listener) -> None:
    async with database.begin() as connection:
        hidden = {"allow_identifiers": True, "obfuscate_identifiers": True}
        name = await connection.scalar(scopes.update().values(hidden).returning(scopes.c.name))
        known = (await load_scopes(connection))[str(name)]
        number = (await aggregates_in(connection, known))[0].identifier
    own = known.identifier_for("tenant", number)
    await make_group(database, telling, f"affinity:{known.name}:{own}")
    await send_all(database, telling)
    (message,) = listener.received()
    data = message["payload"]["nova_object.data"]
    assert data["policies"] == [f"affinity:{known.name}:{own}"]
    assert data["rules"] == {"scope": known.name, "identifier": own}


async def test_what_is_rolled_back_is_not_told(database: Database, telling: Settings, listener: Listener) -> None:
    async with database.begin() as connection:
        policies = [GroupPolicy(Rule.parse("affinity"))]
        await groups.create(connection, telling, name="g", policies=policies, project_id="tenant", user_id="somebody")
        assert await connection.scalar(sa.select(sa.func.count()).select_from(outbox)) == 1
        await connection.rollback()
    assert await send_all(database, telling) == 0
    assert listener.events() == []


async def test_what_cannot_be_sent_stays_and_nothing_overtakes_it(
    database: Database, telling: Settings, listener: Listener
) -> None:
    await make_group(database, telling)
    second = await make_group(database, telling)
    async with database.begin() as connection:
        await groups.delete(connection, telling, second)
    send = notifications.sender(telling)
    sent: list[str] = []

    def fail_at_the_second(message: notifications.Message) -> None:
        if sent:
            raise OSError("the broker is gone")
        sent.append(message["message_id"])
        send(message)

    with pytest.raises(OSError, match="the broker is gone"):
        await notifications.send_batch(database, fail_at_the_second)
    assert await waiting(database) == 2
    await send_all(database, telling)
    assert listener.events() == ["server_group.create", "server_group.create", "server_group.delete"]
    assert await waiting(database) == 0


ENGINE = """
import asyncio, sys, time
from roost.compute.groups import notifications
from roost.store.database import Database
from roost.store.rounds import Rounds

def send(message):
    print(message["message_id"], flush=True)
    time.sleep(0.05)

asyncio.run(notifications.send_batch(Database(sys.argv[1]), send))
"""


async def test_an_engine_that_is_killed_while_sending_loses_nothing(database: Database, telling: Settings) -> None:
    for _ in range(8):
        await make_group(database, telling)
    url = str(telling.database_url)
    engine = await asyncio.create_subprocess_exec(sys.executable, "-c", ENGINE, url, stdout=asyncio.subprocess.PIPE)
    assert engine.stdout is not None
    sent = [(await engine.stdout.readline()).decode().strip() for _ in range(3)]
    engine.kill()
    await engine.wait()
    again: list[str] = []
    while await waiting(database):
        await notifications.send_batch(database, lambda message: again.append(message["message_id"]))
    # Those three come again, under the same ids, so a listener can tell.
    assert again[:3] == sent
    assert len(set(again)) == len(again) == 8


async def test_two_engines_send_nothing_twice_and_keep_the_order(
    database: Database, telling: Settings, listener: Listener
) -> None:
    for _ in range(8):
        await make_group(database, telling)
    async with database.begin() as connection:
        expected = (await connection.scalars(sa.select(outbox.c.payload).order_by(outbox.c.id))).all()
    engines = [asyncio.create_task(notifications.keep_sending(database, telling, Rounds(database))) for _ in range(2)]
    received: list[Any] = []
    while len(received) < len(expected):
        received += await asyncio.to_thread(listener.received)
    for engine in engines:
        engine.cancel()
    await asyncio.gather(*engines, return_exceptions=True)
    assert [message["payload"] for message in received + listener.received()] == expected
    assert await waiting(database) == 0


async def test_with_noop_nothing_is_kept_to_be_sent(database: Database, settings: Settings) -> None:
    await make_group(database, settings)
    assert await waiting(database) == 0
    await asyncio.wait_for(notifications.keep_sending(database, settings, Rounds(database)), 1)
