"""Which policy and profile types there are: those of installed packages, and those that the configuration names.

A package offers types by entry points:

    [project.entry-points."roost.policies"]
    curfew = "acme.curfew:CurfewPolicy"

and the configuration names more of them, without an installation, as long as they can be imported:

    [clusters]
    policies = acme.curfew:CurfewPolicy

Either way a class that does not conform is refused when the process starts, with the reason.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.metadata import entry_points
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple

from roost.clouds.base import Cloud
from roost.clusters.errors import ResourceNotFound
from roost.clusters.policies import base as policies
from roost.clusters.policies.base import OF_THE_ENGINE, NodeView, Policy
from roost.clusters.profiles import base as profiles
from roost.clusters.profiles.base import NodeOutcome, Profile
from roost.clusters.profiles.unsupported import RefusingProfile
from roost.clusters.spec import version_number
from roost.clusters.spec_type import SpecRow
from roost.config import Settings
from roost.errors import Invalid

POLICIES = "roost.policies"
PROFILES = "roost.profiles"


class PluginError(Invalid):
    """A policy or profile type cannot be used."""


PACKAGE = "package"
"""The item of a policy's data, or of a profile's metadata, that names the package its type came from."""


def not_installed(row: SpecRow, noun: str) -> str:
    """What to say of a policy or a profile whose type is missing."""
    package = row.kept.get(PACKAGE)
    come = f"which came with {package} and is not installed" if package else "which no installed package offers"
    return f"The {noun} '{row.name}' is of type {row.type}, {come}."


class MissingPolicy(Policy):
    """Stands in for a policy whose type is no longer installed, so that its clusters can outlive it."""

    PRIORITY = 0

    def __init__(self, row: SpecRow) -> None:
        """Keep what is known without the type."""
        self.id, self.name, self.spec, self.spec_data = row.id, row.name, row.spec, {}
        self._type = row.type
        self.sentence = not_installed(row, "policy")
        """What is missing."""
        self.left_over = "Its detach was skipped: what it made may be left over."

    @property
    def type(self) -> str:
        """The type that is missing."""
        return self._type


class MissingProfile(RefusingProfile):
    """Stands in for a profile whose type is no longer installed: its nodes can only be forgotten, by force."""

    def __init__(self, row: SpecRow) -> None:
        """Keep what is known without the type."""
        self.id, self.name, self.spec, self.spec_data = row.id, row.name, row.spec, {}
        self._type = row.type
        self._sentence = not_installed(row, "profile")

    @property
    def type(self) -> str:
        """The type that is missing."""
        return self._type

    @property
    def refusal(self) -> str:
        """What is missing."""
        return self._sentence

    async def delete(self, cloud: Cloud, nodes: Sequence[NodeView], *, force: bool = False) -> list[NodeOutcome]:
        """Refused, unless by force: then the nodes are forgotten, and what they stand for is left to the operator."""
        if not force:
            return self._refused(nodes)
        return [
            NodeOutcome(node.id, True, None, f"{self.refusal} {node.physical_id or 'Nothing'} was left in the cloud.")
            for node in nodes
        ]


@dataclass(frozen=True, slots=True)
class Plugins:
    """All types, by their name and version, such as senlin.policy.affinity-1.0."""

    policies: Mapping[str, type[Policy]]
    profiles: Mapping[str, type[Profile]]
    packages: Mapping[str, str]
    """Where each type that is not Roost's own comes from: a distribution, or a module that the configuration names."""

    def policy(self, name: str) -> type[Policy]:
        """The policy type of this name and version, or `ResourceNotFound`."""
        if name not in self.policies:
            raise ResourceNotFound("policy_type", name)
        return self.policies[name]

    def profile(self, name: str) -> type[Profile]:
        """The profile type of this name and version, or `ResourceNotFound`."""
        if name not in self.profiles:
            raise ResourceNotFound("profile_type", name)
        return self.profiles[name]

    def restore_policy(self, row: SpecRow) -> Policy:
        """The policy of a row; a stand-in if its type is no longer installed."""
        return self.policies[row.type].from_row(row) if row.type in self.policies else MissingPolicy(row)

    def restore_profile(self, row: SpecRow) -> Profile:
        """The profile of a row; a stand-in if its type is no longer installed."""
        return self.profiles[row.type].from_row(row) if row.type in self.profiles else MissingProfile(row)

    def chain(self) -> list[type[Policy]]:
        """The policy types, in the order in which their policies run."""
        return sorted(set(self.policies.values()), key=attrgetter("PRIORITY", "ORDER", "TYPE"))


def load(settings: Settings) -> Plugins:
    """All types that this process may use; raise `PluginError` for the first that cannot be."""
    return _load(_split(settings.clusters.policies), _split(settings.clusters.profiles))


def _split(lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(" ".join(lines).replace(",", " ").split())


@lru_cache(maxsize=8)
def _load(policy_lines: tuple[str, ...], profile_lines: tuple[str, ...]) -> Plugins:
    packages: dict[str, str] = {}
    policy_types = _by_name(_found(POLICIES, policy_lines), policies.nonconformity, packages)
    profile_types = _by_name(_found(PROFILES, profile_lines), profiles.nonconformity, packages)
    _check_reads(policy_types.values())
    return Plugins(policy_types, profile_types, MappingProxyType(packages))


class _Offer(NamedTuple):
    """A class offered as a type, with the place and the package that offer it."""

    place: str
    package: str
    kind: Any


def _found(group: str, lines: Sequence[str]) -> Iterator[_Offer]:
    """Every class that is offered."""
    for entry in sorted(entry_points(group=group), key=attrgetter("name")):
        place = f"entry point '{entry.name}' of {group}"
        package = entry.dist.name if entry.dist else entry.value
        yield _Offer(place, package, _imported(entry.value, place.capitalize()))
    for line in lines:
        module = line.strip().partition(":")[0]
        yield _Offer(f"line '{line}' of the configuration", module, _imported(line, "The configuration"))


def _imported(place: str, who: str) -> Any:
    module, _, name = place.strip().partition(":")
    if not module or not name:
        raise PluginError(f"{who} names '{place}', which is not of the form module:Class.")
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise PluginError(f"{who} names '{place}', which cannot be imported: {error}.") from error
    return found


def _by_name(
    found: Iterable[_Offer], nonconformity: Callable[[object], str | None], packages: dict[str, str]
) -> Mapping[str, Any]:
    types: dict[str, Any] = {}
    places: dict[str, str] = {}
    for place, package, kind in found:
        if sentence := nonconformity(kind):
            raise PluginError(f"The {place} cannot be used: {sentence}")
        for version in kind.VERSIONS:
            name = f"{kind.TYPE}-{version}"
            if types.get(name, kind) is not kind:
                raise PluginError(f"The {place} offers {name}, which the {places[name]} offers already.")
            types[name], places[name] = kind, place
            if package != "roost":
                packages[name] = package
    return MappingProxyType(dict(sorted(types.items(), key=_type_and_version)))


def _type_and_version(item: tuple[str, object]) -> tuple[str, tuple[int, ...]]:
    name, _, version = item[0].rpartition("-")
    return name, version_number(version)


def _check_reads(types: Iterable[type[Policy]]) -> None:
    """What a policy reads, another or the engine has to write."""
    kinds = set(types)
    written = {key.path for kind in kinds for key in kind.WRITES} | {key.path for key in OF_THE_ENGINE}
    for kind in kinds:
        for key in kind.READS:
            if key.path not in written:
                raise PluginError(
                    f"{kind.__module__}:{kind.__qualname__} reads '{key.path}', which no policy type and not the "
                    "engine writes."
                )
