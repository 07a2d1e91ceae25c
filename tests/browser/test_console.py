"""The console in a real browser: what is wrong, search, lists, pages of their own, and what can be done."""

import re
from typing import TYPE_CHECKING

from tests.browser.conftest import PHONE, Client, Visit, World, faults, until

if TYPE_CHECKING:
    from playwright.sync_api import Page


def fail_servers(client: Client, group: str, number: int) -> None:
    """Servers in ERROR: no zone of theirs has room under the group's rule."""
    for index in range(number):
        server = {"name": f"lost-{index}", "flavorRef": "2", "imageRef": _image(client), "networks": "none"}
        body = {"server": server, "os:scheduler_hints": {"group": group}}
        client.ask("POST", "/compute/v2.1/servers", body)
    path = "/compute/v2.1/os-lists/servers?status=ERROR"
    until(lambda: client.ask("GET", path)["list"]["total"] >= number)


def _image(client: Client) -> str:
    return str(client.ask("GET", "/image/v2/images")["images"][0]["id"])


def failing_group(world: World, name: str) -> str:
    """A group that takes one server in the whole cloud."""
    rule = {"name": "anti-affinity", "scope": "availability_zone"}
    group = world.demo.group(name, rule)
    world.demo.boot(name, 3, group)
    return group


def test_servers_in_error_come_first_with_the_reason_and_the_remedy(visit: Visit, world: World) -> None:
    group = failing_group(world, "crowded")
    fail_servers(world.demo, group, 2)
    page = visit(world.demo)
    page.get_by_role("heading", name="2 things wrong").wait_for()
    first = page.locator(".harm[data-kind=server_failed]").first
    assert "lost-" in first.inner_text()
    first.get_by_text("What to do").click()
    first.get_by_text(re.compile("openstack server explain")).wait_for()
    page.wait_for_function("document.title.startsWith('(2) ')")
    assert faults(page) == []
    first.get_by_role("link").first.click()
    page.get_by_role("heading", name="Why it has no place").wait_for()
    page.goto(f"{world.served.url}/#/groups/{group}")
    page.get_by_role("heading", name="2 members in ERROR").wait_for()
    phone = visit(world.demo, size=PHONE)
    phone.locator(".harm").first.wait_for()
    box = phone.locator(".harm").first.bounding_box()
    assert box is not None
    assert box["y"] < phone.locator("svg.map").bounding_box()["y"]


def test_anything_is_found_from_the_keyboard(visit: Visit, world: World) -> None:
    page = visit(world.admin)
    page.keyboard.press("/")
    page.keyboard.type("DB")
    page.locator("#found").get_by_role("link", name="db", exact=True).wait_for()
    assert faults(page) == []
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "search"
    page.get_by_role("searchbox", name="Search").fill("zone2-rack3-host2")
    page.locator("#found").get_by_role("link", name="zone2-rack3-host2").wait_for()
    page.keyboard.press("Enter")
    page.wait_for_function("location.hash.startsWith('#/')")


def test_lists_are_filtered_sorted_and_shared_by_their_address(visit: Visit, world: World) -> None:
    page = visit(world.admin, "#/lists/servers?q=web&sort=name:desc")
    page.get_by_role("heading", name=re.compile("servers$")).wait_for()
    names = page.locator("tbody th").all_inner_texts()
    assert names == sorted(names, reverse=True)
    assert all(name.startswith("web") for name in names)
    page.get_by_role("link", name="hosts", exact=True).click()
    page.get_by_label("state").select_option("disabled")
    page.get_by_role("button", name="Show").click()
    page.get_by_role("heading", name="1 hosts").wait_for()
    assert "state=disabled" in page.evaluate("location.hash")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Export as CSV").click()
    assert "zone3-rack4-host4" in saved.value.path().read_text()


def test_a_link_opens_in_a_new_tab_without_signing_in(visit: Visit, world: World) -> None:
    page = visit(world.admin)
    other = page.context.new_page()
    other.goto(f"{world.served.url}/#/host/zone1-rack1-host1")
    other.get_by_role("heading", name="zone1-rack1-host1").wait_for()
    other.goto(f"{world.served.url}/#/server/{world.members[0]}")
    other.get_by_role("heading", name=re.compile("^db-")).wait_for()


def test_a_host_is_drained_with_a_preview_and_progress(visit: Visit, world: World) -> None:
    host = world.host(world.members[0])
    page = visit(world.admin, f"#/host/{host}")
    page.get_by_role("button", name="Disable and drain").click()
    page.get_by_text(re.compile("would take no new servers")).wait_for()
    page.get_by_text(f"openstack compute service set --disable {host} nova-compute").last.wait_for()
    page.get_by_role("button", name="Drain it now").click()
    page.get_by_text(re.compile("^Drained:")).wait_for()
    assert world.host(world.members[0]) != host


def test_a_group_is_composed_in_words_and_created(visit: Visit, world: World) -> None:
    page = visit(world.demo, "#/groups")
    page.get_by_text("Create a group").click()
    page.get_by_label("Name").fill("composed")
    page.get_by_label("Over").select_option("rack")
    page.get_by_label("At most, in each").fill("2")
    page.get_by_role("button", name="Add this rule").click()
    page.get_by_text("At most 2 per rack.").wait_for()
    page.get_by_text("--policy anti-affinity:rack,max_server_per_aggregate=2").wait_for()
    assert faults(page) == []
    page.get_by_role("button", name="Create the group").click()
    page.get_by_role("heading", name="composed").wait_for()


def test_what_happened_is_listed_and_linked(visit: Visit, world: World) -> None:
    page = visit(world.admin, "#/feed")
    page.locator(".events li[data-kind=placed]").first.wait_for()
    page.get_by_label("Show").select_option("host_disabled")
    page.get_by_role("link", name="zone3-rack4-host4").first.wait_for()
    assert faults(page) == []


def search_takes(page: "Page", words: str) -> float:
    """How many milliseconds the API takes to answer a search."""
    return float(
        page.evaluate(
            """async words => {
                const token = localStorage.getItem("roost-token");
                const headers = {"X-Auth-Token": token, "OpenStack-API-Version": "compute 2.1003"};
                const from = performance.now();
                const answer = await fetch(`/compute/v2.1/os-search?q=${words}`, {headers});
                await answer.json();
                return performance.now() - from;
            }""",
            words,
        )
    )


def test_the_large_cloud_is_searched_and_listed(visit: Visit, large: Client) -> None:
    page = visit(large, site=str(large.http.base_url).rstrip("/"))
    page.get_by_role("searchbox", name="Search").fill("group-4999")
    page.locator("#found").get_by_role("link", name="group-4999", exact=True).wait_for()
    assert min(search_takes(page, "server-19999") for _ in range(3)) < 1000
    page.evaluate("location.hash = '#/lists/servers?sort=host'")
    page.get_by_role("heading", name="20,000 servers").wait_for()
    page.get_by_role("link", name="Next page").click()
    page.get_by_role("link", name="First page").wait_for()
