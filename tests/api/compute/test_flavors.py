"""Flavors: listed, made, described, and who may use them."""

from typing import Any

import sqlalchemy as sa

from roost.store.tables.identity import projects
from tests.api.compute.conftest import Compute

PATH = "/flavors"
NEW = {"name": "nano", "ram": 64, "vcpus": 1, "disk": 1}


async def made(compute: Compute, **more: Any) -> dict[str, Any]:
    """A new flavor."""
    answer = await compute.post(PATH, {"flavor": {**NEW, **more}}, version="2.61")
    return dict(answer["flavor"])


async def names(compute: Compute, query: str = "", **more: Any) -> list[str]:
    """The names of the flavors that a list has."""
    return [flavor["name"] for flavor in (await compute.get(f"{PATH}{query}", **more))["flavors"]]


async def project_of(compute: Compute, name: str) -> str:
    """The id of a project."""
    async with compute.api.services.database.begin() as connection:
        found: str = (await connection.scalars(sa.select(projects.c.id).where(projects.c.name == name))).one()
        return found


async def test_a_flavor_changes_with_the_versions(compute: Compute) -> None:
    oldest = (await compute.get(f"{PATH}/1", cloud="roost"))["flavor"]
    assert oldest == {
        "id": "1",
        "name": "m1.tiny",
        "ram": 512,
        "disk": 1,
        "vcpus": 1,
        "swap": "",
        "rxtx_factor": 1.0,
        "OS-FLV-EXT-DATA:ephemeral": 0,
        "OS-FLV-DISABLED:disabled": False,
        "os-flavor-access:is_public": True,
        "links": [
            {"rel": "self", "href": "http://roost.test/compute/v2.1/flavors/1"},
            {"rel": "bookmark", "href": "http://roost.test/compute/flavors/1"},
        ],
    }
    described = {**oldest, "description": None}
    with_specs = {**described, "extra_specs": {}}
    swapless = {**with_specs, "swap": 0}
    newest = {key: value for key, value in swapless.items() if key not in ("rxtx_factor", "OS-FLV-DISABLED:disabled")}
    for version, expected in (("2.55", described), ("2.61", with_specs), ("2.75", swapless), ("2.102", newest)):
        assert (await compute.get(f"{PATH}/1", version=version))["flavor"] == expected
        assert (await compute.get(f"{PATH}/detail", version=version))["flavors"][0] == expected
    assert (await compute.get(PATH))["flavors"][0] == {key: oldest[key] for key in ("id", "name", "links")}
    assert (await compute.get(PATH, version="2.55"))["flavors"][0]["description"] is None


async def test_flavors_are_filtered_sorted_and_paged(compute: Compute) -> None:
    assert await names(compute) == ["m1.tiny", "m1.small", "m1.medium", "m1.large", "m1.xlarge"]
    assert await names(compute, "?minRam=4096&minDisk=80") == ["m1.large", "m1.xlarge"]
    assert await names(compute, "?sort_key=memory_mb&sort_dir=desc&limit=2") == ["m1.xlarge", "m1.large"]
    assert await names(compute, "?sort_key=name&limit=2&marker=3") == ["m1.small", "m1.tiny"]
    assert await names(compute, "?sort_key=description&marker=4", version="2.75") == ["m1.xlarge"]
    assert await names(compute, "?sort_key=description&sort_dir=desc&marker=2") == ["m1.tiny"]
    assert await names(compute, "?name=m1.tiny", version="2.102") == ["m1.tiny"]
    assert await names(compute, "?limit=0") == []
    page = await compute.get(f"{PATH}/detail?limit=2&minRam=2048")
    assert page["flavors_links"] == [
        {"rel": "next", "href": "http://roost.test/compute/v2.1/flavors/detail?limit=2&minRam=2048&marker=3"}
    ]
    assert "flavors_links" not in await compute.get(f"{PATH}?limit=6")


async def test_a_flavor_is_made_described_and_deleted(compute: Compute) -> None:
    given = {"id": 77, "ram": "128", "swap": 5, "OS-FLV-EXT-DATA:ephemeral": 2, "rxtx_factor": "2.5"}
    flavor = await made(compute, **given, **{"os-flavor-access:is_public": "False"}, description="small")
    assert (flavor["id"], flavor["ram"], flavor["swap"], flavor["rxtx_factor"]) == ("77", 128, 5, 2.5)
    assert (flavor["os-flavor-access:is_public"], flavor["description"]) == (False, "small")
    body = {"flavor": {"description": None}}
    assert (await compute.put(f"{PATH}/77", body, version="2.55"))["flavor"]["description"] is None
    await compute.delete(f"{PATH}/77")
    assert await compute.refusal("GET", f"{PATH}/77") == (404, "Flavor 77 could not be found.")
    assert len((await made(compute, id=None))["id"]) == 36


