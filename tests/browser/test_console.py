"""The console in a real browser: what is wrong, search, lists, pages of their own, and what can be done."""

import contextlib
import csv
import io
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.browser.conftest import PHONE, Client, Visit, World, faults, look, sign_in, until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


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
    page.get_by_role("searchbox", name="Search").fill("disabled")
    page.locator("#found").get_by_role("link", name="zone3-rack4-host4").wait_for()
    page.get_by_role("searchbox", name="Search").fill("switch")
    page.locator("#found").get_by_role("link", name="switch", exact=True).click()
    page.get_by_role("heading", name="6 aggregates").wait_for()


def test_lists_are_filtered_sorted_and_shared_by_their_address(visit: Visit, world: World) -> None:
    page = visit(world.admin, "#/lists/servers?q=web&sort=name:desc")
    page.get_by_role("heading", name=re.compile("servers$")).wait_for()
    names = page.locator("tbody th").all_inner_texts()
    assert names == sorted(names, reverse=True)
    assert page.evaluate("getComputedStyle(document.querySelector('[aria-sort] a'), '::after').content") == '" ▼"'
    assert all(name.startswith("web") for name in names)
    page.get_by_role("link", name="hosts", exact=True).click()
    page.get_by_label("state").select_option("disabled")
    page.get_by_role("button", name="Show").click()
    page.get_by_role("heading", name="1 host", exact=True).wait_for()
    assert "state=disabled" in page.evaluate("location.hash")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Export as CSV").click()
    assert "zone3-rack4-host4" in saved.value.path().read_text()


def test_lists_and_the_feed_are_live_and_exported(visit: Visit, world: World) -> None:
    page = visit(world.demo, f"#/lists/servers?q=fresh&project_id={world.demo.project_id}")
    page.get_by_role("heading", name="0 servers").wait_for()
    assert page.get_by_label("project id").input_value() == world.demo.project_id
    feed = visit(world.demo, "#/feed?kind=placed")
    world.demo.boot("fresh", 1)
    page.get_by_role("heading", name="1 server", exact=True).wait_for()
    page.get_by_role("link", name="fresh", exact=True).wait_for()
    feed.locator(".events").get_by_role("link", name="fresh", exact=True).wait_for()
    with feed.expect_download() as saved:
        feed.get_by_role("button", name="Export as JSON").click()
    events = json.loads(saved.value.path().read_text())
    assert {each["kind"] for each in events} == {"placed"}
    with feed.expect_download() as saved:
        feed.get_by_role("button", name="Export as CSV").click()
    (first, *_) = csv.DictReader(io.StringIO(saved.value.path().read_text()))
    assert first["name"] == events[0]["name"]


def test_many_troubles_of_one_kind_do_not_hide_another(visit: Visit, world: World) -> None:
    page = visit(world.admin)
    nothing: dict[str, Any] = {"sentence": "", "since": None, "remedies": []}
    failed = [
        {"kind": "server_failed", "name": f"lost-{n}", "subject": {"kind": "servers", "id": str(n)}, **nothing}
        for n in range(100)
    ]
    action = {
        "kind": "action_failed",
        "name": "CLUSTER_SCALE_OUT",
        "subject": {"kind": "actions", "id": "1"},
        **nothing,
    }
    counts = {"server_failed": 1234, "action_failed": 1}
    body = {"troubles": {"total": 1235, "counts": counts, "items": [*failed, action]}}
    page.route("**/os-troubles", lambda route: route.fulfill(json=body))
    look(page, "#/clusters")
    look(page, "#/")
    page.get_by_role("heading", name="1235 things wrong").wait_for()
    assert page.locator(".harm[data-kind=server_failed]").count() == 10
    more = page.get_by_role("link", name="and 1,224 more: server in error")
    assert more.get_attribute("href") == "#/lists/servers?status=ERROR"
    page.locator(".harm[data-kind=action_failed]").get_by_role("link", name="scale out").wait_for()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Export as CSV").click()
    assert len(list(csv.DictReader(io.StringIO(saved.value.path().read_text())))) == 101


