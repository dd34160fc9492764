"""If a script or launcher forms its own world, the line that causes it is named, with what to change there."""

import os
import signal
import subprocess
import time

import pytest

from tests.started import started
from trainer.node.ending.own_world import culprit_line, is_local, lacks_run_variables, launch_of, waited_s


def said(tmp_path, script, *command, shell=("run.sh",), **note):
    (tmp_path / "run.sh").write_text(script)
    return culprit_line({"launch": [1, 1, 2], "command": [*command], "shell": [str(tmp_path), *shell], **note}, ())


PYTHON = "/usr/bin/python3"


@pytest.mark.parametrize(
    ("script", "command", "line", "options"),
    [
        (
            "cd src\ntorchrun --standalone --nproc_per_node=2 train.py\n",
            ("/opt/bin/torchrun", "--standalone", "--nproc_per_node=2", "train.py"),
            "run.sh:2: torchrun --standalone --nproc_per_node=2 train.py",
            "--standalone",
        ),
        (
            "# torchrun --nnodes 1\nA=(--nnodes=${SLURM_NNODES:-1}\n  --nproc-per-node=2)\ntorchrun ${A[@]} train.py",
            ("/opt/bin/torchrun", "--nnodes=1", "--nproc-per-node=2", "train.py"),
            "run.sh:2: A=(--nnodes=${SLURM_NNODES:-1}",
            "--nnodes",
        ),
        (
            "python -m torch.distributed.launch \\\n  --nnodes=1 --node_rank=0 \\\n  --master_addr=localhost a.py",
            ("-m", "torch.distributed.launch", "--nnodes=1", "--node_rank=0", "--master_addr=localhost", "a.py"),
            "run.sh:1: python -m torch.distributed.launch --nnodes=1 --node_rank=0 --master_addr=localhost a.py",
            "--nnodes, --node_rank and --master_addr",
        ),
        (
            "accelerate launch --num_machines 1 --num_processes 2 train.py",
            (
                "/opt/bin/accelerate",
                "launch",
                "--num_machines=2",
                "--machine_rank=1",
                "--num_machines",
                "1",
                "train.py",
            ),
            "run.sh:1: accelerate launch --num_machines 1",
            "--num_machines",
        ),
    ],
)
def test_the_line_of_a_shell_script_and_the_options_to_leave_out_are_named(tmp_path, script, command, line, options):
    where, fix = said(tmp_path, script, PYTHON, *command)
    assert where.startswith(line)
    assert fix.startswith(f"leave out {options} there")


def test_a_line_with_the_number_of_nodes_is_named_before_one_with_the_meeting_point(tmp_path):
    script = "A=(--nnodes=${N:-1})\ntorchrun ${A[@]} --rdzv-endpoint=localhost:5 train.py"
    command = (PYTHON, "/opt/bin/torchrun", "--nnodes=1", "--rdzv-endpoint=localhost:5", "train.py")
    assert said(tmp_path, script, *command)[0] == "run.sh:1: A=(--nnodes=${N:-1})"


def test_options_after_the_script_belong_to_the_script(tmp_path):
    where, fix = said(
        tmp_path, "torchrun train.py --nnodes 1", PYTHON, "/opt/bin/torchrun", "train.py", "--nnodes", "1"
    )
    assert (where, fix) == ("run.sh:1: torchrun train.py --nnodes 1", "")
    module = ("/opt/bin/torchrun", "-m", "train", "--num-nodes", "1")
    assert said(tmp_path, "torchrun -m train --num-nodes 1", PYTHON, *module)[1] == ""


def test_a_shell_that_became_its_last_command_is_found_from_the_runs_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.sh").write_text("set -e\nexec torchrun --standalone train.py")
    note = {"launch": [2, 2, 1], "command": [PYTHON, "/opt/bin/torchrun", "--standalone", "train.py"], "shell": []}
    assert culprit_line(note, ["launcher.py", "bash", "run.sh"])[0] == "run.sh:2: exec torchrun --standalone train.py"


def test_variables_that_a_script_sets_or_takes_away_are_named(tmp_path):
    where, fix = said(tmp_path, "export MASTER_ADDR=127.0.0.1\npython train.py", PYTHON, "train.py", at="train.py:3")
    assert where == "run.sh:1: export MASTER_ADDR=127.0.0.1"
    assert fix.startswith("leave that out")
    where, fix = said(tmp_path, "env -i PATH=$PATH torchrun train.py", PYTHON, "/opt/bin/torchrun", "train.py")
    assert where == "run.sh:1: env -i PATH=$PATH torchrun train.py"
    assert "MUSTER_OUTCOME_DIR" in fix
    assert said(tmp_path, "python train.py", PYTHON, "train.py", at="train.py:3") == ("train.py:3", "")


def test_a_note_that_a_script_has_written_itself_breaks_nothing(tmp_path):
    assert culprit_line({"command": [1, None], "shell": ["nowhere", "\0"]}, ()) == ("", "")
    assert culprit_line({"launch": [], "command": "torchrun"}, ()) == ("", "")


