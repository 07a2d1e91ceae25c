"""The data of images: taken as it comes, and given back."""

from starlette.responses import FileResponse, Response

from roost.api.image.images import owned, viewer
from roost.api.permissions import MEMBER, READER, Permission
from roost.api.routes import Call, Reply, Table
from roost.compute.inventory import images
from roost.errors import Conflict, Forbidden, NotFound, UnsupportedMedia

routes = Table(prefix="/v2/images/{image_id}/file")

RULES = (
    Permission("upload_image", MEMBER, "Upload the data of an image."),
    Permission("download_image", READER, "Download the data of an image."),
)


@routes.put("", rule="upload_image", owned=True, streamed=True, status=204)
async def upload(call: Call) -> None:
    """Take the data of an image, which makes it active. An upload that ends early, or is too large, leaves nothing
    behind."""
    if call.headers.get("content-type", "").partition(";")[0] != "application/octet-stream":
        raise UnsupportedMedia("The data of an image is sent as application/octet-stream.")
    limits, files = call.services.settings.images, call.services.image_files
    async with call.services.database.begin() as connection:
        image = await owned(call, connection, "upload_image", lock=False)
        left = await images.room(connection, image.project_id, limits.project_bytes)
    if image.status != "queued":
        raise Conflict(f"Image status transition from {image.status} to saving is not allowed")
    received = await files.receive(call.pieces(), min(limits.max_bytes, left))
    try:
        async with call.services.database.begin() as connection:
            await images.complete(connection, image, received, limits.project_bytes)
            files.keep(received, image.id)
    finally:
        received.path.unlink(missing_ok=True)


@routes.get("", rule="download_image", also={204: None})
async def download(call: Call) -> Reply:
    """The data of an image."""
    async with call.services.database.autocommit() as connection:
        image = await images.find(connection, viewer(call), call.path["image_id"])
    if image.status == "queued":
        return Response(status_code=204)
    if image.status == "deactivated" and not call.caller.is_admin:
        raise Forbidden("The requested image has been deactivated. Image data download is forbidden.")
    path = call.services.image_files.find(image.id) if image.stored else None
    if path is None:
        raise NotFound(f"Image {image.id} has no data that could be downloaded: it is simulated.")
    headers = {"Content-MD5": image.checksum or ""}
    return FileResponse(path, media_type="application/octet-stream", headers=headers)
