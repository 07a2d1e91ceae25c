"""Which cloud this process uses for clusters, as the configuration says."""

from roost.clouds.base import Clouds
from roost.clouds.embedded import EmbeddedClouds
from roost.compute.scheduling import Scheduler
from roost.config import Settings
from roost.store.database import Database


def choose(settings: Settings, database: Database, scheduler: Scheduler) -> Clouds:
    """The clouds of all projects."""
    return EmbeddedClouds(database, settings, scheduler)
