"""What authors get: a harness that runs hooks as the engine does, a suite, and packages that pass it."""

import asyncio
import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from roost import policies, profiles
from roost.cli.main import main
from roost.clusters import plugins
from roost.clusters.profiles.nova_server import ServerProfile
from roost.config import load
from roost.policies import BEFORE, EXPERIMENTAL, ActionName, ActionView, DataKey, Integer, Policy
from roost.policies.testing import Harness, assert_conforms, problems
from roost.profiles.testing import problems as profile_problems

GUIDE = Path(__file__).parents[2] / "docs" / "policy-authors.md"


def test_everything_promised_is_there() -> None:
    for surface in (policies, profiles):
        assert surface.VERSION == "1.0"
        assert all(hasattr(surface, name) for name in surface.__all__)


async def test_the_tests_of_the_guide_pass() -> None:
    example, tests = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.S)
    scope: dict[str, Any] = {"__name__": "acme_curfew"}
    exec(example + tests, scope)
    await asyncio.to_thread(scope["test_it_conforms"])
    await scope["test_it_counts_its_refusals"]()
    await scope["test_nodes_go_at_night"]()


PROPERTIES: dict[str, dict[str, Any]] = {
    "senlin.policy.scaling": {"event": "CLUSTER_SCALE_IN"},
    "senlin.policy.zone_placement": {"zones": [{"name": "nova-1"}]},
    "senlin.policy.region_placement": {"regions": [{"name": "RegionOne"}]},
    "senlin.policy.loadbalance": {"pool": {"subnet": "s"}, "vip": {"subnet": "s"}},
    "senlin.policy.health": {
        "detection": {"detection_modes": [{"type": "NODE_STATUS_POLLING"}]},
        "recovery": {"actions": [{"name": "RECREATE"}]},
    },
}


@pytest.mark.parametrize("kind", plugins.load(load()).chain(), ids=lambda kind: kind.TYPE)
async def test_the_built_in_types_pass(kind: type[Policy]) -> None:
    assert await problems(kind, **PROPERTIES.get(kind.TYPE, {})) == []


async def test_the_profile_type_of_servers_passes() -> None:
    assert await profile_problems(ServerProfile, flavor="m1.tiny", image="cirros") == []


class Careless(Policy):
    """Forgets to declare, and keeps what is no JSON."""

    TYPE = "tests.policy.careless"
    VERSIONS = {"1.0": [{"status": EXPERIMENTAL, "since": "2026.11"}]}
    TARGET = [(BEFORE, ActionName.CLUSTER_SCALE_OUT), (BEFORE, ActionName.CLUSTER_CHECK)]
    WRITES = [DataKey("mine.fine", int, "a number")]
    spec_schema = {"bare": Integer()}

    def pre_op(self, cluster_id: str, action: ActionView) -> None:
        if action.action == ActionName.CLUSTER_CHECK:
            action.data["mine"] = {"fine": object()}
        else:
            action.data["mine"] = {"fine": 1, "secret": 2}


async def test_the_suite_names_what_is_wrong() -> None:
    found = await problems(Careless)
    assert found[0] == "the property 'bare' has no description."
    assert found[1] == "version 1.0, CLUSTER_SCALE_OUT: it wrote 'mine.secret', which is not in WRITES."
    assert "as 'mine.fine' in action.data, which cannot be written as JSON" in found[2]
    assert len(found) == 3
    with pytest.raises(AssertionError, match="has no description"):
        await asyncio.to_thread(assert_conforms, Careless)


async def test_a_harness_remembers_what_policies_keep() -> None:
    harness = Harness(size=2, max_size=3)
    first = await harness.run(ActionName.CLUSTER_SCALE_OUT, count=1)
    assert (first.refusal, len(first.cluster.nodes)) == (None, 3)
    assert first.data["creation"]["nodes"] == ["node-3"]


@pytest.mark.parametrize("kind", ["policy", "profile"])
def test_a_new_package_passes_the_suite(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([kind, "new", f"night-{kind}", "--into", str(tmp_path)])
    assert ended.value.code == 0
    folder = tmp_path / f"night-{kind}"
    assert str(folder) in capsys.readouterr().out
    module = f"night_{kind}"
    assert f'{module} = "{module}:' in (folder / "pyproject.toml").read_text()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.syspath_prepend(str(folder / "tests"))
    tests = importlib.import_module(f"test_{module}")
    try:
        for name in [name for name in vars(tests) if name.startswith("test_")]:
            getattr(tests, name)()
    finally:
        del sys.modules[f"test_{module}"], sys.modules[module]
    with pytest.raises(SystemExit) as again:
        main([kind, "new", f"night-{kind}", "--into", str(tmp_path)])
    assert again.value.code == 1
    assert "already exists" in capsys.readouterr().err
