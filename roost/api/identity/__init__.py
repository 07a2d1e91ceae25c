"""The identity API, as Keystone speaks it: enough for every client with a plain clouds.yaml."""

from roost.api.errors import identity_body
from roost.api.frame import Api
from roost.api.identity import versions
from roost.api.routes import Table

_NOUNS = (versions,)

IDENTITY_API = Api(
    name="identity",
    prefix="/identity",
    table=Table().include(*(noun.routes for noun in _NOUNS)),
    error_body=identity_body,
    rules=tuple(rule for noun in _NOUNS for rule in getattr(noun, "RULES", ())),
    not_found="Not Found",
    wrong_method_status=405,
)
