"""What users type first, before they read anything: it works, or the hint names a command that works.

Each row has a line that users type, and the same in Muster's own form. The first rows are from people who met Muster
for the first time, the others from the habits of docker, uv, torchrun, Slurm, kubectl and SkyPilot. Nothing runs here:
tests/dist/test_hints.py tests what a hint's command does in the end.
"""

import shlex
from pathlib import Path

import pytest

from deploy.commands import main
from deploy.run.files import folders
from tests.typed import Said, commands

RUN = "2026-11-26-1150-train-93fd"
FORMS = [
    ("up train.py", "up --script train.py"),
    ("up -- train.py --lr 3", "up --script 'train.py --lr 3'"),
    ("deploy --hosts gpu-a,gpu-b torchrun train.py", "deploy --hosts gpu-a,gpu-b --script 'torchrun train.py'"),
    ("deploy --hosts gpu-a,gpu-b train.py --lr 3e-4", "deploy --hosts gpu-a,gpu-b --script 'train.py --lr 3e-4'"),
    ("deploy -H gpu-a,gpu-b -- train.py", "deploy --hosts gpu-a,gpu-b --script train.py"),
    ("deploy --host gpu-a -- train.py", "deploy --hosts gpu-a --script train.py"),
    ("deploy --hosts a --epoch 3 -- train.py", "deploy --hosts a --script 'train.py --epoch 3'"),
    ("deploy --hosts gpu-a, gpu-b -- train.py", "deploy --hosts gpu-a,gpu-b --script train.py"),
    ("deploy -H gpu-1 gpu-2 --dry-run train.py", "deploy --hosts gpu-1,gpu-2 --dry-run --script train.py"),
    ("deploy --hosts=gpu-a gpu-b train.py", "deploy --hosts gpu-a,gpu-b --script train.py"),
    ("ray -H 10.0.0.1 me@10.0.0.2, 10.0.0.3 train.py", "ray --hosts 10.0.0.1,me@10.0.0.2,10.0.0.3 --script train.py"),
    ("deploy -H gpu-a, --dry-run train.py", "deploy --hosts gpu-a, --dry-run --script train.py"),
    ("deploy -H gpu-a, train.py", "deploy --hosts gpu-a, --script train.py"),
    ("deploy -H gpu-1 axolotl train x.yaml", "deploy --hosts gpu-1 --script 'axolotl train x.yaml'"),
    ("deploy --hosts a -n 4 -- train.py", "deploy --hosts a --nproc 4 --script train.py"),
    ("delpoy --hosts a -- train.py", "deploy --hosts a --script train.py"),
    ("run train.py", "up --script train.py"),
    ("start", "up"),
    ("ps", "status"),
    ("kill", "stop"),
    (f"kill {RUN}", f"stop --run {RUN}"),
    ("ssh a", "shell --hosts a"),
    ("doctor", "preflight"),
    ("check gpu-a,gpu-b", "preflight --hosts gpu-a,gpu-b"),
    ("init", "demo"),
    ("list", "runs"),
    ("jobs", "runs"),
    ("monitor", "attach"),
    ("manual", "docs"),
    ("status gpu-a,gpu-b", "status --hosts gpu-a,gpu-b"),
    (f"status {RUN}", f"status --run {RUN}"),
    (f"logs {RUN}", f"logs --run {RUN}"),
    (f"fetch {RUN}", f"fetch --run {RUN}"),
    ("logs 2026-11-26", "logs --run 2026-11-26"),
    ("stop latest", "stop --run latest"),
    ("exec nvidia-smi", "exec -- nvidia-smi"),
    ("exec --hosts a -- nvidia-smi", "exec --hosts a -- nvidia-smi"),
    ("status --hosts a --jsno", "status --hosts a --json"),
    ("preflight gpu-a gpu-b", "preflight --hosts gpu-a,gpu-b"),
    (f"resume {RUN}", f"resume --run {RUN}"),
    ("compare latest first", "compare latest first"),
    ("explain train.log", "explain train.log"),
    ("deploy train.py --hosts gpu-a,gpu-b", "deploy --hosts gpu-a,gpu-b --script train.py"),
    ("deploy gpu-a,gpu-b train.py --lr 3", "deploy --hosts gpu-a,gpu-b --script 'train.py --lr 3'"),
    ("deploy gpu-a train.py", "deploy --hosts gpu-a --script train.py"),
    ("run -H gpu-a,gpu-b train.py", "deploy --hosts gpu-a,gpu-b --script train.py"),
    ("-H gpu-a,gpu-b train.py", "deploy --hosts gpu-a,gpu-b --script train.py"),
    ("--hosts gpu-a,gpu-b deploy train.py", "deploy --hosts gpu-a,gpu-b --script train.py"),
    ("train.py --lr 3", "up --script 'train.py --lr 3'"),
    ("torchrun --nproc-per-node 2 train.py", "up --script 'torchrun --nproc-per-node 2 train.py'"),
    ("launch train.py", "up --script train.py"),
    ("submit --slurm login train.py", "deploy --slurm login --script train.py"),
    ("sbatch --slurm login -N 2 train.py", "deploy --slurm login --nodes 2 --script train.py"),
    ("deploy -H a --nnodes 1 train.py", "deploy --hosts a --script train.py"),
    ("deploy -H a --file train.py", "deploy --hosts a --script train.py"),
    (
        "deploy -H a -e WANDB_MODE=offline -d train.py",
        "deploy --hosts a --env WANDB_MODE=offline --detach --script train.py",
    ),
    ("deploy -H a --name mine train.py", "deploy --hosts a --run mine --script train.py"),
    ("deploy -H a --detached train.py", "deploy --hosts a --detach --script train.py"),
    ("deploy -H a -m pkg.train", "deploy --hosts a --script '-m pkg.train'"),
    ("up bash run.sh", "up --script 'bash run.sh'"),
    ("up --gpu 2 train.py", "up --gpus 2 --script train.py"),
    ("up -g 2 python train.py", "up --gpus 2 --script 'python train.py'"),
    ("top", "status"),
    ("squeue", "status"),
    ("scancel latest", "stop --run latest"),
    ("ls", "runs"),
    ("log -f", "logs --follow"),
    (f"tail {RUN} -f", f"logs --run {RUN} --follow"),
    (f"logs -f {RUN}", f"logs --run {RUN} --follow"),
    (f"cp {RUN}", f"fetch --run {RUN}"),
    ("restart", "resume"),
    ("continue latest", "resume --run latest"),
    (f"attach {RUN}", f"attach --run {RUN}"),
    ("watch", "attach"),
    ("nvidia-smi gpu-a,gpu-b", "gpus --hosts gpu-a,gpu-b"),
    ("gpus gpu-a,gpu-b", "gpus --hosts gpu-a,gpu-b"),
    ("hosts clean a", "clean --hosts a"),
    ("clean a -y", "clean --hosts a --yes"),
    ("down gpu-a,gpu-b", "down --hosts gpu-a,gpu-b"),
    ("rm a", "clean --hosts a"),
    ("setup gpu-a,gpu-b", "bootstrap --hosts gpu-a,gpu-b"),
    ("bash a", "shell --hosts a"),
    (f"shell {RUN} -r 1", f"shell --run {RUN} --rank 1"),
    (f"exec {RUN} ls -la", f"exec --run {RUN} -- ls -la"),
    (f"tensorboard {RUN}", f"tensorboard --run {RUN}"),
    ("tb", "tensorboard"),
    (f"port 6006 {RUN}", f"port 6006 --run {RUN}"),
    (f"diff {RUN} latest", f"compare {RUN} latest"),
    (f"debug {RUN}", f"explain {RUN}"),
    ("quickstart", "demo"),
    ("completion zsh", "completion --shell zsh"),
    (f"report {RUN}", f"report --run {RUN}"),
    ("deploy gpu-a gpu-b train.py", "deploy --hosts gpu-a,gpu-b --script train.py"),
    ("deploy --hostfile train.log train.py", "deploy --hosts '$(paste -sd, train.log)' --script train.py"),
    ("deploy --host=gpu-a train.py", "deploy --hosts gpu-a --script train.py"),
    ("up --nproc_per_node=2 train.py", "up --nproc 2 --script train.py"),
    ("up --nproc-per-node 2 train.py", "up --nproc 2 --script train.py"),
    ("run --nproc_per_node 2 train.py", "up --nproc 2 --script train.py"),
    ("launch --num_processes 2 train.py", "up --nproc 2 --script train.py"),
    ("up --nnodes=2 train.py", "up --workers 1 --script train.py"),
    ("up --nodes 1 train.py", "up --script train.py"),
    ("run -H a --gpus-per-node 2 train.py", "deploy --hosts a --nproc 2 --script train.py"),
    ("results", "fetch"),
]
LEAST = 0.95


