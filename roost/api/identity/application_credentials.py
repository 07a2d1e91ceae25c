"""Application credentials and their access rules: each user's own."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from roost.api.fields import ShownField, column, given
from roost.api.identity.shapes import NAME, IdentityNoun
from roost.api.permissions import Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import NULLABLE_STRING, STRING, TRUTH, Schema, array, thing
from roost.errors import Forbidden, Invalid
from roost.identity import application_credentials, roles, sign_ins, users

routes = Table(prefix="/v3/users/{user_id}")

_OWN_OR_ADMIN = "rule:admin_api or user_id:%(user_id)s"
RULES = (
    Permission("identity:list_application_credentials", _OWN_OR_ADMIN, "List a user's application credentials."),
    Permission("identity:get_application_credential", _OWN_OR_ADMIN, "Show an application credential."),
    Permission("identity:create_application_credential", "user_id:%(user_id)s", "Make an application credential."),
    Permission("identity:delete_application_credential", _OWN_OR_ADMIN, "Delete an application credential."),
    Permission("identity:list_access_rules", _OWN_OR_ADMIN, "List a user's access rules."),
    Permission("identity:get_access_rule", _OWN_OR_ADMIN, "Show an access rule."),
    Permission("identity:delete_access_rule", _OWN_OR_ADMIN, "Delete an access rule."),
)

_RULE_FIELDS: dict[str, Schema] = {
    "service": STRING,
    "path": {"type": "string", "maxLength": 128},
    "method": {"type": "string"},
}
_METHODS: Schema = {"enum": ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]}
_NEW_RULE: Schema = {"anyOf": [thing({"id": STRING}), thing({**_RULE_FIELDS, "method": _METHODS})]}
_CREATE = thing(
    {
        "application_credential": thing(
            {"name": NAME},
            {
                "secret": NULLABLE_STRING,
                "description": NULLABLE_STRING,
                "expires_at": NULLABLE_STRING,
                "unrestricted": {"type": ["boolean", "null"]},
                "roles": array({"type": "object", "properties": {"id": STRING, "name": STRING}}, maxItems=100),
                "access_rules": {"type": ["array", "null"], "maxItems": 100, "items": _NEW_RULE},
                "project_id": STRING,
            },
        )
    }
)
_ROLE = thing({"id": STRING, "name": STRING}, additionalProperties=True)
_RULES = IdentityNoun(
    *("access_rule", "access_rules"),
    *(column(name, schema) for name, schema in _RULE_FIELDS.items()),
    path=lambda row: f"/users/{row.user_id}",
)


@dataclass(frozen=True, slots=True)
class CredentialAnswer:
    """An application credential with what it names."""

    row: Any
    roles: list[dict[str, str]]
    access_rules: list[dict[str, Any]] | None

    @property
    def id(self) -> str:
        """The credential's own."""
        return str(self.row.id)


def _expires_at(of: CredentialAnswer) -> str | None:
    ends: datetime | None = of.row.expires_at
    return None if ends is None else ends.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


_CREDENTIALS = IdentityNoun(
    *("application_credential", "application_credentials"),
    column("name", STRING, "row.name"),
    column("description", NULLABLE_STRING, "row.description"),
    column("project_id", STRING, "row.project_id"),
    column("user_id", STRING, "row.user_id"),
    ShownField("expires_at", NULLABLE_STRING, _expires_at),
    column("unrestricted", TRUTH, "row.unrestricted"),
    column("roles", array(_ROLE)),
    given("access_rules", array(_RULES.shape)),
    path=lambda of: f"/users/{of.row.user_id}",
)


@routes.get(
    "/application_credentials", rule="identity:list_application_credentials", owned=True, response=_CREDENTIALS.many
)
async def index(call: Call, connection: Connection) -> Reply:
    """List a user's application credentials, all or by name."""
    user_id = _permit(call, "list_application_credentials")
    await users.show(connection, user_id)
    found = await application_credentials.index(connection, user_id, call.query.get("name"))
    answer = await _answers(call, connection, user_id)
    return _CREDENTIALS.listed(call, map(answer, found))


@routes.get(
    "/application_credentials/{credential_id}",
    rule="identity:get_application_credential",
    owned=True,
    response=_CREDENTIALS.one,
)
async def show(call: Call, connection: Connection) -> Reply:
    """Show an application credential, without its secret."""
    user_id = _permit(call, "get_application_credential")
    row = await application_credentials.show(connection, user_id, call.path["credential_id"])
    return _CREDENTIALS.shown(call, (await _answers(call, connection, user_id))(row))


