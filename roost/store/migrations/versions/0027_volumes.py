"""Volumes; those of a server are given back, or deleted, with it."""

from alembic import op

from roost.store import online

revision = "0027"
down_revision = "0026"

# A volume with snapshots stays, as in Cinder.
DETACH = """
    CREATE FUNCTION detach_volumes() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        DELETE FROM volumes WHERE delete_on_termination AND server_id IN (SELECT id FROM gone)
            AND NOT EXISTS (SELECT FROM volume_snapshots WHERE volume_id = volumes.id);
        UPDATE volumes SET server_id = NULL, device = NULL, attachment_id = NULL, attached_at = NULL, tag = NULL,
            delete_on_termination = false, root = false, of_server = false, updated_at = now()
            WHERE server_id IN (SELECT id FROM gone);
        RETURN NULL;
    END $$
"""

_TABLES = """
    CREATE TABLE volume_types (
        id uuid DEFAULT gen_random_uuid() CONSTRAINT pk_volume_types PRIMARY KEY,
        name text NOT NULL CONSTRAINT uq_volume_types_name UNIQUE,
        description text,
        is_public boolean NOT NULL DEFAULT true,
        extra_specs jsonb NOT NULL DEFAULT '{}',
        created_at timestamptz NOT NULL DEFAULT now()
    );
    CREATE TABLE volume_type_projects (
        volume_type_id uuid NOT NULL,
        project_id text NOT NULL,
        CONSTRAINT pk_volume_type_projects PRIMARY KEY (volume_type_id, project_id),
        CONSTRAINT fk_volume_type_projects_volume_type_id FOREIGN KEY (volume_type_id)
            REFERENCES volume_types (id) ON DELETE CASCADE
    );
    CREATE TABLE volumes (
        id uuid DEFAULT gen_random_uuid() CONSTRAINT pk_volumes PRIMARY KEY,
        project_id text NOT NULL,
        user_id text NOT NULL,
        name text NOT NULL DEFAULT '',
        description text,
        metadata jsonb NOT NULL DEFAULT '{}',
        created_at timestamptz NOT NULL DEFAULT now(),
        updated_at timestamptz,
        size integer NOT NULL,
        bootable boolean NOT NULL DEFAULT false,
        image_metadata jsonb,
        volume_type_id uuid NOT NULL CONSTRAINT fk_volumes_volume_type_id REFERENCES volume_types (id),
        snapshot_id uuid,
        source_volid uuid,
        server_id uuid,
        device text,
        attachment_id uuid,
        attached_at timestamptz,
        tag text,
        delete_on_termination boolean NOT NULL DEFAULT false,
        root boolean NOT NULL DEFAULT false,
        of_server boolean NOT NULL DEFAULT false,
        CONSTRAINT uq_volumes_server_id_device UNIQUE (server_id, device)
    );
    CREATE INDEX ix_volumes_project_id ON volumes (project_id);
    CREATE INDEX ix_volumes_server_id ON volumes (server_id);
    CREATE TABLE volume_snapshots (
        id uuid DEFAULT gen_random_uuid() CONSTRAINT pk_volume_snapshots PRIMARY KEY,
        volume_id uuid NOT NULL CONSTRAINT fk_volume_snapshots_volume_id REFERENCES volumes (id),
        project_id text NOT NULL,
        user_id text NOT NULL,
        name text NOT NULL DEFAULT '',
        description text,
        metadata jsonb NOT NULL DEFAULT '{}',
        created_at timestamptz NOT NULL DEFAULT now(),
        updated_at timestamptz,
        size integer NOT NULL,
        bootable boolean NOT NULL DEFAULT false,
        image_metadata jsonb
    );
    CREATE INDEX ix_volume_snapshots_project_id ON volume_snapshots (project_id);
    CREATE INDEX ix_volume_snapshots_volume_id ON volume_snapshots (volume_id);
"""


def upgrade() -> None:
    """Apply."""
    online.run(_TABLES)
    op.execute("INSERT INTO volume_types (name, description) VALUES ('__DEFAULT__', 'Default Volume Type')")
    op.execute(DETACH)
    op.execute(
        """CREATE TRIGGER detach_volumes AFTER DELETE ON servers REFERENCING OLD TABLE AS gone
           FOR EACH STATEMENT EXECUTE FUNCTION detach_volumes()"""
    )
