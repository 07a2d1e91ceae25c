"""Domains, groups, roles and who has which: what is given counts in tokens, and what is taken no longer does."""

from typing import Any

from tests.api.identity.test_projects_users_and_roles import V3, ids
from tests.api.identity.test_tokens import TOKENS, by_password, message, sign_in
from tests.conftest import Api


async def make(api: Api, plural: str, **values: Any) -> dict[str, Any]:
    """Make something as an admin."""
    singular = "policy" if plural == "policies" else plural[:-1]
    answer = await api.post(f"{V3}/{plural}", {singular: values})
    assert answer.status_code == 201, answer.text
    body: dict[str, Any] = answer.json()[singular]
    return body


async def put(api: Api, path: str) -> None:
    """Put something somewhere as an admin; twice is once."""
    for _ in range(2):
        answer = await api.put(f"{V3}{path}")
        assert answer.status_code == 204, answer.text


async def user(api: Api, name: str = "ada", **more: Any) -> tuple[str, dict[str, Any]]:
    """A new user's id, and how it signs in."""
    made = await make(api, "users", name=name, password="lovelace", **more)
    return made["id"], {"id": made["id"], "password": "lovelace"}


def names(token: dict[str, Any]) -> list[str]:
    """The roles of a token."""
    return [role["name"] for role in token["roles"]]


async def test_attributes_of_users_and_projects_are_kept(api: Api) -> None:
    demo = (await ids(api, "projects"))["demo"]
    given = {"email": "a@b.org", "description": "the first", "default_project_id": demo, "nickname": "A"}
    user_id, _ = await user(api, **given)
    shown = (await api.get(f"{V3}/users/{user_id}")).json()["user"]
    assert {key: shown[key] for key in given} == given
    changed = await api.patch(f"{V3}/users/{user_id}", {"user": {"email": "c@d.org", "description": "still"}})
    assert changed.json()["user"]["email"] == "c@d.org"
    assert changed.json()["user"]["nickname"] == "A"

    project = await make(api, "projects", name="engines", tags=["brass", "steam"], colour="red")
    assert (project["tags"], project["colour"]) == (["brass", "steam"], "red")
    path = f"{V3}/projects/{project['id']}"
    assert (await api.put(f"{path}/tags/coal")).status_code == 201
    assert (await api.delete(f"{path}/tags/brass")).status_code == 204
    assert await message(await api.get(f"{path}/tags/brass")) == (404, "Could not find project tag: brass.")
    assert (await api.get(f"{path}/tags")).json()["tags"] == ["steam", "coal"]
    for query, found in (({"tags": "steam,coal"}, 1), ({"tags": "steam,tin"}, 0), ({"tags-any": "steam,tin"}, 1)):
        assert len((await api.get(f"{V3}/projects", params=query)).json()["projects"]) == found
    assert len((await api.get(f"{V3}/projects", params={"not-tags": "steam"})).json()["projects"]) == 3


async def test_a_default_project_is_what_one_signs_in_for_without_naming_one(api: Api) -> None:
    demo, roles = (await ids(api, "projects"))["demo"], await ids(api, "roles")
    user_id, ada = await user(api, default_project_id=demo)
    assert "project" not in (await sign_in(api, by_password(ada)))[1]
    await put(api, f"/projects/{demo}/users/{user_id}/roles/{roles['reader']}")
    assert (await sign_in(api, by_password(ada)))[1]["project"]["id"] == demo
    assert "project" not in (await sign_in(api, by_password(ada, "unscoped")))[1]


async def test_a_domain_has_its_own_users_and_is_deleted_with_them(api: Api) -> None:
    domain = await make(api, "domains", name="works", description="d", colour="blue")
    assert domain["colour"] == "blue"
    again = await api.post(f"{V3}/domains", {"domain": {"name": "works"}})
    assert (await message(again))[0] == 409
    _, ada = await user(api, domain_id=domain["id"])
    named = {"name": "ada", "domain": {"name": "works"}, "password": "lovelace"}
    assert (await sign_in(api, by_password(named)))[1]["user"]["domain"] == {"id": domain["id"], "name": "works"}
    elsewhere = {**named, "domain": {"id": "default"}}
    assert (await api.post(TOKENS, by_password(elsewhere), cloud=None)).status_code == 401
    assert (await message(await api.delete(f"{V3}/domains/{domain['id']}")))[0] == 403
    assert (await message(await api.patch(f"{V3}/domains/default", {"domain": {"enabled": False}})))[0] == 403

    secret, _ = await sign_in(api, by_password(ada))
    await api.patch(f"{V3}/domains/{domain['id']}", {"domain": {"enabled": False}})
    assert (await api.post(TOKENS, by_password(ada), cloud=None)).status_code == 401
    answer = await api.get(f"{V3}/auth/projects", cloud=None, headers={"X-Auth-Token": secret})
    assert answer.status_code == 401
    assert (await api.delete(f"{V3}/domains/{domain['id']}")).status_code == 204
    assert "ada" not in await ids(api, "users")


