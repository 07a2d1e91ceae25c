"""Poolers between Roost and PostgreSQL: one that hands sessions from client to client must be known to be there."""

import psycopg

from roost.errors import Invalid, Unavailable
from roost.store.addresses import Address
from roost.store.database import application_name

_TRIES = 3


def refuse_unknown(url: str, session_url: str | None) -> None:
    """Raise `Invalid` where sessions are needed and a pooler shares them out, as PgBouncer does in transaction mode:
    what one process prepares, locks or listens to would be another's."""
    if shares_sessions(session_url or url):
        raise Invalid(
            "[database] session_url leads to a pooler that shares sessions between clients: it must lead to PostgreSQL."
            if session_url
            else "[database] url leads to a pooler that shares sessions between clients, as PgBouncer does in "
            "transaction mode: set [database] session_url to the address of PostgreSQL itself."
        )


def shares_sessions(url: str) -> bool:
    """Whether two clients of this address can find themselves in one session."""
    parameters = Address.parse(url).connecting(application_name("roost", "start"))
    try:
        with (
            psycopg.connect(autocommit=True, prepare_threshold=None, **parameters) as one,
            psycopg.connect(autocommit=True, prepare_threshold=None, **parameters) as other,
        ):
            # PostgreSQL itself gives a client the number of its backend; a pooler makes one up.
            return one.info.backend_pid != _backend(one) and any(_meet(one, other) for _ in range(_TRIES))
    except psycopg.Error as error:
        raise Unavailable(f"The database does not answer: {str(error).splitlines()[0]}") from None


def _meet(one: "psycopg.Connection[tuple[int]]", other: "psycopg.Connection[tuple[int]]") -> bool:
    before = _backend(one)
    with other.transaction():
        return _backend(other) == before or _backend(one) != before


def _backend(connection: "psycopg.Connection[tuple[int]]") -> int:
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    return row[0] if row else 0
