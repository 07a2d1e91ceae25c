"""Looking and claiming by the index, planned once: the planner takes any JSON for a hundred rows, and would read every
host to join them to a dozen."""

from alembic import op

revision = "0024"
down_revision = "0023"

# What requests of one project name, and what is new of the fleet.
_LOOK = """
    CREATE FUNCTION roost_look(asked jsonb) RETURNS jsonb LANGUAGE plpgsql STABLE
    SET plan_cache_mode = force_generic_plan AS $$
    DECLARE
        project CONSTANT text := asked->>'project_id';
        flavor_ids CONSTANT text[] := ARRAY(SELECT jsonb_array_elements_text(asked->'flavors'));
        image_ids CONSTANT uuid[] := ARRAY(SELECT jsonb_array_elements_text(asked->'images'));
        owners CONSTANT text[] := ARRAY(SELECT jsonb_array_elements_text(asked->'owners'));
        client_tokens CONSTANT text[] := ARRAY(SELECT jsonb_array_elements_text(asked->'tokens'));
        near CONSTANT uuid[] := ARRAY(SELECT jsonb_array_elements_text(asked->'near'));
        group_ids CONSTANT uuid[] := ARRAY(SELECT jsonb_array_elements_text(asked->'groups'));
        users CONSTANT text[] := ARRAY(SELECT jsonb_array_elements_text(asked->'users'));
    BEGIN
        RETURN jsonb_build_object(
            'moved', (SELECT jsonb_agg(jsonb_build_array(generation, host_ids) ORDER BY generation)
                FROM fleet_changes WHERE generation > (asked->>'generation')::bigint),
            'claimed', roost_news((asked->>'seen')::bigint, ARRAY(
                SELECT value::bigint FROM jsonb_array_elements_text(asked->'missing'))),
            'oldest', (SELECT min(number) FROM claim_changes),
            'flavors', (SELECT jsonb_agg(to_jsonb(f) - 'created_at') FROM flavors AS f WHERE id = ANY (flavor_ids)),
            'granted', (SELECT jsonb_agg(flavor_id) FROM flavor_access
                WHERE flavor_id = ANY (flavor_ids) AND project_id = project),
            'images', (SELECT jsonb_agg(jsonb_build_array(id, min_memory_mb, min_disk_gb)) FROM images
                WHERE id = ANY (image_ids) AND status = 'active'
                AND (visibility IN ('public', 'community') OR project_id = project OR visibility = 'shared'
                    AND EXISTS (SELECT FROM image_members WHERE image_id = images.id AND member_id = project))),
            'keys', (SELECT jsonb_agg(jsonb_build_array(user_id, name)) FROM keypairs WHERE user_id = ANY (owners)),
            'tokens', (SELECT jsonb_object_agg(client_token, id) FROM servers WHERE client_token = ANY (client_tokens)),
            'places', (SELECT jsonb_agg(jsonb_build_array(id, project_id, host_id)) FROM servers WHERE id = ANY (near)),
            'limits', (SELECT jsonb_agg(jsonb_build_array(project_id, user_id, resource, "limit")) FROM (
                SELECT NULL AS project_id, '' AS user_id, resource, "limit" FROM quota_classes WHERE name = 'default'
                UNION ALL SELECT project_id, user_id, resource, "limit" FROM quotas
                WHERE project_id = project AND (user_id = '' OR user_id = ANY (users))) AS given),
            'groups', (SELECT jsonb_agg(jsonb_build_array(id, version, project_id)) FROM server_groups
                WHERE id = ANY (group_ids)));
    END $$
"""


def upgrade() -> None:
    """Apply."""
    op.execute(_LOOK)
    for setting in ("enable_hashjoin = off", "enable_mergejoin = off", "plan_cache_mode = force_generic_plan"):
        op.execute(f"ALTER FUNCTION roost_claim(jsonb) SET {setting}")
