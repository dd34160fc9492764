"""The watcher in a real process: what it keeps of a script does not grow for ever."""

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


@pytest.mark.torch
def test_a_script_without_an_optimizer_of_torchs_takes_no_more_memory_with_each_step(tmp_path):
    given = {"MUSTER_OUTCOME_DIR": str(tmp_path), "MUSTER_RUN_DIR": str(tmp_path), "PYTHONPATH": str(SITE)}
    environment = {**os.environ, **given, "RANK": "0", "MUSTER_LIFE": "0-0-1"}
    kept = subprocess.check_output([sys.executable, "-c", STEPS], env=environment, text=True, timeout=120)
    assert int(kept) < 100
