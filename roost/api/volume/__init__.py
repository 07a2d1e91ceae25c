"""The block-storage API, as Cinder speaks it: volumes, snapshots, types and quotas, for stock tools."""

from roost.api.errors import compute_body
from roost.api.frame import Api
from roost.api.routes import Table
from roost.api.versions import VOLUME
from roost.api.volume import quotas, types, versions, volumes

_NOUNS = (versions, quotas, types, volumes)

VOLUME_API = Api(
    name="volume",
    prefix="/volume",
    table=Table().include(*(noun.routes for noun in _NOUNS)),
    error_body=compute_body,
    rules=tuple(rule for noun in _NOUNS for rule in getattr(noun, "RULES", ())),
    negotiation=VOLUME,
    project_after="v3",
    over_quota=413,
)
