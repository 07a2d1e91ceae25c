"""Clients that never pause, and a ledger of what they were promised; plain HTTP, nothing of Roost."""

import itertools
import json
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

ANSWER_SECONDS = 60.0
AGAIN_SECONDS = 0.2
KEPT = 20
"""Servers that each client keeps; beyond that it deletes the oldest."""
IMAGE = "cirros-0.6.2-x86_64-disk"


@dataclass
class Clients:
    """Each creates one server after another under its own name, at each address in turn, and deletes old ones."""

    addresses: list[str]
    password: str
    user: str = "admin"
    number: int = 3
    trusting: ssl.SSLContext | None = None
    asked: dict[str, float] = field(default_factory=dict)
    """When a server of this name was asked for."""
    names: dict[str, str] = field(default_factory=dict)
    """The names of the servers whose creation was acknowledged, by id."""
    created: dict[str, float] = field(default_factory=dict)
    """When the creation of a server was acknowledged, by id."""
    doomed: dict[str, float] = field(default_factory=dict)
    """When its deletion was asked for: without an answer, it is there or not."""
    deleted: dict[str, float] = field(default_factory=dict)
    """When its deletion was acknowledged."""
    refused: Counter[int] = field(default_factory=Counter)
    """Answers that were no success, by status; 0 is none at all."""
    _token: str = ""
    _image: str = ""
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def ask(self, method: str, path: str, body: Any = None, address: str | None = None) -> Any:
        """One request and its answer; raises `OSError` for anything but a success."""
        headers = {"X-Auth-Token": self._token, "Content-Type": "application/json"}
        if path.startswith("/compute"):
            headers["OpenStack-API-Version"] = "compute 2.1003"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request((address or self.addresses[0]) + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS, context=self.trusting) as answer:
            self._token = self._token or answer.headers["X-Subject-Token"]
            text = answer.read()
            return json.loads(text) if text else None

    def sign_in(self) -> None:
        """Get a token, which outlives every fault."""
        user = {"name": self.user, "password": self.password, "domain": {"id": "default"}}
        identity = {"methods": ["password"], "password": {"user": user}}
        scope = {"project": {"name": self.user, "domain": {"id": "default"}}}
        self.ask("POST", "/identity/v3/auth/tokens", {"auth": {"identity": identity, "scope": scope}})
        images = self.ask("GET", "/image/v2/images")["images"]
        self._image = next(each["id"] for each in images if each["name"] == IMAGE)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Let all of them work in this block."""
        enough = threading.Event()
        threads = [threading.Thread(target=self._work, args=(enough,)) for _ in range(self.number)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            enough.set()
            for thread in threads:
                thread.join()

    def _work(self, enough: threading.Event) -> None:
        mine: list[str] = []
        while not enough.is_set():
            number = next(self._numbers)
            address = self.addresses[number % len(self.addresses)]
            if len(mine) > KEPT:
                self._delete(mine.pop(0), address)
            name = f"n{number}"
            self.asked[name] = time.time()
            server = {"name": name, "flavorRef": "1", "imageRef": self._image, "networks": "none"}
            made = self._try("POST", "/compute/v2.1/servers", {"server": server}, address)
            if made is not None:
                server_id = made["server"]["id"]
                self.names[server_id], self.created[server_id] = name, time.time()
                mine.append(server_id)

    def _delete(self, server_id: str, address: str) -> None:
        self.doomed[server_id] = time.time()
        if self._try("DELETE", f"/compute/v2.1/servers/{server_id}", None, address) is not None:
            self.deleted[server_id] = time.time()

    def _try(self, method: str, path: str, body: Any, address: str) -> Any:
        try:
            return self.ask(method, path, body, address) or {}
        except urllib.error.HTTPError as error:
            self.refused[error.code] += 1
        except OSError:
            self.refused[0] += 1
        time.sleep(AGAIN_SECONDS)
        return None

    def grow_a_cluster(self, size: int = 5) -> str:
        """Ask for a cluster; its id. The action goes on while things break."""
        name = f"c{next(self._numbers)}"
        spec = {"type": "os.nova.server", "version": "1.0", "properties": {"flavor": "1", "image": IMAGE}}
        profile = self.ask("POST", "/clustering/v1/profiles", {"profile": {"name": name, "spec": spec}})["profile"]
        body = {"cluster": {"name": name, "profile_id": profile["id"], "desired_capacity": size}}
        return str(self.ask("POST", "/clustering/v1/clusters", body)["cluster"]["id"])

    def lost(self, servers: list[dict[str, Any]]) -> list[str]:
        """Servers that were promised and are not among the stored ones, or were deleted and still are."""
        stored = {str(row["id"]) for row in servers}
        gone = [each for each in self.created if each not in stored and each not in self.doomed]
        return gone + [each for each in self.deleted if each in stored]

    def doubled(self, servers: list[dict[str, Any]]) -> list[str]:
        """Names of ours that several of the stored servers have."""
        stored = Counter(row["name"] for row in servers)
        return [name for name in self.asked if stored[name] > 1]

    def longest_pause(self, begin: float, end: float) -> float:
        """The longest time without an acknowledged creation."""
        return longest_pause(list(self.created.values()), begin, end)


def longest_pause(moments: list[float], begin: float, end: float) -> float:
    """The longest time between two moments, or between them and the ends."""
    inside = sorted(each for each in moments if begin <= each <= end)
    return max(after - before for before, after in itertools.pairwise([begin, *inside, end]))
