"""Load balance: nodes join the pool of a load balancer when they come, and leave it before they go."""

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from roost.clouds.base import Cloud, CloudError, LoadBalancer, LoadBalancerRequest
from roost.clusters.policies import victims
from roost.clusters.policies.base import (
    AFTER,
    BEFORE,
    CREATION_COUNT,
    CREATION_NODES,
    DELETION_CANDIDATES,
    DELETION_COUNT,
    DELETION_REGIONS,
    DELETION_ZONES,
    HOOKS,
    REBALANCE,
    SUPPORTED,
    ActionView,
    NodeView,
    Policy,
    Verdict,
)
from roost.clusters.policies.counts import RECREATE, change
from roost.clusters.spec import AllowedValues, Boolean, Integer, InvalidSpec, Map, String
from roost.clusters.states import ActionName, NodeStatus
from roost.config import ClusterSettings
from roost.errors import RoostError

_PROTOCOLS = AllowedValues(("HTTP", "HTTPS", "TCP"))

_POOL = Map(
    "LB pool properties.",
    required=True,
    schema={
        "protocol": String("Protocol used for load balancing.", default="HTTP", constraints=[_PROTOCOLS]),
        "protocol_port": Integer("Port on which servers are running on the nodes.", default=80),
        "subnet": String("Name or ID of subnet for the port on which nodes can be connected.", required=True),
        "lb_method": String(
            "Load balancing algorithm.",
            default="ROUND_ROBIN",
            constraints=[AllowedValues(("ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP"))],
        ),
        "admin_state_up": Boolean("Administrative state of the pool.", default=True),
        "session_persistence": Map(
            "Session persistence configuration.",
            default={},
            schema={
                "type": String(
                    "Type of session persistence implementation.",
                    constraints=[AllowedValues(("SOURCE_IP", "HTTP_COOKIE", "APP_COOKIE", "NONE"))],
                ),
                "cookie_name": String("Name of cookie if type set to APP_COOKIE."),
            },
        ),
        "id": String("ID of pool for the cluster on which nodes can be connected."),
    },
)
_VIP = Map(
    "VIP address and port of the pool.",
    required=True,
    schema={
        "subnet": String(
            "Name or ID of Subnet on which the VIP address will be allocated. One of Subnet or Network is required."
        ),
        "network": String(
            "Name or ID of Network on which the VIP address will be allocated. One of Subnet or Network is required."
        ),
        "address": String("IP address of the VIP."),
        "connection_limit": Integer("Maximum number of connections per second allowed for this VIP", default=-1),
        "protocol": String("Protocol used for VIP.", default="HTTP", constraints=[_PROTOCOLS]),
        "protocol_port": Integer("TCP port to listen on.", default=80),
        "admin_state_up": Boolean("Administrative state of the VIP.", default=True),
    },
)
_MONITOR = Map(
    "Health monitor for loadbalancer.",
    schema={
        "type": String(
            "The type of probe sent by the loadbalancer to verify the member state.",
            default="PING",
            constraints=[AllowedValues(("PING", "TCP", "HTTP", "HTTPS"))],
        ),
        "delay": Integer("The amount of time in milliseconds between sending probes to members.", default=10),
        "timeout": Integer(
            "The maximum time in milliseconds that a monitor waits to connect before it times out.", default=5
        ),
        "max_retries": Integer(
            "The number of allowed connection failures before changing the status of the member to INACTIVE.", default=3
        ),
        "admin_state_up": Boolean("Administrative state of the health monitor.", default=True),
        "http_method": String(
            "The HTTP method that the monitor uses for requests.",
            constraints=[AllowedValues(("GET", "POST", "PUT", "DELETE"))],
        ),
        "url_path": String("The HTTP path of the request sent by the monitor to test the health of a member."),
        "expected_codes": String("Expected HTTP codes for a passing HTTP(S) monitor."),
        "id": String("ID of the health manager for the loadbalancer."),
    },
)


