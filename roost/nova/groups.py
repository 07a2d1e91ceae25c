"""What the plug-in knows of Roost's groups, and of where hosts stand: as it came over the wire, until it changes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from roost.placement.fleet import Fleet, Members, Resources
from roost.placement.rules import Rule, division_of


@dataclass(slots=True)
class PluginTopology:
    """Every host and its aggregate in each scope, at a generation of Roost's fleet."""

    generation: int = -1
    fleet: Fleet = field(default_factory=Fleet)
    adopted: Mapping[str, str] = field(default_factory=dict)
    """The group of each server that Roost made a member, and of which Nova does not know that it is one."""
    _places: dict[str, Mapping[str, str]] = field(default_factory=dict)

    def apply(self, answer: Mapping[str, Any]) -> None:
        """Take in what changed since the generation known, or everything."""
        hosts: Mapping[str, Mapping[str, str]] = answer["hosts"]
        self._places = dict(self._places)  # the one before may still be read
        for name in self._places.keys() - hosts.keys() if answer["complete"] else ():
            self.fleet.remove_host(self._index(name))
            del self._places[name]
        for name, places in hosts.items():
            self._put(name, places)
        self.adopted = answer["adopted"]
        self.generation = answer["generation"]

    def snapshot(self) -> "PluginTopology":
        """The hosts as they are known now, untouched by what is heard later."""
        return PluginTopology(self.generation, self.fleet.snapshot(), self.adopted, self._places)

    def _index(self, name: str) -> int:
        index = self.fleet.index(name)
        assert index is not None, "a host that is known has a place in the columns"
        return index

    def _put(self, name: str, places: Mapping[str, str]) -> None:
        known = self._places.get(name)
        if known is None:
            self.fleet.add_host(name, Resources(), aggregates=places)
        elif known != places:
            host = self._index(name)
            for scope in known.keys() - places.keys():
                self.fleet.leave(host, scope)
            for scope, identifier in places.items():
                self.fleet.join(host, scope, identifier)
        self._places[name] = places

    def where(self, host: int, scopes: Iterable[str]) -> dict[str, Any]:
        """A host by its name, and its aggregates in these scopes."""
        name = self.fleet.name(host)
        places = {"host": name, **self._places[name]}
        return {"host": name, "places": {scope: places[scope] for scope in scopes if scope in places}}


@dataclass(frozen=True, slots=True)
class PluginGroup:
    """A group at a version: its rules, and the hosts that each member takes a place on (two while it moves)."""

    id: str
    version: int
    rules: tuple[Rule, ...]
    hosts: Mapping[str, tuple[str, ...]]
    building: frozenset[str]
    """The members that have not run yet."""
    partitions: Mapping[str, int] = field(default_factory=dict)
    """The number of each member that has one."""

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> "PluginGroup":
        """The group that an answer of Roost describes."""
        return cls(
            answer["id"],
            answer["version"],
            tuple(Rule.parse(rule["policy"], rule["rules"]) for rule in answer["rules"]),
            {member: tuple(hosts) for member, hosts in answer["members"].items()},
            frozenset(answer["building"]),
            answer.get("partitions", {}),  # a Roost may be older than the plug-in
        )

    def after(self, version: int, member: str, hosts: Iterable[str], partitions: Sequence[int]) -> "PluginGroup":
        """The group once a member takes these hosts instead of those it had, and the first of these partitions."""
        building = self.building if member in self.hosts else self.building | {member}
        numbers = {**self.partitions, **({member: partitions[0]} if partitions else {})}
        hosts_now = {**self.hosts, member: tuple(hosts)}
        return replace(self, version=version, hosts=hosts_now, building=building, partitions=numbers)

    def runs(self, member: str) -> bool:
        """Whether a server has run before, so that it moves now."""
        return member in self.hosts and member not in self.building

    def members_but(self, member: str, fleet: Fleet) -> Members:
        """Where the other members are."""
        members = Members()
        for other, hosts in self.hosts.items():
            for index in map(fleet.index, hosts) if other != member else ():
                if index is not None:
                    members.add(index, partition=self.partitions.get(other))
        return members

    def partition_of(self, member: str, asked: int | None) -> int | None:
        """The partition that a server must come to: the one that it has, once it runs, else the one it asks for."""
        return self.partitions.get(member) if self.runs(member) else asked

    def offers(self, partition: int | None) -> bool:
        """Whether there is such a partition; None asks for none."""
        divided = division_of(self.rules)
        return partition is None or (divided is not None and 1 <= partition <= (divided.partitions or 0))
