"""`roost demo`: a small world in a running Roost, made and removed through its public API."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from roost.errors import Conflict, Unavailable
from roost.placement.phrases import counted

PREFIX = "roost-demo-"
"""The names of everything that the demo makes begin like this, and nothing else is removed."""

_SECONDS = 120.0
_POLL_SECONDS = 0.3

Policy = Mapping[str, Any]


def _policy(name: str, scope: str = "host", **rules: int) -> Policy:
    return {"name": name, "scope": scope, **({"rules": rules} if rules else {})}


@dataclass(frozen=True, slots=True)
class DemoGroup:
    """A group to be: its servers are asked for one batch after the other, and `later` replaces its policies."""

    cloud: str
    name: str
    policies: Sequence[Policy]
    batches: Sequence[int]
    later: Sequence[Policy] = ()


@dataclass(frozen=True, slots=True)
class DemoCluster:
    """A cluster to be, and the specifications of the policies that govern it from its first node on."""

    cloud: str
    name: str
    nodes: int
    policies: Mapping[str, Mapping[str, Any]]


GROUPS = (
    DemoGroup("roost", "web", [_policy("anti-affinity", "rack", max_server_per_aggregate=2)], [6]),
    DemoGroup("roost", "db", [_policy("anti-affinity", "switch"), _policy("soft-affinity", "availability_zone")], [2]),
    DemoGroup("roost", "kafka", [_policy("anti-affinity", "rack", partitions=3)], [6]),
    DemoGroup("roost-alt", "cache", [_policy("affinity", "availability_zone"), _policy("anti-affinity")], [3]),
    # The new policy is broken by where the old one put the servers.
    DemoGroup("roost-alt", "pair", [_policy("affinity", "rack")], [2], [_policy("anti-affinity", "rack")]),
    # There are three zones: the fourth server is refused.
    DemoGroup("roost-alt", "quorum", [_policy("anti-affinity", "availability_zone")], [3, 1]),
    DemoGroup("roost-admin", "batch", [_policy("soft-affinity", "rack")], [4]),
)
_ZONES = {"type": "senlin.policy.zone_placement", "version": "1.0"}
_SCALING = {"type": "senlin.policy.scaling", "version": "1.0"}
_DELETION = {"type": "senlin.policy.deletion", "version": "1.0"}
CLUSTERS = (
    DemoCluster(
        "roost",
        "front",
        4,
        {
            "zones": {**_ZONES, "properties": {"zones": [{"name": f"zone{number}"} for number in (1, 2, 3)]}},
            "growth": {**_SCALING, "properties": {"event": "CLUSTER_SCALE_OUT", "adjustment": {"number": 2}}},
        },
    ),
    DemoCluster("roost-alt", "workers", 3, {"oldest": {**_DELETION, "properties": {"criteria": "OLDEST_FIRST"}}}),
)


def run(folder: Path, *, clean: bool) -> int:
    """Make the world, or remove it, and say what was done."""
    if "OS_CLIENT_CONFIG_FILE" not in os.environ and (folder / "clouds.yaml").exists():
        os.environ["OS_CLIENT_CONFIG_FILE"] = str((folder / "clouds.yaml").absolute())
    for line in _reached(_remove if clean else _make):
        print(line, flush=True)
    return 0


def _reached(work: Callable[["Clouds"], Iterator[str]]) -> Iterator[str]:
    try:
        import openstack
        from keystoneauth1.exceptions import ClientException
        from openstack.exceptions import SDKException
    except ImportError:
        raise Unavailable("`roost demo` needs the client: pip install 'roost[client]'.") from None
    try:
        yield from work({each: openstack.connect(cloud=each) for each in {group.cloud: None for group in GROUPS}})
    except (SDKException, ClientException) as error:
        raise Unavailable(f"Roost cannot be asked: {error} `roost demo --clean` removes what was made.") from error


Clouds = Mapping[str, Any]
"""A connection for each project, by the name of its cloud."""


def _make(clouds: Clouds) -> Iterator[str]:
    from roost.client import Client

    if any(_own(connection.compute.server_groups()) for connection in clouds.values()):
        raise Conflict("The demo already exists: `roost demo --clean` removes it.")
    for group in GROUPS:
        connection = clouds[group.cloud]
        client = Client(connection)
        made = client.create_server_group(PREFIX + group.name, group.policies)
        for batch in group.batches:
            _boot(connection, made.id, PREFIX + group.name, batch)
        if group.later:
            client.update_server_group(made.id, policies=group.later)
        yield f"{group.cloud}: group {made.name} with {counted(sum(group.batches), 'server')}"
    for cluster in CLUSTERS:
        _start(clouds[cluster.cloud].clustering, cluster)
        yield f"{cluster.cloud}: cluster {PREFIX}{cluster.name} with {counted(cluster.nodes, 'node')}"
    yield "A rule is broken: openstack --os-cloud roost-alt server group audit roost-demo-pair"
    yield "A server was refused: openstack --os-cloud roost-alt server explain roost-demo-quorum-4"


def _boot(connection: Any, group_id: str, name: str, count: int) -> None:
    compute = connection.compute
    flavor, image = compute.find_flavor("m1.tiny", ignore_missing=False), next(iter(connection.image.images()))
    there = len(_own(compute.servers(name=f"^{name}-")))
    names = {"name": name, "min_count": count, "max_count": count} if count > 1 else {"name": f"{name}-{there + 1}"}
    hints = {"scheduler_hints": {"group": group_id}}
    compute.create_server(flavor_id=flavor.id, image_id=image.id, networks="none", **names, **hints)
    _until(lambda: all(each.status != "BUILD" for each in compute.servers(name=f"^{name}-")), f"the servers of {name}")


def _start(clustering: Any, cluster: DemoCluster) -> None:
    properties = {"flavor": "m1.tiny", "image": "cirros-0.6.2-x86_64-disk"}
    spec = {"type": "os.nova.server", "version": "1.0", "properties": properties}
    profile = clustering.create_profile(name=PREFIX + cluster.name, spec=spec)
    policies = [clustering.create_policy(name=PREFIX + name, spec=each).name for name, each in cluster.policies.items()]
    made = clustering.create_cluster(
        name=PREFIX + cluster.name,
        profile_id=profile.id,
        desired_capacity=cluster.nodes,
        config={"cluster.policies": ",".join(policies)},
    )
    _until(lambda: clustering.get_cluster(made.id).status not in ("INIT", "CREATING"), f"the cluster {made.name}")


def _remove(clouds: Clouds) -> Iterator[str]:
    for name, connection in clouds.items():
        clustering, compute = connection.clustering, connection.compute
        counts = {}
        for noun, found, delete in (
            ("cluster", clustering.clusters, partial(clustering.delete_cluster, force_delete=True)),
            ("policy", clustering.policies, clustering.delete_policy),
            ("profile", clustering.profiles, clustering.delete_profile),
            ("server", compute.servers, compute.delete_server),
            ("group", compute.server_groups, compute.delete_server_group),
        ):
            own = _own(found())
            for each in own:
                delete(each.id)
            _until(partial(_none_left, found), f"each {noun} to be deleted")
            counts[noun] = len(own)
        removed = ", ".join(counted(number, noun) for noun, number in counts.items() if number)
        yield f"{name}: removed {removed or 'nothing'}"


def _own(found: Any) -> list[Any]:
    return [each for each in found if each.name.startswith(PREFIX)]


def _none_left(found: Callable[[], Any]) -> bool:
    return not _own(found())


def _until(done: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _SECONDS
    while not done():
        if time.monotonic() > end:
            raise Unavailable(f"Gave up after {_SECONDS:.0f} seconds without {what}; is an engine running?")
        time.sleep(_POLL_SECONDS)
