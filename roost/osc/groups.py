"""`openstack server group ...`: change groups, ask about them, and mend them."""

import argparse
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar

from cliff.columns import FormattableColumn
from openstack import exceptions as sdk
from osc_lib.exceptions import CommandError

from roost.client import (
    CandidateAnswer,
    ExplanationAnswer,
    GroupAnswer,
    MigrationAnswer,
    Placed,
    PlanAnswer,
    RepairAnswer,
)
from roost.osc import commands
from roost.osc.commands import JsonColumn, LinesColumn, Lister, One, Options, ShowOne, Table, one_of, option

POLICY_HELP = (
    "TYPE[:SCOPE[:IDENTIFIER]][,LIMIT=NUMBER...], such as anti-affinity:rack,max_server_per_aggregate=2 or "
    "anti-affinity:rack,partitions=3"
)


def policy(text: str) -> dict[str, Any]:
    """A policy as it is written on the command line."""
    written, *limits = text.split(",")
    name, *place = written.split(":", 2)
    rules = {}
    for limit in limits:
        key, equals, number = limit.partition("=")
        if not equals or not number.isdigit():
            raise argparse.ArgumentTypeError(f"'{limit}' is not LIMIT=NUMBER")
        rules[key] = int(number)
    found: dict[str, Any] = {"name": name, "rules": rules}
    return found | dict(zip(("scope", "identifier"), place, strict=False))


def policy_text(shown: Mapping[str, Any]) -> str:
    """A policy in the same words."""
    place = [shown["scope"]] if shown["scope"] != "host" or shown["identifier"] else []
    place += [shown["identifier"]] if shown["identifier"] else []
    limits = "".join(f",{key}={value}" for key, value in shown["rules"].items())
    return ":".join([shown["name"], *place]) + limits


class PartitionsColumn(FormattableColumn[Any]):
    """Each server's partition: as it is for machines, a line for each partition for people."""

    def human_readable(self) -> str:
        inside: dict[int, list[str]] = {}
        for server, number in self._value.items():
            inside.setdefault(number or 0, []).append(server)
        return "\n".join(f"{number or 'none'}: {', '.join(servers)}" for number, servers in sorted(inside.items()))


def shown_group(group: GroupAnswer) -> One:
    """A group with all its policies."""
    policies = [policy_text(each) for each in group.policies]
    columns = ["id", "name", "policies", "members", "project_id", "user_id"]
    values: list[Any] = [
        group.id, group.name, LinesColumn(policies), LinesColumn(list(group.members)), group.project_id, group.user_id
    ]  # fmt: skip
    if group.partitions:
        columns.append("partitions")
        values.append(PartitionsColumn(group.partitions))
    return columns, values


class _OfGroup:
    app: Any
    roost: Any

    options: ClassVar[Options] = (option("server_group", metavar="<server-group>", help="Server group (name or ID)"),)

    def group(self, given: argparse.Namespace) -> GroupAnswer:
        """The group that is named."""
        found: GroupAnswer = self.roost.find_server_group(given.server_group)
        return found

    def server_id(self, name: str) -> str:
        """The id of the server that is named."""
        return _server_id(self.app, name)


def _server_id(app: Any, name: str) -> str:
    """The id of a server: of the own project, else, for operators, of any."""
    compute = app.client_manager.sdk_connection.compute
    found = compute.find_server(name)
    if found is None:
        with suppress(sdk.ForbiddenException):
            found = compute.find_server(name, all_projects=True)
    if found is None:
        raise commands.missing("Server", name)
    return str(found.id)


def _flavor_id(app: Any, name: str) -> str:
    return str(app.client_manager.sdk_connection.compute.find_flavor(name, ignore_missing=False).id)


class SetServerGroup(_OfGroup, ShowOne):
    """Rename a server group or give it other policies; members that break them stay where they are."""

    options = (
        option("--name", metavar="<name>", help="New name of the group"),
        option(
            "--policy",
            metavar="<policy>",
            dest="policies",
            type=policy,
            action="append",
            help=f"A policy of the group from now on (repeat for several): {POLICY_HELP}",
        ),
    )

    def take_action(self, given: argparse.Namespace) -> One:
        if given.name is None and given.policies is None:
            raise CommandError("Nothing to change: give --name, --policy or both.")
        return shown_group(
            self.roost.update_server_group(self.group(given).id, name=given.name, policies=given.policies)
        )


