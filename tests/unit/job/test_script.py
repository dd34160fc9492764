"""A script's command as users type it: what it becomes, and what is refused by name with a command that works."""

from pathlib import Path

import pytest

from deploy.core.errors import UsageError
from deploy.job import launchers, option_words, script, script_file
from deploy.job.script import ScriptCommand


@pytest.fixture
def read(tmp_path):
    (tmp_path / "train.py").write_text("")
    (tmp_path / "train").write_text("")
    return lambda command: script.read(command, tmp_path)


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("train.py --lr 3e-4", ("train.py", "--lr", "3e-4")),
        ("./train.py", ("train.py",)),
        ("-m pkg.train --x", ("-m", "pkg.train", "--x")),
        ("python train.py --x", ("train.py", "--x")),
        ("python3 -u ./train.py", ("train.py",)),
        ("python3.12 -m pkg.train", ("-m", "pkg.train")),
        ("torchrun train.py", ("train.py",)),
        ("torchrun -m pkg.train", ("-m", "pkg.train")),
        ("torchrun --no-python tool a", ("--no-python", "tool", "a")),
        ("python -m torch.distributed.run train.py", ("train.py",)),
        ("python -m torch.distributed.launch --use_env train.py -m x", ("train.py", "-m", "x")),
        ("python -m torch.distributed.launch train.py --lr 3", ("train.py", "--local-rank=${local_rank}", "--lr", "3")),
        ("python -m torch.distributed.launch -m pkg.train", ("-m", "pkg.train", "--local-rank=${local_rank}")),
        ("-m torch.distributed.run train.py", ("train.py",)),
        ("accelerate launch --mixed_precision bf16 train.py", "per node"),
        ("accelerate-launch train.py", ("--per-node", "accelerate", "launch", "train.py")),
        ("python -m accelerate.commands.launch --cpu a.py", ("--per-node", "accelerate", "launch", "--cpu", "a.py")),
        ("-m deepspeed.launcher.runner train.py", ("--per-node", "deepspeed", "train.py")),
        ("deepspeed train.py --deepspeed", "per node"),
        ("bash run.sh a", "per node"),
        ("./run.sh", "per node"),
        ("llamafactory-cli train x.yaml", "per node"),
        ("train --x", ("train", "--x")),  # a file in the folder
        ("train.py --name 'two words'", ("train.py", "--name", "two words")),
        (
            "train.py --url a?b=1&c=2 'x > y' --re a|b \\; 'it;'",
            ("train.py", "--url", "a?b=1&c=2", "x > y", "--re", "a|b", ";", "it;"),
        ),
        ("bash -c 'cd src && python train.py'", ("--per-node", "bash", "-c", "cd src && python train.py")),
        ("", ()),
    ],
)
def test_a_command_becomes_what_torchrun_accepts(read, typed, words):
    found = read(typed)
    assert found.words == (("--per-node", *typed.split()) if words == "per node" else words)
    assert read(" ".join(f"'{word}'" for word in found.words)).words == found.words


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("{here}/train.py --a", ("train.py", "--a")),
        ("../{name}/sub/../train.py", ("train.py",)),
        ("torchrun {here}/train.py", ("train.py",)),
        ("{link}/train.py", ("train.py",)),
        ("{here}/link.py", ("link.py",)),
        ("bash {here}/run.sh {here}/train.py", ("--per-node", "bash", "run.sh", "{here}/train.py")),
        ("bash -x {here}/run.sh", ("--per-node", "bash", "-x", "run.sh")),
        ("{here}/tool.sh", ("--per-node", "./tool.sh")),
        ("torchrun --no-python {here}/tool.sh", ("--no-python", "./tool.sh")),
        ("accelerate launch --cpu {here}/train.py", ("--per-node", "accelerate", "launch", "--cpu", "train.py")),
        ("/elsewhere/train.py", ("/elsewhere/train.py",)),
    ],
)
def test_a_script_in_the_folder_is_named_from_there_since_hosts_have_it_elsewhere(tmp_path, typed, words):
    """Once, the folder was sent, and then each host said that it had no /home/me/project/train.py."""
    here = tmp_path / "project"
    here.mkdir()
    for name in ("train.py", "run.sh"):
        (here / name).write_text("")
    (here / "tool.sh").write_text("#!/bin/sh\n")
    (here / "tool.sh").chmod(0o755)
    (here / "link.py").symlink_to(tmp_path / "other.py")
    (tmp_path / "link").symlink_to(here)
    places = {"here": here, "name": here.name, "link": tmp_path / "link"}
    assert script.read(typed.format(**places), here).words == tuple(word.format(**places) for word in words)


