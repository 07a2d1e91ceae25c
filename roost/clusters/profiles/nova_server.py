"""os.nova.server: nodes that are servers of the compute service."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from roost.clouds.base import OF_PORTS, Cloud, CloudResource, CloudServer, ServerOutcome, ServerRequest
from roost.clusters.policies.base import SUPPORTED, NodeView
from roost.clusters.profiles.base import NodeOutcome, Profile
from roost.clusters.spec import AllowedValues, Boolean, Integer, InvalidSpec, List, Map, Operation, String
from roost.clusters.states import Recovery
from roost.config import ClusterSettings

_NO_SERVER = "The node has no server."
_NOT_YOURS = "Only an administrator of the cloud may choose a host."
_OPERATORS = ("evacuate",)
"""Operations for administrators, who may name hosts."""
_HIDDEN = (
    *("OS-EXT-SRV-ATTR:host", "OS-EXT-SRV-ATTR:hypervisor_hostname", "OS-EXT-SRV-ATTR:instance_name", "host_status"),
    *("compute_host", "hypervisor_hostname", "instance_name"),
)
"""What the compute service shows of a server to administrators only."""
_AT_ONCE = 32
"""How many requests for single servers are under way at the same time."""

_BLOCK_DEVICE = Map(
    "A map specifying the properties of a block device to be used by the server.",
    schema={
        "uuid": String("ID of the source image, snapshot or volume"),
        "source_type": String(
            "Volume source type, must be one of 'image', 'snapshot', 'volume' or 'blank'", required=True
        ),
        "destination_type": String("Volume destination type, must be 'volume' or 'local'", required=True),
        "disk_bus": String("Bus of the device."),
        "device_name": String("Name of the device(e.g. vda, xda, ....)."),
        "volume_size": Integer("Size of the block device in MB(for swap) and in GB(for other formats)", required=True),
        "guest_format": String("Specifies the disk file system format(e.g. swap, ephemeral, ...)."),
        "boot_index": Integer("Define the boot order of the device"),
        "device_type": String("Type of the device(e.g. disk, cdrom, ...)."),
        "delete_on_termination": Boolean("Whether to delete the volume when the server stops."),
        "volume_type": String("Id or name of volume type."),
    },
)
_NETWORK = Map(
    "A map specifying the properties of a network for uses.",
    schema={
        "network": String("Name or ID of network to create a port on."),
        "port": String("Port ID to be used by the network."),
        "vnic_type": String("Define vnic_type to be used by port"),
        "fixed_ip": String("Fixed IP to be used by the network."),
        "security_groups": List(
            "A list of security groups to be attached to this port.", schema=String("Name of a security group")
        ),
        "floating_network": String("The network on which to create a floating IP"),
        "floating_ip": String("The floating IP address to be associated with this port."),
        "subnet": String("Subnet in which to allocate the IP address for this port."),
    },
)
_FILE = Map(
    "A map specifying the path & contents for an injected file.",
    schema={
        "path": String("In-instance path for the file to be injected.", required=True),
        "contents": String("Contents of the file to be injected.", required=True),
    },
)


class ServerProfile(Profile):
    """Nodes that are servers."""

    TYPE = "os.nova.server"
    VERSIONS = {"1.0": [{"status": SUPPORTED, "since": "2016.04"}]}
    spec_schema = {
        "context": Map("Customized security context for operating servers."),
        "admin_pass": String("Password for the administrator account."),
        "auto_disk_config": Boolean("Whether the disk partition is done automatically.", default=True),
        "availability_zone": String("Name of availability zone for running the server."),
        "block_device_mapping_v2": List(
            "A list specifying the properties of block devices to be used for this server.", schema=_BLOCK_DEVICE
        ),
        "config_drive": Boolean("Whether config drive should be enabled for the server."),
        "flavor": String("ID of flavor used for the server.", required=True, updatable=True),
        "image": String("ID of image to be used for the new server.", updatable=True),
        "key_name": String("Name of Nova keypair to be injected to server."),
        "metadata": Map(
            "A collection of key/value pairs to be associated with the server created. Both key and value must be "
            "<=255 chars.",
            updatable=True,
        ),
        "name": String("Name of the server. When omitted, the node name will be used.", updatable=True),
        "networks": List("List of networks for the server.", schema=_NETWORK, updatable=True),
        "personality": List("List of files to be injected into the server, where each.", schema=_FILE),
        "scheduler_hints": Map(
            "A collection of key/value pairs to be associated with the Scheduler hints. Both key and value must be "
            "<=255 chars."
        ),
        "security_groups": List("List of security groups.", schema=String("Name of a security group", required=True)),
        "user_data": String("User data to be exposed by the metadata server."),
    }
    OPERATIONS = {
        "reboot": Operation(
            "Reboot the nova server.",
            {
                "type": String(
                    "Type of reboot which can be 'SOFT' or 'HARD'.",
                    default="SOFT",
                    constraints=[AllowedValues(("SOFT", "HARD"))],
                )
            },
        ),
        "rebuild": Operation("Rebuild the server using current image and admin password.", {}),
        "change_password": Operation(
            "Change the administrator password.", {"admin_pass": String("New password for the administrator.")}
        ),
        "pause": Operation("Pause the server from running.", {}),
        "unpause": Operation("Unpause the server to running state.", {}),
        "suspend": Operation("Suspend the running of the server.", {}),
        "resume": Operation("Resume the running of the server.", {}),
        "lock": Operation("Lock the server.", {}),
        "unlock": Operation("Unlock the server.", {}),
        "start": Operation("Start the server.", {}),
        "stop": Operation("Stop the server.", {}),
        "rescue": Operation("Rescue the server.", {"image_ref": String("A string referencing the image to use.")}),
        "unrescue": Operation("Unrescue the server.", {}),
        "evacuate": Operation(
            "Evacuate the server to a different host.",
            {
                "host": String("The target host to evacuate the server."),
                "force": String("Whether the evacuation should be a forced one."),
            },
        ),
    }

    def check_spec(self) -> None:
        """A network is a network or a port, and what it asks for exists."""
        for network in self.spec_data["networks"] or ():
            if network["port"] is None and network["network"] is None:
                raise InvalidSpec("One of 'port' and 'network' must be provided")
            if network["port"] is not None and network["fixed_ip"] is not None:
                raise InvalidSpec(
                    "The 'port' property and the 'fixed_ip' property cannot be specified at the same time"
                )
            if network["vnic_type"] not in (None, "normal", "direct", "macvtap"):
                raise InvalidSpec(
                    f"vnic_type: '{network['vnic_type']}' is not supported."
                    "(supported types are: normal, direct, macvtap)"
                )

    async def validate(self, cloud: Cloud, settings: ClusterSettings) -> str | None:
        """The zone, flavor, image, key pair and networks exist."""
        zone = self.spec_data["availability_zone"]
        if _chooses_host(zone) and not cloud.privileged:
            return _NOT_YOURS
        if zone is not None and zone.partition(":")[0] not in {
            known.name for known in await cloud.availability_zones()
        }:
            return _missing("availability_zone", zone)
        lookups: list[tuple[str, Callable[[str], Awaitable[CloudResource | None]]]] = [
            ("flavor", cloud.find_flavor),
            ("image", cloud.find_image),
            ("key_name", cloud.find_keypair),
        ]
        for key, find in lookups:
            value = self.spec_data[key]
            if value is not None and await find(value) is None:
                return _missing(key, value)
        for network in self.spec_data["networks"] or ():
            name = network["network"]
            found = await cloud.find_network(name) if name is not None else None
            if name is not None and found is None:
                return f"The specified network {name} could not be found."
            if _asks_of_port(network) and (problem := await cloud.find_port_problem(_interface(network, found))):
                return problem
        return None

    async def create(self, cloud: Cloud, nodes: Sequence[NodeView], cluster_id: str | None) -> list[NodeOutcome]:
        """Ask for all servers at once."""
        refusal, resolved = await self._resolved(cloud, nodes)
        if refusal is not None:
            return [NodeOutcome(node.id, False, None, refusal) for node in nodes]
        requests = [self._request(node, cluster_id, resolved) for node in nodes]
        if not cloud.privileged and any(_chooses_host(request.availability_zone) for request in requests):
            return [NodeOutcome(node.id, False, None, _NOT_YOURS) for node in nodes]
        outcomes = await cloud.create_servers(requests)
        return [_created(node, outcome) for node, outcome in zip(nodes, outcomes, strict=True)]

    async def _resolved(self, cloud: Cloud, nodes: Sequence[NodeView]) -> tuple[str | None, dict[str, Any]]:
        """What names in the spec stand for in the cloud, found once for all servers; or what could not be found."""
        flavor = await cloud.find_flavor(self.spec_data["flavor"])
        if flavor is None:
            return _missing("flavor", self.spec_data["flavor"]), {}
        resolved: dict[str, Any] = {"flavor": flavor.id, "image": None, "group": None, "networks": []}
        if self.spec_data["image"] is not None:
            image = await cloud.find_image(self.spec_data["image"])
            if image is None:
                return _missing("image", self.spec_data["image"]), {}
            resolved["image"] = image.id
        group = (self.spec_data["scheduler_hints"] or {}).get("group")
        if group is not None and not all(node.placement.get("servergroup") for node in nodes):
            found = await cloud.find_server_group(str(group))
            if found is None:
                return f"The specified server group '{group}' could not be found.", {}
            resolved["group"] = found.id
        for wanted in self.spec_data["networks"] or ():
            network = await cloud.find_network(wanted["network"]) if wanted["network"] is not None else None
            if network is None and wanted["port"] is None:
                return f"The specified network {wanted['network']} could not be found.", {}
            resolved["networks"].append(_interface(wanted, network))
        return None, resolved

    def _request(self, node: NodeView, cluster_id: str | None, resolved: Mapping[str, Any]) -> ServerRequest:
        given = self.spec_data
        hints = dict(given["scheduler_hints"] or {})
        group = node.placement.get("servergroup") or resolved["group"]
        if group:
            hints["group"] = group
        return ServerRequest(
            node_id=node.id,
            name=given["name"] or node.name,
            flavor=resolved["flavor"],
            image=resolved["image"],
            networks=tuple(resolved["networks"]),
            key_name=given["key_name"],
            metadata={**_texts(given["metadata"]), **_membership(node, cluster_id)},
            user_data=given["user_data"],
            availability_zone=node.placement.get("zone") or given["availability_zone"],
            server_group=group,
            scheduler_hints=hints,
            security_groups=tuple(given["security_groups"] or ()),
            admin_pass=given["admin_pass"],
            config_drive=given["config_drive"],
            auto_disk_config=given["auto_disk_config"],
            block_devices=tuple(_given(device) for device in given["block_device_mapping_v2"] or ()),
            personality=tuple(given["personality"] or ()),
            region=node.placement.get("region_name") or (given["context"] or {}).get("region_name"),
        )

    async def delete(self, cloud: Cloud, nodes: Sequence[NodeView], *, force: bool = False) -> list[NodeOutcome]:
        """Delete all servers at once, also those that nodes do not know yet: an action that was cut short left them."""
        found = await cloud.find_servers([node.id for node in nodes])
        servers = {
            node.id: {node.physical_id, found[node.id].id if node.id in found else None} - {None} for node in nodes
        }
        reasons = await cloud.delete_servers([each for some in servers.values() for each in some if each], force=force)
        going = [node for node in nodes if not servers[node.id] & reasons.keys()]
        others = [each for node in going for each in _ports_of_senlin(node)]
        if going and (others or any(map(_asks_of_port, self.spec_data["networks"] or ()))):
            await cloud.release_ports([node.id for node in going], others)
        outcomes = []
        for node in nodes:
            stuck = next(iter(servers[node.id] & reasons.keys()), None)
            outcomes.append(NodeOutcome(node.id, stuck is None, stuck, reasons[stuck] if stuck else ""))
        return outcomes

    async def check(self, cloud: Cloud, nodes: Sequence[NodeView]) -> list[NodeOutcome]:
        """Whether the servers are there and active."""
        servers = await cloud.show_servers([node.physical_id for node in nodes if node.physical_id])
        return [_checked(node, servers.get(node.physical_id or "")) for node in nodes]

    async def details(self, cloud: Cloud, nodes: Sequence[NodeView]) -> dict[str, Mapping[str, Any]]:
        """The servers as the compute service shows them to the one who asks."""
        servers = await cloud.show_servers([node.physical_id for node in nodes if node.physical_id])
        hidden = () if cloud.privileged else _HIDDEN
        return {
            node.id: {key: value for key, value in servers[node.physical_id].details.items() if key not in hidden}
            for node in nodes
            if node.physical_id in servers
        }

    def update_problem(self, new: Profile) -> str | None:
        """Networks and a missing image cannot be changed in place."""
        if problem := super().update_problem(new):
            return problem
        if self.spec_data["networks"] != new.spec_data["networks"]:
            return "The networks of a server cannot be changed in place: recreate the nodes with the new profile."
        if self.spec_data["image"] is not None and new.spec_data["image"] is None:
            return "Updating Nova server with image set to None is not supported by Nova"
        return None

    async def update(self, cloud: Cloud, nodes: Sequence[NodeView], new: Profile) -> list[NodeOutcome]:
        """Rename, relabel, resize and rebuild, as far as the two profiles differ."""
        if problem := self.update_problem(new):
            return [NodeOutcome(node.id, False, node.physical_id, problem) for node in nodes]
        changes = await self._changes(cloud, new)
        if isinstance(changes, str):
            return [NodeOutcome(node.id, False, node.physical_id, changes) for node in nodes]

        async def change(node: NodeView, server_id: str) -> str | None:
            reason = await self._relabel(cloud, node, server_id, new)
            for operation, params in changes:
                reason = reason or await cloud.operate(server_id, operation, params)
            return reason

        return await _each(nodes, change)

    async def _changes(self, cloud: Cloud, new: Profile) -> list[tuple[str, dict[str, Any]]] | str:
        changes: list[tuple[str, dict[str, Any]]] = []
        if new.spec_data["flavor"] != self.spec_data["flavor"]:
            flavor = await cloud.find_flavor(new.spec_data["flavor"])
            if flavor is None:
                return _missing("flavor", new.spec_data["flavor"])
            changes.append(("resize", {"flavor": flavor.id}))
        if new.spec_data["image"] != self.spec_data["image"]:
            image = await cloud.find_image(new.spec_data["image"])
            if image is None:
                return _missing("image", new.spec_data["image"])
            changes.append(("rebuild", {"image": image.id}))
        return changes

    async def _relabel(self, cloud: Cloud, node: NodeView, server_id: str, new: Profile) -> str | None:
        before, after = _texts(self.spec_data["metadata"]), _texts(new.spec_data["metadata"])
        metadata: dict[str, str | None] = {key: None for key in before if key not in after}
        metadata.update({key: value for key, value in after.items() if before.get(key) != value})
        names = [profile.spec_data["name"] or node.name for profile in (self, new)]
        renamed = names[1] if names[0] != names[1] else None
        if not metadata and renamed is None:
            return None
        return await cloud.update_server(server_id, name=renamed, metadata=metadata or None)

    async def recover(
        self, cloud: Cloud, nodes: Sequence[NodeView], operation: str, params: Mapping[str, Any], cluster_id: str | None
    ) -> list[NodeOutcome]:
        """Recreate servers, rebuild them from their image, or reboot them."""
        if operation.upper() == Recovery.RECREATE:
            return await self._recreate(cloud, nodes, cluster_id, force=bool(params.get("force_recreate")))
        if operation.upper() == Recovery.REBUILD:
            asked, given = "rebuild", await self._rebuild_params(cloud)
        else:
            asked, given = "reboot", {"type": str(params.get("type") or "HARD").upper()}
        outcomes = await _each(nodes, lambda node, server_id: cloud.operate(server_id, asked, given))
        return [_noted(outcome, Recovery.REBUILD if asked == "rebuild" else Recovery.REBOOT) for outcome in outcomes]

    async def _rebuild_params(self, cloud: Cloud) -> dict[str, Any]:
        image = await cloud.find_image(self.spec_data["image"]) if self.spec_data["image"] else None
        return {"image": image.id} if image else {}

    async def _recreate(
        self, cloud: Cloud, nodes: Sequence[NodeView], cluster_id: str | None, *, force: bool
    ) -> list[NodeOutcome]:
        gone = await self.delete(cloud, nodes, force=force)
        stuck = {outcome.node_id: outcome for outcome in gone if not outcome.ok}
        made = await self.create(cloud, [node for node in nodes if node.id not in stuck], cluster_id)
        outcomes = {outcome.node_id: _noted(outcome, Recovery.RECREATE) for outcome in made}
        return [stuck.get(node.id) or outcomes[node.id] for node in nodes]

    async def operate(
        self, cloud: Cloud, nodes: Sequence[NodeView], operation: str, params: Mapping[str, Any]
    ) -> list[NodeOutcome]:
        """Do one operation to every server."""
        if operation in _OPERATORS and not cloud.privileged:
            return [NodeOutcome(node.id, False, node.physical_id, _NOT_YOURS) for node in nodes]
        given = {key: value for key, value in params.items() if value is not None}
        if operation == "rebuild":
            given = await self._rebuild_params(cloud)
        return await _each(nodes, lambda node, server_id: cloud.operate(server_id, operation, given))

    async def join(self, cloud: Cloud, nodes: Sequence[NodeView], cluster_id: str) -> list[NodeOutcome]:
        """Note the cluster in the servers' metadata, and leave the rest of it alone."""
        return await _each(
            nodes, lambda node, server_id: cloud.update_server(server_id, metadata=dict(_membership(node, cluster_id)))
        )

    async def leave(self, cloud: Cloud, nodes: Sequence[NodeView]) -> list[NodeOutcome]:
        """Remove the cluster from the servers' metadata."""
        nothing: dict[str, str | None] = {"cluster_id": None, "cluster_node_index": None}
        return await _each(nodes, lambda node, server_id: cloud.update_server(server_id, metadata=nothing))

    @classmethod
    async def adopt(cls, cloud: Cloud, physical_id: str) -> dict[str, Any] | str:
        """The properties of a server that exists."""
        server = (await cloud.show_servers([physical_id])).get(physical_id)
        if server is None:
            return f"The specified server '{physical_id}' could not be found."
        return _properties_of(server)


