"""Fills a database as Senlin 16 does, with its own migrations, profiles, policies, clusters, nodes and receivers.

It runs in its own environment, with Senlin and without Roost: see `make senlin-import-test`. Senlin's engine does
not run: what it would have asked of Nova, Octavia and Keystone is answered by `Services` below, and everything that
goes into the database goes through Senlin's own code.

    python tests/imports/senlin_maker.py mysql+pymysql://root@127.0.0.1/senlin

For a new stored copy: `... senlin_maker.py sqlite:///new.db`, and `sqlite3 new.db .dump > tests/imports/senlin-16.sql`.
"""

import itertools
import logging
import sqlite3
import sys
import types
import uuid
from typing import Any
from unittest import mock

from oslo_config import cfg
from oslo_context import context as oslo_context
from oslo_utils import timeutils
from senlin.common import config, consts, context
from senlin.db import api as db_api
from senlin.db.sqlalchemy import migration
from senlin.engine import cluster as clusters
from senlin.engine import environment
from senlin.engine import node as nodes
from senlin.engine.actions import base as actions
from senlin.engine.receivers import base as receivers
from senlin.events.database import DBEvent
from senlin.policies import base as policies
from senlin.profiles import base as profiles

USER, PROJECT = "5e1f0000000000000000000000000001", "5e1f0000000000000000000000000002"
_numbers = itertools.count(1)


def next_id() -> str:
    """Ids that are the same each time, so that the stored database changes only where Senlin's code does."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"senlin {next(_numbers)}"))


class Services:
    """What Senlin's policies ask of the cloud when they are attached."""

    def server_group_find(self, name: str, ignore_missing: bool) -> None:
        return None

    def server_group_create(self, **_: Any) -> Any:
        return types.SimpleNamespace(id="9a000000-0000-4000-8000-000000000001")

    def lb_create(self, *_: Any) -> Any:
        made = {"loadbalancer": "lb-1", "listener": "listener-1", "pool": "pool-1", "healthmonitor": "monitor-1"}
        return True, {**made, "vip_address": "192.0.2.10"}

    def member_add(self, node: Any, *_: Any) -> str:
        return f"member-{node.index}"


def spec(kind: str, version: str = "1.0", **properties: Any) -> dict[str, Any]:
    return {"type": kind, "version": version, "properties": properties}


class Maker:
    """Makes things as Senlin's engine does."""

    def __init__(self) -> None:
        self.context = context.RequestContext(
            user_id=USER, project_id=PROJECT, trusts=["trust-1"], is_admin=True, domain_id="default"
        )
        oslo_context._request_store.context = self.context

    def profile(self, name: str, made: dict[str, Any]) -> Any:
        found = profiles.Profile(name, made, user=USER, project=PROJECT, metadata={"team": "web"})
        found.validate()
        with mock.patch("oslo_utils.uuidutils.generate_uuid", next_id):
            found.store(self.context)
        return found

    def policy(self, name: str, made: dict[str, Any]) -> Any:
        found = policies.Policy(name, made, user=USER, project=PROJECT, domain="default")
        found.validate(self.context)
        found.store(self.context)
        return found

    def cluster(self, name: str, profile: Any, size: int, **more: Any) -> Any:
        given = {"min_size": 0, "max_size": 10, "user": USER, "project": PROJECT, "domain": "", **more}
        made = clusters.Cluster(name, size, profile.id, **given)
        made.store(self.context)
        for _ in range(size):
            self.node(f"{name}-node", profile, made, next(self.indexes(made)))
        made.set_status(self.context, consts.CS_ACTIVE, "CLUSTER_CREATE: number of active nodes is equal or above")
        return clusters.Cluster.load(self.context, cluster_id=made.id)

    def indexes(self, cluster: Any) -> Any:
        yield db_api.cluster_next_index(self.context, cluster.id)

    def node(self, name: str, profile: Any, cluster: Any = None, index: int = -1, **more: Any) -> Any:
        made = nodes.Node(
            f"{name}-{max(index, 0):03d}",
            profile.id,
            cluster.id if cluster else "",
            context=self.context,
            index=index,
            user=USER,
            project=PROJECT,
            physical_id=next_id(),
            data={"placement": {"zone": f"zone{index % 3 + 1}"}} if index > 0 else {},
            **more,
        )
        made.store(self.context)
        made.set_status(self.context, consts.NS_ACTIVE, "Creation succeeded", created_at=timeutils.utcnow(True))
        return made

    def attach(self, cluster: Any, policy: Any, enabled: bool = True) -> None:
        """As the action CLUSTER_ATTACH_POLICY does."""
        ok, reason = cluster.attach_policy(self.context, policy.id, {"enabled": enabled})
        assert ok, reason
        cluster.store(self.context)

    def busy(self, cluster: Any) -> None:
        """An engine is at work on it, or died at it."""
        made = actions.Action(
            cluster.id,
            consts.CLUSTER_SCALE_OUT,
            self.context,
            name="scale",
            cause=consts.CAUSE_RPC,
            status="RUNNING",
            cluster_id=cluster.id,
            inputs={"count": 2},
        )
        made.store(self.context)
        assert db_api.cluster_lock_acquire(cluster.id, made.id, -1)


