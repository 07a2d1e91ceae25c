"""The `roost` command in a separate process, with faults that a file switches on and off.

Nothing in Roost knows of this: the faults are laid around it from outside, before its own `main` runs. The file is read
again whenever it changes:

    {"cloud": {"fails": 0.3, "silent": 0.3, "twice": 0.3}, "clock": 7200}

Notifications are written to a file, one a line, as a broker would receive them. Processes are forked from one that has
imported it all: their start would cost more than their work, and they are killed often.
"""

import inspect
import json
import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import time_machine

from roost.cli import processes
from roost.cli.main import main
from roost.clouds import choice
from roost.clouds.base import Cloud, CloudError, Clouds
from roost.compute.groups import notifications
from roost.compute.scheduling import handover
from roost.compute.scheduling.scheduler import Scheduler
from roost.config import Settings
from roost.store.database import Database

_LOOK_SECONDS = 0.1
_IMPORTED_BEFORE_THE_FORK = processes


class Rehearsal:
    """What is to go wrong at the moment."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_at = 0.0
        self._asked: dict[str, Any] = {}

    @property
    def asked(self) -> dict[str, Any]:
        """What the file says now."""
        try:
            changed = self._path.stat().st_mtime
            if changed != self._read_at:
                self._asked, self._read_at = json.loads(self._path.read_text()), changed
        except (OSError, ValueError):
            pass  # it is being written: the next look will do
        return self._asked

    def draw(self) -> str | None:
        """How the cloud is to fail this time, if at all."""
        dice = random.random()
        for kind, share in self.asked.get("cloud", {}).items():
            dice -= share
            if dice < 0:
                return str(kind)
        return None


class FaultyCloud:
    """A cloud that fails, acts without saying so, or acts twice."""

    def __init__(self, cloud: Cloud, rehearsal: Rehearsal) -> None:
        self._cloud = cloud
        self._rehearsal = rehearsal

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._cloud, name)
        if not inspect.iscoroutinefunction(attribute):
            return attribute

        async def ask(*arguments: Any, **more: Any) -> Any:
            fault = self._rehearsal.draw()
            if fault == "fails":
                raise CloudError("the rehearsed cloud does not answer")
            if fault == "twice":
                await attribute(*arguments, **more)
            answer = await attribute(*arguments, **more)
            if fault == "silent":
                raise CloudError("the rehearsed cloud did it, and does not say so")
            return answer

        return ask


class FaultyClouds:
    """Clouds that fail."""

    def __init__(self, clouds: Clouds, rehearsal: Rehearsal) -> None:
        self._clouds = clouds
        self._rehearsal = rehearsal

    def of(self, project_id: str, user_id: str, *, privileged: bool = False) -> Any:
        return FaultyCloud(self._clouds.of(project_id, user_id, privileged=privileged), self._rehearsal)


def _shift_the_clock(rehearsal: Rehearsal, traveller: time_machine.Traveller) -> None:
    """Set the wall clock of this process alone, forward or back."""
    ahead = 0.0
    while True:
        wanted = float(rehearsal.asked.get("clock", 0.0))
        if wanted != ahead:
            traveller.shift(wanted - ahead)
            ahead = wanted
        time.sleep(_LOOK_SECONDS)


def _broker(path: Path) -> notifications.Send:
    def send(message: notifications.Message) -> None:
        # One write to the end of the file: lines of several engines do not mix.
        with path.open("ab", buffering=0) as listener:
            listener.write(json.dumps(message).encode() + b"\n")

    return send


def run(command: list[str], machine: str, database_url: str, log: Path, faults: Path, broker: Path) -> None:
    """Be `roost api ...` or `roost engine ...` from now on, until the end of this process."""
    with log.open("ab") as written:
        os.dup2(written.fileno(), 1)
        os.dup2(written.fileno(), 2)
    os.environ["ROOST_DATABASE_URL"] = database_url
    rehearsal = Rehearsal(faults)
    choose = choice.choose

    def faulty(settings: Settings, database: Database, scheduler: Scheduler) -> Clouds:
        return FaultyClouds(choose(settings, database, scheduler), rehearsal)

    choice.choose = faulty
    # Processes of one machine know the database by one address, unless each has a proxy of its own.
    handover.socket_name = lambda settings, database: f"\0{machine}"
    notifications.sender = lambda settings: _broker(broker)
    traveller = time_machine.travel(time.time(), tick=True).start()
    threading.Thread(target=_shift_the_clock, args=(rehearsal, traveller), daemon=True).start()
    main(command)