async def test_a_role_on_a_domain_gives_a_token_for_it(api: Api) -> None:
    domain, roles = await make(api, "domains", name="works"), await ids(api, "roles")
    user_id, ada = await user(api)
    request = by_password(ada, {"domain": {"id": domain["id"]}})
    assert (await api.post(TOKENS, request, cloud=None)).status_code == 401
    grant = f"/domains/{domain['id']}/users/{user_id}/roles/{roles['admin']}"
    await put(api, grant)
    secret, token = await sign_in(api, request)
    assert (token["domain"], names(token)[0]) == ({"id": domain["id"], "name": "works"}, "admin")
    mine = {"cloud": None, "headers": {"X-Auth-Token": secret}}
    assert [row["name"] for row in (await api.get(f"{V3}/auth/domains", **mine)).json()["domains"]] == ["works"]
    made = await api.post(f"{V3}/projects", {"project": {"name": "p"}}, **mine)
    assert made.json()["project"]["domain_id"] == domain["id"]
    # A domain has no servers.
    assert (await api.get("/compute/v2.1/servers", **mine)).status_code == 403
    assert (await api.delete(f"{V3}{grant}")).status_code == 204
    assert (await api.get(f"{V3}/auth/domains", **mine)).status_code == 401


async def test_a_group_gives_its_roles_to_its_users_as_long_as_they_are_in_it(api: Api) -> None:
    demo, roles = (await ids(api, "projects"))["demo"], await ids(api, "roles")
    user_id, ada = await user(api)
    group = await make(api, "groups", name="engineers")
    assert (await message(await api.post(f"{V3}/groups", {"group": {"name": "engineers"}})))[0] == 409
    await put(api, f"/groups/{group['id']}/users/{user_id}")
    await put(api, f"/projects/{demo}/groups/{group['id']}/roles/{roles['member']}")
    request = by_password(ada, {"project": {"id": demo}})
    secret, token = await sign_in(api, request)
    assert names(token) == ["member", "reader"]
    mine = {"cloud": None, "headers": {"X-Auth-Token": secret}}
    assert [row["name"] for row in (await api.get(f"{V3}/auth/projects", **mine)).json()["projects"]] == ["demo"]
    shown = (await api.get(f"{V3}/users/{user_id}/groups", **mine)).json()["groups"]
    assert [row["name"] for row in shown] == ["engineers"]
    assert [row["id"] for row in (await api.get(f"{V3}/groups/{group['id']}/users")).json()["users"]] == [user_id]
    assert (await api.delete(f"{V3}/groups/{group['id']}/users/{user_id}")).status_code == 204
    assert (await api.get("/compute/v2.1/servers", **mine)).status_code == 401
    assert (await message(await api.get(f"{V3}/groups/{group['id']}/users/{user_id}")))[0] == 404


async def test_an_inherited_role_counts_below_and_not_there_itself(api: Api) -> None:
    roles = await ids(api, "roles")
    user_id, ada = await user(api)
    top = await make(api, "projects", name="top")
    middle = await make(api, "projects", name="middle", parent_id=top["id"])
    low = await make(api, "projects", name="low", parent_id=middle["id"])
    ending = f"/users/{user_id}/roles/{roles['member']}/inherited_to_projects"
    await put(api, f"/OS-INHERIT/projects/{top['id']}{ending}")

    async def signs_in_for(project: dict[str, Any]) -> bool:
        request = by_password(ada, {"project": {"id": project["id"]}})
        return (await api.post(TOKENS, request, cloud=None)).status_code == 201

    assert [await signs_in_for(each) for each in (top, middle, low)] == [False, True, True]
    secret, _ = await sign_in(api, by_password(ada))
    mine = {"cloud": None, "headers": {"X-Auth-Token": secret}}
    found = (await api.get(f"{V3}/auth/projects", **mine)).json()["projects"]
    assert [row["name"] for row in found] == ["low", "middle"]
    await put(api, f"/OS-INHERIT/domains/default{ending}")
    assert await signs_in_for(top)
    listed = await api.get(f"{V3}/OS-INHERIT/domains/default/users/{user_id}/roles/inherited_to_projects")
    assert [role["name"] for role in listed.json()["roles"]] == ["member"]
    assert (await message(await api.delete(f"{V3}/projects/{middle['id']}")))[0] == 403


