"""How often, and after how long, calls to a cloud are retried before they count as unanswered.

Calls that only read, or may be repeated, are retried after any failure. Calls that create are retried only where
nothing can have been done: the connection was never made, or the answer says to come back later (429, 503).
"""

from typing import Any

from urllib3.util.retry import Retry

TIMEOUT = 60.0
"""Seconds without an answer after which a connection is given up, unless clouds.yaml has an `api_timeout`."""

_LATER = (429, 503)
_SILENT = (502, 504)


class Patience(Retry):
    """Back-off that doubles, with some jitter so that engines do not ask in step; `Retry-After` is honoured."""

    def is_retry(self, method: str, status_code: int, has_retry_after: bool = False) -> bool:
        """Whether an answer with this status means that the call is to be retried."""
        return status_code in (*_LATER, *_SILENT) if self._is_method_retryable(method) else status_code in _LATER


def make_patient(connection: Any) -> Any:
    """Let a connection of openstacksdk wait for its cloud."""
    session = connection.session
    if session.timeout is None:
        session.timeout = TIMEOUT
    for adapter in session.session.adapters.values():
        adapter.max_retries = Patience(
            total=5, backoff_factor=0.25, backoff_max=8, backoff_jitter=0.25, retry_after_max=60, raise_on_status=False
        )
    return connection