def test_a_script_far_from_the_folder_gets_a_hint_that_does_not_send_the_whole_disk(tmp_path):
    with pytest.raises(UsageError, match="it is outside") as refused:
        script_file.refuse_outside("/opt/x y/train.py", tmp_path)
    assert refused.value.hint == "--folder '/opt/x y' sends the script's folder; the script is then train.py"


def test_torchruns_ranks_and_nodes_are_kept_and_its_rendezvous_options_are_not(read):
    typed = "torchrun --nproc_per_node=8 --nnodes 2 --node_rank=0 --master_addr=10.0.0.1 --max-restarts 3 train.py -x"
    found = read(typed)
    assert found == ScriptCommand(("train.py", "-x"), 8, 2, 3, found.notes)
    assert "--node-rank, --master-addr: not used" in found.notes[0]
    alone = read("torchrun --standalone --nproc-per-node gpu train.py")
    assert alone == ScriptCommand(("train.py",), "auto", notes=alone.notes)
    assert "--standalone: not used" in alone.notes[0]
    alone.refuse_nodes(3, "")
    found.refuse_nodes(2, "")
    with pytest.raises(UsageError, match="--nnodes 2: the run has 3 nodes"):
        found.refuse_nodes(3, "")


def test_a_word_of_the_script_is_never_taken_for_the_launchers(read):
    typed = "python -m torch.distributed.launch --use_env train.py --use_env --nnodes 9"
    assert read(typed) == ScriptCommand(("train.py", "--use_env", "--nnodes", "9"))
    assert read("torchrun train.py --n 3").words == ("train.py", "--n", "3"), "the beginning of several options"


def test_abbreviated_options_are_read_as_torchrun_reads_them(read):
    found = read("torchrun --nproc-per=2 --max-rest 1 --stand train.py --nnod=3")
    assert (found.words, found.processes, found.restarts) == (("train.py", "--nnod=3"), 2, 1)
    assert "--standalone" in found.notes[0]


def test_a_separator_that_torchrun_removes_is_not_passed_to_the_script(read):
    found = read("torchrun -m scripts.train -- --depth=2 --run=x")
    assert found.words == ("-m", "scripts.train", "--depth=2", "--run=x")
    assert read("torchrun -- train.py --run=x").words == ("train.py", "--run=x")
    assert read("torchrun train.py --lr 1 -- x").words == ("train.py", "--lr", "1", "--", "x")
    assert read("python train.py -- x").words == ("train.py", "--", "x"), "Python gives it to the script"


def test_a_tcp_address_in_the_scripts_own_arguments_is_noted(read):
    for typed in ("main.py --dist-url tcp://127.0.0.1:29500", "torchrun main.py --init_method=tcp://gpu-a:1"):
        assert any("tcp://" in note and "env://" in note for note in read(typed).notes)
    assert read("main.py --dist-url env://").notes == ()
    assert read("--per-node main.py --dist-url tcp://{master}:{port}").notes == ()
    # `python main.py` on one node spawns its own ranks, as without Muster: nothing waits there.
    spawns, ranked = "python main.py --dist-url tcp://localhost:1", "main.py --dist-url tcp://localhost:1"
    assert ["on several nodes" in read(typed).notes[0] for typed in (spawns, ranked)] == [True, False]


def test_the_value_of_a_variable_is_not_repeated_in_the_refusal(read):
    with pytest.raises(UsageError) as refused:
        read("WANDB_API_KEY=hush python train.py")
    assert "hush" not in refused.value.message + refused.value.hint
    assert "--secret WANDB_API_KEY" in refused.value.hint


def test_a_python_given_by_its_path_is_noted_as_ignored(read):
    assert "/opt/conda/bin/python: ignored" in read("/opt/conda/bin/python train.py").notes[0]


