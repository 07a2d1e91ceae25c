"""How long the event loop works at a stretch: what nothing else is served in the meantime costs all others."""

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Stretches:
    """The CPU seconds of the longest step of the event loop, what it was, and of all together."""

    longest: float = 0.0
    what: str = ""
    total: float = 0.0


@contextmanager
def stretches() -> Iterator[Stretches]:
    """Measure the steps of the event loop in this block, in CPU time: a machine that has more to do changes nothing.
    What was there before is not collected meanwhile, as in a service (`cli.processes`)."""
    found, run = Stretches(), asyncio.events.Handle._run
    gc.collect()
    gc.freeze()
    begun = time.thread_time()

    def note(what: str) -> None:
        seconds = time.thread_time() - begun
        found.total += seconds
        if seconds > found.longest:
            found.longest, found.what = seconds, what

    def measured(handle: asyncio.Handle) -> None:
        nonlocal begun
        begun = time.thread_time()
        run(handle)
        if asyncio.events.Handle._run is measured:
            note(repr(handle))

    setattr(asyncio.events.Handle, "_run", measured)  # noqa: B010 - of another type for mypy
    try:
        yield found
    finally:
        note("the end")
        setattr(asyncio.events.Handle, "_run", run)  # noqa: B010
        gc.unfreeze()
