"""A fleet that is too large to be listed in one go, made in the database."""

import json

from roost.compute.inventory.flavors import USUAL, ServerFlavor

LISTS = (
    "os-services",
    "os-availability-zone",
    "os-availability-zone/detail",
    "os-aggregates",
    "os-server-groups",
    "os-hypervisors",
    "os-hypervisors/detail",
    "servers?sort_key=display_name",
    "servers/detail?sort_key=display_name",
)
"""What an administrator can list of it, each at its longest."""

_FLAVOR = json.dumps(ServerFlavor.of(USUAL[0]).to_json())


def large_fleet(hosts: int, *, groups: int) -> tuple[str, ...]:
    """Statements that make hosts in three zones and in racks of 20, and groups of 20 members of the project admin."""
    return (
        "INSERT INTO hosts (name, address, availability_zone, vcpus, memory_mb, disk_gb) "
        f"SELECT 'fleet-' || n, '192.0.2.1', 'fleet' || n % 3, 64, 262144, 2000 FROM generate_series(1, {hosts}) AS n",
        f"INSERT INTO aggregates (name) SELECT 'fleet-' || n FROM generate_series(0, {hosts // 20}) AS n",
        "INSERT INTO aggregate_hosts (aggregate_id, host_id, availability_zone) "
        "SELECT a.id, h.id, '' FROM hosts AS h JOIN aggregates AS a "
        "ON a.name = 'fleet-' || substr(h.name, 7)::int / 20 WHERE h.name LIKE 'fleet-%'",
        "INSERT INTO server_groups (name, project_id, user_id) "
        f"SELECT 'fleet-' || n, p.id, 'u' FROM generate_series(1, {groups}) AS n, projects AS p WHERE p.name = 'admin'",
        "INSERT INTO server_group_policies (group_id, position, name, builtin_scope) "
        "SELECT id, 0, 'anti-affinity', 'host' FROM server_groups WHERE name LIKE 'fleet-%'",
        "INSERT INTO servers (id, project_id, user_id, name, hostname, flavor, reservation_id, vm_state, group_id) "
        f"SELECT gen_random_uuid(), g.project_id, 'u', md5(random()::text), 'm', '{_FLAVOR}', 'r', 'error', g.id "
        "FROM server_groups AS g, generate_series(1, 20) AS n WHERE g.name LIKE 'fleet-%'",
    )
