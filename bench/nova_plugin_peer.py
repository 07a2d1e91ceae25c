"""Roost's filter and Nova's own anti-affinity filter on the same host states, in turns. Runs where Nova is installed.

Nova's code is used as it is. Roost's filter asks over HTTP, as it does in a nova-scheduler; the answers come from a
process beside this one, which decides nothing. Prints one JSON list.
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


class Roost(BaseHTTPRequestHandler):
    """Lets the first host pass."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self._answer(b'{"adopted": []}')

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["choice"]
        self._answer(json.dumps({"choice": {"hosts": asked["hosts"]["names"][:1], "weights": [0.0]}}).encode())

    def _answer(self, content):
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


def serve(pipe):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Roost)
    pipe.send(server.server_port)
    server.serve_forever()


def compare(states, admin, members, repeats, dice):
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
    here, there = multiprocessing.Pipe()
    process = multiprocessing.Process(target=serve, args=(there,), daemon=True)
    process.start()
    nova.conf.CONF.set_override("url", [f"http://127.0.0.1:{here.recv()}"], group="roost")
    from roost_nova import plugin

    plugin._asker.cache_clear()
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
    from roost_nova import service

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
                results.append(compare(states, admin, members, arguments.repeats, random.Random(number + members)))
                print(results[-1], file=sys.stderr, flush=True)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
