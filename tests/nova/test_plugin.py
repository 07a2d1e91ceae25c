"""The classes that Nova loads, with as much of Nova around them as they touch."""

import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest
import roost_nova
from oslo_config import cfg
from roost_nova.asker import Wanted
from roost_nova.service import Silent

from tests.nova.schedulers import HostState, offer


@dataclass(eq=False)
class Flavor:
    vcpus: int = 1
    memory_mb: int = 512
    root_gb: int = 1
    ephemeral_gb: int = 2
    swap: int = 1


@dataclass(eq=False)
class Group:
    uuid: str


@dataclass(eq=False)
class Spec:
    """A RequestSpec, as far as the plug-in reads it."""

    instance_uuid: str = field(default_factory=lambda: str(uuid4()))
    instance_group: Group | None = field(default_factory=lambda: Group("the group"))
    project_id: str = "demo"
    user_id: str = "user"
    flavor: Flavor = field(default_factory=Flavor)
    num_instances: int = 1
    is_bfv: bool = False
    rebuild: bool = False
    hints: dict[str, str] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        return hasattr(self, name)

    def get_scheduler_hint(self, name: str) -> str | None:
        return self.hints.get(name)


@dataclass
class Asker:
    """Chooses the first host, or does not answer, or says that nothing binds the server."""

    silent: bool = False
    foreign: bool = False
    asked: list[Wanted] = field(default_factory=list)

    def choose(self, wanted: Wanted, hosts: list[HostState]) -> dict[str, float] | None:
        self.asked.append(wanted)
        if self.silent:
            raise Silent("no answer")
        return None if self.foreign else {hosts[0].host: 3.0}


@dataclass
class Weighed:
    obj: HostState


@dataclass
class Loaded:
    """The plug-in as a scheduler has loaded it."""

    conf: cfg.ConfigOpts
    asker: Asker

    @property
    def filter(self) -> Any:
        return roost_nova.ScopedGroupFilter()

    @property
    def weigher(self) -> Any:
        return roost_nova.ScopedGroupWeigher()


@contextmanager
def loading(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loaded]:
    """The plug-in as a Nova has it, of which only what the plug-in imports is there."""
    conf = cfg.ConfigOpts()
    conf([], default_config_files=[], default_config_dirs=[])
    base = type("Base", (), {})
    parts = {
        "nova": {},
        "nova.conf": {"CONF": conf},
        "nova.scheduler": {},
        "nova.scheduler.filters": {"BaseHostFilter": base},
        "nova.scheduler.utils": {"request_is_rebuild": lambda spec: spec.rebuild},
        "nova.scheduler.weights": {"BaseHostWeigher": base},
        "oslo_log": {},
        "oslo_log.log": {"getLogger": __import__("logging").getLogger},
    }
    modules = {}
    for name, content in parts.items():
        modules[name] = types.ModuleType(name)
        vars(modules[name]).update(content)
        parent, _, own = name.rpartition(".")
        if parent:
            setattr(modules[parent], own, modules[name])
        monkeypatch.setitem(sys.modules, name, modules[name])
    from roost_nova import plugin

    asker = Asker()
    monkeypatch.setattr(plugin, "_asker", lambda: asker)
    yield Loaded(conf, asker)
    del sys.modules["roost_nova.plugin"], roost_nova.plugin


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loaded]:
    with loading(monkeypatch) as plugin:
        yield plugin


def passed(loaded_filter: Any, hosts: list[HostState], spec: Spec, index: int = 0) -> list[HostState]:
    assert loaded_filter.run_filter_for_index(index)
    return list(loaded_filter.filter_all(hosts, spec))


def test_the_chosen_hosts_pass(loaded: Loaded) -> None:
    hosts = offer("a", "b")
    assert passed(loaded.filter, hosts, Spec()) == hosts[:1]
    [wanted] = loaded.asker.asked
    needs = {"vcpus": 1, "memory_mb": 512, "disk_gb": 4}
    assert (wanted.group_id, wanted.resources, wanted.count) == ("the group", needs, 1)


def test_a_server_that_boots_from_a_volume_takes_no_root_disk(loaded: Loaded) -> None:
    passed(loaded.filter, offer("a"), Spec(is_bfv=True))
    [wanted] = loaded.asker.asked
    assert wanted.resources["disk_gb"] == 3, "ephemeral and swap"


def test_where_no_group_of_roosts_binds_the_server_all_hosts_pass(loaded: Loaded) -> None:
    loaded.asker.foreign = True
    hosts = offer("a", "b")
    assert passed(loaded.filter, hosts, Spec()) == hosts
    assert passed(loaded.filter, hosts, Spec(num_instances=2)) == hosts
    assert all(host.allocation_candidates for host in hosts)


@pytest.mark.parametrize(("hint", "partition"), [({}, None), ({"partition": "2"}, 2), ({"partition": "two"}, 0)])
def test_a_hint_asks_for_a_partition(loaded: Loaded, hint: dict[str, str], partition: int | None) -> None:
    passed(loaded.filter, offer("a"), Spec(hints=hint))
    assert [wanted.partition for wanted in loaded.asker.asked] == [partition]


def test_a_rebuild_in_place_is_not_asked_about(loaded: Loaded) -> None:
    hosts = offer("a", "b")
    assert passed(loaded.filter, hosts, Spec(rebuild=True)) == hosts
    assert not loaded.asker.asked


@pytest.mark.parametrize(("choice", "names"), [("refuse", []), ("allow", ["a", "b"])])
def test_without_roost_it_is_as_nova_conf_says(loaded: Loaded, choice: str, names: list[str]) -> None:
    loaded.asker.silent = True
    own = loaded.filter
    loaded.conf.set_override("on_failure", choice, group="roost")
    assert [host.host for host in passed(own, offer("a", "b"), Spec())] == names


def test_several_servers_are_asked_about_with_those_to_come_and_then_get_no_alternates(loaded: Loaded) -> None:
    hosts, spec, own = offer("a", "b", "c"), Spec(num_instances=3), loaded.filter
    for index in range(3):
        spec.instance_uuid = str(uuid4())
        hosts = passed(own, hosts, spec, index)
        assert [host.host for host in hosts if host.allocation_candidates] == ["a"]
    assert [wanted.count for wanted in loaded.asker.asked] == [3, 2, 1]
    assert passed(own, hosts, spec, 2) == []


def test_hosts_weigh_what_the_filter_heard_and_nothing_without_roost(loaded: Loaded) -> None:
    hosts, spec, weigher = offer("a", "b", "c"), Spec(), loaded.weigher
    weighed = [Weighed(host) for host in hosts]
    passed(loaded.filter, hosts, spec)
    assert weigher.weigh_objects(weighed, spec) == [3.0, -1.0, -1.0]
    assert weigher.weigh_objects(weighed, Spec()) == [0.0, 0.0, 0.0], "of another server it heard nothing"
    assert weigher.weight_multiplier(weighed[0].obj) == 1000.0
    loaded.asker.silent = True
    passed(loaded.filter, hosts, spec)
    assert weigher.weigh_objects(weighed, spec) == [0.0, 0.0, 0.0]


def test_there_is_nothing_else_in_the_package() -> None:
    with pytest.raises(AttributeError):
        roost_nova.SomethingElse  # noqa: B018
