"""What a node learns from Slurm's variables alone."""

from pathlib import Path

import pytest

from deploy.run import environment
from muster.errors import Refused
from trainer.node.agent import slurm

STEP = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_NODEID": "0",
    "SLURM_CPUS_ON_NODE": "8",
    "SLURMD_NODENAME": "n1",
}
SCRIPT = ["--script", "train.py"]


@pytest.fixture(autouse=True)
def addresses(monkeypatch):
    """Host names as a site's DNS resolves them, and this host's own address on a connection."""
    known = {"n1": "10.0.0.1", "n2": "10.0.0.2", "self": "127.0.1.1"}
    monkeypatch.setattr(slurm.meeting, "resolve", lambda host, patience: known[host])
    monkeypatch.setattr(slurm.meeting, "local_address", lambda address, port: "10.0.0.9")


def given(**more):
    return slurm.variables({**STEP, **more}, SCRIPT, Path("/home/u"))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-2,07],login", ["n1", "n2", "n07", "login"]),
        ("gpu[009-011]-ib", ["gpu009-ib", "gpu010-ib", "gpu011-ib"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
    ],
)
def test_a_list_of_hosts_is_read_in_its_order(text, names):
    assert slurm.read_host_list(text) == names


@pytest.mark.parametrize("text", ["", "n[1-", "n[a-b]", "n[1-999999]", "a[1-300]b[1-300]", "a b", "$(id)"])
def test_text_that_is_no_list_of_hosts_is_refused(text):
    with pytest.raises(Refused):
        slurm.read_host_list(text)


def test_rank_0_is_on_the_first_host_of_the_step_and_all_nodes_meet_there():
    first, second = given(), given(SLURM_NODEID="1", SLURMD_NODENAME="n2")
    assert first["PET_RDZV_ENDPOINT"] == second["PET_RDZV_ENDPOINT"]
    assert first["PET_RDZV_ENDPOINT"].startswith("10.0.0.1:")
    assert "is_host=1," in first["PET_RDZV_CONF"]
    assert "is_host=0," in second["PET_RDZV_CONF"]
    assert (first["PET_NODE_RANK"], second["PET_NODE_RANK"]) == ("0", "1")
    assert (first["MUSTER_NODE"], second["MUSTER_NODE"]) == ("n1", "n2")


def test_the_nodes_meet_at_a_port_reserved_by_slurm_or_derived_from_the_job():
    def port(**more):
        return int(given(**more)["PET_RDZV_ENDPOINT"].rpartition(":")[2])

    assert port(SLURM_STEP_RESV_PORTS="12007-12010") == 12007
    assert port() == port(SLURM_NODEID="1", SLURMD_NODENAME="n2")
    assert 15_000 <= port() < 30_000
    assert port() != port(SLURM_RESTART_COUNT="1")


def test_a_requeued_job_keeps_its_run_folder_but_has_a_new_rendezvous():
    before, after = given(), given(SLURM_RESTART_COUNT="1")
    assert before["MUSTER_RUN_DIR"] == after["MUSTER_RUN_DIR"] == "/home/u/runs/slurm-7"
    assert before["PET_RDZV_ID"] != after["PET_RDZV_ID"]


def test_a_first_host_that_resolves_itself_to_loopback_meets_at_a_reachable_address():
    assert given(SLURM_STEP_NODELIST="self,n2")["PET_RDZV_ENDPOINT"].startswith("10.0.0.9:")


@pytest.mark.parametrize(
    ("more", "ranks"),
    [
        ({}, "1"),
        ({"SLURM_GPUS_ON_NODE": "4"}, "4"),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, "2"),
        ({"CUDA_VISIBLE_DEVICES": ""}, "1"),
        ({"PET_NPROC_PER_NODE": "3", "SLURM_GPUS_ON_NODE": "4"}, "3"),
    ],
)
def test_a_host_has_a_rank_for_each_of_its_gpus_or_as_many_as_asked(more, ranks):
    assert {**more, **given(**more)}["PET_NPROC_PER_NODE"] == ranks


def test_a_command_that_starts_its_ranks_itself_runs_once_and_learns_their_number():
    words = ["--script", "--per-node", "bash", "run.sh"]
    made = slurm.variables({**STEP, "SLURM_GPUS_ON_NODE": "4"}, words, Path("/home/u"))
    assert (made["PET_NPROC_PER_NODE"], made["MUSTER_LAUNCHER_RANKS"]) == ("1", "4")


