"""The image API: the three reads of Glance that the clients make when they boot a server."""

from roost.api.errors import identity_body
from roost.api.frame import Api
from roost.api.image import images, versions
from roost.api.routes import Table

_NOUNS = (versions, images)

IMAGE_API = Api(
    name="image",
    prefix="/image",
    table=Table().include(*(noun.routes for noun in _NOUNS)),
    error_body=identity_body,
    rules=images.RULES,
    says_wrong_method=True,
)
