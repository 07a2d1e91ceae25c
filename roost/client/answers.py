"""What Roost answers, as values. Each is made from the JSON of an answer by `of`."""

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field
from functools import cache
from typing import Any, ClassVar, Self, get_args, get_origin, get_type_hints

Json = Mapping[str, Any]


class _Answer:
    """A dataclass whose fields are named like those of an answer. What an answer leaves out has its default."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @classmethod
    def of(cls, data: Json) -> Self:
        """From an answer."""
        kind: Any = cls
        return cls(**{name: read(data[name]) for name, read in _readers(kind).items() if name in data})


@cache
def _readers(kind: Any) -> dict[str, Callable[[Any], Any]]:
    hints = get_type_hints(kind)
    return {name: _reader(hints[name]) for name in kind.__dataclass_fields__}


def _reader(hint: Any) -> Callable[[Any], Any]:
    kinds = (each for each in (hint, *get_args(hint)) if isinstance(each, type) and issubclass(each, _Answer))
    inner = next(kinds, None)
    read: Callable[[Any], Any] = (lambda value: value) if inner is None else inner.of
    if get_origin(hint) is tuple:
        return lambda values: tuple(map(read, values))
    return lambda value: None if value is None else read(value)


@dataclass(frozen=True, slots=True)
class PolicyScope(_Answer):
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
        return super(PolicyScope, cls).of({**data, "namespace_uuid": data.get("obfuscate_namespace_uuid")})


@dataclass(frozen=True, slots=True)
class GroupAnswer(_Answer):
    """A server group in the words of 2.1003."""

    id: str
    name: str
    policies: tuple[Json, ...]
    members: tuple[str, ...]
    project_id: str
    user_id: str
    partitions: Mapping[str, int | None] = field(default_factory=dict)
    """The number of each member, where the group is divided into partitions."""


@dataclass(frozen=True, slots=True)
class ViolationAnswer(_Answer):
    """One rule broken in one aggregate."""

    breach: str
    policy: Json
    aggregate: str | None
    members: tuple[str, ...]
    excess: int
    message: str
    since: str | None = None


@dataclass(frozen=True, slots=True)
class AuditAnswer(_Answer):
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
class RefusalAnswer(_Answer):
    """How many hosts one check removed."""

    reason: str
    hosts: int
    policy: str | None
    scope: str | None
    sentence: str


@dataclass(frozen=True, slots=True)
class CandidateAnswer(_Answer):
    """Why a host ranked where it did."""

    placements: Json
    shares: tuple[Json, ...]
    host: str | None = None
    headroom: int | None = None
    """Seen by operators only, as is the host."""
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Help(_Answer):
    """One change that would turn a refusal into a placement, and who can make it."""

    change: str
    amount: int
    policy: str | None
    by: str
    sentence: str


@dataclass(frozen=True, slots=True)
class ExplanationAnswer(_Answer):
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


@dataclass(frozen=True, slots=True)
class Placed(_Answer):
    """Where one server would come to be."""

    name: str
    placements: Json
    host: str | None = None
    server_id: str | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class MigrationAnswer(_Answer):
    """One server that moves, or would; `state` and `reason` are of a repair under way."""

    server_id: str
    source: Json
    target: Json
    state: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class PlanAnswer(_Answer):
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


@dataclass(frozen=True, slots=True)
class RepairAnswer(_Answer):
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