def test_the_map_is_saved_as_it_looks(visit: Visit, world: World, tmp_path: Path) -> None:
    page = visit(world.admin)
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save the map as SVG").click()
    saved.value.save_as(tmp_path / "map.svg")
    look_of = "getComputedStyle(document.querySelector('.zone rect')).fill"
    here = page.evaluate(look_of)
    marks = page.locator("svg.map .mark").count()
    other = page.context.new_page()
    other.goto((tmp_path / "map.svg").as_uri())
    assert other.locator(".mark").count() == marks
    assert other.evaluate(look_of) == here
    drawn = page.evaluate("document.querySelector('svg.map g.zones').getBBox().height")
    assert other.evaluate("document.documentElement.viewBox.baseVal.height") >= drawn > 100


_LOOKS = """Object.fromEntries([...document.querySelectorAll('svg.map .mark')].map(each => [
    each.dataset.server,
    [getComputedStyle(each).fill, ...['width', 'height', 'transform'].map(name => each.getAttribute(name))].join('|'),
]))"""


def test_groups_that_are_shown_at_once_look_different_and_keep_their_looks(visit: Visit, world: World) -> None:
    """Also two that would have the same colour by their ids."""
    rule = {"name": "anti-affinity", "scope": "rack"}
    by_colour: dict[int, list[str]] = {}
    while not any(len(alike) > 1 for alike in by_colour.values()):
        group = world.demo.group("alike", rule)
        by_colour.setdefault(int(group[:8], 16) % 30, []).append(group)
    one, two = next(alike for alike in by_colour.values() if len(alike) > 1)
    (of_one,), (of_two,) = world.demo.boot("one", 1, one), world.demo.boot("two", 1, two)
    page = visit(world.admin)
    for server in (of_one, of_two):
        page.locator(f"[data-server='{server}']").wait_for()
    before = page.evaluate(_LOOKS)
    assert before[of_one].partition("|")[0] != before[of_two].partition("|")[0]
    page.reload()
    page.locator("svg.map .mark").first.wait_for()
    assert page.evaluate(_LOOKS) == before
    page.evaluate("id => { location.hash = `#/groups/${id}` }", two)
    swatch = page.locator("h2 .swatch")
    swatch.wait_for()
    shown = "each => getComputedStyle(each).backgroundColor"
    assert swatch.evaluate(shown) == before[of_two].partition("|")[0]
    for server in (of_one, of_two):
        world.demo.ask("DELETE", f"/compute/v2.1/servers/{server}")


def test_no_look_is_ever_that_of_two_groups(visit: Visit, world: World) -> None:
    """However many are shown, in whatever order they come and go, and whatever was remembered before."""
    page = visit(None)
    found = page.evaluate("""async () => {
        const { Looks } = await import("/web/looks.js");
        const said = [];
        const kept = new Map();
        const store = { getItem: key => kept.get(key) ?? null, setItem: (key, value) => kept.set(key, value) };
        const hash = n => (n * 2654435761 % 2 ** 32).toString(16).padStart(8, "0");
        const ids = Array.from({ length: 2000 }, (_, n) => `${hash(n)}-x`);
        const seen = (looks, some) => some.map(id => { const { hue, form } = looks.of(id); return `${hue} ${form}`; });
        const own = all => all.filter(each => !each.startsWith("crowded"));
        let looks = new Looks(store);
        for (const [from, to] of [[0, 8], [0, 30], [20, 90], [10, 130], [0, 2000], [5, 60]]) {
            const shared = ids.slice(from, to).filter(id => looks.of(id).hue !== "crowded");
            const before = seen(looks, shared);
            const { version } = looks;
            looks.show(ids.slice(from, to));
            const after = seen(looks, ids.slice(from, to));
            const mine = own(after);
            if (new Set(mine).size !== mine.length) said.push(`${from}-${to}: two alike`);
            if (mine.length !== Math.min(to - from, 120)) said.push(`${from}-${to}: ${mine.length} looks`);
            if (looks.crowded !== to - from > 120) said.push(`${from}-${to}: ${looks.crowded}`);
            if (String(seen(looks, shared)) !== String(before)) said.push(`${from}-${to}: changed`);
            const again = new Looks(store);
            again.show(ids.slice(from, to));
            const reloaded = seen(again, ids.slice(from, to));
            if (String(reloaded) !== String(after)) said.push(`${from}-${to}: another after a reload`);
            if (from !== 5 && looks.version !== version) said.push(`${from}-${to}: drawn anew`);
        }
        for (let n = 0; n < 2000; n += 100) looks.show(ids.slice(n, n + 100));
        const most = JSON.parse(kept.get("roost-looks")).length;
        if (most > 500) said.push(`${most} are remembered`);
        kept.set("roost-looks", "no list");
        new Looks(store).show(ids.slice(0, 9));
        return said;
    }""")
    assert found == []


