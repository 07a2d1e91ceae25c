"""Hosts are locked last in a claim: while the rows of many servers are written, others may claim the same hosts.

What was written is rolled back if the hosts turn out to have changed, which is rare: they were looked at before.
"""

from alembic import op

revision = "0039"
down_revision = "0038"

# As in migration 0037, but for when the hosts are locked.
_CLAIM = """
    CREATE OR REPLACE FUNCTION roost_claim(asked jsonb) RETURNS jsonb LANGUAGE plpgsql
    SET lock_timeout = '2s' SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off
    SET plan_cache_mode = force_generic_plan AS $$
    DECLARE
        project CONSTANT text := asked->>'project_id';
        counted CONSTANT jsonb := asked->'counted';
        limited CONSTANT boolean := jsonb_array_length(asked->'shares') > 0;
        used jsonb;
        versions jsonb;
        rooms jsonb;
        newest bigint;
        won boolean := true;
        fits boolean;
        news jsonb;
        added jsonb;
        change bigint;
        boots interval;
        at_once boolean;
    BEGIN
        IF limited THEN
            INSERT INTO project_usage (project_id) VALUES (project) ON CONFLICT DO NOTHING;
            PERFORM FROM project_usage WHERE project_id = project FOR NO KEY UPDATE;
            SELECT jsonb_object_agg(user_id, jsonb_build_array(instances, cores, ram)), bool_and(
                (instances_limit < 0 OR instances + instances_wanted <= instances_limit OR instances_wanted = 0)
                AND (cores_limit < 0 OR cores + cores_wanted <= cores_limit OR cores_wanted = 0)
                AND (ram_limit < 0 OR ram + ram_wanted <= ram_limit OR ram_wanted = 0))
            INTO used, won
            FROM jsonb_to_recordset(asked->'shares') AS share(user_id text, instances_wanted int, cores_wanted int,
                ram_wanted bigint, instances_limit int, cores_limit int, ram_limit bigint),
            LATERAL (
                SELECT sum(instances) AS instances, sum(cores) AS cores, sum(ram) AS ram FROM (
                    SELECT instances, cores, ram FROM project_usage
                    WHERE share.user_id = '' AND project_id = project
                    UNION ALL
                    SELECT instances, cores, ram FROM usage_shards
                    WHERE share.user_id = '' AND project_id = project
                    UNION ALL
                    SELECT count(*), coalesce(sum(greatest(
                            (flavor->>'vcpus')::int, (step->'flavor'->>'vcpus')::int)), 0),
                        coalesce(sum(greatest(
                            (flavor->>'memory_mb')::int, (step->'flavor'->>'memory_mb')::int)), 0)
                    FROM servers WHERE share.user_id <> '' AND project_id = project AND user_id = share.user_id
                ) AS parts
            ) AS total;
        END IF;

        IF jsonb_array_length(asked->'groups') > 0 THEN
            SELECT coalesce(jsonb_object_agg(id, version), '{}') INTO versions
            FROM (
                SELECT server_groups.id, server_groups.version
                FROM server_groups JOIN jsonb_to_recordset(asked->'groups') AS known(id uuid) USING (id)
                ORDER BY server_groups.id FOR NO KEY UPDATE OF server_groups
            ) AS locked;
        END IF;
        news := roost_news((asked->>'seen')::bigint, ARRAY(
            SELECT value::bigint FROM jsonb_array_elements_text(asked->'missing')));
        -- A loose group has no hard rule and no limit: members that joined meanwhile are no reason to decide again.
        SELECT coalesce(bool_and(coalesce(now = version OR (loose AND now - version = (
            SELECT count(*) FROM jsonb_array_elements(news) AS row,
                jsonb_array_elements(coalesce(row.value->1->'joined', '[]')) AS member
            WHERE member.value->>0 = known.id::text AND (member.value->>1)::bigint > version
        )), false)), true)
        INTO fits
        FROM jsonb_to_recordset(asked->'groups') AS known(id uuid, version bigint, loose boolean),
            LATERAL (SELECT (versions->>known.id::text)::bigint AS now) AS locked;
        won := won AND fits;

        -- Without a lock: what lost already is said at once, and nothing is written for it.
        SELECT coalesce(jsonb_agg(jsonb_build_array(id, room_version, vcpus_used, memory_mb_used, disk_gb_used)
                        ) FILTER (WHERE NOT has_room), '[]'),
            count(*) = jsonb_array_length(asked->'hosts') AND coalesce(bool_and(has_room), true)
        INTO rooms, fits
        FROM (
            SELECT h.id, h.room_version, h.vcpus_used, h.memory_mb_used, h.disk_gb_used,
                h.enabled AND NOT h.forced_down AND h.vcpus - h.vcpus_used >= wanted.vcpus
                AND h.memory_mb - h.memory_mb_used >= wanted.memory_mb
                AND h.disk_gb - h.disk_gb_used >= wanted.disk_gb AS has_room
            FROM hosts AS h JOIN jsonb_to_recordset(asked->'hosts')
                AS wanted(id int, vcpus int, memory_mb int, disk_gb int) ON wanted.id = h.id
        ) AS seen;
        won := won AND fits;

        SELECT coalesce(max(generation), 0) INTO newest FROM fleet_changes;
        won := won AND newest = (asked->>'generation')::bigint;

        IF NOT won THEN
            RETURN jsonb_build_object('won', false, 'used', used, 'versions', versions, 'rooms', rooms,
                'generation', newest, 'news', news);
        END IF;

        SELECT make_interval(secs => (simulation->>'boot_seconds')::float),
            (simulation->>'boot_seconds')::float = 0 AND (simulation->>'failure_rate')::float = 0
        INTO boots, at_once FROM topologies;
        boots := coalesce(boots, interval '0');
        at_once := coalesce(at_once, true);

        WITH wanted AS MATERIALIZED (
            SELECT *, host_id IS NOT NULL AND NOT at_once AS waits, host_id IS NOT NULL AND at_once AS runs
            FROM jsonb_to_recordset(asked->'servers') AS r(
                id uuid, user_id text, name text, hostname text, description text, flavor jsonb, image_id text,
                key_name text, user_data text, config_drive boolean, metadata jsonb, tags jsonb, addresses jsonb,
                hints jsonb, zone text, reservation_id text, launch_index int, host_id int, group_id uuid,
                partition int, client_token text, request_id text, step jsonb, fault text, explanation jsonb)
        ), made AS (
            INSERT INTO servers (
                id, project_id, user_id, name, hostname, description, flavor, image_id, key_name, user_data,
                config_drive, metadata, tags, addresses, hints, zone, reservation_id, launch_index, host_id, group_id,
                partition, client_token, explanation, vm_state, task_state, power_state, due_at, step, launched_at,
                fault)
            SELECT
                id, project, user_id, name, hostname, description, flavor, image_id, key_name, user_data,
                config_drive, metadata, tags, addresses, hints, zone, reservation_id, launch_index, host_id, group_id,
                partition, client_token, explanation,
                CASE WHEN runs THEN 'active' WHEN waits THEN 'building' ELSE 'error' END,
                CASE WHEN waits THEN 'spawning' END,
                CASE WHEN runs THEN 1 ELSE 0 END,
                CASE WHEN waits THEN now() + boots END,
                CASE WHEN waits THEN step END,
                CASE WHEN runs THEN now() END,
                CASE WHEN fault IS NOT NULL
                    THEN jsonb_build_object('code', 500, 'created', now(), 'message', fault) END
            FROM wanted
        ), acted AS (
            INSERT INTO instance_actions (server_id, action, request_id, user_id, project_id, message, finish_time)
            SELECT id, 'create', request_id, user_id, project, CASE WHEN fault IS NOT NULL THEN 'Error' END,
                CASE WHEN NOT waits THEN now() END
            FROM wanted
        )
        INSERT INTO claims (server_id, host_id, vcpus, memory_mb, disk_gb)
        SELECT id, host_id, (flavor->>'vcpus')::int, (flavor->>'memory_mb')::int, (flavor->>'disk_gb')::int
        FROM wanted WHERE host_id IS NOT NULL;

        SELECT count(*) = jsonb_array_length(asked->'hosts') AND coalesce(bool_and(has_room), true) INTO fits
        FROM (
            SELECT h.enabled AND NOT h.forced_down AND h.vcpus - h.vcpus_used >= wanted.vcpus
                AND h.memory_mb - h.memory_mb_used >= wanted.memory_mb
                AND h.disk_gb - h.disk_gb_used >= wanted.disk_gb AS has_room
            FROM hosts AS h JOIN jsonb_to_recordset(asked->'hosts')
                AS wanted(id int, vcpus int, memory_mb int, disk_gb int) ON wanted.id = h.id
            ORDER BY h.id FOR NO KEY UPDATE OF h
        ) AS locked;
        SELECT coalesce(max(generation), 0) INTO newest FROM fleet_changes;
        IF NOT fits OR newest <> (asked->>'generation')::bigint THEN
            RAISE EXCEPTION 'hosts have changed meanwhile' USING ERRCODE = 'serialization_failure';
        END IF;

        WITH given AS (
            UPDATE hosts AS h SET vcpus_used = h.vcpus_used + wanted.vcpus,
                memory_mb_used = h.memory_mb_used + wanted.memory_mb, disk_gb_used = h.disk_gb_used + wanted.disk_gb,
                servers = h.servers + wanted.servers, room_version = h.room_version + 1
            FROM jsonb_to_recordset(asked->'hosts')
                AS wanted(id int, vcpus int, memory_mb int, disk_gb int, servers int)
            WHERE h.id = wanted.id
            RETURNING jsonb_build_array(h.id, h.room_version, h.vcpus_used, h.memory_mb_used, h.disk_gb_used) AS room
        )
        SELECT coalesce(jsonb_agg(room), '[]') INTO rooms FROM given;

        UPDATE server_groups SET version = server_groups.version + 1
        FROM jsonb_to_recordset(asked->'groups') AS known(id uuid) WHERE server_groups.id = known.id;

        IF limited THEN
            UPDATE project_usage SET instances = instances + (counted->>'instances')::int,
                cores = cores + (counted->>'cores')::int, ram = ram + (counted->>'ram')::bigint
            WHERE project_id = project;
        ELSE
            INSERT INTO usage_shards AS shards (project_id, shard, instances, cores, ram)
            VALUES (project, pg_backend_pid() % 64, (counted->>'instances')::int, (counted->>'cores')::int,
                (counted->>'ram')::bigint)
            ON CONFLICT (project_id, shard) DO UPDATE SET instances = shards.instances + excluded.instances,
                cores = shards.cores + excluded.cores, ram = shards.ram + excluded.ram;
        END IF;

        INSERT INTO outbox (event_type, payload)
        SELECT event_type, payload FROM jsonb_to_recordset(asked->'notifications') AS r(event_type text, payload jsonb);

        SELECT coalesce(jsonb_agg(jsonb_build_array(
            each->0, (versions->>(each->>0))::bigint + 1, each->2, each->3)), '[]')
        INTO added FROM jsonb_array_elements(asked->'joined') AS each;
        INSERT INTO claim_changes (body) VALUES (jsonb_build_object('rooms', rooms, 'joined', added))
        RETURNING number INTO change;
        RETURN jsonb_build_object('won', true, 'rooms', rooms, 'joined', added, 'number', change, 'news', news);
    END $$
"""


def upgrade() -> None:
    """Apply."""
    op.execute(_CLAIM)
