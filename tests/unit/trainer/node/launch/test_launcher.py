"""What a launcher of the user's is told of its node; tests/dist/test_launchers.py starts real ones."""

import os
import subprocess
from pathlib import Path

import pytest

from trainer.node.launch import launcher
from trainer.node.launch.launcher import Place, accelerate, deepspeed

PLACE = Place(node=1, nodes=3, ranks=4, address="10.0.0.1", port=4711)


@pytest.mark.parametrize(
    ("typed", "gpus", "kind"),
    [
        ("accelerate launch train.py", True, "--multi_gpu"),
        ("accelerate launch train.py", False, "--cpu"),
        ("accelerate launch --use_fsdp train.py", True, None),
        ("accelerate launch --config_file=c.yaml train.py", True, None),
    ],
)
def test_accelerate_is_told_its_place_before_the_users_own_options(typed, gpus, kind):
    made = accelerate(typed.split(), PLACE, gpus)
    assert made[:7] == [
        *("accelerate", "launch", "--num_machines=3", "--machine_rank=1", "--num_processes=12"),
        *("--main_process_ip=10.0.0.1", "--main_process_port=4711"),
    ]
    assert made[7:] == [*([kind] if kind else []), *typed.split()[2:]]


def test_another_command_of_accelerate_stays_as_it_is():
    assert accelerate(["accelerate", "env"], PLACE, True) == ["accelerate", "env"]


@pytest.mark.torch
def test_a_shell_script_that_types_accelerate_gives_it_the_place_too(tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "accelerate").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (programs / "accelerate").chmod(0o755)
    given = {**os.environ, "PATH": f"{programs}:/usr/bin:/bin"}
    path = launcher.stand_ins(tmp_path / "launchers-1", given)
    assert not list(tmp_path.glob("launchers-*/deepspeed"))  # there is none to stand in for
    line = ["sh", "-c", "accelerate launch --use_cpu --num_processes 2 train.py; accelerate env"]
    done = subprocess.run(line, env={**given, **PLACE.variables(one_rank=True), **path}, capture_output=True, text=True)
    assert done.stdout.split() == [
        *("launch", "--num_machines=3", "--machine_rank=1", "--num_processes=12", "--main_process_ip=10.0.0.1"),
        *("--main_process_port=4711", "--use_cpu", "--num_processes", "2", "train.py", "env"),
    ]


def test_a_shell_script_runs_on_where_no_stand_in_can_be_written(tmp_path, capsys):
    file = tmp_path / "no folder"
    file.touch()
    assert launcher.stand_ins(file / "launchers-1", dict(os.environ)) == {}
    assert "do not get their place" in capsys.readouterr().err


def test_deepspeed_starts_its_own_node_alone():
    made = deepspeed(["deepspeed", "train.py"], PLACE, "/hosts")
    assert {"--hostfile=/hosts", "--no_ssh", "--node_rank=1", "--master_port=4711"} < set(made)
    assert made[-1] == "train.py"


@pytest.mark.parametrize("inside", [False, True], ids=["typed", "in a shell script"])
def test_deepspeed_reads_how_many_nodes_and_ranks_there_are(tmp_path, inside):
    """Also where the folder is there already: a shell script may type it twice."""
    here = tmp_path / "launchers-1"
    if inside:
        here.mkdir()
    for _ in range(2):
        made = launcher.with_place(["deepspeed", "train.py"], PLACE, here)
    (option,) = [word for word in made if word.startswith("--hostfile=")]
    hosts = Path(option.partition("=")[2]).read_text()
    assert hosts == "node-0 slots=4\nnode-1 slots=4\nnode-2 slots=4\n"
