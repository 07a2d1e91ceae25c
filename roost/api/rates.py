"""How many requests a project, or an address, may make a second."""

import math
import time
from dataclasses import dataclass

from roost.errors import TooManyRequests

_BURST_SECONDS = 2.0
_MOST_OWNERS = 10_000
_ROUNDING = 1e-6


class TooFast(TooManyRequests):
    """The project or the address makes more requests than it may."""

    def __init__(self, allowance: "Allowance") -> None:
        super().__init__(f"Too many requests. Try again in {allowance.reset} s.")
        self.allowance, self.seconds = allowance, allowance.reset


@dataclass(frozen=True, slots=True)
class Allowance:
    """What is left of a share."""

    limit: int
    remaining: int
    reset: int
    """Seconds until all of it is there again."""

    @property
    def headers(self) -> dict[str, str]:
        """The share in the words of the RateLimit header fields for HTTP."""
        return {
            "RateLimit-Limit": str(self.limit),
            "RateLimit-Remaining": str(self.remaining),
            "RateLimit-Reset": str(self.reset),
        }


class RateLimit:
    """A leaky bucket for each owner: it drains at a constant rate, and what would make it overflow is refused."""

    def __init__(self, per_second: float) -> None:
        self._rate = per_second
        self._empty_at: dict[str, float] = {}

    def take(self, owner: str) -> Allowance | None:
        """Count a request; None where there is no limit. Raises `TooFast`."""
        if not self._rate:
            return None
        now = time.monotonic()
        if len(self._empty_at) >= _MOST_OWNERS:
            self._empty_at = {each: empty for each, empty in self._empty_at.items() if empty > now}
        empty_at = max(now, self._empty_at.get(owner, now)) + 1 / self._rate
        limit = max(1, int(self._rate * _BURST_SECONDS))
        if empty_at - now > max(_BURST_SECONDS, 1 / self._rate) + _ROUNDING:
            raise TooFast(Allowance(limit, 0, math.ceil(empty_at - now - _BURST_SECONDS) or 1))
        self._empty_at[owner] = empty_at
        left = int((_BURST_SECONDS - (empty_at - now)) * self._rate + _ROUNDING)
        return Allowance(limit, max(0, left), math.ceil(empty_at - now))
