"""What versions, extensions and zones of the block-storage API there are."""

from typing import Any

from roost.api.permissions import ANYONE, Permission
from roost.api.routes import Call, Reply, Table
from roost.api.schemas import STRING, TRUTH, array, thing, version_document
from roost.api.versions import VOLUME
from roost.volume.volumes import ZONE

routes = Table()

_EXTENSIONS, _ZONES = "volume_extension:list_extensions", "volume:availability_zone_list"
RULES = (
    Permission(_EXTENSIONS, ANYONE, "List extensions of the block-storage API."),
    Permission(_ZONES, ANYONE, "List the availability zones of volumes."),
)

_SERVED = {
    "os-availability-zone": "AvailabilityZones",
    "os-extended-snapshot-attributes": "ExtendedSnapshotAttributes",
    "os-quota-class-sets": "QuotaClasses",
    "os-quota-sets": "Quotas",
    "os-types-extra-specs": "TypesExtraSpecs",
    "os-types-manage": "TypesManage",
    "os-vol-image-meta": "VolumeImageMetadata",
    "os-vol-tenant-attr": "VolumeTenantAttribute",
    "os-volume-actions": "VolumeActions",
    "os-volume-type-access": "VolumeTypeAccess",
}
_EXTENSION = thing({**dict.fromkeys(("alias", "name", "description", "updated"), STRING), "links": array({})})
_VERSIONS = thing({"versions": array(version_document("version", "min_version", "updated"))})
_ZONE = thing({"zoneName": STRING, "zoneState": thing({"available": TRUTH})})


@routes.get("/", public=True, response=_VERSIONS)
@routes.get("/v3", public=True, response=_VERSIONS)
async def index(call: Call) -> Reply:
    """The one version."""
    document: dict[str, Any] = {
        "id": "v3.0",
        "status": "CURRENT",
        "version": str(VOLUME.newest),
        "min_version": str(VOLUME.oldest),
        "updated": "2026-11-16T00:00:00Z",
        "links": [{"rel": "self", "href": f"{call.base}/v3/"}],
    }
    return {"versions": [document]}


@routes.get("/v3/extensions", rule=_EXTENSIONS, response=thing({"extensions": array(_EXTENSION)}))
async def index_extensions(call: Call) -> Reply:
    """What is there beyond the first Cinder."""
    moment = "2026-11-16T00:00:00Z"
    return {
        "extensions": [
            {"alias": alias, "name": name, "description": name, "updated": moment, "links": []}
            for alias, name in _SERVED.items()
        ]
    }


@routes.get("/v3/os-availability-zone", rule=_ZONES, response=thing({"availabilityZoneInfo": array(_ZONE)}))
async def index_zones(call: Call) -> Reply:
    """The zones of volumes: one, since all hosts reach all volumes."""
    return {"availabilityZoneInfo": [{"zoneName": ZONE, "zoneState": {"available": True}}]}
