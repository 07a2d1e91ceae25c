"""The order of hosts: what each soft rule sees in them, then their capacity, then their turn, in words of bits.

A soft rule gives each host a cost. A word holds as many soft rules as fit, the first ones highest. The last word ends
with the capacity and the seeded tie-break. Words compare one by one, and the higher host comes first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from roost.placement.fleet import HEADROOM, HEADROOM_BITS, TIE_BITS, Bools, Ints
from roost.placement.rules import Kind, Rule

RUNNERS_UP: Final = 3
"""How many of those that came next an explanation names."""
OUTSIDE: Final = 1 << 62
"""What a host in no aggregate of the scope costs a soft rule that counts members."""
_SOFT_SHIFT: Final = TIE_BITS + HEADROOM_BITS
_WORD_BITS: Final = 62

Row = tuple[int, ...]
"""The words of one host."""


@dataclass(frozen=True, slots=True)
class RankingField:
    """Where a soft rule's preference stands within the words."""

    rule: Rule
    word: int
    shift: int
    width: int
    top: int
    """For anti-affinity, what the number of members is taken from, so that fewer rank higher."""

    def value(self, word: int) -> int | None:
        """What the rule saw in a host when it was ranked: see `SoftRuleShare`."""
        stored = word >> self.shift & ((1 << self.width) - 1)
        if stored == 0:
            return None
        return self.top - stored if self.top else stored - 1

    def bits(self, cost: int) -> int:
        """What a word has of a host at this cost. The cost is the number of members for anti-affinity, less than 0 by
        that number for affinity, `OUTSIDE`, or for a rule with a target 0 where the host is liked and 1 where not."""
        if cost == OUTSIDE:
            return 0
        return (2 - cost if self.rule.identifier is not None else (self.top or 1) - cost) << self.shift


def lay_out(rules: Sequence[Rule], most: int) -> tuple[tuple[RankingField, ...], int]:
    """A field for each soft rule, the last one lowest in the last word, and how many words stand before that. No
    aggregate holds as many as `most` members."""
    slots: list[tuple[Rule, int, int, int]] = []
    word, shift = 0, _SOFT_SHIFT
    for rule in reversed([rule for rule in rules if rule.soft]):
        width = 2 if rule.identifier is not None else most.bit_length()
        if shift + width > _WORD_BITS:
            word, shift = word + 1, 0
        slots.append((rule, word, shift, width))
        shift += width
    tops = {Kind.ANTI_AFFINITY: most, Kind.AFFINITY: 0}
    fields = [
        RankingField(rule, word - at, start, width, 0 if rule.identifier else tops[rule.kind])
        for rule, at, start, width in reversed(slots)
    ]
    return tuple(fields), word


class Names(NamedTuple):
    """The chosen hosts and those that came next, each with its words, and how many hosts there were in all."""

    fields: tuple[RankingField, ...]
    flip: int
    rows: tuple[Row, ...]
    next_best: tuple[tuple[int, Row], ...]
    fleet_size: int


@dataclass(slots=True)
class Ranking:
    """The candidates in order of preference. The last word is 0 for a refused host, so that the best host is mostly a
    single argmax."""

    words: list[Ints]
    fields: tuple[RankingField, ...]
    flip: int

    @property
    def key(self) -> Ints:
        """The last word."""
        return self.words[-1]

    def best(self, among: Bools | None = None) -> int:
        """The best candidate; where its key is 0 there was none."""
        key = self.words[-1] if among is None else self.words[-1] * among
        if len(self.words) == 1:
            return int(key.argmax())
        left = np.flatnonzero(key)
        for word in self.words[:-1] if len(left) else ():
            ranked = word[left]
            left = left[ranked == ranked.max()]
        return int(left[key[left].argmax()]) if len(left) else 0

    def row(self, host: int) -> Row:
        """One host's words."""
        return tuple(int(word[host]) for word in self.words)

    def next_best(self, taken: Sequence[int]) -> list[tuple[int, Row]]:
        """The best candidates beside those taken, each with its words."""
        key, hidden = self.key, list(taken)
        before = key[hidden]
        key[hidden] = 0
        found: list[tuple[int, Row]] = []
        for _ in range(min(RUNNERS_UP, len(key))):
            host = self.best()
            if not key[host]:
                break
            found.append((host, self.row(host)))
            key[host] = 0
        for host, row in found:
            key[host] = row[-1]
        key[hidden] = before
        return found

    def preferences(self) -> Ints:
        """What the soft rules alone say of each host: the higher the better, and equal where they see no difference."""
        own = [*self.words[:-1], self.key >> _SOFT_SHIFT]
        return np.unique(np.stack(own), axis=1, return_inverse=True)[1].reshape(-1)

    def copy(self) -> "Ranking":
        """The same ranking, to be changed apart."""
        return Ranking([word.copy() for word in self.words], self.fields, self.flip)


@dataclass(frozen=True, slots=True)
class SoftRuleShare:
    """What a soft rule saw in a host.

    How many members its aggregate held, None if it is in no aggregate; for a rule with a target, 1 where the host is
    as the rule likes it and 0 where it is not.
    """

    rule: Rule
    value: int | None


@dataclass(frozen=True, slots=True)
class RankedHost:
    """Why a host ranked where it did: the soft rules first, in their order, then its capacity."""

    host: int
    shares: tuple[SoftRuleShare, ...]
    headroom: int
    """How much of the host's scarcest resource was free, in per cent."""


def free_share(row: Sequence[int], flip: int) -> int:
    """How much of a host's scarcest resource was free when it was ranked, in per cent, as its words have it."""
    return ((row[-1] ^ flip) & HEADROOM) >> TIE_BITS
