"""What policies and profiles have in common: each is an object of a type, is made from a spec and kept in a row."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Self

from roost.clouds.base import Cloud
from roost.clusters import spec
from roost.clusters.spec import InvalidSpec, Property
from roost.config import ClusterSettings

EXPERIMENTAL, SUPPORTED, DEPRECATED, UNSUPPORTED = "EXPERIMENTAL", "SUPPORTED", "DEPRECATED", "UNSUPPORTED"
_OWNER = ("user", "project", "domain")
_TIMES = ("created_at", "updated_at")


def spec_columns(kept: str) -> tuple[str, ...]:
    """The columns of a policy or a profile, whose table keeps `kept` beside the spec."""
    return ("id", "name", "type", "spec", kept, *(f"{key}_id" for key in _OWNER), *_TIMES)


@dataclass(frozen=True, slots=True)
class SpecRow:
    """The row of a policy or of a profile."""

    id: str
    name: str
    type: str
    spec: Mapping[str, Any]
    kept: Mapping[str, Any]
    """What it keeps beside the spec: the data of a policy, the metadata of a profile."""
    user_id: str
    project_id: str
    domain_id: str
    created_at: datetime | None
    updated_at: datetime | None


class SpecType:
    """The base of all types whose objects are made from specs."""

    TYPE: ClassVar[str]
    """What the type is called in a spec, such as senlin.policy.affinity or os.nova.server."""
    VERSIONS: ClassVar[Mapping[str, Sequence[Mapping[str, str]]]]
    """For each version, the changes of its support status: {"1.0": [{"status": SUPPORTED, "since": "2016.10"}]}."""
    KEEPS: ClassVar[str]
    """The attribute for what an object keeps beside its spec."""
    spec_schema: ClassVar[Mapping[str, Property]] = {}

    def __init__(
        self,
        name: str,
        spec_: Mapping[str, Any],
        *,
        id: str = "",
        user: str = "",
        project: str = "",
        domain: str = "",
        created_at: datetime | None = None,
        updated_at: datetime | None = None,
    ) -> None:
        """Resolve the spec against the schema; raise `InvalidSpec` if it does not follow it."""
        envelope = spec.unwrap(spec_)
        self.id = id
        self.name = name
        self.spec = spec_
        self.version = envelope.version
        self.user = user
        self.project = project
        self.domain = domain
        self.created_at = created_at
        self.updated_at = updated_at
        self.spec_data: Mapping[str, Any] = spec.resolve(self.schema(self.version), envelope.properties, self.version)
        self.check_spec()

    @classmethod
    def schema(cls, version: str) -> Mapping[str, Property]:
        """The schema of one version; override it where `min_version` and `max_version` do not suffice."""
        return cls.spec_schema

    @property
    def type(self) -> str:
        """The type and version, such as senlin.policy.affinity-1.0."""
        return f"{self.TYPE}-{self.version}"

    def check_spec(self) -> None:
        """Raise `InvalidSpec` for what the schema allows and the type does not; for a type to override."""

    async def validate(self, cloud: Cloud, settings: ClusterSettings) -> str | None:
        """Why the cloud, or the operator's settings, do not allow what the spec asks for; None if they do."""
        return None

    @classmethod
    def from_row(cls, row: SpecRow) -> Self:
        """The object of a row."""
        return cls(
            row.name,
            row.spec,
            id=row.id,
            user=row.user_id,
            project=row.project_id,
            domain=row.domain_id,
            created_at=row.created_at,
            updated_at=row.updated_at,
            **{cls.KEEPS: row.kept},
        )

    @property
    def row(self) -> SpecRow:
        """The row that the object was read from, or will be."""
        owner = (self.user, self.project, self.domain)
        return SpecRow(
            self.id,
            self.name,
            self.type,
            self.spec,
            getattr(self, self.KEEPS),
            *owner,
            self.created_at,
            self.updated_at,
        )

    def to_dict(self) -> dict[str, Any]:
        """The object as the API shows it; times are left for the API to write."""
        return {key: getattr(self, key) for key in ("id", "name", "type", "spec", self.KEEPS, *_OWNER, *_TIMES)}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        """The object that `to_dict` made this from."""
        more = {key: value for key, value in given.items() if key not in ("name", "spec", "type")}
        return cls(given["name"], given["spec"], **more)


def type_problem(kind: type[SpecType]) -> str | None:
    """What is wrong with how a type declares its name, its versions and its schema, as the end of a sentence."""
    checks = (_name_problem, _versions_problem, _schema_problem)
    return next((problem for check in checks if (problem := check(kind))), None)


def _name_problem(kind: type[SpecType]) -> str | None:
    name = getattr(kind, "TYPE", None)
    if isinstance(name, str) and re.fullmatch(r"[A-Za-z][\w.]*", name):
        return None
    return "has no TYPE: give it a name such as 'acme.policy.curfew'."


def _versions_problem(kind: type[SpecType]) -> str | None:
    versions = getattr(kind, "VERSIONS", None)
    if not isinstance(versions, Mapping) or not versions:
        return 'has no VERSIONS: write {"1.0": [{"status": EXPERIMENTAL, "since": "2026.11"}]}.'
    for version, changes in versions.items():
        if not re.fullmatch(r"\d+\.\d+", str(version)):
            return f"has a version {version!r} in VERSIONS, which is to be like '1.0'."
        if not changes or not all(_is_change(change) for change in changes):
            return (
                f"has no list of support changes for version {version} in VERSIONS: each has a 'status' "
                "(EXPERIMENTAL, SUPPORTED, DEPRECATED or UNSUPPORTED) and a 'since' of the form yyyy.mm."
            )
    return None


def _is_change(change: Any) -> bool:
    statuses = (EXPERIMENTAL, SUPPORTED, DEPRECATED, UNSUPPORTED)
    return (
        isinstance(change, Mapping)
        and change.get("status") in statuses
        and re.fullmatch(r"\d{4}\.\d{2}", str(change.get("since"))) is not None
    )


def _schema_problem(kind: type[SpecType]) -> str | None:
    for version in kind.VERSIONS:
        for key, item in kind.schema(version).items():
            if not isinstance(item, Property):
                return f"has {item!r} as '{key}' in its spec schema, which is none of String, Boolean, ..."
            if item.default is not None:
                try:
                    item.resolve(item.default, version)
                except InvalidSpec as error:
                    return f"has an invalid default for '{key}' in its spec schema: {error.message}"
    return None