@pytest.mark.parametrize(
    ("typed", "named", "works"),
    [
        ("A=1 python train.py", "A", "--env A=1 -- python train.py"),
        ("uv run --with x python train.py", "uv", "-- python train.py"),
        ("uv run mytrain fit", "uv", "-- mytrain fit"),
        ("srun -n 2 python train.py", "srun", "-- python train.py"),
        ("/usr/bin/env python3 train.py", "/usr/bin/env", "-- python3 train.py"),
        ("uvx torchrun train.py", "uvx", "-- torchrun train.py"),
        ("composer -n 2 train.py", "composer", "-- train.py"),
        ("torchx run dist.ddp -j 1x2 --script train.py", "torchx", "-- train.py"),
        ("pdsh -w a,b python train.py", "pdsh", "-- python train.py"),
        ("singularity exec x.sif python train.py", "singularity", "-- python train.py"),
        ("numactl -N 0 torchrun train.py", "numactl", "-- torchrun train.py"),
        ("python train.py > log.txt 2>&1", ">", "-- python train.py"),
        ("nohup mytrain fit >> logs/out 2>&1 &", ">>", "-- mytrain fit"),
        ("nohup mytrain fit", "nohup", "-- mytrain fit"),
        ("docker compose up", "docker", "train.py"),
        ("python train.py > log.txt; date", ">", "bash -c"),
        ("python a.py & python b.py", "&", "bash -c"),
        ("cd src && python train.py", "&&", "bash -c"),
        ("python train.py 2>&1 | tee log", "2>", "-- python train.py"),
        ("cd src; python train.py", ";", "bash -c"),
        ("python train.py &", "&", "-- python train.py"),
        ("sudo ./train.py", "sudo", "-- ./train.py"),
        ("python -O train.py", "-O", "--env PYTHONOPTIMIZE=1 -- train.py"),
        ("python -W ignore train.py", "-W", "-- train.py"),
        ("python -c 'import torch'", "-c", "train.py"),
        ("python", "python", "train.py"),
        ("torchrun", "torchrun", "train.py"),
        ("torchrun -- --", "torchrun -- --", "train.py"),
        ("--per-node", "--per-node: no script", "train.py"),
        ("--no-python", "--no-python: no script", "train.py"),
        ("-m", "-m: no script", "train.py"),
        ("python -m", "python -m: no script", "train.py"),
        ("''", "'': no script", "train.py"),
        ("torchrun --bogus train.py", "--bogus", "torchrun"),
        ("torchrun --log-dir /x train.py", "--log-dir", "leave out --log-dir"),
        ("torchrun -r 3 train.py", "-r", "leave out -r"),
        ("torchrun -t 3 --role x --tee 3 train.py", "--role, --tee, -t", "leave out --role, --tee, -t"),
        ("torchrun --redirect=3 train.py", "--redirects", "leave out --redirects"),
        ("torchrun --nproc 2 train.py", "ambiguous option: --nproc", "--nproc-per-node 2"),
        ("torchrun --log-line-prefix-template x train.py", "--log-line-prefix-template", "leave out"),
        ("torchrun --nnodes 2:4 train.py", "--nnodes 2:4", "leave out --nnodes, and give --min-nodes 2"),
        ("torchrun --nproc-per-node cpu train.py", "--nproc-per-node cpu", "--nproc-per-node 2"),
        ("torchrun --nproc-per-node 0 train.py", "--nproc-per-node 0", "--nproc-per-node 2"),
        ("torchrun --nproc-per-node 9999999 train.py", "9999999", "--nproc-per-node 2"),
        ("accelerate launch --num_machines 2 train.py", "--num_machines", "leave out"),
        ("deepspeed --hostfile=hosts train.py", "--hostfile", "leave out"),
        ("accelerate launch --use_deepspeed --deepspeed_hostfile hosts train.py", "--deepspeed_hostfile", "leave out"),
        ("MASTER_ADDR=a RANK=0 python train.py", "MASTER_ADDR", "-- python train.py"),
        ("RANK=0 A=1 B=2 python train.py", "RANK", "--env A=1 --env B=2 -- python train.py"),
        ("setsid python train.py", "setsid", "-- python train.py"),
        ("docker run image python train.py", "docker", "-- python train.py"),
        ("--mesh dp_shard=-1", "--mesh", "'--args=--mesh dp_shard=-1'"),
        ("--mesh dp_shard=-1", "--mesh", "-- train.py --mesh dp_shard=-1"),
        ("train.py 'oops", "train.py 'oops", "quote"),
        ("train.py \udcff", "no command line", "quote"),
    ],
)
def test_an_unsupported_command_is_refused_by_name_with_one_that_works(read, typed, named, works):
    with pytest.raises(UsageError) as refused:
        read(typed)
    assert named in refused.value.message
    assert works in refused.value.hint


