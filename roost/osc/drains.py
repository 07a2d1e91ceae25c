"""`openstack drain ...`: empty a host, a rack or any other aggregate of a policy scope."""

import argparse
import time

from osc_lib.exceptions import CommandError

from roost.client import DrainAnswer
from roost.osc import commands
from roost.osc.commands import Lister, One, ShowOne, Table, one_of, option
from roost.osc.groups import aggregate, move_text


def _shown(drain: DrainAnswer) -> One:
    moves = commands.cell([move_text(each) for each in drain.moves])
    columns = ("id", "scope", "identifier", "status", "paused", "sentence", "moves")
    return columns, (drain.id, drain.scope, drain.identifier, drain.status, drain.paused, drain.sentence, moves)


class StartDrain(ShowOne):
    """Disable the hosts of a place, and have the engine move their servers elsewhere (admin only)."""

    options = (
        option("place", metavar="<scope>=<identifier>", type=aggregate, help="What to drain, such as host=NAME"),
        option("--max-parallel", metavar="<number>", type=int, help="So many moves at once (1)"),
        option("--cooldown", metavar="<seconds>", type=int, help="Wait so long between moves (0)"),
        option("--wait", action="store_true", help="Wait until all moves have ended"),
    )

    def take_action(self, given: argparse.Namespace) -> One:
        budget = {"max_parallel": given.max_parallel, "cooldown": given.cooldown}
        limits = {key: value for key, value in budget.items() if value is not None}
        drain: DrainAnswer = self.roost.drain(**given.place, **limits)
        return _shown(self._awaited(drain) if given.wait else drain)

    def _awaited(self, drain: DrainAnswer) -> DrainAnswer:
        with commands.progress("drain", len(drain.moves)) as update:
            while not drain.ended:
                time.sleep(0.5)
                drain = self.roost.get_drain(drain.id or "")
                update(drain.done)
        if drain.status == "failed":
            raise CommandError(f"The drain failed: {drain.reason}")
        return drain


class ListDrain(Lister):
    """List the latest drains (admin only)."""

    def take_action(self, given: argparse.Namespace) -> Table:
        columns = ("id", "scope", "identifier", "status", "paused", "sentence")
        return columns, [tuple(getattr(each, name) for name in columns) for each in self.roost.drains()]


class SetDrain(ShowOne):
    """Pause, resume or stop a drain (admin only). Its hosts stay disabled."""

    options = (
        option("drain", metavar="<drain>", help="ID of the drain"),
        one_of(
            option("--pause", dest="paused", action="store_true", default=None, help="Begin no further move for now"),
            option("--resume", dest="paused", action="store_false", help="Let it go on"),
            option("--stop", action="store_true", help="End it after the moves under way"),
            required=True,
        ),
    )

    def take_action(self, given: argparse.Namespace) -> One:
        if not given.stop:
            return _shown(self.roost.pause_drain(given.drain, given.paused))
        self.roost.stop_drain(given.drain)
        return _shown(self.roost.get_drain(given.drain))
