"""Metadata definitions: admins write them, projects read the public ones."""

from typing import Any

from tests.conftest import Api

V2 = "/image/v2/metadefs"


async def make(api: Api, name: str = "OS::Test", **values: Any) -> None:
    """Make a namespace."""
    answer = await api.post(f"{V2}/namespaces", {"namespace": name, **values})
    assert answer.status_code == 201, answer.text


async def test_a_namespace_is_made_renamed_and_deleted_by_admins_only(api: Api) -> None:
    assert (await api.post(f"{V2}/namespaces", {"namespace": "mine"}, cloud="roost")).status_code == 403
    await make(api, description="x")
    assert (await api.post(f"{V2}/namespaces", {"namespace": "OS::Test"})).status_code == 409
    assert (await api.get(f"{V2}/namespaces/OS::Test", cloud="roost")).status_code == 404
    changed = {"namespace": "new", "visibility": "public", "protected": True}
    assert (await api.put(f"{V2}/namespaces/OS::Test", changed)).json()["description"] == "x"
    found = (await api.get(f"{V2}/namespaces", cloud="roost")).json()["namespaces"]
    assert [each["namespace"] for each in found] == ["new"]
    assert (await api.delete(f"{V2}/namespaces/new")).status_code == 403
    await api.put(f"{V2}/namespaces/new", {"namespace": "new", "protected": False})
    assert (await api.delete(f"{V2}/namespaces/new")).status_code == 204
    assert (await api.get(f"{V2}/namespaces/new")).status_code == 404


async def test_namespaces_come_in_pages(api: Api) -> None:
    for name in "abc":
        await make(api, name, visibility="public")
    first = (await api.get(f"{V2}/namespaces?limit=2", cloud="roost")).json()
    assert [each["namespace"] for each in first["namespaces"]] == ["a", "b"]
    rest = (await api.get(f"/image{first['next']}", cloud="roost")).json()
    assert [each["namespace"] for each in rest["namespaces"]] == ["c"]
    assert "next" not in rest


async def test_objects_and_properties_are_added_renamed_and_removed(api: Api) -> None:
    await make(api, visibility="public")
    port = {"name": "port", "title": "Port", "type": "string"}
    for kind, body in (("objects", {"name": "port"}), ("properties", port)):
        path = f"{V2}/namespaces/OS::Test/{kind}"
        assert (await api.post(path, body, cloud="roost")).status_code == 403
        assert (await api.post(path, body)).status_code == 201
        assert (await api.post(path, body)).status_code == 409
        assert (await api.put(f"{path}/port", {**body, "name": "new", "description": "y"})).status_code == 200
        assert (await api.get(f"{path}/port")).status_code == 404
        assert (await api.get(f"{path}/new", cloud="roost")).json()["description"] == "y"
        listed = (await api.get(path, cloud="roost")).json()[kind]
        assert [each["name"] for each in (listed.values() if kind == "properties" else listed)] == ["new"]
        assert (await api.delete(f"{path}/new")).status_code == 204
        assert (await api.delete(f"{path}/new")).status_code == 404
    assert (await api.post(f"{V2}/namespaces/OS::Test/properties", {"name": "x"})).status_code == 400


async def test_tags_are_replaced_or_added_to(api: Api) -> None:
    await make(api)
    path = f"{V2}/namespaces/OS::Test/tags"

    async def tags() -> list[str]:
        return [each["name"] for each in (await api.get(path)).json()["tags"]]

    await api.post(f"{path}/one")
    await api.post(path, {"tags": [{"name": "two"}]}, headers={"X-OpenStack-Append": "True"})
    assert await tags() == ["one", "two"]
    await api.post(path, {"tags": [{"name": "three"}]})
    assert await tags() == ["three"]
    assert (await api.delete(path)).status_code == 204
    assert await tags() == []


async def test_resource_types_are_those_that_namespaces_are_about(api: Api) -> None:
    await make(api)
    path = f"{V2}/namespaces/OS::Test/resource_types"
    assert (await api.post(path, {"name": "OS::Nova::Server", "prefix": "hw:"})).status_code == 201
    (held,) = (await api.get(path)).json()["resource_type_associations"]
    assert (held["name"], held["prefix"]) == ("OS::Nova::Server", "hw:")
    assert (await api.get(f"{V2}/resource_types")).json() == {"resource_types": [{"name": "OS::Nova::Server"}]}
    assert (await api.get(f"{V2}/resource_types", cloud="roost")).json() == {"resource_types": []}
    assert (await api.delete(f"{path}/OS::Nova::Server")).status_code == 204


async def test_each_has_a_schema(api: Api) -> None:
    for name in ("namespace", "namespaces", "object", "objects", "property", "properties", "tag", "tags"):
        assert (await api.get(f"/image/v2/schemas/metadefs/{name}", cloud="roost")).json()["name"] == name
