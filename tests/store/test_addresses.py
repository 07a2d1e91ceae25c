"""Addresses of a PostgreSQL: what libpq reads works everywhere, and what cannot work is refused with a sentence."""

import asyncio
import socket

import psycopg
import pytest
import sqlalchemy as sa

from roost.errors import Invalid
from roost.store import schema
from roost.store.addresses import Address
from roost.store.database import Database
from tests.faults.proxy import Proxy


async def _proxied(database_url: str) -> Proxy:
    sockets = database_url.partition("host=")[2]
    proxy = Proxy(lambda: asyncio.open_unix_connection(f"{sockets}/.s.PGSQL.5432"))
    await proxy.start()
    return proxy


async def test_of_several_hosts_the_one_that_answers_and_can_be_written_to_is_used(database_url: str) -> None:
    proxy = await _proxied(database_url)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = closed.getsockname()[1]
    name = Address.parse(database_url).database
    url = f"postgresql://roost@127.0.0.1:{dead},127.0.0.1:{proxy.port}/{name}?target_session_attrs=read-write"
    database = Database(url)
    heard = asyncio.Event()

    async def hear(_: str) -> None:
        heard.set()

    listening = asyncio.create_task(database.listen("channel", hear))
    try:
        async with database.begin() as connection:
            assert await connection.scalar(sa.text("SELECT 1")) == 1
        await asyncio.wait_for(heard.wait(), 10)
        assert await asyncio.to_thread(schema.status, url)
    finally:
        listening.cancel()
        await database.close()
        await proxy.stop()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("postgresql://u@/roost?host=a:1&host=b:2&target_session_attrs=read-write", "in a way that libpq cannot read"),
        ("postgresql://u@/roost?host=a:1", "in a way that libpq cannot read"),
        ("postgresql://u@a:1,b:2,c:3/roost", "may lead to a standby"),
        ("postgresql://u@a,b/roost?target_session_attrs=any", "may lead to a standby"),
        ("postgresql://u@a/roost?target_session_attrs=prefer-standby", "may lead to a standby"),
        ("postgresql://u@/roost?host=a,b,c&port=1,2&target_session_attrs=read-write", "has 3 hosts and 2 ports"),
        ("postgresql://u@a:port:1/roost", "cannot be read"),
        ("mysql://u@a/roost", "cannot be read"),
        ("postgresql://u@a/roost?sslmod=require", "cannot be read"),
    ],
)
def test_what_cannot_work_is_refused_with_a_sentence(text: str, said: str) -> None:
    with pytest.raises(Invalid, match=said) as caught:
        Address.parse(text)
    assert "\n" not in caught.value.message
    assert caught.value.message.endswith(".")


def test_an_address_shows_no_password_where_others_may_read_it() -> None:
    address = Address.parse("postgresql://u:secret@a/roost")
    assert "secret" not in repr(address)
    assert "secret" not in address.conninfo(password=False)
    assert "secret" in address.conninfo()


@pytest.mark.parametrize("host", ["a", "[::1]", "%2Frun%2Fpostgresql", "a:1,b:2"])
def test_forms_of_libpq_are_taken_as_they_are(host: str) -> None:
    url = f"postgresql://u@{host}/roost?target_session_attrs=read-write&connect_timeout=7"
    parameters = Address.parse(url).connecting("x")
    assert parameters["connect_timeout"] == "7"
    assert parameters["host"] == psycopg.conninfo.conninfo_to_dict(url)["host"]
