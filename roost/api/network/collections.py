"""All nouns of the network API, and the verbs of each.

A project sees what is its own and what is shared; what it does not see does not exist for it.
"""

from collections.abc import Callable
from functools import partial

from roost.api.network import routers
from roost.api.network.floating_ips import FLOATING
from roost.api.network.lists import fields, read
from roost.api.network.networks import NETWORKS, SUBNETS
from roost.api.network.nouns import MOST, OWNER, Noun, Values
from roost.api.network.ports import PORTS
from roost.api.network.routers import ROUTERS
from roost.api.network.security_groups import GROUPS, RULES_OF_GROUPS
from roost.api.permissions import MEMBER, READER, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import STRING, Schema, array, thing
from roost.errors import Forbidden, Invalid, NotFound
from roost.network import networks, security

routes = Table(prefix="/v2.0")


NOUNS = (PORTS, SUBNETS, NETWORKS, RULES_OF_GROUPS, GROUPS, FLOATING, ROUTERS)

RULES = tuple(
    Permission(f"{verb}_{noun.singular}", READER if verb == "get" else MEMBER, f"{word} {noun.plural}.")
    for noun in NOUNS
    for verb, word in (("get", "See"), ("create", "Make"), ("update", "Change"), ("delete", "Delete"))
)

# Attributes depend on which parts of Neutron are served, and clients choose those that they want.
_SHAPE = thing({"id": STRING, "project_id": STRING}, additionalProperties=True)
_LISTED: Schema = {"type": "object"}


def _list(noun: Noun) -> None:
    links = f"{noun.plural}_links"
    shape = thing({noun.plural: array(_LISTED)}, {links: array(thing({"rel": STRING, "href": STRING}))})

    @routes.get(noun.path, rule=f"get_{noun.singular}", response=shape)
    async def index(call: Call) -> Reply:
        """List those that the caller sees, with the values asked for, page by page."""
        if noun in (GROUPS, RULES_OF_GROUPS) and call.caller.project_id is not None:
            async with call.services.database.begin() as connection:
                await security.default_group(connection, call.caller.project_id)
        views, more = await read(noun, call)
        following = {links: [{"rel": "next", "href": call.following(views[-1]["id"])}]} if more else {}
        return {noun.plural: fields(call, views), **following}


def _verbs(noun: Noun) -> None:
    one, shape = f"{noun.path}/{{{noun.variable}}}", thing({noun.singular: _SHAPE})

    @routes.get(one, rule=f"get_{noun.singular}", response=thing({noun.singular: _LISTED}))
    async def show(call: Call) -> Reply:
        """Show one that the caller sees."""
        async with noun.reading(call) as connection:
            views = await noun.views(connection, [await noun.find(call, connection, call.path[noun.variable])])
        return {noun.singular: fields(call, views)[0]}

    new = thing({key: noun.makeable[key] for key in noun.required}, {**noun.makeable, **OWNER})

    @routes.post(
        noun.path, rule=f"create_{noun.singular}", status=201, body=thing({noun.singular: new}), response=shape
    )
    async def create(call: Call, connection: Connection) -> Reply:
        """Make one."""
        wanted = dict(call.body[noun.singular])
        owner = _owner(call, wanted)
        values = {key: value for key, value in wanted.items() if key not in ("availability_zone_hints", "is_default")}
        await networks.keep_within(connection, owner, noun.singular)
        row = await noun.make(call, connection, {**_plain(noun, values), "project_id": owner})
        views = await noun.views(connection, [row])
        return {noun.singular: views[0]}

    changes = thing({}, {**noun.changeable, **OWNER})

    @routes.put(one, rule=f"update_{noun.singular}", owned=True, body=thing({noun.singular: changes}), response=shape)
    async def update(call: Call, connection: Connection) -> Reply:
        """Change one."""
        wanted = {key: value for key, value in call.body[noun.singular].items() if key not in (*OWNER, "is_default")}
        row = await noun.owned(call, connection, "update")
        await noun.change(call, connection, row, _plain(noun, wanted))
        views = await noun.views(connection, [await noun.find(call, connection, row.id)])
        return {noun.singular: views[0]}

    @routes.delete(one, rule=f"delete_{noun.singular}", owned=True, status=204)
    async def delete(call: Call, connection: Connection) -> None:
        """Delete one."""
        await noun.remove(connection, await noun.owned(call, connection, "delete"))


