"""`make ha`: all machines, until Ctrl-C."""

import signal
import sys
import time

from tests.ha.machines import PASSWORD, SUPERUSER, running


def main() -> int:
    """Start everything, print where it is, and end it on Ctrl-C or SIGTERM."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    print("Starting etcd, Patroni, PgBouncer, HAProxy, two APIs and two engines ...", flush=True)
    try:
        with running() as datacenter:
            print(datacenter.patronictl("list"))
            for machine in datacenter.machines:
                print(f"{machine.name:5} {machine.address:15} {', '.join(machine.commands):30} {machine.folder}")
            print(f"\nRoost: {' and '.join(datacenter.fronts)}, user admin, password {PASSWORD}")
            print(f"The databases: {datacenter.url(SUPERUSER)}")
            print(f"Patroni: patronictl -c {datacenter.databases[0].folder}/patroni.yml list")
            print("Ctrl-C ends everything and removes it.", flush=True)
            while True:
                time.sleep(3600)
    except KeyboardInterrupt:
        print("Everything has ended.")
    return 0


def _end(*_: object) -> None:
    # The end takes a few seconds, and a second Ctrl-C must not leave half of it behind.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