def test_moments_are_in_the_time_of_the_viewer(browser: "Browser", world: World) -> None:
    context = browser.new_context(timezone_id="Pacific/Auckland")
    page = context.new_page()
    page.goto(world.served.url)
    said = page.evaluate("import('/web/words.js').then(words => words.moment('2026-01-31T20:30:00+00:00'))")
    context.close()
    assert said == "2026-02-01 09:30:00"


def test_signing_in_says_that_it_is_busy(visit: Visit, world: World) -> None:
    page = visit(None)
    waiting: list[Any] = []
    page.route("**/auth/tokens", lambda route: waiting.append(route))
    page.get_by_label("User").fill(world.demo.name)
    page.get_by_label("Password", exact=True).fill(world.demo.password)
    button = page.get_by_role("button", name="Sign in")
    button.click()
    page.locator("button.main[aria-busy]").wait_for()
    button.click()
    page.wait_for_timeout(100)
    assert len(waiting) == 1
    waiting[0].continue_()
    page.unroute("**/auth/tokens")
    page.locator("svg.map .aggregate").first.wait_for(state="attached")


def test_a_session_outlives_a_roost_that_does_not_answer(visit: Visit, world: World) -> None:
    page = visit(world.demo, forgiving=True)
    page.route("**/auth/tokens", lambda route: route.fulfill(status=503, json={"error": {"message": "Not now."}}))
    page.reload()
    page.get_by_text("Not now. Trying again.").wait_for()
    page.unroute("**/auth/tokens")
    page.locator("svg.map .aggregate").first.wait_for(state="attached")


def test_a_server_is_resized_and_that_confirmed(visit: Visit, world: World) -> None:
    (server,) = world.demo.boot("grows", 1, world.demo.group("growing", {"name": "anti-affinity", "scope": "host"}))
    # What is deleted is asked for once more.
    page = visit(world.demo, f"#/server/{server}", forgiving=True)
    page.get_by_label("New flavor").select_option("m1.medium")
    page.get_by_role("button", name="Resize…").click()
    page.get_by_text("grows would become m1.medium in place of m1.small.").wait_for()
    page.locator(".answer").get_by_text(re.compile("^[0-9]+ of [0-9]+ hosts passed every check")).wait_for()
    page.get_by_text(f"openstack server resize --flavor m1.medium {server}").wait_for()
    page.get_by_role("button", name="Resize it").click()
    page.get_by_text("It has become m1.medium.").wait_for()
    page.get_by_text(f"openstack server resize revert {server}").wait_for()
    assert faults(page) == []
    page.get_by_role("button", name="Keep it").click()
    page.locator(".facts").get_by_text("ACTIVE", exact=True).wait_for()
    page.get_by_role("button", name="Delete…").click()
    page.get_by_text(re.compile("^Without it in growing: No rules would be broken")).wait_for()
    page.get_by_role("button", name="Delete it for good").click()
    page.get_by_role("heading", name="There is no such server").wait_for()


def test_an_answer_that_comes_late_does_not_replace_the_page_that_is_shown(visit: Visit, world: World) -> None:
    page = visit(world.admin)
    late = re.compile(r"os-lists/servers\?host=")
    page.route(late, lambda route: (page.wait_for_timeout(1000), route.continue_()))
    page.evaluate("location.hash = '#/host/zone1-rack1-host1'")
    page.wait_for_timeout(100)
    page.evaluate("location.hash = '#/clusters'")
    page.get_by_role("heading", name="Clusters").wait_for()
    page.wait_for_timeout(2000)
    assert page.locator(".panel h2").all_inner_texts() == ["Clusters"]


