"""Policy and profile types: which there are, what their specs may say, and since when they are supported."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from roost.api.clustering.shapes import OBJECT
from roost.api.fields import FieldTable, ShownField
from roost.api.permissions import READER, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import STRING, array, by_name
from roost.api.versions import Version
from roost.clusters import plugins, spec
from roost.clusters.plugins import Plugins
from roost.clusters.spec_type import SpecType

_APART = Version(1, 5)
"""Since then, types are listed with their support status, and their version is apart from their name."""
_STATUS = by_name(array(by_name(STRING), minItems=1), minProperties=1, maxProperties=1)


class _Type(NamedTuple):
    """A type under its full name, such as senlin.policy.affinity-1.0."""

    name: str
    kind: type[SpecType]

    @property
    def version(self) -> str:
        return self.name.rpartition("-")[2]

    @property
    def status(self) -> dict[str, Any]:
        return {self.version: list(self.kind.VERSIONS[self.version])}

    @property
    def schema(self) -> dict[str, Any]:
        return spec.describe(self.kind.schema(self.version), self.version)


_LISTED = FieldTable[_Type](
    ShownField("name", STRING, lambda of: of.name, until=Version(1, 4)),
    ShownField("name", STRING, lambda of: of.name.rpartition("-")[0], since=_APART),
    ShownField("version", STRING, lambda of: of.version, since=_APART),
    ShownField("support_status", _STATUS, lambda of: of.status, since=_APART),
)
_SHOWN = FieldTable[_Type](
    ShownField("name", STRING, lambda of: of.name),
    ShownField("schema", OBJECT, lambda of: of.schema),
    ShownField("support_status", _STATUS, lambda of: of.status, since=_APART),
)


def rules(noun: str) -> tuple[Permission, ...]:
    """Who may do what."""
    return (
        Permission(f"{noun}_types:index", READER, f"List {noun} types."),
        Permission(f"{noun}_types:get", READER, f"Show a {noun} type and the schema of its specs."),
    )


def table(
    noun: str, every: Callable[[Plugins], Mapping[str, type[SpecType]]], find: Callable[[Plugins, str], type[SpecType]]
) -> Table:
    """The routes of policy types, or of profile types."""
    routes, one, many = Table(f"/v1/{noun}-types"), f"{noun}_type", f"{noun}_types"

    @routes.get("", rule=f"{many}:index", response=_LISTED.many(many))
    async def index(call: Call) -> Reply:
        """List all types."""
        known = every(plugins.load(call.services.settings))
        return {many: [_LISTED.show(_Type(*each), call.version) for each in known.items()]}

    @routes.get(f"/{{{one}}}", rule=f"{many}:get", response=_SHOWN.one(one))
    async def show(call: Call) -> Reply:
        """Show one type."""
        name = call.path[one]
        kind = find(plugins.load(call.services.settings), name)
        return {one: _SHOWN.show(_Type(name, kind), call.version)}

    return routes
