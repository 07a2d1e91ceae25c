"""What can be asked of every route: with the ids of things in its path and in its body, in every version.

The routes come from the route table. A route that takes a body must stand in `BODIES`, with bodies that would do for
the owner of the things that they name; a variable of a path must be a thing that tenants have, or the operator's.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from roost.api.app import all_routes
from roost.api.frame import Api
from roost.api.routes import Route
from roost.api.versions import Version
from roost.compute.fronting.choice import COLUMNS
from roost.network.addresses import PUBLIC
from tests.compute.cloud import IMAGE
from tests.security.world import PUBLIC_KEY, Things

Body = Callable[[Things, Version], Any]
"""A body that names these things."""


@dataclass(frozen=True)
class Probe:
    """A request to be made."""

    row: str
    """Of the route table."""
    method: str
    path: str
    version: str | None
    query: Mapping[str, str]
    body: Any = None
    public: bool = False
    """Answered to everybody alike."""

    def __str__(self) -> str:
        said = f"{self.method} {self.path} ({self.version or '-'})"
        said += f" {dict(self.query)}" if self.query else ""
        return said + (f" {self.body}" if self.body is not None else "")

    @property
    def request(self) -> dict[str, Any]:
        """As keywords of a request."""
        body = {} if self.body is None else {"json": self.body}
        return {"method": self.method, "path": self.path, "version": self.version, "params": self.query, **body}


# What only the operator has, and may name; a tenant is refused before it is looked up.
OPERATORS = {
    **{"aggregate_id": "1", "host_name": "host", "hypervisor_id": "1", "service_id": "1"},
    **{"group_id": "1", "implied_id": "1", "endpoint_id": "1", "region_id": "RegionOne", "kind": "servers"},
    "migration_id": "1",
    "drain_id": "1",
}
_NAMED = {
    "/compute/v2.1/os-quota-class-sets/{name}": "quota_class",
    "/volume/v3/os-quota-class-sets/{name}": "quota_class",
    "/web/{name}": "file",
    "/compute/v2.1/extensions/{alias}": "compute_alias",
}


def _server(**more: str) -> Body:
    def body(things: Things, version: Version) -> Any:
        server = {"name": "probe", "flavorRef": "1", "imageRef": IMAGE}
        server |= {key: things[kind] for key, kind in more.items()}
        return {"server": {**server, **({"networks": "none"} if version >= Version(2, 37) else {})}}

    return body


def _named(things: Things, version: Version, networks: list[dict[str, str]]) -> Any:
    """A server on these networks."""
    return {"server": {**_server()(things, version)["server"], "networks": networks}}


def _hinted(**hints: str) -> Body:
    def body(things: Things, version: Version) -> Any:
        return {**_server()(things, version), "os:scheduler_hints": {key: things[kind] for key, kind in hints.items()}}

    return body


def _always(body: Any) -> Body:
    return lambda things, version: body


def _filled(body: Any) -> Body:
    """With `<kind>` replaced by the thing of that kind, wherever it stands."""

    def fill(part: Any, things: Things) -> Any:
        if isinstance(part, dict):
            return {fill(key, things): fill(value, things) for key, value in part.items()}
        if isinstance(part, list):
            return [fill(each, things) for each in part]
        return re.sub("<([a-z_]+)>", lambda found: things[found[1]], part) if isinstance(part, str) else part

    return lambda things, version: fill(body, things)


def _group(things: Things, version: Version) -> Any:
    if version < Version(2, 64):
        policies: Any = {"policies": ["anti-affinity"]}
    elif version < Version(2, 1001):
        policies = {"policy": "affinity", "rules": {"scope": "veiled", "identifier": things["identifier"]}}
    elif version == Version(2, 1001):
        policies = {"policy": {"name": "anti-affinity"}}
    elif version == Version(2, 1002):
        policies = {"policies": [f"affinity:veiled:{things['identifier']}"]}
    else:
        policies = {"policies": [{"name": "affinity", "scope": "veiled", "identifier": things["identifier"]}]}
    return {"server_group": {"name": "probe", **policies}}


def _keypair(things: Things, version: Version) -> Any:
    whose = {"user_id": things["user_id"]} if version >= Version(2, 10) else {}
    return {"keypair": {"name": f"{things['mark']}-{version}", "public_key": PUBLIC_KEY, **whose}}


def _spec(**properties: Any) -> Any:
    whole = {"flavor": "1", "image": IMAGE, **properties}
    return {"spec": {"type": "os.nova.server", "version": "1.0", "properties": whole}}


_POLICY = {"spec": {"type": "senlin.policy.deletion", "version": "1.0", "properties": {"criteria": "RANDOM"}}}
_AGGREGATE = {"plan": {"lose": {"scope": "veiled", "identifier": "<identifier>"}}}
_V21, _V1, _V3 = "/compute/v2.1", "/clustering/v1", "/identity/v3"
_OWNED_GROUP = f"{_V21}/os-server-groups/{{server_group_id}}"

BODIES: Mapping[str, tuple[Body, ...]] = {
    f"POST {_V3}/auth/tokens": (
        _filled(
            {
                "auth": {
                    "identity": {"methods": ["password"], "password": {"user": {"id": "<user_id>", "password": "x"}}},
                    "scope": {"project": {"id": "<project_id>"}},
                }
            }
        ),
    ),
    f"POST {_V3}/projects": (_always({"project": {"name": "probe"}}),),
    f"PATCH {_V3}/projects/{{project_id}}": (_always({"project": {"enabled": False}}),),
    f"POST {_V3}/users": (_always({"user": {"name": "probe"}}),),
    f"PATCH {_V3}/users/{{user_id}}": (_always({"user": {"enabled": False}}),),
    f"POST {_V3}/users/{{user_id}}/password": (_always({"user": {"original_password": "x", "password": "y"}}),),
    **{
        f"{method} /network/v2.0/{path}": (body,)
        for method, path, body in (
            ("POST", "networks", _always({"network": {"name": "probe"}})),
            ("PUT", "networks/{network_id}", _always({"network": {"name": "probe"}})),
            (
                "POST",
                "subnets",
                _filled({"subnet": {"network_id": "<network_id>", "ip_version": 4, "cidr": "192.0.2.0/24"}}),
            ),
            ("PUT", "subnets/{subnet_id}", _always({"subnet": {"name": "probe"}})),
            ("POST", "ports", _filled({"port": {"network_id": "<network_id>"}})),
            ("PUT", "ports/{port_id}", _filled({"port": {"security_groups": ["<security_group_id>"]}})),
            (
                "POST",
                "floatingips",
                _filled({"floatingip": {"floating_network_id": PUBLIC, "port_id": "<port_id>"}}),
            ),
            ("POST", "routers", _always({"router": {"name": "probe"}})),
            ("PUT", "routers/{router_id}", _always({"router": {"name": "probe"}})),
            ("PUT", "routers/{router_id}/add_router_interface", _filled({"subnet_id": "<subnet_id>"})),
            ("PUT", "routers/{router_id}/remove_router_interface", _filled({"subnet_id": "<subnet_id>"})),
            ("PUT", "floatingips/{floatingip_id}", _filled({"floatingip": {"port_id": "<port_id>"}})),
            ("POST", "security-groups", _always({"security_group": {"name": "probe"}})),
            ("PUT", "security-groups/{security_group_id}", _always({"security_group": {"name": "probe"}})),
            (
                "POST",
                "security-group-rules",
                _filled({"security_group_rule": {"security_group_id": "<security_group_id>", "direction": "ingress"}}),
            ),
            (
                "PUT",
                "security-group-rules/{security_group_rule_id}",
                _always({"security_group_rule": {"description": "probe"}}),
            ),
            ("PUT", "quotas/{project_id}", _always({"quota": {"network": 1}})),
            *(
                ("PUT", f"{plural}/{{{singular}_id}}/tags", _always({"tags": ["probe"]}))
                for plural, singular in (
                    *(("networks", "network"), ("subnets", "subnet"), ("ports", "port")),
                    *(("floatingips", "floatingip"), ("routers", "router")),
                    ("security-groups", "security_group"),
                    ("security-group-rules", "security_group_rule"),
                )
            ),
        )
    },
    **{
        f"{method} /volume/v3/{path}": (body,)
        for method, path, body in (
            ("POST", "volumes", _filled({"volume": {"size": 1, "source_volid": "<volume_id>"}})),
            ("PUT", "volumes/{volume_id}", _always({"volume": {"name": "probe"}})),
            ("POST", "volumes/{volume_id}/action", _always({"os-extend": {"new_size": 2}})),
            ("POST", "snapshots", _filled({"snapshot": {"volume_id": "<source_volume_id>"}})),
            ("PUT", "snapshots/{snapshot_id}", _always({"snapshot": {"name": "probe"}})),
            *(
                (method, f"{one}/metadata{key}", _always(body))
                for one in ("volumes/{volume_id}", "snapshots/{snapshot_id}")
                for method, key, body in (
                    ("POST", "", {"metadata": {"probe": "x"}}),
                    ("PUT", "", {"metadata": {"kept": "x"}}),
                    ("PUT", "/{key}", {"meta": {"kept": "x"}}),
                )
            ),
            ("POST", "types", _always({"volume_type": {"name": "probe"}})),
            ("PUT", "types/{type_id}", _always({"volume_type": {"description": "probe"}})),
            ("POST", "types/{type_id}/extra_specs", _always({"extra_specs": {"kept": "x"}})),
            ("POST", "types/{type_id}/action", _filled({"addProjectAccess": {"project": "<project_id>"}})),
            ("PUT", "os-quota-sets/{project_id}", _always({"quota_set": {"volumes": 1}})),
            ("PUT", "os-quota-class-sets/{name}", _always({"quota_class_set": {"volumes": 1}})),
        )
    },
    **{
        f"{method} /image/v2/metadefs/namespaces{path}": (_always(body),)
        for method, path, body in (
            ("POST", "", {"namespace": "probe"}),
            ("PUT", "/{namespace}", {"namespace": "probe"}),
            ("POST", "/{namespace}/tags", {"tags": [{"name": "probe"}]}),
            ("POST", "/{namespace}/resource_types", {"name": "probe"}),
            *(
                (method, f"/{{namespace}}/{kind}{name}", {"name": "probe", "title": "x", "type": "string"})
                for kind in ("objects", "properties", "tags")
                for method, name in (("POST", ""), ("PUT", "/{name}"))
                if (kind, method) != ("tags", "POST")
            ),
        )
    },
    "POST /image/v2/images": (_always({"name": "probe"}),),
    "PATCH /image/v2/images/{image_id}": (_always([{"op": "replace", "path": "/name", "value": "probe"}]),),
    "POST /image/v2/images/{image_id}/members": (_always({"member": "probe"}),),
    "PUT /image/v2/images/{image_id}/members/{member}": (_always({"status": "accepted"}),),
    f"PUT {_V21}/servers/{{server_id}}/tags": (_always({"tags": ["tagged"]}),),
    f"POST {_V21}/servers/{{server_id}}/remote-consoles": (
        _always({"remote_console": {"protocol": "vnc", "type": "novnc"}}),
    ),
    f"POST {_V21}/servers/{{server_id}}/os-volume_attachments": (
        _filled({"volumeAttachment": {"volumeId": "<volume_id>"}}),
    ),
    f"PUT {_V21}/servers/{{server_id}}/os-volume_attachments/{{volume_id}}": (
        _filled({"volumeAttachment": {"volumeId": "<volume_id>", "delete_on_termination": True}}),
    ),
    f"POST {_V21}/os-server-external-events": (
        _filled({"events": [{"name": "network-changed", "server_uuid": "<server_id>"}]}),
    ),
    f"POST {_V21}/servers/{{server_id}}/os-interface": (
        _filled({"interfaceAttachment": {"net_id": "<network_id>"}}),
        _filled({"interfaceAttachment": {"port_id": "<port_id>"}}),
    ),
    f"PUT {_V3}/projects/{{project_id}}/tags": (_always({"tags": ["probe"]}),),
    f"POST {_V3}/users/{{user_id}}/application_credentials": (
        _filled({"application_credential": {"name": "<mark>"}}),
        _filled({"application_credential": {"name": "<mark> 2", "access_rules": [{"id": "<rule_id>"}]}}),
    ),
    f"POST {_V3}/domains": (_always({"domain": {"name": "probe"}}),),
    f"PATCH {_V3}/domains/{{domain_id}}": (_always({"domain": {"enabled": False}}),),
    f"POST {_V3}/groups": (_always({"group": {"name": "probe"}}),),
    f"PATCH {_V3}/groups/{{group_id}}": (_always({"group": {"name": "probe"}}),),
    f"POST {_V3}/roles": (_always({"role": {"name": "probe"}}),),
    f"PATCH {_V3}/roles/{{role_id}}": (_always({"role": {"name": "probe"}}),),
    f"POST {_V3}/services": (_always({"service": {"type": "probe"}}),),
    f"PATCH {_V3}/services/{{service_id}}": (_always({"service": {"type": "probe"}}),),
    f"POST {_V3}/endpoints": (_always({"endpoint": {"service_id": "1", "interface": "public", "url": "x"}}),),
    f"PATCH {_V3}/endpoints/{{endpoint_id}}": (_always({"endpoint": {"url": "x"}}),),
    f"POST {_V3}/regions": (_always({"region": {"id": "probe"}}),),
    f"PATCH {_V3}/regions/{{region_id}}": (_always({"region": {"description": "probe"}}),),
    f"POST {_V3}/policies": (_always({"policy": {"type": "text/plain", "blob": "probe"}}),),
    f"PATCH {_V3}/policies/{{policy_id}}": (_always({"policy": {"blob": "probe"}}),),
    f"POST {_V3}/registered_limits": (
        _always({"registered_limits": [{"service_id": "1", "resource_name": "probe", "default_limit": 1}]}),
    ),
    f"PATCH {_V3}/registered_limits/{{registered_limit_id}}": (_always({"registered_limit": {"default_limit": 1}}),),
    f"POST {_V3}/limits": (
        _filled(
            {
                "limits": [
                    {
                        **{"service_id": "1", "resource_name": "probe", "resource_limit": 1},
                        "project_id": "<project_id>",
                    }
                ]
            }
        ),
    ),
    f"PATCH {_V3}/limits/{{limit_id}}": (_always({"limit": {"resource_limit": 1}}),),
    f"PUT {_V21}/servers/{{server_id}}": (_always({"server": {"name": "probe"}}),),
    f"POST {_V21}/servers": (
        _server(),
        _server(key_name="name"),
        _server(flavorRef="flavor_id"),
        lambda things, version: _named(things, version, [{"uuid": things["network_id"]}]),
        lambda things, version: _named(things, version, [{"port": things["port_id"]}]),
        _hinted(group="server_group_id"),
        _hinted(same_host="server_id"),
        _hinted(different_host="server_id"),
    ),
    f"POST {_V21}/servers/{{server_id}}/action": (
        _always({"lock": None}),
        _always({"reboot": {"type": "SOFT"}}),
        _filled({"resize": {"flavorRef": "<flavor_id>"}}),
        _always({"os-stop": None}),
        _always({"createImage": {"name": "probe"}}),
        _filled({"addSecurityGroup": {"name": "<security_group_id>"}}),
        _filled({"rebuild": {"imageRef": "<image_id>"}}),
    ),
    f"POST {_V21}/servers/{{server_id}}/metadata": (_always({"metadata": {"probe": "x"}}),),
    f"PUT {_V21}/servers/{{server_id}}/metadata": (_always({"metadata": {"kept": "x"}}),),
    f"PUT {_V21}/servers/{{server_id}}/metadata/{{key}}": (_always({"meta": {"kept": "x"}}),),
    f"POST {_V21}/os-server-groups": (_group,),
    f"POST {_OWNED_GROUP}": (_group,),
    f"POST {_OWNED_GROUP}/action": (
        _filled({"add_instance": {"instance_id": "<loner_id>"}}),
        _filled({"remove_instance": {"instance_id": "<member_id>"}}),
    ),
    f"POST {_OWNED_GROUP}/explain": (
        _always({"explain": {"flavorRef": "1", "count": 2}}),
        _filled({"explain": {"flavorRef": "<flavor_id>"}}),
    ),
    f"POST {_OWNED_GROUP}/plan": (
        _always({"plan": {"create": {"flavorRef": "1", "count": 1, "imageRef": IMAGE}}}),
        _filled({"plan": {"create": {"flavorRef": "<flavor_id>", "count": 1}}}),
        _filled({"plan": {"add_servers": ["<loner_id>"]}}),
        _filled({"plan": {"remove_servers": ["<member_id>"]}}),
        _filled(_AGGREGATE),
        _filled({"plan": {"drain": _AGGREGATE["plan"]["lose"]}}),
        _filled({"plan": {"create": {"flavorRef": "1", "count": 1, "imageRef": IMAGE}, "generation": "<generation>"}}),
    ),
    f"POST {_V21}/os-server-groups/plan": (_filled(_AGGREGATE),),
    f"POST {_OWNED_GROUP}/repairs": (_always({"repair": {"dry_run": True}}), _always({"repair": {}})),
    f"PUT {_OWNED_GROUP}/repairs/{{repair_id}}": (_always({"repair": {"paused": True}}),),
    f"POST {_V21}/servers/{{server_id}}/explain": (_filled({"explain": {"flavorRef": "<flavor_id>"}}),),
    f"POST {_V21}/os-server-groups/explain": (
        _filled({"explain": {"flavorRef": "<flavor_id>", "policies": [{"name": "anti-affinity"}]}}),
    ),
    f"POST {_V21}/os-drains": (_always({"drain": {"scope": "host", "identifier": "host"}}),),
    f"PUT {_V21}/os-drains/{{drain_id}}": (_always({"drain": {"paused": True}}),),
    f"PUT {_OWNED_GROUP}/repair": (_always({"repair": {"continuous": True}}),),
    f"POST {_V21}/os-rule-meanings": (_always({"groups": [[{"name": "anti-affinity"}]]}),),
    f"POST {_V21}/os-policy-scopes": (_always({"policy_scope": {"name": "probe"}}),),
    f"POST {_V21}/os-policy-scopes/{{policy_scope_id}}": (_always({"policy_scope": {"name": "probe"}}),),
    f"POST {_V21}/os-policy-scopes/{{policy_scope_id}}/action": (_always({"add_aggregate": {"aggregate_id": 1}}),),
    f"POST {_V21}/os-aggregates": (_always({"aggregate": {"name": "probe"}}),),
    f"PUT {_V21}/os-aggregates/{{aggregate_id}}": (_always({"aggregate": {"name": "probe"}}),),
    f"POST {_V21}/os-aggregates/{{aggregate_id}}/action": (_always({"add_host": {"host": "host"}}),),
    f"POST {_V21}/os-aggregates/{{aggregate_id}}/images": (_always({"cache": [{"id": IMAGE}]}),),
    f"POST {_V21}/flavors": (_always({"flavor": {"name": "probe", "vcpus": 1, "ram": 1, "disk": 1}}),),
    f"PUT {_V21}/flavors/{{flavor_id}}": (_always({"flavor": {"description": "probe"}}),),
    f"POST {_V21}/flavors/{{flavor_id}}/os-extra_specs": (_always({"extra_specs": {"kept": "x"}}),),
    f"PUT {_V21}/flavors/{{flavor_id}}/os-extra_specs/{{key}}": (_always({"kept": "x"}),),
    f"POST {_V21}/flavors/{{flavor_id}}/action": (_filled({"addTenantAccess": {"tenant": "<project_id>"}}),),
    f"POST {_V21}/os-keypairs": (_keypair,),
    f"PUT {_V21}/os-quota-sets/{{project_id}}": (_always({"quota_set": {"cores": 1}}),),
    f"PUT {_V21}/os-quota-class-sets/{{name}}": (_always({"quota_class_set": {"cores": 1}}),),
    f"PUT {_V21}/os-services/{{service_id}}": (_always({"host": "host", "binary": "nova-compute"}),),
    f"POST {_V1}/profiles": (
        _filled({"profile": {"name": "probe", **_spec()}}),
        _filled({"profile": {"name": "probe", **_spec(flavor="<flavor_id>")}}),
        _filled({"profile": {"name": "probe", **_spec(key_name="<name>")}}),
    ),
    f"POST {_V1}/profiles/validate": (
        _filled({"profile": _spec(flavor="<flavor_id>")}),
        _filled({"profile": _spec(key_name="<name>")}),
    ),
    f"PATCH {_V1}/profiles/{{profile_id}}": (_always({"profile": {"name": "probe"}}),),
    f"POST {_V1}/policies": (_always({"policy": {"name": "probe", **_POLICY}}),),
    f"POST {_V1}/policies/validate": (_always({"policy": _POLICY}),),
    f"PATCH {_V1}/policies/{{policy_id}}": (_always({"policy": {"name": "probe"}}),),
    f"POST {_V1}/clusters": (
        _filled({"cluster": {"name": "probe", "profile_id": "<profile_id>"}}),
        _filled(
            {
                "cluster": {
                    "name": "probe",
                    "profile_id": "<profile_id>",
                    "config": {"cluster.policies": ["<policy_id>"]},
                }
            }
        ),
    ),
    f"PATCH {_V1}/clusters/{{cluster_id}}": (
        _filled({"cluster": {"profile_id": "<spare_profile_id>"}}),
        _always({"cluster": {"name": "probe"}}),
    ),
    f"POST {_V1}/clusters/{{cluster_id}}/actions": (
        _filled({"add_nodes": {"nodes": ["<node_id>"]}}),
        _filled({"del_nodes": {"nodes": ["<member_node_id>"]}}),
        _filled({"replace_nodes": {"<member_node_id>": "<node_id>"}}),
        _filled({"policy_attach": {"policy_id": "<loose_policy_id>"}}),
        _filled({"policy_update": {"policy_id": "<policy_id>", "enabled": False}}),
        _filled({"policy_detach": {"policy_id": "<policy_id>"}}),
        _filled({"complete_lifecycle": {"lifecycle_action_token": "<action_id>"}}),
        _filled({"scale_out": {"count": 1}}),
        _filled({"check": {}}),
    ),
    f"POST {_V1}/clusters/{{cluster_id}}/ops": (_always({"pause": {}}),),
    f"POST {_V1}/nodes": (
        _filled({"node": {"name": "probe", "profile_id": "<profile_id>"}}),
        _filled({"node": {"name": "probe", "profile_id": "<profile_id>", "cluster_id": "<cluster_id>"}}),
    ),
    f"POST {_V1}/nodes/adopt": (_filled({"identity": "<loner_id>", "type": "os.nova.server-1.0", "name": "probe"}),),
    f"POST {_V1}/nodes/adopt-preview": (_filled({"identity": "<loner_id>", "type": "os.nova.server-1.0"}),),
    f"PATCH {_V1}/nodes/{{node_id}}": (
        _filled({"node": {"profile_id": "<spare_profile_id>"}}),
        _always({"node": {"name": "probe"}}),
    ),
    f"POST {_V1}/nodes/{{node_id}}/actions": (_always({"check": {}}),),
    f"POST {_V1}/nodes/{{node_id}}/ops": (_always({"pause": {}}),),
    f"PATCH {_V1}/actions/{{action_id}}": (_always({"action": {"status": "CANCELLED"}}),),
    f"POST {_V1}/receivers": (
        _filled(
            {
                "receiver": {
                    "name": "probe",
                    "type": "webhook",
                    "cluster_id": "<cluster_id>",
                    "action": "CLUSTER_SCALE_IN",
                }
            }
        ),
    ),
    f"PATCH {_V1}/receivers/{{receiver_id}}": (_always({"receiver": {"name": "probe"}}),),
    f"POST {_V1}/receivers/{{receiver_id}}/notify": (
        _filled({"cluster": "<cluster_id>", "action": "CLUSTER_SCALE_OUT"}),
    ),
    f"POST {_V1}/webhooks/{{webhook_id}}/trigger": (_always({"count": 1}),),
    "POST /scheduler/choices": (
        lambda things, version: {
            "choice": {
                "instance_id": things["loner_id"],
                "group_id": things["server_group_id"],
                "project_id": things["project_id"],
                "user_id": things["user_id"],
                "resources": {"vcpus": 1, "memory_mb": 1, "disk_gb": 1},
                "hosts": {"names": [], **{name: [] for name in COLUMNS}},
            }
        },
    ),
}

# Of these a receiver that takes messages is meant.
_QUEUES = f"{_V1}/receivers/{{receiver_id}}/notify"

MARKERS = {
    "servers": "server_id",
    "os-server-groups": "server_group_id",
    "flavors": "flavor_id",
    "os-keypairs": "name",
    "clusters": "cluster_id",
    "nodes": "node_id",
    "profiles": "profile_id",
    "policies": "policy_id",
    "receivers": "receiver_id",
    "actions": "action_id",
    "events": "event_id",
}
"""By what a page of each list begins."""

QUERIES: tuple[dict[str, str], ...] = (
    {"name": "<group_name>"},
    {"name": "<flavor_id>"},
    {"name": "<cluster_name>"},
    {"name": "."},
    {"uuid": "<server_id>"},
    {"instance_uuid": "<server_id>"},
    {"project_id": "<project_id>"},
    {"project_id": "<project_id>", "all_tenants": "1"},
    {"tenant_id": "<project_id>"},
    {"as_tenant_id": "<project_id>"},
    {"all_projects": "true"},
    {"all_tenants": "1"},
    {"global_project": "true"},
    {"user_id": "<user_id>"},
    {"user": "<user_id>"},
    {"cluster_id": "<cluster_id>"},
    {"cluster_id": "<cluster_name>"},
    {"target": "<cluster_id>"},
    {"oid": "<cluster_id>"},
    {"policy_name": "<cluster_name>"},
    {"is_public": "none"},
    {"show_details": "true"},
    {"id": "in:<server_id>"},
    {"scope": "veiled", "open": "all"},
    {"scope": "unnamed", "only": "<identifier>"},
    {"scope": "veiled", "group": "<server_group_id>"},
    {"sort_key": "host"},
    {"host": "host"},
    {"q": "h"},
    {"q": "a"},
)
"""By what lists and views may be limited or widened, whether or not a route knows it."""
REQUIRED: Mapping[str, dict[str, str]] = {
    f"GET {_V21}/os-exports/{{kind}}": {"format": "json"},
    f"GET {_V21}/os-search": {"q": "<server_id>"},
}
"""What a row refuses to answer without."""


def row_name(api: Api, route: Route) -> str:
    """A row of the route table, as `BODIES` calls it."""
    return f"{route.method} {api.prefix}{route.path}"


def newest(api: Api, route: Route) -> Version | None:
    """The last version in which a row is served; None where there are none."""
    if api.negotiation is None or route.public:
        return None
    return min(route.until, api.negotiation.newest) if route.until else api.negotiation.newest


def rows() -> Iterator[tuple[Api, Route]]:
    """Every row of the table: those that look first, those that end things last."""
    order = ["GET", "POST", "PUT", "PATCH", "DELETE"]
    return iter(sorted(all_routes(), key=lambda row: order.index(row[1].method)))


def variables(path: str) -> list[str]:
    """What a path is to be filled with."""
    return re.findall(r"{(\w+)}", path)


def address(api: Api, route: Route, *owners: Things) -> str:
    """The path of a row with somebody's things in it: the first variable is of the first owner, and so on."""
    path = api.prefix + route.path
    filled = path
    for place, variable in enumerate(variables(path)):
        things = owners[min(place, len(owners) - 1)]
        kind = "queue_id" if path == _QUEUES else _NAMED.get(path, variable)
        value = OPERATORS.get(kind) or things.get(kind)
        assert value is not None, f"{path}: tenants have no {variable}; give them one in tests/security/world.py"
        filled = filled.replace(f"{{{variable}}}", value)
    return filled