class _OfMember(_OfGroup):
    options: ClassVar[Options] = (option("server", metavar="<server>", help="Server (name or ID)"),)


class AddServer(_OfMember, ShowOne):
    """Make a server that exists a member of a server group; it stays where it is."""

    options = (option("--partition", metavar="<number>", type=int, help="Partition that it is to belong to"),)

    def take_action(self, given: argparse.Namespace) -> One:
        server = self.server_id(given.server)
        return shown_group(self.roost.add_server(self.group(given).id, server, partition=given.partition))


class RemoveServer(_OfMember, ShowOne):
    """Take a server out of a server group; it stays where it is."""

    def take_action(self, given: argparse.Namespace) -> One:
        return shown_group(self.roost.remove_server(self.group(given).id, self.server_id(given.server)))


class AuditServerGroup(Lister):
    """Show which policies are broken, where, by which members, by how much and since when."""

    options = (
        one_of(
            option("server_group", metavar="<server-group>", nargs="?", help="Server group (name or ID)"),
            option("--all-projects", action="store_true", help="Audit every group (admin only)"),
            required=True,
        ),
        option("--members", action="store_true", help="Show where each member is instead"),
    )

    def take_action(self, given: argparse.Namespace) -> Table:
        if given.all_projects:
            columns = ("Server Group", "Policy", "Aggregate", "By", "Since", "Message")
            return columns, (
                (found["server_group_id"], *_violation(each))
                for found in self.roost.audit_all()
                for each in found["violations"]
            )
        group = self.roost.find_server_group(given.server_group)
        audit = self.roost.audit(group.id)
        if given.members:
            scopes = sorted({scope for places in audit.placements.values() for scope in places})
            number = ("Partition",) if audit.partitions else ()
            return ("Server", *scopes, *number), [
                (member, *(places.get(s) for s in scopes), *(audit.partitions[member] for _ in number))
                for member, places in audit.placements.items()
            ]
        if not audit.violations:
            self.app.stderr.write(
                f"Server group {group.name}: all {len(audit.placements)} members are as they should be.\n"
            )
        return ("Policy", "Aggregate", "By", "Since", "Message", "Members"), [
            (policy_text(each.policy), each.aggregate, each.excess, each.since, each.message, LinesColumn(each.members))
            for each in audit.violations
        ]


def _violation(shown: Mapping[str, Any]) -> tuple[Any, ...]:
    return policy_text(shown["policy"]), shown["aggregate"], shown["excess"], shown.get("since"), shown["message"]


# Explain


def _explained(answer: ExplanationAnswer) -> One:
    columns = ["verdict", "sentence", "advice", "hosts", "candidates", "refused", "chosen", "runners_up"]
    return columns, [
        answer.verdict,
        answer.sentence,
        answer.advice,
        answer.hosts,
        answer.candidates,
        LinesColumn([each.sentence for each in answer.refused]),
        LinesColumn([_standing(each) for each in answer.chosen]),
        LinesColumn([_standing(each) for each in answer.runners_up]),
    ]


def _standing(standing: CandidateAnswer) -> str:
    places = _places({"host": standing.host, **standing.placements, "partition": standing.partition})
    shares = "; ".join(share["sentence"] for share in standing.shares)
    free = "" if standing.headroom is None else f"{standing.headroom} % free"
    return f"{places}: {'; '.join(filter(None, (shares, free)))}".rstrip(": ")


def _places(placements: Mapping[str, Any]) -> str:
    return ", ".join(f"{scope} {place}" for scope, place in placements.items() if place is not None)


class ExplainServer(ShowOne):
    """Say why a server is where it is, or nowhere; and what would help."""

    options = (option("server", metavar="<server>", help="Server (name or ID)"),)

    def take_action(self, given: argparse.Namespace) -> One:
        answer = self.roost.explain_server(_server_id(self.app, given.server))
        if answer is None:
            raise CommandError("Roost has no record of how this server was placed.")
        return _explained(answer)


