"""The metadata of a server: a few words that its owner attaches to it."""

from collections.abc import Mapping
from typing import Any

from roost.api.compute.servers import METADATA, owned
from roost.api.permissions import MEMBER, READER, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import STRING, by_name, thing
from roost.compute.inventory import quotas
from roost.compute.scheduling import servers
from roost.errors import Invalid, NotFound, OverQuota

_RULE = "os_compute_api:server-metadata:"

RULES = (
    Permission(_RULE + "index", READER, "List a server's metadata."),
    Permission(_RULE + "show", READER, "Show an item of a server's metadata."),
    Permission(_RULE + "create", MEMBER, "Add to a server's metadata."),
    Permission(_RULE + "update_all", MEMBER, "Replace a server's metadata."),
    Permission(_RULE + "update", MEMBER, "Change an item of a server's metadata."),
    Permission(_RULE + "delete", MEMBER, "Delete an item of a server's metadata."),
)

routes = Table(prefix="/v2.1")

_BODY = thing({"metadata": METADATA})
_ITEM = thing({"meta": {**METADATA, "minProperties": 1, "maxProperties": 1}})
_ALL = thing({"metadata": by_name(STRING)})
_ONE = thing({"meta": by_name(STRING, minProperties=1, maxProperties=1)})


@routes.get("/servers/{server_id}/metadata", rule=_RULE + "index", owned=True, response=_ALL)
async def index(call: Call, connection: Connection) -> Reply:
    """List a server's metadata."""
    server = await owned(call, connection, _RULE + "index")
    return {"metadata": server.metadata}


@routes.get("/servers/{server_id}/metadata/{key}", rule=_RULE + "show", owned=True, response=_ONE)
async def show(call: Call, connection: Connection) -> Reply:
    """Show one item."""
    server = await owned(call, connection, _RULE + "show")
    return {"meta": {call.path["key"]: _item(server.metadata, call.path["key"])}}


@routes.post("/servers/{server_id}/metadata", rule=_RULE + "create", owned=True, body=_BODY, response=_ALL)
async def create(call: Call) -> Reply:
    """Add items, or change those that are there."""
    return {"metadata": await _change(call, "create", call.body["metadata"], keep=True)}


@routes.put("/servers/{server_id}/metadata", rule=_RULE + "update_all", owned=True, body=_BODY, response=_ALL)
async def replace(call: Call) -> Reply:
    """Replace all items."""
    return {"metadata": await _change(call, "update_all", call.body["metadata"], keep=False)}


@routes.put("/servers/{server_id}/metadata/{key}", rule=_RULE + "update", owned=True, body=_ITEM, response=_ONE)
async def update(call: Call) -> Reply:
    """Change one item."""
    meta: dict[str, str] = call.body["meta"]
    if call.path["key"] not in meta:
        raise Invalid("Request body and URI mismatch")
    await _change(call, "update", meta, keep=True)
    return {"meta": meta}


@routes.delete("/servers/{server_id}/metadata/{key}", rule=_RULE + "delete", owned=True, status=204)
async def delete(call: Call, connection: Connection) -> None:
    """Delete one item."""
    server = await owned(call, connection, _RULE + "delete", lock=True)
    _item(server.metadata, call.path["key"])
    left = {key: value for key, value in server.metadata.items() if key != call.path["key"]}
    await servers.update(connection, server.id, {"metadata": left})


async def _change(call: Call, what: str, items: dict[str, str], *, keep: bool) -> dict[str, str]:
    async with call.services.database.begin() as connection:
        server = await owned(call, connection, _RULE + what, lock=True)
        wanted = {**server.metadata, **items} if keep else items
        limits = await quotas.limits(connection, call.services.settings.quota, server.project_id, server.user_id)
        most = limits["metadata_items"]
        if 0 <= most < len(wanted):
            raise OverQuota(f"Maximum number of metadata items exceeds {most}")
        await servers.update(connection, server.id, {"metadata": wanted})
    return wanted


def _item(metadata: Mapping[str, str], key: str) -> Any:
    if key not in metadata:
        raise NotFound("Metadata item was not found")
    return metadata[key]
