"""What a user's launcher is told about its node; tests/dist/test_launchers.py starts real launchers."""

import os
import subprocess
import sys
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
        ("accelerate launch --mixed_precision fp16 train.py --config a.yaml --use_wandb", True, "--multi_gpu"),
        ("accelerate launch -m pkg.train --config a.yaml", False, "--cpu"),
    ],
)
def test_accelerate_is_told_its_place_before_the_users_own_options(typed, gpus, kind):
    made = accelerate(typed.split(), PLACE, gpus)
    assert made[:8] == [
        *("accelerate", "launch", "--num_machines=3", "--machine_rank=1", "--num_processes=12"),
        *("--main_process_ip=10.0.0.1", "--main_process_port=4711", "--deepspeed_multinode_launcher=standard"),
    ]
    assert made[8:] == [*([kind] if kind else []), *typed.split()[2:]]


def test_another_command_of_accelerate_stays_as_it_is():
    assert accelerate(["accelerate", "env"], PLACE, True) == ["accelerate", "env"]


@pytest.mark.torch
def test_accelerate_in_a_shell_script_gets_its_place_too(tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "accelerate").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (programs / "accelerate").chmod(0o755)
    given = {**os.environ, "PATH": f"{programs}:/usr/bin:/bin"}
    path = launcher.stand_ins(tmp_path / "launchers-1", given)
    assert not list(tmp_path.glob("launchers-*/deepspeed"))  # there is no deepspeed to stand in for
    line = ["sh", "-c", "accelerate launch --use_cpu --num_processes 2 train.py; accelerate env"]
    done = subprocess.run(line, env={**given, **PLACE.variables(one_rank=True), **path}, capture_output=True, text=True)
    assert done.stdout.split() == [
        *("launch", "--num_machines=3", "--machine_rank=1", "--num_processes=12", "--main_process_ip=10.0.0.1"),
        *(
            "--main_process_port=4711",
            "--deepspeed_multinode_launcher=standard",
            "--use_cpu",
            "--num_processes",
            "2",
            "train.py",
            "env",
        ),
    ]


def test_a_shell_script_still_runs_if_no_stand_in_can_be_written(tmp_path, capsys):
    file = tmp_path / "no folder"
    file.touch()
    assert launcher.stand_ins(file / "launchers-1", dict(os.environ)) == {}
    assert "are not told their place" in capsys.readouterr().err


def test_deepspeed_starts_its_own_node_alone():
    made = deepspeed(["deepspeed", "train.py"], PLACE, "/hosts")
    assert {"--hostfile=/hosts", "--no_ssh", "--node_rank=1", "--master_port=4711"} < set(made)
    assert made[-1] == "train.py"


@pytest.mark.parametrize("inside", [False, True], ids=["typed", "in a shell script"])
def test_deepspeed_reads_how_many_nodes_and_ranks_there_are(tmp_path, inside):
    """This holds even if the folder already exists: a shell script may call deepspeed twice."""
    here = tmp_path / "launchers-1"
    if inside:
        here.mkdir()
    for _ in range(2):
        made = launcher.with_place(["deepspeed", "train.py"], PLACE, here)
    (option,) = [word for word in made if word.startswith("--hostfile=")]
    hosts = Path(option.partition("=")[2]).read_text()
    assert hosts == "node-0 slots=4\nnode-1 slots=4\nnode-2 slots=4\n"


def test_a_place_is_read_from_its_variables_and_needs_all_of_them():
    for one_rank in (True, False):
        given = PLACE.variables(one_rank)
        assert launcher.place_of(given) == PLACE
        assert {name: given[name] for name in given if name.startswith("PET_")} == {
            **{"PET_NNODES": "3", "PET_NODE_RANK": "1", "PET_NPROC_PER_NODE": "4"},
            **{"PET_MASTER_ADDR": "10.0.0.1", "PET_MASTER_PORT": "4711"},
        }
        assert ("RANK" in given) == one_rank
    for name in ("NODE_RANK", "NNODES", "NPROC_PER_NODE", "MASTER_PORT", "MASTER_ADDR"):
        for value in ("", "auto") if name != "MASTER_ADDR" else ("",):
            assert launcher.place_of({**given, name: value}) is None


