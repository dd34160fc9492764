"""A Slurm job that is preempted at random moments and requeued: are its final weights those of a job left alone?

    python -m benchmarks.slurm [--quick]

A real slurmctld and two slurmd in a container (lab/slurm). The job is what `muster export --to sbatch` prints for a
plain loop with `muster.Training` on two nodes, in a partition with 20 s of grace. A job of a higher partition takes
both nodes at a moment that is drawn evenly from the time that an undisturbed job trains; Slurm preempts and requeues
ours. Every bit of the final weights must be that of an undisturbed job. A preemption that comes after the end is none.

The rival is torchx, installed into a throw-away environment: the batch script that its Slurm scheduler makes for the
same file, with retries, on the same cluster. Then both get a script that always fails: how often do they start it?
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

from benchmarks.figure import Row, alone, result, say
from lab.slurm.cluster import SHARED, Slurm, cluster

STEPS, TORCHX = 80, "torchx==0.7.0"
SCRIPT = f"""
import hashlib, time, torch
from torch import nn
from torch.distributed import destroy_process_group, get_rank, init_process_group
from torch.utils.data import TensorDataset
import muster
init_process_group("gloo")
torch.manual_seed(0)
x = torch.randn(640, 16)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
training = muster.Training(save_every=10, model=model, optimizer=optimizer)
if get_rank() == 0:
    open("began", "a").write(f"{{training.step}}\\n")
for batch, target in training.batches(TensorDataset(x, x.sum(1, keepdim=True)), batch=32, steps={STEPS}):
    loss = nn.functional.mse_loss(model(batch), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.1)
if get_rank() == 0:
    weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    open("final", "w").write(f"{{training.step}} {{hashlib.sha256(weights).hexdigest()}}")
destroy_process_group()
"""
FAILS = "open('began', 'a').write('0\\n')\nraise SystemExit(1)\n"


def measure(quick: bool) -> dict[str, Any]:
    """How many preempted jobs end with the same bits, ours and torchx's; how often a broken script starts."""
    trials, theirs = (2, 1) if quick else (10, 3)
    draw = random.Random(0)
    with tempfile.TemporaryDirectory() as scratch, cluster(2) as slurm:
        torchx = _install_torchx(Path(scratch))
        submit_ours = "muster export --nodes 2 --slurm=--partition=low --script steps.py >job.sbatch"
        right, wrong = _trials(slurm, "ours", submit_ours, trials, draw)
        fails, more = _starts(slurm, submit_ours)
        say(f"ours: a script that always fails was started {fails} times{more}")
        rival = fails_rival = "torchx cannot be installed here"
        if torchx:
            slurm.write(f"{SHARED}/torchx.sbatch", torchx)
            submit = f"cp {SHARED}/torchx.sbatch job.sbatch"
            try:
                rival_right, rival_wrong = _trials(slurm, "torchx", submit, theirs, draw)
                rival, wrong = f"torchx {rival_right} of {theirs}", [*wrong, *rival_wrong]
            except AssertionError as fault:
                rival, wrong = "torchx does not train here", [*wrong, f"torchx: {str(fault)[:300]}"]
                slurm.out("scancel --user muster")
            starts, still = _starts(slurm, submit)
            fails_rival = f"torchx {starts}{still}"
    rows = [
        Row("preempted at a random moment and requeued: final weights bit-identical", f"{right} of {trials}", rival, "",
            f"{trials} of {trials}", right == trials),
        Row("... starts of a script that always fails", f"{fails}{more}", fails_rival, "", "1",
            (fails, more) == (1, "")),
    ]  # fmt: skip
    return result(rows, [f"{STEPS} steps on two nodes; torchx's script with 5 retries", *wrong])


def _trials(slurm: Slurm, name: str, submit: str, trials: int, draw: random.Random) -> tuple[int, list[str]]:
    """How many preempted jobs ended with the bits of an undisturbed one, and what became of the others."""
    right, wrong, done = 0, list[str](), 0
    reference, _ = _job(slurm, submit, SCRIPT)
    slurm.until(lambda: _read(slurm, reference, "began"), 180)
    met = time.monotonic()
    expected = slurm.until(lambda: _read(slurm, reference, "final"), 300)
    lasted = time.monotonic() - met
    slurm.until(lambda: not slurm.out("squeue --noheader"), 120)
    while done < trials:
        moment = draw.uniform(0.0, lasted)
        folder, job = _job(slurm, submit, SCRIPT)
        slurm.until(lambda: _read(slurm, folder, "began"), 180)  # noqa: B023
        time.sleep(moment)
        if _read(slurm, folder, "final"):  # faster than the undisturbed one: it is no preemption
            slurm.until(lambda: not slurm.out("squeue --noheader"), 120)
            continue
        slurm.out("sbatch --partition=high --exclusive --nodes=2 --output=/dev/null --wrap 'sleep 1'", folder)
        try:
            slurm.until(lambda: not slurm.out("squeue --noheader"), 300)
            words = f"began at {_read(slurm, folder, 'began').split()}, {_read(slurm, folder, 'final') or 'no end'}"
        except AssertionError:
            slurm.out("scancel --user muster")
            slurm.until(lambda: not slurm.out("squeue --noheader"), 120)
            words = "does not end"
        if _restarts(slurm, job) == "0" and expected in words:
            say(f"{name}: the job had ended before it was preempted")
            continue
        done += 1
        right += (same := expected in words)
        wrong += [] if same else [f"{name}, preempted {moment:.1f} s after its start: {words}"]
        how = "the same" if same else "NOT the same"
        say(f"{name} {done}/{trials}: preempted at {moment:.1f} s: {words[:60]}: {how}")
    return right, wrong


def _starts(slurm: Slurm, submit: str) -> tuple[int, str]:
    """How often a script that always fails is started; and a word, if it may be started again after ten minutes."""
    _, job = _job(slurm, submit, FAILS)
    try:
        slurm.until(lambda: not slurm.out("squeue --noheader"), 600)  # Slurm waits a minute or two before each requeue
        return 1 + int(_restarts(slurm, job)), ""
    except AssertionError:
        starts = 1 + int(_restarts(slurm, job))
        slurm.out("scancel --user muster")
        return starts, " in 10 minutes, and no end"


def _job(slurm: Slurm, submit: str, script: str) -> tuple[str, str]:
    folder = slurm.out(f"mktemp -d -p {SHARED}")
    slurm.write(f"{folder}/steps.py", script)
    slurm.out(submit, folder)
    return folder, slurm.out("sbatch --parsable job.sbatch", folder)


def _restarts(slurm: Slurm, job: str) -> str:
    return slurm.job(job)["Restarts"]


def _read(slurm: Slurm, folder: str, name: str) -> str:
    return slurm.shell(f"cat {folder}/{name}").stdout.strip()


def _install_torchx(scratch: Path) -> str:
    """The batch script that torchx makes for the same file; empty where it cannot be installed."""
    venv.create(scratch / "torchx")
    python = scratch / "torchx" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", TORCHX]
    if subprocess.run(pip, capture_output=True, check=False).returncode:
        return ""
    line = [python, "-m", "torchx.cli.main", "run", "--dryrun", "--workspace=", "-s"]
    line += ["slurm", "-cfg", "partition=low", "dist.ddp", "-j", "2x1", "--max_retries", "5", "--script", "steps.py"]
    made = subprocess.run(line, cwd=scratch, capture_output=True, text=True, check=False)
    text = re.search(r"^#!/bin/bash\n.*", made.stdout + made.stderr, re.M | re.S)
    return text[0] if text else ""


if __name__ == "__main__":
    alone(measure, __doc__)
