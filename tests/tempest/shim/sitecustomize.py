"""Shortens every wait of the suites: their fixed polls of five seconds are made for slower clouds."""

import os
import time
from typing import Any

_longest = float(os.environ.get("LONGEST_SLEEP", "0.2"))
_sleep = time.sleep


def _short(seconds: Any) -> None:
    _sleep(min(seconds, _longest))


time.sleep = _short
