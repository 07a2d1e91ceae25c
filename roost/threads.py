"""What has to happen in the main thread before any other thread does it."""

import contextlib
import warnings


def import_eventlet() -> None:
    """Some of OpenStack's libraries import eventlet where it is installed, without any need. If another thread is the
    first to do so, the process never ends: that thread cannot be joined."""
    with contextlib.suppress(ImportError), warnings.catch_warnings(action="ignore"):
        import eventlet  # noqa: F401