def test_a_link_opens_in_a_new_tab_without_signing_in(visit: Visit, world: World) -> None:
    page = visit(world.admin)
    other = page.context.new_page()
    other.goto(f"{world.served.url}/#/host/zone1-rack1-host1")
    other.get_by_role("heading", name="zone1-rack1-host1").wait_for()
    other.goto(f"{world.served.url}/#/server/{world.members[0]}")
    other.get_by_role("heading", name=re.compile("^db-")).wait_for()


def enable(world: World, *hosts: str) -> None:
    """Let hosts take servers again."""
    for host in hosts:
        (service,) = world.admin.ask("GET", f"/compute/v2.1/os-services?host={host}")["services"]
        world.admin.ask("PUT", f"/compute/v2.1/os-services/{service['id']}", {"status": "enabled"})


def test_a_host_is_drained_by_the_engine_also_when_the_tab_is_closed(visit: Visit, world: World) -> None:
    host = world.host(world.members[0])
    page = visit(world.admin, f"#/host/{host}", forgiving=True)
    page.get_by_role("button", name="What if we drain it?").click()
    page.get_by_text(re.compile("would be affected")).wait_for()
    page.get_by_text(re.compile("^db-[0-9]: ")).first.wait_for()
    page.get_by_text(f"openstack drain start host={host} --max-parallel 2").wait_for()
    assert faults(page) == []
    with world.standstill():
        page.get_by_role("button", name="Disable and drain it").click()
        page.get_by_text(re.compile("^Draining: 0 of ")).wait_for()
        press(page, "Pause", "^Paused: ")
        assert faults(page) == []
        page.get_by_role("button", name="Go on").click()
        page.get_by_text(re.compile("^Draining: ")).wait_for()
    page.close()
    until(lambda: world.host(world.members[0]) != host)
    other = visit(world.admin, f"#/host/{host}")
    other.get_by_text("disabled: Being drained.").wait_for()
    until(lambda: world.admin.ask("GET", "/compute/v2.1/os-drains")["drains"][0]["status"] == "done")
    enable(world, host)


def press(page: "Page", name: str, then: str) -> None:
    """Press a button until the page says so: while the engine waits at the standstill, it may be refused for a time."""
    for _ in range(5):
        page.get_by_role("button", name=name).click()
        with contextlib.suppress(Exception):
            page.get_by_text(re.compile(then)).wait_for(timeout=15_000)
            return
    raise AssertionError(f"{name} has no effect")


def test_a_rack_has_a_page_and_is_drained_from_it(visit: Visit, world: World) -> None:
    rack = world.host(world.members[1]).rpartition("-")[0]
    page = visit(world.admin, f"#/lists/aggregates?q={rack}")
    page.get_by_role("link", name=rack, exact=True).click()
    page.get_by_role("heading", name=f"rack {rack}").wait_for()
    page.get_by_label("Divide by").select_option("switch")
    page.reload()
    page.get_by_role("heading", name=f"rack {rack}").wait_for()
    page.get_by_role("button", name="What if we drain it?").click()
    page.get_by_role("button", name="Disable and drain it").click()
    page.get_by_text(re.compile("^Drain done: ")).wait_for()
    assert not any(world.host(member).startswith(f"{rack}-") for member in world.members)
    page.get_by_label("Divide by").select_option("rack")
    enable(world, *(f"{rack}-host{number}" for number in range(1, 5)))


