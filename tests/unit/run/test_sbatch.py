"""The batch script for Slurm, and the compose file."""

import shlex

import pytest

from deploy.cli.export import _count
from deploy.core.errors import UsageError
from deploy.run import environment
from deploy.run.compose_file import SENT_AT, compose_file
from deploy.run.sbatch import SlurmJob, batch_script

JOB = SlurmJob("train", 2, ("muster", "agent", "--script=train.py --name 'a b'"))


def test_the_signal_of_the_time_limit_comes_to_the_script_in_time_and_output_is_appended():
    lines = batch_script(JOB).splitlines()
    assert {"#SBATCH --signal=B:TERM@90", "#SBATCH --open-mode=append", "#SBATCH --ntasks-per-node=1"} <= set(lines)
    options = [number for number, line in enumerate(lines) if line.startswith("#SBATCH")]
    assert options == list(range(1, 1 + len(options)))  # sbatch stops reading them at the first command


def test_options_of_the_user_come_last_and_win():
    options = batch_script(SlurmJob("t", 1, ("a",), options=("--no-requeue",))).splitlines()
    assert options.index("#SBATCH --no-requeue") > options.index("#SBATCH --requeue")


@pytest.mark.parametrize("container", ["", "pyxis", "apptainer"])
def test_what_runs_is_quoted_whole_in_a_container_and_without(container):
    job = SlurmJob("t", 1, JOB.agent, container=container, image="a b.sif" * bool(container), mounts=("/d:/d",))
    words = shlex.split(next(line for line in batch_script(job).splitlines() if line.startswith("srun "))[:-1])
    assert words[-1] == JOB.agent[-1]
    assert not container or any("a b.sif" in word for word in words)
    assert not container or any("$PWD" in word for word in words)


def test_a_comment_cannot_become_a_command():
    assert "\nreboot" not in batch_script(SlurmJob("t", 1, ("a",), made_by="fab export 'a\nreboot'"))


def test_compose_gives_each_node_what_the_contract_promises():
    made = compose_file("r1", "image", 2, ("--script", "train.py"), {"PET_NPROC_PER_NODE": "2", "A": "1"})
    assert made["services"].keys() == {"folder", "node-0", "node-1"}
    node = environment.Placement("node-1", 1, 2, 2, "eth0", 1)
    wanted = environment.node_environment(
        node, environment.Rendezvous("node-0:29500", "r1"), "r1", "/muster/runs/r1", 0
    )
    assert made["services"]["node-1"]["environment"] == {**wanted, "MUSTER_SENT": SENT_AT, "A": "1"}


@pytest.mark.parametrize("text", ["0", "-1", "x", "1e9", ""])
def test_a_number_that_is_none_is_refused(text):
    with pytest.raises(UsageError):
        _count("--nodes", text)
