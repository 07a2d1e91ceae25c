"""The filter and the weigher as Nova wants them."""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Sequence
from typing import Any

import nova.conf
from nova.scheduler import filters, utils, weights
from oslo_log import log as logging

from roost_nova import service
from roost_nova.asker import Asker, Wanted
from roost_nova.multicreate import Rationing
from roost_nova.service import Silent

CONF = nova.conf.CONF
logger = logging.getLogger(__name__)

# What the filter heard of the server that a thread is at work on, for the weigher.
_heard = threading.local()


@functools.lru_cache(maxsize=1)
def _asker() -> Asker:
    """One a process: made when the first server comes, so that a worker does not share a connection with its parent."""
    options = CONF.roost
    return Asker(service.HttpService(CONF), options.time_limit, options.quick_limit, options.cache_seconds)


def _wanted(spec: Any, count: int) -> Wanted:
    flavor = spec.flavor
    boots_from_volume = "is_bfv" in spec and spec.is_bfv
    disk = (0 if boots_from_volume else flavor.root_gb) + flavor.ephemeral_gb + -(-flavor.swap // 1024)
    return Wanted(
        instance_id=spec.instance_uuid,
        group_id=spec.instance_group.uuid if spec.instance_group else None,
        project_id=spec.project_id or "",
        user_id=(spec.user_id if "user_id" in spec else None) or "",
        resources={"vcpus": flavor.vcpus, "memory_mb": flavor.memory_mb, "disk_gb": disk},
        count=count,
        partition=_partition(spec.get_scheduler_hint("partition")),
        token=spec.get_scheduler_hint("roost_place"),
    )


def _partition(hint: str | None) -> int | None:
    """The partition that a hint asks for; one that is no number is none that there is."""
    if hint is None:
        return None
    return int(hint) if re.fullmatch("[0-9]{1,9}", str(hint)) else 0


class ScopedGroupFilter(filters.BaseHostFilter):  # type: ignore[misc]
    """Passes the hosts on which a server keeps the rules of its group, once a place among them is reserved.

    It must be the last of the enabled filters: what a later one would refuse would stay reserved until Nova gave up.
    """

    RUN_ON_REBUILD = False

    def __init__(self) -> None:
        super().__init__()
        service.register(CONF)
        self._thread = threading.local()

    def run_filter_for_index(self, index: int) -> bool:
        """Each server of a request is looked at; which one it is, is said here only."""
        self._thread.index = index
        return True

    def filter_all(self, filter_obj_list: Sequence[Any], spec_obj: Any) -> list[Any]:
        """Decide over all hosts at once."""
        if utils.request_is_rebuild(spec_obj):
            return list(filter_obj_list)
        rationing = Rationing.of(self._thread, spec_obj)
        hosts = rationing.restored(filter_obj_list)
        if rationing.served(spec_obj.instance_uuid):
            return []
        _heard.weights = None
        try:
            passing = _asker().choose(_wanted(spec_obj, max(spec_obj.num_instances - self._thread.index, 1)), hosts)
        except Silent as error:
            logger.warning("Roost does not answer (%s): %s", CONF.roost.on_failure, error)
            return hosts if CONF.roost.on_failure == "allow" else []
        if passing is None:
            return hosts
        _heard.weights = (spec_obj.instance_uuid, passing)
        chosen = [host for host in hosts if host.host in passing]
        return rationing.only(chosen, hosts, spec_obj.instance_uuid) if spec_obj.num_instances > 1 else chosen


class ScopedGroupWeigher(weights.BaseHostWeigher):  # type: ignore[misc]
    """Prefers hosts as the soft rules of a server's group do, in their order."""

    def __init__(self) -> None:
        super().__init__()
        service.register(CONF)

    def weight_multiplier(self, host_state: Any) -> float:
        """As nova.conf says."""
        multiplier: float = CONF.roost.weight_multiplier
        return multiplier

    def _weigh_object(self, obj: Any, weight_properties: Any) -> float:
        raise NotImplementedError("hosts are weighed all at once")

    def weigh_objects(self, weighed_obj_list: Sequence[Any], weight_properties: Any) -> list[float]:
        """What the filter heard of each host; hosts that are held back come last."""
        server, passing = getattr(_heard, "weights", None) or (None, {})
        if server != weight_properties.instance_uuid:
            return [0.0] * len(weighed_obj_list)
        return [passing.get(each.obj.host, -1.0) for each in weighed_obj_list]
