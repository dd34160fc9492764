"""The commands that people type first for a training script: they run, or are refused with the form that works.

    python -m benchmarks.commands [--quick]

Each form is given to `fab up --script` as it stands. Its script sums a tensor over all ranks, and writes what it saw.
A form runs if exactly the ranks that it asks for agree. A refusal counts if the form in its hint runs. The same form
is planned for hosts, without asking any. The rival is the same form behind `torchrun`, for one rank.

A second list has forms that the code has no rule for. A few are drawn from it, the same in every run: reported apart.
"""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks import nodes
from benchmarks.figure import Row, alone, result, say
from benchmarks.venv import HOME
from deploy.core.errors import USAGE, DeployError
from deploy.job.cluster import from_flag
from deploy.job.load import folder_to_send, read_command
from deploy.job.options import Options

TRAIN = """
import os, sys
import torch, torch.distributed as dist
total, rank, world = torch.ones(1), 0, 1
if "RANK" in os.environ:  # not where one rank is typed as plain python
    dist.init_process_group("gloo")
    dist.all_reduce(total)
    rank, world = dist.get_rank(), dist.get_world_size()
    dist.destroy_process_group()
with open(f"rank-{rank}-of-{world}", "w") as file:
    file.write(f"{int(total)} {' '.join(sys.argv[1:])}")
"""
# The command, how many ranks it asks for on one node without a GPU, and what must be installed for it.
FORMS = (
    ("train.py --lr 3e-4", 1, ""),
    ("./train.py", 1, ""),
    ("python train.py --lr 3e-4", 1, ""),
    ("python3 -u train.py", 1, ""),
    ("python -m pkg.train", 1, ""),
    ("-m pkg.train", 1, ""),
    ("torchrun train.py", 1, ""),
    ("torchrun --nproc-per-node 2 train.py", 2, ""),
    (
        "torchrun --nproc_per_node=2 --nnodes=1 --node_rank=0 --master_addr=localhost --master_port=29501 train.py",
        2,
        "",
    ),
    ("torchrun --standalone --nproc-per-node=gpu train.py", 1, ""),
    ("python -m torch.distributed.run --nproc-per-node 2 -m pkg.train", 2, ""),
    ("python -m torch.distributed.launch --nproc_per_node=2 train.py", 2, ""),
    ("accelerate launch train.py", 1, "accelerate"),
    ("accelerate launch --cpu --mixed_precision no train.py", 1, "accelerate"),
    ("deepspeed train.py", 1, "deepspeed"),
    ("bash run.sh --lr 3e-4", 1, ""),
    ("./run.sh", 1, ""),
    ("my-train --lr 3e-4", 1, ""),
    ("OMP_NUM_THREADS=1 python train.py", 1, ""),
    ("nohup python train.py", 1, ""),
    ("uv run train.py", 1, ""),
    ("srun python train.py", 1, ""),
)
UNRULED = (
    "rye run python train.py",
    "ionice -c 3 python train.py",
    "setsid python train.py",
    "timeout 60 python train.py",
    "xvfb-run python train.py",
    "nsys profile python train.py",
    "py-spy record -- python train.py",
    "scalene train.py",
    "screen -dm python train.py",
    "docker run image python train.py",
    "lightning run train.py",
    "composer -n 1 train.py",
    "ipython train.py",
    "make train",
    "python train",
    "python pkg/train.py",
    "python 'train.py'",
    "python3.11 ./train.py",
    "python -X dev train.py",
    "python -u -W ignore train.py",
    "python -m cProfile train.py",
    "python -m accelerate.commands.launch --cpu train.py",
    "sh -c 'python train.py'",
    "bash -lc 'torchrun train.py'",
    "torchrun --nproc-per-node=1 -- train.py",
    "/bin/bash run.sh",
    "pkg/train.py",
    "my-train",
)
DRAWN, SEED = 8, 13


@dataclass(frozen=True)
class Verdict:
    """What became of a form. `right`: it ran as asked, or was refused with a form that ran."""

    form: str
    words: str
    right: bool


def measure(quick: bool) -> dict[str, Any]:
    """How many forms run, or are refused with a form that runs."""
    forms = FORMS[::3] if quick else FORMS
    lacking = sorted({needs for _, _, needs in forms if needs and not find_spec(needs)})
    here = [entry for entry in forms if entry[2] not in lacking]
    drawn = random.Random(SEED).sample(UNRULED, 2 if quick else DRAWN)
    with nodes.scratch() as scratch:
        project = _project(scratch / "project")
        ran = [_judged(form, ranks, project) for form, ranks, _ in here]
        bare = [_behind_torchrun(form, project) for form, ranks, _ in here]
        strange = [_judged(form, 1, project) for form in drawn]
        planned = [form for form, _, _ in forms if _plans(form, project)]
    good, all_here = sum(verdict.right for verdict in ran), len(ran)
    rows = [
        Row("forms that people type, on this machine", f"{good} of {all_here}",
            f"behind torchrun {sum(bare)} of {all_here}", "", "all", good == all_here),
        Row("the same, planned for hosts", f"{len(planned)} of {len(forms)}", "", "", "all",
            len(planned) == len(forms)),
        Row("forms without a rule, drawn", f"{sum(verdict.right for verdict in strange)} of {len(strange)}"),
    ]  # fmt: skip
    notes = [f"{verdict.form}: {verdict.words}" for verdict in (*(v for v in ran if "refused" in v.words), *strange)]
    notes += [f"wrong: {verdict.form}: {verdict.words}" for verdict in ran if not verdict.right]
    notes += [f"not run here, only planned: {name} is not installed" for name in lacking]
    return result(rows, notes)


