"""Roost as the plug-in asks it: over HTTP, signed in as the user of nova.conf's section [roost]."""

from collections.abc import Mapping
from typing import Any

from keystoneauth1 import adapter, exceptions
from keystoneauth1 import loading as ks_loading
from oslo_config import cfg

from roost.nova.choice import Silent

SECTION = "roost"

OPTIONS = [
    cfg.StrOpt("url", default="http://127.0.0.1:8774", help="Where Roost answers."),
    cfg.FloatOpt(
        "time_limit", default=20.0, min=0.1, help="Seconds that Roost may take for one server, with all attempts."
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
        help="How long groups that are none of Roost's, and servers that Roost made members, are remembered.",
    ),
    cfg.FloatOpt("weight_multiplier", default=1000.0, help="What the soft rules weigh, next to Nova's own weighers."),
]


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
        url = conf.roost.url.rstrip("/") + "/scheduler"
        self._http = adapter.Adapter(session, endpoint_override=url, connect_retries=0, status_code_retries=0)

    def topology(self, since: int, seconds: float) -> Mapping[str, Any]:
        """The hosts that changed since a generation."""
        answer: Mapping[str, Any] = self._body(self._ask("GET", f"/topology?since={since}", seconds))["topology"]
        return answer

    def group(self, group_id: str, seconds: float) -> Mapping[str, Any] | None:
        """A group as it is now; None if it is none of Roost's."""
        answer = self._ask("GET", f"/groups/{group_id}", seconds)
        return None if answer.status_code == 404 else self._body(answer)["group"]

    def reserve(
        self, group_id: str, wanted: Mapping[str, Any], seconds: float
    ) -> tuple[bool, Mapping[str, Any]] | None:
        """Whether a place was reserved; if not, the group as it is now; None if it is no group of Roost's any more."""
        answer = self._ask("POST", f"/groups/{group_id}/reservations", seconds, json={"reservation": wanted})
        if answer.status_code == 404:
            return None
        if answer.status_code == 409:
            return False, answer.json()
        return True, self._body(answer)["reservation"]

    def _ask(self, method: str, path: str, seconds: float, **more: Any) -> Any:
        try:
            return self._http.request(path, method, timeout=seconds, raise_exc=False, **more)
        except exceptions.ClientException as error:
            raise Silent(str(error)) from error

    def _body(self, answer: Any) -> Any:
        if answer.status_code != 200:
            raise Silent(f"{answer.status_code} {answer.text[:200]}")
        return answer.json()