def _owner(call: Call, wanted: Values) -> str:
    asked = wanted.pop("project_id", None) or wanted.pop("tenant_id", None)
    wanted.pop("tenant_id", None)
    own = call.caller.project_id or ""
    if asked not in (None, own) and not call.caller.is_admin:
        raise Forbidden("Only administrators make things for other projects.")
    return asked or own


def _plain(noun: Noun, values: Values) -> Values:
    """Null means the default, where there is one."""
    keeps = (
        *("gateway_ip", "security_groups", "protocol", "port_range_min", "port_range_max", "port_id"),
        "external_gateway_info",
    )
    plain = {key: value for key, value in values.items() if value is not None or key in keeps}
    if plain.get("protocol") is not None:
        plain["protocol"] = str(plain["protocol"]).lower()
    return plain


def _tags(noun: Noun) -> None:
    path = f"{noun.path}/{{{noun.variable}}}/tags"
    shape = thing({"tags": array(STRING)})
    tag: Schema = {"type": "string", "minLength": 1, "maxLength": 255}

    async def _set(call: Call, change: Callable[[list[str]], list[str]]) -> list[str]:
        async with call.services.database.begin() as connection:
            row = await noun.owned(call, connection, "update")
            tags = list(dict.fromkeys(change(list(row.tags))))
            if len(tags) > MOST or any(len(each) > 255 for each in tags):
                raise Invalid(f"At most {MOST} tags of at most 255 characters can be kept.")
            await noun.stored.change(connection, row.id, {"tags": tags})
        return tags

    @routes.get(path, rule=f"get_{noun.singular}", response=shape)
    async def index(call: Call, connection: Connection) -> Reply:
        """The tags of one."""
        return {"tags": list((await noun.find(call, connection, call.path[noun.variable])).tags)}

    @routes.put(path, rule=f"update_{noun.singular}", owned=True, body=thing({"tags": array(tag)}), response=shape)
    async def replace(call: Call) -> Reply:
        """Give it these tags and no others."""
        return {"tags": await _set(call, lambda _: call.body["tags"])}

    @routes.put(f"{path}/{{tag}}", rule=f"update_{noun.singular}", owned=True, status=201)
    async def add(call: Call) -> None:
        """Give it one tag more."""
        await _set(call, lambda tags: [*tags, call.path["tag"]])

    @routes.delete(f"{path}/{{tag}}", rule=f"update_{noun.singular}", owned=True, status=204)
    async def remove(call: Call) -> None:
        """Take a tag off."""
        await _set(call, partial(_without, tag=call.path["tag"]))

    @routes.delete(path, rule=f"update_{noun.singular}", owned=True, status=204)
    async def clear(call: Call) -> None:
        """Take all tags off."""
        await _set(call, lambda _: [])


def _without(tags: list[str], tag: str) -> list[str]:
    if tag not in tags:
        raise NotFound(f"Tag {tag} could not be found.")
    return [each for each in tags if each != tag]


for _noun in NOUNS:
    _list(_noun)
    _tags(_noun)
    _verbs(_noun)
routes.include(routers.routes)

_ZONE = thing(dict.fromkeys(("name", "resource", "state"), STRING))


@routes.get("/availability_zones", rule="get_network", response=thing({"availability_zones": array(_ZONE)}))
async def index_zones(call: Call) -> Reply:
    """The zones of networks: one, since all networks reach all hosts."""
    return {"availability_zones": [{"name": "nova", "resource": "network", "state": "available"}]}
