"""When a rank gives up instead of starting once more."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.ports import free_port
from muster.errors import TrainError
from trainer.run_dir import RankFolder
from trainer.train import run

pytestmark = pytest.mark.torch
HOME = Path(__file__).resolve().parents[4]


def test_a_rank_gives_up_after_starts_that_died_but_not_after_starts_with_an_outcome(tmp_path):
    folder = RankFolder(tmp_path, 0, "a")
    for _ in range(6):
        folder.event("started")
        folder.event("outcome")
    assert run._count_starts(folder) == 6
    for _ in range(5):
        folder.event("started")
    with pytest.raises(TrainError, match="5 times without a single step"):
        run._count_starts(folder)


@pytest.mark.parametrize(("run_dir", "what"), [("", "runs"), ("/proc/run", "/proc/run")])
def test_a_place_where_no_run_folder_can_be_made_is_named_without_a_traceback(run_dir, what):
    place = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    ours = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")}
    given = {**ours, **place, "MUSTER_RUN_DIR": run_dir, "MASTER_PORT": str(free_port()), "PYTHONPATH": str(HOME)}
    command = [sys.executable, "-P", "-m", "muster.trainer", "--steps", "1"]
    done = subprocess.run(command, cwd="/proc", env=given, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert f"(rank 0): {what}: No such file or directory" in done.stderr
    assert ("go to a folder in which you can write" in done.stderr) == (not run_dir), (
        "runs/ is made where nobody names a folder"
    )
    assert "Traceback" not in done.stderr
