"""Why a server is where it is, or nowhere: recorded with the decision, and put into words on request.

What is written down has real names (`records`). A `View` is the part that one reader may see: an operator the hosts and
the real identifiers, a tenant the group's rules, its own identifiers of aggregates, and counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from roost.compute.groups.identifiers import Identifiers
from roost.placement.decision import Refusal, RefusalCount, Verdict, passing
from roost.placement.fleet import NOWHERE, Fleet
from roost.placement.ranking import RankingField, SoftRuleShare, free_share
from roost.placement.record import HostPlace, RankedPlace, Record, WrittenRule
from roost.placement.remedy import Remedy, RemedyKind
from roost.placement.rules import HOST, Kind, Rule

_OPERATORS = frozenset({RemedyKind.ADD_AGGREGATES, RemedyKind.ENABLE_HOSTS, RemedyKind.FREE_CAPACITY})
"""The changes that a tenant cannot make."""


def where(fleet: Fleet, host: int, scopes: Sequence[str]) -> HostPlace:
    """A host by its real name, and its aggregates in these scopes, as `View.where` reads them."""
    places = {}
    for scope in scopes:
        aggregate = fleet.aggregate(host, scope)
        if aggregate != NOWHERE:
            places[scope] = fleet.identifiers(scope)[aggregate]
    return {"host": fleet.name(host), "places": places}


# The answer


@dataclass(frozen=True, slots=True)
class ShownPlace:
    """A place under a reader's identifiers; the host where it may be named."""

    placements: Mapping[str, str]
    host: str | None


@dataclass(frozen=True, slots=True)
class ShownHost:
    """A host that was ranked: what each soft rule saw in it, and how much of it was free, in per cent."""

    place: ShownPlace
    partition: int | None
    shares: tuple[SoftRuleShare, ...]
    headroom: int | None


@dataclass(frozen=True, slots=True)
class ShownRemedy:
    """A change that would help, and who can make it."""

    change: RemedyKind
    amount: int
    policy: str | None
    by: str
    sentence: str


@dataclass(frozen=True, slots=True)
class ShownDecision:
    """A decision in words, with what would help where that is known."""

    verdict: str
    sentence: str
    hosts: int
    candidates: int | None
    refused: tuple[RefusalCount, ...]
    chosen: tuple[ShownHost, ...]
    runners_up: tuple[ShownHost, ...]
    help: tuple[ShownRemedy, ...]
    advice: str | None


