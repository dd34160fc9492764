"""`python -m muster.checkpoint` writes the newest usable checkpoint as one file."""

import resource
import sys

import pytest
import torch

from muster.checkpoint import __main__ as command
from muster.checkpoint import store

pytestmark = pytest.mark.torch


@pytest.fixture
def run(tmp_path):
    """A run folder with checkpoints of two steps."""
    for step in (1, 2):
        state = {"model": {"w": torch.full((3,), float(step))}, "position": {"step": step}}
        store.write(tmp_path / "run/checkpoints", step, state, metric=None, summary={})
    return tmp_path / "run"


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Return a function that runs the command and returns its exit code."""

    def call(folder, name="state.pt"):
        monkeypatch.setattr(sys, "argv", ["muster.checkpoint", str(folder), str(tmp_path / name)])
        return command.main()

    return call


def test_the_newest_step_becomes_one_file_and_an_existing_file_is_kept(run, write, tmp_path, capsys):
    assert write(run) == 0
    assert torch.load(tmp_path / "state.pt")["position"]["step"] == 2
    before = (tmp_path / "state.pt").read_bytes()
    assert write(run) == 2
    assert "exists" in capsys.readouterr().err
    assert (tmp_path / "state.pt").read_bytes() == before


def test_a_file_that_cannot_be_written_is_named_with_the_reason(run, write, tmp_path, capsys):
    assert write(run, "nowhere/state.pt") == 1
    assert capsys.readouterr().err.endswith("nowhere/state.pt: No such file or directory\n")
    assert write(run, "run/checkpoints/step-00000002/state.pt/state.pt") == 1
    assert capsys.readouterr().err.endswith("state.pt/state.pt: Not a directory\n")
    assert write(run, "n" * 253) == 1
    assert capsys.readouterr().err.endswith("File name too long\n")
    assert write("r" * 300) == 1
    assert "File name too long" in capsys.readouterr().err
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        assert write(run) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert capsys.readouterr().err.endswith("state.pt: File too large\n")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_damaged_step_is_named_and_the_one_before_is_written(run, write, tmp_path, capsys):
    file = run / "checkpoints/step-00000002/state.pt"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert write(run) == 0
    assert torch.load(tmp_path / "state.pt")["position"]["step"] == 1
    assert "was altered" in capsys.readouterr().err


def test_a_scripts_checkpoints_are_found_below_its_work_folder(run, write, tmp_path):
    (tmp_path / "script/work/training").mkdir(parents=True)
    (run / "checkpoints").rename(tmp_path / "script/work/training/checkpoints")
    assert write(tmp_path / "script") == 0
    assert (tmp_path / "state.pt").is_file()


def test_a_safetensors_file_gets_only_the_weights(run, write, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    assert write(run, "model.safetensors") == 2
    assert "pip install safetensors" in capsys.readouterr().err
    saved = {}
    monkeypatch.setattr(command, "_safetensors", lambda: lambda tensors, path: saved.update(tensors) or path.touch())
    assert write(run, "model.safetensors") == 0
    assert list(saved) == ["w"]
