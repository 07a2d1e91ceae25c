"""What policies have decided, as the engine reads it from `action.data`.

Policies write the items with the `DataKey`s of `roost.clusters.policies.base`; the engine reads all of them at once, so
that anything malformed ends the action before anything is done.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from roost.clusters.stored import Stored


@dataclass(frozen=True, slots=True)
class Place(Stored):
    """Where a node goes; what is not named is left to the cloud."""

    region_name: str | None = None
    zone: str | None = None
    servergroup: str | None = None


@dataclass(frozen=True, slots=True)
class CreationPlan(Stored):
    """Nodes to be made, and how many of them in which zone and region."""

    count: int | None = None
    zones: Mapping[str, int] = field(default_factory=dict)
    regions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeletionPlan(Stored):
    """Nodes to go: how many, which, and in what manner."""

    count: int | None = None
    zones: Mapping[str, int] = field(default_factory=dict)
    regions: Mapping[str, int] = field(default_factory=dict)
    candidates: tuple[str, ...] = ()
    destroy_after_deletion: bool | None = None
    grace_period: float = 0.0
    reduce_desired_capacity: bool = True


@dataclass(frozen=True, slots=True)
class HookParams(Stored):
    """Where a hook's messages go."""

    queue: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True)
class LifecycleHook(Stored):
    """Who is notified before a node goes, and how many seconds they have."""

    type: str = "zaqar"
    params: HookParams = HookParams()
    timeout: int | None = None


@dataclass(frozen=True, slots=True)
class PlacementList(Stored):
    """A place for each new node."""

    placements: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class UpdateBatches(Stored):
    """The nodes of each batch of an update, and the seconds between two batches."""

    plan: tuple[tuple[str, ...], ...] = ()
    pause_time: float = 0.0


@dataclass(frozen=True, slots=True)
class RecoveryChoice(Stored):
    """One way to recover a node."""

    name: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HealthDecision(Stored):
    """How nodes are recovered."""

    recover_action: tuple[RecoveryChoice, ...] = ()


@dataclass(frozen=True, slots=True)
class Decisions(Stored):
    """All that the engine follows."""

    creation: CreationPlan = CreationPlan()
    deletion: DeletionPlan = DeletionPlan()
    hooks: LifecycleHook | None = None
    placement: PlacementList = PlacementList()
    update: UpdateBatches = UpdateBatches()
    health: HealthDecision = HealthDecision()
    rebalance: tuple[str, ...] = ()
