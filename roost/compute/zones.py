"""Availability zones: the names that aggregates give to their hosts."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute import hosts


def zone_of(host: sa.Row[Any]) -> str:
    """The zone that a host is in."""
    return host.availability_zone or hosts.DEFAULT_ZONE


async def index(connection: AsyncConnection) -> Mapping[str, Sequence[sa.Row[Any]]]:
    """All zones that have hosts, by name, each with its hosts."""
    zones: dict[str, list[sa.Row[Any]]] = {}
    for host in await hosts.index(connection):
        zones.setdefault(zone_of(host), []).append(host)
    return dict(sorted(zones.items()))
