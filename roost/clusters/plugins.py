"""Which policy and profile types there are: those of installed packages, and those that the configuration names.

A package offers types by entry points:

    [project.entry-points."roost.policies"]
    curfew = "acme.curfew:CurfewPolicy"

and the configuration names more of them, without an installation, as long as they can be imported:

    [clusters]
    policies = acme.curfew:CurfewPolicy

Either way a class that does not conform is refused when the process starts, with a sentence that says why.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.metadata import entry_points
from operator import attrgetter
from types import MappingProxyType
from typing import Any, TypeVar

from roost.clusters.errors import ResourceNotFound
from roost.clusters.policies import base as policies
from roost.clusters.policies.base import OF_THE_ENGINE, Policy
from roost.clusters.profiles import base as profiles
from roost.clusters.profiles.base import Profile
from roost.clusters.spec import version_number
from roost.config import Settings
from roost.errors import Invalid

POLICIES = "roost.policies"
PROFILES = "roost.profiles"


class PluginError(Invalid):
    """A policy or profile type cannot be used."""


T = TypeVar("T", type[Policy], type[Profile])


@dataclass(frozen=True, slots=True)
class Plugins:
    """All types, by their name and version, such as senlin.policy.affinity-1.0."""

    policies: Mapping[str, type[Policy]]
    profiles: Mapping[str, type[Profile]]

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

    def restore_policy(self, row: Mapping[str, Any]) -> Policy:
        """The policy of a row."""
        return self.policy(row["type"]).from_row(row)

    def restore_profile(self, row: Mapping[str, Any]) -> Profile:
        """The profile of a row."""
        return self.profile(row["type"]).from_row(row)

    def chain(self) -> list[type[Policy]]:
        """The policy types in the order in which policies of them are asked."""
        return sorted(set(self.policies.values()), key=attrgetter("PRIORITY", "ORDER", "TYPE"))


def load(settings: Settings) -> Plugins:
    """All types that this process may use; raise `PluginError` for the first that cannot be."""
    return _load(tuple(settings.clusters.policies), tuple(settings.clusters.profiles))


@lru_cache(maxsize=8)
def _load(policy_lines: tuple[str, ...], profile_lines: tuple[str, ...]) -> Plugins:
    policy_types = _by_name(_found(POLICIES, policy_lines), policies.nonconformity)
    profile_types = _by_name(_found(PROFILES, profile_lines), profiles.nonconformity)
    _check_reads(policy_types.values())
    return Plugins(policy_types, profile_types)


def _found(group: str, lines: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Every class that is offered, and where it is said to be."""
    for entry in sorted(entry_points(group=group), key=attrgetter("name")):
        yield f"entry point '{entry.name}' of {group}", _imported(entry.value, f"Entry point '{entry.name}' of {group}")
    for line in lines:
        yield f"line '{line}' of the configuration", _imported(line, "The configuration")


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


def _by_name(found: Iterable[tuple[str, T]], nonconformity: Callable[[object], str | None]) -> Mapping[str, T]:
    types: dict[str, T] = {}
    places: dict[str, str] = {}
    for place, kind in found:
        if sentence := nonconformity(kind):
            raise PluginError(f"The {place} cannot be used: {sentence}")
        for version in kind.VERSIONS:
            name = f"{kind.TYPE}-{version}"
            if types.get(name, kind) is not kind:
                raise PluginError(f"The {place} offers {name}, which the {places[name]} offers already.")
            types[name], places[name] = kind, place
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