def test_a_script_from_before_torch_2_gets_its_local_rank_with_an_underscore(read, tmp_path):
    (tmp_path / "train.py").write_text('parser.add_argument("--local_rank", type=int)')
    found = script.read("python -m torch.distributed.launch train.py", tmp_path)
    assert found.words == ("train.py", "--local_rank=${local_rank}")


def test_a_command_for_each_node_is_read_as_a_script_command(tmp_path):
    given = script.once_a_node("main.py --rank {node_rank}", "")
    assert script.read(given, tmp_path).words == (script.PER_NODE, "main.py", "--rank", "{node_rank}")
    assert script.once_a_node("", "train.py") == "train.py"
    with pytest.raises(UsageError, match="--each: the command is missing"):
        script.once_a_node(" ", "")


@pytest.mark.parametrize(
    ("name", "meant"),
    [("noderank", "node_rank"), ("rank", "ranks"), ("nnodes", "nodes"), ("master_addr", "master"), ("PORT", "port")],
)
def test_a_misspelled_placeholder_is_refused_with_the_nearest_name(name, meant):
    with pytest.raises(UsageError, match=f"there is nothing called {{{name}}}") as refused:
        script.once_a_node(f"spawn.py --rank {{{name}}}", "")
    assert f"did you mean {{{meant}}}?" in refused.value.hint


@pytest.mark.parametrize("words", ["{epoch}", "{}", "{node_rank}", "${rank}", "{'lr': 3}", "{step:08d}", "{name}.pt"])
def test_the_scripts_own_braces_are_left_alone(words):
    assert words in script.once_a_node(f"spawn.py --log {words}", "")


@pytest.mark.parametrize(
    ("typed", "command", "hint"),
    [
        ("mpirun -np 2 python sl.py", "up", "--nproc 2 --style mpi -- python sl.py"),
        ("mpirun --np=2 -x A python sl.py", "up", "--nproc 2 --style mpi -- python sl.py"),
        ("mpirun python sl.py", "up", "--style mpi -- python sl.py"),
        ("mpiexec -n 4 -ppn 2 python sl.py", "deploy", "--nproc 2 --style mpi -- python sl.py"),
        ("mpirun -np 4 python sl.py", "deploy", "--nproc 4 --style mpi -- python sl.py (--nproc counts"),
        ("srun -N2 -n4 python sl.py", "deploy", "--nproc 2 --style slurm -- python sl.py"),
        ("srun --ntasks-per-node 8 -c 4 python sl.py", "up", "--nproc 8 --style slurm -- python sl.py"),
        ("srun -n4 python sl.py -n 9", "agent", "--nproc 4 -- python sl.py -n 9"),
        ("nohup python sl.py -n 9", "up", "-- python sl.py -n 9"),
        (
            "fabric run --devices 2 --num_nodes=3 sl.py",
            "deploy",
            "--nproc 2 --env LT_CLI_USED=1 --env LT_DEVICES=2 --env LT_NUM_NODES=3 -- sl.py",
        ),
        ("lightning run model --strategy ddp sl.py", "up", "--env LT_CLI_USED=1 --env LT_STRATEGY=ddp -- sl.py"),
        ("fabric run sl.py", "agent", "-- sl.py"),
    ],
)
def test_for_another_launcher_the_hint_keeps_its_number_of_ranks_and_variables(read, monkeypatch, typed, command, hint):
    monkeypatch.setattr(launchers, "COMMAND", command)
    with pytest.raises(UsageError) as refused:
        read(typed)
    assert refused.value.hint.startswith(hint)


def test_a_local_run_is_not_promised_to_continue_without_its_terminal(read, monkeypatch):
    monkeypatch.setattr(script, "COMMAND", "up")
    monkeypatch.setattr(option_words, "BEFORE", ["up", "--nproc", "2"])
    with pytest.raises(UsageError, match="a run on this machine ends with its terminal") as refused:
        read("setsid python train.py")
    assert refused.value.hint == "nohup muster up --nproc 2 -- python train.py"
    with pytest.raises(UsageError, match=r"Muster keeps what a run prints$"):
        read("nohup python train.py >log &")


def test_a_refusal_repeats_how_the_script_was_typed(tmp_path):
    for option, hint in (("--", "-- train.py --lr 3"), ("--script", "--script 'train.py --lr 3'")):
        with pytest.raises(UsageError) as refused:
            script.read("nohup train.py --lr 3", tmp_path, option)
        assert refused.value.hint == hint
        assert ("--script" in refused.value.message) == (option == "--script")