def test_a_group_is_composed_in_words_and_created(visit: Visit, world: World) -> None:
    page = visit(world.demo, "#/groups")
    page.get_by_text("Create a group").click()
    page.get_by_label("Name").fill("composed")
    page.get_by_label("Over").select_option("availability_zone")
    page.get_by_label("At most, in each").fill("2")
    page.get_by_label("Room for").fill("7")
    page.get_by_role("button", name="Add this rule").click()
    page.get_by_text(re.compile("^At most 2 per .*zone")).wait_for()
    page.get_by_text(re.compile("^No place for 7 servers")).wait_for()
    page.get_by_label("Room for").fill("6")
    page.get_by_label("Room for").press("Tab")
    page.get_by_text("There is room for 6 servers.").wait_for()
    page.get_by_text("--policy anti-affinity:availability_zone,max_server_per_aggregate=2").wait_for()
    assert faults(page) == []
    page.get_by_role("button", name="Create the group").click()
    page.get_by_role("heading", name="composed").wait_for()


def test_a_plan_is_no_longer_offered_once_the_group_has_changed(visit: Visit, world: World) -> None:
    group = world.demo.group("changing", {"name": "anti-affinity", "scope": "rack"})
    page = visit(world.demo, f"#/groups/{group}")
    page.get_by_role("button", name="Plan").click()
    page.get_by_role("button", name="Apply this plan").wait_for()
    page.get_by_text(re.compile(f"openstack server group plan {group} --create 1 .*--apply")).wait_for()
    world.demo.boot("changing", 1, group)
    page.get_by_text("The group has changed since.").wait_for()
    assert page.get_by_role("button", name="Apply this plan").count() == 0
    page.get_by_role("button", name="Plan again").click()
    page.get_by_role("button", name="Apply this plan").wait_for()


def test_a_tenant_reads_moves_without_hosts(visit: Visit, world: World) -> None:
    group = world.demo.group("apart", {"name": "anti-affinity", "scope": "host"})
    one, two = world.demo.boot("apart", 2, group)
    path = f"/compute/v2.1/os-server-groups/{group}/action"
    world.admin.ask("POST", path, {"remove_instance": {"instance_id": two}})
    world.move(two, world.host(one))
    world.admin.ask("POST", path, {"add_instance": {"instance_id": two}})
    page = visit(world.demo, f"#/groups/{group}")
    page.get_by_role("button", name="Repair").click()
    page.get_by_text(re.compile("^apart-[12]: from its host to another$")).wait_for()
    page.get_by_text("Ask the operator to move them.").wait_for()


def test_a_cluster_is_scaled_after_a_preview(visit: Visit, world: World) -> None:
    page = visit(world.demo, f"#/clusters/{world.cluster}", forgiving=True)
    page.get_by_label("What to do").select_option("resize to")
    page.get_by_label("Nodes", exact=True).fill("5")
    page.get_by_role("button", name="Preview").click()
    page.get_by_text("The cluster would go from 3 to 5 nodes.").wait_for()
    page.get_by_text(re.compile("^zone-placement: New nodes go ")).wait_for()
    page.get_by_text(f"openstack cluster resize --capacity 5 {world.cluster}").wait_for()
    assert faults(page) == []
    page.get_by_role("button", name="Resize", exact=True).click()
    page.get_by_role("link", name="Follow it").wait_for()
    page.get_by_role("img", name="5 nodes, 5 wanted, between 2 and 12").wait_for()
    page.get_by_label("Nodes", exact=True).fill("50")
    page.get_by_role("button", name="Preview").click()
    page.locator(".answer .bad-text").filter(has_text="max_size").wait_for()
    assert page.get_by_role("button", name="Resize", exact=True).count() == 0


def test_a_preview_is_no_longer_offered_once_the_cluster_has_changed(visit: Visit, world: World) -> None:
    cluster = world.demo.cluster("moving", max_size=5)
    page = visit(world.demo, f"#/clusters/{cluster}")
    page.get_by_label("What to do").select_option("resize to")
    page.get_by_label("Nodes", exact=True).fill("2")
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("button", name="Resize", exact=True).wait_for()
    world.demo.act(cluster, "resize", adjustment_type="EXACT_CAPACITY", number=1)
    page.get_by_text("The cluster has changed since.").wait_for()
    assert page.get_by_role("button", name="Resize", exact=True).count() == 0
    page.get_by_role("button", name="Preview again").click()
    page.get_by_text("The cluster would go from 1 to 2 nodes.").wait_for()