@dataclass(frozen=True, slots=True)
class View:
    """One answer as its reader may see it: hosts are named where the real identifiers are."""

    identifiers: Identifiers

    def explanation(self, stored: Record, helping: Sequence[Remedy] = ()) -> ShownDecision:
        """A stored decision in words, with what would help where that is known."""
        ranking = self._ranking(stored)
        return ShownDecision(
            verdict=stored["verdict"],
            sentence=self._sentence(stored),
            hosts=stored["hosts"],
            candidates=stored["candidates"],
            refused=self._refused(stored),
            chosen=tuple(self._standing(each, ranking) for each in stored["chosen"]),
            runners_up=tuple(self._standing(each, ranking) for each in stored["runners_up"]),
            help=tuple(self._help(remedy) for remedy in helping),
            advice=self._advice(helping),
        )

    @property
    def real(self) -> bool:
        """Whether hosts are named."""
        return self.identifiers.real

    def where(self, stored: HostPlace) -> ShownPlace:
        """A place: its aggregates under the reader's identifiers, and the host where it may be named."""
        placements = {
            scope: self.identifiers.of(scope, identifier)
            for scope, identifier in stored["places"].items()
            if scope in self.identifiers.known
        }
        return ShownPlace(placements, stored["host"] if self.real else None)

    def place(self, stored: HostPlace) -> dict[str, str]:
        """The same as one line: the aggregate in each scope, the host among them where it may be named."""
        shown = self.where(stored)
        return {**shown.placements, **({} if shown.host is None else {HOST: shown.host})}

    def _rule(self, written: WrittenRule | None) -> Rule | None:
        return None if written is None else self.identifiers.shown(Rule.parse(written["policy"], written["rules"]))

    def _sentence(self, stored: Record) -> str:
        if stored["verdict"] == Verdict.PLACED:
            return self._why_here(stored)
        many = "1 server" if stored["servers"] == 1 else f"{stored['servers']} servers"
        if "partition" in stored:
            many += f" in partition {stored['partition']}"
        verdict = Verdict(stored["verdict"])
        lead = "No place found for" if verdict is Verdict.UNDECIDED else "No place for"
        reasons = [str(each) for each in self._refused(stored)]
        if stored["candidates"]:
            reasons.append(passing(verdict, stored["candidates"]))
        return f"{lead} {many}: {'; '.join(reasons) or 'there are no hosts'}."

    def _why_here(self, stored: Record) -> str:
        hosts, number = stored["hosts"], len(stored["chosen"])
        counted = stored["candidates"] is not None  # the index leaves out what it need not look at
        passed = f"{stored['candidates']} of {hosts} hosts passed every check" if counted else f"Of {hosts} hosts"
        if number != 1:
            return f"{passed}{'; ' if counted else ', '}the {number} best were chosen, each after those before it."
        chosen, ranking = stored["chosen"][0], self._ranking(stored)
        host = f"host {chosen['host']}" if self.real else "the one chosen"
        reasons = [share_sentence(share) for share in ranking.shares(chosen)]
        reasons.append(f"{ranking.free(chosen)} % of it was free" if self.real else "it had room")
        partition = _why_partition(stored, chosen)
        first = f"{host} came first: {', '.join(reasons)}."
        return f"{passed}. {partition}{first[0].upper()}{first[1:]}" if counted else f"{partition}{passed}, {first}"

    def _ranking(self, stored: Record) -> "_Ranking":
        ranked = ((self._rule(written), place) for written, *place in stored["preferences"])
        return _Ranking(tuple(RankingField(rule, *place) for rule, place in ranked if rule), stored["flip"])

    def _refused(self, stored: Record) -> tuple[RefusalCount, ...]:
        return tuple(RefusalCount(Refusal(why), hosts, self._rule(rule)) for why, hosts, rule in stored["refused"])

    def _standing(self, stored: RankedPlace, ranking: "_Ranking") -> ShownHost:
        free = ranking.free(stored) if self.real else None
        return ShownHost(self.where(stored), stored.get("partition"), ranking.shares(stored), free)

    def _help(self, remedy: Remedy) -> ShownRemedy:
        policy = None if remedy.rule is None else str(self.identifiers.shown(remedy.rule))
        by = "operator" if remedy.change in _OPERATORS else "tenant"
        return ShownRemedy(remedy.change, self._amount(remedy), policy, by, self._remedy(remedy))

    def _remedy(self, remedy: Remedy) -> str:
        """What would help; hosts that are to be enabled or freed are named to operators only."""
        if remedy.change is RemedyKind.ASK_FOR_FEWER:
            number = self._amount(remedy)
            return f"asking for {number} server{'s' * (number > 1)}"
        if self.real or not remedy.hosts:
            return remedy.sentence
        if remedy.change is RemedyKind.ENABLE_HOSTS:
            return f"enabling {remedy.amount} host{'s' * (remedy.amount > 1)}"
        return "freeing capacity on one host"

    def _amount(self, remedy: Remedy) -> int:
        """How much of it. Exact numbers would show a tenant how full a host is, and so what other tenants do there."""
        exact = self.real or remedy.change not in (RemedyKind.ASK_FOR_FEWER, RemedyKind.FREE_CAPACITY)
        return remedy.amount if exact else 1 << (max(1, remedy.amount).bit_length() - 1)

    def _advice(self, helping: Sequence[Remedy]) -> str | None:
        if not helping:
            return None
        text = ", or ".join(self._remedy(remedy) for remedy in helping)
        return f"{text[:1].upper()}{text[1:]}{',' * (len(helping) > 1)} would help."


@dataclass(frozen=True, slots=True)
class _Ranking:
    """How to read the words of a ranked host."""

    fields: tuple[RankingField, ...]
    flip: int

    def shares(self, stored: RankedPlace) -> tuple[SoftRuleShare, ...]:
        """What each soft rule saw in it."""
        return tuple(SoftRuleShare(field.rule, field.value(stored["words"][field.word])) for field in self.fields)

    def free(self, stored: RankedPlace) -> int:
        """How much of it was free, in per cent."""
        return free_share(stored["words"], self.flip)


def _why_partition(stored: Record, chosen: RankedPlace) -> str:
    if "partition" not in chosen:
        return ""
    why = "was asked for" if "partition" in stored else "had the fewest members of those with a place"
    return f"Partition {chosen['partition']} {why}. "


def share_sentence(share: SoftRuleShare) -> str:
    """What a soft rule saw in a host, in words."""
    rule, value = share.rule, share.value
    if value is None:
        return f"it is in no {rule.scope}"
    if rule.identifier is not None:
        inside = (value == 1) == (rule.kind is Kind.AFFINITY)
        return f"it is {'inside' if inside else 'outside'} the {rule.scope} that '{rule}' names"
    members = f"{value or 'no'} member{'s' * (value != 1)}"
    return f"it held {members} ('{rule}')" if rule.scope == HOST else f"its {rule.scope} held {members} ('{rule}')"
