"""The clustering service, for the tests of its API."""

from tests.clusters.house import house

__all__ = ["house"]
