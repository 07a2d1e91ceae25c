"""What operators and tenants do with the console all day: find, filter, see what is wrong first, and put it right."""

import re

import psycopg

from roost.store.embedded import EmbeddedPostgres
from tests.browser.conftest import PHONE, Visit, World, faults, look, until

_COMPRESSED = """performance.getEntriesByType('resource')
    .filter(each => each.decodedBodySize > 2000 && each.encodedBodySize >= each.decodedBodySize)
    .map(each => each.name)"""


def break_rule(world: World, name: str) -> tuple[str, list[str]]:
    """A group with two members on one host, which its rule forbids."""
    group = world.demo.group(name, {"name": "anti-affinity", "scope": "host"})
    one, two = world.demo.boot(name, 2, group)
    path = f"/compute/v2.1/os-server-groups/{group}/action"
    world.admin.ask("POST", path, {"remove_instance": {"instance_id": two}})
    world.move(two, world.host(one))
    world.admin.ask("POST", path, {"add_instance": {"instance_id": two}})
    return group, [one, two]


def delete(world: World, servers: list[str]) -> None:
    """Delete servers, and wait until they are gone."""
    for server in servers:
        world.demo.ask("DELETE", f"/compute/v2.1/servers/{server}")
    gone = "/compute/v2.1/os-lists/servers?id="
    until(lambda: not any(world.admin.ask("GET", gone + server)["list"]["total"] for server in servers))


def test_anything_is_found_by_its_name_id_address_state_or_project(visit: Visit, world: World) -> None:
    (host,) = world.admin.ask("GET", "/compute/v2.1/os-lists/hosts?name=zone2-rack3-host2")["list"]["rows"]
    (node, *_) = world.demo.ask("GET", f"/clustering/v1/nodes?cluster_id={world.cluster}")["nodes"]
    page = visit(world.admin)
    for words, target in {
        world.members[0]: f"#/server/{world.members[0]}",
        "WEB": "#/groups/",
        world.database: f"#/groups/{world.database}",
        host["address"]: "#/host/zone2-rack3-host2",
        "zone1-rack2": "#/aggregate/",
        "shop": f"#/clusters/{world.cluster}",
        node["name"]: f"#/node/{node['id']}",
        world.demo.name: f"#/project/{world.demo.project_id}",
        "switch": "#/lists/aggregates?scope=switch",
    }.items():
        page.get_by_role("searchbox", name="Search").fill(words)
        page.locator(f"#found a[href^='{target}']").first.wait_for()
    page.get_by_role("searchbox", name="Search").fill("no-such-thing")
    page.get_by_text("No word, id, address, state or project is").wait_for()
    assert faults(page) == []


def test_a_list_is_filtered_and_paged_in_its_address(visit: Visit, world: World) -> None:
    page = visit(world.admin, "#/lists/servers?limit=5")
    page.get_by_label("zone", exact=True).fill("zone1")
    page.get_by_label("project", exact=True).fill("demo")
    page.get_by_label("status", exact=True).select_option("ACTIVE")
    page.get_by_label("flavor", exact=True).fill("m1.medium")
    page.get_by_role("button", name="Show").click()
    page.get_by_role("heading", name=re.compile("^[1-9] servers?$")).wait_for()
    asked = page.evaluate("location.hash")
    for part in ("zone=zone1", "project=demo", "status=ACTIVE", "flavor=m1.medium"):
        assert part in asked
    rows = page.locator("tbody tr").all_inner_texts()
    assert rows
    assert all("zone1" in row and "m1.medium" in row and "demo" in row for row in rows)
    other = page.context.new_page()
    other.goto(f"{world.served.url}/{asked}")
    other.locator("tbody tr").first.wait_for()
    assert other.locator("tbody tr").all_inner_texts() == rows
    look(page, "#/lists/servers?limit=5&sort=name")
    first = page.locator("tbody th").all_inner_texts()
    page.get_by_role("link", name="Next page").click()
    page.get_by_role("link", name="First page").wait_for()
    assert "marker=" in page.evaluate("location.hash")
    assert not set(first) & set(page.locator("tbody th").all_inner_texts())


