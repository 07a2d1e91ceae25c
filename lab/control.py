"""What can be done with a lab."""

import os
import signal
from collections.abc import Sequence

from lab import configuration, databases, install, processes, tenants
from lab.services import stages
from lab.settings import Settings
from lab.steps import Failure, step


def up(settings: Settings) -> None:
    """Install, initialise and start whatever is not."""
    install.install(settings)
    start(settings)


def start(settings: Settings) -> None:
    """Start whatever does not run, and wait until all of it works."""
    configuration.write(settings)
    databases.initialise(settings)
    for stage in stages(settings):
        with step(", ".join(process.name for process in stage)):
            processes.start(settings, stage)
    with step(f"{settings.hosts} hypervisors up"):
        tenants.await_hosts(settings)
        databases.map_hosts(settings)
    with step("image, flavors, network"):
        tenants.seed(settings)


def stop(settings: Settings) -> None:
    """End everything, in the reverse order of the start."""
    computes = [name for name in processes.running(settings) if name.startswith("nova-compute-")]
    with step("stopped"):
        for stage in reversed([[process.name for process in stage] for stage in stages(settings)]):
            processes.stop(settings, stage + (computes if "computes" in stage else []))


def restart(settings: Settings, names: Sequence[str]) -> None:
    """End these processes and start them again, with the settings as they are now."""
    known = {process.name: process for stage in stages(settings) for process in stage}
    if unknown := [name for name in names if name not in known]:
        raise Failure(f"No process is called {', '.join(unknown)}; there are {', '.join(known)}.")
    configuration.write(settings)
    with step(f"restarted {', '.join(names)}"):
        for name in names:
            processes.stop(settings, [name])
            processes.start(settings, [known[name]])
        if "computes" in names:
            tenants.await_hosts(settings)
            databases.map_hosts(settings)


def reset(settings: Settings) -> None:
    """End everything and put the databases back as they were at first."""
    stop(settings)
    with step("databases as they were at first"):
        databases.restore(settings)


def is_up(settings: Settings) -> bool:
    """Whether every process of the lab runs."""
    if not (settings.dir / "root" / ".installed").exists():
        return False
    there = processes.running(settings)
    return all(process.name in there for stage in stages(settings) for process in stage)


def kill_host(settings: Settings, number: int) -> None:
    """End a hypervisor's nova-compute at once, as a power cut would."""
    pid = processes.pid_of(settings, f"nova-compute-{number}")
    if pid is not None:
        os.kill(pid, signal.SIGKILL)


def revive_hosts(settings: Settings) -> None:
    """Start every nova-compute again that was killed. One that was forced down is so until somebody lifts that."""
    pid = processes.pid_of(settings, "computes")
    if pid is not None:
        os.kill(pid, signal.SIGHUP)


def status(settings: Settings) -> None:
    """Print every process with its memory."""
    for name, pid in processes.running(settings).items():
        with open(f"/proc/{pid}/smaps_rollup") as file:
            share = next(int(line.split()[1]) for line in file if line.startswith("Pss:"))
        print(f"{name:<18} pid {pid:<8} {share // 1024:5d} MiB")
