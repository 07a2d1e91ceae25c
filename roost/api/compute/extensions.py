"""Extensions, a legacy concept: all are part of the API now, and the list names those that are served."""

from roost.api.fields import FieldTable, ShownField, always
from roost.api.permissions import ANYONE, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import STRING
from roost.errors import NotFound

routes = Table(prefix="/v2.1")

RULES = (Permission("os_compute_api:extensions", ANYONE, "List extensions."),)

_SERVED = {
    "NMN": "Multinic",
    "OS-DCF": "DiskConfig",
    "OS-EXT-IMG-SIZE": "ImageSize",
    "OS-EXT-AZ": "ExtendedAvailabilityZone",
    "OS-EXT-SRV-ATTR": "ExtendedServerAttributes",
    "OS-EXT-STS": "ExtendedStatus",
    "OS-SCH-HNT": "SchedulerHints",
    "os-aggregates": "Aggregates",
    "os-attach-interfaces": "AttachInterfaces",
    "os-availability-zone": "AvailabilityZone",
    "os-console-output": "ConsoleOutput",
    "os-flavor-access": "FlavorAccess",
    "os-flavor-extra-specs": "FlavorExtraSpecs",
    "os-hypervisors": "Hypervisors",
    "os-instance-actions": "InstanceActions",
    "os-keypairs": "Keypairs",
    "os-migrations": "Migrations",
    "os-networks": "Networks",
    "os-quota-class-sets": "QuotaClasses",
    "os-quota-sets": "Quotas",
    "os-remote-consoles": "Consoles",
    "os-rescue": "Rescue",
    "os-security-groups": "SecurityGroups",
    "os-server-diagnostics": "ServerDiagnostics",
    "os-server-external-events": "ServerExternalEvents",
    "os-server-groups": "ServerGroups",
    "os-server-password": "ServerPassword",
    "os-services": "Services",
    "os-simple-tenant-usage": "SimpleTenantUsage",
    "os-tenant-networks": "OSTenantNetworks",
    "os-volumes": "Volumes",
}
_EXTENSION = FieldTable[str](
    ShownField("alias", STRING, lambda alias: alias),
    ShownField("name", STRING, lambda alias: _SERVED[alias]),
    ShownField("description", STRING, lambda alias: _SERVED[alias]),
    ShownField("namespace", STRING, lambda alias: f"http://docs.openstack.org/compute/ext/{alias}/api/v2"),
    always("updated", "2014-12-03T00:00:00Z"),
    always("links", []),
)


@routes.get("/extensions", rule="os_compute_api:extensions", response=_EXTENSION.many("extensions"))
async def index(call: Call) -> Reply:
    """List extensions."""
    return {"extensions": [_EXTENSION.show(alias) for alias in _SERVED]}


@routes.get("/extensions/{alias}", rule="os_compute_api:extensions", response=_EXTENSION.one("extension"))
async def show(call: Call) -> Reply:
    """Show an extension."""
    if call.path["alias"] not in _SERVED:
        raise NotFound("The resource could not be found.")
    return {"extension": _EXTENSION.show(call.path["alias"])}
