"""A pod that has Kubeflow's variables alone is a node as every other: it meets the others, and knows its run folder."""

from pathlib import Path

import pytest

from muster.errors import TrainError
from trainer.node.agent import pods
from trainer.node.membership import meeting

GIVEN = {
    "PET_NNODES": "2",
    "PET_NPROC_PER_NODE": "8",
    "PET_NODE_RANK": "1",
    "PET_MASTER_ADDR": "train-node-0-0.train",
    "PET_MASTER_PORT": "29500",
}
SCRIPT = ["--script", "train.py"]


@pytest.fixture
def resolved(monkeypatch):
    monkeypatch.setattr(meeting, "resolve", lambda name, patience: "127.0.0.1")


def test_a_pod_meets_the_first_one_and_only_that_one_is_the_host(resolved):
    made = pods.variables(GIVEN, SCRIPT, Path("/x"))
    assert made["PET_RDZV_ENDPOINT"] == "127.0.0.1:29500"
    assert made["PET_RDZV_CONF"].startswith("is_host=0,")
    assert "is_host=1" in pods.variables({**GIVEN, "PET_NODE_RANK": "0"}, SCRIPT, Path("/x"))["PET_RDZV_CONF"]
    assert made["GLOO_SOCKET_IFNAME"] == "lo"
    assert not made.keys() & GIVEN.keys()


def test_what_is_given_stays_and_a_run_folder_is_made_up_where_none_is(resolved):
    made = pods.variables(GIVEN, SCRIPT, Path("/x"))
    assert made["MUSTER_RUN_DIR"] == "/x/runs/train-node-0-0"
    given = {**GIVEN, "MUSTER_RUN_DIR": "/muster/runs/train", "PET_MAX_RESTARTS": "3"}
    assert not pods.variables(given, SCRIPT, Path("/x")).keys() & {"MUSTER_RUN_DIR", "PET_MAX_RESTARTS"}


def test_a_command_that_starts_its_ranks_itself_runs_once_and_knows_how_many(resolved):
    made = pods.variables(GIVEN, ["--script", "--per-node", "bash", "run.sh"], Path("/x"))
    assert (made["PET_NPROC_PER_NODE"], made["MUSTER_LAUNCHER_RANKS"]) == ("1", "8")


def test_other_launchers_are_left_as_they_are():
    assert not pods.applies({})
    assert not pods.applies({**GIVEN, "PET_RDZV_ENDPOINT": "10.0.0.1:1"})
    assert pods.applies(GIVEN)


def test_a_first_pod_that_never_comes_is_named(monkeypatch):
    monkeypatch.setattr(pods, "_PATIENCE_SECONDS", 0.0)
    with pytest.raises(TrainError, match=r"train-node-0-0\.invalid"):
        pods.variables({**GIVEN, "PET_MASTER_ADDR": "train-node-0-0.invalid"}, SCRIPT, Path("/x"))
