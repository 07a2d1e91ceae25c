"""The dashboard in a real browser: what an operator and a tenant see, live, and can do."""

import re
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import (
    PHONE,
    WIDE,
    ZOOMED,
    Gate,
    Visit,
    World,
    counted,
    faults,
    look,
    picture,
    until,
)

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

MARKS = "svg.map .mark"
LISTS = ("groups", "clusters", "nodes", "actions")
LISTS_OF_OPERATORS = ("hosts", "aggregates", "scopes", "projects")
# Which of the views, beside those that the tests below come to, are shown in the documentation.
_PICTURES = {
    ("overview", "wide", "dark"),
    ("overview", "phone", "light"),
    ("group", "phone", "light"),
    ("cluster", "phone", "dark"),
}


def test_a_wrong_password_is_refused_in_words(visit: Visit, world: World) -> None:
    page = visit(None, forgiving=True)
    page.get_by_label("User").fill("demo")
    page.get_by_label("Password", exact=True).fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("alert").filter(has_text=re.compile("authenti|sign", re.I)).wait_for()
    assert faults(page) == []


def test_the_operator_sees_every_host_and_server_on_the_map(visit: Visit, world: World) -> None:
    page = visit(world.admin)
    assert page.locator("svg.map .zone").count() == 3
    assert page.locator("svg.map .aggregate").count() == 12
    counted(page, "svg.map .host", 48)
    counted(page, MARKS, 4 + 9 + 6 + 3 + 3 + 5)
    assert page.locator("svg.map .host.disabled").get_attribute("data-host") == "zone3-rack4-host4"
    picture(page, "map")


def test_details_are_shown_by_click_and_by_keyboard(visit: Visit, world: World) -> None:
    page = visit(world.admin)
    page.locator(f"[data-server='{world.members[0]}']").click()
    page.get_by_role("heading", name=re.compile("^db-")).wait_for()
    page.get_by_role("heading", name="Why it is here").wait_for()
    page.locator("svg.map [tabindex='0']").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="rack zone1-rack2").wait_for()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=re.compile("^zone1-rack2-host")).wait_for()
    page.goto(f"{world.served.url}/#/aggregate/zone1%2F{rack_id(world, 'zone1-rack2')}")
    page.get_by_role("button", name="Close on the map").click()
    counted(page, "svg.map .host", 44)
    page.get_by_role("button", name="Open on the map").wait_for()
    assert page.evaluate("document.activeElement.textContent") == "Open on the map"
    page.locator("svg.map .host").first.hover()
    page.locator(".hover").filter(has_text="host zone1-rack1-host1").wait_for()


def rack_id(world: World, name: str) -> str:
    """The id of the aggregate with a name."""
    found = world.admin.ask("GET", "/compute/v2.1/os-aggregates")["aggregates"]
    return next(str(each["id"]) for each in found if each["name"] == name)


def test_the_map_can_be_skipped(visit: Visit, world: World) -> None:
    page = visit(world.admin, "#/groups")
    page.get_by_role("link", name="Skip the map").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "panel"
    assert page.evaluate("location.hash") == "#/groups"


def test_the_map_is_divided_by_any_scope(visit: Visit, world: World) -> None:
    page = visit(world.admin)
    page.get_by_label("Divide by").select_option("switch")
    counted(page, "svg.map .aggregate", 6)
    counted(page, "svg.map .host", 48)


def test_a_late_answer_does_not_undo_the_division_of_the_map(visit: Visit, world: World) -> None:
    page = visit(world.admin)
    counted(page, "svg.map .host", 48)
    whole = re.compile(r"os-fleet\?scope=rack&open=all")
    late: list[Route] = []
    page.route(whole, lambda route: late.append(route))
    look(page, f"#/groups/{world.database}")
    until(lambda: page.evaluate("1") and late)
    page.get_by_label("Divide by").select_option("switch")
    counted(page, "svg.map .aggregate", 6)
    with page.expect_response(whole) as answered:
        for each in late:
            each.continue_()
    answered.value.finished()
    look(page, "#/groups")
    counted(page, "svg.map .aggregate", 6)
    counted(page, "svg.map .host", 48)


