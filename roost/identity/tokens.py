"""Tokens: opaque, expiring, revocable. Only their digests are kept."""

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.store.database import notify
from roost.store.tables.identity import tokens

REVOCATIONS = "roost_token_revocations"
"""The channel on which the digest of a revoked token is announced; 'all' when many went at once."""


_ORDER = ("admin", "manager", "member", "reader", "service")


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """The five roles that permissions speak of in the order of what they may do, then the others by name."""
    return tuple(sorted(names, key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name)))


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a request, on behalf of which project, in which roles."""

    user_id: str
    user_name: str
    project_id: str | None
    project_name: str | None
    roles: tuple[str, ...]
    system: bool = False
    """On behalf of the whole cloud, and of no project."""
    domain_id: str | None = None
    """On behalf of a domain, and of no project."""
    application_credential_id: str | None = None
    """Signed in with this one."""
    may_delegate: bool = True
    """May make and delete application credentials: not if it signed in with one, unless that is unrestricted."""
    access_rules: tuple[tuple[str, ...], ...] | None = None
    """The only requests that the application credential is for, each as a service, a path and a method."""

    @property
    def is_admin(self) -> bool:
        """Whether the caller runs the cloud."""
        return "admin" in self.roles


@dataclass(frozen=True, slots=True)
class Token:
    """A valid token and whom it speaks for."""

    caller: Caller
    roles: tuple[tuple[str, str], ...]
    """Each role of the caller with its id."""
    methods: tuple[str, ...]
    audit_ids: tuple[str, ...]
    issued_at: datetime
    expires_at: datetime
    lasts: float
    """For how many seconds more, by the clock of the database, which is the only one that all processes share."""
    user_domain: str
    project_domain: str | None


def digest(secret: str) -> bytes:
    """What is stored of a token."""
    # A header may carry bytes that are not UTF-8; such a token is unknown, not an error.
    return hashlib.sha256(secret.encode(errors="surrogatepass")).digest()


async def issue(
    connection: AsyncConnection,
    user_id: str,
    project_id: str | None,
    methods: tuple[str, ...],
    expires_at: datetime | sa.ColumnElement[datetime],
    *,
    system: bool = False,
    domain_id: str | None = None,
    application_credential_id: str | None = None,
    chain: str | None = None,
) -> str:
    """Make a token; the answer is the only copy of the secret. `chain` is the audit id of the first of its chain."""
    secret = secrets.token_urlsafe(32)
    await connection.execute(
        tokens.insert().values(
            digest=digest(secret),
            user_id=user_id,
            project_id=project_id,
            system=system,
            domain_id=domain_id,
            application_credential_id=application_credential_id,
            methods=list(methods),
            audit_ids=[secrets.token_urlsafe(16), *([chain] if chain else [])],
            issued_at=sa.func.now(),
            expires_at=expires_at,
        )
    )
    return secret


async def find(connection: AsyncConnection, secret: str, *, hold: bool = False) -> Token | None:
    """The token, if it is valid now: not expired, not revoked, its user, project and domain enabled, a role still held;
    with `hold`, it cannot be revoked until the transaction ends."""
    row = (await connection.execute(_HELD if hold else _FOUND, {"digest": digest(secret)})).one_or_none()
    if row is None:
        return None
    scoped = row.project_id is not None or row.domain_id is not None or row.system
    held: dict[str, str] = dict(row.granted or ())
    if row.application_credential_id is not None:
        held = {name: role_id for name, role_id in held.items() if name in row.credential_roles}
    if scoped and not held:
        return None
    names = in_order(held)
    caller = Caller(
        user_id=row.user_id,
        user_name=row.user_name,
        project_id=row.project_id,
        project_name=row.project_name,
        roles=names,
        system=row.system,
        domain_id=row.domain_id,
        application_credential_id=row.application_credential_id,
        may_delegate=row.application_credential_id is None or row.unrestricted,
        access_rules=None if row.access_rules is None else tuple(tuple(rule) for rule in row.access_rules),
    )
    return Token(
        caller,
        tuple((name, held[name]) for name in names),
        tuple(row.methods),
        tuple(row.audit_ids),
        row.issued_at,
        row.expires_at,
        float(row.lasts),
        row.user_domain_id,
        row.project_domain_id,
    )


async def revoke(connection: AsyncConnection, secret: str) -> None:
    """Revoke a token, in every process at once."""
    await connection.execute(tokens.delete().where(tokens.c.digest == digest(secret)))
    await notify(connection, (REVOCATIONS, digest(secret).hex()))


async def revoke_all(connection: AsyncConnection, user_id: str) -> None:
    """Revoke all tokens of a user: the password changed, or the user was disabled."""
    await connection.execute(tokens.delete().where(tokens.c.user_id == user_id))
    await recheck(connection)


async def recheck(connection: AsyncConnection) -> None:
    """Have every process look each token up again: a role, a project or a user has changed."""
    await notify(connection, (REVOCATIONS, "all"))


async def purge(connection: AsyncConnection) -> int:
    """Forget expired tokens; returns how many there were."""
    return (await connection.execute(tokens.delete().where(tokens.c.expires_at < sa.func.now()))).rowcount


def expiry(seconds: int, no_later: datetime | None = None) -> sa.ColumnElement[datetime]:
    """When a token issued now ends: a moment for the database to work out."""
    then = sa.func.now() + sa.func.make_interval(0, 0, 0, 0, 0, 0, seconds)
    return then if no_later is None else sa.func.least(then, no_later)


# What a user holds for the token's project, domain or system: itself, by its groups, by inheritance from the projects
# and the domain above, and by implication. Who is an admin anywhere is one everywhere, and so may speak for the whole.
_GRANTED = """
    WITH RECURSIVE above (id, parent_id, domain_id, depth) AS (
        SELECT id, parent_id, domain_id, 0 FROM projects WHERE id = t.project_id
        UNION ALL
        SELECT p.id, p.parent_id, p.domain_id, depth + 1 FROM projects p JOIN above ON p.id = above.parent_id
        WHERE depth < 64
    ), given (role) AS (
        SELECT role FROM role_assignments
        WHERE user_id = t.user_id AND (project_id = t.project_id OR (t.system AND role = 'admin'))
        UNION
        SELECT role FROM grants
        WHERE (user_id = t.user_id OR group_id IN (SELECT group_id FROM group_users WHERE user_id = t.user_id))
        AND CASE WHEN inherited
            THEN domain_id IN (SELECT domain_id FROM above) OR project_id IN (SELECT id FROM above WHERE depth > 0)
            ELSE project_id = t.project_id OR domain_id = t.domain_id
                OR (t.system AND project_id IS NULL AND domain_id IS NULL) END
    ), held (role) AS (
        SELECT role FROM given UNION SELECT implied FROM implied_roles JOIN held ON prior = role
    )
    SELECT json_agg(json_build_array(roles.name, roles.id)) FROM held JOIN roles ON roles.name = held.role
