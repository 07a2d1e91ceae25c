"""Security groups and their rules. Every project has a default group, made when it is first looked for."""

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.errors import Conflict, Invalid
from roost.store import rows
from roost.store.tables.network import ports, security_group_rules, security_groups

COUNTED: Mapping[str, sa.Table] = {"security_group": security_groups, "security_group_rule": security_group_rules}


async def default_group(connection: AsyncConnection, project_id: str) -> Any:
    """The default group of a project."""
    found = await rows.find(connection, security_groups, project_id=project_id, name="default")
    if found is not None:
        return found
    described = {"project_id": project_id, "name": "default", "description": "Default security group"}
    made = insert(security_groups).values(**described).on_conflict_do_nothing().returning(security_groups)
    row = (await connection.execute(made)).one_or_none()
    if row is None:
        return await rows.find(connection, security_groups, project_id=project_id, name="default")
    await _usual_rules(connection, row, among_themselves=True)
    return row


async def create(connection: AsyncConnection, values: Mapping[str, Any]) -> Any:
    """Make a group whose members may send anything and receive nothing."""
    if values["name"] == "default":
        raise Conflict("Default security group already exists.")
    row = await rows.add(connection, security_groups, values)
    await _usual_rules(connection, row, among_themselves=False)
    return row


async def _usual_rules(connection: AsyncConnection, group: Any, *, among_themselves: bool) -> None:
    of = {"security_group_id": group.id, "project_id": group.project_id}
    for ethertype in ("IPv4", "IPv6"):
        await rows.add(connection, security_group_rules, {**of, "direction": "egress", "ethertype": ethertype})
        if among_themselves:
            inward = {"direction": "ingress", "ethertype": ethertype, "remote_group_id": group.id}
            await rows.add(connection, security_group_rules, {**of, **inward})


async def delete(connection: AsyncConnection, group: Any) -> None:
    """Forget a group that no port has."""
    if group.name == "default":
        raise Conflict("Deleting default security group not allowed.")
    if await connection.scalar(sa.select(sa.exists().where(ports.c.security_groups.contains([group.id])))):
        raise Conflict(f"Security Group {group.id} in use.")
    await rows.remove(connection, security_groups, id=group.id)


async def add_rule(connection: AsyncConnection, values: dict[str, Any]) -> Any:
    """Make a rule, unless the group has it already."""
    values = {"ethertype": "IPv4", **values}
    low, high = values.get("port_range_min"), values.get("port_range_max")
    if values.get("protocol") in ("tcp", "udp", "6", "17") and (low is None) != (high is None):
        raise Invalid("For TCP/UDP protocols, port_range_min and port_range_max must both be given.")
    if low is not None and high is not None and low > high and values.get("protocol") not in ("icmp", "1"):
        raise Invalid("For TCP/UDP protocols, port_range_min must be <= port_range_max")
    if values.get("remote_ip_prefix") is not None:
        values["remote_ip_prefix"] = _prefix(values["remote_ip_prefix"], values["ethertype"])
    if values.get("remote_ip_prefix") is not None and values.get("remote_group_id") is not None:
        raise Invalid("Only remote_ip_prefix or remote_group_id may be provided.")
    for other in await rows.index(connection, security_group_rules, security_group_id=values["security_group_id"]):
        if all(getattr(other, key) == values.get(key) for key in _SAME):
            raise Conflict(f"Security group rule already exists. Rule id is {other.id}.")
    return await rows.add(connection, security_group_rules, values)


_SAME = (
    *("direction", "ethertype", "protocol", "port_range_min", "port_range_max"),
    *("remote_ip_prefix", "remote_group_id"),
)


def _prefix(text: str, ethertype: str) -> str:
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise Invalid(f"Invalid CIDR {text} given as IP prefix.") from None
    if f"IPv{network.version}" != ethertype:
        raise Invalid(f"Conflicting value ethertype {ethertype} for CIDR {text}")
    return str(network)


async def rules_of(connection: AsyncConnection, group_ids: Sequence[str]) -> dict[str, list[Any]]:
    """The rules of groups, by group."""
    query = sa.select(security_group_rules).where(security_group_rules.c.security_group_id.in_(group_ids))
    found: dict[str, list[Any]] = {}
    for row in await connection.execute(query.order_by(security_group_rules.c.created_at)):
        found.setdefault(row.security_group_id, []).append(row)
    return found