def test_a_missing_script_gets_the_nearest_name(tmp_path):
    (tmp_path / "train.py").touch()
    (tmp_path / ".env").touch()
    for typed, meant in (("trian.py", True), ("other.py", False), ("no/such.py", False)):
        with pytest.raises(UsageError) as refused:
            script_file.refuse_missing(typed, tmp_path)
        assert ("train.py" in refused.value.hint) == meant


@pytest.mark.parametrize(
    ("words", "works"),
    [
        (["lesson 1.ipynb", "--lr", "1"], ["nbconvert --to script 'lesson 1.ipynb'"]),
        (["conf/tiny.yaml"], ["-- train.py conf/tiny.yaml"]),
        (["train.py", "tiny.yaml"], []),
        (["trainer"], []),
    ],
)
def test_a_file_that_cannot_be_started_is_refused_with_a_command_that_works(tmp_path, monkeypatch, words, works):
    monkeypatch.setattr(script_file, "script_option", lambda: "--")
    (tmp_path / "train.py").touch()
    if not works:
        script_file.refuse_no_program(words, tmp_path)
        return
    with pytest.raises(UsageError) as refused:
        script_file.refuse_no_program(words, tmp_path)
    assert refused.value.message.startswith(f"{words[0]}: ")
    assert all(each in refused.value.hint for each in works)


@pytest.mark.parametrize(("typed", "refused"), [("nanochta train", True), ("nanochat train", False), ("llmrun", False)])
def test_a_misspelled_program_of_the_project_is_refused(tmp_path, typed, refused):
    (tmp_path / "pyproject.toml").write_text('[project.scripts]\nnanochat = "nanochat:main"\n')
    if refused:
        with pytest.raises(UsageError, match="no such script") as told:
            script.read(typed, tmp_path, "--")
        assert "-- nanochat train`?" in told.value.hint
        assert script.read("bash -c 'nanochta train'", tmp_path).words[1] == "bash"
    else:
        script.read(typed, tmp_path)
    (tmp_path / "pyproject.toml").write_text("project = 1\n")
    assert script.read(typed, tmp_path).words


def test_a_script_above_the_folder_that_is_sent_is_refused_with_the_folder_that_has_it(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path / "data")
    with pytest.raises(UsageError, match="outside") as refused:
        script_file.refuse_outside("../train.py", Path())
    assert refused.value.hint.startswith("--folder .. ")
    assert refused.value.hint.endswith("the script is then train.py")
    for inside in ("../data/a.py", "..a/b.py", str(tmp_path / "data/a.py")):
        script_file.refuse_outside(inside, Path())


@pytest.mark.parametrize("typed", ["bash run.sh --lr 'a b'", "main.py --rank {node_rank}", "train.py --lr 3"])
def test_a_parsed_command_is_written_again_so_that_it_parses_the_same(typed):
    each = "{node_rank}" in typed
    words = script.read(script.once_a_node(typed if each else "", "" if each else typed), None).words
    option, last = script.last_words(list(words))
    assert bool(option.each) == each
    assert last == ("" if each else typed)
    given = script.once_a_node(option.each, last)
    assert script.read(given, None).words == words


@pytest.mark.parametrize(
    ("typed", "file"),
    [
        ("train.py --lr 1", "train.py"),
        ("bash run.sh a.sh", "run.sh"),
        ("./run.sh", "./run.sh"),
        ("bash job.sbatch", "job.sbatch"),
        ("bash -c 'python train.py'", ""),
        ("-m pkg.train", ""),
        ("accelerate launch train.py", ""),
    ],
)
def test_the_file_that_a_command_needs_is_found(typed, file):
    assert script_file.file_of(script.read(typed, None).words) == file