async def test_extra_specs_are_kept_with_the_flavor(compute: Compute) -> None:
    path = f"{PATH}/1/os-extra_specs"
    body = {"extra_specs": {"a": "b", "n": 1}}
    assert await compute.post(path, body) == body
    assert await compute.get(path, cloud="roost") == {"extra_specs": {"a": "b", "n": "1"}}
    assert await compute.put(f"{path}/a", {"a": "c"}) == {"a": "c"}
    assert await compute.get(f"{path}/a", cloud="roost") == {"a": "c"}
    shown = (await compute.get(f"{PATH}/1", cloud="roost", version="2.61"))["flavor"]
    assert shown["extra_specs"] == {"a": "c", "n": "1"}
    await compute.delete(f"{path}/a")
    missing = (404, "Flavor 1 has no extra specs with key a.")
    assert await compute.refusal("GET", f"{path}/a") == missing
    assert await compute.refusal("DELETE", f"{path}/a") == missing


async def test_a_private_flavor_is_for_the_projects_that_were_let_in(compute: Compute) -> None:
    private = (await made(compute, **{"os-flavor-access:is_public": False}))["id"]
    project = await project_of(compute, "demo")
    assert "nano" not in await names(compute, "?is_public=None", cloud="roost")
    assert await compute.refusal("GET", f"{PATH}/{private}", cloud="roost") == (
        404,
        f"Flavor {private} could not be found.",
    )
    assert await names(compute, "?is_public=false") == ["nano"]
    assert "nano" in await names(compute, "?is_public=None")
    assert "nano" not in await names(compute)

    action, body = f"{PATH}/{private}/action", {"addTenantAccess": {"tenant": project}}
    granted = {"flavor_access": [{"flavor_id": private, "tenant_id": project}]}
    assert await compute.post(action, body) == granted
    assert await compute.get(f"{PATH}/{private}/os-flavor-access") == granted
    assert await compute.refusal("POST", action, body) == (
        409,
        f"Flavor access already exists for flavor {private} and project {project} combination.",
    )
    assert "nano" in await names(compute, cloud="roost")
    assert "nano" not in await names(compute, cloud="roost-alt")
    await compute.get(f"{PATH}/{private}", cloud="roost")

    removal = {"removeTenantAccess": {"tenant": project}}
    assert await compute.post(action, removal) == {"flavor_access": []}
    assert await compute.refusal("POST", action, removal) == (
        404,
        f"Flavor access not found for {private} / {project} combination.",
    )


