"""The clustering service, for the tests of clusters."""

from tests.clusters.house import house

__all__ = ["house"]
