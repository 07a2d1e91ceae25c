"""Nova's own filters and weighers, measured. Runs in its own environment, where Nova is installed.

Nova's code is used as it is: host states, the default filters and weighers, the scheduler manager. Left out is what
Roost's core does not do either: database, messages, the placement query and its claim. Prints one JSON list.
"""
# mypy: ignore-errors
# Nova has no types, and is not installed where types are checked.

import argparse
import datetime
import json
import logging
import os
import random
import sys
import time
import uuid

os.environ.setdefault("OS_NOVA_DISABLE_EVENTLET_PATCHING", "true")

import nova.conf
from nova import config, context, objects
from nova.scheduler import host_manager, manager
from oslo_log import log as oslo_log
from oslo_utils import timeutils

FLAVOR = {"vcpus": 2, "memory_mb": 4096, "root_gb": 20, "ephemeral_gb": 0, "swap": 0}
ASKED = {"VCPU": 2, "MEMORY_MB": 4096, "DISK_GB": 20}
SERVERS_PER_HOST = 20


class Hosts(host_manager.HostManager):
    """Nova's host manager, started without a database."""

    def refresh_cells_caches(self):
        self.cells, self.enabled_cells, self.host_to_cell_uuid = {}, [], {}

    def _init_aggregates(self):
        pass

    def _init_instance_info(self, computes_by_cell=None):
        pass


class Scheduler(manager.SchedulerManager):
    """Nova's scheduler over hosts that are given to it."""

    placement_client = None

    def __init__(self, hosts):
        self.host_manager = hosts
        self.given = []

    def _get_all_host_states(self, context, spec_obj, provider_summaries):
        return iter(self.given)


def some_id(dice):
    return str(uuid.UUID(int=dice.getrandbits(128), version=4))


def compute_node(number, name, dice, now):
    used = dice.randint(10, 90)
    return objects.ComputeNode(
        id=number + 1,
        uuid=some_id(dice),
        host=name,
        hypervisor_hostname=name,
        vcpus=128,
        vcpus_used=used,
        memory_mb=1048576,
        memory_mb_used=used * 4096,
        free_ram_mb=1048576 - used * 4096,
        local_gb=20000,
        local_gb_used=used * 20,
        free_disk_gb=20000 - used * 20,
        disk_available_least=20000 - used * 20,
        hypervisor_type="QEMU",
        hypervisor_version=8002000,
        cpu_info=json.dumps({"vendor": "Intel", "arch": "x86_64", "features": ["aes", "vmx"]}),
        host_ip="10.0.0.1",
        numa_topology=None,
        metrics="[]",
        pci_device_pools=None,
        stats={"num_instances": str(SERVERS_PER_HOST), "io_workload": "0", "failed_builds": "0"},
        supported_hv_specs=[objects.HVSpec(arch="x86_64", hv_type="kvm", vm_mode="hvm")],
        cpu_allocation_ratio=4.0,
        ram_allocation_ratio=1.0,
        disk_allocation_ratio=1.0,
        running_vms=SERVERS_PER_HOST,
        current_workload=0,
        mapped=1,
        updated_at=now,
        created_at=now,
        deleted=False,
        deleted_at=None,
    )


def service(number, name, dice, now):
    return {
        "id": number + 1,
        "uuid": some_id(dice),
        "host": name,
        "binary": "nova-compute",
        "topic": "compute",
        "report_count": 1,
        "disabled": False,
        "disabled_reason": None,
        "last_seen_up": now,
        "forced_down": False,
        "version": 74,
        "created_at": now,
        "updated_at": now,
        "deleted_at": None,
        "deleted": False,
    }