def test_policies_are_attached_and_detached_with_conflicts_shown(visit: Visit, world: World) -> None:
    spec = {"type": "senlin.policy.deletion", "version": "1.0", "properties": {"criteria": "RANDOM"}}
    world.demo.ask("POST", "/clustering/v1/policies", {"policy": {"name": "random", "spec": spec}})
    page = visit(world.demo, f"#/clusters/{world.cluster}", forgiving=True)
    page.get_by_label("Policy to attach").select_option("random (deletion)")
    page.get_by_role("button", name="Attach").click()
    page.locator(".answer .bad-text").filter(has_text="Only one instance of policy type").wait_for()
    page.get_by_role("button", name="Detach deletion").click()
    page.get_by_text(re.compile("openstack cluster policy detach --policy ")).wait_for()
    page.locator(".answer").get_by_role("button", name="Detach deletion").click()
    page.get_by_role("link", name="Follow it").wait_for()
    page.locator(".chain").filter(has_not_text="deletion").wait_for()
    page.get_by_label("Policy to attach").select_option("random (deletion)")
    page.get_by_role("button", name="Attach", exact=False).first.click()
    page.get_by_role("button", name="Attach random (deletion)").click()
    page.locator(".chain").get_by_text("random", exact=True).wait_for()


def test_a_node_is_checked_and_deleted_after_a_preview(visit: Visit, world: World) -> None:
    world.demo.act(world.cluster, "scale_out", count=1)
    nodes = world.demo.ask("GET", f"/clustering/v1/nodes?cluster_id={world.cluster}&sort=index:desc")["nodes"]
    node, many = nodes[0], len(nodes)
    page = visit(world.demo, f"#/node/{node['id']}", forgiving=True)
    for deed, said in (("Check", "check"), ("Recover", "recover")):
        page.get_by_role("button", name=f"{deed}…").click()
        page.get_by_text(f"The cluster would keep its {many} nodes.").wait_for()
        page.get_by_text(re.compile(f"^{said} {re.escape(node['name'])}", re.IGNORECASE)).wait_for()
        page.get_by_text(f"openstack cluster node {deed.lower()} {node['id']}").wait_for()
    page.get_by_role("button", name="Delete…").click()
    page.get_by_text(f"The cluster would go from {many} to {many - 1} nodes.").wait_for()
    page.get_by_role("button", name="Leave it").click()
    assert len(world.demo.ask("GET", f"/clustering/v1/nodes?cluster_id={world.cluster}")["nodes"]) == many
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Delete it for good").click()
    page.get_by_role("link", name="Follow it").click()
    page.get_by_role("heading", name=re.compile("delete", re.IGNORECASE)).wait_for()
    until(lambda: len(world.demo.ask("GET", f"/clustering/v1/nodes?cluster_id={world.cluster}")["nodes"]) == many - 1)


def test_a_cluster_is_deleted_after_a_preview(visit: Visit, world: World) -> None:
    cluster = world.demo.cluster("short-lived", max_size=3)
    world.demo.act(cluster, "resize", adjustment_type="EXACT_CAPACITY", number=2)
    page = visit(world.demo, f"#/clusters/{cluster}", forgiving=True)
    page.get_by_role("button", name="Delete…").click()
    page.get_by_text("It would be deleted, with 2 nodes and their servers.").wait_for()
    page.get_by_text(f"openstack cluster delete {cluster}").wait_for()
    page.get_by_role("button", name="Delete it for good").click()
    page.get_by_role("heading", name="Clusters").wait_for()
    assert cluster not in [each["id"] for each in world.demo.ask("GET", "/clustering/v1/clusters")["clusters"]]


def test_an_action_is_paused_resumed_and_cancelled_from_its_page(visit: Visit, world: World) -> None:
    page = visit(world.demo, f"#/clusters/{world.cluster}")
    with world.standstill():
        world.demo.act(world.cluster, "scale_out", wait=False, count=1)
        page.locator(".running").get_by_role("link", name="scale out").click()
        page.get_by_role("heading", name="scale out").wait_for()
        page.get_by_text(re.compile("openstack cluster action update --status SUSPENDED ")).wait_for()
        assert faults(page) == []
        page.get_by_role("button", name="Pause").click()
        page.get_by_text("It pauses when the step under way has ended.").wait_for()
        page.get_by_role("button", name="Cancel…").click()
        page.get_by_text(re.compile("openstack cluster action update --status CANCELLED ")).wait_for()
        page.get_by_role("button", name="Cancel it by force").click()
        page.locator(".facts").get_by_text("cancelled", exact=True).wait_for()


