"""What Roost answers, as values. Each is made from the JSON of an answer by `of`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PolicyScope:
    """A way of dividing hosts that server groups may name."""

    id: str
    name: str
    allow_identifiers: bool
    obfuscate_identifiers: bool
    aggregates: tuple[Json, ...]
    namespace_uuid: str | None = None
    """Seen by operators only."""

    @classmethod
    def of(cls, data: Json) -> Self:
        """From an answer."""
        return cls(
            data["id"],
            data["name"],
            data["allow_identifiers"],
            data["obfuscate_identifiers"],
            tuple(data["aggregates"]),
            data.get("obfuscate_namespace_uuid"),
        )


@dataclass(frozen=True, slots=True)
class GroupAnswer:
    """A server group in the words of 2.1003."""

    id: str
    name: str
    policies: tuple[Json, ...]
    members: tuple[str, ...]
    project_id: str
    user_id: str
    partitions: Mapping[str, int | None] = field(default_factory=dict)
    """The number of each member, where the group is divided into partitions."""

    @classmethod
    def of(cls, data: Json) -> Self:
        """From an answer."""
        names = ("id", "name", "project_id", "user_id")
        own = {name: data[name] for name in names}
        members = tuple(data["members"])
        return cls(policies=tuple(data["policies"]), members=members, partitions=data["partitions"], **own)


@dataclass(frozen=True, slots=True)
class ViolationAnswer:
    """One rule broken in one aggregate."""

    breach: str
    policy: Json
    aggregate: str | None
    members: tuple[str, ...]
    excess: int
    message: str
    since: str | None = None

    @classmethod
    def of(cls, data: Json) -> Self:
        """From an answer."""
        names = ("breach", "policy", "aggregate", "excess", "message")
        return cls(members=tuple(data["members"]), since=data.get("since"), **{name: data[name] for name in names})


@dataclass(frozen=True, slots=True)
class AuditAnswer:
    """Where the members of a group are, and which of its rules they break."""

    server_group_id: str
    placements: Mapping[str, Json]
    violations: tuple[ViolationAnswer, ...]
    partitions: Mapping[str, int | None] = field(default_factory=dict)
    """The number of each member, where the group is divided into partitions."""

    @classmethod
    def of(cls, data: Json) -> Self:
        """From an answer."""
        placements = {each["instance_id"]: each["placements"] for each in data["members"]}
        partitions = {each["instance_id"]: each["partition"] for each in data["members"] if "partition" in each}
        return cls(data["server_group_id"], placements, tuple(map(ViolationAnswer.of, data["violations"])), partitions)


@dataclass(frozen=True, slots=True)
class RefusalAnswer:
    """How many hosts one check removed."""

    reason: str
    hosts: int
    policy: str | None
    scope: str | None
    sentence: str

    @classmethod
    def of(cls, data: Json) -> Self:
        """From an answer."""
        return cls(data["reason"], data["hosts"], data["policy"], data["scope"], data["sentence"])


@dataclass(frozen=True, slots=True)
class CandidateAnswer:
    """Why a host ranked where it did."""

    placements: Json
    shares: tuple[Json, ...]
    host: str | None = None
    headroom: int | None = None
    """Seen by operators only, as is the host."""
    partition: int | None = None

    @classmethod
    def of(cls, data: Json) -> Self:
        """From an answer."""
        seen = (data.get("host"), data.get("headroom"), data.get("partition"))
        return cls(data["placements"], tuple(data["shares"]), *seen)


@dataclass(frozen=True, slots=True)
class Help:
    """One change that would turn a refusal into a placement, and who can make it."""

    change: str
    amount: int
    policy: str | None
    by: str
    sentence: str

    @classmethod
    def of(cls, data: Json) -> Self:
        """From an answer."""
        return cls(data["change"], data["amount"], data["policy"], data["by"], data["sentence"])


@dataclass(frozen=True, slots=True)
class ExplanationAnswer:
    """Why servers are, or would be, where they are, or nowhere."""

    verdict: str
    sentence: str
    hosts: int
    candidates: int | None
    refused: tuple[RefusalAnswer, ...]
    chosen: tuple[CandidateAnswer, ...]
    runners_up: tuple[CandidateAnswer, ...]
    help: tuple[Help, ...]
    advice: str | None

    @classmethod
    def of(cls, data: Json) -> Self:
        """From an answer."""
        return cls(
            data["verdict"],
            data["sentence"],
            data["hosts"],
            data["candidates"],
            tuple(map(RefusalAnswer.of, data["refused"])),
            tuple(map(CandidateAnswer.of, data["chosen"])),
            tuple(map(CandidateAnswer.of, data["runners_up"])),
            tuple(map(Help.of, data["help"])),
            data["advice"],
        )


@dataclass(frozen=True, slots=True)
class Placed:
    """Where one server would come to be."""

    name: str
    placements: Json
    host: str | None = None
    server_id: str | None = None
    partition: int | None = None

    @classmethod
    def of(cls, data: Json) -> Self:
        """From an answer."""
        optional = (data.get(name) for name in ("host", "server_id", "partition"))
        return cls(data["name"], data["placements"], *optional)


@dataclass(frozen=True, slots=True)
class MigrationAnswer:
    """One server that moves, or would; `state` and `reason` are of a repair under way."""

    server_id: str
    source: Json
    target: Json
    state: str | None = None
    reason: str | None = None

    @classmethod
    def of(cls, data: Json) -> Self:
        """From an answer."""
        return cls(data["server_id"], data["source"], data["target"], data.get("state"), data.get("reason"))


@dataclass(frozen=True, slots=True)
class PlanAnswer:
    """What a change would come to; with its generation, the same change can be applied."""

    generation: str | None
    applied: bool
    sentence: str
    placements: tuple[Placed, ...]
    moves: tuple[MigrationAnswer, ...]
    stranded: tuple[Json, ...]
    violations: tuple[Json, ...]
    """What the change would break, or break further."""
    broken_before: tuple[Json, ...]
    """What is broken already, and would stay so."""
    mended: tuple[Json, ...]
    explanation: ExplanationAnswer | None
    repair_id: str | None
    partitions: Mapping[str, int | None] = field(default_factory=dict)
    """The number of each member once policies or members have changed, where the group is divided."""

    @classmethod
    def of(cls, data: Json) -> Self:
        """From an answer."""
        found = data["explanation"]
        return cls(
            data["generation"],
            data["applied"],
            data["sentence"],
            tuple(map(Placed.of, data["placements"])),
            tuple(map(MigrationAnswer.of, data["moves"])),
            tuple(data["stranded"]),
            tuple(data["violations"]),
            tuple(data["broken_before"]),
            tuple(data["mended"]),
            None if found is None else ExplanationAnswer.of(found),
            data["repair_id"],
            data["partitions"],
        )


@dataclass(frozen=True, slots=True)
class RepairAnswer:
    """The moves that mend a group, planned or under way."""

    id: str | None
    status: str
    reason: str | None
    sentence: str
    moves: tuple[MigrationAnswer, ...]
    fewest: bool
    repairs_all: bool
    budget: Json
    paused: bool

    @classmethod
    def of(cls, data: Json) -> Self:
        """From an answer."""
        names = (each.name for each in fields(cls) if each.name != "moves")
        return cls(moves=tuple(map(MigrationAnswer.of, data["moves"])), **{name: data[name] for name in names})

    @property
    def done(self) -> int:
        """How many of the moves have ended, well or not."""
        return sum(move.state in ("done", "failed", "skipped") for move in self.moves)

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen."""
        return self.status in ("planned", "done", "failed", "stopped")


@dataclass(frozen=True, slots=True)
class DrainAnswer(RepairAnswer):
    """The moves that empty a place."""

    scope: str
    identifier: str