def _project(folder: Path) -> Path:
    (folder / "pkg").mkdir(parents=True)
    (folder / "bin").mkdir()
    python = f"#!{sys.executable}\n"
    for name in ("train.py", "pkg/train.py", "bin/my-train"):
        (folder / name).write_text(python + TRAIN)
    (folder / "pkg" / "__init__.py").touch()
    (folder / "run.sh").write_text('#!/bin/bash\ntorchrun train.py "$@"\n')
    for name in ("train.py", "bin/my-train", "run.sh"):
        (folder / name).chmod(0o755)
    return folder


def _judged(form: str, ranks: int, project: Path) -> Verdict:
    code, words, hint = _up(form, ranks, project)
    say(f"commands: {form}: {words}")
    if code == 0:
        return Verdict(form, words, words == "runs")
    instead = _form_of(hint)
    if code != USAGE or not instead:
        return Verdict(form, f"{words}; {hint}", False)
    code, again, _ = _up(instead, ranks, project)
    say(f"commands: {form}: the hint `{instead}`: {again}")
    return Verdict(form, f"refused ({words}); `{instead}` {again}", again == "runs")


def _up(form: str, ranks: int, project: Path) -> tuple[int, str, str]:
    """The exit code of `fab up` with a form; `runs`, or what went wrong; the hint of an error."""
    line = [
        Path(sys.executable).with_name("fab"),
        "up",
        "--backend=processes",
        "--json",
        f"--folder={project}",
        f"--script={form}",
    ]
    done = subprocess.run(
        line, cwd=HOME, env=_variables(project), capture_output=True, text=True, timeout=120, check=False
    )
    events = [json.loads(row) for row in done.stdout.splitlines() if row.startswith("{")]
    ended: dict[str, Any] = next((event for event in events if event.get("kind") == "result"), {})
    fault: dict[str, Any] = next((event for event in events if event.get("kind") == "error"), {})
    try:
        if done.returncode:
            words = (ended or fault).get("message") or (done.stderr.strip().splitlines() or ["no message"])[-1]
            return done.returncode, words, (ended or fault).get("hint", "")
        return 0, _seen(Path(HOME, ended["folder"], "work"), ranks, form), ""
    finally:
        if ended:
            shutil.rmtree(HOME / ended["folder"], ignore_errors=True)


def _seen(folder: Path, ranks: int, form: str) -> str:
    """Whether the ranks that are due agreed, and got the arguments of the form and no other.

    torch's old launcher gives each rank its number as an argument.
    """
    files = {path.name: path.read_text().strip() for path in folder.glob("rank-*")}
    arguments = " --lr 3e-4" if "--lr" in form else " --local-rank={rank}" if "distributed.launch" in form else ""
    due = {f"rank-{rank}-of-{ranks}": f"{ranks}{arguments.format(rank=rank)}" for rank in range(ranks)}
    return "runs" if files == due else f"wrote {files or 'nothing'} instead of {due}"


def _behind_torchrun(form: str, project: Path) -> bool:
    """Whether a form runs if somebody writes torchrun in front of it."""
    for path in project.glob("rank-*"):
        path.unlink()
    line = [Path(sys.executable).with_name("torchrun"), "--nproc-per-node=1", "--standalone", *shlex.split(form)]
    try:
        done = subprocess.run(line, cwd=project, env=_variables(project), capture_output=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return False
    right = done.returncode == 0 and _seen(project, 1, form) == "runs"
    for path in project.glob("rank-*"):
        path.unlink()
    return right


def _variables(project: Path) -> dict[str, str]:
    path = os.pathsep.join([str(project / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path}


def _plans(form: str, project: Path) -> bool:
    """Whether a deploy would take the form, or refuse it with one that it takes.

    A command that names its number of nodes is for as many hosts.
    """
    try:
        options, _ = read_command(Options("a,b", script=form, folder=str(project)))
        folder_to_send(options, from_flag("a,b"))
    except DeployError as refusal:
        instead = _form_of(refusal.hint)
        return refusal.code == USAGE and bool(instead) and instead != form and _plans(instead, project)
    return True


def _form_of(hint: str) -> str:
    """The form that a hint offers, or nothing."""
    inner = re.search(r"--script (.+?)(?:; .*)?$", hint)
    return shlex.split(inner[1])[0] if inner else ""


if __name__ == "__main__":
    alone(measure, __doc__)
