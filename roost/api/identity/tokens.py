"""Tokens: signing in, and looking at, checking and giving up a token."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.responses import JSONResponse, Response

from roost.api import schemas
from roost.api.auth import REFUSAL
from roost.api.identity import catalog
from roost.api.identity.domains import DOMAIN_REFERENCE, is_default, reference
from roost.api.identity.shapes import REFERENCE
from roost.api.permissions import Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import NULL
from roost.errors import Invalid, NotFound, Unauthorized
from roost.identity import projects, sign_ins, tokens
from roost.identity.roles import Role
from roost.identity.sign_ins import Proof, SignInLimit
from roost.identity.tokens import Caller, Token

routes = Table(prefix="/v3/auth")

_SUBJECT_OR = "rule:admin_api or user_id:%(user_id)s"
RULES = (
    Permission("identity:validate_token", f"{_SUBJECT_OR} or role:service", "Look at a token, one's own or another's."),
    Permission("identity:revoke_token", _SUBJECT_OR, "Give up a token, one's own or another's."),
)

_NAMED = {"id": schemas.STRING, "name": schemas.STRING, "domain": DOMAIN_REFERENCE}
_USER = {"type": "object", "properties": {**_NAMED, "password": schemas.STRING}, "required": ["password"]}
_IDENTITY = {
    "type": "object",
    "properties": {
        "methods": schemas.array(schemas.STRING, minItems=1),
        "password": {"type": "object", "properties": {"user": _USER}, "required": ["user"]},
        "token": {"type": "object", "properties": {"id": schemas.STRING}, "required": ["id"]},
    },
    "required": ["methods"],
}
_SCOPE = {
    "type": ["object", "string"],
    "properties": {
        "project": {"type": "object", "properties": _NAMED},
        "domain": DOMAIN_REFERENCE,
        "system": {"type": "object", "properties": {"all": {"const": True}}, "required": ["all"]},
    },
}
_AUTH = {"type": "object", "properties": {"identity": _IDENTITY, "scope": _SCOPE}, "required": ["identity"]}
_CREATE = {"type": "object", "properties": {"auth": _AUTH}, "required": ["auth"]}

_NAMED_IN = {"id": schemas.STRING, "name": schemas.STRING, "domain": REFERENCE}
_TOKEN = schemas.thing(
    {
        "methods": schemas.array(schemas.STRING, minItems=1),
        "user": schemas.thing({**_NAMED_IN, "password_expires_at": NULL}),
        "audit_ids": schemas.array(schemas.STRING, minItems=1, maxItems=2),
        "issued_at": schemas.STRING,
        "expires_at": schemas.STRING,
    },
    {
        "project": schemas.thing(_NAMED_IN),
        "is_domain": {"const": False},
        "system": schemas.thing({"all": {"const": True}}),
        "roles": schemas.array(REFERENCE),
        "catalog": catalog.CATALOG,
    },
)
_ANSWER = schemas.thing({"token": _TOKEN})


@dataclass(frozen=True, slots=True)
class _SignedIn:
    """Who has proved to be whom, and by what."""

    user_id: str
    methods: tuple[str, ...]
    proof: Proof | None = None
    """The password that was right, if one was asked for."""
    secret: str | None = None
    """The token that stood for a password."""


@routes.post("/tokens", public=True, status=201, body=_CREATE, response=_ANSWER)
async def create(call: Call) -> Reply:
    """Sign in with a password or a token, for a project, for the whole system, or unscoped."""
    auth = call.body["auth"]
    signed_in = await _sign_in(call, auth["identity"])
    async with call.services.database.begin() as connection:
        if signed_in.proof is not None and not await sign_ins.hold(connection, limit(call), signed_in.proof):
            raise Unauthorized(REFUSAL)
        # Held, so that whoever revokes it finds the one made from it too, or this finds it gone.
        first = await tokens.find(connection, signed_in.secret, hold=True) if signed_in.secret is not None else None
        if signed_in.secret is not None and first is None:
            raise Unauthorized(REFUSAL)
        secret = await _issue(call, connection, signed_in, first, auth.get("scope"))
        token = await tokens.find(connection, secret)
        if token is None:
            # The user has no role there, or the project is disabled; either way nothing was issued.
            raise Unauthorized(REFUSAL)
    return JSONResponse(_view(call, token), 201, headers={"X-Subject-Token": secret, "Vary": "X-Auth-Token"})


@routes.get("/tokens", rule="identity:validate_token", owned=True, response=_ANSWER)
async def show(call: Call) -> Reply:
    """Whom the token in X-Subject-Token speaks for."""
    secret, token = await _subject(call)
    call.permit("identity:validate_token", user_id=token.caller.user_id)
    return JSONResponse(_view(call, token), headers={"X-Subject-Token": secret, "Vary": "X-Auth-Token"})


@routes.delete("/tokens", rule="identity:revoke_token", owned=True, status=204)
async def delete(call: Call) -> Reply:
    """Make the token in X-Subject-Token worthless."""
    secret, token = await _subject(call)
    call.permit("identity:revoke_token", user_id=token.caller.user_id)
    async with call.services.database.begin() as connection:
        await tokens.revoke(connection, secret)
    return Response(status_code=204)


async def _sign_in(call: Call, identity: dict[str, Any]) -> _SignedIn:
    """Prove all methods that the request names; they must all speak of one user."""
    proofs = []
    for method in dict.fromkeys(identity["methods"]):
        if method not in ("password", "token"):
            raise Unauthorized("Attempted to authenticate with an unsupported method.")
        if method not in identity:
            raise Invalid(_expecting(method, "identity"))
        proofs.append(await (_by_password if method == "password" else _by_token)(call, identity[method]))
    if len({proof.user_id for proof in proofs}) > 1:
        raise Unauthorized(REFUSAL)
    methods = tuple(dict.fromkeys(method for proof in proofs for method in proof.methods))
    proof = next((each.proof for each in proofs if each.proof is not None), None)
    secret = next((proof.secret for proof in proofs if proof.secret is not None), None)
    return _SignedIn(proofs[0].user_id, methods, proof, secret)


async def _by_password(call: Call, given: dict[str, Any]) -> _SignedIn:
    wanted = given["user"]
    _check_reference(wanted, "user")
    named = {"user_id": wanted["id"]} if "id" in wanted else {"name": wanted["name"]}
    # Also a user in a domain that does not exist takes the time of a password, and is nobody else.
    known = "id" in wanted or is_default(wanted["domain"])
    named = named if known else {"name": f"{wanted['name']} of {wanted['domain']}"}
    proof = await sign_ins.prove(call.services.database, limit(call), wanted["password"], known=known, **named)
    if proof is None:
        raise Unauthorized(REFUSAL)
    return _SignedIn(proof.user.id, ("password",), proof=proof)


def limit(call: Call) -> SignInLimit:
    """How many wrong passwords are borne."""
    return SignInLimit(call.services.settings.max_failures, call.services.settings.failure_seconds)


async def _by_token(call: Call, given: dict[str, Any]) -> _SignedIn:
    async with call.services.database.begin() as connection:
        token = await tokens.find(connection, given["id"])
    if token is None:
        raise NotFound("Failed to validate token")
    return _SignedIn(token.caller.user_id, ("token", *token.methods), secret=given["id"])


async def _issue(call: Call, connection: AsyncConnection, signed_in: _SignedIn, first: Token | None, scope: Any) -> str:
    expires_at = tokens.expiry(call.services.settings.token_seconds)
    project_id = None
    system = isinstance(scope, dict) and "system" in scope
    if isinstance(scope, dict) and "project" in scope:
        project_id = await _project(connection, scope["project"])
    elif isinstance(scope, dict) and "domain" in scope:
        raise Unauthorized(REFUSAL)  # nobody has a role on the domain
    return await tokens.issue(
        connection,
        signed_in.user_id,
        project_id,
        signed_in.methods,
        # Else a token could be renewed for ever, by whoever stole it.
        sa.func.least(expires_at, first.expires_at) if first else expires_at,
        system=system,
        chain=first.audit_ids[-1] if first else None,
    )


async def _project(connection: AsyncConnection, wanted: dict[str, Any]) -> str:
    _check_reference(wanted, "project")
    if "id" in wanted:
        found = await projects.find(connection, project_id=wanted["id"])
    elif is_default(wanted["domain"]):
        found = await projects.find(connection, name=wanted["name"])
    else:
        found = None
    if found is None:
        raise Unauthorized(REFUSAL)
    return str(found.id)


async def _subject(call: Call) -> tuple[str, Token]:
    secret = call.headers.get("x-subject-token")
    if not secret:
        raise NotFound("No token in the request")
    async with call.services.database.begin() as connection:
        token = await tokens.find(connection, secret)
    if token is None:
        raise NotFound("Failed to validate token")
    return secret, token


def _check_reference(wanted: dict[str, Any], kind: str) -> None:
    """A name means something only in its domain."""
    if "id" in wanted:
        return
    if "name" not in wanted:
        raise Invalid(_expecting("id or name", kind))
    if "domain" not in wanted:
        raise Invalid(_expecting("domain", kind))


def _expecting(what: str, where: str) -> str:
    return (
        f"Expecting to find {what} in {where}. The server could not comply with the request since it is either "
        "malformed or otherwise incorrect. The client is assumed to be in error."
    )


def _view(call: Call, token: Token) -> dict[str, Any]:
    caller = token.caller
    view: dict[str, Any] = {
        "methods": list(token.methods),
        "user": {
            "id": caller.user_id,
            "name": caller.user_name,
            "domain": reference(),
            "password_expires_at": None,
        },
        "audit_ids": list(token.audit_ids),
        "issued_at": _moment(token.issued_at),
        "expires_at": _moment(token.expires_at),
        **_scope(caller),
    }
    if catalog.has_one(caller) and "nocatalog" not in call.query:
        view["catalog"] = catalog.view(call)
    return {"token": view}


def _scope(caller: Caller) -> dict[str, Any]:
    roles = {"roles": [{"id": Role(name).id, "name": name} for name in caller.roles]}
    if caller.system:
        return {"system": {"all": True}, **roles}
    if caller.project_id is None:
        return {}
    project = {"id": caller.project_id, "name": caller.project_name, "domain": reference()}
    return {"project": project, "is_domain": False, **roles}


def _moment(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
