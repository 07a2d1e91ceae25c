"""What a nova-scheduler loads: a filter and a weigher that hold the rules of Roost's server groups.

    [filter_scheduler]
    available_filters = nova.scheduler.filters.all_filters
    available_filters = roost_nova.ScopedGroupFilter
    enabled_filters = ComputeFilter,...,ScopedGroupFilter
    weight_classes = nova.scheduler.weights.all_weighers,roost_nova.ScopedGroupWeigher

Roost decides; the plug-in asks it. So it needs nothing that Nova does not bring, and runs where Nova 27 or newer does.
"""

from __future__ import annotations

from typing import Any

__all__ = ["ScopedGroupFilter", "ScopedGroupWeigher"]


def __getattr__(name: str) -> Any:
    """The two classes are only there where Nova is: everything else in this package can be had without."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from roost_nova import plugin

    return getattr(plugin, name)