def test_a_scale_out_appears_as_it_happens(visit: Visit, world: World) -> None:
    page = visit(world.demo, f"#/clusters/{world.cluster}")
    page.get_by_role("heading", name=re.compile("shop")).wait_for()
    before = page.locator(MARKS).count()
    with world.standstill():
        world.demo.act(world.cluster, "scale_out", wait=False)
        page.locator(".running").filter(has_text="scale out").filter(has_text="3 nodes left").wait_for()
        assert page.get_by_role("progressbar").get_attribute("value") == "0"
    counted(page, MARKS, before + 3)
    page.get_by_text("Adds 3 nodes.").wait_for()
    page.get_by_text("New nodes go 1 in zone1, 1 in zone2, 1 in zone3.").wait_for()
    page.get_by_role("img", name="6 nodes, 6 wanted, between 2 and 12").wait_for()
    page.get_by_text(re.compile("Last scale out .succeeded")).wait_for()
    counted(page, ".running", 0)
    picture(page, "cluster")
    assert faults(page) == []


def test_a_broken_rule_glows_and_is_repaired_from_the_page(visit: Visit, world: World) -> None:
    page = visit(world.admin, "#/groups")
    page.get_by_role("link", name="db", exact=True).click()
    page.get_by_text("At most 2 per rack; preferably one switch").wait_for()
    page.get_by_text("None: every rule holds.").wait_for()
    crowded = break_rule(world)
    page.locator("svg.map .aggregate.broken").first.wait_for()
    page.get_by_text(re.compile("in one rack, 1 more than")).wait_for()
    assert page.locator("svg.map .mark.broken").count() == 3
    page.get_by_role("button", name="Repair").click()
    page.get_by_text("1 live migration would repair everything").wait_for()
    assert page.locator("svg.map .arrow").count() == 1
    picture(page, "repair")
    assert faults(page) == []
    page.get_by_role("button", name="Apply this repair").click()
    page.get_by_text("None: every rule holds.").wait_for()
    counted(page, "svg.map .broken", 0)
    counted(page, "svg.map .arrow", 0)
    assert len({world.host(member) for member in crowded}) > 1


def break_rule(world: World) -> list[str]:
    """Force a third member into a rack that may hold two; the three of them."""
    racks: dict[str, list[str]] = {}
    for member in world.members:
        racks.setdefault(world.host(member).rpartition("-")[0], []).append(member)
    rack, inside = max(racks.items(), key=lambda each: len(each[1]))
    assert len(inside) == 2
    other = next(member for member in world.members if member not in inside)
    free = next(f"{rack}-host{n}" for n in range(1, 5) if f"{rack}-host{n}" not in map(world.host, inside))
    world.force(other, free)
    return [*inside, other]


def test_a_violation_comes_with_a_forced_migration_and_goes_with_the_next(visit: Visit, world: World) -> None:
    page = visit(world.demo)
    page.get_by_role("heading", name="Nothing is wrong").wait_for()
    *_, moved = break_rule(world)
    page.locator("svg.map .aggregate.broken").first.wait_for()
    page.get_by_role("link", name="db", exact=True).first.wait_for()
    taken = {world.host(member).rpartition("-")[0] for member in world.members}
    free = next(f"zone{z}-rack{r}" for z in (1, 2, 3) for r in (1, 2, 3, 4) if f"zone{z}-rack{r}" not in taken)
    world.move(moved, f"{free}-host1")
    page.get_by_role("heading", name="Nothing is wrong").wait_for()
    counted(page, "svg.map .broken", 0)


def test_growth_is_explained_planned_and_applied(visit: Visit, world: World) -> None:
    page = visit(world.demo, f"#/groups/{world.database}")
    page.get_by_role("button", name="Explain").click()
    page.locator(".answer .good").wait_for()
    page.get_by_label("How many").fill("2")
    page.get_by_role("button", name="Plan").click()
    page.get_by_role("button", name="Apply this plan").wait_for()
    before = page.locator(MARKS).count()
    picture(page, "plan")
    page.get_by_role("button", name="Apply this plan").click()
    counted(page, MARKS, before + 2)


