"""What a person sees of the work: a line a step, with the seconds that it took."""

import contextlib
import time
from collections.abc import Iterator


class Failure(Exception):
    """A step that could not be done; the message says what to look at."""


@contextlib.contextmanager
def step(what: str) -> Iterator[None]:
    """Say what was done once it is done."""
    began = time.monotonic()
    yield
    print(f"{time.monotonic() - began:7.1f} s  {what}", flush=True)