class LoadBalancingPolicy(Policy):
    """Keeps the nodes of a cluster in the pool of a load balancer."""

    TYPE = "senlin.policy.loadbalance"
    VERSIONS = {
        "1.0": [{"status": SUPPORTED, "since": "2016.04"}],
        "1.1": [{"status": SUPPORTED, "since": "2018.01"}],
        "1.2": [{"status": SUPPORTED, "since": "2020.02"}],
        "1.3": [{"status": SUPPORTED, "since": "2020.03"}],
    }
    PROFILE_TYPE = ["os.nova.server-1.0"]
    PRIORITY = 500
    TARGET = [
        (AFTER, ActionName.CLUSTER_CREATE),
        (AFTER, ActionName.CLUSTER_ADD_NODES),
        (AFTER, ActionName.CLUSTER_SCALE_OUT),
        (AFTER, ActionName.CLUSTER_RESIZE),
        (AFTER, ActionName.CLUSTER_RECOVER),
        (AFTER, ActionName.CLUSTER_REPLACE_NODES),
        (AFTER, ActionName.NODE_CREATE),
        (AFTER, ActionName.NODE_RECOVER),
        (BEFORE, ActionName.CLUSTER_DEL_NODES),
        (BEFORE, ActionName.CLUSTER_SCALE_IN),
        (BEFORE, ActionName.CLUSTER_RESIZE),
        (BEFORE, ActionName.CLUSTER_REPLACE_NODES),
        (BEFORE, ActionName.NODE_DELETE),
    ]
    READS = [DELETION_CANDIDATES, DELETION_COUNT, DELETION_ZONES, DELETION_REGIONS, HOOKS, CREATION_NODES, REBALANCE]
    WRITES = [CREATION_COUNT, DELETION_COUNT, DELETION_CANDIDATES]
    spec_schema = {
        "pool": _POOL,
        "vip": _VIP,
        "health_monitor": _MONITOR,
        "lb_status_timeout": Integer(
            "Time in second to wait for loadbalancer to become ready after senlin requests LBaaS V2 service for "
            "operations.",
            default=300,
        ),
        "loadbalancer": String("Name or ID of loadbalancer for the cluster on which nodes can be connected."),
        "availability_zone": String("Name of the loadbalancer availability zone to use for creation."),
        "flavor_id": String("ID of octavia loadbalancer flavor to use for creation of loadbalancer."),
    }

    def check_spec(self) -> None:
        """A load balancer needs a network for its address, and an existing one needs a pool."""
        self.deadline = 60.0 + self.spec_data["lb_status_timeout"]
        vip, pool = self.spec_data["vip"], self.spec_data["pool"]
        if not vip["subnet"] and not vip["network"]:
            raise InvalidSpec("At least one of VIP Subnet or Network must be defined.")
        if self.spec_data["loadbalancer"] and not pool["id"]:
            raise InvalidSpec("With a 'loadbalancer' that exists, the 'id' of its 'pool' is needed.")
        for side, port in (("vip", vip["protocol_port"]), ("pool", pool["protocol_port"])):
            if not 0 < port < 65536:
                raise InvalidSpec(f"The 'protocol_port' of '{side}' must be between 1 and 65535.")

    async def validate(self, cloud: Cloud, settings: ClusterSettings) -> str | None:
        """The network of the address exists."""
        network = self.spec_data["vip"]["network"]
        if network and await cloud.find_network(network) is None:
            return f"The specified network '{network}' could not be found."
        return None

    # Attach and detach

    async def attach(self, cluster_id: str, action: ActionView) -> Verdict:
        """Make a load balancer, or take the one that the spec names, and put all nodes into its pool."""
        existing = self.spec_data["loadbalancer"]
        try:
            balancer = self._existing() if existing else await action.cloud.create_load_balancer(self._request(action))
        except (CloudError, RoostError) as error:
            return False, f"Failed in creating a load balancer: {error}"
        nodes = [node for node in action.cluster.nodes if node.physical_id]
        failed = await self._add(action, balancer, nodes)
        if failed:
            await self._undo(action, balancer, nodes)
            return False, "Failed in adding node into lb pool"
        others = action.cluster.data.get("loadbalancers") or {}
        action.effects.cluster_data["loadbalancers"] = {**others, self.id: {"vip_address": balancer.vip_address}}
        kept = {
            "loadbalancer": balancer.id,
            "listener": balancer.listener,
            "pool": balancer.pool,
            "healthmonitor": balancer.health_monitor,
            "vip_address": balancer.vip_address,
        }
        return True, self.bound({**kept, "preexisting": True} if existing else kept)

    def _existing(self) -> LoadBalancer:
        given = self.spec_data
        return LoadBalancer(
            id=given["loadbalancer"],
            listener="",
            pool=given["pool"]["id"],
            health_monitor=(given["health_monitor"] or {}).get("id"),
            vip_address=given["vip"]["address"] or "",
        )

    def _request(self, action: ActionView) -> LoadBalancerRequest:
        given = self.spec_data
        return LoadBalancerRequest(
            name=action.cluster.name,
            vip=given["vip"],
            pool=given["pool"],
            health_monitor=given["health_monitor"],
            availability_zone=given["availability_zone"],
            flavor=given["flavor_id"],
            timeout=float(given["lb_status_timeout"]),
            token=str(uuid.uuid5(uuid.NAMESPACE_OID, f"{action.cluster.id}/{self.id}")),
        )

    async def _undo(self, action: ActionView, balancer: LoadBalancer, nodes: Iterable[NodeView]) -> None:
        added = {node_id: data["lb_member"] for node_id, data in action.effects.node_data.items()}
        if self.spec_data["loadbalancer"]:
            for member in added.values():
                await action.cloud.remove_member(balancer, member)
        else:
            await action.cloud.delete_load_balancer(balancer)
        action.effects.node_data.clear()
        action.effects.node_warnings.clear()

    async def detach(self, cluster_id: str, action: ActionView) -> Verdict:
        """Delete the load balancer, or take all nodes out of the pool of one that was there before."""
        kept = self.kept(action.binding)
        members = [node for node in action.cluster.nodes if node.data.get("lb_member")]
        if kept.get("preexisting"):
            if await self._remove(action, members):
                return False, "Failed to remove servers from existed LB."
        else:
            try:
                await action.cloud.delete_load_balancer(_balancer(kept))
            except (CloudError, RoostError) as error:
                return False, f"Failed in deleting the load balancer: {error}"
            action.effects.node_data.update({node.id: {"lb_member": None} for node in members})
        others = {
            key: value for key, value in (action.cluster.data.get("loadbalancers") or {}).items() if key != self.id
        }
        action.effects.cluster_data["loadbalancers"] = others or None
        return True, "LB resources deletion succeeded."

    # Before nodes go

    async def pre_op(self, cluster_id: str, action: ActionView) -> None:
        """Take the nodes that will go out of the pool. With hooks, each is taken out when its turn comes."""
        leaving = self._leaving(action)
        if isinstance(leaving, str):
            return action.refuse(leaving)
        if HOOKS.read(action.data) and action.action != ActionName.NODE_DELETE:
            return
        members = {node.id: node for node in _seen(action)}
        failed = await self._remove(action, [members[node_id] for node_id in leaving if node_id in members])
        if failed:
            action.refuse(f"Failed in removing deleted node(s) from lb pool: {failed}")

    def _leaving(self, action: ActionView) -> list[str] | str:
        if action.action == ActionName.NODE_DELETE:
            return [action.node.id] if action.node else []
        if action.action == ActionName.CLUSTER_REPLACE_NODES:
            return list(action.inputs.get("candidates") or ())
        chosen = DELETION_CANDIDATES.read(action.data) or action.inputs.get("candidates")
        if chosen is None:
            chosen = self._choose(action)
            if isinstance(chosen, str):
                return chosen
        leaves_too_few = len(action.cluster.nodes) - len(chosen) < action.cluster.min_size
        if leaves_too_few and action.action in (ActionName.CLUSTER_SCALE_IN, ActionName.CLUSTER_DEL_NODES):
            return []
        return [*chosen, *(REBALANCE.read(action.data) or ())]

    def _choose(self, action: ActionView) -> list[str] | str:
        """Choose victims where no policy has: the pool must lose them before they go."""
        wanted = change(action)
        if isinstance(wanted, str):
            return wanted
        if wanted.count >= 0:
            return []
        by = victims.order(victims.RANDOM, {}, action.id)
        regions, zones = DELETION_REGIONS.read(action.data), DELETION_ZONES.read(action.data)
        chosen = [node.id for node in victims.select(action.cluster.nodes, -wanted.count, by, regions, zones)]
        DELETION_COUNT.write(action.data, len(chosen))
        DELETION_CANDIDATES.write(action.data, chosen)
        return chosen

    # After nodes have come

    async def post_op(self, cluster_id: str, action: ActionView) -> None:
        """Put the nodes that have come into the pool."""
        if not action.succeeded:
            return
        coming = self._coming(action)
        recreated = [node for node in coming if node.data.get("lb_member")]
        failed = await self._remove(action, recreated, tolerant=True)
        failed += await self._add(action, _balancer(self.kept(action.binding)), coming)
        if failed:
            action.refuse(f"Failed in adding nodes into lb pool: {failed}")

    def _coming(self, action: ActionView) -> list[NodeView]:
        seen = _seen(action)
        if action.action in (ActionName.NODE_RECOVER, ActionName.CLUSTER_RECOVER):
            # A recreated server is another member; a rebooted one is the same.
            wanted = [node for node in seen if node.data.get("recovery") == RECREATE or not node.data.get("lb_member")]
            if action.action == ActionName.NODE_RECOVER:
                wanted = [node for node in wanted if action.node and node.id == action.node.id]
            return [node for node in wanted if node.physical_id and node.status == NodeStatus.ACTIVE]
        if action.action == ActionName.NODE_CREATE:
            named = {action.node.id} if action.node else set()
        elif action.action == ActionName.CLUSTER_REPLACE_NODES:
            named = set((action.inputs.get("candidates") or {}).values())
        else:
            named = set(CREATION_NODES.read(action.data) or action.inputs.get("nodes") or ())
        return [node for node in seen if node.id in named and node.physical_id and not node.data.get("lb_member")]

    # Members

    async def _add(self, action: ActionView, balancer: LoadBalancer, nodes: Iterable[NodeView]) -> list[str]:
        """Put nodes into the pool; those that could not be."""
        pool, failed = self.spec_data["pool"], []
        for node in nodes:
            try:
                member = await action.cloud.add_member(
                    balancer, str(node.physical_id), pool["protocol_port"], pool["subnet"]
                )
            except (CloudError, RoostError) as error:
                failed.append(node.id)
                action.effects.node_warnings[node.id] = f"Failed in adding node into lb pool: {error}"
            else:
                action.effects.node_data.setdefault(node.id, {}).update(lb_member=member, recovery=None)
        return failed

    async def _remove(self, action: ActionView, nodes: Iterable[NodeView], *, tolerant: bool = False) -> list[str]:
        """Take nodes out of the pool; those that could not be."""
        balancer, failed = _balancer(self.kept(action.binding)), []
        for node in nodes:
            member = node.data.get("lb_member")
            if not member:
                continue
            try:
                await action.cloud.remove_member(balancer, member)
            except (CloudError, RoostError) as error:
                if not tolerant:
                    failed.append(node.id)
                    action.effects.node_warnings[node.id] = f"Failed in removing node from lb pool: {error}"
            else:
                action.effects.node_data.setdefault(node.id, {})["lb_member"] = None
        return failed


def _seen(action: ActionView) -> list[NodeView]:
    """All nodes that the action can be about."""
    own = [action.node] if action.node else []
    return [*own, *(node for node in action.cluster.nodes if not action.node or node.id != action.node.id)]


def _balancer(kept: Mapping[str, Any]) -> LoadBalancer:
    return LoadBalancer(
        id=kept["loadbalancer"],
        listener=kept.get("listener") or "",
        pool=kept["pool"],
        health_monitor=kept.get("healthmonitor"),
        vip_address=kept.get("vip_address") or "",
    )
