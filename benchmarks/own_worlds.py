"""Scripts that bring a world of their own, on two nodes: right, or named in words; and harmless ones, which are done.

    python -m benchmarks.own_worlds [--quick]
    OWN_WORLDS="processes standalone;mp.spawn" python -m benchmarks.own_worlds
    OWN_WORLDS="rack-1+rack-2" python -m benchmarks.own_worlds              # on hosts

Each form is `run.sh` behind `muster up --workers 1`, as processes and in containers. It is right if all ranks of its
output are of one world, and named if the run fails and says so; `done` with two worlds is never right. The seconds go
from the first sign of such a world (a rank that has joined it, a launcher's first line) to the words. The harmless
forms have groups of some ranks on purpose.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import nodes
from benchmarks.figure import Row, alone, result, say
from benchmarks.venv import FAB, HOME

LIMIT_S = 300.0
NAMED = re.compile(r"trained alone|train alone so far|wait alone|wait for others where none of them comes")
TRAIN = """import os, sys, torch, torch.distributed as dist
def train(**own):
    dist.init_process_group("gloo", **own)
    r, w = dist.get_rank(), dist.get_world_size()
    print("joined", flush=True)
    m = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    o = torch.optim.SGD(m.parameters(), 0.1)
    for i in range(3):
        loss = m(torch.ones(2, 4)).pow(2).mean(); o.zero_grad(); loss.backward(); o.step()
    print(f"trained {r} of {w}", flush=True)
    dist.destroy_process_group()
if __name__ == "__main__":
    train()
"""
SPAWN = """import os, sys, torch.multiprocessing as mp, torch.distributed as dist
from datetime import timedelta
from train import train
def work(local, how, port):
    if how == "env":
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        train(rank=local, world_size=2)
    elif how == "tcp":
        train(rank=local, world_size=2, init_method=f"tcp://localhost:{port}")
    elif how == "file":
        train(rank=local, world_size=2, init_method=f"file://{os.getcwd()}/meet-{port}")
    elif how == "store":
        train(rank=local, world_size=2, store=dist.TCPStore("localhost", int(port), 2, local == 0))
if __name__ == "__main__":
    mp.spawn(work, (sys.argv[1], sys.argv[2]), nprocs=2)
"""
# As deepspeed.launcher.launch does it: the variables of a world of this host, and a process for each rank.
DEEPSPEED = """import os, subprocess, sys
given = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": sys.argv[1], "WORLD_SIZE": "2"}
words = [sys.executable, "-u", *sys.argv[2:]]
ranks = [subprocess.Popen(words, env={**given, "RANK": r, "LOCAL_RANK": r}) for r in "01"]
sys.exit(max(rank.wait() for rank in ranks))
"""
# As Accelerate's launcher for one machine: torchrun's own functions, called from another program.
ACCELERATE = """import sys
from torch.distributed.run import get_args_parser, run
args = get_args_parser().parse_args(["--nnodes=1", "--nproc-per-node=2", "--master_port", sys.argv[1], sys.argv[2]])
args.node_rank, args.master_addr = 0, "127.0.0.1"
run(args)
"""
OUTER = (
    "import subprocess\nsubprocess.run(['torchrun', '--standalone', '--nnodes=1', '--nproc-per-node=2', 'train.py'])\n"
)
EVALUATE = """import torch, torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
score = torch.nn.Linear(4, 1)(torch.ones(2, 4)).mean()
dist.all_reduce(score)
"""
HELPER = """import multiprocessing, os, torch.distributed as dist, torch
from train import train
def help():
    import torch
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    dist.all_reduce(torch.ones(1))
if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=help)
    process.start(); process.join()
    train()
"""
GROUPS = """import torch, torch.distributed as dist
from train import train
if __name__ == "__main__":
    dist.init_process_group("gloo")
    some = dist.new_group([0])
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(1), group=some)
    dist.barrier(); dist.destroy_process_group()
    train()
"""
LOCAL = """import os, torch.distributed as dist, torch.multiprocessing as mp
from train import train
def help(local, port):
    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=local, world_size=2)
    dist.barrier()
if __name__ == "__main__":
    mp.spawn(help, (29730 + int(os.environ["RANK"]),), nprocs=2)
    train()