class ExplainServerGroup(_OfGroup, ShowOne):
    """Say where new members would go and why, or why nowhere and what would help. Nothing is made."""

    options = (
        option("--flavor", metavar="<flavor>", required=True, help="Flavor (name or ID)"),
        option("--count", metavar="<count>", type=int, default=1, help="Number of servers (1)"),
        option("--availability-zone", metavar="<zone>", help="Zone that they are to be in"),
        option("--partition", metavar="<number>", type=int, help="Partition that they are to belong to"),
    )

    def take_action(self, given: argparse.Namespace) -> One:
        flavor = _flavor_id(self.app, given.flavor)
        asked = {"zone": given.availability_zone, "partition": given.partition}
        return _explained(self.roost.explain(self.group(given).id, flavor=flavor, count=given.count, **asked))


# Plan


def aggregate(text: str) -> dict[str, str]:
    """A place, as it is written."""
    scope, equals, identifier = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"'{text}' is not SCOPE=IDENTIFIER")
    return {"scope": scope, "identifier": identifier}


class PlanServerGroup(ShowOne):
    """Say what a change would come to, and do nothing; or, with --apply, do what a plan said if it still holds."""

    options = (
        one_of(
            option("server_group", metavar="<server-group>", nargs="?", help="Server group (name or ID)"),
            option("--all", action="store_true", help="All servers of the project (with --lose or --drain)"),
            option("--all-projects", action="store_true", help="All servers of the cloud (admin only)"),
            required=True,
        ),
        one_of(
            option("--create", metavar="<count>", type=int, help="Boot so many servers in the group"),
            option(
                "--policy",
                metavar="<policy>",
                dest="policies",
                type=policy,
                action="append",
                help=f"Give the group these policies: {POLICY_HELP}",
            ),
            option("--add-server", metavar="<server>", action="append", help="Add servers that exist"),
            option("--remove-server", metavar="<server>", action="append", help="Take servers out"),
            option(
                "--drain", metavar="<scope>=<identifier>", type=aggregate, help="Move all members out of an aggregate"
            ),
            option(
                "--lose",
                metavar="<scope>=<identifier>",
                type=aggregate,
                help="Lose an aggregate with all that is in it",
            ),
            required=True,
        ),
        option("--flavor", metavar="<flavor>", help="Flavor of the servers to boot (name or ID)"),
        option("--image", metavar="<image>", help="Image of the servers to boot (name or ID)"),
        option("--name", metavar="<name>", help="Name of the servers to boot"),
        option("--availability-zone", metavar="<zone>", help="Zone of the servers to boot"),
        option("--partition", metavar="<number>", type=int, help="Partition of the servers to boot"),
        option("--apply", metavar="<generation>", help="Do what the plan of this generation said"),
    )

    def take_action(self, given: argparse.Namespace) -> One:
        change = self._change(given)
        if given.server_group is None:
            answer = self.roost.plan_all(change, all_projects=given.all_projects)
            return tuple(answer), [_lines(value) for value in answer.values()]
        group = self.roost.find_server_group(given.server_group)
        return _planned(self.roost.plan(group.id, change, generation=given.apply))

    def _change(self, given: argparse.Namespace) -> dict[str, Any]:
        if given.create is not None:
            return {"create": self._servers(given)}
        if given.policies:
            return {"policies": given.policies}
        for key in ("add_server", "remove_server"):
            if getattr(given, key):
                return {f"{key}s": [_server_id(self.app, name) for name in getattr(given, key)]}
        return {"drain": given.drain} if given.drain else {"lose": given.lose}

    def _servers(self, given: argparse.Namespace) -> dict[str, Any]:
        if given.flavor is None:
            raise CommandError("Give the --flavor of the servers to boot.")
        asked = {"flavorRef": _flavor_id(self.app, given.flavor), "count": given.create}
        image = self.app.client_manager.sdk_connection.image
        more = {
            "imageRef": image.find_image(given.image, ignore_missing=False).id if given.image else None,
            "name": given.name,
            "availability_zone": given.availability_zone,
            "partition": given.partition,
        }
        return asked | {key: value for key, value in more.items() if value is not None}