def _chooses_host(zone: str | None) -> bool:
    """Whether a zone comes with a host in it, as ZONE:HOST."""
    return zone is not None and ":" in zone


def _missing(key: str, value: str) -> str:
    return f"The specified {key} '{value}' could not be found."


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _texts(values: Mapping[str, Any] | None) -> dict[str, str]:
    return {key: str(value) for key, value in (values or {}).items()}


def _membership(node: NodeView, cluster_id: str | None) -> dict[str, str]:
    """What a server's metadata says of the node that it is."""
    metadata = {"cluster_node_id": node.id}
    if cluster_id:
        metadata |= {"cluster_id": cluster_id, "cluster_node_index": str(node.index)}
    return metadata


def _interface(wanted: Mapping[str, Any], network: CloudResource | None) -> dict[str, Any]:
    """A network of the spec in the compute service's words."""
    interface = {key: wanted[key] for key in ("port", "fixed_ip", *OF_PORTS) if wanted[key]}
    return {"uuid": network.id, **interface} if network else interface


def _asks_of_port(network: Mapping[str, Any]) -> bool:
    """Whether a network of the spec asks for more than the compute service gives by itself."""
    return any(network[key] for key in OF_PORTS)


def _ports_of_senlin(node: NodeView) -> list[str]:
    """The ports and floating addresses that Senlin made for a node which came from it, and would have deleted."""
    made = [port for port in node.data.get("internal_ports") or () if port.get("remove")]
    floating = [each for port in made if (each := port.get("floating") or {}).get("remove")]
    return [each["id"] for each in (*made, *floating)]


