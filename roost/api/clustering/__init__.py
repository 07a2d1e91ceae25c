"""The clustering API, as Senlin speaks it."""

from roost.api.clustering import versions
from roost.api.errors import clustering_body
from roost.api.frame import Api
from roost.api.routes import Table
from roost.api.versions import CLUSTERING

_NOUNS = (versions,)

CLUSTERING_API = Api(
    name="clustering",
    prefix="/clustering",
    table=Table().include(*(noun.routes for noun in _NOUNS)),
    error_body=clustering_body,
    rules=tuple(rule for noun in _NOUNS for rule in getattr(noun, "RULES", ())),
    negotiation=CLUSTERING,
)
