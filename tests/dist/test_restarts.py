"""`muster up --restarts N`: a script that fails or is killed restarts in the same folder, and the run reports it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch
HOME = Path(__file__).resolve().parents[2]
FAB = Path(sys.executable).with_name("fab")
# Rank 1 of 2 fails with {fault} in the middle of the first attempt.
SCRIPT = """
import json, os, signal, time, torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
first = int(open("step").read()) + 1 if os.path.exists("step") else 0
dist.barrier()
print("begins at", first, flush=True)
for step in range(first, 20):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    if rank == 0:
        open("step", "w").write(str(step))
    dist.barrier()
    if rank == 1 and step == 9:
        time.sleep(0.5)
        {fault}
        time.sleep(30)  # a killed agent takes its ranks along a moment later
dist.destroy_process_group()
"""


@pytest.fixture
def up(tmp_path):
    """run(fault, *words): run the script with a fault on two nodes of this machine, to its end."""

    def run(fault, *words):
        (tmp_path / "train.py").write_text(SCRIPT.format(fault=fault))
        line = [str(FAB), "--search-root", str(HOME), "up", "--backend", "processes", "--workers", "1", "--run", "r"]
        environment = {**os.environ, "PYTHONPATH": str(HOME)}
        line += words if "--script" in words else ["--script", "train.py", *words]
        return subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)

    run.folder = tmp_path / "runs" / "r"
    return run


def told(folder):
    """The lines of the run's story; empty if nothing was reported, since the file is then missing."""
    file = folder / "timeline.jsonl"
    return [json.loads(line)["text"] for line in file.read_text().splitlines()] if file.exists() else []


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("raise ValueError('bad sample 7')", "worker-1 (rank 1) ended with code 1: ValueError: bad sample 7"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "worker-1 (rank 1) was killed by SIGKILL"),
        ("os.kill(json.load(open('../nodes/worker-1.json'))['pid'], signal.SIGKILL)", "restarting it"),
    ],
    ids=["an error", "a killed rank", "a killed node"],
)
def test_a_script_that_fails_once_continues_from_its_files_and_is_watched_again(up, fault, reason):
    done = up(fault, "--restarts", "1")
    assert done.returncode == 0, done.stderr
    assert "begins at 10" in done.stdout
    story = told(up.folder)
    assert any(reason in text for text in story)
    assert any("the script starts again (restart 1)" in text for text in story)
    assert "the script starts again (restart 1)" in (up.folder / "report.html").read_text()
    assert json.loads((up.folder / "outcome.json").read_text())["restarts"] == 1
    assert json.loads((up.folder / "record.json").read_text())["again"] == "--restarts 1"
    for rank in (0, 1):
        events = [json.loads(line) for line in (up.folder / f"ranks/rank-{rank}.jsonl").read_text().splitlines()]
        assert len([event for event in events if event["kind"] == "began"]) == 2
        assert len([event for event in events if event["kind"] == "started"]) == 2


def test_a_script_is_restarted_as_often_as_asked_and_not_more(up):
    done = up("raise ValueError('bad sample 7')".replace("raise", "os.remove('step'); raise"), "--restarts", "1")
    assert done.returncode == 1
    assert "rank 1" in done.stderr
    assert "bad sample 7" in done.stderr
    # If the nodes' agents are slow to agree, an extra line reports the rank's end before the verdict.
    assert [text.partition(":")[0] for text in told(up.folder) if "start" in text] == [
        "the script starts again (restart 1)",
        "the script starts over from the beginning",  # because its file `step` is gone
    ]


def test_a_torchrun_command_may_set_the_number_of_restarts(up):
    done = up("raise ValueError('bad sample 7')", "--script", "torchrun --max-restarts 1 train.py")
    assert done.returncode == 0, done.stderr
    assert "begins at 10" in done.stdout
    refused = up("pass", "--script", "torchrun --max-restarts 1 train.py", "--restarts", "2")
    assert refused.returncode == 2
    assert "the script's command says 1" in refused.stderr


def test_without_the_option_a_script_is_not_restarted(up):
    done = up("raise ValueError('bad sample 7')")
    assert done.returncode == 1
    assert (up.folder / "work/step").read_text() == "9"
    assert not told(up.folder)
