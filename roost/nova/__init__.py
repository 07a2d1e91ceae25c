"""What a nova-scheduler loads: a filter and a weigher that hold the rules of Roost's server groups.

    [filter_scheduler]
    available_filters = nova.scheduler.filters.all_filters
    available_filters = roost.nova.ScopedGroupFilter
    enabled_filters = ComputeFilter,...,ScopedGroupFilter
    weight_classes = nova.scheduler.weights.all_weighers,roost.nova.ScopedGroupWeigher

Needs nothing of Roost but its placement core, and nothing that Nova does not bring: NumPy and keystoneauth.
"""

from typing import Any

__all__ = ["ScopedGroupFilter", "ScopedGroupWeigher"]


def __getattr__(name: str) -> Any:
    """The two classes are only there where Nova is: everything else in this package can be had without."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from roost.nova import plugin

    return getattr(plugin, name)