@pytest.mark.parametrize(
    ("typed", "mode", "started"),
    [
        ("run.sh --lr 1", 0o644, ["bash", "run.sh", "--lr", "1"]),
        ("./run.sh", 0o644, ["bash", "./run.sh"]),
        ("run.sh", 0o755, ["./run.sh"]),
        ("tools/run.sh", 0o755, ["tools/run.sh"]),
        ("other.sh", 0o644, ["other.sh"]),
        ("job.sbatch --lr 1", 0o644, ["bash", "job.sbatch", "--lr", "1"]),
        ("run-local", 0o755, ["bash", "run-local"]),
        ("plain.sh --lr 1", 0o755, ["bash", "plain.sh", "--lr", "1"]),
        ("./plain.sh", 0o755, ["bash", "./plain.sh"]),
    ],
)
def test_a_shell_script_in_the_folder_starts_as_typed(tmp_path, typed, mode, started):
    """A node or Python would otherwise reject such a script, and only late.

    The node would report `no such program: run.sh` only after its packages are installed; Python would report that this
    is no Python. For a script whose first line names no shell, the kernel would report `Exec format error`; a shell
    starts it.
    """
    (tmp_path / "tools").mkdir()
    (tmp_path / "plain.sh").write_text("torchrun --standalone --nproc_per_node=8 train_gpt.py")
    (tmp_path / "plain.sh").chmod(mode)
    for name in ("run.sh", "tools/run.sh", "job.sbatch", "run-local"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(mode)
    assert list(script.read(typed, tmp_path).words) == ["--per-node", *started]


@pytest.mark.parametrize(
    ("name", "text", "has"),
    [
        ("job.sh", "#SBATCH --nodes=2\n# srun is next\nexport A=1; srun python train.py\n", "job.sh has srun"),
        ("job.sbatch", "#!/bin/bash -l\nip=$(srun -N1 hostname)\n", "job.sbatch has srun"),
        ("job.sh", "A=1 sbatch train.sbatch\n", "job.sh has sbatch"),
        ("job.sh", '  each="sbatch -J a wrapper.sb python main.py"\n  eval $each\n', "job.sh has sbatch"),
        ("submit.py", "import os\nimport submitit\n", "submit.py has submitit"),
        ("run.sh", "echo no srun here\ntorchrun train.py\n", ""),
        ("main.py", "def slurm():\n    import submitit\n", ""),
    ],
)
def test_a_script_that_submits_to_slurm_is_noted_before_it_starts(tmp_path, name, text, has):
    (tmp_path / name).write_text(text)
    notes = script.read(f"bash {name}" if name == "job.sh" else name, tmp_path).notes
    assert [note.partition(": ")[0] for note in notes] == [has] * bool(has)


@pytest.mark.parametrize(
    ("typed", "text", "again"),
    [
        ("train.py --dry-run --lr 3", "", "muster deploy -H a --dry-run -- train.py --lr 3"),
        ("python train.py --lr 3 --gpus 2", "import x", "muster deploy -H a --gpus 2 -- python train.py --lr 3"),
        ("train.py --nproc=2", "", "muster deploy -H a --nproc=2 -- train.py"),
        ("train.py --dry-run", "parser.add_argument('--dry-run')", ""),
        ("train.py --dry-run", "class Args: dry_run: bool", ""),
        ("train.py --lr 3", "", ""),
    ],
)
def test_an_option_of_musters_behind_a_script_that_does_not_know_it_is_noted(tmp_path, monkeypatch, typed, text, again):
    """Users type --dry-run last; the run then starts, and only the script gets it."""
    monkeypatch.setattr(option_words, "BEFORE", ["deploy", "-H", "a"])
    (tmp_path / "train.py").write_text(f"print(1)  # a script\n{text}")
    found = script.read(typed, tmp_path)
    assert found.words == tuple(typed.removeprefix("python ").split())
    assert [note.partition("if you meant Muster: ")[2] for note in found.notes] == [again] * bool(again)


def test_an_sbatch_command_is_refused(tmp_path):
    with pytest.raises(UsageError, match="sbatch: Muster writes the Slurm job") as refused:
        script.read("sbatch job.sh", tmp_path, "--")
    assert "job.sh" not in refused.value.hint


@pytest.mark.parametrize("launcher", ["deepspeed --num_gpus 2", "deepspeed --deepspeed_config ds.json"])
@pytest.mark.parametrize("program", ["bin/train", "--module bin.steps", "--module bin"])
def test_a_launchers_options_end_at_a_script_without_suffix_or_at_a_module(launcher, program, tmp_path):
    """Earlier, `deepspeed bin/train -e 3` was refused with "Muster tells it the nodes"."""
    (tmp_path / "bin").mkdir()
    for name in ("bin/train", "bin/steps.py", "bin/__main__.py", "ds.json"):
        (tmp_path / name).touch()
    typed = f"{launcher} {program} -e 3 --include x"
    assert script.read(typed, tmp_path).words == (script.PER_NODE, *typed.split())
    with pytest.raises(UsageError, match="deepspeed --include"):
        script.read(f"{launcher} --include x {program}", tmp_path)
