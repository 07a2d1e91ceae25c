"""Signing in with a password or an application credential: after too many wrong guesses the next one must wait, in all
processes.

Failures are counted for each user, by its name or by its id alike, for each application credential, and for each name
or id that no user has, so that the limit does not reveal which exist. Meanwhile, the right password is refused too, or
guessing could go on. Only failures are written down: the limit costs a sign-in that succeeds no additional write.
"""

import hashlib
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.errors import TooManyFailures
from roost.identity.users import is_right
from roost.store.database import Database
from roost.store.tables.identity import failed_sign_ins as failed
from roost.store.tables.identity import users
from roost.turns import FairTurns


@dataclass(frozen=True, slots=True)
class SignInLimit:
    """How many failures are allowed within how many seconds; 0 failures: any number."""

    failures: int
    seconds: int


@dataclass(frozen=True, slots=True)
class Proof:
    """A password that was right, and whether others had been tried before."""

    user_id: str
    password_hash: str
    key: bytes
    failed: bool


class _TriedUser(NamedTuple):
    """The user who signs in, if there is one, and what failed before for it or for its name."""

    id: str
    """Empty where there is no such user."""
    password_hash: str
    enabled: bool
    key: bytes
    failures: int
    lasts: float


class _Failures(NamedTuple):
    """How often a sign-in failed, and for how many seconds that counts."""

    failures: int
    lasts: float


addresses = FairTurns(at_once=128, share=1, each=16, waiting=128)
"""One password of an address is checked at a time, from the first look into the database to the end."""
_lasts = sa.cast(sa.extract("epoch", failed.c.ends_at - sa.func.now()), sa.Float)
_present = failed.c.ends_at > sa.func.now()


async def prove(
    database: Database,
    limit: SignInLimit,
    password: str,
    *,
    user_id: str | None = None,
    name: str = "",
    known: bool = True,
) -> Proof | None:
    """The proof that this password is right; None if it is not, or if the user is not `known`. Raises
    `TooManyFailures`."""
    async with database.autocommit() as connection:
        tried = await _look(connection, user_id, name)
    _check(limit, tried.failures, tried.lasts)
    if await is_right(tried if known and tried.id else None, password):
        return Proof(tried.id, tried.password_hash, tried.key, tried.failures > 0)
    await _fail(database, limit, tried.key)
    return None


async def is_right_secret(database: Database, limit: SignInLimit, word: str, holder: Any | None, secret: str) -> bool:
    """Whether this is the secret of an application credential; `word` is what failures are counted by, `holder` what
    has the secret for a password, if there is one. Raises as `prove` does."""
    key = hashlib.sha256(f"application credential {word}".encode()).digest()
    async with database.autocommit() as connection:
        await _check_key(connection, limit, key)
    if not await is_right(holder, secret):
        await _fail(database, limit, key)
        return False
    async with database.begin() as connection:
        if await _check_key(connection, limit, key):
            await connection.execute(failed.delete().where(failed.c.key == key))
    return True


async def _check_key(connection: AsyncConnection, limit: SignInLimit, key: bytes) -> bool:
    """Whether anything failed; raises `TooManyFailures` if it was too much."""
    query = sa.select(failed.c.failures, _lasts.label("lasts")).where(failed.c.key == key, _present)
    found = (await connection.execute(query)).one_or_none()
    if found is not None:
        _check(limit, found.failures, found.lasts)
    return found is not None


async def _fail(database: Database, limit: SignInLimit, key: bytes) -> None:
    if limit.failures:
        async with database.autocommit() as connection:
            counted = await _count(connection, key, limit.seconds)
        # Of many guesses at once, those beyond the limit do not learn whether they were wrong.
        _check(limit, counted.failures - 1, counted.lasts)


async def hold(connection: AsyncConnection, limit: SignInLimit, proof: Proof) -> bool:
    """Whether the password is still the user's; holds it so until the transaction ends, and forgets what failed before.
    Raises `TooManyFailures` where too many came in while this one was looked at."""
    query = (
        sa.select(users.c.password_hash, failed.c.failures, _lasts.label("lasts"))
        .outerjoin(failed, sa.and_(failed.c.key == proof.key, _present))
        .where(users.c.id == proof.user_id, users.c.enabled)
        .with_for_update(read=True, of=users)
    )
    found = (await connection.execute(query)).one_or_none()
    if found is None or found.password_hash != proof.password_hash:
        return False
    _check(limit, found.failures or 0, found.lasts or 0)
    if proof.failed:
        await connection.execute(failed.delete().where(failed.c.key == proof.key))
    return True


async def forget(connection: AsyncConnection, user_id: str) -> None:
    """What was guessed at an old password does not count against a new one."""
    await connection.execute(failed.delete().where(failed.c.key == _key(sa.literal(user_id))))


async def purge(connection: AsyncConnection) -> int:
    """Forget failures that no longer count; returns how many there were."""
    return (await connection.execute(failed.delete().where(failed.c.ends_at < sa.func.now()))).rowcount


async def _look(connection: AsyncConnection, user_id: str | None, name: str) -> _TriedUser:
    """The user and its failures, with one query."""
    asked = sa.select(sa.literal(name if user_id is None else user_id).label("word")).subquery()
    column = users.c.name if user_id is None else users.c.id
    key = _key(sa.func.coalesce(users.c.id, asked.c.word))
    query = (
        sa.select(sa.func.coalesce(users.c.id, ""), users.c.password_hash, users.c.enabled, key)
        .add_columns(sa.func.coalesce(failed.c.failures, 0), sa.func.coalesce(_lasts, 0))
        .select_from(asked)
        .outerjoin(users, column == asked.c.word)
        .outerjoin(failed, sa.and_(failed.c.key == key, _present))
    )
    return _TriedUser(*(await connection.execute(query)).one())


def _key(word: sa.ColumnElement[str]) -> sa.ColumnElement[bytes]:
    """People type passwords into the field for names, so only a digest is kept."""
    return sa.func.sha256(sa.func.convert_to(word, "UTF8"))


async def _count(connection: AsyncConnection, key: bytes, seconds: int) -> _Failures:
    """Count a failure; the first after a while starts a new count."""
    ends_at = sa.func.now() + timedelta(seconds=seconds)
    row = insert(failed).values(key=key, failures=1, ends_at=ends_at)
    counted = row.on_conflict_do_update(
        index_elements=[failed.c.key],
        set_={
            "failures": sa.case((_present, failed.c.failures + 1), else_=1),
            "ends_at": sa.case((_present, failed.c.ends_at), else_=ends_at),
        },
    )
    return _Failures(*(await connection.execute(counted.returning(failed.c.failures, _lasts))).one())


def _check(limit: SignInLimit, failures: int, lasts: float) -> None:
    if limit.failures and failures >= limit.failures:
        raise TooManyFailures(limit.failures, max(1, round(lasts + 0.5)))
