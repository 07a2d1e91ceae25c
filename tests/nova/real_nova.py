"""The plug-in inside the scheduler of a real Nova: its manager, filters, host states and objects; Roost over HTTP.

Runs in an environment where Nova is installed (`make nova-matrix`), with unittest alone. Left out are the database,
messages and Placement; the Roost that is asked lets each server of a group pass on one host that no other has.
"""
# mypy: ignore-errors
# Nova has no types, and is not installed where types are checked.

import json
import random
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest import mock

import nova.conf
from nova import context, objects
from nova_peer import Hosts, Scheduler, fleet, some_id, spec
from oslo_log import log as oslo_log

FILTERS = (
    "NUMATopologyFilter",
    "PciPassthroughFilter",
    "AggregateMultiTenancyIsolation",
    "ServerGroupAntiAffinityFilter",
    "ScopedGroupFilter",
)
CONF = nova.conf.CONF


class Roost(BaseHTTPRequestHandler):
    """Gives each server the first host offered that no other server of its group has."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self._answer({"adopted": []})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["choice"]
        with self.server.turn:
            self.server.asked.append(asked)
            taken = self.server.taken.setdefault(asked["group_id"], {})
            others = {host for server, host in taken.items() if server != asked["instance_id"]}
            free = [name for name in asked["hosts"]["names"] if name not in others][:1]
            if free:
                taken[asked["instance_id"]] = free[0]
        self._answer({"choice": {"hosts": free, "weights": [0.0] * len(free)}})

    def _answer(self, body):
        content = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


def start_roost():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Roost)
    server.turn, server.taken, server.asked = threading.Lock(), {}, []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def numa_host():
    cell = objects.NUMACell(
        id=0, socket=0, cpuset=set(range(8)), pcpuset=set(), memory=8192, cpu_usage=0, memory_usage=0,
        siblings=[], pinned_cpus=set(), mempages=[],
    )  # fmt: skip
    return objects.NUMATopology(cells=[cell])


def numa_server():
    cell = objects.InstanceNUMACell(id=0, cpuset={0, 1}, pcpuset=set(), memory=512, pagesize=None)
    return objects.InstanceNUMATopology(cells=[cell])


class InsideNova(unittest.TestCase):
    """One scheduler, or two, over twelve hosts."""

    @classmethod
    def setUpClass(cls):
        from roost_nova import service

        oslo_log.register_options(CONF)
        CONF([], project="nova", default_config_files=[], default_config_dirs=[])
        CONF.set_override(
            "available_filters",
            ["nova.scheduler.filters.all_filters", "roost_nova.ScopedGroupFilter"],
            group="filter_scheduler",
        )
        CONF.set_override("enabled_filters", list(FILTERS), group="filter_scheduler")
        CONF.set_override("weight_classes", ["roost_nova.ScopedGroupWeigher"], group="filter_scheduler")
        service.register(CONF)
        CONF.set_override("auth_type", "none", group="roost")
        objects.register_all()
        cls.admin = context.RequestContext("u", "p", is_admin=True)

    def setUp(self):
        from roost_nova import plugin

        self.roost = start_roost()
        self.addCleanup(self.roost.server_close)
        self.addCleanup(self.roost.shutdown)
        CONF.set_override("url", [f"http://127.0.0.1:{self.roost.server_port}"], group="roost")
        plugin._asker.cache_clear()
        self.dice = random.Random(1)
        claimed = mock.patch("nova.scheduler.utils.claim_resources", return_value=True)
        claimed.start()
        self.addCleanup(claimed.stop)

    def scheduler(self, hosts=12):
        made = Scheduler(Hosts())
        made.given = fleet(made.host_manager, hosts, self.admin, random.Random(2))
        for at, state in enumerate(made.given):
            state.cell_uuid = f"cell{at % 2}"
        return made

    def request(self, count, group=True, **changes):
        servers = [some_id(self.dice) for _ in range(count)]
        found = None
        if group:
            found = objects.InstanceGroup(
                self.admin, id=1, uuid=some_id(self.dice), name="g", policy="anti-affinity", user_id="u",
                project_id="p", rules={}, members=list(servers), hosts=[],
            )  # fmt: skip
            found.policies = ["anti-affinity"]
        asked = spec(self.admin, found, servers)
        for name, value in changes.items():
            setattr(asked, name, value)
        return asked, servers

    def schedule(self, scheduler, asked, servers):
        """The host of each server, with its alternates, as Nova's conductor hears them."""
        allocations = {
            state.uuid: [{"allocations": {state.uuid: {"resources": {}}}, "mappings": {"": [state.uuid]}}]
            for state in scheduler.given
        }
        chosen = scheduler._schedule(self.admin, asked, servers, allocations, {}, "1.36", return_alternates=True)
        return [[selection.service_host for selection in each] for each in chosen]

    def test_a_server_goes_where_roost_says(self):
        [[host]] = self.schedule(self.scheduler(), *self.request(1))
        [taken] = self.roost.taken.values()
        self.assertEqual(list(taken.values()), [host])

    def test_a_server_outside_groups_has_all_hosts(self):
        [hosts] = self.schedule(self.scheduler(), *self.request(1, group=False))
        self.assertEqual(len(hosts), CONF.scheduler.max_attempts)
        self.assertEqual(self.roost.asked, [])

    def test_several_servers_fill_every_host(self):
        found = self.schedule(self.scheduler(4), *self.request(4))
        self.assertEqual(len({hosts[0] for hosts in found}), 4)
        self.assertEqual([asked["count"] for asked in self.roost.asked][:4], [4, 3, 2, 1])

    def test_several_servers_with_numa_fill_every_host(self):
        scheduler = self.scheduler(4)
        for state in scheduler.given:
            state.numa_topology = numa_host()
        asked, servers = self.request(4, numa_topology=numa_server())
        found = self.schedule(scheduler, asked, servers)
        self.assertEqual(len({hosts[0] for hosts in found}), 4)

    def test_several_servers_with_pci_devices_fill_the_hosts_that_have_them(self):
        scheduler = self.scheduler(6)
        having = {state.host for state in scheduler.given[:3]}
        for state in scheduler.given:
            state.pci_stats = mock.Mock(support_requests=lambda *_, has=state.host in having, **__: has)
        device = objects.InstancePCIRequest(count=1, spec=[{"vendor_id": "8086"}], request_id=some_id(self.dice))
        asked, servers = self.request(3, pci_requests=objects.InstancePCIRequests(requests=[device]))
        found = self.schedule(scheduler, asked, servers)
        self.assertEqual({hosts[0] for hosts in found}, having)

    def test_hosts_of_another_tenant_are_not_offered(self):
        scheduler = self.scheduler(6)
        theirs = {state.host for state in scheduler.given[:3]}
        alone = objects.Aggregate(
            id=99, uuid=some_id(self.dice), name="t", metadata={"filter_tenant_id": "other"}, hosts=sorted(theirs)
        )
        for state in scheduler.given[:3]:
            state.aggregates = [*state.aggregates, alone]
        found = self.schedule(scheduler, *self.request(3))
        self.assertFalse(theirs & {hosts[0] for hosts in found})
        self.assertFalse(theirs & set(self.roost.asked[0]["hosts"]["names"]))

    def test_alternates_are_in_the_cell_of_the_host(self):
        scheduler = self.scheduler()
        cells = {state.host: state.cell_uuid for state in scheduler.given}
        [hosts] = self.schedule(scheduler, *self.request(1, group=False))
        self.assertGreater(len(hosts), 1)
        self.assertEqual(len({cells[host] for host in hosts}), 1)

    def test_two_schedulers_at_once_never_take_the_same_host(self):
        schedulers = [self.scheduler(), self.scheduler()]
        first, _ = self.request(1)

        def one(number):
            servers = [some_id(random.Random(100 + number))]
            asked = spec(self.admin, first.instance_group, servers)
            return self.schedule(schedulers[number % 2], asked, servers)[0][0]

        found = []
        for at in range(0, 12, 2):
            # A scheduler's host states are its own: each places one server at a time here, the two beside each other.
            with ThreadPoolExecutor(2) as people:
                found += people.map(one, (at, at + 1))
        self.assertEqual(len(set(found)), 12)

    def test_a_server_that_boots_from_a_volume_needs_no_root_disk(self):
        self.schedule(self.scheduler(), *self.request(1, is_bfv=True))
        self.assertEqual(self.roost.asked[0]["resources"]["disk_gb"], 0)

    def test_without_roost_members_are_refused_and_others_are_not(self):
        self.roost.shutdown()
        self.roost.server_close()
        CONF.set_override("time_limit", 0.5, group="roost")
        self.addCleanup(CONF.clear_override, "time_limit", group="roost")
        with self.assertRaises(nova.exception.NoValidHost):
            self.schedule(self.scheduler(), *self.request(1))
        self.assertTrue(self.schedule(self.scheduler(), *self.request(1, group=False)))


if __name__ == "__main__":
    unittest.main()