def test_a_reader_is_offered_nothing_that_would_be_refused(visit: Visit, world: World) -> None:
    page = visit(sign_in(world.served, "roost-reader"), f"#/clusters/{world.cluster}")
    page.get_by_role("heading", name="Nodes by zone").wait_for()
    for at in (f"#/clusters/{world.cluster}", f"#/groups/{world.database}", f"#/server/{world.members[0]}", "#/groups"):
        look(page, at)
        names = page.locator(".panel button").all_inner_texts()
        assert not [name for name in names if re.match("Preview|Attach|Detach|Delete|Resize|Create|Apply", name)], at


def test_the_keyboard_alone_suffices(visit: Visit, world: World) -> None:
    page = visit(None)
    page.get_by_label("User").focus()
    for text in (world.demo.name, world.demo.password, ""):
        page.keyboard.type(text)
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.locator("svg.map .aggregate").first.wait_for(state="attached")
    page.keyboard.press("/")
    page.keyboard.type("shop")
    page.locator("#found a[href*=clusters]").first.wait_for()
    while "#/clusters/" not in page.evaluate("document.activeElement.getAttribute('href') ?? ''"):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=re.compile("^shop")).wait_for()
    reach(page, "Preview")
    page.keyboard.press("Enter")
    page.get_by_text(re.compile("The cluster would go from ")).wait_for()
    reach(page, "Leave it")
    page.keyboard.press("Enter")
    page.locator(".answer:empty").first.wait_for(state="attached")


def reach(page: "Page", name: str) -> None:
    """Press Tab until the button of this name has the focus."""
    for _ in range(80):
        if page.evaluate("document.activeElement.textContent") == name:
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"no way to {name}")


def test_what_happened_is_listed_and_linked(visit: Visit, world: World) -> None:
    page = visit(world.admin, "#/feed")
    page.locator(".events li[data-kind=placed]").first.wait_for()
    page.get_by_label("Show").select_option("host_disabled")
    page.get_by_role("link", name="zone3-rack4-host4").first.wait_for()
    assert faults(page) == []


def test_a_tab_forgets_what_is_gone(visit: Visit, world: World) -> None:
    """It stays open all day, while servers and groups come and go."""
    page = visit(world.admin)
    page.evaluate("""async () => {
        const { Fleet } = await import("/web/fleet.js");
        const forget = Fleet.prototype._forget;
        Fleet.prototype._forget = function () { window.fleet = this; return forget.call(this); };
    }""")
    group = world.demo.group("passing", {"name": "anti-affinity", "scope": "host"})
    (server,) = world.demo.boot("passing", 1, group)
    page.locator(f"[data-server='{server}']").wait_for()
    assert page.evaluate("id => window.fleet.groups.has(id)", group)
    world.demo.ask("DELETE", f"/compute/v2.1/servers/{server}")
    page.locator(f"[data-server='{server}']").wait_for(state="detached")
    assert not page.evaluate("id => window.fleet.groups.has(id)", group)
    assert page.evaluate("performance.getEntriesByType('mark').length") <= 2


def test_a_cluster_s_page_forgets_the_zones_of_nodes_that_are_gone(visit: Visit, world: World) -> None:
    page = visit(None)
    left = page.evaluate("""async () => {
        const { Clusters } = await import("/web/clusters.js");
        const clusters = new Clusters({ map: {}, fleet: { find: () => null } });
        clusters._ask = async id => void clusters._zones.set(id, "zone1");
        for (let n = 0; n < 50; n++) await clusters._byZone([{ physical_id: `server-${n}` }, { physical_id: "stays" }]);
        return [...clusters._zones.keys()].sort();
    }""")
    assert left == ["server-49", "stays"]
