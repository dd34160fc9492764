"""The watcher in a real process: what it keeps does not grow forever, and what it reports shows no secret."""

import os
import resource
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from muster.files import read_lines
from trainer.node.rank.steps.watcher import Watcher

SITE = Path(__file__).parents[6] / "trainer/node/rank/site"
# A script that needs no optimizer, because it steps itself as in `parameter -= rate * parameter.grad`.
STEPS = """
import gc, torch
weight = torch.ones(1, requires_grad=True)
for _ in range(5000):
    weight.sum().backward()
print(sum(isinstance(each, torch.Tensor) for each in gc.get_objects()))
"""


SECRET = "hunter2-hunter2-hunter2-hunter2"
# An optimizer whose error message has a secret at the place where the reported message is cut.
FAILS = """
import os, torch
class Own(torch.optim.SGD):
    def __getattribute__(self, name):
        if name == "state" and self.__dict__.get("fails"):
            raise ValueError("x" * 150 + " " + os.environ["TOKEN"])
        return super().__getattribute__(name)
weight = torch.ones(1, requires_grad=True)
optimizer = Own([weight], lr=0.1)
optimizer.fails = True
weight.sum().backward()
try:
    optimizer.step()
except ValueError:
    pass
"""
pytestmark = pytest.mark.torch


def ran(folder: Path, text: str) -> str:
    given = {"MUSTER_OUTCOME_DIR": str(folder), "MUSTER_RUN_DIR": str(folder), "PYTHONPATH": str(SITE)}
    given |= {"MUSTER_SECRET_NAMES": "TOKEN", "TOKEN": SECRET, "RANK": "0", "MUSTER_LIFE": "0-0-1"}
    return subprocess.check_output([sys.executable, "-c", text], env={**os.environ, **given}, text=True, timeout=120)


def test_a_script_without_a_torch_optimizer_takes_no_more_memory_with_each_step(tmp_path):
    assert int(ran(tmp_path, STEPS)) < 100


def test_losses_continue_after_one_that_a_full_disk_has_cut(tmp_path):
    watcher, unseen, hard = object.__new__(Watcher), [], resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    watcher._place, watcher.losses = SimpleNamespace(run=str(tmp_path)), SimpleNamespace()
    watcher._metrics_bytes, watcher._before, watcher.unseen = -1, 0, lambda *words: unseen.append(words)

    def tell(step):
        watcher.losses.points = [{"step": step, "loss": 0.5}]
        watcher._tell_losses()

    tell(1)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "metrics.jsonl").stat().st_size + 10, hard))
    try:
        with pytest.raises(OSError, match="no whole line"):
            tell(2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    tell(3)
    assert ([row["step"] for row in read_lines(tmp_path / "metrics.jsonl")], unseen) == ([1, 3], [])
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write("{}\n")
    tell(4)
    assert unseen == [("loss", "the script writes metrics.jsonl itself")]


def test_no_part_of_a_secret_is_reported_with_an_error(tmp_path):
    ran(tmp_path, FAILS)
    told = (tmp_path / "ranks/rank-0.jsonl").read_text()
    assert "the watcher failed: ValueError: xxx" in told
    assert "hunter2" not in told
