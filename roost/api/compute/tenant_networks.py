"""Networks through compute, as clients asked for them before 2.36: those of the network API, in the legacy format."""

from roost.api.fields import FieldTable, always, column
from roost.api.permissions import READER, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import NULLABLE_STRING, STRING
from roost.errors import NotFound
from roost.network.networks import UsableNetwork, usable

_NETWORKS, _TENANT = "os_compute_api:os-networks:", "os_compute_api:os-tenant-networks:"

RULES = tuple(
    Permission(rule + verb, READER, f"{word} that the project can use, through compute.")
    for rule in (_NETWORKS, _TENANT)
    for verb, word in (("list", "List the networks"), ("show", "Show a network"))
)

routes = Table(prefix="/v2.1")

_UNKNOWN = (
    *("bridge", "bridge_interface", "broadcast", "cidr_v6", "created_at", "deleted", "deleted_at", "dhcp_server"),
    *("dhcp_start", "dns1", "dns2", "enable_dhcp", "gateway_v6", "host", "injected", "mtu", "multi_host", "netmask"),
    *("netmask_v6", "priority", "project_id", "rxtx_base", "share_address", "updated_at", "vlan"),
    *("vpn_private_address", "vpn_public_address", "vpn_public_port"),
)
"""Attributes that nova-network had of a network, and no network service has."""
_BRIEF = FieldTable[UsableNetwork](
    column("id", STRING), column("label", STRING, "name"), column("cidr", NULLABLE_STRING)
)
_FULL = FieldTable[UsableNetwork](
    *_BRIEF.fields, column("gateway", NULLABLE_STRING, "gateway_ip"), *(always(name, None) for name in _UNKNOWN)
)


async def _found(call: Call, network_id: str | None = None) -> list[UsableNetwork]:
    project_id, limit = call.caller.project_id, call.services.settings.max_limit
    async with call.services.database.autocommit() as connection:
        return await usable(connection, project_id, limit, network_id)


def _declare(path: str, rule: str, table: FieldTable[UsableNetwork]) -> None:
    @routes.get(path, until="2.35", rule=rule + "list", response=table.many("networks"))
    async def index(call: Call) -> Reply:
        """List the networks that the project can use."""
        return {"networks": [table.show(row) for row in await _found(call)]}

    @routes.get(path + "/{network_id}", until="2.35", rule=rule + "show", response=table.one("network"))
    async def show(call: Call) -> Reply:
        """Show a network that the project can use."""
        for row in await _found(call, call.path["network_id"]):
            return {"network": table.show(row)}
        raise NotFound(f"Network not found: {call.path['network_id']}")


_declare("/os-networks", _NETWORKS, _FULL)
_declare("/os-tenant-networks", _TENANT, _BRIEF)
