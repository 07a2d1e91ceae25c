"""Security groups and their rules, as Neutron shows them."""

from collections.abc import Sequence
from typing import Any

from roost.api.network.nouns import DESCRIBED, TEXT, Noun, Values
from roost.api.routes import Call, Connection
from roost.api.schemas import NULLABLE_STRING, STRING, TRUTH, Schema
from roost.errors import Conflict
from roost.network import security, stored

_RANGE: Schema = {"type": ["integer", "null"], "minimum": 0, "maximum": 65535}


async def _make_group(call: Call, connection: Connection, values: Values) -> Any:
    return await security.create(connection, values)


async def _change_group(call: Call, connection: Connection, row: Any, values: Values) -> None:
    if row.name == "default" and values.get("name", row.name) != row.name:
        raise Conflict("Updating default security group not allowed.")
    await stored.SECURITY_GROUPS.change(connection, row.id, values)


async def _more_of_groups(connection: Connection, found: Sequence[Any]) -> dict[str, Values]:
    by_group = await security.rules_of(connection, [row.id for row in found])
    every = [rule for rules in by_group.values() for rule in rules]
    shown = dict(zip((rule.id for rule in every), await RULES_OF_GROUPS.views(connection, every), strict=True))
    return {
        row.id: {"security_group_rules": [shown[rule.id] for rule in by_group.get(row.id, ())], "shared": False}
        for row in found
    }


async def _make_rule(call: Call, connection: Connection, values: Values) -> Any:
    group = await GROUPS.find(call, connection, values["security_group_id"])
    call.permit("create_security_group_rule", project_id=group.project_id)
    if values.get("remote_group_id") is not None:
        await GROUPS.find(call, connection, values["remote_group_id"])
    return await security.add_rule(connection, {**values, "project_id": group.project_id})


async def _change_rule(call: Call, connection: Connection, row: Any, values: Values) -> None:
    await stored.SECURITY_GROUP_RULES.change(connection, row.id, values)


async def _remove_rule(connection: Connection, row: Any) -> None:
    await stored.SECURITY_GROUP_RULES.remove(connection, row.id)


async def _more_of_rules(connection: Connection, found: Sequence[Any]) -> dict[str, Values]:
    return {row.id: {"normalized_cidr": row.remote_ip_prefix, "remote_address_group_id": None} for row in found}


GROUPS = Noun(
    *("security_group", "security_groups", "Security group", stored.SECURITY_GROUPS),
    makeable={**DESCRIBED, "stateful": TRUTH},
    changeable={**DESCRIBED, "stateful": TRUTH},
    required=("name",),
    make=_make_group,
    change=_change_group,
    remove=security.delete,
    more=_more_of_groups,
)
RULES_OF_GROUPS = Noun(
    *("security_group_rule", "security_group_rules", "Security group rule", stored.SECURITY_GROUP_RULES),
    makeable={
        "security_group_id": STRING,
        "direction": {"enum": ["ingress", "egress"]},
        "ethertype": {"enum": ["IPv4", "IPv6"]},
        "protocol": {"type": ["string", "integer", "null"]},
        "port_range_min": _RANGE,
        "port_range_max": _RANGE,
        "remote_ip_prefix": NULLABLE_STRING,
        "remote_group_id": NULLABLE_STRING,
        "description": TEXT,
    },
    changeable={"description": TEXT},
    required=("security_group_id", "direction"),
    make=_make_rule,
    change=_change_rule,
    remove=_remove_rule,
    more=_more_of_rules,
)