@routes.post(
    "/application_credentials",
    rule="identity:create_application_credential",
    owned=True,
    status=201,
    body=_CREATE,
    response=_CREDENTIALS.one,
)
async def create(call: Call) -> Reply:
    """Make an application credential for the project of the token, with some of the token's roles or all. The answer
    has the only copy of its secret."""
    user_id = _permit(call, "create_application_credential")
    wanted, caller = call.body["application_credential"], call.caller
    _may_delegate(call)
    if caller.project_id is None:
        raise Invalid("An application credential is for a project: sign in for one.")
    if wanted.get("project_id", caller.project_id) != caller.project_id:
        raise Invalid("An application credential is for the project of the token.")
    expires_at = _expiry(wanted.get("expires_at"))
    secret = wanted.get("secret") or secrets.token_urlsafe(64)
    async with sign_ins.addresses.turn(call.address):
        secret_hash = await users.hashed(secret)
    async with call.services.database.begin() as connection:
        row = await application_credentials.create(
            connection,
            user_id=user_id,
            project_id=caller.project_id,
            name=wanted["name"],
            secret_hash=secret_hash,
            roles=await _roles(call, connection, wanted.get("roles")),
            rules=wanted.get("access_rules"),
            description=wanted.get("description") or "",
            expires_at=expires_at,
            unrestricted=bool(wanted.get("unrestricted")),
        )
        answer = await _answers(call, connection, user_id)
    return {"application_credential": {**_CREDENTIALS.view(call, answer(row)), "secret": secret}}


@routes.delete(
    "/application_credentials/{credential_id}", rule="identity:delete_application_credential", owned=True, status=204
)
async def delete(call: Call, connection: Connection) -> None:
    """Delete an application credential; its tokens end."""
    user_id = _permit(call, "delete_application_credential")
    _may_delegate(call)
    await application_credentials.delete(connection, user_id, call.path["credential_id"])


@routes.get("/access_rules", rule="identity:list_access_rules", owned=True, response=_RULES.many)
async def index_rules(call: Call, connection: Connection) -> Reply:
    """List a user's access rules."""
    user_id = _permit(call, "list_access_rules")
    return _RULES.listed(call, await application_credentials.rules_of(connection, user_id))


@routes.get("/access_rules/{rule_id}", rule="identity:get_access_rule", owned=True, response=_RULES.one)
async def show_rule(call: Call, connection: Connection) -> Reply:
    """Show an access rule."""
    user_id = _permit(call, "get_access_rule")
    row = await application_credentials.rule(connection, user_id, call.path["rule_id"])
    return _RULES.shown(call, row)


@routes.delete("/access_rules/{rule_id}", rule="identity:delete_access_rule", owned=True, status=204)
async def delete_rule(call: Call, connection: Connection) -> None:
    """Delete an access rule that no application credential has."""
    user_id = _permit(call, "delete_access_rule")
    _may_delegate(call)
    await application_credentials.delete_rule(connection, user_id, call.path["rule_id"])


def _permit(call: Call, verb: str) -> str:
    call.permit(f"identity:{verb}", user_id=call.path["user_id"])
    return call.path["user_id"]


def _may_delegate(call: Call) -> None:
    """Else a credential could be used to make another that outlives it."""
    if not call.caller.may_delegate:
        raise Forbidden("A restricted application credential cannot make or delete application credentials.")


async def _roles(call: Call, connection: Connection, wanted: list[dict[str, str]] | None) -> list[str]:
    held = call.caller.roles
    if not wanted:
        return list(held)
    names = []
    for each in wanted:
        name = each["name"] if "name" in each else str((await roles.show(connection, each.get("id", ""))).name)
        if name not in held:
            raise Invalid(f"The role {name} is not one that the token has.")
        names.append(name)
    return names


def _expiry(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise Invalid(f"Invalid time '{text}': write it as 2026-11-15T08:00:00.000000.") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if moment <= datetime.now(UTC):
        raise Invalid("The application credential would have expired already.")
    return moment


async def _answers(call: Call, connection: Connection, user_id: str) -> Callable[[Any], CredentialAnswer]:
    """How a user's application credentials are shown, with the roles and access rules that they name."""
    by_name = {role.name: role for role in await roles.index(connection)}
    rules = {rule.id: _RULES.view(call, rule) for rule in await application_credentials.rules_of(connection, user_id)}

    def answer(row: Any) -> CredentialAnswer:
        named = [{"id": by_name[name].id, "name": name} for name in row.roles if name in by_name]
        allowed = None if row.access_rules is None else [rules[each] for each in rules if each in row.access_rules]
        return CredentialAnswer(row, named, allowed)

    return answer