def test_a_hosts_cores_are_divided_among_its_ranks():
    shares = [given(SLURM_GPUS_ON_NODE=gpus)["OMP_NUM_THREADS"] for gpus in ("1", "4", "16")]
    assert shares == ["8", "2", "1"]


def test_torchrun_restarts_only_musters_own_trainer():
    """A script of a user starts again only if the user asks for it."""
    trainers = slurm.variables(STEP, ["--steps", "3"], Path("/home/u"))
    assert (given()["PET_MAX_RESTARTS"], trainers["PET_MAX_RESTARTS"]) == ("0", str(environment.MAX_RESTARTS))
    assert "PET_MAX_RESTARTS" not in given(PET_MAX_RESTARTS="2")


@pytest.mark.parametrize(("rank", "left"), [("0", ["notes.txt"]), ("1", ["n1-0.json", "notes.txt"])])
def test_the_first_node_of_a_requeued_job_removes_the_verdicts_of_the_earlier_start(rank, left, tmp_path):
    outcome = tmp_path / "outcome"
    outcome.mkdir()
    for name in ("n1-0.json", "notes.txt"):
        (outcome / name).write_text("{}")
    slurm.remove_earlier_verdicts({"MUSTER_RUN_DIR": str(tmp_path), "PET_NODE_RANK": rank})
    assert sorted(path.name for path in outcome.iterdir()) == left


def test_variables_that_are_set_stay():
    made = given(MUSTER_RUN_DIR="/data/r1", NCCL_SOCKET_IFNAME="ib0")
    assert not {"MUSTER_RUN_DIR", "NCCL_SOCKET_IFNAME"} & made.keys()


def test_a_task_of_srun_gets_slurms_nodes_unless_a_variable_states_them():
    assert slurm.applies(STEP)
    assert not slurm.applies({**STEP, "PET_RDZV_ENDPOINT": "a:1"})
    assert not slurm.applies({**STEP, "PET_NNODES": "1"})
    assert not slurm.applies({})


@pytest.mark.parametrize("more", [{"SLURM_STEP_NUM_TASKS": "4"}, {"SLURM_STEP_ID": None}])
def test_several_tasks_on_a_host_and_a_batch_script_without_srun_are_refused_with_what_works(more):
    variables = {name: value for name, value in {**STEP, "SLURM_NNODES": "2", **more}.items() if value is not None}
    with pytest.raises(Refused) as refused:
        slurm.variables(variables, SCRIPT, Path("/home/u"))
    assert "srun" in refused.value.hint
    assert "--ntasks-per-node=1 muster agent" in refused.value.hint


def test_only_the_join_timeout_differs_from_other_backends_rendezvous():
    made = given()["PET_RDZV_CONF"].removeprefix("is_host=1,")
    assert made.replace("join_timeout=600", "join_timeout=60") == environment.RDZV_CONF == slurm.RDZV_CONF


def test_nodes_that_are_one_machine_meet_on_its_loopback(monkeypatch):
    monkeypatch.setattr(slurm.meeting, "resolve", lambda host, patience: "127.0.1.1")
    assert given()["PET_RDZV_ENDPOINT"].startswith("127.0.1.1:")


def test_ranks_talk_on_the_interface_that_has_this_hosts_address(monkeypatch):
    addresses = {"lo": "127.0.0.1", "down": None, "eth0": "192.168.0.9", "ib0-of-15-bytes": "10.0.0.9"}

    def address(descriptor, request, asked):
        found = addresses[asked.rstrip(b"\0").decode()]
        if found is None:
            raise OSError("no address")
        return bytes(20) + slurm.socket.inet_aton(found)

    monkeypatch.setattr(slurm.socket, "if_nameindex", lambda: list(enumerate(addresses)))
    monkeypatch.setattr(slurm.fcntl, "ioctl", address)
    assert given()["GLOO_SOCKET_IFNAME"] == "ib0-of-15-bytes"
    assert given()["NCCL_SOCKET_IFNAME"] == "=ib0-of-15-bytes"
    assert [slurm._interface(each) for each in ("127.0.1.1", "10.0.0.8", "fe80::1")] == ["lo", "", ""]