def test_growth_that_finds_no_place_is_explained(visit: Visit, world: World) -> None:
    page = visit(world.demo, f"#/groups/{world.database}")
    page.get_by_label("How many").fill("40")
    page.get_by_role("button", name="Plan").click()
    page.locator(".answer .bad-text").filter(has_text="No place for 40 servers").wait_for()
    page.get_by_role("heading", name="What would help").wait_for()
    assert page.get_by_role("button", name="Apply this plan").count() == 0


def plan(page: "Page", change: str, place: str) -> None:
    """Ask what a change would come to."""
    page.get_by_label("What if").select_option(change)
    page.get_by_label("Place").select_option(place)
    page.get_by_role("button", name="Plan").click()


def test_the_loss_of_a_place_is_played_through(visit: Visit, world: World) -> None:
    rack = world.host(world.members[0]).rpartition("-")[0]
    page = visit(world.admin, f"#/groups/{world.database}")
    plan(page, "we lose", f"rack {rack}")
    page.get_by_text(re.compile("would move, no rules would be broken")).wait_for()
    assert page.locator("svg.map .arrow").count() > 0
    assert page.get_by_role("button", name="Apply this plan").count() == 0
    page.goto(f"{world.served.url}/#/aggregate/{rack.partition('-')[0]}%2F{rack_id(world, rack)}")
    page.get_by_role("button", name="What if we lose it?").click()
    page.get_by_text(re.compile("servers? in . groups? would be affected|would find another place")).wait_for()
    assert page.locator("svg.map .arrow").count() > 0
    picture(page, "loss")
    assert faults(page) == []
    page.get_by_role("button", name="Leave it").click()
    counted(page, "svg.map .arrow", 0)


def test_a_tenant_plans_by_the_names_that_it_may_know(visit: Visit, world: World) -> None:
    page = visit(world.demo, f"#/groups/{world.database}")
    page.get_by_label("What if").select_option("we lose")
    assert {text.partition(" ")[0] for text in page.get_by_label("Place").locator("option").all_inner_texts()} == {
        "zone"
    }
    page.get_by_role("button", name="Plan").click()
    page.locator(".answer").filter(has_text="rack A").wait_for()
    assert page.get_by_role("button", name="Apply").count() == 0


def test_a_rack_is_drained_from_the_page(visit: Visit, world: World) -> None:
    rack = world.host(world.members[0]).rpartition("-")[0]
    page = visit(world.admin, f"#/groups/{world.database}")
    plan(page, "we drain", f"rack {rack}")
    page.get_by_role("button", name="Apply this plan").click()
    page.locator(".answer .good").filter(has_text="Repair done").wait_for()
    assert not any(world.host(member).startswith(f"{rack}-") for member in world.members)


def test_a_tenant_sees_nothing_of_others(visit: Visit, world: World) -> None:
    page = visit(world.demo)
    bodies: list[str] = []
    page.on("response", lambda each: bodies.append(_text(each)) if "/events" not in each.url else None)
    hidden = ("secret", world.secret, "zone1-rack1", "-host1")
    for at in ("#/groups", "#/clusters", f"#/clusters/{world.cluster}", f"#/groups/{world.database}", "#/"):
        look(page, at)
        shown = page.content()
        assert [word for word in hidden if word in shown] == [], at
    assert bodies
    assert [word for word in hidden for body in bodies if word in body] == []
    look(page, "#/groups")
    page.get_by_role("link", name="db", exact=True).wait_for()


def _text(response: object) -> str:
    try:
        return str(response.text())  # type: ignore[attr-defined]
    except Exception:
        return ""


def test_a_tenant_who_knows_an_id_is_refused(visit: Visit, world: World) -> None:
    page = visit(world.demo, forgiving=True)
    page.goto(f"{world.served.url}/#/groups/{world.secret}")
    page.get_by_text("could not be found").first.wait_for()


def test_a_lost_connection_says_so_and_comes_back(visit: Visit, world: World) -> None:
    gate = Gate(world.served.url)
    page = visit(world.demo, forgiving=True, site=gate.url)
    page.evaluate("() => { window.kept = 1 }")
    gate.shut()
    page.locator("#live.lost").wait_for()
    page.get_by_role("link", name="Groups").click()
    page.get_by_role("heading", name="Roost does not answer.").wait_for()
    gate.open()
    page.get_by_role("heading", name="Server groups").wait_for()
    page.locator("#live:not(.lost)").wait_for()
    assert page.evaluate("window.kept") == 1
    before = page.locator(MARKS).count()
    world.demo.boot("after", 1)
    counted(page, MARKS, before + 1)


