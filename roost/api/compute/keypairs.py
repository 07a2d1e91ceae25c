"""Key pairs of a user: imported, or (before 2.92) generated."""

from typing import Any

from roost.api.compute.views import LINKS, PAGE, closed_query, next_page, open_query, timestamp
from roost.api.permissions import Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import NAME, NULLABLE_STRING, STRING, Schema, array, thing
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

_LISTED = {"name": STRING, "public_key": STRING, "fingerprint": STRING}
_CREATED = {**_LISTED, "user_id": STRING}
_SHOWN = {
    **_CREATED,
    "id": {"type": "integer"},
    "created_at": STRING,
    "updated_at": NULLABLE_STRING,
    "deleted": {"const": False},
    "deleted_at": {"type": "null"},
}


def _typed(properties: dict[str, Schema], version: str) -> dict[str, Schema]:
    return {**properties, "type": _KIND} if version != "2.1" else properties


def _view(call: Call, row: KeyPair, *more: str) -> dict[str, Any]:
    kind = ("type",) if call.version >= Version(2, 2) else ()
    return {name: getattr(row, name) for name in ("name", "public_key", "fingerprint", *kind, *more)}


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
    view = _view(call, row, "user_id")
    return {"keypair": {**view, "private_key": private_key} if private_key else view}


for _since, _until, _status, _body in _BODIES:
    routes.post(
        "/os-keypairs",
        since=_since,
        until=_until,
        rule=_RULE + "create",
        owned=True,
        body=thing({"keypair": _body}),
        response=thing(
            {"keypair": thing(_typed(_CREATED, _since), {} if _since == "2.92" else {"private_key": STRING})}
        ),
        status=_status,
    )(create)


def _listed(version: str) -> Schema:
    keys = {"keypairs": array(thing({"keypair": thing(_typed(_LISTED, version))}))}
    return thing(keys, {"keypairs_links": LINKS} if version == "2.35" else {})


_INDEX: dict[str, Any] = {"rule": _RULE + "index", "owned": True}
_USER = {"user_id": STRING}


@routes.get("/os-keypairs", until="2.1", response=_listed("2.1"), **_INDEX)
@routes.get("/os-keypairs", since="2.2", until="2.34", query=open_query(**_USER), response=_listed("2.2"), **_INDEX)
@routes.get(
    "/os-keypairs", since="2.35", until="2.74", query=open_query(**_USER, **PAGE), response=_listed("2.35"), **_INDEX
)
@routes.get("/os-keypairs", since="2.75", query=closed_query(**_USER, **PAGE), response=_listed("2.35"), **_INDEX)
async def index(call: Call) -> Reply:
    """List a user's key pairs."""
    user_id = _user(call, "index", call.query.get("user_id"))
    paged = call.version >= Version(2, 35)
    page = call.page if paged else EVERYTHING
    async with call.services.database.begin() as connection:
        listed = [_view(call, row) for row in await keypairs.index(connection, user_id, page)]
    following = next_page(call, listed, "name") if paged else []
    return {
        "keypairs": [{"keypair": view} for view in listed],
        **({"keypairs_links": following} if following else {}),
    }


_SHOW: dict[str, Any] = {"rule": _RULE + "show", "owned": True}
_DELETE: dict[str, Any] = {"rule": _RULE + "delete", "owned": True}


@routes.get("/os-keypairs/{name}", until="2.1", response=thing({"keypair": thing(_SHOWN)}), **_SHOW)
@routes.get(
    "/os-keypairs/{name}",
    since="2.2",
    until="2.74",
    query=open_query(**_USER),
    response=thing({"keypair": thing(_typed(_SHOWN, "2.2"))}),
    **_SHOW,
)
@routes.get(
    "/os-keypairs/{name}",
    since="2.75",
    query=closed_query(**_USER),
    response=thing({"keypair": thing(_typed(_SHOWN, "2.2"))}),
    **_SHOW,
)
async def show(call: Call) -> Reply:
    """Show one key pair."""
    user_id = _user(call, "show", call.query.get("user_id"))
    async with call.services.database.begin() as connection:
        row = await keypairs.show(connection, user_id, call.path["name"])
    times = {"created_at": timestamp(row.created_at), "updated_at": None, "deleted": False, "deleted_at": None}
    return {"keypair": {**_view(call, row, "user_id", "id"), **times}}


async def delete(call: Call) -> Reply:
    """Delete one key pair."""
    user_id = _user(call, "delete", call.query.get("user_id"))
    async with call.services.database.begin() as connection:
        await keypairs.delete(connection, user_id, call.path["name"])
    return None


routes.delete("/os-keypairs/{name}", until="2.1", status=202, **_DELETE)(delete)
routes.delete("/os-keypairs/{name}", since="2.2", until="2.74", status=204, query=open_query(**_USER), **_DELETE)(
    delete
)
routes.delete("/os-keypairs/{name}", since="2.75", status=204, query=closed_query(**_USER), **_DELETE)(delete)
