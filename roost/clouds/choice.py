"""Which cloud this process uses for clusters, as the configuration says."""

from roost.clouds.base import Clouds
from roost.clouds.embedded import EmbeddedClouds
from roost.compute.scheduling import Scheduler
from roost.config import Settings
from roost.errors import Unavailable
from roost.store.database import Database


def choose(settings: Settings, database: Database, scheduler: Scheduler) -> Clouds:
    """The clouds of all projects."""
    if settings.clusters.cloud == "embedded":
        return EmbeddedClouds(database, settings, scheduler)
    try:
        from roost.clouds.openstack import OpenStackClouds
    except ImportError:
        raise Unavailable(
            "openstacksdk is not installed: pip install 'roost[client]', or set [clusters] cloud."
        ) from None
    return OpenStackClouds(settings.clusters.os_cloud, database=database)