async def test_roles_are_made_imply_others_and_go_with_what_they_gave(api: Api) -> None:
    demo = (await ids(api, "projects"))["demo"]
    user_id, ada = await user(api)
    operator = await make(api, "roles", name="operator", description="runs it", shift="night")
    assert (operator["description"], operator["shift"]) == ("runs it", "night")
    roles = await ids(api, "roles")
    await put(api, f"/projects/{demo}/users/{user_id}/roles/{operator['id']}")
    request = by_password(ada, {"project": {"id": demo}})
    assert names((await sign_in(api, request))[1]) == ["operator"]
    implies = f"{V3}/roles/{operator['id']}/implies"
    assert (await api.put(f"{implies}/{roles['member']}")).status_code == 201
    assert names((await sign_in(api, request))[1]) == ["member", "reader", "operator"]
    shown = (await api.get(f"{V3}/role_inferences")).json()["role_inferences"]
    assert {row["prior_role"]["name"] for row in shown} == {"admin", "manager", "member", "operator"}
    assert (await message(await api.put(f"{implies}/{roles['admin']}")))[0] == 403
    await api.patch(f"{V3}/roles/{operator['id']}", {"role": {"name": "pilot"}})
    assert names((await sign_in(api, request))[1]) == ["member", "reader", "pilot"]
    assert (await api.delete(f"{implies}/{roles['member']}")).status_code == 204
    assert names((await sign_in(api, request))[1]) == ["pilot"]
    assert (await api.delete(f"{V3}/roles/{operator['id']}")).status_code == 204
    assert (await api.post(TOKENS, request, cloud=None)).status_code == 401
    for path in (f"roles/{roles['admin']}", f"roles/{roles['admin']}/implies/{roles['manager']}"):
        assert (await message(await api.delete(f"{V3}/{path}")))[0] == 403


async def test_assignments_are_listed_as_given_and_as_they_come_to(api: Api) -> None:
    projects, roles = await ids(api, "projects"), await ids(api, "roles")
    user_id, _ = await user(api)
    group = await make(api, "groups", name="engineers")
    await put(api, f"/groups/{group['id']}/users/{user_id}")
    await put(api, f"/projects/{projects['alt']}/groups/{group['id']}/roles/{roles['member']}")
    await put(api, f"/system/users/{user_id}/roles/{roles['reader']}")
    await put(api, f"/OS-INHERIT/domains/default/users/{user_id}/roles/{roles['service']}/inherited_to_projects")

    async def listed(**query: str) -> list[dict[str, Any]]:
        answer = await api.get(
            f"{V3}/role_assignments", params={key.replace("__", "."): each for key, each in query.items()}
        )
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["role_assignments"]
        return found

    (by_group,) = await listed(group__id=group["id"])
    assert by_group == {
        "role": {"id": roles["member"]},
        "group": {"id": group["id"]},
        "scope": {"project": {"id": projects["alt"]}},
        "links": {
            "assignment": f"http://roost.test{V3}/projects/{projects['alt']}/groups/{group['id']}/roles/{roles['member']}"
        },
    }
    own = await listed(user__id=user_id, include_names="1")
    assert [each["scope"] for each in own] == [
        {"system": {"all": True}},
        {"domain": {"id": "default", "name": "Default"}, "OS-INHERIT:inherited_to": "projects"},
    ]
    assert own[0]["user"] == {"id": user_id, "name": "ada", "domain": {"id": "default", "name": "Default"}}
    effective = await listed(user__id=user_id, effective="", scope__project__id=projects["alt"], include_names="")
    assert {each["role"]["name"] for each in effective} == {"member", "reader", "service"}
    assert len(await listed(role__id=roles["service"])) == 1
    assert [each["user"]["id"] for each in await listed(scope__system="all")] == [user_id]
    answer = await api.get(f"{V3}/role_assignments", params={"effective": "1", "group.id": group["id"]})
    assert (await message(answer))[0] == 400
    assert (await message(await api.get(f"{V3}/role_assignments", cloud="roost")))[0] == 403


async def test_who_may_speak_for_the_system_is_told_so(api: Api) -> None:
    assert (await api.get(f"{V3}/auth/system")).json()["system"] == [{"all": True}]
    assert (await api.get(f"{V3}/auth/system", cloud="roost")).json()["system"] == []


async def test_nobody_but_an_admin_changes_any_of_it(api: Api) -> None:
    for method, path, body in (
        ("POST", "domains", {"domain": {"name": "x"}}),
        ("POST", "groups", {"group": {"name": "x"}}),
        ("POST", "roles", {"role": {"name": "x"}}),
        ("POST", "services", {"service": {"type": "x"}}),
        ("POST", "regions", {"region": {"id": "x"}}),
        ("PUT", f"system/users/x/roles/{'0' * 32}", None),
        ("DELETE", "groups/x", None),
    ):
        answer = await api.request(method, f"{V3}/{path}", cloud="roost-manager", json=body)
        assert (await message(answer))[0] == 403, path


async def test_a_project_shows_those_above_and_below_it_if_asked(api: Api) -> None:
    top = await make(api, "projects", name="top")
    middle = await make(api, "projects", name="middle", parent_id=top["id"])
    low = await make(api, "projects", name="low", parent_id=middle["id"])
    path = f"{V3}/projects/{middle['id']}"
    shown = (await api.get(f"{path}?parents_as_ids&subtree_as_ids")).json()["project"]
    assert (shown["parents"], shown["subtree"]) == ({top["id"]: {"default": None}}, {low["id"]: None})
    assert not {"parents", "subtree"} & (await api.get(path)).json()["project"].keys()
    alone = (await api.get(f"{V3}/projects/{low['id']}?subtree_as_ids")).json()["project"]
    assert alone["subtree"] is None