"""
_RULES = """
    SELECT json_agg(json_build_array(r.service, r.path, r.method)) FROM access_rules r WHERE r.id = ANY(c.access_rules)
"""
_FIND = f"""
    SELECT t.*, u.name AS user_name, u.domain_id AS user_domain_id, p.name AS project_name,
        p.domain_id AS project_domain_id, ({_GRANTED}) AS granted,
        extract(epoch FROM t.expires_at - now()) AS lasts, c.roles AS credential_roles, c.unrestricted,
        CASE WHEN c.access_rules IS NULL THEN NULL ELSE coalesce(({_RULES}), '[]') END AS access_rules
    FROM tokens t JOIN users u ON u.id = t.user_id AND u.enabled
    JOIN domains ud ON ud.id = u.domain_id AND ud.enabled
    LEFT JOIN projects p ON p.id = t.project_id AND p.enabled
        AND p.domain_id IN (SELECT id FROM domains WHERE enabled)
    LEFT JOIN domains d ON d.id = t.domain_id AND d.enabled
    LEFT JOIN application_credentials c ON c.id = t.application_credential_id
        AND (c.expires_at IS NULL OR c.expires_at > now())
    WHERE t.digest = :digest AND t.expires_at > now()
        AND (t.project_id IS NULL OR p.id IS NOT NULL)
        AND (t.domain_id IS NULL OR d.id IS NOT NULL)
        AND (t.application_credential_id IS NULL OR c.id IS NOT NULL)
"""
_FOUND = sa.text(_FIND)
_HELD = sa.text(f"{_FIND} FOR SHARE OF t")
