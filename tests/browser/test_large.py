"""The console over 10,000 hosts and 20,000 servers in a real browser."""

import re
from typing import TYPE_CHECKING

from tests.browser.conftest import Client, Visit, counted, faults, picture

if TYPE_CHECKING:
    from playwright.sync_api import Page

MARKS = "svg.map .mark"


def test_ten_thousand_hosts_are_tiles_that_open(visit: Visit, large: Client) -> None:
    page = visit(large, site=str(large.http.base_url).rstrip("/"))
    counted(page, "svg.map .host", 0)
    assert 100 < page.locator("svg.map .aggregate").count() < 1000
    assert page.evaluate("performance.getEntriesByType('resource').every(each => each.transferSize < 200_000)")
    page.locator("svg.map .aggregate").first.click()
    page.locator("svg.map .aggregate.open").wait_for()
    page.locator(MARKS).first.wait_for()
    counted(page, "svg.map .more", 0)
    assert faults(page) == []
    picture(page, "large")


def test_every_address_opens_in_a_new_tab(visit: Visit, large: Client) -> None:
    """Also that of a host or a server in a rack that is not open on the map."""
    site = str(large.http.base_url).rstrip("/")
    (server,) = large.ask("GET", "/compute/v2.1/os-lists/servers?sort=name:desc&limit=1")["list"]["rows"]
    page = visit(large, site=site)
    for at, name in ((f"#/host/{server['host']}", server["host"]), (f"#/server/{server['id']}", server["name"])):
        tab = page.context.new_page()
        tab.goto(f"{site}/{at}")
        tab.get_by_role("heading", name=name, exact=True).wait_for()
        assert faults(tab) == []


def test_tiles_count_all_servers_again_after_a_group_was_left(visit: Visit, large: Client) -> None:
    (group,) = large.ask("GET", "/compute/v2.1/os-lists/groups?limit=1")["list"]["rows"]
    page = visit(large, f"#/groups/{group['id']}", site=str(large.http.base_url).rstrip("/"))
    page.locator("svg.map .aggregate.chosen").first.wait_for()
    page.evaluate("location.hash = '#/'")
    counted(page, "svg.map .aggregate.chosen", 0)
    counted(page, "svg.map .aggregate.apart", 0)


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


def test_every_group_is_found_and_the_map_says_which_have_no_look_of_their_own(visit: Visit, large: Client) -> None:
    """By any case, and beyond those that the page shows."""
    page = visit(large, "#/groups", site=str(large.http.base_url).rstrip("/"))
    page.get_by_role("link", name="and 4,800 more").wait_for()
    page.get_by_label("Find").fill("GROUP-4999")
    page.get_by_role("link", name="group-4999", exact=True).wait_for()
    key = page.get_by_role("list", name="Signs on the map")
    assert "more groups" not in key.inner_text()
    for opened in range(1, 5):
        page.locator("svg.map .aggregate:not(.open)").first.click()
        counted(page, "svg.map .aggregate.open", opened)
    key.get_by_text("in one of many more groups").wait_for()
    own = page.evaluate("""[...document.querySelectorAll('svg.map .mark[class*=hue-]')].map(each => each.dataset.said)
        .map(said => /group (.*)/.exec(said)[1])""")
    assert len(set(own)) == 120
    assert faults(page) == []


def test_lists_of_a_large_cloud_are_filtered_and_groups_sorted(visit: Visit, large: Client) -> None:
    page = visit(large, "#/lists/servers?zone=zone1&project=demo", site=str(large.http.base_url).rstrip("/"))
    page.get_by_role("heading", name=re.compile("^[1-9][0-9,]* servers$")).wait_for()
    assert all("zone1" in row for row in page.locator("tbody tr").all_inner_texts())
    page.evaluate("location.hash = '#/lists/groups?sort=members:desc'")
    page.get_by_role("heading", name="5,000 groups").wait_for()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Export as CSV").click()
    assert len(saved.value.path().read_text().splitlines()) == 5001
