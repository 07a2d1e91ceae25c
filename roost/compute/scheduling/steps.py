"""Steps: what the engine makes true of a server when a change that is under way ends.

A step is written in the transaction that starts the change, and stored as JSON in `servers.step`. Each has one form
there (`to_json`); `read` makes the step again, or says what is wrong with the data.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, Final, TypedDict

from roost.compute.inventory.flavors import ServerFlavor

RUNNING, PAUSED, SHUTDOWN, SUSPENDED, NO_STATE = 1, 3, 4, 7, 0
"""Power states, as Nova numbers them."""


class Stay(Enum):
    """The server stays on the host that it is on."""

    STAY = "stay"


STAY: Final = Stay.STAY


class Fault(TypedDict):
    """What went wrong with a server."""

    code: int
    created: str
    message: str


@dataclass(frozen=True, slots=True)
class Resized:
    """A resized server that waits to be confirmed or reverted: what it was before."""

    source: int
    flavor: ServerFlavor
    vm_state: str
    power_state: int
    migration: int

    def to_json(self) -> dict[str, object]:
        """As it is stored."""
        return {
            "source": self.source,
            "flavor": self.flavor.to_json(),
            "vm_state": self.vm_state,
            "power_state": self.power_state,
            "migration": self.migration,
        }


@dataclass(frozen=True, slots=True)
class Deletion:
    """The server is deleted; `flavor` is the other one that it counts for, if it was being resized."""

    flavor: ServerFlavor | None = None

    def to_json(self) -> dict[str, object]:
        """As it is stored."""
        return {"delete": True, "flavor": self.flavor and self.flavor.to_json()}


@dataclass(frozen=True, slots=True)
class Transition:
    """The server comes to another state, host or flavor; None leaves what there is."""

    vm_state: str | None = None
    power_state: int | None = None
    host_id: int | Stay | None = STAY
    flavor: ServerFlavor | None = None
    release: tuple[int, ...] = ()
    """The hosts whose claims end."""
    shrink: bool = False
    """Whether the claim on its host becomes what its flavor takes."""
    launches: bool = False
    fault: str | None = None
    migration: int | None = None
    migration_status: str = "completed"
    then: Resized | None = None
    undo: "Transition | None" = None
    """What becomes true instead if the change fails; None for a change that cannot."""

    def to_json(self) -> dict[str, object]:
        """As it is stored: what differs from the defaults."""
        changed: dict[str, object] = {}
        for name, default in _DEFAULTS.items():
            value = getattr(self, name)
            if value is not default and value != default:
                changed[name] = value.to_json() if isinstance(value, ServerFlavor | Resized | Transition) else value
        return changed


_DEFAULTS: Final = {each.name: each.default for each in fields(Transition)}

Step = Transition | Resized | Deletion


def read(data: Mapping[str, object] | None) -> Step | None:
    """The step of a server, None if it has none; raises `ValueError` with a message for anything else."""
    if data is None:
        return None
    try:
        if "delete" in data:
            return Deletion(_flavor(data.get("flavor")))
        if "source" in data:
            return _resized(data)
        return _transition(data)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"The step of a server cannot be read ({error}): {data!r}.") from None


def other_flavor(step: Step | None) -> ServerFlavor | None:
    """The other flavor that a server counts for while a change is under way."""
    return None if step is None else step.flavor


def _flavor(data: Any) -> ServerFlavor | None:
    return None if data is None else ServerFlavor.from_json(data)


def _resized(data: Any) -> Resized:
    return Resized(**{**data, "flavor": ServerFlavor.from_json(data["flavor"])})


def _transition(data: Any) -> Transition:
    then, undo = data.get("then"), data.get("undo")
    nested = {
        "flavor": _flavor(data.get("flavor")),
        "release": tuple(data.get("release", ())),
        "then": None if then is None else _resized(then),
        "undo": None if undo is None else _transition(undo),
    }
    return Transition(**{**data, **nested})