def fill(maker: Maker) -> None:
    """A bit of everything: what comes, what cannot, what is in progress."""
    server = spec(
        "os.nova.server", flavor="1", image="cirros-0.6.2-x86_64-disk", name="web", networks=[{"network": "public"}]
    )
    web = maker.profile("web", server)
    stack = maker.profile("stack", spec("os.heat.stack", template={"heat_template_version": "2021-04-16"}))
    maker.profile("spare", {**server, "version": 1.0})
    zones = [{"name": "zone1", "weight": 100}, {"name": "zone2", "weight": 100}, {"name": "zone3", "weight": 100}]
    made = {
        "scaling": spec("senlin.policy.scaling", event="CLUSTER_SCALE_OUT", adjustment={"number": 2, "cooldown": 60}),
        "deletion": spec("senlin.policy.deletion", criteria="OLDEST_FIRST", destroy_after_deletion=True),
        "zones": spec("senlin.policy.zone_placement", zones=zones),
        "apart": spec("senlin.policy.affinity", servergroup={"name": "apart", "policies": "soft-anti-affinity"}),
        "pinned": spec("senlin.policy.affinity", servergroup={"policies": "anti-affinity"}, availability_zone="zone1"),
        "health": spec(
            "senlin.policy.health",
            "1.1",
            detection={"interval": 60, "detection_modes": [{"type": "NODE_STATUS_POLLING"}]},
            recovery={"actions": [{"name": "RECREATE"}]},
        ),
        "balance": spec(
            "senlin.policy.loadbalance",
            "1.1",
            pool={"protocol_port": 8080, "subnet": "private"},
            vip={"subnet": "private", "protocol_port": 80},
        ),
        "nothing": spec("senlin.policy.zone_placement", zones=[{"name": "zone1", "weight": 0}]),
    }
    policy = {name: maker.policy(name, each) for name, each in made.items()}
    main = maker.cluster("main", web, 3, metadata={"tier": "front"}, config={"node.name.format": "web-$3I"})
    for name in ("scaling", "deletion", "zones", "apart", "health"):
        maker.attach(main, policy[name])
    behind = maker.cluster("behind", web, 2)
    maker.attach(behind, policy["balance"])
    maker.attach(behind, policy["nothing"])
    odd = maker.cluster("odd", web, 1)
    maker.attach(odd, policy["zones"])
    maker.attach(odd, policy["pinned"])
    odd.set_status(maker.context, consts.CS_RESIZING, "left by an engine that died")
    maker.cluster("stacks", stack, 1)
    maker.busy(maker.cluster("growing", web, 2))
    maker.node("alone", web, role="master")
    for name, action in (("out", consts.CLUSTER_SCALE_OUT), ("add", consts.CLUSTER_ADD_NODES)):
        receivers.Receiver.create(maker.context, "webhook", main, action, name=name, params={"count": 2})
    receivers.Receiver.create(maker.context, "message", None, None, name="letters", params={})
    for cluster in (main, behind):
        DBEvent.dump(logging.INFO, _finished(maker, cluster), phase=consts.PHASE_END, reason="scaled out")


def _finished(maker: Maker, cluster: Any) -> Any:
    made = actions.Action(cluster.id, consts.CLUSTER_SCALE_OUT, maker.context, cause=consts.CAUSE_RPC)
    made.entity = cluster
    return made


def main(url: str) -> None:
    """Make the tables, then fill them."""
    config.parse_args([], "senlin")
    cfg.CONF.set_override("connection", url, "database")
    cfg.CONF.set_override("host", "senlin.example", "receiver")
    if url.startswith("sqlite:///"):
        # Sessions that Senlin leaves open read on while others write.
        sqlite3.connect(url.removeprefix("sqlite:///")).execute("PRAGMA journal_mode = WAL")
    migration.db_sync(url)
    environment.initialize()
    services, maker = Services(), Maker()

    def register(cluster_id: str, engine_id: str | None = None, **given: Any) -> Any:
        kept = (consts.NODE_STATUS_POLLING, given["interval"], given["params"], "engine-1")
        return db_api.registry_create(maker.context, cluster_id, *kept)

    db_api.cred_create(maker.context, {"user": USER, "project": PROJECT, "cred": {"openstack": {"trust": "trust-1"}}})
    with (
        mock.patch.object(policies.Policy, "nova", return_value=services),
        mock.patch.object(policies.Policy, "lbaas", return_value=services),
        mock.patch("senlin.engine.health_manager.register", register),
        mock.patch("senlin.policies.zone_placement.ZonePlacementPolicy.validate"),
        mock.patch("senlin.policies.affinity_policy.AffinityPolicy.validate"),
        mock.patch.multiple(
            "senlin.engine.receivers.message.Message",
            _create_queue=lambda it: f"senlin-receiver-{it.id}",
            _create_subscription=lambda it, queue: types.SimpleNamespace(subscription_id="subscription-1"),
        ),
        mock.patch("oslo_utils.uuidutils.generate_uuid", next_id),
        mock.patch("senlin.db.sqlalchemy.models.UUID4", next_id),
    ):
        fill(maker)


if __name__ == "__main__":
    main(sys.argv[1])
