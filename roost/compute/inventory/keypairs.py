"""Key pairs: the public keys of a user."""

import asyncio
import base64
import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.errors import Conflict, Invalid, NotFound, OverQuota
from roost.store import pages
from roost.store.locks import hold
from roost.store.pages import EVERYTHING, PageRequest, SortKey, UnknownMarker
from roost.store.tables.compute import keypairs


class KeyPair(NamedTuple):
    """A public key of a user."""

    id: int
    user_id: str
    name: str
    type: str
    fingerprint: str
    public_key: str
    created_at: datetime


_COLUMNS = [keypairs.c[name] for name in KeyPair._fields]


async def generate() -> tuple[str, str]:
    """A new private key and its public key. It takes a while, so it is done off the event loop."""
    return await asyncio.to_thread(_generate)


async def create(
    connection: AsyncConnection, user_id: str, name: str, public_key: str, kind: str, limit: int
) -> KeyPair:
    """Keep a public key for a user, who may have `limit` of them (-1: any number)."""
    values = {"user_id": user_id, "name": name, "type": kind, "public_key": public_key}
    fingerprint = _fingerprint(public_key, kind)
    # One creation at a time for each user, so that none slips past the count of another.
    await hold(connection, f"key pairs of {user_id}")
    count = sa.select(sa.func.count()).select_from(keypairs).where(keypairs.c.user_id == user_id)
    if 0 <= limit <= (await connection.execute(count)).scalar_one():
        raise OverQuota("Quota exceeded, too many key pairs.")
    query = keypairs.insert().values(**values, fingerprint=fingerprint).returning(*_COLUMNS)
    try:
        return KeyPair(*(await connection.execute(query)).one())
    except IntegrityError:
        raise Conflict(f"Key pair '{name}' already exists.") from None


async def show(connection: AsyncConnection, user_id: str, name: str) -> KeyPair:
    """One key pair of a user."""
    query = sa.select(*_COLUMNS).where(keypairs.c.user_id == user_id, keypairs.c.name == name)
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        raise NotFound(f"Keypair {name} not found for user {user_id}")
    return KeyPair(*row)


async def index(connection: AsyncConnection, user_id: str, page: PageRequest = EVERYTHING) -> Sequence[KeyPair]:
    """A page of a user's key pairs, by name."""
    visible = sa.select(*_COLUMNS).where(keypairs.c.user_id == user_id)
    try:
        rows = await pages.read(connection, visible, [SortKey(keypairs.c.name)], page, named=keypairs.c.name)
    except UnknownMarker:
        raise Invalid(f"Marker {page.marker} could not be found.") from None
    return [KeyPair._make(row) for row in rows]


async def delete(connection: AsyncConnection, user_id: str, name: str) -> None:
    """Forget a key pair."""
    await show(connection, user_id, name)
    await connection.execute(keypairs.delete().where(keypairs.c.user_id == user_id, keypairs.c.name == name))


def _generate() -> tuple[str, str]:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private.decode(), f"{public.decode()} Generated-by-Roost"


def _fingerprint(public_key: str, kind: str) -> str:
    try:
        if kind == "x509":
            return x509.load_pem_x509_certificate(public_key.encode()).fingerprint(hashes.SHA1()).hex(":")  # noqa: S303
        serialization.load_ssh_public_key(public_key.encode())
        content = base64.b64decode(public_key.split(" ")[1])
    except Exception as error:
        # The library raises whatever the parser below it raised.
        what = f"X509 fingerprint. Error message: {error}" if kind == "x509" else "fingerprint"
        raise Invalid(f"Keypair data is invalid: failed to generate {what}") from None
    return hashlib.md5(content, usedforsecurity=False).digest().hex(":")
