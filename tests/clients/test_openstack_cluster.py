"""Every `openstack cluster ...` command, through python-senlinclient itself, against a Roost that is served."""

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openstack
import pytest
import yaml

from tests.conftest import Served

CLIENT = Path(__file__).parents[2] / ".venv-senlin" / "bin" / "python"
PROFILE = {"type": "os.nova.server", "version": 1.0,
           "properties": {"name": "web", "flavor": "m1.tiny", "image": "cirros-0.6.2-x86_64-disk"}}  # fmt: skip
AFFINITY = {"type": "senlin.policy.affinity", "version": 1.0,
            "properties": {"servergroup": {"policies": "soft-anti-affinity"}}}  # fmt: skip


class Shell:
    """The client, as somebody at a terminal has it."""

    def __init__(self, served: Served, folder: Path) -> None:
        assert CLIENT.exists(), "make .venv-senlin first: the client of the clustering API needs its own environment"
        environment = {key: value for key, value in os.environ.items() if not key.startswith("OS_")}
        environment |= {"OS_CLIENT_CONFIG_FILE": str(served.clouds), "OS_CLOUD": "roost", "COLUMNS": "400"}
        script = Path(__file__).with_name("senlin_shell.py")
        self.process = subprocess.Popen(
            [CLIENT, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder
        )
        self.seen: set[str] = set()
        entry = yaml.safe_load(served.clouds.read_text())["clouds"]["roost"]
        self.cloud = openstack.connect(load_yaml_config=False, load_envvars=False, **entry)

    def __call__(self, command: str, *, status: int = 0) -> str:
        """Type a command that ends with that status; what it printed."""
        self.at_rest()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(command.split()) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert answer["status"] == status, f"{command}: {answer}"
        self.seen.add(command)
        return str(answer["output"]) + str(answer["errors"])

    def at_rest(self) -> None:
        """Wait until nothing is being done to any cluster."""
        for _ in range(600):
            query = "&".join(f"status={word}" for word in ("READY", "RUNNING", "WAITING"))
            answer = self.cloud.clustering.get(f"/actions?{query}", microversion="1.14")
            if not answer.json()["actions"]:
                return
            time.sleep(0.05)
        raise AssertionError(answer.text)

    def object(self, path: str) -> Any:
        """What the API shows at an address."""
        return next(iter(self.cloud.clustering.get(path, microversion="1.14").json().values()))


@pytest.fixture(scope="module")
def shell(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    folder = tmp_path_factory.mktemp("senlin")
    (folder / "profile.yaml").write_text(yaml.safe_dump(PROFILE))
    (folder / "policy.yaml").write_text(yaml.safe_dump(AFFINITY))
    (folder / "script.sh").write_text("true\n")
    made = Shell(served, folder)
    yield made
    made.process.terminate()


def test_types_and_services_are_listed(shell: Shell) -> None:
    assert "revision" in shell("cluster build info")
    assert "os.nova.server" in shell("cluster profile type list")
    assert "flavor" in shell("cluster profile type show os.nova.server-1.0")
    assert "reboot" in shell("cluster profile type ops os.nova.server-1.0")
    listed = shell("cluster policy type list")
    for kind in (
        "affinity",
        "zone_placement",
        "deletion",
        "scaling",
        "region_placement",
        "loadbalance",
        "batch",
        "health",
    ):
        assert f"senlin.policy.{kind}" in listed
    assert "servergroup" in shell("cluster policy type show senlin.policy.affinity-1.0")
    shell("cluster service list", status=1)  # for administrators only


def test_a_whole_life_of_a_cluster(shell: Shell) -> None:
    assert "prof1" in shell("cluster profile create --spec-file profile.yaml --metadata a=b prof1")
    shell("cluster profile validate --spec-file profile.yaml")
    shell("cluster profile list")
    assert "prof1" in shell("cluster profile list --filters name=prof1 --sort name:asc --limit 1 --full-id")
    shell("cluster profile show prof1")
    shell("cluster profile update --name prof1 --metadata c=d prof1")
    shell("cluster policy create --spec-file policy.yaml pol1")
    shell("cluster policy validate --spec-file policy.yaml")
    shell("cluster policy list")
    shell("cluster policy list --filters type=senlin.policy.affinity-1.0 --sort name --limit 5 --full-id")
    shell("cluster policy show pol1")
    shell("cluster policy update --name pol1b pol1")
    created = (
        "cluster create --profile prof1 --desired-capacity 2 --min-size 1 --max-size 8 --metadata k=v --timeout 100 c1"
    )
    assert "c1" in shell(created)
    assert "ACTIVE" in shell("cluster create --profile prof1 --wait c2")
    shell("cluster list")
    assert "c1" in shell("cluster list --filters status=ACTIVE --sort name:desc --limit 1 --full-id")
    assert "ACTIVE" in shell("cluster show c1")
    shell("cluster update --name c1 --timeout 120 --metadata x=y c1")
    shell.at_rest()
    assert shell.object("/clusters/c1")["timeout"] == 120
    for command, size in (
        ("resize --capacity 3", 3),
        ("resize --adjustment 1 --min-size 1 --max-size 9 --strict --wait", 4),
        ("resize --percentage 50 --min-step 1", 6),
        ("shrink --count 1", 5),
        ("expand --count 1", 6),
        ("shrink --count 1 --wait", 5),
        ("shrink --count 2", 3),
        ("expand --count 1 --wait", 4),
    ):
        shell(f"cluster {command} c1")
        shell.at_rest()
        now = shell.object("/clusters/c1")
        assert (len(now["nodes"]), now["desired_capacity"]) == (size, size), command


def test_policies_are_attached_listed_changed_and_detached(shell: Shell) -> None:
    shell("cluster policy attach --policy pol1b c1")
    shell("cluster policy attach --policy pol1b --enabled false c2")
    assert "True" in shell("cluster policy binding list c1")
    assert "pol1b" in shell("cluster policy binding list --filters enabled=True --sort enabled c1")
    assert "servergroup_id" in shell("cluster policy binding show --policy pol1b c1")
    assert "False" in shell("cluster policy binding show --policy pol1b c2")
    shell("cluster expand c1")
    shell.at_rest()
    group = shell.object("/clusters/c1/policies/pol1b")["data"]["AffinityPolicy"]["data"]["servergroup_id"]
    assert len(shell.cloud.compute.get_server_group(group).member_ids) == 1
    shell("cluster policy binding update --policy pol1b --enabled false c1")
    shell.at_rest()
    assert shell.object("/clusters/c1/policies/pol1b")["enabled"] is False
    shell("cluster policy detach --policy pol1b c1")
    shell("cluster policy detach --policy pol1b c2")
    shell.at_rest()
    assert shell.object("/clusters/c1/policies") == []


def test_nodes_are_made_joined_replaced_and_operated(shell: Shell) -> None:
    shell("cluster node create --profile prof1 --role master --metadata a=b n1")
    shell("cluster node create --profile prof1 --cluster c1 n2")
    shell("cluster node create --profile prof1 n3")
    shell("cluster node list")
    assert "n1" in shell("cluster node list --sort name --full-id")
    assert "master" in shell("cluster node list --full-id") + shell("cluster node show n1")
    shell("cluster node list --cluster c1 --filters status=ACTIVE --sort name --limit 2 --full-id")
    assert "addresses" in shell("cluster node show --details n1")
    shell("cluster node update --name n1 --role slave --metadata z=1 n1")
    shell("cluster node update --tainted true n1")
    shell.at_rest()
    assert (shell.object("/nodes/n1")["role"], shell.object("/nodes/n1")["tainted"]) == ("slave", True)
    shell("cluster node check n1")
    shell("cluster node recover --check true n1")
    shell("cluster node op --operation reboot --params type=SOFT n1", status=1)  # the client fails after the request
    shell.at_rest()
    [reboot] = shell.object("/actions?action=NODE_OPERATION")
    assert reboot["status"] == "SUCCEEDED"
    shell("cluster members add --nodes n1 c1")
    shell("cluster members list c1")
    assert "n1" in shell("cluster members list --full-id --filters status=ACTIVE c1")
    shell("cluster members replace --nodes n1=n3 c1")
    shell.at_rest()
    assert shell.object("/nodes/n1")["cluster_id"] == ""
    shell("cluster members del --nodes n3 c1")
    member = shell.object("/clusters/c1")["nodes"][0]
    shell(f"cluster members del --nodes {member} --destroy-after-deletion true c1")
    server = shell.cloud.compute.create_server(name="stray", flavor_id="1", image_id=_image(shell), networks="none")
    shell.cloud.compute.wait_for_server(server)
    preview = f"cluster node adopt --identity {server.id} --type os.nova.server-1.0 --preview"
    assert "flavor" in shell(preview)
    assert "adopted" in shell(f"cluster node adopt --identity {server.id} --type os.nova.server-1.0 --name adopted")
    shell("cluster node delete --force adopted")


def _image(shell: Shell) -> str:
    return str(shell.cloud.image.find_image("cirros-0.6.2-x86_64-disk").id)


def test_clusters_are_checked_recovered_collected_and_operated(shell: Shell) -> None:
    shell("cluster check c1")
    shell("cluster check --wait c1")
    shell("cluster recover --check true c1")
    assert "value" in shell("cluster collect --path name c1")
    shell("cluster collect --path name --full-id c1")
    shell("cluster op --operation reboot --params type=SOFT c1")
    shell("cluster update --profile prof1 --profile-only true c1", status=1)  # nothing to change
    assert "No property needs an update." in shell("cluster update --profile prof1 c1", status=1)
    shell("cluster run --script script.sh c1")


def test_a_webhook_scales_a_cluster(shell: Shell) -> None:
    before = len(shell.object("/clusters/c1")["nodes"])
    command = "cluster receiver create --type webhook --cluster c1 --action CLUSTER_SCALE_OUT --params count=1 r1"
    printed = shell(command)
    # This client shows the receiver in a second request; the secret is only in the answer to the first.
    assert "trigger?" in printed
    assert "token=" not in printed
    made = shell.cloud.clustering.create_receiver(
        name="r2", type="webhook", cluster_id="c1", action="CLUSTER_SCALE_OUT", params={"count": 1}
    )
    shell("cluster receiver list")
    shell("cluster receiver list --filters name=r1 --sort name --limit 1 --full-id")
    shell("cluster receiver show r1")
    with urllib.request.urlopen(urllib.request.Request(made.channel["alarm_url"], method="POST")) as answer:
        assert answer.status == 202
    shell.at_rest()
    assert len(shell.object("/clusters/c1")["nodes"]) == before + 1
    shell("cluster receiver update --name r1b --action CLUSTER_SCALE_IN --params count=2 r1")
    shell("cluster receiver delete --force r1b")
    shell("cluster receiver delete --force r2")


def test_actions_and_events_are_listed_and_shown(shell: Shell) -> None:
    shell("cluster action list")
    shell("cluster action list --filters action=CLUSTER_CREATE --sort name --limit 2 --full-id")
    action = shell.object("/actions?action=CLUSTER_CREATE")[0]["id"]
    assert "CLUSTER_CREATE" in shell(f"cluster action show {action}")
    assert "SUCCEEDED" in shell(f"cluster action update --status CANCELLED {action}", status=1)
    shell("cluster event list")
    shell("cluster event list --filters level=20 --sort timestamp --limit 30 --full-id")
    event = shell.object("/events?limit=1")[0]["id"]
    assert event in shell(f"cluster event show {event}")


def test_what_is_not_there_is_said_not_to_be(shell: Shell) -> None:
    for noun in ("cluster", "cluster node", "cluster policy", "cluster profile", "cluster receiver", "cluster action"):
        assert "not found" in shell(f"{noun} show nosuch", status=1)
    assert "not found" in shell("cluster event show nosuch", status=1)
    assert "not found" in shell("cluster policy type show nosuch-1.0", status=1)
    assert "could not be found" in shell("cluster check nosuch")
    # This client ends with 0 all the same; Roost's own commands do not.
    assert "could not be found" in shell("cluster node delete --force nosuch")
    assert "could not be found" in shell("cluster delete --force nosuch")


def test_everything_is_deleted(shell: Shell) -> None:
    shell("cluster node delete --force n3")
    shell("cluster node delete --force --force-delete n1")
    shell("cluster delete --force c1")
    shell("cluster delete --force --force-delete c2")
    shell.at_rest()
    shell("cluster policy delete --force pol1b")
    shell("cluster policy delete --force nosuch", status=1)
    adopted = [profile["name"] for profile in shell.object("/profiles") if profile["name"].startswith("prof-")]
    for name in adopted:
        shell(f"cluster profile delete --force {name}")
    shell("cluster profile delete --force prof1")
    assert shell.object("/clusters") == []
    assert len(shell.seen) > 90
