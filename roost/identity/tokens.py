"""Tokens: opaque, expiring, revocable. Only their digests are kept."""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.identity.roles import with_implied
from roost.store.database import notify
from roost.store.tables.identity import projects, role_assignments, tokens, users

REVOCATIONS = "roost_token_revocations"
"""The channel on which the digest of a revoked token is announced; 'all' when many went at once."""


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

    @property
    def is_admin(self) -> bool:
        """Whether the caller runs the cloud."""
        return "admin" in self.roles


@dataclass(frozen=True, slots=True)
class Token:
    """A valid token and whom it speaks for."""

    caller: Caller
    methods: tuple[str, ...]
    audit_ids: tuple[str, ...]
    issued_at: datetime
    expires_at: datetime
    lasts: float
    """For how many seconds more, by the clock of the database, which is the only one that all processes share."""


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
            methods=list(methods),
            audit_ids=[secrets.token_urlsafe(16), *([chain] if chain else [])],
            issued_at=sa.func.now(),
            expires_at=expires_at,
        )
    )
    return secret


async def find(connection: AsyncConnection, secret: str, *, hold: bool = False) -> Token | None:
    """The token, if it is valid now: not expired, not revoked, its user and project enabled, a role still held; with
    `hold`, it cannot be revoked until the transaction ends."""
    # Who is an admin anywhere is one everywhere, and so may speak for the whole.
    everywhere = sa.and_(tokens.c.system, role_assignments.c.role == "admin")
    granted = (
        sa.select(sa.func.array_agg(role_assignments.c.role))
        .where(role_assignments.c.user_id == tokens.c.user_id)
        .where((role_assignments.c.project_id == tokens.c.project_id) | everywhere)
        .scalar_subquery()
    )
    query = (
        sa.select(
            tokens,
            users.c.name.label("user_name"),
            projects.c.name.label("project_name"),
            granted.label("granted"),
            sa.extract("epoch", tokens.c.expires_at - sa.func.now()).label("lasts"),
        )
        .join(users, sa.and_(users.c.id == tokens.c.user_id, users.c.enabled))
        .outerjoin(projects, sa.and_(projects.c.id == tokens.c.project_id, projects.c.enabled))
        .where(tokens.c.digest == digest(secret), tokens.c.expires_at > sa.func.now())
    )
    if hold:
        query = query.with_for_update(read=True, of=tokens)
    row = (await connection.execute(query)).one_or_none()
    if row is None or (row.project_id is not None and row.project_name is None):
        return None
    if (row.project_id is not None or row.system) and not row.granted:
        return None
    roles = with_implied(row.granted or ())
    caller = Caller(row.user_id, row.user_name, row.project_id, row.project_name, roles, row.system)
    return Token(caller, tuple(row.methods), tuple(row.audit_ids), row.issued_at, row.expires_at, float(row.lasts))


async def revoke(connection: AsyncConnection, secret: str) -> None:
    """Make a token worthless, in every process at once."""
    await connection.execute(tokens.delete().where(tokens.c.digest == digest(secret)))
    await notify(connection, (REVOCATIONS, digest(secret).hex()))


async def revoke_all(connection: AsyncConnection, user_id: str) -> None:
    """Make all tokens of a user worthless: the password changed, or the user was disabled."""
    await connection.execute(tokens.delete().where(tokens.c.user_id == user_id))
    await recheck(connection)


async def recheck(connection: AsyncConnection) -> None:
    """Have every process look each token up anew: a role, a project or a user is not what it was."""
    await notify(connection, (REVOCATIONS, "all"))


async def purge(connection: AsyncConnection) -> int:
    """Forget expired tokens; how many there were."""
    return (await connection.execute(tokens.delete().where(tokens.c.expires_at < sa.func.now()))).rowcount


def expiry(seconds: int) -> sa.ColumnElement[datetime]:
    """When a token issued now ends: a moment for the database to work out."""
    return sa.func.now() + sa.func.make_interval(0, 0, 0, 0, 0, 0, seconds)
