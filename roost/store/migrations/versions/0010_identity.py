"""Domains, groups, roles, application credentials, and what the catalogue lists beside Roost's own services."""

import itertools
import uuid

from alembic import op

from roost.store import online

revision = "0010"
down_revision = "0009"

_TABLES = """
    CREATE TABLE catalog_endpoints (
        id text CONSTRAINT pk_catalog_endpoints PRIMARY KEY,
        service_id text NOT NULL,
        interface text NOT NULL,
        region_id text,
        url text NOT NULL,
        enabled boolean NOT NULL DEFAULT true,
        extra jsonb NOT NULL DEFAULT '{}',
        created_at timestamptz NOT NULL DEFAULT now()
    );
    CREATE INDEX ix_catalog_endpoints_service_id ON catalog_endpoints (service_id);
    CREATE TABLE catalog_services (
        id text CONSTRAINT pk_catalog_services PRIMARY KEY,
        type text NOT NULL,
        name text,
        description text,
        enabled boolean NOT NULL DEFAULT true,
        extra jsonb NOT NULL DEFAULT '{}',
        created_at timestamptz NOT NULL DEFAULT now()
    );
    CREATE TABLE domains (
        id text CONSTRAINT pk_domains PRIMARY KEY,
        name text NOT NULL CONSTRAINT uq_domains_name UNIQUE,
        description text NOT NULL DEFAULT '',
        enabled boolean NOT NULL DEFAULT true,
        tags text[] NOT NULL DEFAULT '{}',
        extra jsonb NOT NULL DEFAULT '{}',
        created_at timestamptz NOT NULL DEFAULT now()
    );
    CREATE TABLE regions (
        id text CONSTRAINT pk_regions PRIMARY KEY,
        description text NOT NULL DEFAULT '',
        parent_region_id text CONSTRAINT fk_regions_parent_region_id REFERENCES regions (id),
        extra jsonb NOT NULL DEFAULT '{}',
        created_at timestamptz NOT NULL DEFAULT now()
    );
    CREATE TABLE registered_limits (
        id text CONSTRAINT pk_registered_limits PRIMARY KEY,
        service_id text NOT NULL,
        region_id text,
        resource_name text NOT NULL,
        default_limit integer NOT NULL,
        description text,
        created_at timestamptz NOT NULL DEFAULT now()
    );
    CREATE TABLE roles (
        id text CONSTRAINT pk_roles PRIMARY KEY,
        name text NOT NULL CONSTRAINT uq_roles_name UNIQUE,
        description text,
        fixed boolean NOT NULL DEFAULT false,
        extra jsonb NOT NULL DEFAULT '{}',
        created_at timestamptz NOT NULL DEFAULT now()
    );
    CREATE TABLE access_rules (
        id text CONSTRAINT pk_access_rules PRIMARY KEY,
        user_id text NOT NULL CONSTRAINT fk_access_rules_user_id REFERENCES users (id) ON DELETE CASCADE,
        service text NOT NULL,
        path text NOT NULL,
        method text NOT NULL,
        CONSTRAINT uq_access_rules_user_id_service_path_method UNIQUE (user_id, service, path, method)
    );
    CREATE TABLE application_credentials (
        id text CONSTRAINT pk_application_credentials PRIMARY KEY,
        user_id text NOT NULL CONSTRAINT fk_application_credentials_user_id REFERENCES users (id) ON DELETE CASCADE,
        project_id text NOT NULL,
        name text NOT NULL,
        secret_hash text NOT NULL,
        description text NOT NULL DEFAULT '',
        expires_at timestamptz,
        unrestricted boolean NOT NULL DEFAULT false,
        roles text[] NOT NULL,
        access_rules text[],
        created_at timestamptz NOT NULL DEFAULT now(),
        CONSTRAINT fk_application_credentials_project_id FOREIGN KEY (project_id)
            REFERENCES projects (id) ON DELETE CASCADE,
        CONSTRAINT uq_application_credentials_user_id_name UNIQUE (user_id, name)
    );
    CREATE TABLE groups (
        id text CONSTRAINT pk_groups PRIMARY KEY,
        name text NOT NULL,
        domain_id text NOT NULL CONSTRAINT fk_groups_domain_id REFERENCES domains (id) ON DELETE CASCADE,
        description text NOT NULL DEFAULT '',
        extra jsonb NOT NULL DEFAULT '{}',
        created_at timestamptz NOT NULL DEFAULT now(),
        CONSTRAINT uq_groups_domain_id_name UNIQUE (domain_id, name)
    );
    CREATE TABLE implied_roles (
        prior text NOT NULL,
        implied text NOT NULL,
        CONSTRAINT pk_implied_roles PRIMARY KEY (prior, implied),
        CONSTRAINT fk_implied_roles_implied FOREIGN KEY (implied)
            REFERENCES roles (name) ON DELETE CASCADE ON UPDATE CASCADE,
        CONSTRAINT fk_implied_roles_prior FOREIGN KEY (prior)
            REFERENCES roles (name) ON DELETE CASCADE ON UPDATE CASCADE
    );
    CREATE TABLE limits (
        id text CONSTRAINT pk_limits PRIMARY KEY,
        project_id text CONSTRAINT fk_limits_project_id REFERENCES projects (id) ON DELETE CASCADE,
        domain_id text CONSTRAINT fk_limits_domain_id REFERENCES domains (id) ON DELETE CASCADE,
        registered_limit_id text NOT NULL,
        resource_limit integer NOT NULL,
        description text,
        created_at timestamptz NOT NULL DEFAULT now(),
        CONSTRAINT ck_limits_one_owner CHECK ((project_id IS NULL) <> (domain_id IS NULL)),
        CONSTRAINT fk_limits_registered_limit_id FOREIGN KEY (registered_limit_id) REFERENCES registered_limits (id)
    );
    CREATE TABLE grants (
        id bigint GENERATED BY DEFAULT AS IDENTITY CONSTRAINT pk_grants PRIMARY KEY,
        user_id text CONSTRAINT fk_grants_user_id REFERENCES users (id) ON DELETE CASCADE,
        group_id text CONSTRAINT fk_grants_group_id REFERENCES groups (id) ON DELETE CASCADE,
        project_id text CONSTRAINT fk_grants_project_id REFERENCES projects (id) ON DELETE CASCADE,
        domain_id text CONSTRAINT fk_grants_domain_id REFERENCES domains (id) ON DELETE CASCADE,
        inherited boolean NOT NULL DEFAULT false,
        role text NOT NULL CONSTRAINT fk_grants_role REFERENCES roles (name) ON DELETE CASCADE ON UPDATE CASCADE,
        CONSTRAINT ck_grants_one_actor CHECK ((user_id IS NULL) <> (group_id IS NULL)),
        CONSTRAINT ck_grants_one_target CHECK (project_id IS NULL OR domain_id IS NULL)
    );
    CREATE INDEX ix_grants_group_id ON grants (group_id);
    CREATE INDEX ix_grants_user_id ON grants (user_id);
    CREATE UNIQUE INDEX uq_grants_all ON grants (coalesce(user_id, ''), coalesce(group_id, ''),
        coalesce(project_id, ''), coalesce(domain_id, ''), inherited, role);
    CREATE TABLE group_users (
        group_id text NOT NULL CONSTRAINT fk_group_users_group_id REFERENCES groups (id) ON DELETE CASCADE,
        user_id text NOT NULL CONSTRAINT fk_group_users_user_id REFERENCES users (id) ON DELETE CASCADE,
        CONSTRAINT pk_group_users PRIMARY KEY (group_id, user_id)
    );
    CREATE INDEX ix_group_users_user_id ON group_users (user_id);
    ALTER TABLE projects ADD COLUMN domain_id text NOT NULL DEFAULT 'default';
    ALTER TABLE projects ADD COLUMN parent_id text;
    ALTER TABLE projects ADD COLUMN tags text[] NOT NULL DEFAULT '{}';
    ALTER TABLE projects ADD COLUMN extra jsonb NOT NULL DEFAULT '{}';
    ALTER TABLE tokens ADD COLUMN domain_id text;
    ALTER TABLE tokens ADD COLUMN application_credential_id text;
    ALTER TABLE users ADD COLUMN domain_id text NOT NULL DEFAULT 'default';
    ALTER TABLE users ADD COLUMN default_project_id text;
    ALTER TABLE users ADD COLUMN description text;
    ALTER TABLE users ADD COLUMN extra jsonb NOT NULL DEFAULT '{}';
"""


def upgrade() -> None:
    """Apply."""
    online.run(_TABLES)
    op.execute("INSERT INTO domains (id, name, description) VALUES ('default', 'Default', 'The default domain')")
    # The ids of these roles follow from their names, and are the same in every installation.
    fixed = ("admin", "manager", "member", "reader", "service")
    ids = {name: uuid.uuid5(uuid.NAMESPACE_OID, f"roost role {name}").hex for name in fixed}
    for name in fixed:
        op.execute(f"INSERT INTO roles (id, name, fixed) VALUES ('{ids[name]}', '{name}', true)")
    for prior, implied in itertools.pairwise(fixed[:4]):
        op.execute(f"INSERT INTO implied_roles (prior, implied) VALUES ('{prior}', '{implied}')")
