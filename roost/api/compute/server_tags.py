"""The tags of a server: words to find it by."""

from typing import Any

from starlette.responses import Response

from roost.api.compute.servers import TAG, owned
from roost.api.permissions import MEMBER, READER, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import STRING, Validator, array, nova_sentence, thing
from roost.compute.scheduling import servers
from roost.errors import Invalid, NotFound

_RULE = "os_compute_api:os-server-tags:"
MOST = 50

RULES = (
    Permission(_RULE + "index", READER, "List the tags of a server."),
    Permission(_RULE + "show", READER, "Ask whether a server has a tag."),
    Permission(_RULE + "update", MEMBER, "Give a server a tag."),
    Permission(_RULE + "update_all", MEMBER, "Replace the tags of a server."),
    Permission(_RULE + "delete", MEMBER, "Take a tag off a server."),
    Permission(_RULE + "delete_all", MEMBER, "Take all tags off a server."),
)

routes = Table(prefix="/v2.1/servers/{server_id}/tags")

_TAGS = thing({"tags": array(STRING)})
_TAG = Validator(thing({"tag": TAG}))


@routes.get("", since="2.26", rule=_RULE + "index", owned=True, response=_TAGS)
async def index(call: Call, connection: Connection) -> Reply:
    """The tags of a server."""
    server = await owned(call, connection, _RULE + "index")
    return {"tags": list(server.tags)}


@routes.put("", since="2.26", rule=_RULE + "update_all", owned=True, body=thing({"tags": array(TAG)}), response=_TAGS)
async def replace(call: Call, connection: Connection) -> Reply:
    """Give a server these tags and no others."""
    tags = list(dict.fromkeys(call.body["tags"]))
    if len(tags) > MOST:
        raise Invalid(f"The number of tags exceeded the per-server limit {MOST}")
    server = await owned(call, connection, _RULE + "update_all", lock=True)
    await servers.update(connection, server.id, {"tags": tags})
    return {"tags": tags}


@routes.get("/{tag}", since="2.26", rule=_RULE + "show", owned=True, status=204)
async def show(call: Call, connection: Connection) -> None:
    """Whether a server has a tag: 204 or 404."""
    _must_have(call, await owned(call, connection, _RULE + "show"))


@routes.put("/{tag}", since="2.26", rule=_RULE + "update", owned=True, status=201, also={204: None})
async def add(call: Call, connection: Connection) -> Reply:
    """Give a server a tag: 201, or 204 if it had it."""
    tag = call.path["tag"]
    _TAG.check_body({"tag": tag}, nova_sentence)
    server = await owned(call, connection, _RULE + "update", lock=True)
    if tag in server.tags:
        return Response(status_code=204)
    if len(server.tags) >= MOST:
        raise Invalid(f"The number of tags exceeded the per-server limit {MOST}")
    await servers.update(connection, server.id, {"tags": [*server.tags, tag]})
    call.answer_headers["Location"] = call.url
    return None


@routes.delete("/{tag}", since="2.26", rule=_RULE + "delete", owned=True, status=204)
async def remove(call: Call, connection: Connection) -> None:
    """Take a tag off a server."""
    tag = call.path["tag"]
    server = await owned(call, connection, _RULE + "delete", lock=True)
    _must_have(call, server)
    await servers.update(connection, server.id, {"tags": [each for each in server.tags if each != tag]})


@routes.delete("", since="2.26", rule=_RULE + "delete_all", owned=True, status=204)
async def clear(call: Call, connection: Connection) -> None:
    """Take all tags off a server."""
    server = await owned(call, connection, _RULE + "delete_all", lock=True)
    await servers.update(connection, server.id, {"tags": []})


def _must_have(call: Call, server: Any) -> None:
    if call.path["tag"] not in server.tags:
        raise NotFound(f"Server {server.id} has no tag '{call.path['tag']}'")