def test_what_is_wrong_comes_first_by_harm(visit: Visit, world: World) -> None:
    """A host that is down before a rule that is broken, each with its time and what can be done."""
    group, members = break_rule(world, "crowded")
    with psycopg.connect(EmbeddedPostgres(world.served.folder).url) as connection:
        # As the engine notes it, when it next looks.
        connection.execute(
            "INSERT INTO violations (group_id, breach, policy, aggregate, excess) "
            "VALUES (%s, 'over_limit', 'anti-affinity:host', '1', 1)",
            [group],
        )
    path = "/compute/v2.1/os-services"
    (service,) = world.admin.ask("GET", f"{path}?host=zone3-rack4-host3")["services"]
    world.admin.ask("PUT", f"{path}/{service['id']}", {"forced_down": True})
    page = visit(world.admin)
    page.get_by_role("heading", name="2 things wrong").wait_for()
    until(lambda: page.title().startswith("(2) "))
    kinds = page.locator(".harm").evaluate_all("found => found.map(each => each.dataset.kind)")
    assert kinds == ["host_down", "rule_broken"]
    for each in page.locator(".harm").all():
        assert re.search(r"since today \d\d:\d\d:\d\d", each.inner_text())
        each.get_by_text("What to do").click()
        each.locator(".command").first.wait_for()
    assert faults(page) == []
    page.locator("svg.map .mark.broken").first.wait_for()
    page.locator(".harm[data-kind=rule_broken] a").first.click()
    page.get_by_role("heading", name="crowded").wait_for()
    look(page, "#/lists/groups")
    page.get_by_label("broken only").select_option("1")
    page.get_by_role("button", name="Show").click()
    page.get_by_role("heading", name="1 group", exact=True).wait_for()
    page.get_by_role("link", name="crowded", exact=True).wait_for()
    phone = visit(world.admin, size=PHONE)
    phone.locator(".harm").first.wait_for()
    last, drawn = phone.locator(".harm").last.bounding_box(), phone.locator("svg.map").bounding_box()
    assert last is not None
    assert drawn is not None
    assert last["y"] < drawn["y"]
    world.admin.ask("PUT", f"{path}/{service['id']}", {"forced_down": False})
    delete(world, members)
    look(page, "#/")
    page.get_by_role("heading", name="Nothing is wrong").wait_for()
    until(lambda: not page.title().startswith("("))


def test_what_nobody_tells_of_is_shown_within_a_minute(visit: Visit, world: World) -> None:
    page = visit(world.admin, forgiving=True)
    page.clock.install()
    page.route(re.compile("os-fleet/events"), lambda route: route.abort())
    (server,) = world.demo.boot("quiet", 1)
    page.locator(f"[data-server='{server}']").wait_for()
    page.get_by_role("heading", name="Nothing is wrong").wait_for()
    # By now it has been counted after the change.
    page.wait_for_timeout(4_000)
    dead = {"kind": "engine_dead", "name": "engine-2", "sentence": "It is silent.", "subject": None, "since": None}
    found = {"total": 1, "counts": {"engine_dead": 1}, "items": [{**dead, "remedies": []}]}
    page.route("**/os-troubles", lambda route: route.fulfill(json={"troubles": found}))
    page.clock.fast_forward(61_000)
    page.get_by_role("heading", name="1 thing wrong").wait_for()
    until(lambda: page.title().startswith("(1) "))
    delete(world, [server])


def test_a_repair_is_paused_and_stopped(visit: Visit, world: World) -> None:
    group, members = break_rule(world, "repaired")
    page = visit(world.admin, f"#/groups/{group}", forgiving=True)
    page.get_by_role("button", name="Repair").click()
    page.get_by_text(f"openstack server group repair {group}").wait_for()
    with world.standstill():
        page.get_by_role("button", name="Apply this repair").click()
        page.get_by_text(re.compile("^Repairing: 0 of 1 move done")).wait_for()
        page.get_by_role("button", name="Pause").click()
        page.get_by_text(re.compile("^Paused: ")).wait_for()
        assert faults(page) == []
        page.get_by_role("button", name="Stop").click()
    page.get_by_text(re.compile("^Repair (stopped|done|cancelled)")).wait_for()
    delete(world, members)


def test_a_group_is_deleted_and_its_members_stay(visit: Visit, world: World) -> None:
    group = world.demo.group("unwanted", {"name": "anti-affinity", "scope": "host"})
    (member,) = world.demo.boot("left", 1, group)
    page = visit(world.demo, f"#/groups/{group}", forgiving=True)
    page.get_by_text("Delete this group").click()
    page.get_by_text("Its 1 member would stay where they are, without its rules.").wait_for()
    page.get_by_text(f"openstack server group delete {group}").wait_for()
    # What changes meanwhile does not close what was opened.
    others = world.demo.boot("left-too", 1, group)
    page.get_by_text("Its 2 members would stay where they are, without its rules.").wait_for()
    page.get_by_role("button", name="Delete the group").click()
    page.get_by_role("heading", name="Server groups").wait_for()
    assert page.get_by_role("link", name="unwanted", exact=True).count() == 0
    look(page, f"#/server/{member}")
    page.locator(".facts").get_by_text("ACTIVE", exact=True).wait_for()
    delete(world, [member, *others])


