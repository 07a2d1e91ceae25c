"""The `openstack` command, started from a process that has imported it already: its imports take longer than its work.

`python -m tests.docs.quick_openstack FOLDER` writes FOLDER/openstack, which hands its arguments, environment and files
to this process; a fork of it then runs the command as it is.
"""

import json
import os
import signal
import socket
import sys
from importlib.metadata import entry_points
from pathlib import Path

sys.argv[0] = "openstack"  # as the command reads it when it is imported
from openstackclient import shell  # noqa: E402

_SCRIPT = """\
#!{python} -IS
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
socket.send_fds(server, [json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()], [0, 1, 2])
sys.exit(int(server.recv(16) or b"70"))
"""
_COMMANDS = ("server", "server_group", "aggregate", "hypervisor", "flavor", "availability_zone", "service")


def main(folder: Path) -> None:
    """Serve commands until ended."""
    for entry in [*entry_points(group="openstack.compute.v2"), *entry_points(group="openstack.extension")]:
        if entry.name.startswith(_COMMANDS) or entry.value.startswith("roost."):
            entry.load()
    for entry in [*entry_points(group="openstack.cli.base"), *entry_points(group="openstack.roost.v1")]:
        entry.load()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    address = folder / "socket"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(address))
    listener.listen()
    script = folder / "openstack"
    script.write_text(_SCRIPT.format(python=sys.executable, address=str(address)))
    script.chmod(0o755)
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _run(connection)
        connection.close()


def _run(connection: socket.socket) -> None:
    asked, files, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    words, here, environment = json.loads(asked)
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.chdir(here)
    os.environ.clear()
    os.environ.update(environment)
    try:
        status = shell.main(words)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    sys.stdout.flush()
    sys.stderr.flush()
    connection.send(str(status or 0).encode())
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