def test_a_session_that_has_ended_says_so_and_goes_on_after_signing_in(visit: Visit, world: World) -> None:
    page = visit(world.demo, "#/groups", forgiving=True)
    token = page.evaluate("localStorage.getItem('roost-token')")
    assert world.demo.http.delete("/identity/v3/auth/tokens", headers={"X-Subject-Token": token}).is_success
    world.demo.boot("later", 1)
    page.get_by_role("alert").filter(has_text="Your session has ended").wait_for()
    page.get_by_label("User").fill(world.demo.name)
    page.get_by_label("Password", exact=True).fill(world.demo.password)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", name="Server groups").wait_for()


def test_who_signs_out_is_signed_out(visit: Visit, world: World) -> None:
    # What is being asked for at that moment may be refused.
    page = visit(world.alt, forgiving=True)
    token = page.evaluate("localStorage.getItem('roost-token')")
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("heading", name="Sign in").wait_for()
    assert page.evaluate("localStorage.getItem('roost-token')") is None
    until(lambda: world.alt.http.get("/image/v2/images", headers={"X-Auth-Token": token}).status_code == 401)


@pytest.mark.parametrize(("name", "size"), [("wide", WIDE), ("phone", PHONE), ("zoomed", ZOOMED)])
def test_every_view_is_accessible_and_fits(visit: Visit, world: World, name: str, size: dict[str, int]) -> None:
    """In light and in the dark, which differ in colours alone."""
    page = visit(world.admin, size=size)
    for view, at in (views(world) | views_of_operators(world)).items():
        look(page, at)
        apart = view not in ("overview", "group", "cluster")
        assert faults(page, without_map=apart) == [], view
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
        pictured(page, view, name, "light")
        page.emulate_media(color_scheme="dark")
        assert faults(page, "color-contrast", without_map=apart) == [], view
        pictured(page, view, name, "dark")
        page.emulate_media(color_scheme="light")


def test_every_view_of_a_tenant_and_the_door_are_accessible(visit: Visit, world: World) -> None:
    page = visit(world.demo)
    for view, at in views(world).items():
        look(page, at)
        assert faults(page, without_map=view != "overview") == [], view
    door = visit(None)
    for scheme in ("light", "dark"):
        door.emulate_media(color_scheme=scheme)
        assert faults(door) == [], scheme


def test_faults_of_little_impact_are_found_too(visit: Visit) -> None:
    door = visit(None)
    door.evaluate("document.querySelector('form').append(document.createElement('h6'))")
    assert {fault.partition(":")[0] for fault in faults(door)} == {"empty-heading", "heading-order"}


def views(world: World) -> dict[str, str]:
    """The address of a page of every kind."""
    (node, *_) = world.demo.ask("GET", f"/clustering/v1/nodes?cluster_id={world.cluster}")["nodes"]
    (action, *_) = world.demo.ask("GET", f"/clustering/v1/actions?target={world.cluster}")["actions"]
    return {
        **{"overview": "#/", "groups": "#/groups", "clusters": "#/clusters", "feed": "#/feed"},
        "lists": "#/lists/servers",
        **{f"list of {each}": f"#/lists/{each}" for each in LISTS},
        **{"group": f"#/groups/{world.database}", "cluster": f"#/clusters/{world.cluster}"},
        **{"node": f"#/node/{node['id']}", "action": f"#/action/{action['id']}"},
        **{"project": f"#/project/{world.demo.project_id}", "server": f"#/server/{world.members[0]}"},
    }


def views_of_operators(world: World) -> dict[str, str]:
    """Those that only operators see."""
    return {
        **{f"list of {each}": f"#/lists/{each}" for each in LISTS_OF_OPERATORS},
        **{"aggregate": f"#/aggregate/{rack_id(world, 'zone1-rack1')}", "host": "#/host/zone1-rack1-host1"},
    }


def pictured(page: "Page", view: str, name: str, scheme: str) -> None:
    """Take the pictures of views that the documentation shows."""
    if (view, name, scheme) in _PICTURES:
        picture(page, f"{view}-{name}-{scheme}")
