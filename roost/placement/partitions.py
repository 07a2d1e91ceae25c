"""The partition numbers of members that are already somewhere, when their group becomes divided or they join it.

New servers get theirs from the scheduler, with a place to go with it.
"""

from collections import Counter
from collections.abc import Hashable, Mapping


def number(partitions: int, places: Mapping[str, Hashable | None], before: Mapping[str, int | None]) -> dict[str, int]:
    """A number for each member, by the aggregate that it is in (None: in none) and the number that it had, if any.

    A number is kept as long as there is such a partition. All others of one aggregate get one number: the one that is
    there already, else that of the emptiest partition, the largest aggregates first. So no aggregate comes to be shared
    that was not shared before.
    """
    found = {member: kept for member, kept in before.items() if kept is not None and kept <= partitions}
    sizes = Counter(found.values())
    there: dict[tuple[str, Hashable], set[int]] = {}
    crowds: dict[tuple[str, Hashable], list[str]] = {}
    for member, place in places.items():
        where: tuple[str, Hashable] = ("alone", member) if place is None else ("in", place)
        if member in found:
            there.setdefault(where, set()).add(found[member])
        else:
            crowds.setdefault(where, []).append(member)
    for where, crowd in sorted(crowds.items(), key=lambda item: -len(item[1])):
        chosen = min(there.get(where) or range(1, partitions + 1), key=lambda each: (sizes[each], each))
        found |= dict.fromkeys(crowd, chosen)
        sizes[chosen] += len(crowd)
    return found