"""
FILES = {
    "train.py": TRAIN, "spawn.py": SPAWN, "speed.py": DEEPSPEED, "launch.py": ACCELERATE, "outer.py": OUTER,
    "eval.py": EVALUATE, "helper.py": HELPER, "groups.py": GROUPS, "local.py": LOCAL,
    "inner.sh": "torchrun --standalone \\\n  --nproc_per_node=2 train.py\n",
    "hello.py": "import time, torch\ntime.sleep(4)\nprint('torch', torch.__version__)\n",
}  # fmt: skip
FALLBACK = """set -eo pipefail
ARGS=(--nnodes=${SLURM_NNODES:-1} --node-rank=${SLURM_NODEID:-0} --nproc-per-node=2)
HOST=$(scontrol show hostnames "${SLURM_STEP_NODELIST:-localhost}" 2>/dev/null | head -1 || echo localhost)
ARGS+=(--rdzv-backend=c10d --rdzv-endpoint=$HOST:29577)
torchrun "${ARGS[@]}" train.py
"""
CLEAN = "env -i PATH=$PATH HOME=$HOME LD_LIBRARY_PATH=$LD_LIBRARY_PATH"
OWN = {
    "standalone": "torchrun --standalone --nproc_per_node=2 train.py",
    "standalone, --nnodes=1": "torchrun --standalone --nnodes=1 --nproc_per_node=2 train.py",
    "--nnodes=1": "torchrun --nnodes=1 --node_rank=0 --nproc_per_node=2 --master_port=2951$NODE_RANK train.py",
    "--nnodes=1, no --node_rank": "torchrun --nnodes=1 --nproc_per_node=2 --rdzv_id=1 "
    "--rdzv_endpoint=localhost:2956$NODE_RANK train.py",
    "torch.distributed.run, localhost": "python -m torch.distributed.run --nnodes 1 --node_rank 0 --nproc_per_node 2 "
    "--master_addr 127.0.0.1 --master_port 2952$NODE_RANK train.py",
    "torch.distributed.launch": "python -m torch.distributed.launch --nproc_per_node=2 --nnodes=1 --node_rank=0 "
    "--master_addr=localhost --master_port=295$((70+NODE_RANK)) --use-env train.py",
    "${SLURM_NNODES:-1}": FALLBACK,
    "two nodes at localhost": "torchrun --nnodes=2 --nproc_per_node=2 --rdzv_backend=c10d --rdzv_id=1 "
    "--rdzv_endpoint=localhost:29620 train.py",
    "two nodes, --master_addr=localhost": "torchrun --nnodes=2 --node_rank=$NODE_RANK --nproc_per_node=2 "
    "--master_addr=localhost --master_port=29630 train.py",
    "MASTER_ADDR in the script": "export MASTER_ADDR=127.0.0.1\nexport MASTER_PORT=29640\npython train.py",
    "as Accelerate": "python launch.py 2965$NODE_RANK train.py",
    "as DeepSpeed": "python speed.py 2966$NODE_RANK train.py",
    "mp.spawn": "python spawn.py env 2967$NODE_RANK",
    "tcp://localhost": "python spawn.py tcp 2968$NODE_RANK",
    "file://": "python spawn.py file $NODE_RANK",
    "a TCPStore of its own": "python spawn.py store 2969$NODE_RANK",
    "env -i torchrun": f"{CLEAN} torchrun --nproc_per_node=2 --standalone train.py",
    "env -i, mp.spawn": f"{CLEAN} python spawn.py tcp 2970$NODE_RANK",
    "unset": "unset PET_NNODES PET_NODE_RANK PET_MASTER_ADDR PET_MASTER_PORT\n"
    "torchrun --nproc_per_node=2 --rdzv-endpoint=localhost:0 --rdzv-backend=c10d train.py",
    "a path of its own": "PYTHONPATH=. torchrun --standalone --nproc_per_node=2 train.py",
    # torchrun takes PET_NNODES for the --nnodes that is not there, and waits at an address that only it knows.
    "a path of its own, evaluated before": "export PYTHONPATH=.\ntorchrun --standalone eval.py && torchrun train.py",
    "a script in a script": "bash inner.sh",
    "exec": "cd . && exec torchrun --nnodes 1 --standalone --nproc_per_node=2 train.py",
    "a subprocess of Python": "-- outer.py",
}
HARMLESS = {
    "joined": "torchrun --nproc_per_node=2 train.py",
    "evaluated before": "torchrun --standalone --nnodes=1 eval.py && torchrun --nproc_per_node=2 train.py",
    "a first model for itself": "torchrun --standalone --nnodes=1 train.py >/dev/null && torchrun train.py",
    "evaluated after, by one node": "torchrun train.py\nif [ $NODE_RANK = 0 ]; then torchrun --standalone --nnodes=1 "
    "eval.py; fi",
    "evaluated only": "-- eval.py",
    "a helper with a world of its own": "-- helper.py",
    "groups of some, and a second start": "-- groups.py",
    "a local world first": "-- local.py",
    "a helper without variables": f"{CLEAN} python hello.py && python train.py",
    "a path of its own": "PYTHONPATH=. torchrun --nproc_per_node=2 train.py",
    "a path of its own, evaluated before": "export PYTHONPATH=.\n"
    "torchrun --standalone --nnodes=1 eval.py && torchrun train.py",
    "a late node": "if [ $NODE_RANK = 1 ]; then sleep 14; fi\ntorchrun train.py",
    "separate": "--separate -- torchrun --nnodes=1 --node_rank=0 --standalone train.py",
}  # fmt: skip

KINDS = {"own": OWN, "harmless": HARMLESS}
# What most forms do is wait; one at a time (OWN_WORLDS_AT_ONCE=1) shows how soon they are named.
_AT_ONCE = int(os.environ.get("OWN_WORLDS_AT_ONCE", "3"))


@dataclass(frozen=True)
class Ran:
    """What a run said: its code, the ranks of each world, and the first naming line with its second."""

    code: int
    worlds: list[tuple[int, int]]
    named: str
    named_s: float
    end: str

    @property
    def together(self) -> bool:
        """Whether all ranks that trained are of one world, and all of it did."""
        sizes = {size for _, size in self.worlds}
        return len(sizes) == 1 and sorted(rank for rank, _ in self.worlds) == list(range(*sizes))


def run(folder: Path, form: str, backend: str) -> Ran:
    """One form on two nodes, to its end or for LIMIT_S."""
    for name, text in FILES.items():
        (folder / name).write_text(text)
    options, _, command = form.rpartition("-- ") if form.startswith("-") else ("", "", "bash run.sh")
    if options.strip():  # a shell script too, with options of Muster's
        form, command = command, "bash run.sh"
    (folder / "run.sh").write_text(form + "\n")
    where = ["up", "--backend", backend, "--workers", "1"]
    if backend not in ("processes", "docker"):  # the names of two hosts, as MUSTER_SSH_CONFIG has them
        where = ["deploy", "--hosts", backend.replace("+", ",")]
    line = [FAB, "--search-root", HOME, *where, "--rank", "all"]
    line += [*options.split(), "--requirements", "no", "--", *command.split()]
    path = f"{HOME / '.venv/bin'}:{os.environ['PATH']}"
    process = subprocess.Popen(
        line, cwd=folder, env={**os.environ, "PATH": path}, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    timer = threading.Timer(LIMIT_S, process.terminate)
    timer.start()
    lines = [(time.time(), line.rstrip()) for line in process.stdout or ()]
    code = process.wait()
    timer.cancel()
    worlds = [(int(r), int(w)) for _, line in lines for r, w in re.findall(r"trained (\d+) of (\d+)", line)]
    named = next(((t, line) for t, line in lines if NAMED.search(line)), (0.0, ""))
    ends = [line for _, line in lines if re.match(r"(done|failed|error|stopped)", line)]
    signs = [t for t, line in lines if re.search(r"joined$|OMP_NUM_THREADS|node_rank is only", line)]
    seconds = named[0] - min([*signs, *([] if signs else [_began(folder)])]) if named[1] else 0.0
    return Ran(code, worlds, named[1], seconds, (ends or [lines[-1][1] if lines else ""])[0])


def _began(folder: Path) -> float:
    """When the run's first process of a rank began, in unix seconds."""
    paths = folder.glob("runs/2*/ranks/*.jsonl")
    events = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    return min((event["t"] for event in events if event["kind"] == "began"), default=0.0)


