"""The conformance suite on a real OpenStack."""

from tests.clouds.conformance import *  # noqa: F403
