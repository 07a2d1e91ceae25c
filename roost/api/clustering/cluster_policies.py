"""Which policies govern a cluster."""

from typing import Any

import sqlalchemy as sa

from roost.api.clustering import shapes
from roost.api.clustering.handling import request_context
from roost.api.clustering.lists import Listing, boolean, text
from roost.api.clustering.moments import moment
from roost.api.permissions import READER, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import STRING, array, thing
from roost.clusters import lookup
from roost.clusters.errors import PolicyBindingNotFound
from roost.store.tables.clusters import cluster_policies, clusters, policies

RULES = (
    Permission("cluster_policies:index", READER, "List the policies on a cluster."),
    Permission("cluster_policies:get", READER, "Show a policy on a cluster."),
)
routes = Table("/v1/clusters/{cluster_id}/policies")

_LISTING = Listing(
    cluster_policies,
    sorts=("enabled",),
    default_sort=None,
    filters={"enabled": lambda value: boolean("enabled", value), "policy_name": text, "policy_type": text},
    paged=False,
)


def _query() -> sa.Select[Any]:
    return (
        sa.select(
            cluster_policies,
            policies.c.name.label("policy_name"),
            policies.c.type.label("policy_type"),
            clusters.c.name.label("cluster_name"),
        )
        .join(policies, policies.c.id == cluster_policies.c.policy_id)
        .join(clusters, clusters.c.id == cluster_policies.c.cluster_id)
    )


def _view(row: sa.Row[Any]) -> dict[str, Any]:
    return {
        "id": row.id,
        "cluster_id": row.cluster_id,
        "cluster_name": row.cluster_name,
        "policy_id": row.policy_id,
        "policy_name": row.policy_name,
        "policy_type": row.policy_type,
        "enabled": row.enabled,
        "priority": row.priority,
        "data": row.data,
        "last_op": moment(row.last_op),
    }


_NAMES = {"cluster_name": STRING, "policy_name": STRING, "policy_type": STRING}
_BINDING = thing(shapes.of(cluster_policies, hides=("created_at",), **_NAMES))


@routes.get("", rule="cluster_policies:index", response=thing({"cluster_policies": array(_BINDING)}))
async def index(call: Call) -> Reply:
    """The policies on a cluster."""
    page = _LISTING.read(call)
    names = {"policy_name": policies.c.name, "policy_type": policies.c.type}
    conditions = [column.in_(page.filters[key]) for key, column in names.items() if key in page.filters]
    if "enabled" in page.filters:
        conditions.append(cluster_policies.c.enabled.in_(page.filters["enabled"]))
    order = [cluster_policies.c[name].desc() if down else cluster_policies.c[name] for name, down in page.order]
    async with request_context(call) as request:
        cluster = await request.find(call.path["cluster_id"], lock=False)
        query = _query().where(cluster_policies.c.cluster_id == cluster.id, *conditions)
        rows = (await request.connection.execute(query.order_by(*order, cluster_policies.c.id))).all()
    return {"cluster_policies": [_view(row) for row in rows]}


@routes.get("/{policy_id}", rule="cluster_policies:get", response=thing({"cluster_policy": _BINDING}))
async def show(call: Call) -> Reply:
    """One policy on a cluster."""
    async with request_context(call) as request:
        cluster = await request.find(call.path["cluster_id"], lock=False)
        policy = await lookup.find(request.connection, policies, "policy", call.path["policy_id"], call.caller)
        query = _query().where(cluster_policies.c.cluster_id == cluster.id, cluster_policies.c.policy_id == policy.id)
        row = (await request.connection.execute(query)).one_or_none()
    if row is None:
        raise PolicyBindingNotFound(call.path["policy_id"], call.path["cluster_id"])
    return {"cluster_policy": _view(row)}
