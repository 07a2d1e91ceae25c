"""A line on the terminal that says how far long work has come. Prints nothing where standard error is no terminal."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

_EVERY_SECONDS = 0.1


class Progress:
    """What is being done, and how much of it is done."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._shown = sys.stderr.isatty()
        self._next = 0.0

    def __call__(self, done: str) -> None:
        """Report progress; it may be called too often."""
        now = time.monotonic()
        if self._shown and now >= self._next:
            self._next = now + _EVERY_SECONDS
            print(f"\r\x1b[K{self._what}: {done}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Leave nothing on the line."""
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


@contextmanager
def progress(what: str) -> Iterator[Progress]:
    """Show a line while something is done."""
    line = Progress(what)
    try:
        line("…")
        yield line
    finally:
        line.clear()