def fleet(hosts, number, admin, dice):
    """Host states of so many hosts, in three zones, racks of 40 and eight maintenance zones."""
    now = timeutils.utcnow().replace(tzinfo=datetime.UTC)
    names = [f"host{at:06}" for at in range(number)]
    divisions = [("availability_zone", f"az{n}", names[n::3]) for n in range(3)]
    divisions += [("rack", f"r{n}", names[40 * n : 40 * n + 40]) for n in range((number + 39) // 40)]
    divisions += [("maintenance_zone", f"mz{n}", names[n::8]) for n in range(8)]
    hosts.aggs_by_id, hosts._instance_info = {}, {}
    hosts.host_aggregates_map.clear()
    for at, (scope, name, inside) in enumerate(divisions):
        aggregate = objects.Aggregate(id=at, uuid=some_id(dice), name=name, metadata={scope: name}, hosts=inside)
        hosts.aggs_by_id[at] = aggregate
        for host in inside:
            hosts.host_aggregates_map[host].add(at)
    other = objects.Instance(uuid=some_id(dice))
    for name in names:
        running = {some_id(dice): other for _ in range(SERVERS_PER_HOST)}
        hosts._instance_info[name] = {"instances": running, "updated": True}
    nodes = [compute_node(at, name, dice, now) for at, name in enumerate(names)]
    services = {name: service(at, name, dice, now) for at, name in enumerate(names)}
    return list(hosts._get_host_states(admin, {"cell": nodes}, services))


def spec(admin, group, servers):
    flavor = objects.Flavor(extra_specs={}, name="small", flavorid="1", **FLAVOR)
    return objects.RequestSpec(
        admin,
        image=objects.ImageMeta(properties=objects.ImageMetaProps()),
        flavor=flavor,
        numa_topology=None,
        pci_requests=objects.InstancePCIRequests(requests=[]),
        project_id="p",
        user_id="u",
        availability_zone=None,
        num_instances=len(servers),
        ignore_hosts=None,
        force_hosts=None,
        force_nodes=None,
        retry=None,
        limits=objects.SchedulerLimits(),
        instance_group=group,
        scheduler_hints={},
        instance_uuid=servers[0],
        is_bfv=False,
        requested_resources=[],
        requested_destination=None,
    )


def measure(scheduler, states, admin, members, many, repeats, dice):
    """CPU milliseconds for one decision, and for `many` servers in one request if any are asked for."""
    number = len(states)
    spots = [states[at % number] for at in dice.sample(range(number), min(members, number))]
    inside = [some_id(dice) for _ in spots]
    other = objects.Instance(uuid=some_id(dice))
    for member, state in zip(inside, spots, strict=True):
        state.instances[member] = other
    new = [some_id(dice) for _ in range(max(many, 1))]

    def group(servers):
        found = objects.InstanceGroup(
            admin,
            id=1,
            uuid=some_id(dice),
            name="g",
            policy="anti-affinity",
            user_id="u",
            project_id="p",
            rules={"max_server_per_host": "2" if members >= number else "1"},
            members=inside + servers,
            hosts=sorted({state.host for state in spots}),
        )
        found.policies = ["anti-affinity"]
        return found

    scheduler.given = states
    one = spec(admin, group(new[:1]), new[:1])
    result = {
        "hosts": number,
        "members": members,
        "one_ms": best(lambda: scheduler._get_sorted_hosts(one, states, 0), repeats),
    }
    if many:
        allocations = {
            state.uuid: [{"allocations": {state.uuid: {"resources": ASKED}}, "mappings": {"": [state.uuid]}}]
            for state in states
        }
        all_of_them = spec(admin, group(new), new)

        def schedule():
            scheduler._schedule(admin, all_of_them, list(new), allocations, {}, "1.36", return_alternates=False)

        result["many_ms"] = best(schedule, 1)
    for member, state in zip(inside, spots, strict=True):
        state.instances.pop(member, None)
    return result


def best(act, repeats):
    times = []
    for _ in range(repeats):
        start = time.process_time()
        act()
        times.append((time.process_time() - start) * 1000)
    return min(times)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", required=True, help="hosts:members:servers in one request, separated by commas")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    oslo_log.register_options(nova.conf.CONF)
    nova.conf.CONF([], project="nova", default_config_files=[], default_config_dirs=[])
    nova.conf.CONF.set_override("service_down_time", 10**6)
    logging.getLogger().handlers[:] = [logging.NullHandler()]
    objects.register_all()
    manager.utils.claim_resources = lambda *_, **__: True
    admin = context.RequestContext("u", "p", is_admin=True)
    hosts = Hosts()
    scheduler = Scheduler(hosts)
    states, results = {}, []
    for case in arguments.cases.split(","):
        number, members, many = map(int, case.split(":"))
        dice = random.Random(number + members)
        if number not in states:
            states = {number: fleet(hosts, number, admin, dice)}
        results.append(measure(scheduler, states[number], admin, members, many, arguments.repeats, dice))
        print(results[-1], file=sys.stderr, flush=True)
    print(json.dumps(results))


if __name__ == "__main__":
    assert config
    main()
