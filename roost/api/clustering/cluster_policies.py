"""Which policies govern a cluster."""

from roost.api.clustering.handling import request_context
from roost.api.clustering.lists import Listing, boolean, text
from roost.api.clustering.shapes import Shape
from roost.api.permissions import READER, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import array, thing
from roost.clusters import lookup
from roost.clusters.clusters import RequestContext
from roost.clusters.errors import PolicyBindingNotFound
from roost.clusters.records import BINDING_DETAILS, POLICIES, BindingDetails
from roost.store.pages import EVERYTHING

RULES = (
    Permission("cluster_policies:index", READER, "List the policies on a cluster."),
    Permission("cluster_policies:get", READER, "Show a policy on a cluster."),
)
routes = Table("/v1/clusters/{cluster_id}/policies", context=request_context)

_LISTING = Listing(
    BINDING_DETAILS,
    sorts=("enabled",),
    default_sort=None,
    filters={"enabled": lambda value: boolean("enabled", value), "policy_name": text, "policy_type": text},
    paged=False,
)


_SHAPE = Shape(BindingDetails)
_BINDING = _SHAPE.schema()


@routes.get("", rule="cluster_policies:index", response=thing({"cluster_policies": array(_BINDING)}))
async def index(call: Call, request: RequestContext) -> Reply:
    """The policies on a cluster."""
    page = _LISTING.read(call)
    cluster = await request.find(call.path["cluster_id"], lock=False)
    found = await _LISTING.records(request.connection, call, page, cluster_id=cluster.id)
    return {"cluster_policies": [_SHAPE.show(binding) for binding in found]}


@routes.get("/{policy_id}", rule="cluster_policies:get", response=thing({"cluster_policy": _BINDING}))
async def show(call: Call, request: RequestContext) -> Reply:
    """One policy on a cluster."""
    cluster = await request.find(call.path["cluster_id"], lock=False)
    policy = await lookup.find(request.connection, POLICIES, call.path["policy_id"], call.caller)
    own = {"cluster_id": [cluster.id], "policy_id": [policy.id]}
    found = await lookup.read_page(request.connection, BINDING_DETAILS, EVERYTHING, (), own, None)
    if not found:
        raise PolicyBindingNotFound(call.path["policy_id"], call.path["cluster_id"])
    return {"cluster_policy": _SHAPE.show(found[0])}
