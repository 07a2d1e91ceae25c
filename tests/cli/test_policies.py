"""`roost policy graph` and `roost policy describe`."""

import pytest

from roost.cli.main import main


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(["policy", *arguments])
    return int(caught.value.code or 0)


def test_the_graph_has_the_chain_and_what_passes_along_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("graph") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines if line[0].isdigit()] == [
        f"senlin.policy.{name}"
        for name in (
            *("scaling", "region_placement", "batch", "zone_placement"),
            *("affinity", "deletion", "loadbalance", "health"),
        )
    ]
    assert "     reads  deletion.zones (zone_placement): how many of them from which availability zone" in lines
    assert "     reads  creation.nodes (the engine): the ids of the nodes that were made" in lines
    assert "     writes placement.placements: the server group and zone of each new node" in lines


def test_a_type_is_described_in_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("describe", "senlin.policy.batch-1.0") == 0
    text = capsys.readouterr().out
    assert "| `pause_time` | Integer | `60` | Interval in seconds between update batches if any. |" in text
    assert "Asked before: `CLUSTER_UPDATE`." in text


def test_a_type_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("describe", "acme.policy.x-1.0") == 1
    assert capsys.readouterr().err == "roost: The policy_type 'acme.policy.x-1.0' could not be found.\n"