def _created(node: NodeView, outcome: ServerOutcome) -> NodeOutcome:
    if outcome.error is not None:
        return NodeOutcome(node.id, False, outcome.server_id, outcome.error)
    placement = {**node.placement, **({"zone": outcome.zone} if outcome.zone else {})}
    return NodeOutcome(node.id, True, outcome.server_id, data={"placement": placement} if placement else {})


def _checked(node: NodeView, server: CloudServer | None) -> NodeOutcome:
    if not node.physical_id:
        return NodeOutcome(node.id, False, None, _NO_SERVER)
    if server is None:
        return NodeOutcome(node.id, False, node.physical_id, f"The server '{node.physical_id}' could not be found.")
    if server.status != "ACTIVE":
        reason = f"The server is in status {server.status}" + (f": {server.fault}" if server.fault else ".")
        return NodeOutcome(node.id, False, node.physical_id, reason)
    return NodeOutcome(node.id, True, node.physical_id)


def _noted(outcome: NodeOutcome, recovery: str) -> NodeOutcome:
    """The same, with the way of recovery noted for the policies that ask."""
    if not outcome.ok:
        return outcome
    return NodeOutcome(outcome.node_id, True, outcome.physical_id, data={**outcome.data, "recovery": recovery})


async def _each(nodes: Sequence[NodeView], act: Callable[[NodeView, str], Awaitable[str | None]]) -> list[NodeOutcome]:
    """Do something to each server, several at a time; what it returns is the reason why it failed."""
    turn = asyncio.Semaphore(_AT_ONCE)

    async def one(node: NodeView) -> NodeOutcome:
        if not node.physical_id:
            return NodeOutcome(node.id, False, None, _NO_SERVER)
        async with turn:
            reason = await act(node, node.physical_id)
        return NodeOutcome(node.id, reason is None, node.physical_id, reason or "")

    return list(await asyncio.gather(*(one(node) for node in nodes)))


def _properties_of(server: CloudServer) -> dict[str, Any]:
    """What a profile of this server says, read from what the compute service shows of it."""
    details = server.details
    flavor, image = details.get("flavor") or {}, details.get("image") or {}
    found = {
        "name": server.name,
        "flavor": flavor.get("id") or flavor.get("original_name"),
        "image": image.get("id") if isinstance(image, Mapping) else None,
        "key_name": details.get("key_name"),
        "availability_zone": server.zone,
        "metadata": dict(details.get("metadata") or {}),
        "networks": [{"network": name} for name in details.get("addresses") or {}],
        "security_groups": [group["name"] for group in details.get("security_groups") or ()],
        "config_drive": bool(details.get("config_drive")),
        "auto_disk_config": details.get("OS-DCF:diskConfig", "MANUAL") == "AUTO",
    }
    return {key: value for key, value in found.items() if value not in (None, [], {})}
