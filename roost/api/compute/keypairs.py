"""Key pairs of a user: imported, or (before 2.92) generated."""

from typing import Any

from roost.api.compute.views import LINKS, PAGE, closed_query, next_page, open_query, timestamp
from roost.api.fields import FieldTable, ShownField
from roost.api.permissions import Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import INTEGER, NAME, NULL, NULLABLE_STRING, STRING, Schema, array, thing
from roost.api.versions import Version
from roost.compute.inventory import keypairs, quotas
from roost.compute.inventory.keypairs import KeyPair
from roost.errors import Invalid
from roost.store.pages import EVERYTHING

routes = Table(prefix="/v2.1")

_RULE = "os_compute_api:os-keypairs:"
_OWNER = "rule:admin_api or user_id:%(user_id)s"
RULES = (
    Permission(_RULE + "index", _OWNER, "List a user's key pairs."),
    Permission(_RULE + "show", _OWNER, "Show a user's key pair."),
    Permission(_RULE + "create", _OWNER, "Create a key pair for a user."),
    Permission(_RULE + "delete", _OWNER, "Delete a user's key pair."),
)

_OLD_NAME: Schema = {"allOf": [NAME, {"pattern": r"^[_\- a-zA-Z0-9]+$"}]}
_NEW_NAME: Schema = {"allOf": [NAME, {"pattern": r"^[_\-\@\. a-zA-Z0-9]+$"}]}
_KIND: Schema = {"type": "string", "enum": ["ssh", "x509"]}
_BODIES: tuple[tuple[str, str | None, int, Schema], ...] = (
    ("2.1", "2.1", 200, thing({"name": _OLD_NAME}, {"public_key": STRING})),
    ("2.2", "2.9", 201, thing({"name": _OLD_NAME}, {"public_key": STRING, "type": _KIND})),
    ("2.10", "2.91", 201, thing({"name": _OLD_NAME}, {"public_key": STRING, "type": _KIND, "user_id": STRING})),
    ("2.92", None, 201, thing({"name": _NEW_NAME, "public_key": STRING}, {"type": _KIND, "user_id": STRING})),
)
"""From version to version: the status and the body of a creation."""

_LISTED = FieldTable[KeyPair](
    ShownField("name", STRING, lambda pair: pair.name),
    ShownField("public_key", STRING, lambda pair: pair.public_key),
    ShownField("fingerprint", STRING, lambda pair: pair.fingerprint),
    ShownField("type", _KIND, lambda pair: pair.type, since=Version(2, 2)),
)
_CREATED = FieldTable[KeyPair](*_LISTED.fields, ShownField("user_id", STRING, lambda pair: pair.user_id))
_SHOWN = FieldTable[KeyPair](
    *_CREATED.fields,
    ShownField("id", INTEGER, lambda pair: pair.id),
    ShownField("created_at", STRING, lambda pair: timestamp(pair.created_at)),
    ShownField("updated_at", NULLABLE_STRING, lambda pair: None),
    ShownField("deleted", {"const": False}, lambda pair: False),
    ShownField("deleted_at", NULL, lambda pair: None),
)
_ONE = _SHOWN.one("keypair")


def _user(call: Call, rule: str, asked: str | None) -> str:
    """Whose key pairs: the caller's, or (from 2.10 on) those of whom an operator names."""
    user_id = asked if asked and call.version >= Version(2, 10) else call.caller.user_id
    call.permit(_RULE + rule, user_id=user_id)
    return user_id


async def create(call: Call) -> Reply:
    """Import a public key, or have a key pair made and get the private key this once."""
    asked = call.body["keypair"]
    user_id, kind = _user(call, "create", asked.get("user_id")), asked.get("type", "ssh")
    private_key, public_key = None, asked.get("public_key")
    if public_key is None:
        if kind != "ssh":
            raise Invalid("Keypair data is invalid: only ssh key pairs are generated here; give a public_key")
        private_key, public_key = await keypairs.generate()
    async with call.services.database.begin() as connection:
        configured, project_id = call.services.settings.quota, call.caller.project_id or ""
        limit = (await quotas.limits(connection, configured, project_id, user_id))["key_pairs"]
        row = await keypairs.create(connection, user_id, asked["name"], public_key, kind, limit)
    view = _CREATED.show(row, call.version)
    return {"keypair": {**view, "private_key": private_key} if private_key else view}


def _created(version: Version) -> Schema:
    generated = {"private_key": STRING} if version < Version(2, 92) else {}
    return thing({"keypair": _CREATED.schema(version, **generated)})


for _since, _until, _status, _body in _BODIES:
    routes.post(
        "/os-keypairs",
        since=_since,
        until=_until,
        rule=_RULE + "create",
        owned=True,
        body=thing({"keypair": _body}),
        response=_created,
        status=_status,
    )(create)


def _listed(version: Version) -> Schema:
    keys = {"keypairs": array(thing({"keypair": _LISTED.schema(version)}))}
    return thing(keys, {"keypairs_links": LINKS} if version >= Version(2, 35) else {})


_INDEX: dict[str, Any] = {"rule": _RULE + "index", "owned": True, "response": _listed}
_USER = {"user_id": STRING}


@routes.get("/os-keypairs", until="2.1", **_INDEX)
@routes.get("/os-keypairs", since="2.2", until="2.34", query=open_query(**_USER), **_INDEX)
@routes.get("/os-keypairs", since="2.35", until="2.74", query=open_query(**_USER, **PAGE), **_INDEX)
@routes.get("/os-keypairs", since="2.75", query=closed_query(**_USER, **PAGE), **_INDEX)
async def index(call: Call, connection: Connection) -> Reply:
    """List a user's key pairs."""
    user_id = _user(call, "index", call.query.get("user_id"))
    paged = call.version >= Version(2, 35)
    page = call.page if paged else EVERYTHING
    listed = [_LISTED.show(row, call.version) for row in await keypairs.index(connection, user_id, page)]
    following = next_page(call, listed, "name") if paged else []
    return {"keypairs": [{"keypair": view} for view in listed], **({"keypairs_links": following} if following else {})}


_SHOW: dict[str, Any] = {"rule": _RULE + "show", "owned": True, "response": _ONE}
_DELETE: dict[str, Any] = {"rule": _RULE + "delete", "owned": True}


@routes.get("/os-keypairs/{name}", until="2.1", **_SHOW)
@routes.get("/os-keypairs/{name}", since="2.2", until="2.74", query=open_query(**_USER), **_SHOW)
@routes.get("/os-keypairs/{name}", since="2.75", query=closed_query(**_USER), **_SHOW)
async def show(call: Call, connection: Connection) -> Reply:
    """Show one key pair."""
    user_id = _user(call, "show", call.query.get("user_id"))
    pair = await keypairs.show(connection, user_id, call.path["name"])
    return {"keypair": _SHOWN.show(pair, call.version)}


async def delete(call: Call, connection: Connection) -> None:
    """Delete one key pair."""
    user_id = _user(call, "delete", call.query.get("user_id"))
    await keypairs.delete(connection, user_id, call.path["name"])


routes.delete("/os-keypairs/{name}", until="2.1", status=202, **_DELETE)(delete)
routes.delete("/os-keypairs/{name}", since="2.2", until="2.74", status=204, query=open_query(**_USER), **_DELETE)(
    delete
)
routes.delete("/os-keypairs/{name}", since="2.75", status=204, query=closed_query(**_USER), **_DELETE)(delete)