TOO_LONG = "x" * 256
DESCRIBED = {**NEW, "description": "x"}
REFUSALS: list[tuple[str, str, str, Any, tuple[int, str]]] = [
    ("GET", "/none", "2.1", None, (404, "Flavor none could not be found.")),
    ("DELETE", "/none", "2.1", None, (404, "Flavor none could not be found.")),
    ("PUT", "/none", "2.55", {"flavor": {"description": "x"}}, (404, "Flavor none could not be found.")),
    ("PUT", "/1", "2.54", {"flavor": {"description": "x"}}, (404, "The resource could not be found.")),
    ("GET", "?is_public=maybe", "2.1", None, (400, "Invalid is_public filter [maybe]")),
    ("GET", "?minRam=x", "2.1", None, (400, "Invalid minRam filter [x]")),
    ("GET", "?minDisk=1.5", "2.1", None, (400, "Invalid minDisk filter [1.5]")),
    ("GET", "?marker=none", "2.1", None, (400, "marker [none] not found")),
    (
        "GET",
        "?limit=-1",
        "2.1",
        None,
        (400, "Invalid input for query parameters limit. Value: -1. '-1' does not match '^[0-9]*$'"),
    ),
    (
        "GET",
        "?sort_dir=up",
        "2.1",
        None,
        (400, "Invalid input for query parameters sort_dir. Value: up. 'up' is not one of ['asc', 'desc']"),
    ),
    ("GET", "?foo=1", "2.75", None, (400, "Additional properties are not allowed ('foo' was unexpected)")),
    (
        "POST",
        "",
        "2.1",
        {"flavor": {**NEW, "name": "m1.tiny"}},
        (409, "Flavor with name m1.tiny already exists."),
    ),
    ("POST", "", "2.1", {"flavor": {**NEW, "id": "1"}}, (409, "Flavor with ID 1 already exists.")),
    (
        "POST",
        "",
        "2.1",
        {"flavor": {**NEW, "ram": 0}},
        (400, "Invalid input for field/attribute ram. Value: 0. 0 is less than the minimum of 1"),
    ),
    ("POST", "", "2.1", {"flavor": {**NEW, "ram": "0"}}, (400, "Invalid input received: ram must be >= 1")),
    (
        "POST",
        "",
        "2.1",
        {"flavor": {**NEW, "vcpus": "9999999999"}},
        (400, "Invalid input received: vcpus must be <= 2147483647"),
    ),
    (
        "POST",
        "",
        "2.1",
        {"flavor": {**NEW, "disk": "9999999999"}},
        (400, "Invalid input received: disk must be <= 2147483647"),
    ),
    (
        "POST",
        "",
        "2.1",
        {"flavor": {**NEW, "name": TOO_LONG}},
        (400, f"Invalid input for field/attribute name. Value: {TOO_LONG}. '{TOO_LONG}' is too long"),
    ),
    (
        "POST",
        "",
        "2.54",
        {"flavor": DESCRIBED},
        (
            400,
            f"Invalid input for field/attribute flavor. Value: {DESCRIBED}. Additional properties are "
            "not allowed ('description' was unexpected)",
        ),
    ),
    (
        "POST",
        "",
        "2.1",
        {"flavor": {**NEW, "rxtx_factor": "0"}},
        (400, "Invalid input received: 'rxtx_factor' argument must be a float between 0 and 3.40282e+38"),
    ),
    ("GET", "/1/os-flavor-access", "2.1", None, (404, "Access list not available for public flavors.")),
    (
        "POST",
        "/1/action",
        "2.7",
        {"addTenantAccess": {"tenant": "p"}},
        (409, "Can not add access to a public flavor."),
    ),
    ("POST", "/1/action", "2.1", {"dance": {}}, (400, "There is no such action: dance")),
    ("POST", "/none/os-extra_specs", "2.1", {"extra_specs": {}}, (404, "Flavor none could not be found.")),
    ("PUT", "/1/os-extra_specs/a", "2.1", {"b": "c"}, (400, "Request body and URI mismatch")),
]


async def test_bad_requests_are_refused_in_novas_words(compute: Compute) -> None:
    for method, path, version, body, expected in REFUSALS:
        assert await compute.refusal(method, PATH + path, body, version=version) == expected


async def test_numbers_too_long_to_be_read_are_refused(compute: Compute) -> None:
    digits = "9" * 5000
    for method, path, body in (
        ("GET", f"{PATH}?limit={digits}", None),
        ("GET", f"{PATH}?minRam={digits}", None),
        ("POST", PATH, {"flavor": {**NEW, "vcpus": digits}}),
        ("POST", PATH, {"flavor": {**NEW, "rxtx_factor": digits}}),
        ("PUT", "/os-quota-class-sets/default", {"quota_class_set": {"cores": digits}}),
        ("GET", f"/os-aggregates/{digits}", None),
        ("DELETE", f"/os-services/{digits}", None),
    ):
        status, _ = await compute.refusal(method, path, body)
        assert status == 400


async def test_only_the_operator_may_change_flavors(compute: Compute) -> None:
    for method, path, body, rule in (
        ("POST", "", {"flavor": NEW}, "os-flavor-manage:create"),
        ("PUT", "/1", {"flavor": {"description": "x"}}, "os-flavor-manage:update"),
        ("DELETE", "/1", None, "os-flavor-manage:delete"),
        ("POST", "/1/os-extra_specs", {"extra_specs": {}}, "os-flavor-extra-specs:create"),
        ("PUT", "/1/os-extra_specs/a", {"a": "b"}, "os-flavor-extra-specs:update"),
        ("DELETE", "/1/os-extra_specs/a", None, "os-flavor-extra-specs:delete"),
        ("GET", "/1/os-flavor-access", None, "os-flavor-access"),
        ("POST", "/1/action", {"addTenantAccess": {"tenant": "p"}}, "os-flavor-access:add_tenant_access"),
        ("POST", "/1/action", {"removeTenantAccess": {"tenant": "p"}}, "os-flavor-access:remove_tenant_access"),
    ):
        expected = (403, f"Policy doesn't allow os_compute_api:{rule} to be performed.")
        assert await compute.refusal(method, PATH + path, body, version="2.61", cloud="roost") == expected
