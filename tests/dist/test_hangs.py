"""Real ranks: a rank that hangs is named while it hangs, and a rank that is only slow is not named."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lab import waiting

pytestmark = pytest.mark.torch
HOME = Path(__file__).resolve().parents[2]
FAB = Path(sys.executable).with_name("fab")
SCRIPT = """
import os, threading, time, torch, torch.distributed as dist
from torch.utils.data import DataLoader
dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 1
    def __getitem__(self, number):
        time.sleep(1000)

def stand():
    {stand}

for step in range({steps}):
    loss = model(torch.randn(8, 4)).pow(2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    if step == 30 and rank == 1:
        stand()
    time.sleep(0.02)
dist.destroy_process_group()
"""


@pytest.fixture
def run(tmp_path):
    """start(stand, steps): run the script with `muster up` on two nodes, with its output in a file; ended later."""
    started = []

    def start(stand, steps, *more):
        (tmp_path / "train.py").write_text(SCRIPT.format(stand=stand, steps=steps))
        workers = () if "--workers" in more else ("--workers", "1")
        words = ["up", "--script", "train.py", "--backend", "processes", *workers, "--run", "r", *more]
        with (tmp_path / "said").open("w") as file:
            line, environment = [str(FAB), "--search-root", str(HOME), *words], {**os.environ, "PYTHONPATH": str(HOME)}
            started.append(subprocess.Popen(line, cwd=tmp_path, env=environment, stdout=file, stderr=subprocess.STDOUT))
        return started[-1]

    start.output = lambda: (tmp_path / "said").read_text()
    start.folder = tmp_path
    yield start
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def test_a_stuck_rank_is_named_with_its_line_and_who_waits_for_it(run):
    run("time.sleep(1000)", 1000)
    waiting.until(lambda: "no rank has made a step" in run.output(), "the hang to be named", 90)
    line = next(line for line in run.output().splitlines() if "no rank has made a step" in line)
    assert "rank 1 (worker-1) is stuck in train.py:16 stand()" in line
    assert "rank 0 waits for it in backward, train.py:20" in line
    why = [str(FAB), "--search-root", str(HOME), "why", "--stacks"]
    answer = subprocess.run(
        why, cwd=run.folder, env={**os.environ, "PYTHONPATH": str(HOME)}, capture_output=True, text=True, timeout=60
    )
    assert answer.returncode == 0, answer.stderr
    assert "rank 1   worker-1   is stuck" in answer.stdout
    assert "work/train.py:16 stand" in answer.stdout


def test_ranks_that_call_different_collectives_are_named_with_their_calls(run):
    run("dist.broadcast(torch.zeros(9), src=0)", 1000)
    waiting.until(lambda: "no rank has made a step" in run.output(), "the hang to be named", 90)
    line = next(line for line in run.output().splitlines() if "no rank has made a step" in line)
    assert "do not agree on the next collective" in line
    assert "rank 1 called broadcast, train.py:16 stand()" in line
    assert "rank 0 called all_reduce, train.py:20" in line


def test_a_rank_that_computes_alone_for_a_while_is_not_named(run):
    process = run("end = time.time() + 14\n    while time.time() < end: torch.randn(64, 64) @ torch.randn(64, 64)", 60)
    assert process.wait(120) == 0, run.output()
    assert "no rank has made a step" not in run.output()


def test_a_stuck_rank_is_ended_if_a_restart_is_left_and_all_train_again(run):
    once = "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0': time.sleep(1000)"
    process = run(once, 200, "--restarts", "1")
    assert process.wait(180) == 0, run.output()
    told = map(json.loads, (run.folder / "runs" / "r" / "ranks" / "rank-1.jsonl").read_text().splitlines())
    ended = next(event for event in told if event["kind"] == "ended")
    assert ended["code"] == -signal.SIGKILL
    assert "was stuck in train.py:16" in ended["how"]


@pytest.mark.parametrize(
    "stand",
    ["lock = threading.Lock(); lock.acquire(); lock.acquire()", "next(iter(DataLoader(Slow(), num_workers=1)))"],
    ids=["a deadlock", "a worker of its DataLoader sleeps"],
)
def test_a_stuck_rank_is_ended_if_nodes_may_be_lost_and_all_train_again(run, stand):
    once = f"if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0': {stand}"
    process = run(once, 200, "--workers", "2", "--min-nodes", "2", "--restarts", "1")
    assert process.wait(180) == 0, run.output()
    told = map(json.loads, (run.folder / "runs" / "r" / "ranks" / "rank-1.jsonl").read_text().splitlines())
    ended = next(event for event in told if event["kind"] == "ended")
    assert ended["code"] == -signal.SIGKILL
    assert "was stuck in train.py" in ended["how"]
