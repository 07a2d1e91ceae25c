"""How many servers to create in, or to delete from, each zone (or region).

The result is the one that is nearest to the weights:

    least  sum over zones of (servers there - ideal)^2,   ideal = all servers * weight / sum of weights

and where two results are equally near, zones earlier by name hold more. It is found by raising one level for all zones:
a zone holds its ideal plus the level, within its bounds, so sorting the levels at which zones meet their bounds is all
the work, O(z log z) whatever the number of servers. All of it is in whole numbers: no rounding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter


@dataclass(frozen=True, slots=True)
class WeightedZone:
    """A zone (or region) as it stands."""

    name: str
    weight: int = 1
    servers: int = 0
    available: bool = True
    """Whether servers can be created there; a zone that is not available is meant to hold none."""
    cap: int | None = None
    minimum: int = 0

    def __post_init__(self) -> None:
        if min(self.weight, self.servers, self.minimum, self.cap or 0) < 0:
            raise ValueError(f"zone '{self.name}' has a number below 0")


@dataclass(frozen=True, slots=True)
class Distribution:
    """What changes in each zone, by name: above 0 to create, below 0 to delete; zones without a change are left out."""

    changes: Mapping[str, int]
    short: int
    """How many servers found no zone: caps allow no more, or there are no more to delete."""


def create(zones: Sequence[WeightedZone], count: int) -> Distribution:
    """Where to create so many servers. Minimums come first, as far as they go; a zone above its cap is left alone."""
    zones = sorted(zones, key=_by_name)
    least = [zone.servers for zone in zones]
    most = [_ceiling(zone, count) for zone in zones]
    wanted = [max(low, min(zone.minimum, top)) for zone, low, top in zip(zones, least, most, strict=True)]
    standing = sum(least)
    target = min(standing + count, sum(most))
    if sum(wanted) <= target:
        least = wanted
    else:
        most = wanted
    return _plan(zones, least, most, target, standing + count - target)


def delete(zones: Sequence[WeightedZone], count: int) -> Distribution:
    """Where to delete so many servers. What is above a cap goes first; minimums are given up last."""
    zones = sorted(zones, key=_by_name)
    least = [min(zone.servers, zone.minimum) for zone in zones]
    most = [zone.servers for zone in zones]
    standing = sum(most)
    target = max(standing - count, 0)
    if target < sum(least):
        most, least = least, [0] * len(zones)
    else:
        wanted = [min(zone.servers, max(_cap(zone), low)) for zone, low in zip(zones, least, strict=True)]
        if sum(wanted) >= target:
            most = wanted
        else:
            least = wanted
    return _plan(zones, least, most, target, count - (standing - target))


def _cap(zone: WeightedZone) -> int:
    if not zone.available:
        return 0
    return zone.servers if zone.cap is None else zone.cap


def _ceiling(zone: WeightedZone, count: int) -> int:
    """The most a zone may hold after creating so many."""
    if not zone.available:
        return zone.servers
    reach = zone.servers + count
    return reach if zone.cap is None else max(zone.servers, min(zone.cap, reach))


def _plan(
    zones: Sequence[WeightedZone], least: Sequence[int], most: Sequence[int], target: int, short: int
) -> Distribution:
    held = _nearest(_weights(zones), least, most, target)
    changed = ((zone.name, number - zone.servers) for zone, number in zip(zones, held, strict=True))
    return Distribution({name: change for name, change in changed if change}, short)


def _weights(zones: Sequence[WeightedZone]) -> list[int]:
    """The weights of the zones that are available; equal ones where none has any."""
    weights = [zone.weight if zone.available else 0 for zone in zones]
    return weights if any(weights) else [1] * len(zones)


def _nearest(weights: Sequence[int], least: Sequence[int], most: Sequence[int], target: int) -> list[int]:
    """The numbers nearest to the weights' shares of the target, within bounds that allow for it.

    Everything is scaled by the sum of weights, so that ideals are whole numbers. At the level found, each zone is
    rounded down; what is then missing is less than one server for each zone that is free to move, and goes to those
    whose next server costs least.
    """
    whole = sum(weights)
    ideals = [target * weight for weight in weights]
    starts = [low * whole - ideal for low, ideal in zip(least, ideals, strict=True)]
    stops = [top * whole - ideal for top, ideal in zip(most, ideals, strict=True)]
    level = _level(starts, stops, (target - sum(least)) * whole)
    held = [
        low if level <= start else top if level >= stop else (ideal + level) // whole
        for low, top, start, stop, ideal in zip(least, most, starts, stops, ideals, strict=True)
    ]
    missing = target - sum(held)
    if missing:
        costs = [(held[at] * whole - ideals[at], at) for at, top in enumerate(most) if held[at] < top]
        for _, at in sorted(costs)[:missing]:
            held[at] += 1
    return held


def _level(starts: Sequence[int], stops: Sequence[int], missing: int) -> int:
    """The highest level at which the zones together hold no more than the target.

    Zones begin to rise at one level and stop at another; between two such turns they rise together.
    """
    turns = [(at, 1) for at in starts]
    turns += [(at, -1) for at in stops]
    turns.sort()
    rising = last = 0
    for at, change in turns:
        step = (at - last) * rising
        if step > missing:
            return last + missing // rising
        missing -= step
        last = at
        rising += change
    return last


_by_name = attrgetter("name")
