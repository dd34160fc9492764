"""The watcher in a real process: what it keeps of a script does not grow for ever, and what it tells has no secret."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SITE = Path(__file__).parents[6] / "trainer/node/rank/site"
# A script that steps by itself, as `parameter -= rate * parameter.grad` does.
STEPS = """
import gc, torch
weight = torch.ones(1, requires_grad=True)
for _ in range(5000):
    weight.sum().backward()
print(sum(isinstance(each, torch.Tensor) for each in gc.get_objects()))
"""


SECRET = "hunter2-hunter2-hunter2-hunter2"
# An optimizer whose words for a fault have a secret where what is told of the fault is cut.
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


def test_a_script_without_an_optimizer_of_torchs_takes_no_more_memory_with_each_step(tmp_path):
    assert int(ran(tmp_path, STEPS)) < 100


def test_no_part_of_a_secret_is_told_with_a_fault(tmp_path):
    ran(tmp_path, FAILS)
    told = (tmp_path / "ranks/rank-0.jsonl").read_text()
    assert "the watcher failed: ValueError: xxx" in told
    assert "hunter2" not in told
