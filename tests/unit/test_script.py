"""Why a script of the user's failed is told from what torchrun and its ranks really say."""

import json
import os
import subprocess
import sys

import pytest

from trainer.script import why_failed

SCRIPT = """
import os, signal, sys, time
if os.environ["RANK"] == "1":
    print("no data here", flush=True)
    {fault}
time.sleep(60)
"""
FAULTS = {
    "raises": "raise ValueError('boom')",
    "exits": "sys.exit(3)",
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
}
TELLS = {
    "raises": ["train.py ended with code 1: ValueError: boom", "raise ValueError('boom')"],
    "exits": ["train.py ended with code 3", "no data here"],
    "killed": ["train.py was killed by SIGKILL"],
}


@pytest.mark.parametrize("way", FAULTS)
def test_the_rank_that_failed_is_named_with_its_code_and_last_lines(way, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT.format(fault=FAULTS[way]))
    environment = {**os.environ, "PET_NPROC_PER_NODE": "2", "MUSTER_RUN_DIR": str(tmp_path / "run")}
    environment |= {"MUSTER_NODE": "gpu-b", "PET_MASTER_PORT": "0", "PYTHONPATH": os.getcwd(), "OMP_NUM_THREADS": "1"}
    line = [sys.executable, "-P", "-m", "trainer.agent", "--script", "train.py"]
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    verdict = json.loads((tmp_path / "run/outcome/gpu-b-agent.json").read_text())
    assert (verdict["verdict"], verdict["node"], verdict["rank"]) == ("failed", "gpu-b", 1)
    for words in TELLS[way]:
        assert words in verdict["message"]
    assert "N/A" not in verdict["message"]
    assert "torch/distributed" not in verdict["message"]
    assert "exitcode" in done.stderr  # what torchrun and the script said came through


def test_a_victims_words_are_no_verdict():
    said = (
        "Traceback (most recent call last):\n"
        "[rank0]: RuntimeError: [pair.cc:553] Connection closed by peer [10.0.0.3]:1\n"
        "E1121 05:25:14.847000 17494 x/torch/distributed/elastic/multiprocessing/api.py:1002] "
        "failed (exitcode: 1) local_rank: 0 (pid: 17500) of binary: python\n"
    )
    assert why_failed(said, "train.py", "gpu-a", 0) is None
    assert why_failed(said.replace("Connection closed by peer", "shapes differ"), "train.py", "gpu-a", 0) is not None


def test_without_a_word_of_torchrun_nothing_is_made_up():
    assert why_failed("out of disk\n", "train.py", "gpu-a", 0) is None
