"""Addresses of a PostgreSQL: every form that libpq reads, with several hosts too. What cannot work is refused."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from roost.errors import Invalid

_EXAMPLE = "postgresql://user:password@host/name"
_SEVERAL = "postgresql://user:password@host1:5432,host2:5432/name?target_session_attrs=read-write"
_WRITABLE = frozenset({"read-write", "primary"})
_HOST_AND_PORT = re.compile(r"[^:/]+:\d+")

# A peer that vanishes without a word is noticed within 15 seconds: PostgreSQL by us, and we by PostgreSQL.
KEEPALIVES = {"keepalives_idle": 5, "keepalives_interval": 3, "keepalives_count": 3, "tcp_user_timeout": 15_000}
_CONNECT_SECONDS = 5
_CONNECT_SECONDS_EACH = 2
"""With several hosts: a dead one is passed over before the client gives up."""


@dataclass(frozen=True, slots=True)
class Address:
    """A database, as libpq knows it."""

    parameters: Mapping[str, Any] = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Read a URL or a list of key=value. Raises `Invalid` with a message for what cannot work."""
        text = re.sub(r"^postgresql\+\w+:", "postgresql:", text)
        try:
            parameters = {name: value for name, value in conninfo_to_dict(text).items() if value is not None}
        except psycopg.Error:
            # What libpq says may repeat the address, with the password.
            raise _unreadable() from None
        _refuse_unusable(text, parameters)
        return cls(parameters)

    @property
    def database(self) -> str:
        """The name of the database."""
        return str(self.parameters.get("dbname") or self.parameters.get("user") or "")

    def on(self, database: str) -> "Address":
        """Another database of the same server."""
        return Address({**self.parameters, "dbname": database})

    def connecting(self, application_name: str) -> dict[str, Any]:
        """How to connect: what the address says, and otherwise Roost's own timeouts and keepalives."""
        several = "," in str(self.parameters.get("host", ""))
        timeout = _CONNECT_SECONDS_EACH if several else _CONNECT_SECONDS
        return {"connect_timeout": timeout, "application_name": application_name, **KEEPALIVES, **self.parameters}

    def conninfo(self, *, password: bool = True) -> str:
        """The address as programs of PostgreSQL take it."""
        return make_conninfo(
            "", **{name: value for name, value in self.parameters.items() if password or name != "password"}
        )


def _unreadable() -> Invalid:
    return Invalid(f"The address of the database cannot be read: write {_EXAMPLE}.")


def _refuse_unusable(text: str, parameters: Mapping[str, Any]) -> None:
    names = [name for name, _ in parse_qsl(urlsplit(text).query)] if "://" in text else []
    hosts, ports = (str(parameters.get(name, "")).split(",") for name in ("host", "port"))
    if names.count("host") > 1 or any(_HOST_AND_PORT.fullmatch(host) for host in hosts):
        raise Invalid(f"The address of the database names its hosts in a way that libpq cannot read: write {_SEVERAL}.")
    if not all(port.isdigit() for port in ports if port):
        raise _unreadable()
    if len(ports) not in (1, len(hosts)):
        raise Invalid(f"The address of the database has {len(hosts)} hosts and {len(ports)} ports: write {_SEVERAL}.")
    wanted = parameters.get("target_session_attrs", "any")
    if wanted not in _WRITABLE and (len(hosts) > 1 or wanted != "any"):
        raise Invalid(
            f"The address of the database may lead to a standby, which cannot be written to: write {_SEVERAL}."
        )
