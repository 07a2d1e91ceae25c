"""Which cloud this process uses, as the configuration says."""

from typing import TYPE_CHECKING

from roost.clouds.base import Clouds
from roost.clouds.embedded import EmbeddedClouds
from roost.clouds.server_groups import EmbeddedGroups, Groups
from roost.compute.scheduling.scheduler import Scheduler
from roost.config import Settings
from roost.errors import Unavailable
from roost.store.database import Database

if TYPE_CHECKING:
    from roost.clouds.front import Front


_NO_SDK = "openstacksdk is not installed: pip install 'roost[client]', or set [clusters] cloud."


def choose(settings: Settings, database: Database, scheduler: Scheduler) -> Clouds:
    """The clouds of all projects, for clusters."""
    if not settings.in_front_of_nova:
        return EmbeddedClouds(database, settings, scheduler)
    try:
        from roost.clouds.openstack import OpenStackClouds
    except ImportError:
        raise Unavailable(_NO_SDK) from None
    return OpenStackClouds(settings.clusters.os_cloud, database=database, settings=settings)


def front(settings: Settings, database: Database) -> "Front | None":
    """The Nova that the compute API stands in front of, if it does."""
    if not settings.in_front_of_nova:
        return None
    try:
        from roost.clouds.front import Front
        from roost.clouds.nova import Nova
    except ImportError:
        raise Unavailable(_NO_SDK) from None
    return Front(Nova(settings.clusters.os_cloud), database, settings)


def groups(settings: Settings, database: Database, front: "Front | None") -> Groups:
    """How the compute API makes and changes server groups."""
    if front is None:
        return EmbeddedGroups(database, settings)
    from roost.clouds.front import FrontedGroups

    return FrontedGroups(front)
