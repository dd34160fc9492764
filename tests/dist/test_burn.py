"""The program of a burn, as text, in a process of its own; two stand-ins on the CPU take the place of GPUs."""

import ast
import os
import sys
from pathlib import Path

import pytest

from deploy.hosts import burn
from deploy.local.probe import LocalProbe
from deploy.preflight import probe_answers
from lab.waiting import until


@pytest.fixture
def probe():
    """The burn's program, before its question."""
    started = LocalProbe("here", [sys.executable], {**os.environ, "CUDA_VISIBLE_DEVICES": ""}, burn.program())
    yield started
    started.close()


def test_each_device_is_measured_and_nothing_comes_out_wrong(probe):
    probe.send({"seconds": 2, "device": "cpu"})
    answer = probe_answers.read("burn", probe.read(60))
    assert [(gpu["wrong_words"], gpu["wrong_products"], gpu["wrong_peers"]) for gpu in answer["gpus"]] == [
        (0, 0, [])
    ] * 2
    for gpu in answer["gpus"]:
        assert min(gpu["tflops"], gpu["memory"], gpu["to"], gpu["back"], *gpu["peers"].values()) > 0


def test_without_a_gpu_the_answer_has_none(probe):
    probe.send({"seconds": 5})
    assert probe_answers.read("burn", probe.read(60))["gpus"] == []


def test_when_the_other_side_goes_all_its_processes_end(probe):
    pid = probe._process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children")
    probe.send({"seconds": 600, "device": "cpu"})
    # The copies' process first, then one for each device.
    until(lambda: len(children.read_text().split()) == 2, "a process for each device", 60)
    loaded = [Path("/proc", child) for child in children.read_text().split()]
    probe._process.stdin.close()
    assert probe._process.wait(20) == 9
    until(lambda: not any(child.exists() for child in loaded), "their end", 10)


def test_the_program_is_one_text_that_python_3_8_can_read():
    text = burn.program().decode()
    assert "from .nvidia_smi" not in text
    ast.parse(text, feature_version=(3, 8))
