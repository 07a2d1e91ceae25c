"""The image API, as Glance speaks it: images, their data, who they are shared with, and metadata definitions."""

from roost.api.errors import identity_body
from roost.api.frame import Api
from roost.api.image import data, images, members, metadefs, versions
from roost.api.routes import Table

_NOUNS = (versions, members, data, images, metadefs)

IMAGE_API = Api(
    name="image",
    prefix="/image",
    table=Table().include(*(noun.routes for noun in _NOUNS)),
    error_body=identity_body,
    rules=tuple(rule for noun in _NOUNS for rule in getattr(noun, "RULES", ())),
    says_wrong_method=True,
    also_json=("application/openstack-images-v2.1-json-patch", "application/openstack-images-v2.0-json-patch"),
)
