"""Giving room back in one round trip, so that hosts and groups are not locked while an engine waits for its next turn."""

from alembic import op

revision = "0038"
down_revision = "0037"

_GIVE_BACK = """
    CREATE FUNCTION roost_give_back(asked jsonb) RETURNS void LANGUAGE plpgsql
    SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off
    SET plan_cache_mode = force_generic_plan AS $$
    BEGIN
        PERFORM FROM server_groups JOIN jsonb_array_elements_text(asked->'groups') AS touched(id)
            ON server_groups.id = touched.id::uuid
        ORDER BY server_groups.id FOR NO KEY UPDATE OF server_groups;
        PERFORM FROM hosts JOIN (
            SELECT DISTINCT host_id FROM jsonb_to_recordset(asked->'freed') AS r(host_id int)
        ) AS left_behind ON hosts.id = left_behind.host_id
        ORDER BY hosts.id FOR NO KEY UPDATE OF hosts;

        UPDATE server_groups SET version = server_groups.version + 1
        FROM jsonb_array_elements_text(asked->'groups') AS touched(id) WHERE server_groups.id = touched.id::uuid;

        WITH changed AS (
            UPDATE hosts AS h SET vcpus_used = h.vcpus_used - freed.vcpus,
                memory_mb_used = h.memory_mb_used - freed.memory_mb, disk_gb_used = h.disk_gb_used - freed.disk_gb,
                servers = h.servers - freed.servers, room_version = h.room_version + 1
            FROM (
                SELECT host_id, sum(vcpus) AS vcpus, sum(memory_mb) AS memory_mb, sum(disk_gb) AS disk_gb,
                    sum(servers) AS servers
                FROM jsonb_to_recordset(asked->'freed')
                    AS r(host_id int, vcpus int, memory_mb int, disk_gb int, servers int)
                GROUP BY host_id
            ) AS freed
            WHERE h.id = freed.host_id
            RETURNING jsonb_build_array(h.id, h.room_version, h.vcpus_used, h.memory_mb_used, h.disk_gb_used) AS room
        )
        INSERT INTO claim_changes (body)
        SELECT jsonb_build_object('rooms', jsonb_agg(room)) FROM changed HAVING count(*) > 0;

        INSERT INTO usage_shards AS shards (project_id, shard, instances, cores, ram)
        SELECT project_id, pg_backend_pid() % 64, instances, cores, ram
        FROM jsonb_to_recordset(asked->'usage') AS r(project_id text, instances int, cores int, ram bigint)
        ORDER BY project_id
        ON CONFLICT (project_id, shard) DO UPDATE SET instances = shards.instances + excluded.instances,
            cores = shards.cores + excluded.cores, ram = shards.ram + excluded.ram;
    END $$
"""


def upgrade() -> None:
    """Apply."""
    op.execute(_GIVE_BACK)