def bodies(api: Api, route: Route) -> tuple[Body, ...]:
    """The bodies to try on a row."""
    if route.method in ("GET", "DELETE"):
        return (_always(None),)
    name = row_name(api, route)
    if route.body is None and route.described is None and name not in BODIES:
        return (_always(None),)
    assert name in BODIES, f"{name} takes a body; say in tests/security/probes.py which would do"
    return BODIES[name]


def probes(api: Api, route: Route, named: Things, *owners: Things, **query: str) -> Iterator[Probe]:
    """Every request to a row at the address of its owners, with what is named in its bodies."""
    version = newest(api, route)
    asked = {**_filled(REQUIRED.get(row_name(api, route), {}))(named, Version(0, 0)), **query}
    for body in bodies(api, route):
        sent = body(named, version or Version(0, 0))
        at = address(api, route, *owners)
        yield Probe(
            row_name(api, route), route.method, at, str(version) if version else None, asked, sent, route.public
        )


def searches(probe: Probe, named: Things, queries: Iterable[Mapping[str, str]] = QUERIES) -> Iterator[Probe]:
    """The same look with everything by which it could be limited, widened or begun."""
    marked = [
        {"marker": f"<{kind}>", "sort": "name"} for noun, kind in MARKERS.items() if noun in probe.path.split("/")
    ]
    marked += [{"marker": f"<{kind}>"} for noun, kind in MARKERS.items() if noun in probe.path.split("/")]
    for query in [*queries, *marked]:
        yield replace(probe, query={**probe.query, **_filled(query)(named, Version(0, 0))})
