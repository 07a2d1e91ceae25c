"""Roost's filter and Nova's own anti-affinity filter on the same host states, in turns. Runs where Nova is installed.

Nova's code is used as it is. Roost's filter asks over HTTP, as it does in a nova-scheduler; the answers come from a
process beside this one, which knows of one group. Prints one JSON list.
"""
# mypy: ignore-errors
# Nova has no types, and is not installed where types are checked.

import argparse
import json
import logging
import multiprocessing
import random
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import nova.conf
from nova import context, objects
from nova.scheduler.filters.affinity_filter import ServerGroupAntiAffinityFilter
from nova_peer import Hosts, fleet, some_id, spec
from oslo_log import log as oslo_log

CASES = {
    "anti-affinity": [{"policy": "anti-affinity", "rules": {}}],
    "scopes": [
        {"policy": "anti-affinity:rack", "rules": {"max_server_per_aggregate": 50}},
        {"policy": "anti-affinity", "rules": {}},
        {"policy": "soft-anti-affinity:maintenance_zone", "rules": {}},
    ],
}


class Roost(BaseHTTPRequestHandler):
    """Says yes to every reservation."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self._answer(self.server.topology if "/topology" in self.path else self.server.group)

    def do_POST(self):
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["reservation"]
        self._answer(json.dumps({"reservation": {"version": order["version"] + 1, "hosts": [order["host"]]}}).encode())

    def _answer(self, content):
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


def serve(pipe, topology, group):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Roost)
    server.topology, server.group = topology, group
    pipe.send(server.server_port)
    server.serve_forever()


def topology_of(states):
    hosts = {}
    for at, state in enumerate(sorted(states, key=lambda state: state.host)):
        places = {"availability_zone": f"az{at % 3}", "rack": f"r{at // 40}", "maintenance_zone": f"mz{at % 8}"}
        hosts[state.host] = places
    return {"topology": {"generation": 1, "hosts": hosts, "complete": True, "adopted": {}}}


def compare(states, admin, members, rules, repeats, dice):
    """The least CPU milliseconds of each filter, and the least time that passes, over rounds in turns."""
    spots = dice.sample(states, members)
    inside = {some_id(dice): state for state in spots}
    other = objects.Instance(uuid=some_id(dice))
    for member, state in inside.items():
        state.instances[member] = other
    new, group_id = some_id(dice), some_id(dice)
    group = objects.InstanceGroup(
        admin, id=1, uuid=group_id, name="g", policy="anti-affinity", user_id="u", project_id="p", rules={},
        members=[*inside, new], hosts=sorted({state.host for state in spots}),
    )  # fmt: skip
    group.policies = ["anti-affinity"]
    places = {member: [state.host] for member, state in inside.items()}
    known = {"id": group_id, "version": 1, "rules": rules, "members": places, "building": [new], "partitions": {}}
    here, there = multiprocessing.Pipe()
    answers = (json.dumps(topology_of(states)).encode(), json.dumps({"group": known}).encode())
    process = multiprocessing.Process(target=serve, args=(there, *answers), daemon=True)
    process.start()
    nova.conf.CONF.set_override("url", f"http://127.0.0.1:{here.recv()}", group="roost")
    from roost.nova import plugin

    plugin._chooser.cache_clear()
    own, theirs, asked = plugin.ScopedGroupFilter(), ServerGroupAntiAffinityFilter(), spec(admin, group, [new])
    filters = {"nova": theirs, "roost": own}
    spent, passed, left = {"nova": [], "roost": []}, {"nova": [], "roost": []}, {}
    for _ in range(repeats + 1):  # the first is forgotten: hosts and the group are asked for once
        for name, filter_ in filters.items():
            filter_.run_filter_for_index(0)
            wall, cpu = time.perf_counter(), time.process_time()
            left[name] = len(list(filter_.filter_all(states, asked)))
            spent[name].append((time.process_time() - cpu) * 1000)
            passed[name].append((time.perf_counter() - wall) * 1000)
    process.terminate()
    for member, state in inside.items():
        del state.instances[member]
    assert left == {"nova": len(states) - members, "roost": 1}, left
    result = {"hosts": len(states), "members": members}
    for name in filters:
        result |= {f"{name}_cpu_ms": min(spent[name][1:]), f"{name}_ms": min(passed[name][1:])}
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", default="1000,10000")
    parser.add_argument("--members", default="10,100,1000")
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    from roost.nova import service

    oslo_log.register_options(nova.conf.CONF)
    nova.conf.CONF([], project="nova", default_config_files=[], default_config_dirs=[])
    service.register(nova.conf.CONF)
    nova.conf.CONF.set_override("auth_type", "none", group="roost")
    nova.conf.CONF.set_override("cache_seconds", 3600, group="roost")
    logging.getLogger().handlers[:] = [logging.NullHandler()]
    objects.register_all()
    admin = context.RequestContext("u", "p", is_admin=True)
    results = []
    for number in map(int, arguments.hosts.split(",")):
        states = fleet(Hosts(), number, admin, random.Random(number))
        for members in map(int, arguments.members.split(",")):
            if members < number:
                for case, rules in CASES.items():
                    dice = random.Random(number + members)
                    result = compare(states, admin, members, rules, arguments.repeats, dice)
                    results.append({"case": case, **result})
                    print(results[-1], file=sys.stderr, flush=True)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