def _lines(value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return LinesColumn(value)
    return JsonColumn(value) if isinstance(value, list | dict) else value


def _planned(plan: PlanAnswer) -> One:
    columns = ["sentence", "applied", "generation", "placements", "moves", "stranded", "violations"]
    values: list[Any] = [
        plan.sentence,
        plan.applied,
        plan.generation,
        LinesColumn([_placed(each) for each in plan.placements]),
        LinesColumn([move_text(each) for each in plan.moves]),
        LinesColumn([f"{each['server_id']}: {each['sentence']}" for each in plan.stranded]),
        LinesColumn([each["message"] for each in plan.violations]),
    ]
    for column, broken in (("broken_before", plan.broken_before), ("mended", plan.mended)):
        if broken:
            columns.append(column)
            values.append(LinesColumn([each["message"] for each in broken]))
    if plan.partitions:
        columns.append("partitions")
        values.append(PartitionsColumn(plan.partitions))
    if plan.explanation is not None and plan.explanation.advice:
        columns.append("advice")
        values.append(plan.explanation.advice)
    if plan.repair_id is not None:
        columns.append("repair_id")
        values.append(plan.repair_id)
    return columns, values


def _placed(new: Placed) -> str:
    return f"{new.name}: {_places({'host': new.host, **new.placements, 'partition': new.partition})}"


def move_text(move: MigrationAnswer) -> str:
    """A move in one line."""
    state = "" if move.state is None else f" [{move.state}]"
    reason = "" if move.reason is None else f": {move.reason}"
    return f"{move.server_id}: {_places(move.source)} -> {_places(move.target)}{state}{reason}"


# Repair


class RepairServerGroup(_OfGroup, ShowOne):
    """Mend a group that is in violation with the fewest live migrations."""

    options = (
        option("--dry-run", action="store_true", help="Say which servers would move, and move none"),
        option("--max-moves", metavar="<number>", type=int, help="Move no more servers than this"),
        option("--max-parallel", metavar="<number>", type=int, help="So many at once (1)"),
        option("--cooldown", metavar="<seconds>", type=int, help="Wait so long between moves (0)"),
        option("--wait", action="store_true", help="Wait until all moves have ended"),
        one_of(
            option("--stop", action="store_true", help="Stop the repair under way, after the moves under way"),
            option("--pause", dest="paused", action="store_true", default=None, help="Begin no further move for now"),
            option("--resume", dest="paused", action="store_false", help="Let a paused repair go on"),
            option("--status", action="store_true", help="Show how far the last repair has come"),
            option(
                "--continuous",
                dest="continuous",
                action="store_true",
                default=None,
                help="Mend this group whenever an audit finds it broken",
            ),
            option("--no-continuous", dest="continuous", action="store_false", help="Stop mending it by itself"),
        ),
    )

    def take_action(self, given: argparse.Namespace) -> One:
        group = self.group(given)
        budget = {"max_moves": given.max_moves, "max_parallel": given.max_parallel, "cooldown": given.cooldown}
        limits = {key: value for key, value in budget.items() if value is not None}
        if given.continuous is not None:
            return commands.shown(dict(self.roost.keep_repaired(group.id, given.continuous, **limits)))
        if given.stop or given.status or given.paused is not None:
            repair = self._latest(group)
            if given.stop:
                self.roost.stop_repair(group.id, repair.id or "")
            if given.paused is not None:
                repair = self.roost.pause_repair(group.id, repair.id or "", given.paused)
        else:
            repair = self.roost.repair(group.id, dry_run=given.dry_run, **limits)
        return _repaired(self._awaited(group, repair) if given.wait else repair)

    def _latest(self, group: GroupAnswer) -> RepairAnswer:
        found: Sequence[RepairAnswer] = self.roost.repairs(group.id)
        if not found:
            raise CommandError(f"Server group {group.name} was never repaired.")
        return found[0]

    def _awaited(self, group: GroupAnswer, repair: RepairAnswer) -> RepairAnswer:
        with commands.progress("repair", len(repair.moves)) as update:
            while not repair.ended:
                time.sleep(0.5)
                repair = self.roost.get_repair(group.id, repair.id)
                update(repair.done)
        if repair.status == "failed":
            raise CommandError(f"The repair failed: {repair.reason}")
        return repair


def _repaired(repair: RepairAnswer) -> One:
    columns = ("id", "status", "sentence", "reason", "moves", "fewest", "repairs_all", "budget")
    moves = LinesColumn([move_text(each) for each in repair.moves])
    return columns, (
        repair.id, repair.status, repair.sentence, repair.reason, moves, repair.fewest, repair.repairs_all,
        JsonColumn(repair.budget),
    )  # fmt: skip