@pytest.mark.parametrize(
    ("typed", "made"),
    [
        ("main.py --rank {node_rank} {nodes}", [sys.executable, "main.py", "--rank", "1", "3"]),
        ("run.sh tcp://{master}:{port} {ranks} {other}", ["run.sh", "tcp://10.0.0.1:4711", "4", "{other}"]),
        ("python train.py", [sys.executable, "train.py"]),
        ("python3 -m pkg", [sys.executable, "-m", "pkg"]),
        ("./python train.py", ["./python", "train.py"]),
    ],
)  # fmt: skip
def test_a_command_gets_its_place_where_it_asks_for_it_and_runs_in_this_python(typed, made):
    assert launcher.fill_in(typed.split(), PLACE) == made


def test_an_ipv6_address_is_in_brackets_if_a_port_follows():
    place = Place(0, 2, 1, "fd00::1", 5)
    assert launcher.fill_in(["x", "tcp://{master}:{port}"], place) == ["x", "tcp://[fd00::1]:5"]


def test_a_single_rank_of_accelerate_is_no_group_and_several_on_cpus_get_a_warning(capsys):
    alone = accelerate(["accelerate", "launch", "a.py"], Place(0, 1, 1, "x", 5), gpus=False)
    assert not {"--cpu", "--multi_gpu"} & {*alone}
    accelerate(["accelerate", "launch", "a.py"], Place(0, 2, 1, "x", 5), gpus=False)
    accelerate(["accelerate", "launch", "a.py"], PLACE, gpus=True)
    assert capsys.readouterr().err == ""
    accelerate(["accelerate", "launch", "a.py"], PLACE, gpus=False)
    assert "without GPUs, Accelerate starts one rank on each node" in capsys.readouterr().err


@pytest.fixture
def shell(tmp_path):
    """Return a function that runs a line in a shell where stand-ins come first; `deepspeed` prints its arguments."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "deepspeed").write_text('#!/bin/sh\nprintf "%s\\n" "$PATH" "$@"\n')
    (programs / "deepspeed").chmod(0o755)
    given = {"PATH": f"{programs}:/usr/bin:/bin", **PLACE.variables(one_rank=True)}
    here = tmp_path / "launchers-1"

    def run(line, **more):
        path = launcher.stand_ins(here, given)
        done = subprocess.run(["sh", "-c", line], env={**given, **path, **more}, capture_output=True, text=True)
        return here, given["PATH"], done.stdout.splitlines(), done.returncode

    return run


def test_a_stand_in_becomes_the_real_launcher_with_the_place(shell):
    here, path, (seen_path, *words), code = shell("deepspeed --bf16 train.py 'a b'")
    assert [each.name for each in here.iterdir() if each.name in ("accelerate", "deepspeed")] == ["deepspeed"]
    assert (seen_path, code) == (path, 0), "its own ranks find no stand-in"
    assert words[1:5] == ["--no_ssh", "--node_rank=1", "--master_addr=10.0.0.1", "--master_port=4711"]
    assert words[5:] == ["--bf16", "train.py", "a b"]
    assert Path(words[0].partition("=")[2]).parent == here


def test_a_shell_script_that_unsets_a_variable_gets_the_launcher_unchanged(shell):
    _, _, (_, *words), _ = shell("unset NODE_RANK; deepspeed train.py")
    assert words == ["train.py"]


@pytest.mark.parametrize(("name", "code", "words"), [("gone", 127, "No such file"), ("here", 126, "Permission denied")])
def test_a_command_that_cannot_be_run_ends_as_in_a_shell(tmp_path, name, code, words):
    (tmp_path / "here").write_text("")
    line = f"from trainer.node.launch.launcher import become; become(['{tmp_path / name}'], {{}})"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True)
    assert done.returncode == code
    assert words in done.stderr
    assert "is its package in the image" in done.stderr


@pytest.mark.parametrize("options", ["", "--config_file c.yaml ", "--mixed_precision fp16 "])
def test_options_after_a_script_without_a_suffix_belong_to_the_script(tmp_path, monkeypatch, options):
    """The script's --config was taken for Accelerate's, which then formed no group: each node trained alone."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bin").mkdir()
    for name in ("bin/train", "c.yaml"):
        (tmp_path / name).touch()
    made = accelerate(f"accelerate launch {options}bin/train --config a.yaml".split(), PLACE, True)
    assert ("--multi_gpu" in made) == ("config" not in options)
