"""The nova-computes of the lab: one process each, forked from one that has loaded everything, which saves most of the
memory and of the time that they would take if each were started by itself.

One that fails by itself is started again, as a service manager would; one that was killed stays down until SIGHUP.
"""

import gc
import importlib
import os
import signal
import sys
import time
import traceback
from pathlib import Path

PRELOADED = (
    "nova.compute.manager",
    "nova.virt.fake",
    "nova.network.neutron",
    "nova.image.glance",
    "nova.scheduler.client.report",
    "oslo_messaging._drivers.impl_rabbit",
    "kombu.transport.pyamqp",
    "neutronclient.v2_0.client",
    "glanceclient.v2.client",
    "openstack.connection",
    "keystoneauth1.identity.v3",
    "oslo_service.backend._threading.service",
)
_ATTEMPTS = 4


class Computes:
    """The parent of all nova-computes."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.count = count
        self.children: dict[int, int] = {}
        self.down: set[int] = set()
        self.starts: dict[int, int] = {}
        self.stopping = False
        self.reviving = False

    def run(self) -> None:
        """Start all of them, and mind them until all are to end."""
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, self.stop)
        signal.signal(signal.SIGHUP, self.revive)
        for number in range(1, self.count + 1):
            if not self.stopping:
                self.start(number)
                time.sleep(0.2)
        while self.children or not self.stopping:
            self.reap()
            if self.reviving and not self.stopping:
                self.reviving = False
                for number in sorted(self.down):
                    self.start(number)
                self.down.clear()
            time.sleep(0.2)

    def start(self, number: int) -> None:
        """Fork one."""
        self.starts[number] = self.starts.get(number, 0) + 1
        state = self.folder / "nova" / f"host-{number}"
        state.mkdir(parents=True, exist_ok=True)
        config = self.folder / "etc" / f"nova-compute-{number}.conf"
        log = self.folder / "log" / f"nova-compute-{number}.log"
        config.write_text(f"[DEFAULT]\nhost = fake-{number}\nstate_path = {state}\nlog_file = {log}\n")
        pid = os.fork()
        if pid == 0:
            self.become(number, config)
        self.children[pid] = number
        (self.folder / "run" / f"nova-compute-{number}.pid").write_text(str(pid))

    def become(self, number: int, config: Path) -> None:
        """Be that nova-compute, until its end."""
        code = 1
        try:
            os.setsid()
            output = os.open(self.folder / "log" / f"nova-compute-{number}.out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(output, 1)
            os.dup2(output, 2)
            for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(signum, signal.SIG_DFL)
            sys.argv = ["nova-compute", "--config-file", f"{self.folder}/etc/nova.conf", "--config-file", str(config)]
            importlib.import_module("nova.cmd.compute").main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def reap(self) -> None:
        """See which have ended."""
        while self.children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            number = self.children.pop(pid)
            print(f"compute {number} ended: {status}", flush=True)
            failed = os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0
            if failed and not self.stopping and self.starts[number] < _ATTEMPTS:
                self.start(number)
            else:
                self.down.add(number)

    def stop(self, *_: object) -> None:
        """All are to end."""
        self.stopping = True
        for pid in self.children:
            os.kill(pid, signal.SIGTERM)

    def revive(self, *_: object) -> None:
        """Those that are down are to be started again."""
        self.reviving = True


def main() -> None:
    """Load everything, then start as many as are asked for."""
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    sys.argv = ["nova-compute", "--config-file", f"{folder}/etc/nova.conf"]
    importlib.import_module("nova.cmd.compute")  # first of all: it chooses how Nova does several things at once
    for module in PRELOADED:
        importlib.import_module(module)
    importlib.import_module("nova.objects").register_all()
    # Nova takes its drivers from nova.virt alone: ours is put there.
    ours = importlib.import_module("lab.inside.virt")
    sys.modules["nova.virt.lab"] = ours
    importlib.import_module("nova.virt").lab = ours  # type: ignore[attr-defined]
    gc.collect()
    gc.freeze()
    Computes(folder, count).run()


if __name__ == "__main__":
    main()
