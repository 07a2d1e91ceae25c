"""The identity API, as Keystone speaks it: enough for every client with a plain clouds.yaml."""

from roost.api.errors import identity_body
from roost.api.frame import Api
from roost.api.identity import (
    application_credentials,
    catalog,
    domains,
    groups,
    projects,
    roles,
    services,
    tokens,
    users,
    versions,
)
from roost.api.routes import Table
from roost.api.schemas import keystone_sentence

_NOUNS = (
    *(versions, tokens, catalog, projects, users, groups, roles, domains),
    *(services, application_credentials),
)

IDENTITY_API = Api(
    name="identity",
    prefix="/identity",
    table=Table().include(*(noun.routes for noun in _NOUNS)),
    error_body=identity_body,
    rules=tuple(rule for noun in _NOUNS for rule in getattr(noun, "RULES", ())),
    forbidden="You are not authorized to perform the requested action: {rule}.",
    invalid=keystone_sentence,
    says_wrong_method=True,
)