def measure(quick: bool) -> dict[str, Any]:
    """How many forms are right or named, and how many harmless ones are done without a word."""
    backends, _, only = os.environ.get("OWN_WORLDS", "").partition(" ")
    rows, notes = list[Row](), list[str]()
    for backend in backends.split(",") if backends else ("processes", "docker"):
        forms = [(kind, name) for kind, of in KINDS.items() for name in of if not only or name in only.split(";")]
        on_hosts = backend not in ("processes", "docker")  # which a deploy locks until its run begins
        with ThreadPoolExecutor(1 if on_hosts else _AT_ONCE) as threads:
            judged = list(threads.map(partial(_judged, backend), forms[:: 5 if quick else 1]))
        notes += [note for _, note, _ in judged]
        for kind, what in (("own", "worlds of their own: right, or named"), ("harmless", "harmless: done, no word")):
            of = [word for word, _, its in judged if its == kind]
            good = sum(word != "WRONG" for word in of)
            rows.append(Row(f"{backend}, {what}", f"{good} of {len(of)}", "", "", "all", good == len(of)))
    return result(rows, notes)


def _judged(backend: str, form: tuple[str, str]) -> tuple[str, str, str]:
    """The word for a form, a note about it, and its kind."""
    kind, name = form
    with nodes.scratch() as scratch:
        ran = run(scratch, KINDS[kind][name], backend)
    if kind == "harmless":
        word = "right" if ran.code == 0 and not ran.named else "WRONG"
    else:
        word = "right" if ran.code == 0 and ran.together else "named" if ran.code == 1 and ran.named else "WRONG"
    late = f" after {ran.named_s:.0f} s" if ran.named else ""
    note = f"{backend}, {kind}: {name}: {word}{late}: {ran.named or ran.end}"
    say(f"{note} (code {ran.code}, {ran.worlds})")
    return word, note, kind


if __name__ == "__main__":
    alone(measure, __doc__)
