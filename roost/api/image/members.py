"""Members: the projects that a shared image is shared with, and their answers."""

from roost.api.fields import FieldTable, always, column
from roost.api.image.images import CREATED, UPDATED, owned, viewer
from roost.api.permissions import MEMBER, READER, Permission
from roost.api.routes import Call, Connection, Reply, Table
from roost.api.schemas import STRING, array, thing
from roost.compute.inventory import images
from roost.compute.inventory.images import ImageMember, StoredImage
from roost.errors import Forbidden

routes = Table(prefix="/v2/images/{image_id}/members")

RULES = (
    Permission("get_members", READER, "List the projects that an image is shared with."),
    Permission("get_member", READER, "Show one project that an image is shared with."),
    Permission("add_member", MEMBER, "Share an image with a project."),
    Permission("modify_member", MEMBER, "Accept or reject an image that is shared with one's project."),
    Permission("delete_member", MEMBER, "Share an image with a project no longer."),
)

_NEW = thing({"member": {"type": "string", "minLength": 1, "maxLength": 255}})
_FIELDS = FieldTable[ImageMember](
    column("image_id", STRING),
    column("member_id", STRING),
    column("status", STRING),
    CREATED,
    UPDATED,
    always("schema", "/v2/schemas/member"),
)
_MEMBER = _FIELDS.schema()


async def _shared(call: Call, connection: Connection) -> StoredImage:
    image = await images.find(connection, viewer(call), call.path["image_id"])
    if image.visibility != "shared":
        raise Forbidden("Only shared images have members.")
    return image


@routes.get("", rule="get_members", response=thing({"members": array(_MEMBER), "schema": STRING}))
async def index(call: Call, connection: Connection) -> Reply:
    """The members of an image: all for its owner, else oneself."""
    found = await images.members(connection, viewer(call), await _shared(call, connection))
    return {"members": [_FIELDS.show(row) for row in found], "schema": "/v2/schemas/members"}


@routes.get("/{member}", rule="get_member", response=_MEMBER)
async def show(call: Call, connection: Connection) -> Reply:
    """One member of an image."""
    image = await _shared(call, connection)
    return _FIELDS.show(await images.member(connection, viewer(call), image, call.path["member"]))


@routes.post("", rule="add_member", owned=True, body=_NEW, response=_MEMBER)
async def create(call: Call, connection: Connection) -> Reply:
    """Share an image with a project; the answer does not reveal whether a project with that id exists."""
    await _shared(call, connection)
    image = await owned(call, connection, "add_member")
    return _FIELDS.show(await images.share(connection, image, call.body["member"]))


_STATUS = thing({"status": {"enum": ["pending", "accepted", "rejected"]}}, {"member": STRING, "image": STRING})


@routes.put("/{member}", rule="modify_member", body=_STATUS, response=_MEMBER)
async def update(call: Call, connection: Connection) -> Reply:
    """Accept or reject an image; only its member can, not its owner."""
    member_id = call.path["member"]
    image = await _shared(call, connection)
    await images.member(connection, viewer(call), image, member_id)
    if member_id != call.caller.project_id and not call.caller.is_admin:
        raise Forbidden("You are not permitted to modify 'status' on this image member.")
    return _FIELDS.show(await images.answer(connection, image, member_id, call.body["status"]))


@routes.delete("/{member}", rule="delete_member", owned=True, status=204)
async def delete(call: Call, connection: Connection) -> None:
    """Share an image with a project no longer."""
    image = await owned(call, connection, "delete_member")
    member = await images.member(connection, viewer(call), image, call.path["member"])
    await images.unshare(connection, image, member.member_id)
