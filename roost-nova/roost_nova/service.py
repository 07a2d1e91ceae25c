"""Roost as the plug-in asks it: over HTTP, signed in as the user of nova.conf's section [roost].

A Roost that restarts refuses connections, or a proxy in front of it answers 502 or 503: then the next address is tried,
and all of them again until the time is up. Every question may be asked twice.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from keystoneauth1 import adapter, exceptions
from keystoneauth1 import loading as ks_loading
from oslo_config import cfg

SECTION = "roost"

OPTIONS = [
    cfg.ListOpt(
        "url",
        default=["http://127.0.0.1:8774"],
        help="Where Roost answers; several addresses, with commas between, are tried in turn.",
    ),
    cfg.FloatOpt(
        "time_limit", default=20.0, min=0.1, help="Seconds that Roost may take for one server, with all attempts."
    ),
    cfg.FloatOpt(
        "quick_limit",
        default=1.0,
        min=0.1,
        help="Seconds that a server outside groups may wait for Roost, once in cache_seconds.",
    ),
    cfg.StrOpt(
        "on_failure",
        default="refuse",
        choices=[
            ("refuse", "no host passes, so no rule is broken; the server ends in ERROR"),
            ("allow", "every host passes; only what Nova's own filters know of the group holds"),
        ],
        help="What happens to members of groups while Roost does not answer.",
    ),
    cfg.FloatOpt(
        "cache_seconds",
        default=10.0,
        min=0.0,
        help="How long groups that are none of Roost's, servers that Roost made members, and a Roost that hangs are "
        "remembered.",
    ),
    cfg.FloatOpt("weight_multiplier", default=1000.0, help="What the soft rules weigh, next to Nova's own weighers."),
]

_LATER = (502, 503, 504)
_PAUSE = 0.25


class Silent(Exception):
    """Roost did not answer in time, or not as it should."""


class Hanging(Silent):
    """Roost took the question, and no answer came."""


def register(conf: Any) -> None:
    """Declare the section [roost], with the usual options to sign in."""
    conf.register_opts(OPTIONS, group=SECTION)
    ks_loading.register_auth_conf_options(conf, SECTION)
    ks_loading.register_session_conf_options(conf, SECTION)


class HttpService:
    """Asks Roost's scheduler API."""

    def __init__(self, conf: Any) -> None:
        auth = ks_loading.load_auth_from_conf_options(conf, SECTION)
        session = ks_loading.load_session_from_conf_options(conf, SECTION, auth=auth)
        self._addresses = [
            adapter.Adapter(
                session, endpoint_override=url.rstrip("/") + "/scheduler", connect_retries=0, status_code_retries=0
            )
            for url in conf.roost.url
        ]

    def adopted(self, seconds: float) -> frozenset[str]:
        """The servers that Roost made members of groups, and of which Nova does not know that they are."""
        answer = self._ask("GET", "/adopted", seconds)
        return frozenset(_body(answer)["adopted"])

    def choose(self, wanted: Mapping[str, Any], seconds: float) -> Mapping[str, Any] | None:
        """The hosts that may take a server, with their weights, once a place among them is reserved; None if no group
        of Roost's binds the server."""
        answer = self._ask("POST", "/choices", seconds, json={"choice": wanted})
        if answer.status_code == 404:
            return None
        choice: Mapping[str, Any] = _body(answer)["choice"]
        return choice

    def _ask(self, method: str, path: str, seconds: float, **more: Any) -> Any:
        deadline = time.monotonic() + seconds
        silence = Silent("there was no time left")
        while True:
            for address in list(self._addresses):
                left = deadline - time.monotonic()
                if left <= 0:
                    raise silence
                # One address that hangs must not use up the time of the others.
                limit = left if len(self._addresses) == 1 else left / 2
                try:
                    answer = address.request(path, method, timeout=limit, raise_exc=False, **more)
                except (exceptions.ConnectTimeout, exceptions.RequestTimeout) as error:
                    silence = Hanging(str(error))
                except (exceptions.ConnectFailure, exceptions.UnknownConnectionError) as error:
                    silence = Silent(str(error))
                except exceptions.ClientException as error:
                    raise Silent(str(error)) from error
                else:
                    if answer.status_code not in _LATER:
                        return answer
                    silence = Silent(f"{answer.status_code} {answer.text[:200]}")
                # The one that answers comes first from now on.
                self._addresses = [*(each for each in self._addresses if each is not address), address]
            time.sleep(max(0.0, min(_PAUSE, deadline - time.monotonic())))


def _body(answer: Any) -> Any:
    if answer.status_code != 200:
        raise Silent(f"{answer.status_code} {answer.text[:200]}")
    return answer.json()
