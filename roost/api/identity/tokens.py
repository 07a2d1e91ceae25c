"""Tokens: signing in, and looking at, checking and giving up a token."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from starlette.responses import JSONResponse, Response

from roost.api import schemas
from roost.api.auth import REFUSAL
from roost.api.identity import catalog
from roost.api.identity.domains import DOMAIN_REFERENCE, reference
from roost.api.identity.shapes import REFERENCE
from roost.api.permissions import Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import NULL
from roost.errors import Invalid, NotFound, Unauthorized
from roost.identity import application_credentials, domains, projects, sign_ins, tokens, users
from roost.identity.sign_ins import Proof, SignInLimit
from roost.identity.tokens import Token

routes = Table(prefix="/v3/auth")

_SUBJECT_OR = "rule:admin_api or user_id:%(user_id)s"
RULES = (
    Permission("identity:validate_token", f"{_SUBJECT_OR} or role:service", "Look at a token, one's own or another's."),
    Permission("identity:revoke_token", _SUBJECT_OR, "Give up a token, one's own or another's."),
)

_MOST_METHODS = 16
_NAMED = {"id": schemas.STRING, "name": schemas.STRING, "domain": DOMAIN_REFERENCE}
_USER = {"type": "object", "properties": {**_NAMED, "password": schemas.STRING}, "required": ["password"]}
_IDENTITY = {
    "type": "object",
    "properties": {
        "methods": schemas.array(schemas.STRING, minItems=1, maxItems=_MOST_METHODS),
        "password": {"type": "object", "properties": {"user": _USER}, "required": ["user"]},
        "token": {"type": "object", "properties": {"id": schemas.STRING}, "required": ["id"]},
        "application_credential": {
            "type": "object",
            "properties": {
                "id": schemas.STRING,
                "name": schemas.STRING,
                "user": {"type": "object", "properties": _NAMED},
                "secret": schemas.STRING,
            },
            "required": ["secret"],
        },
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
        "domain": REFERENCE,
        "system": schemas.thing({"all": {"const": True}}),
        "application_credential": {"type": "object"},
        "roles": schemas.array(REFERENCE),
        "catalog": catalog.CATALOG,
    },
)
_ANSWER = schemas.thing({"token": _TOKEN})


@dataclass(frozen=True, slots=True)
class _SignedIn:
    """A user who has signed in, and by what."""

    user_id: str
    methods: tuple[str, ...]
    proof: Proof | None = None
    """The password that was right, if one was asked for."""
    secret: str | None = None
    """The token that stood for a password."""
    credential: Any | None = None
    """The application credential that stood for one, which says for which project."""


@routes.post("/tokens", public=True, status=201, body=_CREATE, response=_ANSWER)
async def create(call: Call) -> Reply:
    """Sign in with a password, a token or an application credential: for a project, for a domain, for the whole system,
    or unscoped."""
    auth = call.body["auth"]
    signed_in = await _sign_in(call, auth["identity"])
    async with call.services.database.begin() as connection:
        if signed_in.proof is not None and not await sign_ins.hold(connection, limit(call), signed_in.proof):
            raise Unauthorized(REFUSAL)
        # Locked, so that a revocation finds the token made from it too, or this finds it gone.
        first = await tokens.find(connection, signed_in.secret, hold=True) if signed_in.secret is not None else None
        if signed_in.secret is not None and first is None:
            raise Unauthorized(REFUSAL)
        secret = await _issue(call, connection, signed_in, first, auth.get("scope"))
        token = await tokens.find(connection, secret)
        if token is None:
            # The user has no role there, or the project is disabled; either way nothing was issued.
            raise Unauthorized(REFUSAL)
        view = await _view(call, connection, token)
    return JSONResponse(view, 201, headers={"X-Subject-Token": secret, "Vary": "X-Auth-Token"})


@routes.get("/tokens", rule="identity:validate_token", owned=True, response=_ANSWER)
async def show(call: Call) -> Reply:
    """Whom the token in X-Subject-Token speaks for."""
    secret, token = await _subject(call)
    call.permit("identity:validate_token", user_id=token.caller.user_id)
    async with call.services.database.autocommit() as connection:
        view = await _view(call, connection, token)
    return JSONResponse(view, headers={"X-Subject-Token": secret, "Vary": "X-Auth-Token"})


@routes.delete("/tokens", rule="identity:revoke_token", owned=True, status=204)
async def delete(call: Call) -> Reply:
    """Revoke the token in X-Subject-Token."""
    secret, token = await _subject(call)
    call.permit("identity:revoke_token", user_id=token.caller.user_id)
    async with call.services.database.begin() as connection:
        await tokens.revoke(connection, secret)
    return Response(status_code=204)


async def _sign_in(call: Call, identity: dict[str, Any]) -> _SignedIn:
    """Prove all methods that the request names; they must all speak of one user."""
    proofs = []
    for method in dict.fromkeys(identity["methods"]):
        if method not in _METHODS:
            raise Unauthorized("Attempted to authenticate with an unsupported method.")
        if method not in identity:
            raise Invalid(_expecting(method, "identity"))
        async with sign_ins.addresses.turn(call.address) if method in _GUESSED else nullcontext():
            proofs.append(await _METHODS[method](call, identity[method]))
    if len({proof.user_id for proof in proofs}) > 1:
        raise Unauthorized(REFUSAL)
    methods = tuple(dict.fromkeys(method for proof in proofs for method in proof.methods))
    proof = next((each.proof for each in proofs if each.proof is not None), None)
    secret = next((proof.secret for proof in proofs if proof.secret is not None), None)
    credential = next((each.credential for each in proofs if each.credential is not None), None)
    return _SignedIn(proofs[0].user_id, methods, proof, secret, credential)


async def _by_password(call: Call, given: dict[str, Any]) -> _SignedIn:
    wanted = given["user"]
    _check_reference(wanted, "user")
    named = {"user_id": wanted["id"]} if "id" in wanted else {"name": wanted["name"]}
    # A user named in the wrong domain is unknown, but takes as long as a password does.
    async with call.services.database.autocommit() as connection:
        found = None if "id" in wanted else await users.find(connection, name=wanted["name"])
        known = (
            "id" in wanted or found is None or await _in_domain(connection, users.find, "user_id", wanted) is not None
        )
    named = named if known else {"name": f"{wanted['name']} of {wanted['domain']}"}
    proof = await sign_ins.prove(call.services.database, limit(call), wanted["password"], known=known, **named)
    if proof is None:
        raise Unauthorized(REFUSAL)
    return _SignedIn(proof.user_id, ("password",), proof=proof)


def limit(call: Call) -> SignInLimit:
    """How many wrong passwords are borne."""
    return SignInLimit(call.services.settings.max_failures, call.services.settings.failure_seconds)


async def _by_token(call: Call, given: dict[str, Any]) -> _SignedIn:
    async with call.services.database.autocommit() as connection:
        token = await tokens.find(connection, given["id"])
    if token is None:
        raise NotFound("Failed to validate token")
    return _SignedIn(token.caller.user_id, ("token", *token.methods), secret=given["id"])


async def _by_credential(call: Call, given: dict[str, Any]) -> _SignedIn:
    """As slow as a password, also for one that does not exist, so that ids cannot be probed."""
    async with call.services.database.autocommit() as connection:
        wanted: dict[str, Any] = {"id": given["id"]} if "id" in given else await _by_name(connection, given)
        found = await application_credentials.find(connection, **wanted)
        owner = None if found is None else await users.find(connection, user_id=found.user_id)
    # What stands for the user here is its secret in place of its password.
    holder = None if found is None or owner is None else _as_user(found, owner)
    word = str(found.id) if found is not None else str(sorted(wanted.items()))
    if not await sign_ins.is_right_secret(call.services.database, limit(call), word, holder, given["secret"]):
        raise Unauthorized(REFUSAL)
    assert found is not None
    return _SignedIn(found.user_id, ("application_credential",), credential=found)


def _as_user(found: Any, owner: Any) -> Any:
    return SimpleNamespace(password_hash=found.secret_hash, enabled=owner.enabled)


async def _by_name(connection: Connection, given: dict[str, Any]) -> dict[str, Any]:
    """A name of an application credential means something only for its user."""
    if "name" not in given or "user" not in given:
        raise Invalid(_expecting("id, or name and user", "application_credential"))
    _check_reference(given["user"], "user")
    wanted = given["user"]
    found = await _in_domain(connection, users.find, "user_id", wanted)
    return {"name": given["name"], "user_id": found.id if found is not None else ""}


_METHODS = {"password": _by_password, "token": _by_token, "application_credential": _by_credential}
_GUESSED = ("password", "application_credential")


async def _issue(call: Call, connection: Connection, signed_in: _SignedIn, first: Token | None, scope: Any) -> str:
    credential = signed_in.credential
    if credential is not None and scope is not None:
        raise Unauthorized("Application credentials cannot request a scope.")
    if credential is None and first is not None and first.caller.application_credential_id is not None:
        raise Unauthorized("A token of an application credential cannot be exchanged for another.")
    places = scope if isinstance(scope, dict) else {}
    if len(places.keys() & {"project", "domain", "system"}) > 1:
        raise Invalid(_expecting("one of project, domain and system", "scope"))
    project_id = domain_id = None
    if credential is not None:
        project_id = credential.project_id
    elif "project" in places:
        project_id = await _project(connection, places["project"])
    elif "domain" in places:
        domain_id = (await _domain(connection, places["domain"])).id
    elif scope is None:
        project_id = await _default_project(connection, signed_in.user_id)
    return await tokens.issue(
        connection,
        signed_in.user_id,
        project_id,
        signed_in.methods,
        # Else a stolen token could be renewed for ever.
        tokens.expiry(call.services.settings.token_seconds, no_later=first.expires_at if first else None),
        system="system" in places and credential is None,
        domain_id=domain_id,
        application_credential_id=None if credential is None else credential.id,
        chain=first.audit_ids[-1] if first else None,
    )


async def _project(connection: Connection, wanted: dict[str, Any]) -> str:
    _check_reference(wanted, "project")
    found = await _in_domain(connection, projects.find, "project_id", wanted)
    if found is None:
        raise Unauthorized(REFUSAL)
    return str(found.id)


async def _default_project(connection: Connection, user_id: str) -> str | None:
    """The project that a user signs in for who names none, if it has one and may."""
    user = await users.show(connection, user_id)
    mine = await projects.of_user(connection, user_id) if user.default_project_id else ()
    return next((row.id for row in mine if row.id == user.default_project_id), None)


async def _domain(connection: Connection, wanted: dict[str, Any]) -> Any:
    equal = {"id": wanted["id"]} if "id" in wanted else {"name": wanted["name"]}
    found = next(iter(await domains.index(connection, **equal)), None)
    if found is None:
        raise Unauthorized(REFUSAL)
    return found


async def _in_domain(
    connection: Connection, find: Callable[..., Awaitable[Any]], key: str, wanted: dict[str, Any]
) -> Any | None:
    """The user or project with this id, or with this name in this domain."""
    if "id" in wanted:
        return await find(connection, **{key: wanted["id"]})
    found = await find(connection, name=wanted["name"])
    if found is None:
        return None
    given = wanted["domain"]
    domain = await domains.show(connection, found.domain_id)
    return found if (given["id"] == domain.id if "id" in given else given["name"] == domain.name) else None


async def _subject(call: Call) -> tuple[str, Token]:
    secret = call.headers.get("x-subject-token")
    if not secret:
        raise NotFound("No token in the request")
    async with call.services.database.autocommit() as connection:
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


async def _view(call: Call, connection: Connection, token: Token) -> dict[str, Any]:
    caller = token.caller
    names = {row.id: row.name for row in await domains.index(connection)}
    view: dict[str, Any] = {
        "methods": list(token.methods),
        "user": {
            "id": caller.user_id,
            "name": caller.user_name,
            "domain": reference(token.user_domain, names[token.user_domain]),
            "password_expires_at": None,
        },
        "audit_ids": list(token.audit_ids),
        "issued_at": _moment(token.issued_at),
        "expires_at": _moment(token.expires_at),
        **_scope(token, names),
    }
    if caller.application_credential_id is not None:
        credential = await application_credentials.find(connection, id=caller.application_credential_id)
        view["application_credential"] = {
            "id": caller.application_credential_id,
            "name": "" if credential is None else credential.name,
            "restricted": not caller.may_delegate,
        }
    if catalog.has_one(caller) and "nocatalog" not in call.query:
        view["catalog"] = await catalog.view(call, connection)
    return {"token": view}


def _scope(token: Token, names: Mapping[str, str]) -> dict[str, Any]:
    caller = token.caller
    roles = {"roles": [{"id": role_id, "name": name} for name, role_id in token.roles]}
    if caller.system:
        return {"system": {"all": True}, **roles}
    if caller.domain_id is not None:
        return {"domain": reference(caller.domain_id, names[caller.domain_id]), **roles}
    if caller.project_id is None or token.project_domain is None:
        return {}
    domain = reference(token.project_domain, names[token.project_domain])
    project = {"id": caller.project_id, "name": caller.project_name, "domain": domain}
    return {"project": project, "is_domain": False, **roles}


def _moment(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
