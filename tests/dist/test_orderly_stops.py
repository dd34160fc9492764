"""A script that is asked to stop saves as if its rank got a plain signal, and the outcome says what it wrote."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from deploy.local import processes
from lab import waiting
from tests.dist.conftest import environment

pytestmark = pytest.mark.torch
HOME = Path(__file__).resolve().parents[2]
FAB = Path(sys.executable).with_name("fab")

# Each script prints `ready` once it works. Its last save goes to last.pt.
HEAD = """
import os, signal, subprocess, sys, threading, time
import multiprocessing as mp
rank, stop = int(os.environ.get("RANK", 0)), threading.Event()
def ready():
    print("ready", flush=True)
def save(text="whole", name="last.pt", seconds=0.0):
    if rank == 0:
        with open(name, "w") as file:
            file.write(text[:2]); file.flush()
            time.sleep(seconds)
            file.write(text[2:])
"""
LOADER = """
import torch
from torch.utils.data import DataLoader, TensorDataset
data = DataLoader(TensorDataset(torch.randn(4000, 4)), batch_size=2, num_workers=2)
"""
FLAG = "signal.signal(signal.SIGTERM, lambda *_: stop.set())\n"
SCRIPTS = {
    "workers": LOADER
    + FLAG
    + """
for at, _ in enumerate(data):
    if at == 3: ready()
    if stop.is_set(): break
    time.sleep(0.02)
save(); sys.exit(1)
""",
    "workers-read-on": LOADER
    + FLAG
    + """
batches = iter(data)
next(batches); ready(); stop.wait()
for _ in range(40): next(batches)
save(); sys.exit(1)
""",
    "workers-in-handler": LOADER
    + """
batches = iter(data)
def handle(*_):
    next(batches); save(); sys.exit(0)
signal.signal(signal.SIGTERM, handle)
next(batches); ready()
while True: time.sleep(0.05)
""",
    "slow-save": FLAG + "ready(); stop.wait(); save(seconds=3)",
    "catches-exit": """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
try:
    ready(); time.sleep(100)
finally:
    save(seconds=1)
""",
    "keyboard-interrupt": """
signal.signal(signal.SIGTERM, signal.default_int_handler)
try:
    ready(); time.sleep(100)
except KeyboardInterrupt:
    save(); raise
""",
    "child-program": """
child = subprocess.Popen([sys.executable, "-c", "for _ in iter(input, ''): print('batch', flush=True)"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def ask():
    child.stdin.write("go\\n"); child.stdin.flush(); return child.stdout.readline()
"""
    + FLAG
    + "assert ask(); ready(); stop.wait(); time.sleep(0.5); assert ask() == 'batch\\n'; save(); child.kill()",
    "child-process": """
def fill(queue):
    while True: queue.put("batch")
queue = mp.Queue(2)
child = mp.get_context("fork").Process(target=fill, args=(queue,), daemon=True)
child.start()
"""
    + FLAG
    + "queue.get(); ready(); stop.wait(); time.sleep(0.5)\n"
    + "for _ in range(20): queue.get(timeout=5)\nsave()\n",
    "thread-saves": FLAG
    + "thread = threading.Thread(target=lambda: (stop.wait(), time.sleep(1), save()))\n"
    + "thread.start(); ready(); thread.join()\n",
    "only-rank-0-listens": "if rank == 0: signal.signal(signal.SIGTERM, lambda *_: stop.set())\n"
    + "ready(); stop.wait(); time.sleep(1); save(seconds=2)\n",
    "ignores": "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nready(); time.sleep(6); save()\n",
    "counts-signals": "heard = []\nsignal.signal(signal.SIGTERM, lambda *_: heard.append(1))\n"
    + "ready()\nwhile not heard: time.sleep(0.05)\ntime.sleep(2)\nsave('whole' if len(heard) == 1 else 'twice')\n",
}


@pytest.fixture
def up(tmp_path):
    """run(text, *words): run a script with `fab up` until it prints `wait`, send a signal, and wait for the end."""

    def run(text, *words, number=signal.SIGTERM, run_sh="", wait="ready"):
        (tmp_path / "train.py").write_text(HEAD + text)
        script = "train.py"
        if run_sh:
            (tmp_path / "run.sh").write_text(run_sh)
            script = "bash run.sh"
        line = [FAB, "--search-root", HOME, "up", "--backend", "processes", "--run", "r1", "--requirements", "no"]
        run = subprocess.Popen(
            [*line, *words, "--script", script],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(HOME)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        logs, ranks = tmp_path / "runs/r1/logs", 1 if run_sh else 2

        def all_ready():
            said = [log.read_text() for log in logs.glob("rank-*.log")]
            return len([text for text in said if wait in text]) == ranks

        waiting.until(all_ready, "all ranks to be ready", 90)
        run.send_signal(number)
        try:
            words, _ = run.communicate(timeout=90)
        finally:
            run.kill()
        run.folder, run.words = tmp_path / "runs/r1", words
        run.outcome = json.loads((run.folder / "outcome.json").read_text())
        return run

    return run


def _saved(run):
    path = run.folder / "work/last.pt"
    return path.read_text() if path.exists() else None


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_saves_as_under_a_plain_signal_to_its_rank(up, name):
    run = up(SCRIPTS[name], "--nproc", "2")
    assert _saved(run) == "whole", run.words
    assert run.returncode == 75, run.words
    assert run.outcome["verdict"] == "stopped"
    assert "since then it wrote last.pt" in run.outcome["message"]


def test_a_script_without_a_handler_is_reported_to_have_written_nothing(up):
    run = up("ready(); time.sleep(100)", "--nproc", "2")
    assert run.returncode == 75, run.words
    assert run.outcome["message"] == "train.py was asked to stop; since then it wrote no file"


def test_a_script_that_fails_while_saving_has_failed_not_stopped(up):
    run = up(FLAG + "ready(); stop.wait()\nif rank == 0: raise OSError('no room for last.pt')\n", "--nproc", "2")
    assert run.returncode == 1, run.words
    assert run.outcome["verdict"] == "failed"
    assert "rank 0 failed at it: OSError: no room for last.pt; since then it wrote no file" in run.outcome["message"]


def test_a_save_longer_than_the_grace_period_is_cut_and_reported(up):
    slow = FLAG + "ready(); stop.wait(); save(seconds=6)"
    run = up(slow, "--nproc", "2", "--grace", "2s")
    assert _saved(run) == "wh"
    assert "killed after 2 s while still working (--grace gives more time)" in run.outcome["message"]
    assert "since then it wrote last.pt, which may be incomplete" in run.outcome["message"]


# Reaps each orphan immediately, as systemd does, and ends once no child is left.
REAPER = """
import ctypes, os, sys
PR_SET_CHILD_SUBREAPER = 36
ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, *sys.argv[1:]])
try:
    while True: os.wait()
