"""A pod with Kubeflow's variables alone is a node like any other: it meets the other nodes and knows its run folder."""

import json
from pathlib import Path

import pytest

from muster.errors import TrainError
from trainer.node.agent import pods
from trainer.node.membership import meeting
from trainer.node.roles.plan import read

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


@pytest.mark.parametrize(("host", "name"), [("train-node-0-1", "train-node-0-1"), ("worker-17", "worker-17-1")])
def test_two_pods_with_the_network_of_one_machine_have_two_names(host, name, resolved, monkeypatch):
    """With hostNetwork, a pod's host name is its machine's; both would write and lock the same files of the run."""
    monkeypatch.setattr("socket.gethostname", lambda: host)
    assert pods.variables(GIVEN, SCRIPT, Path("/x"))["MUSTER_NODE"] == name


def test_given_variables_stay_and_a_missing_run_folder_is_made_up(resolved):
    made = pods.variables(GIVEN, SCRIPT, Path("/x"))
    assert made["MUSTER_RUN_DIR"] == "/x/runs/train-node-0-0"
    given = {**GIVEN, "MUSTER_RUN_DIR": "/muster/runs/train", "PET_MAX_RESTARTS": "3"}
    assert not pods.variables(given, SCRIPT, Path("/x")).keys() & {"MUSTER_RUN_DIR", "PET_MAX_RESTARTS"}


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": "4711"}, "at-127-0-0-1-4711"),
        ({"PET_MASTER_ADDR": "10.0.0.4", "PET_MASTER_PORT": ""}, "at-10-0-0-4-29500"),
        ({"PET_MASTER_ADDR": "fd00::1:2"}, "at-fd00-1-2-29500"),
        ({"PET_MASTER_ADDR": "10.0.0.4", "PET_RDZV_ID": "my job/7"}, "my-job-7"),
        ({"PET_RDZV_ID": "none"}, "train-node-0-0"),
        ({"PET_MASTER_ADDR": "3com.lab"}, "3com"),
        ({"PET_MASTER_ADDR": "10.0.0.4", "MUSTER_RUN_ID": "mine"}, "mine"),
    ],
)
def test_a_run_folder_at_an_address_is_named_after_all_of_it_or_the_jobs_id(resolved, more, name):
    """Two jobs on one machine once shared the folder runs/127, each with the other's checkpoints."""
    made = {**GIVEN, **more, **pods.variables({**GIVEN, **more}, SCRIPT, Path("/x"))}
    assert (made["MUSTER_RUN_DIR"], made["MUSTER_RUN_ID"]) == (f"/x/runs/{name}", name)
    assert made["PET_RDZV_ID"] == more.get("PET_RDZV_ID", name)


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


def test_without_a_given_port_the_pods_meet_at_torchruns_default(resolved):
    given = {name: value for name, value in GIVEN.items() if name != "PET_MASTER_PORT"}
    for empty in ({}, {"PET_MASTER_PORT": ""}):
        assert pods.variables({**given, **empty}, SCRIPT, Path("/x"))["PET_RDZV_ENDPOINT"] == "127.0.0.1:29500"


NODES = {"reward-0": ["reward-0.svc", 29600, 8, 4, 0], "reward-1": ["reward-1.svc", 29600, 8, 8, 0]}
OF_ALL = {"ends": False, "after": [], "ready": ["", 0, ""], "within": 600.0}
PLAN = {"key": "", "roles": [{"name": "trainer", "nodes": {}, **OF_ALL}, {"name": "reward", "nodes": NODES, **OF_ALL}]}
POD = {"MUSTER_ROLES": json.dumps(PLAN), "MUSTER_ROLE": "reward", "MUSTER_ROLE_INDEX": "1", "MUSTER_ROLES_KEY": "k"}


def test_a_pod_of_a_role_knows_which_it_is_and_listens_at_its_own_address(resolved):
    made = pods.variables({**GIVEN, **POD}, SCRIPT, Path("/x"))
    known = read(made["MUSTER_ROLES"]).variables(made["MUSTER_NODE"])
    assert made["MUSTER_NODE"] == "reward-1"
    assert (known["MUSTER_ROLE_HOST"], known["MUSTER_FIRST_RANK"]) == ("127.0.0.1", "8")
    plan = json.loads(made["MUSTER_ROLES"])
    hosts = {name: node[0] for name, node in plan["roles"][1]["nodes"].items()}
    assert hosts == {"reward-0": "reward-0.svc", "reward-1": "127.0.0.1"}
    assert plan["key"] == "k"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"MUSTER_ROLES_KEY": ""}, "MUSTER_ROLES_KEY is empty"),
        ({"MUSTER_ROLES": "{"}, "MUSTER_ROLES is not what muster export writes"),
        ({"MUSTER_ROLES": "[" * 100_000}, "MUSTER_ROLES is not what muster export writes"),
        ({"MUSTER_ROLE": "other"}, "MUSTER_ROLES is not what muster export writes"),
        ({"MUSTER_ROLE_INDEX": "2"}, "MUSTER_ROLES is not what muster export writes"),
        (
            {"MUSTER_ROLES": json.dumps({"roles": [{"name": "reward", "nodes": {"a": [], "b": []}}]})},
            "MUSTER_ROLES is not what muster export writes",
        ),
    ],
)
def test_roles_that_muster_export_did_not_write_are_refused_with_the_variables_name(resolved, change, words):
    with pytest.raises(TrainError, match=words):
        pods.variables({**GIVEN, **POD, **change}, SCRIPT, Path("/x"))
