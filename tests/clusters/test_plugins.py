"""Policy and profile types are found in packages and in the configuration, and are refused with a sentence."""

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from roost import config
from roost.clusters import plugins
from roost.clusters.errors import ResourceNotFound
from roost.clusters.plugins import PluginError
from roost.clusters.policies.base import (
    AFTER,
    BEFORE,
    DataKey,
    Policy,
)
from roost.clusters.policies.deletion import DeletionPolicy
from roost.clusters.policies.scaling import ScalingPolicy
from roost.clusters.profiles.base import Profile
from roost.clusters.profiles.nova_server import ServerProfile
from roost.clusters.spec import Integer
from roost.clusters.spec_type import SpecRow, spec_columns
from roost.clusters.states import ActionName
from tests.clusters.builders import action, ask_all, attach, cluster, nodes
from tests.clusters.house import clustering

HERE = "tests.clusters.test_plugins"
GUIDE = Path(__file__).parents[2] / "docs" / "policy-authors.md"
SPEC = {"type": "acme.policy.curfew", "version": "1.0", "properties": {"days": [0, 1, 2, 3, 4, 5, 6]}}


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the guide's own example in it, from which modules can be imported."""
    code, *_ = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.S)
    (tmp_path / "acme_curfew.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins._load.cache_clear()
    yield tmp_path
    sys.modules.pop("acme_curfew", None)
    plugins._load.cache_clear()


def install(folder: Path, entry_points: str) -> None:
    """Put a package where an installation would: with its metadata beside its modules."""
    metadata = folder / "acme_curfew-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-curfew\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(entry_points)


def load(*policies: str, profiles: tuple[str, ...] = ()) -> plugins.Plugins:
    return plugins.load(config.load(clusters__policies=list(policies), clusters__profiles=list(profiles)))


def test_a_type_of_an_installed_package_is_found(acme: Path) -> None:
    install(acme, "[roost.policies]\ncurfew = acme_curfew:CurfewPolicy\n")
    assert load().policy("acme.policy.curfew-1.0").TYPE == "acme.policy.curfew"


def test_a_type_that_the_configuration_names_is_found_without_an_installation(acme: Path) -> None:
    found = load("acme_curfew:CurfewPolicy")
    assert "acme.policy.curfew-1.0" in found.policies
    assert "senlin.policy.affinity-1.0" in found.policies


def test_a_type_that_is_named_twice_is_one_type(acme: Path) -> None:
    install(acme, "[roost.policies]\ncurfew = acme_curfew:CurfewPolicy\n")
    assert "acme.policy.curfew-1.0" in load("acme_curfew:CurfewPolicy").policies


async def test_the_guides_example_does_what_the_guide_says(acme: Path) -> None:
    night = load("acme_curfew:CurfewPolicy").policy("acme.policy.curfew-1.0")("night", SPEC, id="night")
    view = action(ActionName.CLUSTER_ATTACH_POLICY, cluster())
    ok, binding = await attach(night, view)
    assert ok
    assert binding == {"CurfewPolicy": {"version": 1.0, "data": {"since": view.now.isoformat()}}}

    view = action(ActionName.CLUSTER_SCALE_IN, cluster(*nodes(nova_1=2)))
    said = await ask_all(BEFORE, view, (night, binding))
    assert said.refusal == "Failed policy 'night': Nodes stay during office hours. (refused 1 times)"
    assert said.effects.cluster_data == {"curfew_refusals": 1}

    view = action(ActionName.CLUSTER_SCALE_IN, cluster(*nodes(nova_1=2)))
    view.now = datetime(2026, 11, 15, 23, tzinfo=UTC)
    said = await ask_all(BEFORE, view, (night, binding))
    assert said.refusal is None
    assert view.data["curfew"] == {"allowed_by": "night"}
    assert said.last_ops == {"night": view.now}


async def test_a_third_partys_type_is_listed_attached_and_consulted(acme: Path, database_url: str) -> None:
    install(acme, "[roost.policies]\ncurfew = acme_curfew:CurfewPolicy\n")
    async with clustering(database_url) as house:
        names = {each["name"] for each in await house.get("/policy-types", version="1.4")}
        assert "acme.policy.curfew-1.0" in names
        cluster = await house.cluster(2)
        strict = await house.policy("acme.policy.curfew", from_hour=0, to_hour=24, days=list(range(7)), reason="Stay.")
        await house.act(cluster, "policy_attach", {"policy_id": strict["id"]})
        action = await house.act(cluster, "scale_in")
        assert action["status"] == "FAILED"
        assert (
            action["status_reason"]
            == f"Policy check failure: Failed policy '{strict['name']}': Stay. (refused 1 times)"
        )
        assert (await house.show(cluster))["data"] == {"curfew_refusals": 1}
        assert len(await house.servers()) == 2

        await house.act(cluster, "policy_detach", {"policy_id": strict["id"]})
        lenient = await house.policy("acme.policy.curfew", days=[])
        await house.act(cluster, "policy_attach", {"policy_id": lenient["id"]})
        action = await house.act(cluster, "scale_in")
        assert (action["status"], action["data"]["curfew"]) == ("SUCCEEDED", {"allowed_by": lenient["name"]})
        [bound] = await house.get(f"/clusters/{cluster['id']}/policies")
        assert bound["last_op"] is not None
        assert len(await house.servers()) == 1


def test_the_types_of_the_house() -> None:
    found = load()
    assert found.policy("senlin.policy.scaling-1.0") is ScalingPolicy
    assert found.profile("os.nova.server-1.0") is ServerProfile
    with pytest.raises(ResourceNotFound, match=r"The policy_type 'senlin.policy.bogus-1.0' could not be found\."):
        found.policy("senlin.policy.bogus-1.0")
    with pytest.raises(ResourceNotFound, match=r"The profile_type 'x-1.0' could not be found\."):
        found.profile("x-1.0")


def test_a_policy_and_a_profile_are_restored_from_their_rows() -> None:
    def spec_row(row: dict[str, Any], kept: str) -> SpecRow:
        return SpecRow(*(row[name] for name in spec_columns(kept)))

    row: dict[str, Any] = {
        "id": "1",
        "name": "mine",
        "type": "senlin.policy.deletion-1.0",
        "spec": {"type": "senlin.policy.deletion", "version": "1.0", "properties": {}},
        "data": {},
        "metadata": {},
        "user_id": "u",
        "project_id": "p",
        "domain_id": "default",
        "created_at": None,
        "updated_at": None,
    }
    restored = load().restore_policy(spec_row(row, "data"))
    assert isinstance(restored, DeletionPolicy)
    assert restored.row == spec_row(row, "data")
    assert DeletionPolicy.from_dict(restored.to_dict()).to_dict() == restored.to_dict()

    spec = {"type": "os.nova.server", "version": "1.0", "properties": {"flavor": "1"}}
    profile = load().restore_profile(spec_row({**row, "type": "os.nova.server-1.0", "spec": spec}, "metadata"))
    assert isinstance(profile, ServerProfile)
    assert profile.to_dict()["project"] == "p"


# What does not conform


class Nameless(Policy):
    VERSIONS = {"1.0": [{"status": "SUPPORTED", "since": "2026.11"}]}


class Good(Nameless):
    TYPE = "acme.policy.good"


class Same(Nameless):
    TYPE = "senlin.policy.deletion"


class Unversioned(Policy):
    TYPE = "acme.policy.x"


class OddVersion(Good):
    VERSIONS = {"one": [{"status": "SUPPORTED", "since": "2026.11"}]}


class OddStatus(Good):
    VERSIONS = {"1.0": [{"status": "FINE", "since": "2026.11"}]}


class OddSince(Good):
    VERSIONS = {"1.0": [{"status": "SUPPORTED", "since": "November"}]}


class OddAction(Good):
    TARGET = [(BEFORE, "CLUSTER_EXPLODE")]


class OddMoment(Good):
    TARGET = [("DURING", ActionName.CLUSTER_SCALE_IN)]


class Silent(Good):
    TARGET = [(AFTER, ActionName.CLUSTER_SCALE_IN)]


class OddSchema(Good):
    spec_schema = {"x": "text"}  # type: ignore[dict-item]


class OddDefault(Good):
    spec_schema = {"x": Integer(default="many")}


class OddKey(Good):
    WRITES = ["creation.count"]  # type: ignore[list-item]


class Typo(Good):
    READS = [DataKey("creaton.count", int, "how many")]


class OddMethod(Good):
    def attach(self, cluster_id: str) -> Any:  # type: ignore[override]
        return True, {}


class OddProfiles(Good):
    PROFILE_TYPE = "ANY"


class OddPriority(Good):
    PRIORITY = "high"  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("nowhere", "names 'nowhere', which is not of the form module:Class."),
        ("nowhere:Policy", "names 'nowhere:Policy', which cannot be imported: No module named 'nowhere'."),
        (f"{HERE}:Missing", "which cannot be imported"),
        (f"{HERE}:load", "is not a subclass of roost.clusters.policies.base.Policy."),
        (f"{HERE}:Nameless", "has no TYPE: give it a name such as 'acme.policy.curfew'."),
        (f"{HERE}:Unversioned", "has no VERSIONS"),
        (f"{HERE}:OddVersion", "has a version 'one' in VERSIONS, which is to be like '1.0'."),
        (f"{HERE}:OddStatus", "has no list of support changes for version 1.0"),
        (f"{HERE}:OddSince", "has no list of support changes for version 1.0"),
        (f"{HERE}:OddAction", "has 'CLUSTER_EXPLODE' in TARGET, and there is no such action."),
        (f"{HERE}:OddMoment", "which is to be (BEFORE, action) or (AFTER, action)."),
        (f"{HERE}:Silent", "has AFTER in TARGET, and does not define post_op."),
        (f"{HERE}:OddSchema", "has 'text' as 'x' in its spec schema, which is none of String, Boolean, ..."),
        (f"{HERE}:OddDefault", "has an invalid default for 'x' in its spec schema"),
        (f"{HERE}:OddKey", "has 'creation.count' in WRITES, which is to be a DataKey."),
        (f"{HERE}:Typo", "reads 'creaton.count', which no policy type and not the engine writes."),
        (f"{HERE}:OddMethod", "has a method attach that does not take (self, cluster_id, action)."),
        (f"{HERE}:OddProfiles", "has no list of profile types in PROFILE_TYPE"),
        (f"{HERE}:OddPriority", "has a PRIORITY or an ORDER that is not an integer."),
        (f"{HERE}:Same", "offers senlin.policy.deletion-1.0, which the entry point 'deletion'"),
    ],
)
def test_a_class_that_does_not_conform_is_refused_with_a_sentence(line: str, sentence: str) -> None:
    with pytest.raises(PluginError) as caught:
        load(line)
    assert sentence in caught.value.message


class Unfinished(Profile):
    TYPE = "acme.profile.box"
    VERSIONS = {"1.0": [{"status": "SUPPORTED", "since": "2026.11"}]}


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (f"{HERE}:Good", "is not a subclass of roost.clusters.profiles.base.Profile."),
        (f"{HERE}:Unfinished", "does not define create."),
    ],
)
def test_profile_types_are_held_to_the_same(line: str, sentence: str) -> None:
    with pytest.raises(PluginError) as caught:
        load(profiles=(line,))
    assert sentence in caught.value.message
