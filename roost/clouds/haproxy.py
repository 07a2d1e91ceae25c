"""HAProxy as a load balancer of the embedded cloud: one process for each, restarted when its members change.

The process that is replaced hands its port on and ends with its last connection, so that no connection is lost.
"""

import asyncio
import ipaddress
import logging
import os
import re
import shutil
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

logger = logging.getLogger(__name__)

Address = tuple[str, int]

_BALANCE = {"ROUND_ROBIN": "roundrobin", "LEAST_CONNECTIONS": "leastconn", "SOURCE_IP": "source"}
_HOST = re.compile(r"[A-Za-z0-9._-]+")
_STOP_SECONDS = 5.0


@dataclass(slots=True)
class Haproxy:
    """One load balancer that HAProxy serves."""

    program: str
    folder: Path
    """A private folder of this process."""
    vip: Address
    method: str = "ROUND_ROBIN"
    limit: int = -1
    _written: str = ""
    _processes: list[asyncio.subprocess.Process] = field(default_factory=list)
    """The newest last; those before it are ending with their connections."""

    async def serve(self, members: Sequence[Address]) -> None:
        """Hand connections on to these members from now on."""
        wanted = configuration(self.vip, members, self.method, self.limit)
        self._processes = [process for process in self._processes if process.returncode is None]
        if self._processes and wanted == self._written:
            return
        if not self._processes and not free(self.vip):
            # Another engine has it, the address is not ours, or the port is not for us.
            logger.debug("cannot listen for a load balancer", extra={"address": self.vip[0], "port": self.vip[1]})
            return
        path = self.folder / "haproxy.cfg"
        path.write_text(wanted)
        replaced = ["-sf", *(str(process.pid) for process in self._processes)] if self._processes else []
        command = [*_ends_with_us(), self.program, "-db", "-q", "-f", str(path), *replaced]
        nothing = asyncio.subprocess.DEVNULL
        self._processes.append(
            await asyncio.create_subprocess_exec(*command, stdin=nothing, stdout=nothing, stderr=nothing)
        )
        self._written = wanted

    async def close(self) -> None:
        """Stop serving."""
        running = [process for process in self._processes if process.returncode is None]
        for process in running:
            with suppress(ProcessLookupError):
                process.terminate()
        for process in running:
            try:
                async with asyncio.timeout(_STOP_SECONDS):
                    await process.wait()
            except TimeoutError:
                process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def usable(vip: Address) -> bool:
    """Whether an address can be written into a configuration: it comes from a user."""
    with suppress(ValueError):
        return bool(ipaddress.ip_address(vip[0])) and _is_port(vip[1])
    return False


def configuration(vip: Address, members: Sequence[Address], method: str, limit: int) -> str:
    """HAProxy's configuration. Only one process at a time may have the address, as with the forwarder."""
    within = [f"    tcp-request connection reject if {{ fe_conn gt {limit} }}"] if limit >= 0 else []
    reachable = [member for member in members if _HOST.fullmatch(member[0]) and _is_port(member[1])]
    lines = [
        "global",
        "    noreuseport",
        "listen balancer",
        "    mode tcp",
        f"    bind {vip[0]}:{vip[1]}",
        *within,
        f"    balance {_BALANCE.get(method, 'roundrobin')}",
        "    timeout connect 3s",
        "    timeout client 1h",
        "    timeout server 1h",
        "    option redispatch 1",
        f"    retries {max(len(reachable), 1)}",
        "    default-server check inter 1s fall 1 rise 1 init-addr libc,none",
        *(f"    server member{at} {host}:{port}" for at, (host, port) in enumerate(reachable)),
    ]
    return "\n".join(lines) + "\n"


def _is_port(number: int) -> bool:
    return 0 < number < 65536


def _ends_with_us() -> list[str]:
    """Arguments that keep a process from outliving an engine that was killed, where the system offers that."""
    found = shutil.which("setpriv") if os.name == "posix" else None
    return [found, "--pdeathsig", "TERM", "--"] if found else []


def free(address: Address) -> bool:
    """Whether this process can listen at an address."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            probe.listen()
        except OSError:
            return False
    return True