@pytest.fixture
def typed(tmp_path, monkeypatch, capsys):
    """Returns typed(line): the command that a line runs and its words, or the text of the error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(folders, "RUNS", tmp_path / "runs")
    for name in ("train.py", "run.sh", "train.log"):
        Path(name).touch()
    done = []
    for command in main.every_command():

        def work(options, console, name=command.name, **own):
            done.append((name, options, own))
            return 0

        monkeypatch.setattr(command, "work", work)

    def run(line):
        done.clear()
        code = main.run(shlex.split(line))
        return done[0] if done else Said(code, capsys.readouterr().err)

    return run


def means(line, typed):
    """What a line does, either itself or through the command in its hint."""
    done = typed(line)
    if isinstance(done, Said):
        hints = [typed(hint.removeprefix("muster ")) for hint in commands(done, shlex.split(line))]
        return next((each for each in hints if not isinstance(each, Said)), done)
    return done


def test_what_users_type_first_works_or_the_hint_names_a_command_that_works(typed, capsys):
    wrong = {line: means(line, typed) for line, ours in FORMS if means(line, typed) != typed(ours)}
    assert len(FORMS) >= 60
    assert len(wrong) <= (1 - LEAST) * len(FORMS), wrong
    print(f"{len(FORMS) - len(wrong)} of {len(FORMS)}; not: {wrong}")


def test_help_and_version_are_shown_however_they_are_asked_for(capsys):
    lines = ("help", "--help", "-h", "", "help deploy", "deploy --help", "--help deploy", "version", "--version", "-v")
    for line in lines:
        assert main.run(line.split()) == 0
        assert capsys.readouterr().out
