"""What defines an API: a prefix, a table of routes, and its ways to negotiate versions and to report errors."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from roost.api import schemas
from roost.api.errors import ErrorBody
from roost.api.permissions import Permission
from roost.api.routes import Route, Table
from roost.api.schemas import Sentence
from roost.api.versions import Negotiation, Version
from roost.errors import NotFound, RoostError


@dataclass(frozen=True)
class Api:
    """One of the services that Roost speaks as."""

    name: str
    prefix: str
    table: Table
    error_body: ErrorBody
    rules: tuple[Permission, ...] = ()
    negotiation: Negotiation | None = None
    project_after: str | None = None
    """The first path segment that a project's id may follow, as in /v2.1/{project_id}/servers."""
    not_found: str = "The resource could not be found."
    forbidden: str = "Policy doesn't allow {rule} to be performed."
    invalid: Sentence = schemas.nova_sentence
    says_wrong_method: bool = False
    """Answers 405 to a method that a path does not have; else 404, as if the path did not exist."""
    over_quota: int = 403
    """The status when a caller has used up its share."""
    request_id_header: str | None = None
    also_json: tuple[str, ...] = ()
    """What else its clients call JSON; '' is nothing at all."""

    def find(self, path: str) -> tuple[Mapping[str, list[Route]], dict[str, str], str | None]:
        """The routes at a path, the values of its variables, and the project that the path names, if it does."""
        found = self.table.find(path)
        if found is not None:
            return *found, None
        segments = path.split("/")
        if self.project_after is not None and len(segments) > 3 and segments[1] == self.project_after:
            found = self.table.find("/".join([*segments[:2], *segments[3:]]))
            if found is not None:
                return *found, segments[2]
        raise NotFound(self.not_found)

    def not_in_version(self, version: Version) -> RoostError:
        """The message for a method that exists, but not in this version."""
        return NotFound(self.not_found)

    def headers(self, version: Version | None, request_id: str) -> Iterator[tuple[str, str]]:
        """What every answer of this API carries."""
        if self.request_id_header is not None:
            yield self.request_id_header, request_id
        if self.negotiation is not None:
            yield from self.negotiation.response_headers(version).items()