except ChildProcessError: pass
"""


def test_a_program_below_a_shell_script_does_not_outlive_a_killed_torchrun(tmp_path):
    """Linux ends the shell together with torchrun, but not what the shell has started, which once kept its GPU."""
    (tmp_path / "train.py").write_text(HEAD + "ready(); time.sleep(300)")
    (tmp_path / "run.sh").write_text("python train.py\n:\n")
    given = {"MUSTER_LAUNCHER_RANKS": "1", "MUSTER_NODE": "here", "PYTHONPATH": str(HOME)}
    given |= {"MUSTER_RUN_DIR": str(tmp_path / "run")}
    (tmp_path / "run").mkdir()
    line = [sys.executable, "-c", REAPER, "-P", "-m", "muster.trainer.node", "agent"]
    line += ["--script", "--per-node", "bash", "run.sh"]
    run = subprocess.Popen(line, cwd=tmp_path, env=environment(**given), stdin=subprocess.DEVNULL)
    log = tmp_path / "run/logs/rank-0.log"
    try:
        waiting.until(lambda: log.exists() and "ready" in log.read_text(), "the program to be ready", 90)
        (agent,) = psutil.Process(run.pid).children()
        (torchrun,) = (each for each in agent.children() if "muster.trainer.node.launch.torchrun" in each.cmdline())
        (shell,) = torchrun.children()
        agent.suspend()
        torchrun.kill()
        waiting.until(lambda: not shell.is_running(), "the end of the shell", 30)
        agent.resume()
        run.wait(30)
    finally:
        processes.kill(processes.labelled(tmp_path / "run"))


def test_ranks_below_a_shell_script_are_asked_to_stop_and_their_workers_are_not(up):
    run = up(
        SCRIPTS["workers"]
        .replace("for at,", "p = torch.nn.Parameter(torch.ones(1)); o = torch.optim.SGD([p], 0.1)\nfor at,")
        .replace("if at == 3:", "p.sum().backward(); o.step()\n    if at == 3:"),
        run_sh="python train.py\n",
    )
    assert _saved(run) == "whole", run.words
    assert run.returncode == 75, run.words


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_a_schedulers_signal_goes_to_the_ranks(up, number):
    text = f"signal.signal({int(number)}, lambda *_: stop.set())\nready(); stop.wait(); save(); print('heard')\n"
    run = up(text, "--nproc", "2", number=number)
    assert _saved(run) == "whole", run.words
    assert run.returncode == 0, run.words
    assert f"sending {number.name} to the ranks" in run.words
    assert run.words.count("heard") >= 1