def test_a_host_is_disabled_and_enabled(visit: Visit, world: World) -> None:
    host = "zone2-rack4-host4"

    def state() -> str:
        (row,) = world.admin.ask("GET", f"/compute/v2.1/os-lists/hosts?name={host}")["list"]["rows"]
        return str(row["state"])

    page = visit(world.admin, f"#/host/{host}")
    page.get_by_text(f"openstack compute service set --disable {host} nova-compute").wait_for()
    page.get_by_role("button", name="Disable", exact=True).click()
    page.get_by_text("It takes no new servers.").wait_for()
    until(lambda: state() == "disabled")
    page.locator(f"svg.map .host.disabled[data-host='{host}']").wait_for()
    page.get_by_role("button", name="Enable", exact=True).click()
    until(lambda: state() == "up")
    page.locator(f"svg.map .host:not(.disabled)[data-host='{host}']").wait_for()


def test_a_cluster_is_scaled_in_checked_and_recovered_after_a_preview(visit: Visit, world: World) -> None:
    page = visit(world.demo, f"#/clusters/{world.cluster}")
    for deed, line in {
        "scale out by": f"openstack cluster expand --count 1 {world.cluster}",
        "scale in by": f"openstack cluster shrink --count 1 {world.cluster}",
        "check its nodes": f"openstack cluster check {world.cluster}",
        "recover its nodes": f"openstack cluster recover {world.cluster}",
    }.items():
        page.get_by_label("What to do").select_option(deed)
        page.get_by_role("button", name="Preview").click()
        page.get_by_text(line, exact=True).wait_for()
        page.locator(".answer p").filter(has_text=re.compile("^The cluster would |would do nothing")).wait_for()
    before = world.demo.ask("GET", f"/clustering/v1/clusters/{world.cluster}")["cluster"]["nodes"]
    page.get_by_role("button", name="Recover its nodes", exact=True).click()
    page.get_by_role("link", name="Follow it").click()
    page.get_by_role("heading", name="recover").wait_for()
    page.locator(".facts").get_by_text("succeeded", exact=True).wait_for()
    assert world.demo.ask("GET", f"/clustering/v1/clusters/{world.cluster}")["cluster"]["nodes"] == before


def test_a_group_and_a_host_have_a_history(visit: Visit, world: World) -> None:
    page = visit(world.admin, f"#/groups/{world.database}")
    happened = page.locator(".events li[data-kind=placed]")
    happened.first.wait_for()
    assert "#/server/" in (happened.first.get_by_role("link").first.get_attribute("href") or "")
    look(page, f"#/host/{world.host(world.members[0])}")
    page.get_by_role("heading", name="What happened").wait_for()
    page.locator(".events li").first.wait_for()
    look(page, f"#/feed?group_id={world.database}")
    page.get_by_role("link", name="Of everything").wait_for()
    assert page.locator(".events li").count() >= len(world.members)


def test_figures_of_the_last_hours_are_drawn(visit: Visit, world: World) -> None:
    page = visit(world.admin)
    names = ("free_vcpus", "free_memory_mb", "servers", "violations", "boots", "boot_seconds")
    points = [[f"2026-01-31T20:{minute:02d}:00+00:00", minute] for minute in range(0, 60, 5)]
    body = {"figures": dict.fromkeys(names, points)}
    page.route(re.compile("os-figures"), lambda route: route.fulfill(json=body))
    look(page, "#/feed")
    page.get_by_role("heading", name="The last six hours").wait_for()
    for title in ("Free VCPUs", "Free memory, MiB", "Servers", "Broken rules", "Boots per minute", "Seconds per boot"):
        page.get_by_role("img", name=f"{title}: now 55, between 0 and 55").wait_for()
    assert faults(page) == []


def test_answers_and_modules_are_compressed(visit: Visit, world: World) -> None:
    page = visit(world.admin)
    for at in ("#/lists/servers", "#/groups", "#/feed", f"#/groups/{world.database}", f"#/clusters/{world.cluster}"):
        look(page, at)
    assert page.evaluate("performance.getEntriesByType('resource').some(each => each.decodedBodySize > 10_000)")
    assert page.evaluate(_COMPRESSED) == []


def test_more_clusters_than_the_page_shows_are_listed(visit: Visit, world: World) -> None:
    page = visit(world.admin)
    (cluster,) = world.admin.ask("GET", "/clustering/v1/clusters?global_project=true&limit=1")["clusters"]
    many = {"clusters": [{**cluster, "id": f"{n}", "name": f"cluster-{n}"} for n in range(200)]}
    page.route(re.compile(r"/clustering/v1/clusters\?"), lambda route: route.fulfill(json=many))
    look(page, "#/clusters")
    page.get_by_role("link", name="All clusters").click()
    page.get_by_role("heading", name=re.compile("clusters?$")).wait_for()