@pytest.mark.parametrize("address", ["127.0.0.1:29500", "localhost:29500", "localhost:0", "[::1]:5", "gpu-a:0"])
def test_an_address_that_no_other_machine_reaches_is_local(address):
    assert is_local(address)


@pytest.mark.parametrize("address", ["10.0.0.1:29500", "gpu-a:29500", "[fd00::1]:5", ""])
def test_an_address_that_others_may_reach_is_not(address):
    assert not is_local(address)


@pytest.fixture
def waiting():
    """Return a function that says how long a launcher has waited for other nodes, and whether none can come.

    The launcher is a living process that has started none itself. Its arguments: other notes, and the launcher's own.
    """
    with started(["sleep", "infinity"]) as process:

        def ask(*noted, **note):
            start = {"t": time.time() - 50, "pid": process.pid, "given": "10.0.0.1:29500", **note}
            return waited_s(start, noted, time.time())

        yield ask
        process.kill()


def test_a_launcher_waits_in_vain_if_no_other_node_can_come(waiting):
    seconds, nobody = waiting(launch=[2, 2, 2], meets="localhost:0")
    assert (round(seconds), nobody) == (50, True)
    assert waiting(launch=[2, 2, 2], meets="127.0.0.1:29577") == (pytest.approx(50, abs=5), True)
    assert waiting(joins=2, as_run=True, meets="127.0.0.1:29577") == (pytest.approx(50, abs=5), True)
    # Two nodes on one machine meet at its own address.
    _, nobody = waiting(launch=[2, 2, 2], meets="localhost:29577", given="127.0.0.1:29500")
    assert not nobody


def test_a_launcher_that_can_meet_has_met_or_needs_nobody_does_not_wait_in_vain(waiting):
    assert waiting(launch=[2, 2, 2], meets="10.0.0.1:29500") == (0.0, False)
    assert waiting({"size": 4, "t": time.time()}, launch=[2, 2, 2], meets="localhost:0") == (0.0, False)
    assert waiting(launch=[1, 1, 2], meets="localhost:0") == (0.0, False)
    assert waiting(joins=1, meets="127.0.0.1:29511") == (0.0, False)
    assert waiting(joins=2, meets="127.0.0.1:29511", pid=1 << 30) == (0.0, False)
    assert waiting(joins=2, meets="127.0.0.1:29511") == (pytest.approx(50, abs=5), False)


def test_a_torchrun_that_notes_nothing_is_recognised_by_its_command_line():
    run = {"PET_NNODES": "2", "PET_MASTER_ADDR": "10.0.0.1", "PET_MASTER_PORT": "29500"}
    alone = {"launch": [2, 2, 1], "meets": "localhost:0", "given": "10.0.0.1:29500"}
    assert launch_of([PYTHON, "/opt/bin/torchrun", "--standalone", "train.py"], run) == alone
    words = [PYTHON, "-m", "torch.distributed.run", "--nnodes", "1:3", "--master_addr=127.0.0.1", "train.py"]
    assert launch_of(words, run) == {**alone, "launch": [1, 3, 1], "meets": "127.0.0.1:29500"}
    assert launch_of([PYTHON, "/opt/bin/torchrun", "--rdzv-endpoint", "10.0.0.1:29500", "train.py"], run) == {}
    assert launch_of([PYTHON, "/opt/bin/torchrun", "train.py"], run) == {}
    assert launch_of([PYTHON, "train.py", "--standalone"], run) == {}


def test_a_launcher_that_has_started_its_ranks_no_longer_waits_for_nodes(waiting):
    begins = {"launch": [2, 2, 2], "meets": "10.0.0.2:29500"}
    assert waiting(**begins) == (pytest.approx(50, abs=5), False)
    with started(["sh", "-c", "sleep 60 & echo; wait"], stdout=subprocess.PIPE, start_new_session=True) as has:
        has.stdout.readline()
        assert waiting(**begins, pid=has.pid) == (0.0, False)
        os.killpg(has.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("words", "variables", "astray"),
    [
        (["python", "train.py"], {"PATH": "/bin"}, True),
        (["python", "train.py"], {}, False),
        (["python", "train.py"], {"PATH": "/bin", "MUSTER_OUTCOME_DIR": "/x"}, False),
        (["python", "train.py"], {"MASTER_ADDR": "localhost"}, True),
        (["python", "train.py"], {"MASTER_ADDR": "10.0.0.1"}, False),
        (["torchrun", "--master-addr", "127.0.0.1", "train.py"], {"PATH": "/bin"}, True),
        (["torchrun", "--master-addr", "gpu-a", "train.py"], {"PATH": "/bin"}, False),
        (["torchrun", "--rdzv_endpoint=gpu-a:29500", "train.py"], {"PATH": "/bin"}, False),
        (["python", "train.py", "--dist-url", "tcp://10.0.0.1:5"], {"PATH": "/bin"}, False),
        (["python", "train.py", "--dist-url", "tcp://127.0.0.1:5"], {"PATH": "/bin"}, True),
    ],
)
def test_a_python_without_the_runs_variables_or_another_machines_address_is_astray(words, variables, astray):
    """A process whose variables cannot be read may have all of them."""
    assert lacks_run_variables(words, variables) == astray
